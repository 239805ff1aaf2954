//! The references of an image: who calls, jumps to, branches to or names an address. Found in
//! decoded control flow, never by matching byte patterns. Made once for an image, asked often.

use std::rc::Rc;

use code::record::Privilege;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use target::Halt;

use crate::collector::Collector;
use crate::image::CodeImage;
use crate::reference_list::ReferenceList;
use crate::starts::data_pointer_slots;
use crate::vocabulary::{Coverage, Standing};
use crate::walk::Walk;

/// Most bytes looked through for pointers where nothing says what is relocated.
const MAX_POINTER_SCAN: u32 = 16 << 20;

/// How a site refers to a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum XrefKind {
    Call,
    Jump,
    Branch,
    /// An indirect jump whose resolved table has the target.
    Table,
    AddressTaken,
    DataPointer,
    /// Through an import's slot.
    Import,
    /// Memory at the target is read or written.
    Access,
}

impl XrefKind {
    pub const ALL: [Self; 8] = [
        Self::Call,
        Self::Jump,
        Self::Branch,
        Self::Table,
        Self::AddressTaken,
        Self::DataPointer,
        Self::Import,
        Self::Access,
    ];
}

/// One reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reference {
    pub target: u64,
    pub at: u64,
    pub kind: XrefKind,
    pub standing: Standing,
}

/// How an import is used at a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ImportUse {
    /// `call [slot]`, `jmp [slot]`, a call of a register that was just loaded from the slot.
    Called,
    /// The slot's content is read and not called right away.
    Read,
}

/// A site that uses an import.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ImportSite {
    pub slot: u64,
    pub at: u64,
    pub how: ImportUse,
    pub standing: Standing,
}

/// A privileged instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrivilegedSite {
    pub at: u64,
    /// `None` for `sgdt`, `sidt`, `sldt`, `str`, `smsw`: no privilege is needed.
    pub kind: Option<Privilege>,
    pub mnemonic: String,
    pub standing: Standing,
}

/// What one walk over an image found.
#[derive(Clone, Debug, Default)]
pub struct ImageIndex {
    /// By target, then site.
    pub(crate) references: ReferenceList,
    /// By slot, then site.
    pub imports: Vec<ImportSite>,
    /// By address.
    pub privileged: Vec<PrivilegedSite>,
    /// In function, without unwind entry, unverified: exact.
    pub privileged_counts: [usize; 3],
    pub coverage: Coverage,
    /// Indirect jumps of reached code that no table was found for.
    pub unresolved_jumps: usize,
    /// Starts of functions found on the way, by address, for [`CodeImage::learn`].
    pub starts: Rc<[u64]>,
}

/// A value of the image's data that equals an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataPointer {
    pub at: u64,
    /// Nothing says that the loader relocates it: it may be a number.
    pub unrelocated: bool,
}

impl ImageIndex {
    /// Walks the image's code.
    #[must_use]
    pub fn build(image: &CodeImage<'_>, halt: &Halt) -> Self {
        let mut walk = Walk::new(image, halt);
        let mut collector = Collector::new(image);
        let starts = walk.run(&mut collector);
        let coverage = std::mem::take(&mut walk.coverage);
        collector.finish(image, coverage, starts)
    }

    /// References to `target`, by site.
    pub fn to(&self, target: u64) -> impl DoubleEndedIterator<Item = Reference> + '_ {
        self.references.between(target, target)
    }

    /// All references, by target.
    pub fn references(&self) -> impl DoubleEndedIterator<Item = Reference> + '_ {
        self.references.between(0, u64::MAX)
    }

    /// References to addresses in `[first, last]`, by target.
    pub fn references_between(
        &self,
        first: u64,
        last: u64,
    ) -> impl DoubleEndedIterator<Item = Reference> + '_ {
        self.references.between(first, last)
    }

    /// Sites that use the import behind `slot`.
    pub fn uses(&self, slot: u64) -> impl Iterator<Item = &ImportSite> {
        let from = self.imports.partition_point(|site| site.slot < slot);
        self.imports[from..].iter().take_while(move |site| site.slot == slot)
    }

    /// Whether control enters somewhere in `(after, last]`.
    pub(crate) fn entered(&self, after: u64, last: u64) -> bool {
        use XrefKind::{Branch, Call, Jump, Table};
        let Some(first) = after.checked_add(1) else { return false };
        self.references
            .between(first, last)
            .any(|reference| matches!(reference.kind, Branch | Jump | Call | Table))
    }
}

/// Values outside executable sections that equal `target`: those the loader relocates, or, where
/// the image says nothing of relocations, every aligned one.
#[must_use]
pub fn data_pointers(image: &CodeImage<'_>, target: u64) -> Vec<DataPointer> {
    let size = image.pointer_size();
    let holds = |address: u64| image.value(address, size) == Some(target);
    if image.pe.directory(pe::DirectoryIndex::BaseRelocation).is_some() && !image.relocations().is_empty() {
        return data_pointer_slots(image)
            .into_iter()
            .filter_map(|rva| image.checked_va(rva, size as u32))
            .filter(|address| holds(*address))
            .map(|at| DataPointer { at, unrelocated: false })
            .collect();
    }
    let mut out = Vec::new();
    let mut left = MAX_POINTER_SCAN;
    for section in image.pe.sections.iter().filter(|section| !section.is_executable()) {
        let length = section.virtual_size.max(section.raw_size).min(left);
        left -= length;
        let mut rva = section.rva.checked_next_multiple_of(size as u32).unwrap_or(u32::MAX);
        let end = section.rva.saturating_add(length).min(image.size);
        while rva < end {
            if let Some(at) = image.checked_va(rva, size as u32).filter(|at| holds(*at)) {
                out.push(DataPointer { at, unrelocated: true });
            }
            rva = rva.saturating_add(size as u32);
        }
    }
    out
}
