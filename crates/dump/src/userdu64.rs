//! Legacy full user dumps (`USERDU64`): every region of a process, one after another.

use std::sync::OnceLock;

use target::{ExceptionRecord, Machine, Memory, ReadOutcome, Space, Unreadable};

use crate::error::{DumpError, Result};
use crate::fields::{ansi, slice_at, u32_at, u64_at, utf16};
use crate::intervals::{Intervals, Range};
use crate::map::MappedFile;
use crate::minidump::{MemoryInfo, exception_record};

/// An opened legacy full user dump.
#[derive(Debug)]
pub struct UserFull {
    file: MappedFile,
    machine: Machine,
    /// Windows build, 0 when not recorded.
    build: u32,
    counts: [u32; 3],
    offsets: Offsets,
    memory: OnceLock<(Intervals, bool)>,
}

#[derive(Clone, Copy, Debug)]
struct Offsets {
    threads: u64,
    modules: u64,
    data: u64,
    regions: u64,
    event: u64,
    states: u64,
    version: u64,
}

/// A thread: its state record and context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserThread<'a> {
    pub id: u32,
    pub suspend_count: u32,
    pub priority_class: u32,
    pub priority: u32,
    pub teb: u64,
    /// The `CONTEXT` record, raw.
    pub context: &'a [u8],
}

/// A module; its identity is in its headers in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserModule {
    pub base: u64,
    pub size: u32,
    pub name: String,
}

/// The event the dump was written for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DebugEvent {
    /// `DEBUG_EVENT.dwDebugEventCode`; 1 is an exception.
    pub code: u32,
    pub process: u32,
    pub thread: u32,
    pub exception: ExceptionRecord,
    pub first_chance: bool,
}

const HEADER: usize = 0x60;
const REGION: usize = 48;
const STATE: usize = 0x50;
const EXCEPTION_EVENT: u32 = 1;
const MAX_VERSION: u64 = 0x1000;

impl UserFull {
    pub fn parse(file: MappedFile) -> Result<Self> {
        let bytes = file.bytes();
        let header = bytes.get(..HEADER).filter(|h| h.starts_with(b"USERDU64")).ok_or_else(|| {
            DumpError::malformed("the full user dump ends inside its 96-byte header; copy it again")
        })?;
        let word = |offset| u32_at(header, offset).unwrap_or(0);
        let long = |offset| u64_at(header, offset).unwrap_or(0);
        let machine = u16::try_from(word(0x10)).ok().and_then(Machine::from_image).ok_or_else(|| {
            DumpError::unsupported(
                "foreign_architecture",
                format!(
                    "the full user dump is of machine type {:#x}, which is not served; x64 is",
                    word(0x10)
                ),
            )
        })?;
        let offsets = Offsets {
            threads: long(0x20),
            modules: long(0x28),
            data: long(0x30),
            regions: long(0x38),
            event: long(0x40),
            states: long(0x48),
            version: long(0x50),
        };
        let (counts, build) = ([word(0x14), word(0x18), word(0x1c)], word(0xc) >> 16);
        Ok(Self { file, machine, build, counts, offsets, memory: OnceLock::new() })
    }

    #[must_use]
    pub fn machine(&self) -> Machine {
        self.machine
    }
    #[must_use]
    pub fn build(&self) -> u32 {
        self.build
    }

    /// The file ends before memory it declares.
    #[must_use]
    pub fn truncated(&self) -> bool {
        self.memory_map().1
    }

