//! Modules, loaded and unloaded.

use target::{Guid, PdbIdentity};

use super::{Location, Minidump, STRING_BUDGET, counted_records, sized_records, stream};
use crate::fields::{ansi, array_at, u32_at, u64_at};

/// `MINIDUMP_MODULE`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModuleRecord {
    pub base: u64,
    /// `SizeOfImage` as the writer saw it; may be 0 or wrong.
    pub size: u32,
    pub checksum: u32,
    pub timestamp: u32,
    /// Full path or bare name.
    pub name: String,
    /// `dwFileVersion` of the version record as `a.b.c.d`, if there is one.
    pub file_version: Option<[u16; 4]>,
    pub product_version: Option<[u16; 4]>,
    /// The CodeView record, raw: [`Minidump::bytes_at`].
    pub codeview: Location,
    pub misc: Location,
    /// From an `RSDS` record.
    pub pdb: Option<PdbIdentity>,
    /// From an `NB10` record: signature, age, name.
    pub nb10: Option<(u32, u32, String)>,
}

/// `MINIDUMP_UNLOADED_MODULE`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnloadedRecord {
    pub base: u64,
    pub size: u32,
    pub checksum: u32,
    pub timestamp: u32,
    pub name: String,
}

const MODULE: usize = 108;
const UNLOADED: usize = 24;
const FIXED_FILE_INFO_SIGNATURE: u32 = 0xfeef_04bd;
/// Longest CodeView record looked at.
const MAX_CODEVIEW: u32 = 0x8000;

fn version(info: &[u8], offset: usize) -> Option<[u16; 4]> {
    if u32_at(info, 0)? != FIXED_FILE_INFO_SIGNATURE {
        return None;
    }
    let (high, low) = (u32_at(info, offset)?, u32_at(info, offset + 4)?);
    let halves = [high >> 16, high & 0xffff, low >> 16, low & 0xffff];
    Some(halves.map(|half| u16::try_from(half).unwrap_or(0)))
}

/// `RSDS`: GUID, age, path (UTF-8 or ANSI).
fn rsds(record: &[u8]) -> Option<PdbIdentity> {
    let body = record.strip_prefix(b"RSDS")?;
    Some(PdbIdentity {
        guid: Guid(array_at(body, 0)?),
        age: u32_at(body, 16)?,
        name: ansi(body.get(20..).unwrap_or_default()),
    })
}

/// `NB10`: offset, signature, age, path.
fn nb10(record: &[u8]) -> Option<(u32, u32, String)> {
    let body = record.strip_prefix(b"NB10")?;
    Some((u32_at(body, 4)?, u32_at(body, 8)?, ansi(body.get(12..).unwrap_or_default())))
}

impl Minidump {
    /// Modules in list order, the process's own image first.
    #[must_use]
    pub fn modules(&self) -> Vec<ModuleRecord> {
        let list = self.stream(stream::MODULE_LIST).unwrap_or_default();
        let mut budget = STRING_BUDGET;
        counted_records(list, MODULE).map(|record| self.module(record, &mut budget)).collect()
    }

    fn module(&self, record: &[u8], budget: &mut usize) -> ModuleRecord {
        let word = |offset| u32_at(record, offset).unwrap_or(0);
        let location = |offset| Location { size: word(offset), rva: word(offset + 4) };
        let info = record.get(24..76).unwrap_or_default();
        let codeview = location(76);
        let size = codeview.size.min(MAX_CODEVIEW);
        let identity = if (size as usize) < *budget {
            *budget -= size as usize;
            self.bytes_at(Location { size, ..codeview })
        } else {
            &[]
        };
        ModuleRecord {
            base: self.mask(u64_at(record, 0).unwrap_or(0)),
            size: word(8),
            checksum: word(12),
            timestamp: word(16),
            name: self.string_at(u64::from(word(20)), budget),
            file_version: version(info, 8),
            product_version: version(info, 16),
            codeview,
            misc: location(84),
            pdb: rsds(identity),
            nb10: nb10(identity),
        }
    }

    /// Unloaded modules in list order, the newest last. A base may repeat.
    #[must_use]
    pub fn unloaded_modules(&self) -> Vec<UnloadedRecord> {
        let list = self.stream(stream::UNLOADED_MODULE_LIST).unwrap_or_default();
        let mut budget = STRING_BUDGET;
        let read = |record: &[u8]| {
            let word = |offset| u32_at(record, offset).unwrap_or(0);
            UnloadedRecord {
                base: self.mask(u64_at(record, 0).unwrap_or(0)),
                size: word(8),
                checksum: word(12),
                timestamp: word(16),
                name: self.string_at(u64::from(word(20)), &mut budget),
            }
        };
        sized_records(list, false, UNLOADED).map(read).collect()
    }
}
