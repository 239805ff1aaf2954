//! Containers that dumps travel in: CAB (MSZIP, LZX), zip, xz, gzip. One dump is unpacked to a
//! private temporary file that vanishes when it is closed.

use std::fs::File;
use std::io::{self, Cursor, Read, Seek, Write};
use std::path::Path;

use target::Halt;

use crate::error::{DumpError, Result};
use crate::map::MappedFile;
use crate::open::Kind;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Container {
    Cab,
    Zip,
    Xz,
    Gz,
}

impl Container {
    /// What the first bytes say.
    #[must_use]
    pub fn sniff(bytes: &[u8]) -> Option<Self> {
        const SIGNATURES: [(&[u8], Container); 6] = [
            (b"MSCF", Container::Cab),
            (b"PK\x03\x04", Container::Zip),
            // Without members; in several volumes.
            (b"PK\x05\x06", Container::Zip),
            (b"PK\x07\x08", Container::Zip),
            (b"\xfd7zXZ\0", Container::Xz),
            (b"\x1f\x8b", Container::Gz),
        ];
        SIGNATURES.iter().find(|(signature, _)| bytes.starts_with(signature)).map(|(_, kind)| *kind)
    }

    /// `cab`, `zip`, `xz`, `gz`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Cab => "cab",
            Self::Zip => "zip",
            Self::Xz => "xz",
            Self::Gz => "gz",
        }
    }
}

pub(crate) struct Unpacked {
    pub(crate) file: MappedFile,
    pub(crate) member: Option<String>,
}

/// Bytes a member may unpack to.
const LIMIT: u64 = 8 << 30;
/// Members looked at in one archive.
const MAX_MEMBERS: usize = 1 << 16;
/// Bytes of a member read to see what it is.
const SNIFFED: usize = 16;
/// Bytes that say what a file is that is nothing to open.
const HEAD: u64 = 0x1000;
/// Left free on the disk the temporary file is on.
const SPARE: u64 = 64 << 20;

/// Unpacks the one dump in a container.
pub(crate) fn unpack(container: Container, map: &MappedFile, halt: &Halt) -> Result<Unpacked> {
    unpack_bounded(container, map, LIMIT, halt)
}

fn unpack_bounded(container: Container, map: &MappedFile, limit: u64, halt: &Halt) -> Result<Unpacked> {
    let bytes = map.bytes();
    let sink = Sink { container: container.name(), limit, halt };
    // The readers are others' and index what a hostile archive says.
    let read = std::panic::AssertUnwindSafe(|| unpack_by(container, &sink, bytes));
    std::panic::catch_unwind(read)
        .unwrap_or_else(|_| Err(sink.failed(io::Error::other("its directory contradicts itself"))))
}

fn unpack_by(container: Container, sink: &Sink<'_>, bytes: &[u8]) -> Result<Unpacked> {
    match container {
        Container::Gz => {
            let name = flate2::bufread::GzDecoder::new(bytes)
                .header()
                .and_then(|h| h.filename().map(|name| String::from_utf8_lossy(name).into_owned()));
            sink.unpack(GzMembers { current: flate2::bufread::GzDecoder::new(bytes) }, name)
        }
        Container::Xz => sink.unpack(xz_reader(bytes).map_err(|why| sink.failed(why))?, None),
        Container::Cab => unpack_cab(sink, bytes),
        Container::Zip => unpack_zip(sink, bytes),
    }
}

/// Every member of a gzip file, one after the other. What follows the last one and is no member
/// (padding of tapes and downloads) is ignored, as gzip does.
struct GzMembers<'a> {
    current: flate2::bufread::GzDecoder<&'a [u8]>,
}

impl Read for GzMembers<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let count = self.current.read(buffer)?;
            let rest = *self.current.get_ref();
            if count > 0 || buffer.is_empty() || Container::sniff(rest) != Some(Container::Gz) {
                return Ok(count);
            }
            self.current = flate2::bufread::GzDecoder::new(rest);
        }
    }
}

/// Memory the xz decoder may take; `xz -9` needs 65 MiB.
const XZ_MEMORY: u64 = 256 << 20;

fn xz_reader(bytes: &[u8]) -> io::Result<impl Read + '_> {
    let stream = liblzma::stream::Stream::new_stream_decoder(XZ_MEMORY, liblzma::stream::CONCATENATED)?;
    Ok(liblzma::bufread::XzDecoder::new_stream(bytes, stream))
}

/// Bytes of one CAB data block, unpacked.
const CAB_BLOCK: u64 = 0x8000;
/// Bytes unpacked at most to find the dump in a CAB.
const CAB_WORK: u64 = 16 << 30;

/// Bytes of a container whose reading ends with the call's patience: a CAB unpacks all that lies
/// before a member inside one call of ours.
struct Halting<'a> {
    bytes: Cursor<&'a [u8]>,
    halt: &'a Halt,
}

