//! What the kernel's types say about page-table entries.

use symbols::SymbolFile;
use target::{Machine, MemoryExt, Module, TypeLayout};

use super::Symbolizer;
use crate::paging::SoftwareLayout;
use crate::raw::RawMemory;

impl Symbolizer {
    /// Teaches the translator the kernel's own layout of invalid entries, once its symbols are there.
    pub(super) fn adapt_translator(&self, module: &Module, file: &dyn SymbolFile) {
        let RawMemory::Paged(translator) = &self.core.raw else { return };
        let before = translator.software_layout();
        let from_types = software_layout(file, self.core.machine);
        let Some(mut layout) = from_types.or(before) else { return };
        if let Some(mask) = self.invalid_pte_mask(module, file) {
            layout.invalid_mask = mask;
        }
        if Some(layout) != before {
            translator.set_software_layout(Some(layout));
        }
    }

    /// `nt!MiState.Hardware.InvalidPteMask`.
    fn invalid_pte_mask(&self, module: &Module, file: &dyn SymbolFile) -> Option<u64> {
        let state = file.by_name("MiState").ok()?.first()?.rva;
        let offset = |of: &str, field: &str| {
            let layout = file.type_layout(of).ok()?;
            layout.fields.iter().find(|f| f.name == field).map(|f| f.offset)
        };
        let hardware = offset("_MI_SYSTEM_INFORMATION", "Hardware")?;
        let mask = offset("_MI_HARDWARE_STATE", "InvalidPteMask")?;
        let address = module.base.checked_add(state)?.checked_add(hardware)?.checked_add(mask)?;
        self.core.read_u64(address).ok()
    }
}

/// Bit positions from `_MMPTE_SOFTWARE`, `_MMPTE_TRANSITION` and `_MMPTE_PROTOTYPE`.
fn software_layout(file: &dyn SymbolFile, machine: Machine) -> Option<SoftwareLayout> {
    let software = file.type_layout("_MMPTE_SOFTWARE").ok()?;
    let transition = file.type_layout("_MMPTE_TRANSITION").ok()?;
    let prototype = file.type_layout("_MMPTE_PROTOTYPE").ok()?;
    let bits = |of: &TypeLayout, name: &str| {
        let field = of.fields.iter().find(|f| f.name == name)?;
        field.bits.map(|(position, length)| (u32::from(position), u32::from(length)))
    };
    let layout = SoftwareLayout {
        prototype: bits(&software, "Prototype")?.0,
        transition: bits(&transition, "Transition")?.0,
        swizzle: bits(&software, "SwizzleBit").map(|b| b.0),
        invalid_mask: 0,
        page_file_low: bits(&software, "PageFileLow")?,
        page_file_high: bits(&software, "PageFileHigh")?,
        transition_frame: bits(&transition, "PageFrameNumber")?,
        prototype_address: bits(&prototype, "ProtoAddress")?.0,
    };
    // A type that lies must not make frames of nonsense: the parts have to be where they can be.
    let sane = layout.prototype < 64
        && layout.transition < 64
        && layout.prototype != layout.transition
        && (8..=16).contains(&layout.transition_frame.0)
        && machine.pointer_size() == 8;
    sane.then_some(layout)
}
