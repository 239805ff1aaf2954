//! `KUSER_SHARED_DATA`: the page every process sees (ntddk.h); what it says of time and version.

use target::{MemoryExt, value};

use crate::core::Core;

/// Its user-mode address on every Windows.
const USER_SHARED_DATA: u64 = 0x7ffe_0000;
const INTERRUPT_TIME: u64 = 0x08;
const SYSTEM_TIME: u64 = 0x14;
const PRODUCT_TYPE: u64 = 0x264;
const MAJOR_VERSION: u64 = 0x26c;
const MINOR_VERSION: u64 = 0x270;
/// Ten years: longer uptimes are garbage.
const MAX_UPTIME_MS: u64 = 10 * 366 * 86_400_000;

/// What the page of a user dump says; `None` for what is not in the dump.
pub(crate) struct SharedData {
    /// RFC 3339 UTC.
    pub(crate) time: Option<String>,
    pub(crate) uptime_ms: Option<u64>,
    /// 1 workstation, 2 domain controller, 3 server.
    pub(crate) product: Option<u32>,
    pub(crate) version: Option<(u32, u32)>,
}

pub(crate) fn read(core: &Core) -> SharedData {
    // A KSYSTEM_TIME: low part, then the high part twice; they differ while it is being written.
    let time = |offset: u64| {
        let low = core.read_u32(USER_SHARED_DATA + offset).ok()?;
        let high = core.read_u32(USER_SHARED_DATA + offset + 4).ok()?;
        Some(u64::from(high) << 32 | u64::from(low))
    };
    let word = |offset: u64| core.read_u32(USER_SHARED_DATA + offset).ok();
    let version = word(MAJOR_VERSION).zip(word(MINOR_VERSION));
    SharedData {
        time: time(SYSTEM_TIME).and_then(value::rfc3339_from_filetime),
        uptime_ms: time(INTERRUPT_TIME).map(|t| t / 10_000).filter(|&t| t > 0 && t < MAX_UPTIME_MS),
        product: word(PRODUCT_TYPE),
        version: version.filter(|&(major, minor)| (4..=20).contains(&major) && minor <= 10),
    }
}
