//! Threads, their names and times, and the exception.

use target::ExceptionRecord;

use super::{Location, MemoryRange, Minidump, STRING_BUDGET, counted_records, sized_records, stream};
use crate::fields::{u32_at, u64_at};

/// `MINIDUMP_THREAD`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadRecord {
    pub id: u32,
    pub suspend_count: u32,
    pub priority_class: u32,
    pub priority: u32,
    pub teb: u64,
    /// The stack as stored in this record; all zero when the memory lists hold it.
    pub stack: MemoryRange,
    /// The `CONTEXT` record: [`Minidump::bytes_at`]. May be larger than the structure (XSAVE).
    pub context: Location,
}

/// `MINIDUMP_EXCEPTION_STREAM`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExceptionStream {
    pub thread: u32,
    /// Addresses and parameters masked to 32 bits on 32-bit targets.
    pub record: ExceptionRecord,
    /// Size 0: no context was stored.
    pub context: Location,
}

/// `MINIDUMP_THREAD_INFO`; times are FILETIMEs and 100 ns counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadInfo {
    pub thread: u32,
    /// 1 error, 2 wrote the dump, 4 exited, 0x10 invalid context.
    pub dump_flags: u32,
    pub dump_error: u32,
    pub exit_status: u32,
    pub created: u64,
    pub exited: u64,
    pub kernel_time: u64,
    pub user_time: u64,
    pub start_address: u64,
    pub affinity: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadName {
    pub thread: u32,
    pub name: String,
}

const THREAD: usize = 48;
const THREAD_EX: usize = 64;
const THREAD_INFO: usize = 64;
/// `EXCEPTION_MAXIMUM_PARAMETERS`.
const MAX_PARAMETERS: usize = 15;

/// An `EXCEPTION_RECORD64` (0x98 bytes).
pub(crate) fn exception_record(bytes: &[u8]) -> Option<ExceptionRecord> {
    let count = (u32_at(bytes, 24)? as usize).min(MAX_PARAMETERS);
    Some(ExceptionRecord {
        code: u32_at(bytes, 0)?,
        flags: u32_at(bytes, 4)?,
        nested: u64_at(bytes, 8)?,
        address: u64_at(bytes, 16)?,
        parameters: (0..count).map_while(|i| u64_at(bytes, 32 + 8 * i)).collect(),
    })
}

impl Minidump {
    /// Threads in list order, from ThreadList, else ThreadExList.
    #[must_use]
    pub fn threads(&self) -> Vec<ThreadRecord> {
        let (list, size) = match self.stream(stream::THREAD_LIST) {
            Some(list) => (list, THREAD),
            None => (self.stream(stream::THREAD_EX_LIST).unwrap_or_default(), THREAD_EX),
        };
        counted_records(list, size).map(|record| self.thread(record)).collect()
    }

    fn thread(&self, record: &[u8]) -> ThreadRecord {
        let word = |offset| u32_at(record, offset).unwrap_or(0);
        let long = |offset| self.mask(u64_at(record, offset).unwrap_or(0));
        ThreadRecord {
            id: word(0),
            suspend_count: word(4),
            priority_class: word(8),
            priority: word(12),
            teb: long(16),
            stack: MemoryRange { start: long(24), size: u64::from(word(32)), offset: u64::from(word(36)) },
            context: Location { size: word(40), rva: word(44) },
        }
    }

    /// The stored exception, `None` for dumps of a hang or written on request.
    #[must_use]
    pub fn exception(&self) -> Option<ExceptionStream> {
        let bytes = self.stream(stream::EXCEPTION)?;
        let mut record = exception_record(bytes.get(8..)?)?;
        record.address = self.mask(record.address);
        record.nested = self.mask(record.nested);
        for parameter in &mut record.parameters {
            *parameter = self.mask(*parameter);
        }
        let context =
            Location { size: u32_at(bytes, 160).unwrap_or(0), rva: u32_at(bytes, 164).unwrap_or(0) };
        Some(ExceptionStream { thread: u32_at(bytes, 0)?, record, context })
    }

    #[must_use]
    pub fn thread_infos(&self) -> Vec<ThreadInfo> {
        let list = self.stream(stream::THREAD_INFO_LIST).unwrap_or_default();
        let read = |record: &[u8]| {
            let word = |offset| u32_at(record, offset).unwrap_or(0);
            let long = |offset| u64_at(record, offset).unwrap_or(0);
            ThreadInfo {
                thread: word(0),
                dump_flags: word(4),
                dump_error: word(8),
                exit_status: word(12),
                created: long(16),
                exited: long(24),
                kernel_time: long(32),
                user_time: long(40),
                start_address: self.mask(long(48)),
                affinity: long(56),
            }
        };
        sized_records(list, false, THREAD_INFO).map(read).collect()
    }

    /// Names set with `SetThreadDescription`; unnamed threads are left out.
    #[must_use]
    pub fn thread_names(&self) -> Vec<ThreadName> {
        let list = self.stream(stream::THREAD_NAMES).unwrap_or_default();
        let count = u32_at(list, 0).unwrap_or(0) as usize;
        let mut budget = STRING_BUDGET;
        let records = list.get(4..).unwrap_or_default().chunks_exact(12).take(count);
        let names = records.map(|record| ThreadName {
            thread: u32_at(record, 0).unwrap_or(0),
            name: self.string_at(u64_at(record, 4).unwrap_or(0), &mut budget),
        });
        names.filter(|n| !n.name.is_empty()).collect()
    }
}
