//! Where functions are known to start.

use std::collections::BTreeSet;
use std::rc::Rc;

use pe::{DirectoryIndex, RelocationKind};

use crate::image::CodeImage;

/// Most starts of an image.
const MAX_STARTS: usize = 1 << 20;
/// Most entries of the guard function table.
const MAX_GUARD: u64 = 1 << 18;
const MAX_TLS: u32 = 64;

/// Starts that need no decoding: entry point, exports, TLS callbacks, the guard function table,
/// symbols, and pointers into code the loader relocates. Unwind records are in
/// [`Regions`](crate::Regions): their begins are starts or split-off parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownStarts {
    /// Addresses.
    pub sure: BTreeSet<u64>,
    /// Addresses only a relocated data pointer says are code: a jump table's slot looks the same.
    pub pointed_at: BTreeSet<u64>,
    pub cap_hit: bool,
}

impl KnownStarts {
    pub(crate) fn read(image: &CodeImage<'_>) -> Self {
        let mut out = Self::default();
        if image.pe.entry_point != 0 {
            out.add(image, u64::from(image.pe.entry_point));
        }
        for export in image.pe.exports(image) {
            if let Some(rva) = export.rva() {
                out.add(image, u64::from(rva));
            }
        }
        for address in image.names().functions(image.base, image.base + u64::from(image.size)) {
            // gcc's names for parts it moved out of a function.
            if !image.names().at(address).is_some_and(|name| name.contains(".cold")) {
                out.add_address(image, address);
            }
        }
        out.tls(image);
        out.guarded(image);
        out.pointers(image);
        out
    }

    fn add(&mut self, image: &CodeImage<'_>, rva: u64) {
        self.add_address(image, image.base.wrapping_add(rva));
    }

    fn add_address(&mut self, image: &CodeImage<'_>, address: u64) {
        if !image.is_executable(address) {
            return;
        }
        if self.sure.len() >= MAX_STARTS {
            self.cap_hit = true;
            return;
        }
        self.sure.insert(address);
    }

    /// TLS callbacks: an array of pointers that ends with 0.
    fn tls(&mut self, image: &CodeImage<'_>) {
        let Some((rva, _)) = image.pe.directory(DirectoryIndex::Tls) else { return };
        let pointer = image.pointer_size();
        let at = rva.saturating_add(if image.pe.is_64 { 24 } else { 12 });
        let Some(list) = image.checked_va(at, 8).and_then(|va| image.value(va, pointer)) else { return };
        for index in 0..MAX_TLS {
            let slot = list.wrapping_add(u64::from(index) * pointer as u64);
            match image.value(slot, pointer) {
                Some(callback) if callback != 0 => self.add_address(image, callback),
                _ => break,
            }
        }
    }

    /// Functions that control flow guard lets be called: RVAs, each with some flag bytes after it.
    fn guarded(&mut self, image: &CodeImage<'_>) {
        let Some(config) = image.pe.load_config(image) else { return };
        let (Some(table), Some(count)) = (config.guard_function_table, config.guard_function_count) else {
            return;
        };
        let stride = 4 + u64::from(config.guard_flags.unwrap_or(0) >> 28);
        for index in 0..count.min(MAX_GUARD) {
            let Some(at) = table.checked_add(index * stride) else { break };
            match image.value(at, 4) {
                Some(rva) => self.add(image, rva),
                None => break,
            }
        }
    }

    fn pointers(&mut self, image: &CodeImage<'_>) {
        let pointer = image.pointer_size();
        for rva in data_pointer_slots(image) {
            let Some(value) = image.checked_va(rva, pointer as u32).and_then(|va| image.value(va, pointer))
            else {
                continue;
            };
            if image.is_executable(value) && !self.sure.contains(&value) {
                if self.pointed_at.len() >= MAX_STARTS {
                    self.cap_hit = true;
                    return;
                }
                self.pointed_at.insert(value);
            }
        }
    }
}

/// Starts found in code decoded so far: one walk's, which its index shares, and some more.
#[derive(Default)]
pub(crate) struct FoundStarts {
    walked: Rc<[u64]>,
    more: BTreeSet<u64>,
}

impl FoundStarts {
    pub(crate) fn insert(&mut self, address: u64) {
        self.more.insert(address);
    }

    pub(crate) fn contains(&self, address: u64) -> bool {
        self.walked.binary_search(&address).is_ok() || self.more.contains(&address)
    }

    /// The first after `address`.
    pub(crate) fn after(&self, address: u64) -> Option<u64> {
        use std::ops::Bound::{Excluded, Unbounded};
        let at = self.walked.partition_point(|start| *start <= address);
        let more = self.more.range((Excluded(address), Unbounded)).next();
        self.walked.get(at).into_iter().chain(more).copied().min()
    }

    /// The last at or before `address`.
    pub(crate) fn up_to(&self, address: u64) -> Option<u64> {
        let at = self.walked.partition_point(|start| *start <= address);
        let walked = at.checked_sub(1).and_then(|at| self.walked.get(at));
        walked.into_iter().chain(self.more.range(..=address).next_back()).copied().max()
    }

    pub(crate) fn all(&self) -> Vec<u64> {
        let mut all: Vec<u64> = self.walked.iter().chain(&self.more).copied().collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    pub(crate) fn learn(&mut self, walked: &Rc<[u64]>) {
        if self.walked.is_empty() {
            self.walked = Rc::clone(walked);
        } else if !Rc::ptr_eq(&self.walked, walked) {
            self.more.extend(walked.iter().copied());
        }
    }

    /// All of them and `more` as one walk's.
    pub(crate) fn settle(&mut self, more: &[u64]) -> Rc<[u64]> {
        let mut all: Vec<u64> = self.walked.iter().chain(&self.more).chain(more).copied().collect();
        all.sort_unstable();
        all.dedup();
        self.more.clear();
        self.walked = all.into();
        Rc::clone(&self.walked)
    }
}

/// RVAs of pointer-sized values outside executable sections that the loader relocates.
pub(crate) fn data_pointer_slots(image: &CodeImage<'_>) -> Vec<u32> {
    let wanted = if image.pe.is_64 { RelocationKind::Word64 } else { RelocationKind::Word32 };
    let outside = |rva: u32| image.pe.section_at(rva).is_none_or(|section| !section.is_executable());
    image
        .relocations()
        .iter()
        .filter(|relocation| relocation.kind == wanted && outside(relocation.rva))
        .map(|relocation| relocation.rva)
        .collect()
}
