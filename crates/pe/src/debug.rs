//! The debug directory: CodeView records.

use target::{Guid, PdbIdentity};

use crate::field::le32;
use crate::headers::{DirectoryIndex, Pe};
use crate::source::{ImageSource, ImageSourceExt};

const IMAGE_DEBUG_TYPE_CODEVIEW: u32 = 2;
const MAX_ENTRIES: usize = 64;
const MAX_PATH: usize = 1024;

pub(crate) fn pdb_identity(pe: &Pe, source: &dyn ImageSource) -> Option<PdbIdentity> {
    let (rva, size) = pe.directory(DirectoryIndex::Debug)?;
    let bytes = source.prefix(rva, (size as usize).min(MAX_ENTRIES * 28));
    bytes
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
