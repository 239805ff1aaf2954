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
        // the file, touching the lost pages faults; `recheck` before memory reads narrows that
        // window, headers and tables are copied out when the file is opened.
        let map = unsafe { Mmap::map(&file) }.map_err(unreadable)?;
        Ok(Self { backing: Arc::new(Backing::Map { map, file, length: AtomicU64::new(length) }) })
    }

    /// Bytes already in memory.
    #[must_use]
    pub fn from_bytes(bytes: Vec<u8>) -> Self {
        Self { backing: Arc::new(Backing::Held(bytes)) }
    }

    /// All bytes the file still has.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match &*self.backing {
            Backing::Held(bytes) => bytes,
            Backing::Map { map, length, .. } => {
                let still = usize::try_from(length.load(Ordering::Relaxed)).unwrap_or(usize::MAX);
                &map[..still.min(map.len())]
            }
        }
    }

    /// As [`Self::bytes`], after asking the system whether the file was truncated meanwhile.
    #[must_use]
    pub fn recheck(&self) -> &[u8] {
        if let Backing::Map { file, length, .. } = &*self.backing {
            let now = file.metadata().map_or(0, |m| m.len());
            length.fetch_min(now, Ordering::Relaxed);
        }
        self.bytes()
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
