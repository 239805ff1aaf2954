//! From a path to an opened file. What a file is, its first bytes say; its extension never does.

use std::fs::File;
use std::path::{Path, PathBuf};

use target::Halt;

use crate::container::{self, Container};
use crate::error::{DumpError, Result};
use crate::fields::first_bytes;
use crate::kernel::{Kernel32, KernelDump};
use crate::map::MappedFile;
use crate::minidump::Minidump;
use crate::mistaken;
use crate::userdu64::UserFull;

/// A dump or an image.
#[derive(Debug)]
pub enum DumpFile {
    Minidump(Minidump),
    UserFull(UserFull),
    Kernel(KernelDump),
    /// Header facts only.
    Kernel32(Kernel32),
    /// A bare PE image (`MZ`), as laid out on disk.
    Image(MappedFile),
}

/// What a path led to.
#[derive(Debug)]
pub struct OpenedFile {
    pub file: DumpFile,
    /// What the file was packed in.
    pub container: Option<Container>,
    /// Its name in the container, if that records names.
    pub member: Option<String>,
    pub path: PathBuf,
}

/// [`open_within`] without a bound.
pub fn open(path: &Path) -> Result<OpenedFile> {
    open_within(path, &Halt::unbounded())
}

/// Opens a dump, an image, or a container of exactly one dump. Never blocks on pipes or devices and
/// never writes beside the file; unpacking ends when `halt` says so.
pub fn open_within(path: &Path, halt: &Halt) -> Result<OpenedFile> {
    let file = open_regular(path)?;
    let map = MappedFile::map(file, path)?;
    if let Some(container) = Container::sniff(map.bytes()) {
        let unpacked = container::unpack(container, &map, halt)?;
        let file = from_map(unpacked.file)?;
        return Ok(OpenedFile {
            file,
            container: Some(container),
            member: unpacked.member,
            path: path.to_owned(),
        });
    }
    Ok(OpenedFile { file: from_map(map)?, container: None, member: None, path: path.to_owned() })
}

/// The one dump of a container.
#[derive(Debug)]
pub struct Packed {
    pub container: Container,
    /// Its name in the container, if that records names.
    pub member: Option<String>,
    pub file: MappedFile,
}

/// Unpacks the one dump of the container at `path`, for an engine that does so itself; `None` when it
/// is none.
pub fn unpack(path: &Path, halt: &Halt) -> Result<Option<Packed>> {
    let map = MappedFile::map(open_regular(path)?, path)?;
    let Some(container) = Container::sniff(map.bytes()) else { return Ok(None) };
    let unpacked = container::unpack(container, &map, halt)?;
    Ok(Some(Packed { container, member: unpacked.member, file: unpacked.file }))
}

/// A dump or image from bytes in memory.
pub fn from_bytes(bytes: Vec<u8>) -> Result<DumpFile> {
    from_map(MappedFile::from_bytes(bytes))
}

fn open_regular(path: &Path) -> Result<File> {
    let failed = |why: std::io::Error| match why.kind() {
        std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory => {
            DumpError::NotFound { path: path.to_owned() }
        }
        _ => DumpError::Unreadable { path: path.to_owned(), why },
    };
    // Asked before opening: opening a pipe waits for its writer.
    let kind = std::fs::metadata(path).map_err(failed)?.file_type();
    if kind.is_dir() {
        return Err(DumpError::Directory { path: path.to_owned() });
    }
    if !kind.is_file() {
        return Err(DumpError::NotAFile { path: path.to_owned(), what: special_kind(kind) });
    }
    File::open(path).map_err(failed)
}

#[cfg(unix)]
fn special_kind(kind: std::fs::FileType) -> &'static str {
    use std::os::unix::fs::FileTypeExt;
    if kind.is_fifo() {
        "pipe"
    } else if kind.is_socket() {
        "socket"
    } else {
        "device"
    }
}

#[cfg(not(unix))]
fn special_kind(_: std::fs::FileType) -> &'static str {
    "device"
}

fn from_map(map: MappedFile) -> Result<DumpFile> {
    let bytes = map.bytes();
    if bytes.is_empty() {
        return Err(DumpError::malformed("the dump is empty (0 bytes)"));
    }
    match Kind::sniff(bytes) {
        Some(Kind::Minidump) => Minidump::parse(map).map(DumpFile::Minidump),
        Some(Kind::UserFull) => UserFull::parse(map).map(DumpFile::UserFull),
        Some(Kind::Kernel) => KernelDump::parse(map).map(DumpFile::Kernel),
        Some(Kind::Kernel32) => Kernel32::parse(map).map(DumpFile::Kernel32),
        Some(Kind::Image) => Ok(DumpFile::Image(map)),
        Some(Kind::UserFull32) => Err(DumpError::unsupported(
            "legacy_32bit_dump",
            "this is a 32-bit legacy full user dump (USERDUMP), which is not served; convert it with a debugger's .dump /ma",
        )),
        Some(Kind::Elf) => Err(DumpError::unsupported(
            "foreign_platform",
            format!(
                "this is an ELF file ({}), a program or core of another platform; open it with gdb or lldb",
                first_bytes(bytes)
            ),
        )),
        None => Err(mistaken::refusal(bytes)),
    }
}

/// What the first bytes say.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Minidump,
    UserFull,
    UserFull32,
    Kernel,
    Kernel32,
    Image,
    Elf,
}

impl Kind {
    pub(crate) fn sniff(bytes: &[u8]) -> Option<Self> {
        const SIGNATURES: [(&[u8], Kind); 7] = [
            (b"MDMP", Kind::Minidump),
            (b"USERDU64", Kind::UserFull),
            (b"USERDUMP", Kind::UserFull32),
            (b"PAGEDU64", Kind::Kernel),
            (b"PAGEDUMP", Kind::Kernel32),
            (b"MZ", Kind::Image),
            (b"\x7fELF", Kind::Elf),
        ];
        SIGNATURES.iter().find(|(signature, _)| bytes.starts_with(signature)).map(|(_, kind)| *kind)
    }

    /// A crash dump, not an image that happens to lie beside one.
    pub(crate) fn is_dump(self) -> bool {
        !matches!(self, Self::Image | Self::Elf)
    }
}
