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

pub(crate) fn unpack_from<R: Read + io::Seek>(source: R, to: &mut dyn Write, halt: &Halt) -> io::Result<()> {
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
