//! Imports, named structurally: the lookup table names each slot; a slot's contents are writable
//! memory and usually absent from dumps.

use std::collections::HashMap;

use pe::{DirectoryIndex, ImageSourceExt};

use crate::image::{CodeImage, Origin};

/// More than these and the directory is refused, never cut short: a short list answers "does it
/// import X" wrongly.
const MAX_LIBRARIES: u32 = 64;
const MAX_FROM_LIBRARY: u32 = 8192;
const MAX_IMPORTS: usize = 16_384;
const MAX_NAME: usize = 512;
const DESCRIPTOR: u32 = 20;

/// How the imports were named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum NamedFrom {
    ImportDirectory,
    /// The directory lies in a section the target no longer has; the file has it.
    ImageFile,
    /// The slots' bound addresses, matched to other modules' symbols.
    BoundSlots,
}

/// One slot of the import address table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportSlot {
    /// As stored (`ntoskrnl.exe`).
    pub library: String,
    /// `None` for an import by ordinal, or one that could not be named.
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
    /// Imports by number were never checked against any list of names.
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
        let Some((rva, size)) = image.pe.directory(DirectoryIndex::Import) else { return out };
        match out.directory(image, rva, size) {
            Ok(()) => {}
            Err(Refusal::Unreadable(at)) => {
                let named = out.name_bound_slots(image);
                if named == 0 {
                    out = Self {
                        problem: Some(format!("the import directory cannot be read at {at:#x}")),
                        ..out
                    };
                } else {
                    out.problem = Some(format!("part of the import directory cannot be read at {at:#x}"));
                }
            }
            Err(Refusal::Hostile(what)) => {
                out = Self { problem: Some(what), ..Self::default() };
            }
        }
        out
    }

    fn directory(&mut self, image: &CodeImage<'_>, rva: u32, size: u32) -> Result<(), Refusal> {
        if rva.checked_add(size.max(DESCRIPTOR)).is_none_or(|end| end > image.size) {
            return Err(Refusal::Hostile("the import directory reaches past the image".to_owned()));
        }
        for index in 0.. {
            if index > MAX_LIBRARIES {
                return Err(Refusal::Hostile(format!("more than {MAX_LIBRARIES} imported libraries")));
            }
            let at = rva.saturating_add(index * DESCRIPTOR);
            let raw: [u8; 20] = image.array(at).ok_or(Refusal::Unreadable(image.base + u64::from(at)))?;
            let word = |i: usize| u32::from_le_bytes([raw[i], raw[i + 1], raw[i + 2], raw[i + 3]]);
            let (lookup, name, slots) = (word(0), word(12), word(16));
            if name == 0 || slots == 0 {
                break;
            }
            self.named(match image.origin_of(at) {
                Some(Origin::ImageFile) if image.is_a_file() => NamedFrom::ImportDirectory,
                Some(Origin::ImageFile) => NamedFrom::ImageFile,
                _ => NamedFrom::ImportDirectory,
            });
            let library = name_at(image, name)?;
            self.library(image, library, lookup, slots)?;
        }
        Ok(())
    }

    fn named(&mut self, how: NamedFrom) {
        if !self.named_from.contains(&how) {
            self.named_from.push(how);
        }
    }

    fn library(
        &mut self,
        image: &CodeImage<'_>,
        library: String,
        lookup: u32,
        slots: u32,
    ) -> Result<(), Refusal> {
        // Without a lookup table the slots hold the names until the loader overwrites them.
        let overwritten = lookup == 0 && image.origin_of(slots) != Some(Origin::ImageFile);
        if overwritten && !self.unnamed_libraries.contains(&library) {
            self.unnamed_libraries.push(library.clone());
        }
        let table = if lookup == 0 { slots } else { lookup };
        let size = image.pointer_size() as u32;
        let by_ordinal = 1u64 << (size * 8 - 1);
        for index in 0.. {
            if index > MAX_FROM_LIBRARY || self.slots.len() >= MAX_IMPORTS {
                let what =
                    format!("more than {MAX_FROM_LIBRARY} imports of one library or {MAX_IMPORTS} in all");
                return Err(Refusal::Hostile(what));
            }
            let at = table.saturating_add(index * size);
            let entry = image
                .checked_va(at, size)
                .ok_or_else(|| Refusal::Hostile("an import table reaches past the image".to_owned()))
                .and_then(|va| image.value(va, size as usize).ok_or(Refusal::Unreadable(va)))?;
            if entry == 0 {
                break;
            }
            let slot = image
                .checked_va(slots.saturating_add(index * size), size)
                .ok_or_else(|| Refusal::Hostile("an import's slot lies outside the image".to_owned()))?;
            let mut import = ImportSlot { library: library.clone(), name: None, ordinal: None, slot };
            if overwritten {
                import.name = image.names().bound(entry).map(|(_, name)| name);
                if import.name.is_some() {
                    self.named(NamedFrom::BoundSlots);
                }
            } else if entry & by_ordinal != 0 {
                import.ordinal = u16::try_from(entry & 0xffff).ok();
                self.ordinal_imports += 1;
            } else {
                let rva = u32::try_from(entry).ok().and_then(|rva| rva.checked_add(2));
                let rva = rva
                    .ok_or_else(|| Refusal::Hostile("an import's name lies outside the image".to_owned()))?;
                import.name = Some(name_at(image, rva)?);
            }
            self.add(import);
        }
        Ok(())
    }

    fn add(&mut self, import: ImportSlot) {
        self.by_slot.entry(import.slot).or_insert(self.slots.len());
        self.slots.push(import);
    }

    /// Names slots of the import address table by what they are bound to; how many.
    fn name_bound_slots(&mut self, image: &CodeImage<'_>) -> usize {
        let Some((rva, length)) = image.pe.directory(DirectoryIndex::Iat) else { return 0 };
        let size = image.pointer_size() as u32;
        let mut count = 0;
        for index in 0..(length / size).min(MAX_IMPORTS as u32) {
            let Some(slot) = image.checked_va(rva.saturating_add(index * size), size) else { break };
            if self.by_slot.contains_key(&slot) {
                continue;
            }
            let bound = image.value(slot, size as usize).filter(|v| *v != 0 && !image.contains(*v));
            let Some((library, name)) = bound.and_then(|address| image.names().bound(address)) else {
                continue;
            };
            self.add(ImportSlot { library, name: Some(name), ordinal: None, slot });
            count += 1;
        }
        if count > 0 {
            self.named(NamedFrom::BoundSlots);
        }
        count
    }
}

enum Refusal {
    Unreadable(u64),
    Hostile(String),
}

fn name_at(image: &CodeImage<'_>, rva: u32) -> Result<String, Refusal> {
    let at = image
        .checked_va(rva, 1)
        .ok_or_else(|| Refusal::Hostile("an import's name lies outside the image".to_owned()))?;
    if image.value(at, 1).is_none() {
        return Err(Refusal::Unreadable(at));
    }
    image
        .string(rva, MAX_NAME)
        .ok_or_else(|| Refusal::Hostile(format!("an import's name is longer than {MAX_NAME} bytes")))
}
