//! User minidumps (`MDMP`, minidumpapiset.h): a header, a directory, and streams read on demand.

mod handles;
mod memory;
mod modules;
mod process;
mod system;
mod threads;
pub(crate) use threads::exception_record;

use std::sync::OnceLock;

use target::{Machine, Memory, ReadOutcome, Space, Unreadable};

pub use handles::{FunctionTable, Handle};
pub use memory::{MemoryInfo, MemoryRange};
pub use modules::{ModuleRecord, UnloadedRecord};
pub use process::{MiscInfo, SystemMemoryInfo, TimeZone, Times, Token, VmCounters};
pub use system::SystemInfo;
pub use threads::{ExceptionStream, ThreadInfo, ThreadName, ThreadRecord};

use crate::error::{DumpError, Result};
use crate::fields::{slice_at, u32_at, u64_at, utf16};
use crate::map::MappedFile;

/// Stream types (`MINIDUMP_STREAM_TYPE`).
pub mod stream {
    pub const THREAD_LIST: u32 = 3;
    pub const MODULE_LIST: u32 = 4;
    pub const MEMORY_LIST: u32 = 5;
    pub const EXCEPTION: u32 = 6;
    pub const SYSTEM_INFO: u32 = 7;
    pub const THREAD_EX_LIST: u32 = 8;
    pub const MEMORY64_LIST: u32 = 9;
    pub const COMMENT_A: u32 = 10;
    pub const COMMENT_W: u32 = 11;
    pub const HANDLE_DATA: u32 = 12;
    pub const FUNCTION_TABLE: u32 = 13;
    pub const UNLOADED_MODULE_LIST: u32 = 14;
    pub const MISC_INFO: u32 = 15;
    pub const MEMORY_INFO_LIST: u32 = 16;
    pub const THREAD_INFO_LIST: u32 = 17;
    pub const HANDLE_OPERATION_LIST: u32 = 18;
    pub const TOKEN: u32 = 19;
    pub const JAVASCRIPT_DATA: u32 = 20;
    pub const SYSTEM_MEMORY_INFO: u32 = 21;
    pub const PROCESS_VM_COUNTERS: u32 = 22;
    pub const IPT_TRACE: u32 = 23;
    pub const THREAD_NAMES: u32 = 24;

    /// The documented name of a stream type, `None` for private ones.
    #[must_use]
    pub fn name(kind: u32) -> Option<&'static str> {
        const NAMES: [&str; 25] = [
            "Unused",
            "Reserved0",
            "Reserved1",
            "ThreadList",
            "ModuleList",
            "MemoryList",
            "Exception",
            "SystemInfo",
            "ThreadExList",
            "Memory64List",
            "CommentA",
            "CommentW",
            "HandleData",
            "FunctionTable",
            "UnloadedModuleList",
            "MiscInfo",
            "MemoryInfoList",
            "ThreadInfoList",
            "HandleOperationList",
            "Token",
            "JavaScriptData",
            "SystemMemoryInfo",
            "ProcessVmCounters",
            "IptTrace",
            "ThreadNames",
        ];
        NAMES.get(usize::try_from(kind).ok()?).copied()
    }
}

/// A stretch of the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Location {
    pub size: u32,
    pub rva: u32,
}

/// One directory entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    pub kind: u32,
    pub location: Location,
    /// An earlier entry has the same type; that one is read.
    pub duplicate: bool,
}

/// An opened minidump.
#[derive(Debug)]
pub struct Minidump {
    file: MappedFile,
    /// Seconds since 1970.
    timestamp: u32,
    /// `MINIDUMP_TYPE` bits.
    flags: u64,
    streams: Vec<Stream>,
    system: SystemInfo,
    clipped: bool,
    memory: OnceLock<memory::MemoryMap>,
}

const HEADER_SIZE: usize = 32;
const DIRECTORY_ENTRY: usize = 12;

impl Minidump {
    /// Reads header, directory and system information; everything else later.
    pub fn parse(file: MappedFile) -> Result<Self> {
        let bytes = file.bytes();
        let header = bytes.get(..HEADER_SIZE).filter(|h| h.starts_with(b"MDMP")).ok_or_else(|| {
            DumpError::malformed("the minidump ends inside its 32-byte header; copy it again")
        })?;
        let word = |offset| u32_at(header, offset).unwrap_or(0);
        let (count, directory) = (word(8) as usize, word(12) as usize);
        if directory < HEADER_SIZE {
            return Err(DumpError::malformed(format!(
                "the minidump's stream directory (RVA {directory:#x}) lies inside its header: the file is damaged; copy it again"
            )));
        }
        let room = bytes.len().saturating_sub(directory) / DIRECTORY_ENTRY;
        let streams = read_directory(bytes, directory, count.min(room));
        let mut clipped = count > room;
        clipped |= streams
            .iter()
            .any(|s| u64::from(s.location.rva) + u64::from(s.location.size) > bytes.len() as u64);
        let system = system::read(bytes, &streams)?;
        let (timestamp, flags) = (word(20), u64_at(header, 24).unwrap_or(0));
        Ok(Self { file, timestamp, flags, streams, system, clipped, memory: OnceLock::new() })
    }

