//! Kernel dumps with a 64-bit header (`PAGEDU64`), and the header facts of 32-bit ones.

mod blobs;
mod header;
mod header32;
mod pages;
mod triage;

use target::{DumpFormat, Memory, ReadOutcome, Space, Unreadable};

pub use blobs::Blob;
pub use header::KernelHeader;
pub use header32::{Driver32, Header32, Kernel32};
pub use pages::{PageMap, PhysicalRun};
pub use triage::{MmInformation, Triage, TriageBlock, TriageDriver, TriageHeader, UnloadedDriver};

use crate::error::{DumpError, Result};
use crate::fields::slice_at;
use crate::kdbg::KdDebuggerData;
use crate::map::MappedFile;

/// An opened 64-bit kernel dump.
#[derive(Debug)]
pub struct KernelDump {
    file: MappedFile,
    header: Box<KernelHeader>,
    content: Content,
    notes: Vec<String>,
}

#[derive(Debug)]
enum Content {
    Pages(PageMap),
    Triage(Box<Triage>),
    /// DumpType 3: a header and nothing else.
    HeaderOnly,
}

impl KernelDump {
    /// Reads the header and whatever says where memory is; pages and blocks stay in the file.
    pub fn parse(file: MappedFile) -> Result<Self> {
        let bytes = file.bytes();
        let header = Box::new(KernelHeader::read(bytes)?);
        let mut notes = Vec::new();
        let content = match header.dump_type {
            3 => Content::HeaderOnly,
            4 => Content::Triage(Box::new(Triage::parse(bytes, &header, &mut notes)?)),
            kind => match PageMap::parse(bytes, &header, kind, &mut notes)? {
                Some(map) => Content::Pages(map),
                None => {
                    return Err(DumpError::unsupported(
                        "unknown_dump_type",
                        format!(
                            "the kernel dump is of type {kind:#x}, which is not known, and nothing in it says how its pages are stored"
                        ),
                    ));
                }
            },
        };
        Ok(Self { file, header, content, notes })
    }

    #[must_use]
    pub fn header(&self) -> &KernelHeader {
        &self.header
    }

    #[must_use]
    pub fn format(&self) -> DumpFormat {
        match &self.content {
            Content::Triage(_) => DumpFormat::KernelTriage,
            Content::HeaderOnly => DumpFormat::KernelHeaderOnly,
            Content::Pages(map) => map.format(),
        }
    }

    /// What does not add up in the file but did not prevent opening it, in words.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The file ends before pages or blocks it declares.
    #[must_use]
    pub fn truncated(&self) -> bool {
        match &self.content {
            Content::Pages(map) => map.truncated(self.file.len()),
            Content::Triage(triage) => triage.truncated(),
            Content::HeaderOnly => false,
        }
    }

    /// The crash context in the header, raw (3000 bytes; x64 uses 0x4d0, ARM64 0x390). All zero or
    /// of processor 0 in live dumps. Of bug checks that carry a context (0x7e) it is that one; what
    /// the processor was doing is where its PRCB's `Context` field points, and what DbgEng shows.
    #[must_use]
    pub fn context_bytes(&self) -> &[u8] {
        self.header.context()
    }

    /// The page map, `None` for triage dumps.
    #[must_use]
    pub fn pages(&self) -> Option<&PageMap> {
        match &self.content {
            Content::Pages(map) => Some(map),
            Content::Triage(_) | Content::HeaderOnly => None,
        }
    }

    #[must_use]
    pub fn triage(&self) -> Option<&Triage> {
        match &self.content {
            Content::Triage(triage) => Some(triage),
            Content::Pages(_) | Content::HeaderOnly => None,
        }
    }

    /// The first run of page frames at or after `pfn` that the dump declares: to walk all of it.
    #[must_use]
    pub fn next_physical_run(&self, pfn: u64) -> Option<PhysicalRun> {
        self.pages()?.next_run(self.file.bytes(), pfn)
    }

    /// Physical memory; triage dumps have none.
    #[must_use]
    pub fn read_physical(&self, address: u64, buffer: &mut [u8]) -> ReadOutcome {
        match &self.content {
            Content::Pages(map) => map.read(self.file.bytes(), address, buffer),
            Content::Triage(_) | Content::HeaderOnly => ReadOutcome::stopped(0, Unreadable::NoSuchSpace),
        }
    }

    /// Virtual memory of a triage dump's blocks. Other dumps need page tables, which are not this
    /// crate's: they answer `NoSuchSpace`.
    #[must_use]
    pub fn read_virtual(&self, address: u64, buffer: &mut [u8]) -> ReadOutcome {
        match &self.content {
            Content::Triage(triage) => triage.read(self.file.bytes(), address, buffer),
            Content::Pages(_) | Content::HeaderOnly => ReadOutcome::stopped(0, Unreadable::NoSuchSpace),
        }
    }

    /// The debugger data block stored in a triage dump (already decoded by the writer).
    #[must_use]
    pub fn debugger_data(&self) -> Option<KdDebuggerData> {
        let (offset, size) = self.triage()?.debugger_data;
        KdDebuggerData::parse(slice_at(self.file.bytes(), u64::from(offset), u64::from(size))?)
    }

    /// Secondary data: blobs that bugcheck callbacks left behind the memory.
    #[must_use]
    pub fn blobs(&self) -> Vec<Blob> {
        let end = match &self.content {
            Content::Pages(map) => map.end(),
            Content::Triage(triage) => u64::from(triage.header.size_of_dump),
            Content::HeaderOnly => return Vec::new(),
        };
        blobs::read(self.file.bytes(), end)
    }

    /// Bytes of the file, e.g. of a blob.
    #[must_use]
    pub fn file_bytes(&self, offset: u64, size: u64) -> Option<&[u8]> {
        slice_at(self.file.bytes(), offset, size)
    }
}

impl Memory for KernelDump {
    fn read(&self, space: Space, address: u64, buffer: &mut [u8]) -> ReadOutcome {
        match space {
            Space::Physical => self.read_physical(address, buffer),
            Space::Virtual => self.read_virtual(address, buffer),
            Space::Root(_) => ReadOutcome::stopped(0, Unreadable::NoSuchSpace),
        }
    }
}
