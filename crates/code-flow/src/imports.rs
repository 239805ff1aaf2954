//! Imports, named structurally: the lookup table names each slot; a slot's contents are writable
//! memory and usually absent from dumps.

use std::collections::HashMap;

use crate::image::CodeImage;

/// How the imports were named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum NamedFrom {
    ImportDirectory,
    /// The directory lies in a section the target no longer has; the file has it.
    ImageFile,
    /// The slots' bound addresses, matched to other modules' exports.
    BoundSlots,
}

/// One slot of the import address table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportSlot {
    /// As stored (`ntoskrnl.exe`).
    pub library: String,
    /// `None` for an import by ordinal.
    pub name: Option<String>,
    pub ordinal: Option<u16>,
    /// Address of the slot.
    pub slot: u64,
}

/// The imports of an image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Imports {
    /// In directory order.
    pub slots: Vec<ImportSlot>,
    by_slot: HashMap<u64, usize>,
    pub named_from: Vec<NamedFrom>,
    /// Libraries without a lookup table whose slots the loader has overwritten.
    pub unnamed_libraries: Vec<String>,
    pub ordinal_imports: usize,
    /// Why the list may be short, if it may.
    pub problem: Option<String>,
}

impl Imports {
    /// The import whose slot is at `address`.
    #[must_use]
    pub fn at_slot(&self, address: u64) -> Option<&ImportSlot> {
        self.by_slot.get(&address).and_then(|index| self.slots.get(*index))
    }

    pub(crate) fn read(image: &CodeImage<'_>) -> Self {
        let mut out = Self::default();
        for dll in image.pe.imports(image) {
            for import in dll.imports {
                let Some(slot) = image.checked_va(import.slot, 4) else { continue };
                out.ordinal_imports += usize::from(import.name.is_none());
                out.by_slot.insert(slot, out.slots.len());
                out.slots.push(ImportSlot {
                    library: dll.name.clone(),
                    name: import.name,
                    ordinal: import.ordinal,
                    slot,
                });
            }
        }
        if !out.slots.is_empty() {
            out.named_from.push(NamedFrom::ImportDirectory);
        }
        out
    }
}
