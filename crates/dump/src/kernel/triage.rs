//! Triage dumps ("small memory dump"): virtual blocks instead of pages.

use target::ReadOutcome;

use super::header::{HEADER_SIZE, KernelHeader};
use crate::error::{DumpError, Result};
use crate::fields::{slice_at, u16_at, u32_at, u64_at, utf16};
use crate::intervals::{Intervals, Range};
use crate::kdbg::KdDebuggerData;

/// `TRIAGE_DUMP64` at file offset 0x2000. Offsets are of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TriageHeader {
    pub service_pack_build: u32,
    pub size_of_dump: u32,
    pub mm_offset: u32,
    pub unloaded_drivers_offset: u32,
    pub prcb_offset: u32,
    pub process_offset: u32,
    pub thread_offset: u32,
    pub call_stack_offset: u32,
    pub call_stack_size: u32,
    pub driver_list_offset: u32,
    pub driver_count: u32,
    pub broken_driver_offset: u32,
    pub options: u32,
    /// VA of the first saved stack byte.
    pub top_of_stack: u64,
    pub data_page_address: u64,
    pub data_page_offset: u32,
    pub data_page_size: u32,
    pub data_blocks_offset: u32,
    pub data_blocks_count: u32,
}

/// A loaded driver. The first is the kernel, the second the HAL.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TriageDriver {
    /// Full path (`\SystemRoot\system32\drivers\x.sys`) or bare name.
    pub name: String,
    pub base: u64,
    pub entry_point: u64,
    pub size: u32,
    pub flags: u32,
    pub load_count: u16,
    pub checksum: u32,
    pub timestamp: u32,
}

/// An unloaded driver; the name is cut to 12 characters by the writer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnloadedDriver {
    pub name: String,
    pub start: u64,
    pub end: u64,
}

/// A block of virtual memory in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TriageBlock {
    pub address: u64,
    pub offset: u32,
    pub size: u32,
}

/// Memory manager counters, in pages unless named otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MmInformation {
    pub special_pool_tag: u32,
    pub triage_action_taken: u32,
    pub verifier_level: u32,
    pub verifier_flags: u32,
    pub maximum_nonpaged_pool_bytes: u64,
    pub allocated_nonpaged_pool: u64,
    pub maximum_paged_pool_bytes: u64,
    pub allocated_paged_pool_bytes: u64,
    pub committed: u64,
    pub peak_committed: u64,
    pub commit_limit: u64,
}

/// What a triage dump holds.
#[derive(Debug)]
pub struct Triage {
    pub header: TriageHeader,
    /// Data blocks as listed: unsorted and overlapping.
    pub blocks: Vec<TriageBlock>,
    pub drivers: Vec<TriageDriver>,
    pub unloaded: Vec<UnloadedDriver>,
    pub mm: Option<MmInformation>,
    /// VA of the crashing processor's PRCB, when the dump tells it.
    pub prcb: Option<u64>,
    /// ETHREAD and EPROCESS of the crash; their bytes are readable at these addresses.
    pub thread: Option<u64>,
    pub process: Option<u64>,
    /// File offset and size of the crashing processor's PRCB, whether or not its VA is known.
    pub prcb_bytes: (u32, u32),
    /// File offset and size of the debugger data block.
    pub debugger_data: (u32, u32),
    memory: Intervals,
    truncated: bool,
}

const VALID: &[u8] = b"TRGD";
const DRIVER: usize = 0x90;
const UNLOADED: usize = 0x38;
const BLOCK: usize = 16;
/// Longest driver path, UTF-16 units.
const MAX_NAME: u32 = 0x400;
/// The kernel remembers 50.
const MAX_UNLOADED: u64 = 64;

impl TriageHeader {
    fn read(bytes: &[u8]) -> Option<Self> {
        let block = slice_at(bytes, HEADER_SIZE as u64, 0x80)?;
        let word = |offset| u32_at(block, offset);
        let valid = word(0x08)?;
        if slice_at(bytes, u64::from(valid), 4).is_some_and(|tag| tag != VALID) {
            return None;
        }
        Some(Self {
            service_pack_build: word(0x00)?,
            size_of_dump: word(0x04)?,
            mm_offset: word(0x14)?,
            unloaded_drivers_offset: word(0x18)?,
            prcb_offset: word(0x1c)?,
            process_offset: word(0x20)?,
            thread_offset: word(0x24)?,
            call_stack_offset: word(0x28)?,
            call_stack_size: word(0x2c)?,
            driver_list_offset: word(0x30)?,
            driver_count: word(0x34)?,
            broken_driver_offset: word(0x40)?,
            options: word(0x44)?,
            top_of_stack: u64_at(block, 0x48)?,
            data_page_address: u64_at(block, 0x60)?,
            data_page_offset: word(0x68)?,
            data_page_size: word(0x6c)?,
            data_blocks_offset: word(0x78)?,
            data_blocks_count: word(0x7c)?,
        })
    }
}

