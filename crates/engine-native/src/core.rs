//! The one place memory of an opened file is read: what the dump holds, and where it has holes,
//! the read-only parts of matching image files (spec 80 section 8.3).

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use pe::{ImageSource, ImageSourceExt, Pe};
use target::{Machine, Memory, Module, ReadOutcome, Space, Unreadable};

use crate::images::{ImageFiles, LoadedImage};
use crate::paging::PAGE_SIZE;
use crate::raw::RawMemory;

/// What tells one module from another that is loaded at the same base of another process.
pub(crate) type ModuleKey = (u64, u32, u64);

pub(crate) fn key_of(module: &Module) -> ModuleKey {
    (module.base, module.timestamp, module.size)
}

/// The modules of a moment, and their order by base.
#[derive(Default)]
struct ModuleSet {
    all: Arc<[Module]>,
    by_base: Vec<usize>,
}

/// One module of a set; keeps the set alive.
pub(crate) struct ModuleRef {
    set: Rc<ModuleSet>,
    index: usize,
}

impl std::ops::Deref for ModuleRef {
    type Target = Module;
    fn deref(&self) -> &Module {
        &self.set.all[self.index]
    }
}

/// Memory, modules and image files of a session. Shared by everything that reads.
pub(crate) struct Core {
    pub(crate) raw: RawMemory,
    /// Machine of the system (x64 for a WoW64 process).
    pub(crate) machine: Machine,
    pub(crate) images: ImageFiles,
    modules: RefCell<Rc<ModuleSet>>,
    /// Headers of modules, read once.
    headers: RefCell<HashMap<ModuleKey, Option<Rc<Pe>>>>,
    /// What the file holds, ascending.
    regions: OnceCell<Option<Vec<(u64, u64)>>>,
    /// DirectoryTableBase for user addresses of kernel targets, 0 for the kernel's own.
    user_root: Cell<u64>,
}

impl Core {
    pub(crate) fn new(raw: RawMemory, machine: Machine) -> Self {
        Self {
            raw,
            machine,
            images: ImageFiles::default(),
            modules: RefCell::default(),
            headers: RefCell::default(),
            regions: OnceCell::new(),
            user_root: Cell::new(0),
        }
    }

    /// Sets the module list; on kernel targets again for every process whose user half is shown.
    pub(crate) fn set_modules(&self, mut modules: Vec<Module>) {
        modules.iter_mut().for_each(make_names_printable);
        let mut by_base: Vec<usize> = (0..modules.len()).filter(|&i| modules[i].size > 0).collect();
        by_base.sort_by_key(|&i| modules[i].base);
        *self.modules.borrow_mut() = Rc::new(ModuleSet { all: modules.into(), by_base });
    }

    pub(crate) fn modules(&self) -> Arc<[Module]> {
        Arc::clone(&self.modules.borrow().all)
    }

    /// The module that contains `address`.
    pub(crate) fn module_at(&self, address: u64) -> Option<ModuleRef> {
        let set = Rc::clone(&self.modules.borrow());
        let after = set.by_base.partition_point(|&i| set.all[i].base <= address);
        let index = *set.by_base.get(after.checked_sub(1)?)?;
        set.all[index].contains(address).then_some(ModuleRef { set, index })
    }

    pub(crate) fn set_user_root(&self, root: u64) {
        self.user_root.set(root);
    }
    pub(crate) fn user_root(&self) -> u64 {
        self.user_root.get()
    }

    /// What the dump itself holds, image files left out.
    pub(crate) fn read_raw(&self, space: Space, address: u64, buffer: &mut [u8]) -> ReadOutcome {
        self.raw.read(space, address, self.user_root.get(), buffer)
    }

    /// The headers of the module at `base`: from memory, else from its image file.
    pub(crate) fn pe_of(&self, module: &Module) -> Option<Rc<Pe>> {
        if let Some(known) = self.headers.borrow().get(&key_of(module)) {
            return known.clone();
        }
        let in_memory = Pe::parse(&RawImage { core: self, base: module.base }).ok();
        let pe =
            in_memory.or_else(|| self.images.of(module).map(|image| image.file.pe().clone())).map(Rc::new);
        self.headers.borrow_mut().insert(key_of(module), pe.clone());
        pe
    }

    /// Forgets headers that were not found, so that new paths are tried.
    pub(crate) fn retry_headers(&self) {
        self.headers.borrow_mut().retain(|_, pe| pe.is_some());
    }

    fn regions(&self) -> Option<&[(u64, u64)]> {
        self.regions.get_or_init(|| self.raw.regions()).as_deref()
    }

    /// The stretch of held memory around `address`: base and size.
    pub(crate) fn region_at(&self, address: u64) -> Option<(u64, u64)> {
        let regions = self.regions()?;
        let after = regions.partition_point(|&(start, _)| start <= address);
        regions.get(after.checked_sub(1)?).copied().filter(|&(start, size)| address - start < size)
    }

    /// Bytes from `address`, which the file lacks, up to the next it may have.
    fn hole_size(&self, address: u64) -> u64 {
        match self.regions() {
            None => PAGE_SIZE - address % PAGE_SIZE,
            Some(regions) => {
                let next = regions.partition_point(|&(start, _)| start <= address);
                regions.get(next).map_or(u64::MAX, |&(start, _)| start) - address
            }
        }
    }

