//! The few header bytes that decide which worker serves a file, read without an engine. Any doubt is
//! "no opinion": the engine makes the real diagnosis.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;

/// `IMAGE_FILE_MACHINE_I386` and `_AMD64` (winnt.h).
pub(crate) const PE_X86: u16 = 0x014c;
pub(crate) const PE_X64: u16 = 0x8664;
/// `PROCESSOR_ARCHITECTURE_INTEL` (winnt.h): what a minidump of a 32-bit x86 process says.
pub(crate) const DUMP_X86: u16 = 0;

/// Streams of a minidump that are looked at.
const STREAMS: u32 = 4096;
/// `SystemInfoStream` (minidumpapiset.h).
const SYSTEM_INFO: u32 = 7;

fn read<const N: usize>(file: &mut File, at: u64) -> Option<[u8; N]> {
    file.seek(SeekFrom::Start(at)).ok()?;
    let mut bytes = [0; N];
    file.read_exact(&mut bytes).ok()?;
    Some(bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// A regular file; opening a pipe would wait for its writer.
fn regular(path: &Path) -> Option<File> {
    std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
    File::open(path).ok()
}

/// Whether a file begins as PE images do.
pub(crate) fn is_image(path: &Path) -> bool {
    regular(path).and_then(|mut file| read::<2>(&mut file, 0)).is_some_and(|magic| magic == *b"MZ")
}

/// The machine of a PE file.
pub(crate) fn pe_machine(path: &Path) -> Option<u16> {
    let mut file = regular(path)?;
    let dos: [u8; 0x40] = read(&mut file, 0)?;
    let header = u32_at(&dos, 0x3c).filter(|_| dos.starts_with(b"MZ"))?;
    let pe: [u8; 6] = read(&mut file, u64::from(header))?;
    pe.starts_with(b"PE\0\0").then(|| u16::from_le_bytes([pe[4], pe[5]]))
}

/// `ProcessorArchitecture` of a minidump.
pub(crate) fn minidump_architecture(path: &Path) -> Option<u16> {
    let mut file = regular(path)?;
    let header: [u8; 16] = read(&mut file, 0)?;
    let count = u32_at(&header, 8).filter(|_| header.starts_with(b"MDMP"))?.min(STREAMS);
    let directory = u64::from(u32_at(&header, 12)?);
    for index in 0..u64::from(count) {
        let entry: [u8; 12] = read(&mut file, directory + index * 12)?;
        if u32_at(&entry, 0)? == SYSTEM_INFO {
            return read(&mut file, u64::from(u32_at(&entry, 8)?)).map(u16::from_le_bytes);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(bytes: &[u8]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        file
    }

    fn minidump(kind: u32, architecture: u16) -> Vec<u8> {
        let mut bytes = b"MDMP".to_vec();
        for word in [0xa793, 1, 16, kind, 2, 28] {
            bytes.extend(u32::to_le_bytes(word));
        }
        bytes.extend(architecture.to_le_bytes());
        bytes
    }

    #[test]
    fn only_a_minidump_has_an_opinion() {
        assert_eq!(minidump_architecture(file(&minidump(7, 0)).path()), Some(DUMP_X86));
        assert_eq!(minidump_architecture(file(&minidump(7, 9)).path()), Some(9));
        assert_eq!(minidump_architecture(file(&minidump(6, 0)).path()), None);
        assert_eq!(minidump_architecture(file(b"PAGEDU64").path()), None);
        let cut = minidump(7, 0);
        for length in 0..cut.len() {
            assert_eq!(minidump_architecture(file(&cut[..length]).path()), None, "{length} bytes");
        }
        assert_eq!(minidump_architecture(Path::new("/nonesuch")), None);
        assert_eq!(minidump_architecture(Path::new("/")), None);
    }

    #[test]
    fn machines_of_images() {
        let mut bytes = vec![0; 0x48];
        bytes[..2].copy_from_slice(b"MZ");
        bytes[0x3c] = 0x40;
        bytes[0x40..0x46].copy_from_slice(b"PE\0\0\x4c\x01");
        assert_eq!(pe_machine(file(&bytes).path()), Some(PE_X86));
        bytes[0x3c] = 0x47;
        assert_eq!(pe_machine(file(&bytes).path()), None);
        assert_eq!(pe_machine(file(b"MZ").path()), None);
    }
}
