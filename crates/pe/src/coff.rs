//! The COFF symbol table MinGW leaves in images; it exists in the file only.

use crate::field;
use crate::headers::Pe;

/// Most records read (18 bytes each, so the file's size bounds it too).
const MAX_SYMBOLS: usize = 4 << 20;

/// A defined symbol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoffSymbol {
    pub name: String,
    pub rva: u32,
    /// Type field 0x20: a function.
    pub function: bool,
    /// Storage class 2: global; otherwise static.
    pub global: bool,
}

/// The table of a file.
#[derive(Clone, Copy)]
pub struct CoffSymbols<'a> {
    records: &'a [u8],
    strings: &'a [u8],
}

impl<'a> CoffSymbols<'a> {
    /// The table `pe` points at in its file's bytes, `None` when there is none or it is cut off.
    #[must_use]
    pub fn new(pe: &Pe, file: &'a [u8]) -> Option<Self> {
        let (offset, count) = pe.coff_symbols;
        if offset == 0 || count == 0 {
            return None;
        }
        let start = usize::try_from(offset).ok()?;
        let size = (count as usize).min(MAX_SYMBOLS).checked_mul(18)?;
        let records = file.get(start..start.checked_add(size)?)?;
        let strings = file.get(start.checked_add((count as usize).checked_mul(18)?)?..).unwrap_or_default();
        let length = (field::le32(strings, 0) as usize).min(strings.len());
        Some(Self { records, strings: &strings[..length] })
    }

    /// A string by its offset in the string table (`/123` section names point here too).
    #[must_use]
    pub fn string(&self, offset: usize) -> Option<String> {
        let rest = self.strings.get(offset..).filter(|_| offset >= 4)?;
        let end = rest.iter().position(|&b| b == 0)?;
        Some(String::from_utf8_lossy(&rest[..end]).into_owned())
    }

    /// Defined external and static symbols of `pe`'s sections, in table order; section, file and
    /// debugging records are left out.
    #[must_use]
    pub fn symbols(&self, pe: &Pe) -> Vec<CoffSymbol> {
        let mut out = Vec::new();
        let mut index = 0;
        while let Some(record) = self.records.get(index * 18..index * 18 + 18) {
            index += 1 + usize::from(record[17]);
            let section = usize::from(field::le16(record, 12));
            let class = record[16];
            if !matches!(class, 2 | 3) || section == 0 || section > pe.sections.len() {
                continue;
            }
            // A static with auxiliary records describes a section, unless it is a function.
            if class == 3 && record[17] > 0 && field::le16(record, 14) != 0x20 {
                continue;
            }
            let name = if record[..4] == [0; 4] {
                self.string(field::le32(record, 4) as usize)
            } else {
                let end = record[..8].iter().position(|&b| b == 0).unwrap_or(8);
                Some(String::from_utf8_lossy(&record[..end]).into_owned())
            };
            let rva = pe.sections[section - 1].rva.checked_add(field::le32(record, 8));
            if let (Some(name), Some(rva)) = (name.filter(|n| !n.is_empty()), rva) {
                let function = field::le16(record, 14) & 0x30 == 0x20;
                out.push(CoffSymbol { name, rva, function, global: class == 2 });
            }
        }
        out
    }
}
