//! A file's bytes: mapped read-only, or held in memory.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::Mmap;

use crate::error::{DumpError, Result};

/// Bytes of a file, cheap to clone.
#[derive(Clone)]
pub struct MappedFile {
    backing: Arc<Backing>,
}

enum Backing {
    Map {
        map: Mmap,
        file: File,
        /// Length the file still has: shrinks when somebody truncates it under us.
        length: AtomicU64,
    },
    Held(Vec<u8>),
}

impl std::fmt::Debug for MappedFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MappedFile({} bytes)", self.len())
    }
}

impl MappedFile {
    /// Maps an open file. An empty file is an error of `path`.
    pub fn map(file: File, path: &Path) -> Result<Self> {
        let unreadable = |why| DumpError::Unreadable { path: path.to_owned(), why };
        let length = file.metadata().map_err(unreadable)?.len();
        if length == 0 {
            return Err(DumpError::Empty { path: path.to_owned() });
        }
        // SAFETY: the map is read-only and private to this process. If another process truncates
        // the file, touching the lost pages faults; `bytes` asks for the length before every read,
        // which narrows that window to one read. Unpacked files have no name and cannot change.
        let map = unsafe { Mmap::map(&file) }.map_err(unreadable)?;
        Ok(Self { backing: Arc::new(Backing::Map { map, file, length: AtomicU64::new(length) }) })
    }

    /// Bytes already in memory.
    #[must_use]
    pub fn from_bytes(bytes: Vec<u8>) -> Self {
        Self { backing: Arc::new(Backing::Held(bytes)) }
    }

    /// All bytes the file still has: the system is asked each time whether somebody truncated it
    /// meanwhile, so hold the slice no longer than one read takes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match &*self.backing {
            Backing::Held(bytes) => bytes,
            Backing::Map { map, file, length } => {
                let now = file.metadata().map_or(0, |m| m.len());
                let still = length.fetch_min(now, Ordering::Relaxed).min(now);
                &map[..usize::try_from(still).unwrap_or(usize::MAX).min(map.len())]
            }
        }
    }

    #[must_use]
    pub fn len(&self) -> u64 {
        self.bytes().len() as u64
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
