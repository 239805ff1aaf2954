//! Copying bytes and unpacking one-member cabinets, bounded and interruptible.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use target::Halt;

/// The largest file a store is trusted with.
pub(crate) const SIZE_LIMIT: u64 = 4 << 30;

/// Copies until the end; more than 4 GiB is an error. Returns the bytes copied.
pub(crate) fn copy(from: &mut dyn Read, to: &mut dyn Write, halt: &Halt) -> io::Result<u64> {
    let mut buffer = vec![0; 64 << 10];
    let mut total = 0u64;
    loop {
        if halt.stop().is_some() {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "cut short"));
        }
        let count = match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        total += count as u64;
        if total > SIZE_LIMIT {
            return Err(io::Error::other("larger than 4 GiB"));
        }
        to.write_all(&buffer[..count])?;
    }
    to.flush()?;
    Ok(total)
}

/// Unpacks the one member of a cabinet.
pub(crate) fn unpack(cabinet: &Path, to: &mut dyn Write, halt: &Halt) -> io::Result<()> {
    unpack_from(File::open(cabinet)?, to, halt)
}

/// [`unpack`], from anything. The cabinet reader is another's and panics on a directory that contradicts
/// itself: that is an error here.
pub(crate) fn unpack_from<R: Read + io::Seek>(source: R, to: &mut dyn Write, halt: &Halt) -> io::Result<()> {
    let read = std::panic::AssertUnwindSafe(|| unpack_member(source, to, halt));
    std::panic::catch_unwind(read)
        .unwrap_or_else(|_| Err(io::Error::other("the cabinet's directory contradicts itself")))
}

fn unpack_member<R: Read + io::Seek>(source: R, to: &mut dyn Write, halt: &Halt) -> io::Result<()> {
    let mut cabinet = cab::Cabinet::new(source)?;
    let mut members = cabinet.folder_entries().flat_map(|folder| folder.file_entries());
    let (Some(member), None) = (members.next(), members.next()) else {
        return Err(io::Error::other("a compressed store file must hold exactly one file"));
    };
    let (name, size) = (member.name().to_owned(), u64::from(member.uncompressed_size()));
    drop(members);
    let copied = copy(&mut cabinet.read_file(&name)?, to, halt)?;
    if copied != size {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the cabinet ends early"));
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_member_behind_its_folder_is_an_error() {
        let mut builder = cab::CabinetBuilder::new();
        builder.add_folder(cab::CompressionType::None).add_file("a.pdb");
        let mut writer = builder.build(io::Cursor::new(Vec::new())).unwrap();
        while let Some(mut file) = writer.next_file().unwrap() {
            file.write_all(b"content").unwrap();
        }
        let mut bytes = writer.finish().unwrap().into_inner();
        let unpacked = |bytes: &[u8]| {
            let mut out = Vec::new();
            unpack_from(io::Cursor::new(bytes), &mut out, &Halt::unbounded()).map(|()| out)
        };
        assert_eq!(unpacked(&bytes).unwrap(), b"content");
        let member = u32::from_le_bytes(bytes[16..20].try_into().unwrap()) as usize;
        bytes[member + 4..member + 8].copy_from_slice(&0x10_0000u32.to_le_bytes());
        assert!(unpacked(&bytes).is_err());
    }
}