    /// The hole around an address no file range holds: start within its page, and size up to the next
    /// held byte or the next module, whose image file may have some.
    pub(crate) fn hole_around(&self, address: u64) -> (u64, u64) {
        let page = address - address % PAGE_SIZE;
        if self.module_at(address).is_some() {
            return (page, PAGE_SIZE);
        }
        let regions = self.regions().unwrap_or_default();
        let after = regions.partition_point(|&(start, _)| start <= address);
        let held_before = after.checked_sub(1).and_then(|i| regions.get(i));
        let base = held_before.map_or(page, |&(start, size)| start.saturating_add(size).clamp(page, address));
        let set = Rc::clone(&self.modules.borrow());
        let next = set.by_base.partition_point(|&i| set.all[i].base <= address);
        let next_module = set.by_base.get(next).map_or(u64::MAX, |&i| set.all[i].base);
        let end = address.saturating_add(self.hole_size(address)).min(next_module);
        (base, (end - base).max(1))
    }

    /// Read-only bytes of the image file behind `address`, up to `limit` bytes of one section.
    fn read_image(&self, address: u64, buffer: &mut [u8]) -> usize {
        let Some(module) = self.module_at(address) else { return 0 };
        let Some(image) = self.images.of(&module) else { return 0 };
        let Ok(rva) = u32::try_from(address - module.base) else { return 0 };
        let Some(left) = read_only_left(&image, rva) else { return 0 };
        let count = buffer.len().min(left);
        image.file.read_rva_at(rva, module.base, &mut buffer[..count])
    }
}

/// Bytes from `rva` to the end of the read-only part (headers or section) it lies in.
fn read_only_left(image: &LoadedImage, rva: u32) -> Option<usize> {
    let pe = image.file.pe();
    if let Some(section) = pe.section_at(rva) {
        let size = section.virtual_size.max(section.raw_size);
        let left = size.saturating_sub(rva - section.rva);
        return (!section.is_writable() && left > 0).then_some(left as usize);
    }
    (rva < pe.size_of_headers).then(|| (pe.size_of_headers - rva) as usize)
}

impl Memory for Core {
    fn read(&self, space: Space, address: u64, buffer: &mut [u8]) -> ReadOutcome {
        let mut done = 0;
        loop {
            let at = match address.checked_add(done as u64) {
                Some(at) => at,
                None if done == buffer.len() => return ReadOutcome::complete(done),
                None => return ReadOutcome::stopped(done, Unreadable::NonCanonical),
            };
            let outcome = self.read_raw(space, at, &mut buffer[done..]);
            done += outcome.read.min(buffer.len() - done);
            let Some(why) = outcome.stopped else { return ReadOutcome::complete(done) };
            let hole = address.wrapping_add(done as u64);
            if space == Space::Physical || why == Unreadable::NonCanonical {
                return ReadOutcome::stopped(done, why);
            }
            // Only up to where the dump has bytes of its own again.
            let gap = usize::try_from(self.hole_size(hole)).unwrap_or(usize::MAX);
            let end = done + gap.min(buffer.len() - done);
            let filled = self.read_image(hole, &mut buffer[done..end]);
            if filled == 0 {
                return ReadOutcome::stopped(done, why);
            }
            done += filled;
            if done == buffer.len() {
                return ReadOutcome::complete(done);
            }
        }
    }
}

/// A module's bytes by RVA from the dump alone.
struct RawImage<'a> {
    core: &'a Core,
    base: u64,
}

impl ImageSource for RawImage<'_> {
    fn read_rva(&self, rva: u32, buffer: &mut [u8]) -> usize {
        match self.base.checked_add(u64::from(rva)) {
            Some(address) => self.core.read_raw(Space::Virtual, address, buffer).read.min(buffer.len()),
            None => 0,
        }
    }
}

/// A module's bytes by RVA: the dump's, with its image file behind them. Owns its share of the
/// session, as the unwinder asks for.
pub(crate) struct ModuleImage {
    pub(crate) core: Rc<Core>,
    pub(crate) base: u64,
}

impl ImageSource for ModuleImage {
    fn read_rva(&self, rva: u32, buffer: &mut [u8]) -> usize {
        match self.base.checked_add(u64::from(rva)) {
            Some(address) => self.core.read(Space::Virtual, address, buffer).read.min(buffer.len()),
            None => 0,
        }
    }
}

/// Identity of an image in the dump's memory: `TimeDateStamp`, checksum, size.
pub(crate) fn identity_in_memory(core: &Core, base: u64) -> Option<Pe> {
    let source = RawImage { core, base };
    source.array::<2>(0).filter(|mz| mz == b"MZ")?;
    Pe::parse(&source).ok()
}

/// PDB identity in the dump's memory.
pub(crate) fn pdb_in_memory(core: &Core, module: &Module, pe: &Pe) -> Option<target::PdbIdentity> {
    pe.pdb(&RawImage { core, base: module.base })
}

/// File version from the version resource in the dump's memory.
pub(crate) fn version_in_memory(core: &Core, module: &Module, pe: &Pe) -> Option<[u16; 4]> {
    pe.version(&RawImage { core, base: module.base })?.file_version
}

/// Names come from the dump: a line break in one would forge lines of every report that shows it.
fn make_names_printable(module: &mut Module) {
    let pdb = module.pdb.as_mut().map(|pdb| &mut pdb.name);
    for name in [&mut module.image_name, &mut module.image_path].into_iter().chain(pdb) {
        if name.contains(char::is_control) {
            *name = name.replace(char::is_control, "\u{fffd}");
        }
    }
}
