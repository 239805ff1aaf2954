//! Virtual addresses to physical ones, as the processor and Windows' memory manager do it (spec 80
//! section 8): x64 with four or five levels, ARM64 with the 4 KiB granule, and Windows' software
//! formats of invalid leaf entries (transition, prototype, page file, demand zero).

mod arm64;
mod software;
mod x64;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use target::{Machine, ReadOutcome, Unreadable};

pub use software::SoftwareLayout;

/// Bytes of a page of both machines.
pub const PAGE_SIZE: u64 = 0x1000;

/// Physical memory as the dump holds it.
pub trait PhysicalMemory {
    /// Fills `buffer` from the start as far as the page map goes.
    fn read_physical(&self, address: u64, buffer: &mut [u8]) -> ReadOutcome;

    /// One little-endian u64.
    fn physical_u64(&self, address: u64) -> Result<u64, Unreadable> {
        let mut bytes = [0; 8];
        match self.read_physical(address, &mut bytes).stopped {
            None => Ok(u64::from_le_bytes(bytes)),
            Some(why) => Err(why),
        }
    }
}

impl<P: PhysicalMemory + ?Sized> PhysicalMemory for &P {
    fn read_physical(&self, address: u64, buffer: &mut [u8]) -> ReadOutcome {
        (**self).read_physical(address, buffer)
    }
}

/// Where a virtual page lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Physical address of the virtual address asked for.
    pub physical: u64,
    /// Size of the page it lies in: 4 KiB, 2 MiB or 1 GiB.
    pub page_size: u64,
    /// The entry was in transition: the frame still holds the page's content.
    pub transition: bool,
    pub writable: bool,
    pub executable: bool,
    pub user: bool,
}

/// What a table entry says.
enum Entry {
    Table(u64),
    Page(Mapping),
    /// Not valid for the hardware; the raw entry.
    Invalid(u64),
}

/// Translations kept; a file never changes, so they are dropped only to bound memory.
const CACHE_ENTRIES: usize = 0x1_0000;
/// A prototype entry may itself be paged by one more level of indirection, never deeper.
const PROTOTYPE_DEPTH: u32 = 2;

type CachedPage = Result<Mapping, Unreadable>;

/// Translates through the page tables in `physical`.
pub struct Translator<P> {
    physical: P,
    machine: Machine,
    five_levels: Cell<bool>,
    /// Root whose kernel half resolves prototype addresses.
    system_root: Cell<u64>,
    software: RefCell<Option<SoftwareLayout>>,
    cache: RefCell<HashMap<(u64, u64), CachedPage>>,
}

impl<P: PhysicalMemory> Translator<P> {
    /// `system_root` is the kernel's DirectoryTableBase, flags included.
    pub fn new(physical: P, machine: Machine, system_root: u64) -> Self {
        let software = (machine == Machine::X64).then(SoftwareLayout::x64);
        Self {
            physical,
            machine,
            five_levels: Cell::new(false),
            system_root: Cell::new(root_of(system_root)),
            software: RefCell::new(software),
            cache: RefCell::default(),
        }
    }

    pub fn physical(&self) -> &P {
        &self.physical
    }

    /// Root frame of the kernel's tables.
    pub fn system_root(&self) -> u64 {
        self.system_root.get()
    }

    /// Sets another root and depth, and forgets every translation: the tables may have changed.
    pub fn set_root(&self, system_root: u64, five_levels: bool) {
        self.system_root.set(root_of(system_root));
        self.set_five_levels(five_levels);
    }

    /// Switches 57-bit addresses (CR4.LA57) on or off.
    pub fn set_five_levels(&self, on: bool) {
        self.five_levels.set(on);
        self.cache.borrow_mut().clear();
    }

    pub fn five_levels(&self) -> bool {
        self.five_levels.get()
    }

    /// Sets how invalid entries are laid out, once types of the kernel are known.
    pub fn set_software_layout(&self, layout: Option<SoftwareLayout>) {
        *self.software.borrow_mut() = layout;
        self.cache.borrow_mut().clear();
    }

    pub fn software_layout(&self) -> Option<SoftwareLayout> {
        *self.software.borrow()
    }

    /// The mapping of `address` under `root` (a DirectoryTableBase, flags allowed).
    pub fn translate(&self, root: u64, address: u64) -> Result<Mapping, Unreadable> {
        let root = root_of(root);
        let address = match self.machine {
            Machine::Arm64 => arm64::canonical(address),
            _ => address,
        };
        let page = address & !(PAGE_SIZE - 1);
        let cached = self.cache.borrow().get(&(root, page)).copied();
        let result = match cached {
            Some(result) => result,
            None => {
                let result = self.walk(root, page, 0);
                let mut cache = self.cache.borrow_mut();
                if cache.len() >= CACHE_ENTRIES {
                    cache.clear();
                }
                cache.insert((root, page), result);
                result
            }
        };
        result.map(|m| Mapping { physical: m.physical | (address & (PAGE_SIZE - 1)), ..m })
    }

