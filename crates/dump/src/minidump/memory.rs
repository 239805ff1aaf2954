//! What memory the dump holds, and what the address space looked like.

use super::{Minidump, counted_records, sized_records, stream};
use crate::fields::{u32_at, u64_at};
use crate::intervals::{Intervals, Range};

/// A stretch of memory and where its bytes are in the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryRange {
    pub start: u64,
    pub size: u64,
    /// File offset.
    pub offset: u64,
}

/// `MINIDUMP_MEMORY_INFO`: a region as `VirtualQueryEx` gave it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryInfo {
    pub base: u64,
    pub allocation_base: u64,
    /// `PAGE_*` bits the allocation was made with.
    pub allocation_protect: u32,
    pub size: u64,
    /// `MEM_COMMIT` 0x1000, `MEM_RESERVE` 0x2000, `MEM_FREE` 0x10000.
    pub state: u32,
    pub protect: u32,
    /// `MEM_PRIVATE` 0x20000, `MEM_MAPPED` 0x40000, `MEM_IMAGE` 0x1000000.
    pub kind: u32,
}

const DESCRIPTOR: usize = 16;
const MEMORY_INFO: usize = 48;

#[derive(Debug)]
pub(super) struct MemoryMap {
    pub(super) intervals: Intervals,
    /// Some listed bytes lie past the end of the file.
    pub(super) truncated: bool,
}

impl MemoryMap {
    /// Lists first, then thread stacks: an earlier range keeps what it covers, later ones fill gaps.
    pub(super) fn build(dump: &Minidump) -> Self {
        let mut listed = dump.memory_list();
        listed.extend(dump.memory64_list());
        listed.extend(dump.threads().into_iter().map(|t| t.stack).filter(|s| s.size > 0 && s.offset > 0));
        let bytes = dump.file.bytes();
        let past_end = |r: &MemoryRange| r.offset.saturating_add(r.size) > bytes.len() as u64;
        let truncated = listed.iter().any(past_end);
        let range = |(rank, r): (usize, &MemoryRange)| Range {
            start: r.start,
            size: r.size,
            offset: r.offset,
            rank: rank as u64,
        };
        let ranges: Vec<Range> = listed.iter().enumerate().map(range).collect();
        Self { intervals: Intervals::build(&ranges, bytes), truncated }
    }
}

impl Minidump {
    /// MemoryList as stored: ranges may overlap and repeat.
    #[must_use]
    pub fn memory_list(&self) -> Vec<MemoryRange> {
        let list = self.stream(stream::MEMORY_LIST).unwrap_or_default();
        let read = |record: &[u8]| MemoryRange {
            start: self.mask(u64_at(record, 0).unwrap_or(0)),
            size: u64::from(u32_at(record, 8).unwrap_or(0)),
            offset: u64::from(u32_at(record, 12).unwrap_or(0)),
        };
        counted_records(list, DESCRIPTOR).map(read).collect()
    }

    /// Memory64List as stored: the bytes of all ranges follow each other in list order.
    #[must_use]
    pub fn memory64_list(&self) -> Vec<MemoryRange> {
        let list = self.stream(stream::MEMORY64_LIST).unwrap_or_default();
        let count = usize::try_from(u64_at(list, 0).unwrap_or(0)).unwrap_or(usize::MAX);
        let mut offset = u64_at(list, 8).unwrap_or(0);
        let records = list.get(16..).unwrap_or_default().chunks_exact(16).take(count);
        let mut ranges = Vec::new();
        for record in records {
            let size = u64_at(record, 8).unwrap_or(0);
            ranges.push(MemoryRange { start: self.mask(u64_at(record, 0).unwrap_or(0)), size, offset });
            let Some(next) = offset.checked_add(size) else { break };
            offset = next;
        }
        ranges
    }

    /// `(start, size)` of each stretch of memory the dump holds, ascending and disjoint.
    #[must_use]
    pub fn memory_regions(&self) -> Vec<(u64, u64)> {
        self.memory_map().intervals.regions().collect()
    }

    /// Bytes of address space the dump holds.
    #[must_use]
    pub fn memory_size(&self) -> u64 {
        self.memory_map().intervals.total()
    }

    /// The whole address map, `None` when the writer did not record it: unknown, not free.
    #[must_use]
    pub fn memory_infos(&self) -> Option<Vec<MemoryInfo>> {
        let list = self.stream(stream::MEMORY_INFO_LIST)?;
        let read = |record: &[u8]| {
            let word = |offset| u32_at(record, offset).unwrap_or(0);
            let long = |offset| u64_at(record, offset).unwrap_or(0);
            MemoryInfo {
                base: self.mask(long(0)),
                allocation_base: self.mask(long(8)),
                allocation_protect: word(16),
                size: long(24),
                state: word(32),
                protect: word(36),
                kind: word(40),
            }
        };
        Some(sized_records(list, true, MEMORY_INFO).map(read).collect())
    }
}
