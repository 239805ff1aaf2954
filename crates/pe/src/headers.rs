//! Headers: what identifies an image and where its parts are (PE/COFF specification, Microsoft).

use target::{Machine, PdbIdentity};

use crate::field::{le16, le32, le64};
use crate::source::{ImageSource, ImageSourceExt};

/// Most sections of an image; the Windows loader's own limit.
const MAX_SECTIONS: u16 = 96;
const IMAGE_SCN_MEM_EXECUTE: u32 = 0x2000_0000;
const IMAGE_SCN_MEM_READ: u32 = 0x4000_0000;
const IMAGE_SCN_MEM_WRITE: u32 = 0x8000_0000;
const IMAGE_SCN_CNT_CODE: u32 = 0x20;

/// Why bytes are not a usable PE image.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeError {
    #[error("no MZ signature at the start: not a PE image")]
    NoMz,
    #[error("no PE signature at offset {0:#x}: a DOS program or a damaged image")]
    NoPe(u32),
    #[error("the {0} cannot be read: the image is truncated or its pages are missing")]
    Unreadable(&'static str),
    #[error("optional header magic {0:#x} is neither PE32 nor PE32+")]
    BadMagic(u16),
}

/// Index of a data directory (winnt.h `IMAGE_DIRECTORY_ENTRY_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirectoryIndex {
    Export = 0,
    Import = 1,
    Resource = 2,
    Exception = 3,
    Security = 4,
    BaseRelocation = 5,
    Debug = 6,
    Tls = 9,
    LoadConfig = 10,
    Iat = 12,
    ClrHeader = 14,
}

/// A section header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// As stored, at most 8 bytes; a MinGW long name stays `/123` (see [`crate::CoffSymbols`]).
    pub name: String,
    pub rva: u32,
    pub virtual_size: u32,
    /// `PointerToRawData` as stored.
    pub raw_offset: u32,
    pub raw_size: u32,
    /// `IMAGE_SCN_*`.
    pub characteristics: u32,
}

impl Section {
    #[must_use]
    pub fn is_executable(&self) -> bool {
        self.characteristics & (IMAGE_SCN_MEM_EXECUTE | IMAGE_SCN_CNT_CODE) != 0
    }
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.characteristics & IMAGE_SCN_MEM_WRITE != 0
    }
    #[must_use]
    pub fn is_readable(&self) -> bool {
        self.characteristics & IMAGE_SCN_MEM_READ != 0
    }
    /// Where the loader starts reading: it rounds the file pointer down to 512.
    pub(crate) fn raw_start(&self) -> u64 {
        u64::from(self.raw_offset & !0x1ff)
    }
    /// Bytes the loader maps: the virtual size (the raw size where that is 0) up to whole units of
    /// the section alignment.
    pub(crate) fn mapped_size(&self, alignment: u32) -> u32 {
        let size = if self.virtual_size == 0 { self.raw_size } else { self.virtual_size };
        let unit = alignment.clamp(1, 0x1_0000);
        size.checked_next_multiple_of(unit).unwrap_or(size)
    }
}

/// The headers of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pe {
    /// `IMAGE_FILE_HEADER.Machine` as stored.
    pub image_machine: u16,
    /// The machine, if it is one this project knows.
    pub machine: Option<Machine>,
    /// PE32+ (64-bit optional header).
    pub is_64: bool,
    /// `TimeDateStamp`; a hash in reproducible builds.
    pub timestamp: u32,
    pub size_of_image: u32,
    pub size_of_headers: u32,
    pub checksum: u32,
    /// Preferred base. In memory the loader has overwritten it with the real one.
    pub image_base: u64,
    /// RVA, 0 for none.
    pub entry_point: u32,
    pub section_alignment: u32,
    /// `IMAGE_FILE_*`.
    pub characteristics: u16,
    pub dll_characteristics: u16,
    /// `IMAGE_SUBSYSTEM_*`.
    pub subsystem: u16,
    pub sections: Vec<Section>,
    /// `(RVA, size)`; `Security` alone holds a file offset.
    pub directories: Vec<(u32, u32)>,
    /// File offset and number of records of the COFF symbol table, `(0, 0)` for none.
    pub coff_symbols: (u32, u32),
    /// File offset of the first section header.
    pub section_table: u32,
}

