//! The process and its system at the time of the dump.

use super::{Minidump, stream};
use crate::fields::{u16_at, u32_at, u64_at, utf16};

/// `MINIDUMP_MISC_INFO` 1 to 5: a field is `None` when the writer's version lacks it or its
/// `Flags1` bit is clear.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MiscInfo {
    pub process_id: Option<u32>,
    pub times: Option<Times>,
    /// Maximum, current and limit MHz, maximum and current idle state.
    pub processor_power: Option<[u32; 5]>,
    /// Mandatory level RID, 0x2000 medium.
    pub integrity_level: Option<u32>,
    pub execute_flags: Option<u32>,
    pub protected_process: Option<u32>,
    pub time_zone: Option<TimeZone>,
    /// `19041.1.amd64fre.vb_release.191206-1406`.
    pub build_string: Option<String>,
    pub debugger_build_string: Option<String>,
    pub process_cookie: Option<u32>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// Seconds since 1970.
    pub created: u32,
    /// Seconds.
    pub user: u32,
    pub kernel: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TimeZone {
    /// 0 unknown, 1 standard, 2 daylight.
    pub id: u32,
    /// Minutes: UTC = local time + bias.
    pub bias: i32,
    pub standard_name: String,
    pub daylight_name: String,
}

/// `MINIDUMP_SYSTEM_MEMORY_INFO_1`: the facts of it that are asked for; counts are in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SystemMemoryInfo {
    pub page_size: u32,
    pub physical_pages: u32,
    pub allocation_granularity: u32,
    pub minimum_user_address: u64,
    pub maximum_user_address: u64,
    pub processors: u32,
    pub available_pages: u64,
    pub committed_pages: u64,
    pub commit_limit: u64,
    pub peak_commitment: u64,
}

/// `MINIDUMP_PROCESS_VM_COUNTERS_1` and `_2`, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VmCounters {
    pub revision: u16,
    pub page_faults: u32,
    pub peak_working_set: Option<u64>,
    pub working_set: Option<u64>,
    pub pagefile_usage: Option<u64>,
    pub peak_pagefile_usage: Option<u64>,
    pub peak_virtual_size: Option<u64>,
    pub virtual_size: Option<u64>,
    pub private_usage: Option<u64>,
    pub private_working_set: Option<u64>,
}

/// One `MINIDUMP_TOKEN_INFO_HEADER` and its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token<'a> {
    pub id: u32,
    pub handle: u64,
    pub data: &'a [u8],
}

mod valid {
    pub(super) const PROCESS_ID: u32 = 1;
    pub(super) const TIMES: u32 = 2;
    pub(super) const POWER: u32 = 4;
    pub(super) const INTEGRITY: u32 = 0x10;
    pub(super) const EXECUTE_FLAGS: u32 = 0x20;
    pub(super) const TIME_ZONE: u32 = 0x40;
    pub(super) const PROTECTED: u32 = 0x80;
    pub(super) const BUILD_STRING: u32 = 0x100;
    pub(super) const COOKIE: u32 = 0x200;
}

fn time_zone(info: &[u8]) -> Option<TimeZone> {
    let zone = info.get(60..232)?;
    Some(TimeZone {
        id: u32_at(info, 56)?,
        bias: u32_at(zone, 0)?.cast_signed(),
        standard_name: utf16(zone.get(4..68)?),
        daylight_name: utf16(zone.get(88..152)?),
    })
}

impl Minidump {
    #[must_use]
    pub fn misc_info(&self) -> Option<MiscInfo> {
        let stream = self.stream(stream::MISC_INFO)?;
        let size = (u32_at(stream, 0)? as usize).min(stream.len());
        let info = &stream[..size];
        let flags = u32_at(info, 4)?;
        let has = |bit: u32| flags & bit != 0;
        let word = |bit: u32, offset| if has(bit) { u32_at(info, offset) } else { None };
        let text = |range: std::ops::Range<usize>| {
            let bytes = if has(valid::BUILD_STRING) { info.get(range) } else { None };
            bytes.map(utf16).filter(|t| !t.is_empty())
        };
        let times =
            || Some(Times { created: u32_at(info, 12)?, user: u32_at(info, 16)?, kernel: u32_at(info, 20)? });
        let power = || {
            let at = |index: usize| u32_at(info, 24 + 4 * index);
            Some([at(0)?, at(1)?, at(2)?, at(3)?, at(4)?])
        };
        Some(MiscInfo {
            process_id: word(valid::PROCESS_ID, 8),
            times: if has(valid::TIMES) { times() } else { None },
            processor_power: if has(valid::POWER) { power() } else { None },
            integrity_level: word(valid::INTEGRITY, 44),
            execute_flags: word(valid::EXECUTE_FLAGS, 48),
            protected_process: word(valid::PROTECTED, 52),
            time_zone: if has(valid::TIME_ZONE) { time_zone(info) } else { None },
            build_string: text(232..752),
            debugger_build_string: text(752..832),
            process_cookie: word(valid::COOKIE, 1360),
        })
    }

    #[must_use]
    pub fn system_memory_info(&self) -> Option<SystemMemoryInfo> {
        let info = self.stream(stream::SYSTEM_MEMORY_INFO)?;
        Some(SystemMemoryInfo {
            page_size: u32_at(info, 8)?,
            physical_pages: u32_at(info, 12)?,
            allocation_granularity: u32_at(info, 24)?,
            minimum_user_address: u64_at(info, 28)?,
            maximum_user_address: u64_at(info, 36)?,
            processors: u32_at(info, 52)?,
            available_pages: u64_at(info, 116)?,
            committed_pages: u64_at(info, 124)?,
            commit_limit: u64_at(info, 132)?,
            peak_commitment: u64_at(info, 140)?,
        })
    }

    #[must_use]
    pub fn vm_counters(&self) -> Option<VmCounters> {
        let info = self.stream(stream::PROCESS_VM_COUNTERS)?;
        let revision = u16_at(info, 0)?;
        let second = |offset| if revision >= 2 { u64_at(info, offset) } else { None };
        Some(VmCounters {
            revision,
            page_faults: u32_at(info, 4)?,
            peak_working_set: u64_at(info, 8),
            working_set: u64_at(info, 16),
            pagefile_usage: u64_at(info, 56),
            peak_pagefile_usage: u64_at(info, 64),
            peak_virtual_size: second(72),
            virtual_size: second(80),
            private_usage: if revision >= 2 { u64_at(info, 88) } else { u64_at(info, 72) },
            private_working_set: second(96),
        })
    }

    /// Tokens of the process and its threads, raw.
    #[must_use]
    pub fn tokens(&self) -> Vec<Token<'_>> {
        let list = self.stream(stream::TOKEN).unwrap_or_default();
        let word = |offset| u32_at(list, offset).unwrap_or(0) as usize;
        let (count, header) = (word(4), word(12).max(16));
        let mut at = word(8);
        let mut tokens = Vec::new();
        for _ in 0..count {
            let size = u32_at(list, at).unwrap_or(0) as usize;
            let record = at.checked_add(size).and_then(|end| list.get(at..end));
            let Some(record) = record.filter(|r| r.len() >= header) else { break };
            tokens.push(Token {
                id: u32_at(record, 4).unwrap_or(0),
                handle: u64_at(record, 8).unwrap_or(0),
                data: &record[header..],
            });
            at += size;
        }
        tokens
    }
}