impl Triage {
    pub(super) fn parse(bytes: &[u8], header: &KernelHeader, notes: &mut Vec<String>) -> Result<Self> {
        let triage = TriageHeader::read(bytes).ok_or_else(|| {
            DumpError::malformed(
                "the small kernel dump's triage block is missing or damaged; copy the dump again",
            )
        })?;
        let debugger_data = slice_at(bytes, HEADER_SIZE as u64 + 0x70, 8).unwrap_or_default();
        let debugger_data = (u32_at(debugger_data, 0).unwrap_or(0), u32_at(debugger_data, 4).unwrap_or(0));
        let mut out = Self {
            blocks: read_blocks(bytes, &triage),
            drivers: read_drivers(bytes, &triage),
            unloaded: read_unloaded(bytes, triage.unloaded_drivers_offset),
            mm: read_mm(bytes, triage.mm_offset),
            truncated: u64::from(triage.size_of_dump) > bytes.len() as u64,
            header: triage,
            prcb: None,
            thread: None,
            process: None,
            prcb_bytes: (0, 0),
            debugger_data,
            memory: Intervals::default(),
        };
        if out.blocks.len() < out.header.data_blocks_count as usize {
            notes.push(format!(
                "{} of {} data blocks are listed in the file",
                out.blocks.len(),
                out.header.data_blocks_count
            ));
        }
        out.map_memory(bytes, header);
        if out.memory.disagreements > 0 {
            notes.push(format!(
                "{} of {} overlapping memory stretches hold different bytes; the smaller block was used",
                out.memory.disagreements, out.memory.overlaps
            ));
        }
        Ok(out)
    }

    /// Data blocks, stack, debugger data and data page first; then the structures of the crash,
    /// whose addresses those tell.
    fn map_memory(&mut self, bytes: &[u8], header: &KernelHeader) {
        let mut listed = self.blocks.clone();
        let h = &self.header;
        listed.push(TriageBlock {
            address: h.top_of_stack,
            offset: h.call_stack_offset,
            size: h.call_stack_size,
        });
        listed.push(TriageBlock {
            address: h.data_page_address,
            offset: h.data_page_offset,
            size: h.data_page_size,
        });
        let (offset, size) = self.debugger_data;
        listed.push(TriageBlock { address: header.kd_debugger_data_block.unwrap_or(0), offset, size });
        self.memory = intervals(&listed, bytes);
        let kdbg = slice_at(bytes, offset.into(), size.into()).and_then(KdDebuggerData::parse);
        if let Some(kdbg) = kdbg {
            listed.extend(self.structures(bytes, &kdbg));
            self.memory = intervals(&listed, bytes);
        }
    }

    /// PRCB, thread and process of the crash are stored whole, without their addresses.
    fn structures(&mut self, bytes: &[u8], kdbg: &KdDebuggerData) -> Vec<TriageBlock> {
        let mut blocks = Vec::new();
        let (prcb, thread) = (self.header.prcb_offset, self.header.thread_offset);
        let size = |field: Option<u16>| u32::from(field.unwrap_or(0));
        let at = |base: u32, field: Option<u16>| base as usize + field.map_or(0, usize::from);
        self.prcb_bytes = (prcb, size(kdbg.size_prcb()));
        let mut add = |address: Option<u64>, offset: u32, size: u32| {
            if let Some(address) = address
                && offset != 0
            {
                blocks.push(TriageBlock { address, offset, size });
            }
        };
        if prcb != 0 {
            let number = u32_at(bytes, at(prcb, kdbg.offset_prcb_number()));
            self.prcb = number.and_then(|n| self.processor_block(bytes, kdbg, n));
            add(self.prcb, prcb, size(kdbg.size_prcb()));
            self.thread = u64_at(bytes, at(prcb, kdbg.offset_prcb_current_thread())).filter(|&t| t != 0);
            add(self.thread, thread, size(kdbg.size_ethread()));
        }
        if thread != 0 && self.thread.is_some() {
            self.process = u64_at(bytes, at(thread, kdbg.offset_kthread_apc_process())).filter(|&p| p != 0);
            add(self.process, self.header.process_offset, size(kdbg.size_eprocess()));
        }
        blocks
    }

    /// `KiProcessorBlock[number]`, when that array is among the blocks.
    fn processor_block(&self, bytes: &[u8], kdbg: &KdDebuggerData, number: u32) -> Option<u64> {
        let entry = kdbg.ki_processor_block()?.checked_add(8 * u64::from(number))?;
        let mut buffer = [0; 8];
        self.read(bytes, entry, &mut buffer).stopped.is_none().then(|| u64::from_le_bytes(buffer))
    }