impl Read for Halting<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.halt.stop() {
            Some(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "cut short")),
            None => self.bytes.read(buffer),
        }
    }
}

impl Seek for Halting<'_> {
    fn seek(&mut self, to: io::SeekFrom) -> io::Result<u64> {
        self.bytes.seek(to)
    }
}

fn unpack_cab(sink: &Sink<'_>, bytes: &[u8]) -> Result<Unpacked> {
    let source = Halting { bytes: Cursor::new(bytes), halt: sink.halt };
    let mut cabinet = cab::Cabinet::new(source).map_err(|why| sink.failed(why))?;
    // Finding a member unpacks all of its folder that lies before it.
    let work = cabinet.folder_entries().fold(0u64, |sum, folder| {
        let blocks = u64::from(folder.num_data_blocks());
        sum.saturating_add(CAB_BLOCK * blocks * folder.file_entries().len() as u64)
    });
    if work > CAB_WORK {
        return Err(sink.too_many());
    }
    let names: Vec<String> = cabinet
        .folder_entries()
        .flat_map(|folder| folder.file_entries())
        .map(|file| file.name().to_owned())
        .collect();
    let name = sink.choose(&names, |name| {
        let mut first = Vec::new();
        cabinet.read_file(name)?.take(SNIFFED as u64).read_to_end(&mut first)?;
        Ok(first)
    })?;
    let reader = cabinet.read_file(&name).map_err(|why| sink.failed(why))?;
    sink.unpack(reader, Some(name))
}

fn unpack_zip(sink: &Sink<'_>, bytes: &[u8]) -> Result<Unpacked> {
    // The directory is the last thing in the file; its end has a comment of at most 64 KiB.
    let tail = bytes.get(bytes.len().saturating_sub(22 + 0xffff)..).unwrap_or_default();
    if !tail.windows(4).any(|four| four == b"PK\x05\x06") {
        return Err(DumpError::EndsEarly { container: sink.container });
    }
    let mut archive = zip::ZipArchive::new(Cursor::new(bytes)).map_err(|why| sink.failed(why))?;
    let names = archive.file_names().filter_map(|name| name.ok());
    let names: Vec<String> = names.filter(|n| !n.ends_with('/')).map(|n| n.into_owned()).collect();
    let name = sink.choose(&names, |name| {
        let mut first = Vec::new();
        archive.by_name(name)?.take(SNIFFED as u64).read_to_end(&mut first)?;
        Ok(first)
    })?;
    let member = archive.by_name(&name).map_err(|why| sink.failed(why))?;
    sink.unpack(member, Some(name))
}

/// A member's name for a message: no control characters, not endless.
fn shown(name: &str) -> String {
    name.chars().take(200).flat_map(char::escape_debug).collect()
}

/// Where a member goes, and the words for what can go wrong.
struct Sink<'a> {
    container: &'static str,
    limit: u64,
    halt: &'a Halt,
}