    /// When the dump was written, seconds since 1970; 0 when not recorded.
    #[must_use]
    pub fn timestamp(&self) -> u32 {
        self.timestamp
    }
    /// `MINIDUMP_TYPE` bits the writer was asked for.
    #[must_use]
    pub fn flags(&self) -> u64 {
        self.flags
    }
    /// All directory entries, duplicates and private types too; padding (type 0) left out.
    #[must_use]
    pub fn streams(&self) -> &[Stream] {
        &self.streams
    }
    #[must_use]
    pub fn system_info(&self) -> &SystemInfo {
        &self.system
    }
    /// The processor the dumping process's threads ran on (of WoW64: x64 or ARM64).
    #[must_use]
    pub fn machine(&self) -> Machine {
        self.system.machine
    }
    /// The file ends before something it declares.
    #[must_use]
    pub fn truncated(&self) -> bool {
        self.clipped || self.memory_map().truncated
    }

    /// Whether all committed memory was asked for (`MiniDumpWithFullMemory`) or a 64-bit list exists.
    #[must_use]
    pub fn has_full_memory(&self) -> bool {
        self.flags & 2 != 0 || self.stream(stream::MEMORY64_LIST).is_some()
    }

    /// The bytes of the first stream of a type, as far as the file has them.
    #[must_use]
    pub fn stream(&self, kind: u32) -> Option<&[u8]> {
        let entry = self.streams.iter().find(|s| s.kind == kind)?;
        Some(self.bytes_at(entry.location))
    }

    /// Bytes of the file, as far as it has them.
    #[must_use]
    pub fn bytes_at(&self, location: Location) -> &[u8] {
        prefix_at(self.file.bytes(), u64::from(location.rva), u64::from(location.size))
    }

    /// Comment streams, ANSI first.
    #[must_use]
    pub fn comments(&self) -> Vec<String> {
        let ansi = self.stream(stream::COMMENT_A).map(crate::fields::ansi);
        let wide = self.stream(stream::COMMENT_W).map(utf16);
        ansi.into_iter().chain(wide).filter(|text| !text.is_empty()).collect()
    }

    /// Virtual memory the dump holds.
    #[must_use]
    pub fn read_memory(&self, address: u64, buffer: &mut [u8]) -> ReadOutcome {
        self.memory_map().intervals.read(self.file.bytes(), self.mask(address), buffer)
    }

    fn memory_map(&self) -> &memory::MemoryMap {
        self.memory.get_or_init(|| memory::MemoryMap::build(self))
    }

    /// Addresses of 32-bit targets may be stored sign-extended.
    fn mask(&self, address: u64) -> u64 {
        if self.system.machine.pointer_size() == 4 { address & 0xffff_ffff } else { address }
    }

    /// A `MINIDUMP_STRING`: byte length and UTF-16.
    fn string_at(&self, rva: u64, budget: &mut usize) -> String {
        let bytes = self.file.bytes();
        let length = usize::try_from(rva).ok().and_then(|at| u32_at(bytes, at)).unwrap_or(0);
        let size = length.min(MAX_STRING);
        if rva == 0 || size as usize > *budget {
            return String::new();
        }
        *budget -= size as usize;
        slice_at(bytes, rva.saturating_add(4), u64::from(size)).map(utf16).unwrap_or_default()
    }
}

/// Longest string read: Windows paths end at 32,767 units.
const MAX_STRING: u32 = 0x1_0000;
/// Bytes of strings one list may bring, so that many records cannot multiply one long string.
const STRING_BUDGET: usize = 32 << 20;

impl Memory for Minidump {
    fn read(&self, space: Space, address: u64, buffer: &mut [u8]) -> ReadOutcome {
        match space {
            Space::Virtual => self.read_memory(address, buffer),
            Space::Root(_) | Space::Physical => ReadOutcome::stopped(0, Unreadable::NoSuchSpace),
        }
    }
}

fn prefix_at(bytes: &[u8], offset: u64, size: u64) -> &[u8] {
    let start = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
    let end = start.saturating_add(usize::try_from(size).unwrap_or(usize::MAX)).min(bytes.len());
    &bytes[start..end]
}

fn read_directory(bytes: &[u8], at: usize, count: usize) -> Vec<Stream> {
    let entries = prefix_at(bytes, at as u64, (count * DIRECTORY_ENTRY) as u64);
    let mut seen = std::collections::HashSet::new();
    let mut streams = Vec::new();
    for entry in entries.chunks_exact(DIRECTORY_ENTRY) {
        let word = |offset| u32_at(entry, offset).unwrap_or(0);
        let (kind, location) = (word(0), Location { size: word(4), rva: word(8) });
        if kind != 0 {
            streams.push(Stream { kind, location, duplicate: !seen.insert(kind) });
        }
    }
    streams
}

/// The records of a `{count u32, record...}` list; some writers put 4 bytes of padding before the
/// first record so that it is 8-aligned.
fn counted_records(list: &[u8], size: usize) -> impl Iterator<Item = &[u8]> {
    let count = u32_at(list, 0).unwrap_or(0) as usize;
    let padded = count.checked_mul(size).and_then(|n| n.checked_add(8)) == Some(list.len());
    let start = if padded { 8 } else { 4 };
    list.get(start..).unwrap_or_default().chunks_exact(size).take(count)
}

/// The records of a `{header size u32, entry size u32, count}` list, `count` being 4 or 8 bytes
/// wide; sizes are the writer's own.
fn sized_records(list: &[u8], wide_count: bool, least: usize) -> impl Iterator<Item = &[u8]> {
    let header = u32_at(list, 0).unwrap_or(0) as usize;
    let entry = u32_at(list, 4).unwrap_or(0) as usize;
    let count = if wide_count { u64_at(list, 8) } else { u32_at(list, 8).map(u64::from) };
    let usable = entry >= least && header >= 12;
    let count = if usable { usize::try_from(count.unwrap_or(0)).unwrap_or(usize::MAX) } else { 0 };
    list.get(header..).unwrap_or_default().chunks_exact(entry.max(least).max(1)).take(count)
}