impl Pe {
    /// Reads the headers. The section table may be cut short by a missing page: then there are
    /// fewer sections, and no error.
    pub fn parse(source: &dyn ImageSource) -> Result<Self, PeError> {
        let dos: [u8; 64] = source.array(0).ok_or(PeError::Unreadable("DOS header"))?;
        if dos[..2] != *b"MZ" {
            return Err(PeError::NoMz);
        }
        let pe_offset = le32(&dos, 0x3c);
        let coff_at = pe_offset.checked_add(4).ok_or(PeError::NoPe(pe_offset))?;
        if source.array::<4>(pe_offset) != Some(*b"PE\0\0") {
            return Err(PeError::NoPe(pe_offset));
        }
        let coff: [u8; 20] = source.array(coff_at).ok_or(PeError::Unreadable("COFF file header"))?;
        let optional_size = u32::from(le16(&coff, 16));
        let optional_at = coff_at.checked_add(20).ok_or(PeError::NoPe(pe_offset))?;
        let optional = source.prefix(optional_at, (optional_size as usize).min(1024));
        let section_table = optional_at.saturating_add(optional_size);
        Self::from_parts(source, &coff, &optional, section_table)
    }

    fn from_parts(
        source: &dyn ImageSource,
        coff: &[u8; 20],
        optional: &[u8],
        section_table: u32,
    ) -> Result<Self, PeError> {
        let is_64 = match le16(optional, 0) {
            0x10b => false,
            0x20b => true,
            0 if optional.len() < 2 => return Err(PeError::Unreadable("optional header")),
            other => return Err(PeError::BadMagic(other)),
        };
        let directories_at = if is_64 { 112 } else { 96 };
        if optional.len() < directories_at {
            return Err(PeError::Unreadable("optional header"));
        }
        let declared = le32(optional, directories_at - 4).min(16) as usize;
        let directories = optional[directories_at..]
            .chunks_exact(8)
            .take(declared)
            .map(|entry| (le32(entry, 0), le32(entry, 4)))
            .collect();
        let image_machine = le16(coff, 0);
        Ok(Self {
            image_machine,
            machine: Machine::from_image(image_machine),
            is_64,
            timestamp: le32(coff, 4),
            size_of_image: le32(optional, 56),
            size_of_headers: le32(optional, 60),
            checksum: le32(optional, 64),
            image_base: if is_64 { le64(optional, 24) } else { u64::from(le32(optional, 28)) },
            entry_point: le32(optional, 16),
            section_alignment: le32(optional, 32),
            characteristics: le16(coff, 18),
            dll_characteristics: le16(optional, 70),
            subsystem: le16(optional, 68),
            sections: sections(source, section_table, le16(coff, 2).min(MAX_SECTIONS)),
            directories,
            coff_symbols: (le32(coff, 8), le32(coff, 12)),
            section_table,
        })
    }

    /// `(RVA, size)` of a directory, `None` when absent or empty.
    #[must_use]
    pub fn directory(&self, index: DirectoryIndex) -> Option<(u32, u32)> {
        self.directories.get(index as usize).copied().filter(|&(rva, size)| rva != 0 && size != 0)
    }

    /// The section an RVA lies in.
    #[must_use]
    pub fn section_at(&self, rva: u32) -> Option<&Section> {
        self.sections.iter().find(|s| rva >= s.rva && rva - s.rva < s.mapped_size(self.section_alignment))
    }

    /// Whether an RVA lies in an executable section. Without any section header (its page is
    /// missing) nothing is known: `None`.
    #[must_use]
    pub fn is_executable(&self, rva: u32) -> Option<bool> {
        if self.sections.is_empty() {
            return None;
        }
        Some(self.section_at(rva).is_some_and(Section::is_executable))
    }

    /// Identity of the image's PDB, from its CodeView debug record (RSDS, or NB10 whose 32-bit
    /// signature becomes the GUID's first four bytes).
    #[must_use]
    pub fn pdb(&self, source: &dyn ImageSource) -> Option<PdbIdentity> {
        crate::debug::pdb_identity(self, source)
    }

    /// Whether the time stamp is a hash of a reproducible build, by its debug entry of type REPRO.
    /// `None`: the debug directory is not there to be read.
    #[must_use]
    pub fn is_reproducible(&self, source: &dyn ImageSource) -> Option<bool> {
        crate::debug::is_reproducible(self, source)
    }
}

fn sections(source: &dyn ImageSource, table: u32, count: u16) -> Vec<Section> {
    let bytes = source.prefix(table, usize::from(count) * 40);
    bytes
        .chunks_exact(40)
        .map(|header| {
            let name = &header[..8];
            let end = name.iter().position(|&b| b == 0).unwrap_or(8);
            Section {
                name: String::from_utf8_lossy(&name[..end]).into_owned(),
                rva: le32(header, 12),
                virtual_size: le32(header, 8),
                raw_offset: le32(header, 20),
                raw_size: le32(header, 16),
                characteristics: le32(header, 36),
            }
        })
        .collect()
}