impl Sink<'_> {
    fn failed(&self, why: impl Into<io::Error>) -> DumpError {
        let (container, why) = (self.container, why.into());
        match self.halt.stop() {
            Some(why) => DumpError::Stopped { container, why },
            None if why.kind() == io::ErrorKind::UnexpectedEof => DumpError::EndsEarly { container },
            None => DumpError::Unpack { container, why: why.to_string() },
        }
    }
    fn too_many(&self) -> DumpError {
        self.failed(io::Error::other("it has too many members to look into"))
    }

    /// The one member that is a dump by its first bytes; a lone member whatever it is.
    fn choose(
        &self,
        names: &[String],
        mut first_bytes: impl FnMut(&str) -> io::Result<Vec<u8>>,
    ) -> Result<String> {
        if let [only] = names {
            return Ok(only.clone());
        }
        if names.len() > MAX_MEMBERS {
            return Err(self.too_many());
        }
        let mut dumps = Vec::new();
        let (mut unread, mut packed) = (None, None);
        for name in names {
            let stopped = |why| DumpError::Stopped { container: self.container, why };
            self.halt.stop().map_or(Ok(()), |why| Err(stopped(why)))?;
            // A member that cannot be read is no candidate; the archive may hold others.
            match first_bytes(name) {
                Ok(first) if Kind::sniff(&first).is_some_and(Kind::is_dump) => dumps.push(name),
                Ok(first) if packed.is_none() && Container::sniff(&first).is_some() => packed = Some(name),
                Ok(_) => {}
                Err(why) => drop(unread.get_or_insert((name, why))),
            }
        }
        let container = self.container;
        match (&dumps[..], unread, packed) {
            ([dump], ..) => Ok((*dump).clone()),
            ([], Some((name, why)), _) => Err(match self.failed(why) {
                DumpError::Unpack { why, .. } => {
                    DumpError::Unpack { container, why: format!("{}: {why}", shown(name)) }
                }
                other => other,
            }),
            ([], None, Some(name)) => Err(DumpError::Nested { container, member: shown(name) }),
            ([], None, None) => Err(DumpError::NoDump { container }),
            (dumps, ..) => {
                let mut members: Vec<String> = dumps.iter().take(8).map(|name| shown(name)).collect();
                if dumps.len() > members.len() {
                    members.push("...".to_owned());
                }
                Err(DumpError::SeveralDumps { container, count: dumps.len(), members })
            }
        }
    }

    /// Copies a member to a temporary file that no other user can read and that has no name where
    /// the system allows it.
    fn unpack(&self, mut reader: impl Read, member: Option<String>) -> Result<Unpacked> {
        let folder = std::env::temp_dir();
        let free = free_space(&folder);
        let mut file = private_file().map_err(|why| self.failed(why))?;
        let mut head = Vec::new();
        reader.by_ref().take(HEAD).read_to_end(&mut head).map_err(|why| self.failed(why))?;
        // What begins as nothing that is opened is refused by its beginning: the rest is not unpacked.
        let rest = if Kind::sniff(&head).is_some() { u64::MAX } else { 0 };
        let written = self.copy(&mut head.as_slice().chain(reader.take(rest)), &mut file, free)?;
        if written == 0 {
            return Err(DumpError::NoDump { container: self.container });
        }
        file.rewind().map_err(|why| self.failed(why))?;
        Ok(Unpacked { file: MappedFile::map(file, &folder)?, member: member.as_deref().map(shown) })
    }

    fn copy(&self, reader: &mut impl Read, file: &mut File, free: Option<u64>) -> Result<u64> {
        let mut buffer = vec![0; 1 << 16];
        let mut written = 0u64;
        loop {
            if let Some(why) = self.halt.stop() {
                return Err(DumpError::Stopped { container: self.container, why });
            }
            let count = match reader.read(&mut buffer) {
                Ok(0) => return Ok(written),
                Ok(count) => count,
                Err(why) if why.kind() == io::ErrorKind::Interrupted => continue,
                Err(why) => return Err(self.failed(why)),
            };
            written += count as u64;
            if written > self.limit {
                return Err(DumpError::TooLarge { container: self.container, limit: self.limit });
            }
            let full = |free| DumpError::DiskFull { container: self.container, needed: written, free };
            if let Some(free) = free.filter(|free| written.saturating_add(SPARE) > *free) {
                return Err(full(free));
            }
            file.write_all(&buffer[..count]).map_err(|why| match why.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => full(0),
                _ => self.failed(why),
            })?;
        }
    }
}

/// Mode 0600 and nameless at once: gone with the process, however that ends.
#[cfg(unix)]
fn private_file() -> io::Result<File> {
    Ok(tempfile::NamedTempFile::new()?.into_file())
}

/// Deleted by the system when it is closed; readable by its owner.
#[cfg(not(unix))]
fn private_file() -> io::Result<File> {
    tempfile::tempfile()
}

/// Bytes free on the disk of a folder, where the system tells.
fn free_space(folder: &Path) -> Option<u64> {
    fs4::available_space(folder).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bomb_stops_at_the_limit() {
        let packed = |head: &[u8]| {
            let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            writer.write_all(&[head, &vec![0; (1 << 20) - head.len()]].concat()).unwrap();
            MappedFile::from_bytes(writer.finish().unwrap())
        };
        let map = packed(b"MDMP");
        let unpack = |limit, halt: &Halt| unpack_bounded(Container::Gz, &map, limit, halt).map(drop);
        let error = unpack(1 << 16, &Halt::unbounded()).unwrap_err();
        assert!(matches!(error, DumpError::TooLarge { limit: 0x1_0000, .. }), "{error}");
        assert!(unpack(1 << 20, &Halt::unbounded()).is_ok());
        let out_of_time = Halt::within(std::time::Duration::ZERO);
        assert_eq!(unpack(1 << 20, &out_of_time).unwrap_err().category(), ("timeout", None));
        // What is nothing to open is not unpacked to the end to find that out.
        let (nothing, halt) = (packed(b""), Halt::unbounded());
        let unpacked = unpack_bounded(Container::Gz, &nothing, 1 << 16, &halt).unwrap();
        assert_eq!(unpacked.file.bytes().len(), 0x1000);
    }

    #[cfg(unix)]
    #[test]
    fn nobody_else_can_read_the_temporary_file() {
        use std::os::unix::fs::{MetadataExt, PermissionsExt};
        let file = private_file().unwrap();
        let metadata = file.metadata().unwrap();
        assert_eq!((metadata.permissions().mode() & 0o777, metadata.nlink()), (0o600, 0));
    }
}
