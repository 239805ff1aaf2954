//! `DUMP_HEADER64` (0x2000 bytes).

use target::{ExceptionRecord, Machine};

use super::pages::PhysicalRun;
use crate::error::{DumpError, Result};
use crate::fields::{ansi, u32_at, u64_at};
use crate::minidump::exception_record;

pub(super) const HEADER_SIZE: usize = 0x2000;
const CONTEXT: std::ops::Range<usize> = 0x348..0xf00;
const RUNS: usize = 0x98;
const RUNS_END: usize = 0x348;
/// Fields that were not set keep this pattern.
const UNSET: u32 = 0x4547_4150;
const UNSET64: u64 = 0x4547_4150_4547_4150;

/// Facts of the header. `None`: the writer left the field unset (`PAGE` pattern).
#[derive(Clone, Debug)]
pub struct KernelHeader {
    pub machine: Machine,
    /// 0xf free, 0xc checked build.
    pub major_version: u32,
    /// Windows build number.
    pub build: u32,
    /// CR3 or TTBR of the crashing processor; low bits are flags.
    pub directory_table_base: u64,
    pub pfn_database: Option<u64>,
    /// VA of `nt!PsLoadedModuleList`.
    pub ps_loaded_module_list: Option<u64>,
    pub ps_active_process_head: Option<u64>,
    pub processors: u32,
    /// As stored: triage dumps add 0x10000000 to the codes that have a minidump form.
    pub bug_check_code: u32,
    pub bug_check_parameters: [u64; 4],
    pub version_user: Option<String>,
    /// VA of the `KDDEBUGGER_DATA64` block.
    pub kd_debugger_data_block: Option<u64>,
    /// Runs of `PHYSICAL_MEMORY_DESCRIPTOR64`: what the machine has, and of type 1 what follows.
    pub physical_runs: Vec<PhysicalRun>,
    /// Pages the descriptor declares.
    pub physical_pages: Option<u64>,
    pub exception: Option<ExceptionRecord>,
    pub dump_type: u32,
    pub required_dump_space: Option<u64>,
    /// FILETIME.
    pub system_time: Option<u64>,
    /// 100 ns units; `None` when absent or garbage.
    pub system_up_time: Option<u64>,
    pub comment: Option<String>,
    pub mini_dump_fields: Option<u32>,
    pub secondary_data_state: Option<u32>,
    /// 1 workstation, 2 domain controller, 3 server.
    pub product_type: Option<u32>,
    pub suite_mask: Option<u32>,
    pub writer_status: Option<u32>,
    /// Bit 3: a triage dump the kernel generated without a crash.
    pub attributes: Option<u32>,
    pub boot_id: Option<u32>,
    context: Box<[u8]>,
}

fn set32(bytes: &[u8], offset: usize) -> Option<u32> {
    u32_at(bytes, offset).filter(|&value| value != UNSET)
}
fn set64(bytes: &[u8], offset: usize) -> Option<u64> {
    u64_at(bytes, offset).filter(|&value| value != UNSET64)
}
fn text(bytes: &[u8]) -> Option<String> {
    Some(ansi(bytes)).filter(|t| !t.is_empty() && !t.starts_with("PAGE"))
}

/// Ten years: longer uptimes are garbage.
const MAX_UPTIME: u64 = 10 * 366 * 86_400 * 10_000_000;