    /// Reads virtual memory under `root`, page by page.
    pub fn read(&self, root: u64, address: u64, buffer: &mut [u8]) -> ReadOutcome {
        let mut done = 0usize;
        while done < buffer.len() {
            let Some(at) = address.checked_add(done as u64) else {
                return ReadOutcome::stopped(done, Unreadable::NonCanonical);
            };
            let mapping = match self.translate(root, at) {
                Ok(mapping) => mapping,
                Err(why) => return ReadOutcome::stopped(done, why),
            };
            let in_page = usize::try_from(PAGE_SIZE - at % PAGE_SIZE).unwrap_or(1);
            let count = in_page.min(buffer.len() - done);
            let outcome = self.physical.read_physical(mapping.physical, &mut buffer[done..done + count]);
            done += outcome.read.min(count);
            if let Some(why) = outcome.stopped {
                return ReadOutcome::stopped(done, why);
            }
        }
        ReadOutcome::complete(done)
    }

    fn walk(&self, root: u64, address: u64, depth: u32) -> Result<Mapping, Unreadable> {
        let top = match self.machine {
            Machine::Arm64 => 4,
            _ => x64::check_canonical(address, self.five_levels.get())?,
        };
        let mut table = root;
        for level in (1..=top).rev() {
            let shift = 12 + 9 * (level - 1);
            let slot = table + 8 * (address >> shift & 0x1ff);
            let raw = self.physical.physical_u64(slot).map_err(|why| match why {
                Unreadable::TruncatedFile => why,
                _ => Unreadable::PageTableMissing { level: u8::try_from(level).unwrap_or(0) },
            })?;
            let entry = match self.machine {
                Machine::Arm64 => arm64::decode(raw, level, address),
                _ => x64::decode(raw, level, address),
            };
            match entry {
                Entry::Page(mapping) => return Ok(mapping),
                Entry::Table(next) => table = next,
                Entry::Invalid(raw) if level == 1 => return self.invalid_leaf(raw, address, depth),
                // A page table of ordinary pages may itself be in transition.
                Entry::Invalid(raw) if level == 2 => table = self.table_in_transition(raw)?,
                Entry::Invalid(_) => return Err(Unreadable::NotPresent),
            }
        }
        Err(Unreadable::NotPresent)
    }

    fn table_in_transition(&self, raw: u64) -> Result<u64, Unreadable> {
        let layout = self.software_layout().ok_or(Unreadable::NotPresent)?;
        match layout.classify(raw) {
            software::Kind::Transition(frame) => Ok(frame),
            software::Kind::PagedOut { file, offset } => Err(Unreadable::PagedOut { file, offset }),
            _ => Err(Unreadable::NotPresent),
        }
    }

    fn invalid_leaf(&self, raw: u64, address: u64, depth: u32) -> Result<Mapping, Unreadable> {
        let layout = self.software_layout().ok_or(Unreadable::NotPresent)?;
        match layout.classify(raw) {
            software::Kind::DemandZero => Err(Unreadable::DemandZero),
            software::Kind::PagedOut { file, offset } => Err(Unreadable::PagedOut { file, offset }),
            software::Kind::Transition(frame) => Ok(transition_mapping(frame, address)),
            software::Kind::AskVad => Err(Unreadable::NotPresent),
            software::Kind::Prototype(prototype) => self.prototype(prototype, address, depth),
        }
    }

    /// The page behind a prototype entry, which lives in kernel virtual memory.
    fn prototype(&self, prototype: u64, address: u64, depth: u32) -> Result<Mapping, Unreadable> {
        if depth >= PROTOTYPE_DEPTH {
            return Err(Unreadable::NotPresent);
        }
        let holder = self.walk(self.system_root.get(), prototype & !(PAGE_SIZE - 1), depth + 1);
        let Ok(holder) = holder else { return Err(Unreadable::NotPresent) };
        let raw = self.physical.physical_u64(holder.physical + (prototype & (PAGE_SIZE - 1) & !7));
        let Ok(raw) = raw else { return Err(Unreadable::NotPresent) };
        let valid = match self.machine {
            Machine::Arm64 => arm64::decode(raw, 1, address),
            _ => x64::decode(raw, 1, address),
        };
        if let Entry::Page(mapping) = valid {
            return Ok(mapping);
        }
        let layout = self.software_layout().ok_or(Unreadable::NotPresent)?;
        match layout.classify(raw) {
            software::Kind::Transition(frame) => Ok(transition_mapping(frame, address)),
            software::Kind::PagedOut { file, offset } => Err(Unreadable::PagedOut { file, offset }),
            software::Kind::DemandZero => Err(Unreadable::DemandZero),
            // A prototype's prototype is a subsection: the content is in a mapped file.
            software::Kind::Prototype(_) | software::Kind::AskVad => Err(Unreadable::NotPresent),
        }
    }
}

fn transition_mapping(frame: u64, address: u64) -> Mapping {
    Mapping {
        physical: frame,
        page_size: PAGE_SIZE,
        transition: true,
        writable: false,
        executable: false,
        user: address >> 47 == 0,
    }
}

/// The root table's physical address: bits 51:12; the rest of a DirectoryTableBase are flags.
fn root_of(directory_table_base: u64) -> u64 {
    directory_table_base & 0x000f_ffff_ffff_f000
}

#[cfg(test)]
mod tests;