    pub(super) fn read(&self, file: &[u8], address: u64, buffer: &mut [u8]) -> ReadOutcome {
        self.memory.read(file, address, buffer)
    }

    pub(super) fn truncated(&self) -> bool {
        self.truncated
    }

    /// `(start, size)` of each stretch of memory the dump holds, ascending and disjoint.
    #[must_use]
    pub fn regions(&self) -> Vec<(u64, u64)> {
        self.memory.regions().collect()
    }

    /// `(overlapping stretches, of these with different bytes)`.
    #[must_use]
    pub fn overlaps(&self) -> (u32, u32) {
        (self.memory.overlaps, self.memory.disagreements)
    }
}

/// The smaller block wins, of equal ones the later.
fn intervals(blocks: &[TriageBlock], bytes: &[u8]) -> Intervals {
    let usable = blocks.iter().enumerate().filter(|(_, b)| b.address != 0 && b.offset != 0);
    let range = |(index, block): (usize, &TriageBlock)| Range {
        start: block.address,
        size: u64::from(block.size),
        offset: u64::from(block.offset),
        rank: (u64::from(block.size) << 32) | u64::from(u32::MAX - u32::try_from(index).unwrap_or(u32::MAX)),
    };
    Intervals::build(&usable.map(range).collect::<Vec<_>>(), bytes)
}

fn read_blocks(bytes: &[u8], header: &TriageHeader) -> Vec<TriageBlock> {
    let start = (header.data_blocks_offset as usize).min(bytes.len());
    let records = bytes[start..].chunks_exact(BLOCK).take(header.data_blocks_count as usize);
    let block = |record: &[u8]| TriageBlock {
        address: u64_at(record, 0).unwrap_or(0),
        offset: u32_at(record, 8).unwrap_or(0),
        size: u32_at(record, 12).unwrap_or(0),
    };
    records.map(block).collect()
}

fn read_drivers(bytes: &[u8], header: &TriageHeader) -> Vec<TriageDriver> {
    let start = (header.driver_list_offset as usize).min(bytes.len());
    let records = bytes[start..].chunks_exact(DRIVER).take(header.driver_count as usize);
    let driver = |record: &[u8]| {
        let entry = &record[8..];
        TriageDriver {
            name: u32_at(record, 0).map(|at| counted_name(bytes, at)).unwrap_or_default(),
            base: u64_at(entry, 0x30).unwrap_or(0),
            entry_point: u64_at(entry, 0x38).unwrap_or(0),
            size: u32_at(entry, 0x40).unwrap_or(0),
            flags: u32_at(entry, 0x68).unwrap_or(0),
            load_count: u16_at(entry, 0x6c).unwrap_or(0),
            checksum: u32_at(entry, 0x78).unwrap_or(0),
            timestamp: u32_at(entry, 0x80).unwrap_or(0),
        }
    };
    records.map(driver).collect()
}

/// `{u32 characters, UTF-16}` of the string pool.
pub(super) fn counted_name(bytes: &[u8], offset: u32) -> String {
    let units = u32_at(bytes, offset as usize).unwrap_or(0).min(MAX_NAME);
    slice_at(bytes, u64::from(offset) + 4, 2 * u64::from(units)).map(utf16).unwrap_or_default()
}

fn read_unloaded(bytes: &[u8], offset: u32) -> Vec<UnloadedDriver> {
    let count = u64_at(bytes, offset as usize).unwrap_or(0).min(MAX_UNLOADED);
    if offset == 0 {
        return Vec::new();
    }
    let record = |index: u64| {
        let at = u64::from(offset) + 8 + index * UNLOADED as u64;
        let record = slice_at(bytes, at, UNLOADED as u64)?;
        Some(UnloadedDriver {
            name: utf16(&record[0x10..0x28]),
            start: u64_at(record, 0x28)?,
            end: u64_at(record, 0x30)?,
        })
    };
    (0..count).map_while(record).collect()
}

fn read_mm(bytes: &[u8], offset: u32) -> Option<MmInformation> {
    let block = slice_at(bytes, u64::from(offset), 0x50).filter(|_| offset != 0)?;
    let (word, long) = (|at| u32_at(block, at), |at| u64_at(block, at));
    if word(0)? != 1 || word(4)? < 0x50 {
        return None;
    }
    Some(MmInformation {
        special_pool_tag: word(0x08)?,
        triage_action_taken: word(0x0c)?,
        verifier_level: word(0x10)?,
        verifier_flags: word(0x14)?,
        maximum_nonpaged_pool_bytes: long(0x18)?,
        allocated_nonpaged_pool: long(0x20)?,
        maximum_paged_pool_bytes: long(0x28)?,
        allocated_paged_pool_bytes: long(0x30)?,
        committed: long(0x38)?,
        peak_committed: long(0x40)?,
        commit_limit: long(0x48)?,
    })
}
