//! Files that may be packed with xz.

use std::io::Read;
use std::path::Path;

use crate::error::io;
use crate::{Result, SymbolError};

/// No symbol text comes near; a small file may not unpack to more.
const MAX_UNPACKED: u64 = 512 << 20;
const XZ_MAGIC: &[u8] = b"\xfd7zXZ\0";

/// The file's text, unpacked when it is xz.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>> {
    unpack(std::fs::read(path).map_err(|e| io(path, &e))?)
}

/// `bytes`, unpacked when they are xz.
pub(crate) fn unpack(bytes: Vec<u8>) -> Result<Vec<u8>> {
    if !bytes.starts_with(XZ_MAGIC) {
        return Ok(bytes);
    }
    // The decoder's own memory is a limit too: a header may ask for a dictionary of gigabytes.
    let stream = liblzma::stream::Stream::new_stream_decoder(128 << 20, 0).map_err(SymbolError::damaged)?;
    let decoder = liblzma::read::XzDecoder::new_stream(bytes.as_slice(), stream);
    let mut text = Vec::new();
    decoder.take(MAX_UNPACKED + 1).read_to_end(&mut text).map_err(SymbolError::damaged)?;
    if text.len() as u64 > MAX_UNPACKED {
        return Err(SymbolError::damaged("it unpacks to more than 512 MiB"));
    }
    Ok(text)
}
