//! `DUMP_HEADER32` (0x1000 bytes) and, of triage dumps, the driver list: the facts served of 32-bit
//! kernels. Memory of 32-bit kernel dumps is not read.

use target::{ExceptionRecord, Machine};

use super::triage::counted_name;
use crate::error::{DumpError, Result};
use crate::fields::{ansi, slice_at, u8_at, u32_at, u64_at};
use crate::map::MappedFile;

/// An opened 32-bit kernel dump: header facts only.
#[derive(Debug)]
pub struct Kernel32 {
    pub header: Header32,
    /// Of triage dumps; empty when the block does not parse.
    pub drivers: Vec<Driver32>,
    file: MappedFile,
}

#[derive(Clone, Debug)]
pub struct Header32 {
    pub machine: Machine,
    pub major_version: u32,
    /// Windows build number.
    pub build: u32,
    pub directory_table_base: u32,
    pub ps_loaded_module_list: u32,
    pub ps_active_process_head: u32,
    pub processors: u32,
    pub bug_check_code: u32,
    pub bug_check_parameters: [u32; 4],
    pub pae: bool,
    pub kd_debugger_data_block: u32,
    pub exception: Option<ExceptionRecord>,
    pub dump_type: u32,
    /// FILETIME.
    pub system_time: Option<u64>,
    /// 100 ns units.
    pub system_up_time: Option<u64>,
    pub product_type: Option<u32>,
    pub comment: Option<String>,
    context: Box<[u8]>,
}

/// A driver of a 32-bit triage dump.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Driver32 {
    pub name: String,
    pub base: u32,
    pub size: u32,
    pub checksum: u32,
    pub timestamp: u32,
}

const HEADER_SIZE: usize = 0x1000;
const UNSET: u32 = 0x4547_4150;
const UNSET64: u64 = 0x4547_4150_4547_4150;
const DRIVER: usize = 0x4c;
const TRIAGE: u32 = 4;

impl Kernel32 {
    pub fn parse(file: MappedFile) -> Result<Self> {
        let header = Header32::read(file.bytes())?;
        let drivers = if header.dump_type == TRIAGE {
            read_drivers(file.bytes()).unwrap_or_default()
        } else {
            Vec::new()
        };
        Ok(Self { header, drivers, file })
    }

    /// The crash context, raw (1200 bytes; x86 uses 716, ARM 0x1a0).
    #[must_use]
    pub fn context_bytes(&self) -> &[u8] {
        &self.header.context
    }

    #[must_use]
    pub fn file_bytes(&self, offset: u64, size: u64) -> Option<&[u8]> {
        slice_at(self.file.bytes(), offset, size)
    }
}

impl Header32 {
    fn read(bytes: &[u8]) -> Result<Self> {
        let header = bytes.get(..HEADER_SIZE).ok_or_else(|| {
            DumpError::malformed(format!(
                "the 32-bit kernel dump ends inside its header ({} of 4096 bytes); copy it again",
                bytes.len()
            ))
        })?;
        let word = |offset| u32_at(header, offset).unwrap_or(0);
        let set = |offset| u32_at(header, offset).filter(|&v| v != UNSET);
        let long = |offset| u64_at(header, offset).filter(|&v| v != UNSET64 && v != 0);
        let machine = u16::try_from(word(0x20)).ok().and_then(Machine::from_image);
        let machine = machine.filter(|m| m.pointer_size() == 4).ok_or_else(|| {
            DumpError::unsupported(
                "foreign_architecture",
                format!(
                    "the 32-bit kernel dump is of machine type {:#x}; x86 (0x14c) and ARM (0x1c4) are served",
                    word(0x20)
                ),
            )
        })?;
        Ok(Self {
            machine,
            major_version: word(0x8),
            build: word(0xc) & 0xffff,
            directory_table_base: word(0x10),
            ps_loaded_module_list: word(0x18),
            ps_active_process_head: word(0x1c),
            processors: word(0x24),
            bug_check_code: word(0x28),
            bug_check_parameters: [0x2c, 0x30, 0x34, 0x38].map(word),
            pae: u8_at(header, 0x5c) == Some(1),
            kd_debugger_data_block: word(0x60),
            exception: header.get(0x7d0..0x820).and_then(exception32),
            dump_type: word(0xf88),
            system_time: long(0xfc0),
            system_up_time: long(0xfb8),
            product_type: set(0xfa8),
            comment: header
                .get(0x820..0x8a0)
                .map(ansi)
                .filter(|text| !text.is_empty() && !text.starts_with("PAGE")),
            context: header.get(0x320..0x7d0).unwrap_or_default().into(),
        })
    }
}

/// `EXCEPTION_RECORD32` (0x50 bytes).
fn exception32(bytes: &[u8]) -> Option<ExceptionRecord> {
    let word = |offset| u32_at(bytes, offset);
    let count = (word(16)? as usize).min(15);
    let record = ExceptionRecord {
        code: word(0)?,
        flags: word(4)?,
        nested: word(8)?.into(),
        address: word(12)?.into(),
        parameters: (0..count).map_while(|i| word(20 + 4 * i)).map(u64::from).collect(),
    };
    (record.code != UNSET).then_some(record)
}

/// The driver list of `TRIAGE_DUMP32` at 0x1000: the same idea as the 64-bit one.
fn read_drivers(bytes: &[u8]) -> Option<Vec<Driver32>> {
    let block = slice_at(bytes, HEADER_SIZE as u64, 0x68)?;
    let (list, count) = (u32_at(block, 0x30)? as usize, u32_at(block, 0x34)? as usize);
    let records = bytes.get(list..)?.chunks_exact(DRIVER).take(count);
    let driver = |record: &[u8]| {
        let entry = &record[4..];
        Some(Driver32 {
            name: counted_name(bytes, u32_at(record, 0)?),
            base: u32_at(entry, 0x18)?,
            size: u32_at(entry, 0x20)?,
            checksum: u32_at(entry, 0x40)?,
            timestamp: u32_at(entry, 0x44)?,
        })
    };
    records.map(driver).collect()
}
