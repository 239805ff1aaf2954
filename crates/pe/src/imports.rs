//! Imports.

use crate::field;
use crate::headers::{DirectoryIndex, Pe};
use crate::source::{ImageSource, ImageSourceExt};

const MAX_DLLS: u32 = 1024;
/// Most imports over all DLLs.
const MAX_IMPORTS: usize = 65_536;
const MAX_NAME: usize = 4096;

/// One imported function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Import {
    /// `None` when imported by ordinal.
    pub name: Option<String>,
    pub ordinal: Option<u16>,
    /// RVA of the import address table slot.
    pub slot: u32,
}

/// What is imported from one DLL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportedDll {
    pub name: String,
    pub imports: Vec<Import>,
}

impl Pe {
    /// The import directory (not delay-loaded ones). Names come from the lookup table; an image
    /// without one (old Borland linkers) has them in the address table, which the loader
    /// overwrites, so in memory they are lost.
    #[must_use]
    pub fn imports(&self, source: &dyn ImageSource) -> Vec<ImportedDll> {
        let Some((rva, _)) = self.directory(DirectoryIndex::Import) else { return Vec::new() };
        let mut out = Vec::new();
        let mut left = MAX_IMPORTS;
        for index in 0..MAX_DLLS {
            let descriptor = rva.checked_add(index * 20).and_then(|at| source.array::<20>(at));
            let Some(descriptor) = descriptor.filter(|d| field::le32(d, 12) != 0) else { break };
            let Some(name) = source.string(field::le32(&descriptor, 12), MAX_NAME) else { continue };
            let slots = field::le32(&descriptor, 16);
            let lookup = match field::le32(&descriptor, 0) {
                0 => slots,
                table => table,
            };
            let imports = self.thunks(source, lookup, slots, left);
            left -= imports.len();
            out.push(ImportedDll { name, imports });
        }
        out
    }

    fn thunks(&self, source: &dyn ImageSource, lookup: u32, slots: u32, limit: usize) -> Vec<Import> {
        let size: u32 = if self.is_64 { 8 } else { 4 };
        let by_ordinal = if self.is_64 { 1 << 63 } else { 1 << 31 };
        let mut out = Vec::new();
        let mut offset = 0u32;
        while out.len() < limit {
            let Some(at) = lookup.checked_add(offset) else { break };
            let entry = if self.is_64 { source.u64(at) } else { source.u32(at).map(u64::from) };
            let Some(entry) = entry.filter(|&e| e != 0) else { break };
            let slot = slots.wrapping_add(offset);
            let import = if entry & by_ordinal != 0 {
                Import { name: None, ordinal: u16::try_from(entry & 0xffff).ok(), slot }
            } else {
                let name = u32::try_from(entry & 0x7fff_ffff)
                    .ok()
                    .and_then(|rva| rva.checked_add(2))
                    .and_then(|rva| source.string(rva, MAX_NAME));
                Import { name, ordinal: None, slot }
            };
            out.push(import);
            let Some(next) = offset.checked_add(size) else { break };
            offset = next;
        }
        out
    }
}
