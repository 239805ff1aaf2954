//! Secondary data: blobs of bugcheck callbacks, behind the memory.

use target::Guid;

use crate::fields::{array_at, slice_at, u32_at};

/// One blob; its bytes are at `offset` of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blob {
    pub tag: Guid,
    pub offset: u64,
    pub size: u32,
}

const FILE_HEADER: u64 = 0x10;
const BLOB_HEADER: u32 = 0x20;
const MAX_BLOBS: usize = 4096;

/// Blobs from `at`, up to the first implausible header.
pub(super) fn read(bytes: &[u8], at: u64) -> Vec<Blob> {
    let mut blobs = Vec::new();
    let header = slice_at(bytes, at, FILE_HEADER).unwrap_or_default();
    if !header.starts_with(b"DumpBlob") {
        return blobs;
    }
    let mut at = at.saturating_add(u64::from(u32_at(header, 8).unwrap_or(0)).max(FILE_HEADER));
    while blobs.len() < MAX_BLOBS {
        let Some(header) = slice_at(bytes, at, u64::from(BLOB_HEADER)) else { break };
        let word = |offset| u32_at(header, offset).unwrap_or(0);
        let (size, before, after) = (word(20), word(24), word(28));
        let offset = at.saturating_add(u64::from(BLOB_HEADER)).saturating_add(u64::from(before));
        if word(0) != BLOB_HEADER || slice_at(bytes, offset, u64::from(size)).is_none() {
            break;
        }
        blobs.push(Blob { tag: Guid(array_at(header, 4).unwrap_or_default()), offset, size });
        at = offset.saturating_add(u64::from(size)).saturating_add(u64::from(after));
    }
    blobs
}
