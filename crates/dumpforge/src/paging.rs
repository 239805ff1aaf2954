//! Physical memory and the page tables in it.

use std::collections::{BTreeMap, BTreeSet};

use target::Machine;

pub const PAGE: u64 = 0x1000;
const PAGE_SIZE: usize = 0x1000;

/// Page frames. A frame exists once something was written to it or it was allocated.
#[derive(Clone, Debug)]
pub struct PhysicalMemory {
    pages: BTreeMap<u64, Box<[u8; PAGE_SIZE]>>,
    next: u64,
    holes: BTreeSet<u64>,
}

impl PhysicalMemory {
    /// Frames are handed out from `first_pfn` on.
    #[must_use]
    pub fn new(first_pfn: u64) -> Self {
        Self { pages: BTreeMap::new(), next: first_pfn, holes: BTreeSet::new() }
    }

    /// A zeroed frame.
    pub fn allocate(&mut self) -> u64 {
        let pfn = self.next;
        self.next += 1;
        self.pages.insert(pfn, Box::new([0; PAGE_SIZE]));
        pfn
    }

    /// `count` consecutive frames, aligned to `count` frames, that exist only where written to.
    pub fn reserve(&mut self, count: u64) -> u64 {
        let pfn = self.next.next_multiple_of(count.max(1));
        self.next = pfn + count;
        pfn
    }

    /// Leaves a frame out of the dump, though page tables may point at it.
    pub fn make_hole(&mut self, pfn: u64) {
        self.holes.insert(pfn);
    }

    pub fn write(&mut self, address: u64, bytes: &[u8]) {
        let mut done = 0;
        while done < bytes.len() {
            let at = address + done as u64;
            let within = (at % PAGE) as usize;
            let count = (PAGE_SIZE - within).min(bytes.len() - done);
            let page = self.pages.entry(at / PAGE).or_insert_with(|| Box::new([0; PAGE_SIZE]));
            page[within..within + count].copy_from_slice(&bytes[done..done + count]);
            done += count;
        }
    }

    /// Reads; frames that do not exist read as zero.
    #[must_use]
    pub fn read(&self, address: u64, length: usize) -> Vec<u8> {
        let mut out = vec![0; length];
        let mut done = 0;
        while done < length {
            let at = address + done as u64;
            let within = (at % PAGE) as usize;
            let count = (PAGE_SIZE - within).min(length - done);
            if let Some(page) = self.pages.get(&(at / PAGE)) {
                out[done..done + count].copy_from_slice(&page[within..within + count]);
            }
            done += count;
        }
        out
    }

    /// Whether a frame exists.
    #[must_use]
    pub fn contains(&self, pfn: u64) -> bool {
        self.pages.contains_key(&pfn) && !self.holes.contains(&pfn)
    }

    fn quad(&self, address: u64) -> u64 {
        self.read(address, 8).iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
    }

    /// The frames of the dump in order.
    pub(crate) fn pages(&self) -> impl Iterator<Item = (u64, &[u8; PAGE_SIZE])> {
        self.pages.iter().filter(|(pfn, _)| !self.holes.contains(pfn)).map(|(pfn, page)| (*pfn, &**page))
    }
}

/// How a page is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mapping {
    Page,
    /// 2 MiB; the frames exist only where written to.
    Large2M,
    /// 1 GiB; the frames exist only where written to.
    Large1G,
    /// Not valid for the processor, but the frame still holds the page.
    Transition,
    /// The content is where the prototype entry at this virtual address says.
    Prototype {
        entry: u64,
    },
    /// "Look up the VAD".
    PrototypeVad,
    /// As in a page file.
    PageFile {
        file: u8,
        offset: u32,
    },
    /// Transition, with the L1TF mask set in the entry (`SwizzleBit` clear).
    Swizzled {
        mask: u64,
    },
    DemandZero,
    /// Mapped, but its frame is not in the dump.
    Hole,
}

/// One set of page tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressSpace {
    pub machine: Machine,
    /// Physical address of the root table.
    pub root: u64,
    /// 4, or 5 with LA57.
    pub levels: u32,
}

const X64_TABLE: u64 = 0x63;
const X64_PAGE: u64 = 0x163;
const X64_LARGE: u64 = 0x80;
const ARM64_TABLE: u64 = 0x3;
const ARM64_PAGE: u64 = 0x703;
const ARM64_BLOCK: u64 = 0x701;
const FRAME: u64 = 0x0000_ffff_ffff_f000;
const PROTOTYPE: u64 = 1 << 10;
const TRANSITION: u64 = 1 << 11;
const SWIZZLE: u64 = 1 << 4;

impl AddressSpace {
    /// Empty tables of 4 levels, or 5 (LA57).
    pub fn new(memory: &mut PhysicalMemory, machine: Machine, levels: u32) -> Self {
        Self { machine, root: memory.allocate() * PAGE, levels }
    }

    fn index(address: u64, level: u32) -> u64 {
        (address >> (12 + 9 * (level - 1)) & 511) * 8
    }

    fn leaf(&self, pfn: u64, level: u32) -> u64 {
        let frame = pfn * PAGE;
        match (self.machine, level) {
            (Machine::Arm64, 1) => frame | ARM64_PAGE,
            (Machine::Arm64, _) => frame | ARM64_BLOCK,
            (_, 1) => frame | X64_PAGE,
            (_, _) => frame | X64_PAGE | X64_LARGE,
        }
    }