impl KernelHeader {
    pub(super) fn read(bytes: &[u8]) -> Result<Self> {
        let header = bytes.get(..HEADER_SIZE).ok_or_else(|| {
            DumpError::malformed(format!(
                "the kernel dump ends inside its header ({} of 8192 bytes); copy it again",
                bytes.len()
            ))
        })?;
        let image_machine = u32_at(header, 0x30).unwrap_or(0);
        let machine = u16::try_from(image_machine).ok().and_then(Machine::from_image);
        let machine = machine.filter(|m| m.pointer_size() == 8).ok_or_else(|| {
            DumpError::unsupported(
                "foreign_architecture",
                format!(
                    "the kernel dump is of machine type {image_machine:#x}; x64 (0x8664) and ARM64 (0xaa64) are served"
                ),
            )
        })?;
        let word = |offset| u32_at(header, offset).unwrap_or(0);
        let long = |offset| u64_at(header, offset).unwrap_or(0);
        Ok(Self {
            machine,
            major_version: word(0x8),
            build: word(0xc) & 0xffff,
            directory_table_base: long(0x10),
            pfn_database: set64(header, 0x18).filter(|&v| v != 0),
            ps_loaded_module_list: set64(header, 0x20).filter(|&v| v != 0),
            ps_active_process_head: set64(header, 0x28).filter(|&v| v != 0),
            processors: word(0x34),
            bug_check_code: word(0x38),
            bug_check_parameters: [0x40, 0x48, 0x50, 0x58].map(long),
            version_user: header.get(0x60..0x80).and_then(text),
            kd_debugger_data_block: set64(header, 0x80).filter(|&v| v != 0),
            physical_runs: read_runs(header),
            physical_pages: set64(header, 0x90),
            exception: header.get(0xf00..0xf98).and_then(exception_record).filter(|e| e.code != UNSET),
            dump_type: word(0xf98),
            required_dump_space: set64(header, 0xfa0),
            system_time: set64(header, 0xfa8).filter(|&v| v != 0),
            system_up_time: set64(header, 0x1030).filter(|&v| v != 0 && v < MAX_UPTIME),
            comment: header.get(0xfb0..0x1030).and_then(text),
            mini_dump_fields: set32(header, 0x1038),
            secondary_data_state: set32(header, 0x103c),
            product_type: set32(header, 0x1040),
            suite_mask: set32(header, 0x1044),
            writer_status: set32(header, 0x1048),
            attributes: set32(header, 0x1050),
            boot_id: set32(header, 0x1054),
            context: header.get(CONTEXT).unwrap_or_default().into(),
        })
    }

    /// The bug check code without the minidump flag: 0x1000007e is 0x7e.
    #[must_use]
    pub fn bug_check_base(&self) -> u32 {
        match self.bug_check_code {
            code @ 0x1000_0000..=0x1000_ffff => code & 0xffff,
            code => code,
        }
    }

    pub(super) fn context(&self) -> &[u8] {
        &self.context
    }

    /// Whether the header's context is of the machine's kind and points somewhere.
    #[must_use]
    pub fn has_context(&self) -> bool {
        let (flags, ip, mark) = match self.machine {
            Machine::Arm64 => (0, 0x108, 0x40_0000),
            _ => (0x30, 0xf8, 0x10_0000),
        };
        let flags = u32_at(&self.context, flags).unwrap_or(0);
        flags != UNSET && flags & mark != 0 && u64_at(&self.context, ip).is_some_and(|ip| ip != 0)
    }

    /// Major and minor version Windows reports for the build: 64-bit dump headers hold the build only.
    #[must_use]
    pub fn os_version(&self) -> (u32, u32) {
        match self.build {
            0..=5999 => (5, 2),
            6000..=7599 => (6, 0),
            7600..=9199 => (6, 1),
            9200..=9599 => (6, 2),
            9600..=9899 => (6, 3),
            _ => (10, 0),
        }
    }
}

fn read_runs(header: &[u8]) -> Vec<PhysicalRun> {
    let Some(count) = set32(header, 0x88) else { return Vec::new() };
    let room = (RUNS_END - RUNS) / 16;
    let at = |index: usize| RUNS + 16 * index;
    (0..(count as usize).min(room))
        .map_while(|index| {
            Some(PhysicalRun { first_pfn: set64(header, at(index))?, pages: set64(header, at(index) + 8)? })
        })
        .collect()
}

/// Whether the descriptor's run count fits the header's room for it.
pub(super) fn declared_runs(header: &[u8]) -> Option<usize> {
    set32(header, 0x88).map(|count| count as usize)
}
