//! The debug directory: CodeView records, and the mark of a reproducible build.

use target::{Guid, PdbIdentity};

use crate::field::le32;
use crate::headers::{DirectoryIndex, Pe};
use crate::source::{ImageSource, ImageSourceExt};

const IMAGE_DEBUG_TYPE_CODEVIEW: u32 = 2;
/// Of an image whose `TimeDateStamp` is a hash (`link /Brepro`).
const IMAGE_DEBUG_TYPE_REPRO: u32 = 16;
const MAX_ENTRIES: usize = 64;
const MAX_PATH: usize = 1024;

/// The entries of the directory, as far as they can be read; `None` without a directory.
fn entries(pe: &Pe, source: &dyn ImageSource) -> Option<Vec<u8>> {
    let (rva, size) = pe.directory(DirectoryIndex::Debug)?;
    Some(source.prefix(rva, (size as usize).min(MAX_ENTRIES * 28)))
}

/// `None` when the directory cannot be read, which of a dump is common.
pub(crate) fn is_reproducible(pe: &Pe, source: &dyn ImageSource) -> Option<bool> {
    let Some(bytes) = entries(pe, source) else { return Some(false) };
    let mut all = bytes.chunks_exact(28).peekable();
    all.peek()?;
    Some(all.any(|entry| le32(entry, 12) == IMAGE_DEBUG_TYPE_REPRO))
}

pub(crate) fn pdb_identity(pe: &Pe, source: &dyn ImageSource) -> Option<PdbIdentity> {
    entries(pe, source)?
        .chunks_exact(28)
        .filter(|entry| le32(entry, 12) == IMAGE_DEBUG_TYPE_CODEVIEW)
        .find_map(|entry| codeview(&source.prefix(le32(entry, 20), record_size(le32(entry, 16)))))
}

fn record_size(declared: u32) -> usize {
    (declared as usize).min(24 + MAX_PATH)
}

/// `RSDS {GUID, age, path}` or `NB10 {offset, signature, age, path}`.
fn codeview(record: &[u8]) -> Option<PdbIdentity> {
    let (guid, age, path) = match record.get(..4)? {
        b"RSDS" => {
            let guid: [u8; 16] = record.get(4..20)?.try_into().ok()?;
            (Guid(guid), le32(record, 20), record.get(24..)?)
        }
        b"NB10" => {
            let mut guid = [0; 16];
            guid[..4].copy_from_slice(record.get(8..12)?);
            (Guid(guid), le32(record, 12), record.get(16..)?)
        }
        _ => return None,
    };
    let end = path.iter().position(|&b| b == 0).unwrap_or(path.len());
    Some(PdbIdentity { guid, age, name: String::from_utf8_lossy(&path[..end]).into_owned() })
}

impl Pe {
    /// The identity in a CodeView record on its own, as minidumps store it.
    #[must_use]
    pub fn parse_codeview(record: &[u8]) -> Option<PdbIdentity> {
        codeview(record)
    }
}
