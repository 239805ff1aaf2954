//! SystemInfo: the one stream without which nothing else can be read.

use target::Machine;

use super::{Stream, prefix_at, stream};
use crate::error::{DumpError, Result};
use crate::fields::{array_at, slice_at, u8_at, u16_at, u32_at, utf16};

/// `MINIDUMP_SYSTEM_INFO`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SystemInfo {
    pub machine: Machine,
    pub processor_level: u16,
    pub processor_revision: u16,
    pub processors: u32,
    /// 1 workstation, 2 domain controller, 3 server.
    pub product_type: u8,
    pub major: u32,
    pub minor: u32,
    pub build: u32,
    pub suite_mask: u16,
    /// Service pack, empty on current systems.
    pub service_pack: String,
    /// The CPU information union, raw: x86 vendor, signature and features, else feature words.
    pub cpu: [u8; 24],
}

const WINDOWS_NT: u32 = 2;

fn platform_name(id: u32) -> &'static str {
    match id {
        0 => "Win32s",
        1 => "Windows 9x",
        3 => "Windows CE",
        0x8000 => "Unix",
        0x8101 => "macOS",
        0x8102 => "iOS",
        0x8201 => "Linux",
        0x8202 => "Solaris",
        0x8203 => "Android",
        0x8204 => "PlayStation 3",
        0x8205 => "Native Client",
        0x8206 => "Fuchsia",
        _ => "an unknown platform",
    }
}

pub(super) fn read(bytes: &[u8], streams: &[Stream]) -> Result<SystemInfo> {
    let entry = streams.iter().find(|s| s.kind == stream::SYSTEM_INFO).ok_or_else(|| {
        DumpError::malformed(
            "the minidump has no system information stream, without which it cannot be read; copy it again",
        )
    })?;
    let info = prefix_at(bytes, u64::from(entry.location.rva), u64::from(entry.location.size));
    let platform = u32_at(info, 20).ok_or_else(|| {
        DumpError::malformed("the minidump's system information stream is cut short; copy the dump again")
    })?;
    if platform != WINDOWS_NT {
        return Err(DumpError::unsupported(
            "foreign_platform",
            format!(
                "the minidump is of {} (platform id {platform:#x}), not of Windows NT; open it with that platform's debugger",
                platform_name(platform)
            ),
        ));
    }
    let architecture = u16_at(info, 0).unwrap_or(u16::MAX);
    let machine = Machine::from_processor_architecture(architecture).ok_or_else(|| {
        DumpError::unsupported(
            "foreign_architecture",
            format!(
                "the minidump is of processor architecture {architecture}; x86 (0), ARM (5), x64 (9) and ARM64 (12) are served"
            ),
        )
    })?;
    let half = |offset| u16_at(info, offset).unwrap_or(0);
    let word = |offset| u32_at(info, offset).unwrap_or(0);
    Ok(SystemInfo {
        machine,
        processor_level: half(2),
        processor_revision: half(4),
        // The count is one byte wide.
        processors: match u8_at(info, 6).unwrap_or(0) {
            0 => 256,
            count => u32::from(count),
        },
        product_type: u8_at(info, 7).unwrap_or(0),
        major: word(8),
        minor: word(12),
        build: word(16),
        suite_mask: half(28),
        service_pack: service_pack(bytes, word(24)),
        cpu: array_at(info, 32).unwrap_or_default(),
    })
}

fn service_pack(bytes: &[u8], rva: u32) -> String {
    let length = u32_at(bytes, rva as usize).unwrap_or(0).min(1024);
    if rva == 0 {
        return String::new();
    }
    slice_at(bytes, u64::from(rva) + 4, u64::from(length)).map(utf16).unwrap_or_default()
}