    /// Physical address of the entry for `address` at `level` (1 is the leaf), tables above it made
    /// as needed.
    fn entry(&self, memory: &mut PhysicalMemory, address: u64, level: u32) -> u64 {
        let mut table = self.root;
        for above in (level + 1..=self.levels).rev() {
            let at = table + Self::index(address, above);
            let mut raw = memory.quad(at);
            if raw & 1 == 0 {
                let bits = if self.machine == Machine::Arm64 { ARM64_TABLE } else { X64_TABLE };
                raw = (memory.allocate() * PAGE) | bits;
                memory.write(at, &raw.to_le_bytes());
            }
            table = raw & FRAME;
        }
        table + Self::index(address, level)
    }

    /// Maps the page at `address`. The first frame of what was mapped, if it has one.
    pub fn map(&self, memory: &mut PhysicalMemory, address: u64, how: Mapping) -> Option<u64> {
        let (level, frame, raw) = match how {
            Mapping::Page | Mapping::Hole => {
                let pfn = memory.allocate();
                if how == Mapping::Hole {
                    memory.make_hole(pfn);
                }
                (1, Some(pfn), self.leaf(pfn, 1))
            }
            Mapping::Large2M => {
                let pfn = memory.reserve(512);
                (2, Some(pfn), self.leaf(pfn, 2))
            }
            Mapping::Large1G => {
                let pfn = memory.reserve(512 * 512);
                (3, Some(pfn), self.leaf(pfn, 3))
            }
            Mapping::Transition => {
                let pfn = memory.allocate();
                // Swizzle set: the frame is as it stands.
                (1, Some(pfn), (pfn * PAGE) | TRANSITION | SWIZZLE)
            }
            Mapping::Swizzled { mask } => {
                let pfn = memory.allocate();
                (1, Some(pfn), (pfn * PAGE) | TRANSITION | mask)
            }
            Mapping::Prototype { entry } => (1, None, entry << 16 | PROTOTYPE),
            Mapping::PrototypeVad => (1, None, 0xffff_ffff_0000_0000 | PROTOTYPE),
            Mapping::PageFile { file, offset } => {
                (1, None, u64::from(offset) << 32 | u64::from(file & 15) << 12 | SWIZZLE | 4 << 5)
            }
            Mapping::DemandZero => (1, None, 4 << 5),
        };
        let at = self.entry(memory, address, level);
        memory.write(at, &raw.to_le_bytes());
        frame
    }

    /// Writes a raw leaf entry.
    pub fn set_entry(&self, memory: &mut PhysicalMemory, address: u64, raw: u64) {
        let at = self.entry(memory, address, 1);
        memory.write(at, &raw.to_le_bytes());
    }

    /// Makes the page-table page of `address` itself one in transition.
    pub fn put_table_in_transition(&self, memory: &mut PhysicalMemory, address: u64) {
        let at = self.entry(memory, address, 2);
        let raw = memory.quad(at) & FRAME | TRANSITION | SWIZZLE;
        memory.write(at, &raw.to_le_bytes());
    }

    /// Physical address of a mapped virtual address, through valid and transition entries.
    #[must_use]
    pub fn translate(&self, memory: &PhysicalMemory, address: u64) -> Option<u64> {
        let mut table = self.root;
        for level in (1..=self.levels).rev() {
            let raw = memory.quad(table + Self::index(address, level));
            let page = PAGE << (9 * (level - 1));
            let transition = level == 1 && raw & 1 == 0 && raw & TRANSITION != 0 && raw & PROTOTYPE == 0;
            if raw & 1 == 0 && !transition {
                return None;
            }
            let large = match self.machine {
                Machine::Arm64 => level > 1 && raw & 2 == 0,
                _ => level > 1 && raw & X64_LARGE != 0,
            };
            if level == 1 || large {
                return Some((raw & FRAME & !(page - 1)) | (address & (page - 1)));
            }
            table = raw & FRAME;
        }
        None
    }

    /// Writes bytes, mapping pages that are not mapped yet.
    pub fn write(&self, memory: &mut PhysicalMemory, address: u64, bytes: &[u8]) {
        let mut done = 0;
        while done < bytes.len() {
            let at = address.wrapping_add(done as u64);
            let count = ((PAGE - at % PAGE) as usize).min(bytes.len() - done);
            if self.translate(memory, at).is_none() {
                self.map(memory, at & !(PAGE - 1), Mapping::Page);
            }
            if let Some(physical) = self.translate(memory, at) {
                memory.write(physical, &bytes[done..done + count]);
            }
            done += count;
        }
    }

    /// The readable prefix of `length` bytes.
    #[must_use]
    pub fn read(&self, memory: &PhysicalMemory, address: u64, length: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(length);
        while out.len() < length {
            let at = address.wrapping_add(out.len() as u64);
            let count = ((PAGE - at % PAGE) as usize).min(length - out.len());
            let Some(physical) = self.translate(memory, at) else { break };
            out.extend(memory.read(physical, count));
        }
        out
    }

    /// Makes the kernel half another space's.
    pub fn share_kernel_half(&self, memory: &mut PhysicalMemory, kernel: &Self) {
        let half = memory.read(kernel.root + PAGE / 2, PAGE_SIZE / 2);
        memory.write(self.root + PAGE / 2, &half);
    }
}
