//! Handles and dynamic function tables.

use super::{Minidump, STRING_BUDGET, sized_records, stream};
use crate::fields::{u32_at, u64_at};

/// `MINIDUMP_HANDLE_DESCRIPTOR` (both versions).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Handle {
    pub handle: u64,
    /// `Event`, `File`, ...; empty when not recorded.
    pub type_name: String,
    pub object_name: String,
    pub attributes: u32,
    pub granted_access: u32,
    pub handle_count: u32,
    pub pointer_count: u32,
    /// RVA of a chain of object information, 0 for none.
    pub object_info: u32,
}

/// A dynamic (JIT) function table: unwind data registered with `RtlAddFunctionTable`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionTable<'a> {
    pub minimum: u64,
    pub maximum: u64,
    /// What the entries' RVAs are relative to.
    pub base: u64,
    /// Bytes of one entry (12 on x64, 8 on ARM64).
    pub entry_size: usize,
    /// The entries, raw (`RUNTIME_FUNCTION`).
    pub entries: &'a [u8],
    /// The system's own table descriptor, raw.
    pub native: &'a [u8],
}

const HANDLE_V1: usize = 32;
const HANDLE_V2: usize = 40;

impl Minidump {
    #[must_use]
    pub fn handles(&self) -> Vec<Handle> {
        let list = self.stream(stream::HANDLE_DATA).unwrap_or_default();
        let mut budget = STRING_BUDGET;
        let read = |record: &[u8]| {
            let word = |offset| u32_at(record, offset).unwrap_or(0);
            Handle {
                handle: u64_at(record, 0).unwrap_or(0),
                type_name: self.string_at(u64::from(word(8)), &mut budget),
                object_name: self.string_at(u64::from(word(12)), &mut budget),
                attributes: word(16),
                granted_access: word(20),
                handle_count: word(24),
                pointer_count: word(28),
                object_info: if record.len() >= HANDLE_V2 { word(32) } else { 0 },
            }
        };
        sized_records(list, false, HANDLE_V1).map(read).collect()
    }

    #[must_use]
    pub fn function_tables(&self) -> Vec<FunctionTable<'_>> {
        let list = self.stream(stream::FUNCTION_TABLE).unwrap_or_default();
        let word = |offset| u32_at(list, offset).unwrap_or(0) as usize;
        let (header, descriptor, native, entry) = (word(0), word(4), word(8), word(12));
        let mut tables = Vec::new();
        let mut at = header.saturating_add(word(20));
        if header < 24 || descriptor < 32 {
            return tables;
        }
        for _ in 0..word(16) {
            let Some((table, next)) = read_table(list, at, [descriptor, native, entry]) else { break };
            tables.push(table);
            at = next;
        }
        tables
    }
}

/// One table at `at` and where the next begins. Sizes are the header's: the native descriptor's
/// differs between systems.
fn read_table(list: &[u8], at: usize, sizes: [usize; 3]) -> Option<(FunctionTable<'_>, usize)> {
    let [descriptor, native, entry] = sizes;
    let fixed = list.get(at..at.checked_add(descriptor)?)?;
    let count = u32_at(fixed, 24)? as usize;
    let native_at = at.checked_add(descriptor)?;
    let entries_at = native_at.checked_add(native)?;
    let end = entries_at.checked_add(count.checked_mul(entry)?)?;
    let table = FunctionTable {
        minimum: u64_at(fixed, 0)?,
        maximum: u64_at(fixed, 8)?,
        base: u64_at(fixed, 16)?,
        entry_size: entry,
        entries: list.get(entries_at..end)?,
        native: list.get(native_at..entries_at)?,
    };
    Some((table, end.checked_add(u32_at(fixed, 28)? as usize)?))
}
