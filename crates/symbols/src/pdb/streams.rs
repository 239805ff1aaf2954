//! The container of a PDB (MSF, or MSFZ when compressed) behind checks: the readers allocate what
//! the file's headers say, so the headers are held against the file's length first.

use std::io;
use std::path::Path;

use ms_pdb::msf::Msf;
use ms_pdb::msfz::Msfz;
use ms_pdb::{Container, RandomAccessFile, ReadAt};

use super::bytes::Bytes;
use crate::error::{guarded, io as io_error};
use crate::{Result, SymbolError};

/// No stream of a real PDB comes near; a compressed file may not claim more.
const MAX_COMPRESSED_STREAM: u64 = 1 << 30;
const MSF_MAGIC: &[u8] = b"Microsoft C/C++ MSF 7.00\r\n\x1aDS\0\0\0";
const MSFZ_MAGIC: &[u8] = b"Microsoft MSFZ Container\r\n\x1aALD\0\0";

/// Where the bytes come from.
pub(crate) enum Source {
    File(RandomAccessFile),
    Bytes(Vec<u8>),
}

impl ReadAt for Source {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        match self {
            Self::File(file) => file.read_at(buffer, offset),
            Self::Bytes(bytes) => bytes.as_slice().read_at(buffer, offset),
        }
    }
}

/// Streams by number, each read whole on demand.
pub(crate) struct Streams {
    container: Container<Source>,
    /// No stream is longer.
    limit: u64,
}

impl Streams {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let file = std::fs::File::open(path).map_err(|e| io_error(path, &e))?;
        let length = file.metadata().map_err(|e| io_error(path, &e))?.len();
        Self::over(Source::File(RandomAccessFile::from(file)), length)
    }

    pub(crate) fn from_bytes(bytes: Vec<u8>) -> Result<Self> {
        let length = bytes.len() as u64;
        Self::over(Source::Bytes(bytes), length)
    }

    fn over(source: Source, length: u64) -> Result<Self> {
        let mut head = [0; 0x50];
        let read = source.read_at(&mut head, 0).unwrap_or(0);
        let head = &head[..read];
        if head.starts_with(MSF_MAGIC) {
            check_msf(head, length)?;
            let msf =
                guarded("stream directory", || Msf::open_with_file(source).map_err(SymbolError::damaged))?;
            return Ok(Self { container: Container::Msf(msf), limit: length });
        }
        if head.starts_with(MSFZ_MAGIC) {
            check_msfz(head, length)?;
            let msfz = guarded("stream directory", || Msfz::from_file(source).map_err(SymbolError::damaged))?;
            check_chunks(&msfz, length)?;
            return Ok(Self { container: Container::Msfz(msfz), limit: MAX_COMPRESSED_STREAM });
        }
        Err(SymbolError::NotSymbols(match head.get(..4) {
            Some(b"BSJB") => "this is a portable PDB (.NET); only Windows PDBs are read".to_owned(),
            _ if head.starts_with(b"Microsoft C/C++ program database 2.00") => {
                "this is a PDB of format 2.00 (before 2002), which is not read; rebuild the program"
                    .to_owned()
            }
            _ => format!("this is no PDB: it starts with {:02x?}", &head[..head.len().min(8)]),
        }))
    }

    /// A whole stream; an absent one is an error, an empty one is empty.
    pub(crate) fn read(&self, stream: u32, what: &'static str) -> Result<Vec<u8>> {
        guarded(what, || {
            if stream >= self.container.num_streams() {
                return Err(SymbolError::damaged(format_args!("it has no stream {stream} ({what})")));
            }
            let length = self.container.stream_len(stream);
            if length > self.limit {
                return Err(SymbolError::damaged(format_args!("its {what} claims {length} bytes")));
            }
            if length == 0 {
                return Ok(Vec::new());
            }
            self.container.read_stream_to_vec(stream).map_err(SymbolError::damaged)
        })
    }

    /// [`Self::read`] of a stream number stored in 16 bits, where 0xffff means none.
    pub(crate) fn read_optional(&self, stream: u16, what: &'static str) -> Result<Vec<u8>> {
        if stream == u16::MAX { Ok(Vec::new()) } else { self.read(u32::from(stream), what) }
    }
}

/// The MSF superblock (LLVM "The MSF File Format"): page size, page count, directory bytes.
fn check_msf(head: &[u8], length: u64) -> Result<()> {
    let mut header = Bytes::at(head, 32).unwrap_or(Bytes::new(&[]));
    let fields = (|| {
        let page = header.u32()?;
        header.u32()?;
        Some((page, header.u32()?, header.u32()?))
    })();
    let Some((page, pages, directory)) = fields else {
        return Err(SymbolError::damaged("its header is cut off"));
    };
    if !page.is_power_of_two() || !(512..=0x1_0000).contains(&page) {
        return Err(SymbolError::damaged(format_args!("page size {page}")));
    }
    if u64::from(pages).saturating_sub(1) * u64::from(page) > length {
        return Err(SymbolError::damaged(format_args!(
            "it declares {pages} pages of {page} bytes but has {length} bytes (truncated?)"
        )));
    }
    if u64::from(directory) > length {
        return Err(SymbolError::damaged(format_args!("a stream directory of {directory} bytes")));
    }
    Ok(())
}

/// The MSFZ header: sizes of the directory and of the chunk table.
fn check_msfz(head: &[u8], length: u64) -> Result<()> {
    let mut header = Bytes::at(head, 32 + 8 + 16).unwrap_or(Bytes::new(&[]));
    let fields = (|| {
        Some((header.u32()?, header.u32()?, header.u32()?, header.u32()?, header.u32()?, header.u32()?))
    })();
    let Some((streams, _compression, packed, unpacked, _chunks, table)) = fields else {
        return Err(SymbolError::damaged("its header is cut off"));
    };
    let bound = length.saturating_mul(64).min(256 << 20);
    if u64::from(packed) > length
        || u64::from(table) > length
        || u64::from(unpacked) > bound
        || streams > unpacked
    {
        return Err(SymbolError::damaged("its compressed stream directory is larger than the file allows"));
    }
    Ok(())
}

fn check_chunks(msfz: &Msfz<Source>, length: u64) -> Result<()> {
    let fits = msfz.chunks().iter().all(|chunk| {
        u64::from(chunk.compressed_size.get()) <= length
            && u64::from(chunk.uncompressed_size.get()) <= MAX_COMPRESSED_STREAM / 4
    });
    if fits { Ok(()) } else { Err(SymbolError::damaged("a compressed chunk is larger than the file allows")) }
}