    /// Threads in file order.
    #[must_use]
    pub fn threads(&self) -> Vec<UserThread<'_>> {
        let bytes = self.file.bytes();
        let size = target::Context::record_size(self.machine) as u64;
        let thread = |index: u64| {
            let at = |base: u64, size: u64| base.checked_add(index.checked_mul(size)?);
            let context = slice_at(bytes, at(self.offsets.threads, size)?, size)?;
            let state = at(self.offsets.states, STATE as u64);
            let state = state.and_then(|at| slice_at(bytes, at, STATE as u64)).unwrap_or_default();
            let word = |offset| u32_at(state, offset).unwrap_or(0);
            Some(UserThread {
                id: word(0),
                suspend_count: word(4),
                priority_class: word(8),
                priority: word(12),
                teb: u64_at(state, 16).unwrap_or(0),
                context,
            })
        };
        (0..u64::from(self.counts[0])).map_while(thread).collect()
    }

    /// Modules in file order, the process's own image first.
    #[must_use]
    pub fn modules(&self) -> Vec<UserModule> {
        let bytes = self.file.bytes();
        let mut at = self.offsets.modules;
        let mut modules = Vec::new();
        for _ in 0..self.counts[1] {
            let Some(record) = slice_at(bytes, at, 16) else { break };
            let length = u64::from(u32_at(record, 12).unwrap_or(0));
            let Some(name) = slice_at(bytes, at.saturating_add(16), length) else { break };
            modules.push(UserModule {
                base: u64_at(record, 0).unwrap_or(0),
                size: u32_at(record, 8).unwrap_or(0),
                name: ansi(name),
            });
            at = at.saturating_add(16 + length);
        }
        modules
    }

    /// The address map: all committed regions, whose bytes follow each other in this order.
    #[must_use]
    pub fn regions(&self) -> Vec<MemoryInfo> {
        let bytes = self.file.bytes();
        let start = usize::try_from(self.offsets.regions).unwrap_or(usize::MAX).min(bytes.len());
        let records = bytes[start..].chunks_exact(REGION).take(self.counts[2] as usize);
        let region = |record: &[u8]| {
            let word = |offset| u32_at(record, offset).unwrap_or(0);
            let long = |offset| u64_at(record, offset).unwrap_or(0);
            MemoryInfo {
                base: long(0),
                allocation_base: long(8),
                allocation_protect: word(16),
                size: long(24),
                state: word(32),
                protect: word(36),
                kind: word(40),
            }
        };
        records.map(region).collect()
    }

    #[must_use]
    pub fn event(&self) -> Option<DebugEvent> {
        let bytes = slice_at(self.file.bytes(), self.offsets.event, 0xb0)?;
        let code = u32_at(bytes, 0)?;
        if code != EXCEPTION_EVENT {
            return None;
        }
        Some(DebugEvent {
            code,
            process: u32_at(bytes, 4)?,
            thread: u32_at(bytes, 8)?,
            exception: exception_record(bytes.get(0x10..)?)?,
            first_chance: u32_at(bytes, 0xa8)? != 0,
        })
    }

    /// Keys and values of the version information, as stored.
    #[must_use]
    pub fn version_strings(&self) -> Vec<String> {
        let bytes = self.file.bytes();
        let start = self.offsets.version;
        let size = (bytes.len() as u64).saturating_sub(start).min(MAX_VERSION);
        let area = if start == 0 { None } else { slice_at(bytes, start, size) };
        let mut rest = area.unwrap_or_default();
        let mut strings = Vec::new();
        loop {
            let text = utf16(rest);
            if text.is_empty() {
                return strings;
            }
            let units = rest.chunks_exact(2).take_while(|pair| *pair != [0, 0]).count();
            rest = rest.get(2 * (units + 1)..).unwrap_or_default();
            strings.push(text);
        }
    }

    #[must_use]
    pub fn read_memory(&self, address: u64, buffer: &mut [u8]) -> ReadOutcome {
        self.memory_map().0.read(self.file.bytes(), address, buffer)
    }

    /// `(start, size)` of each stretch of memory, ascending and disjoint.
    #[must_use]
    pub fn memory_regions(&self) -> Vec<(u64, u64)> {
        self.memory_map().0.regions().collect()
    }

    fn memory_map(&self) -> &(Intervals, bool) {
        self.memory.get_or_init(|| {
            let bytes = self.file.bytes();
            let mut offset = self.offsets.data;
            let mut ranges = Vec::new();
            let mut cut = false;
            for (rank, region) in self.regions().iter().enumerate() {
                let (start, size) = (region.base, region.size);
                ranges.push(Range { start, size, offset, rank: rank as u64 });
                let Some(next) = offset.checked_add(size) else { break };
                cut |= next > bytes.len() as u64;
                offset = next;
            }
            cut |= ranges.len() < self.counts[2] as usize;
            (Intervals::build(&ranges, bytes), cut)
        })
    }
}

impl Memory for UserFull {
    fn read(&self, space: Space, address: u64, buffer: &mut [u8]) -> ReadOutcome {
        match space {
            Space::Virtual => self.read_memory(address, buffer),
            Space::Root(_) | Space::Physical => ReadOutcome::stopped(0, Unreadable::NoSuchSpace),
        }
    }
}
