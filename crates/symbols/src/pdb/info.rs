//! The identity stream (LLVM "The PDB Info Stream") and the name table.

use super::bytes::Bytes;
use crate::{Result, SymbolError};

/// GUID, age and the named streams.
#[derive(Debug)]
pub(super) struct Info {
    pub(super) age: u32,
    pub(super) guid: [u8; 16],
    streams: Vec<(String, u32)>,
}

impl Info {
    pub(super) fn parse(stream: &[u8]) -> Result<Self> {
        let mut data = Bytes::new(stream);
        let fixed = (|| {
            data.take(8)?;
            let age = data.u32()?;
            let guid: [u8; 16] = data.take(16)?.try_into().ok()?;
            Some((age, guid))
        })();
        let Some((age, guid)) = fixed else {
            return Err(SymbolError::damaged("its identity stream is cut off"));
        };
        Ok(Self { age, guid, streams: named_streams(data).unwrap_or_default() })
    }

    pub(super) fn named_stream(&self, name: &str) -> Option<u32> {
        self.streams.iter().find(|(n, _)| n == name).map(|&(_, stream)| stream)
    }
}

/// A string buffer, then a hash table of (offset in the buffer, stream).
fn named_streams(mut data: Bytes<'_>) -> Option<Vec<(String, u32)>> {
    let length = data.u32()? as usize;
    let buffer = data.take(length)?;
    let count = data.u32()?;
    data.u32()?;
    for _ in 0..2 {
        let words = data.u32()? as usize;
        data.take(words.checked_mul(4)?)?;
    }
    let mut found = Vec::new();
    for _ in 0..count.min(4096) {
        let (name, stream) = (data.u32()?, data.u32()?);
        let mut name = Bytes::at(buffer, name as usize)?;
        found.push((name.name().into_owned(), stream));
    }
    Some(found)
}

/// The `/names` stream: zero-terminated strings by offset.
#[derive(Debug)]
pub(super) struct Names {
    stream: Vec<u8>,
}

impl Names {
    pub(super) fn new(stream: Vec<u8>) -> Self {
        Self { stream }
    }

    pub(super) fn get(&self, offset: u32) -> Option<String> {
        // Behind signature, version and length.
        let at = (offset as usize).checked_add(12)?;
        let mut bytes = Bytes::at(&self.stream, at).filter(|b| !b.is_empty())?;
        Some(bytes.name().into_owned())
    }
}
