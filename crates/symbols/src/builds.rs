//! Which Windows build a kernel image is, by its PE identity (System Informer's `kphdyn` table).

use std::path::Path;

use crate::{Result, SymbolError};

/// One known build of a kernel image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Build {
    /// `amd64`, `arm64`.
    pub arch: String,
    /// `ntoskrnl.exe`, `ntkrla57.exe`.
    pub file: String,
    /// `10.0.19041.804`.
    pub version: String,
    pub timestamp: u32,
    pub size_of_image: u32,
}

/// The table, sorted by PE identity.
#[derive(Debug, Default)]
pub struct BuildTable {
    builds: Vec<Build>,
}

impl BuildTable {
    /// Reads `kphdyn.xml` or `kphdyn.xml.xz`.
    pub fn open(path: &Path) -> Result<Self> {
        Err(SymbolError::NotSymbols(path.display().to_string()))
    }
    /// Builds with this `TimeDateStamp` and `SizeOfImage`.
    #[must_use]
    pub fn find(&self, _timestamp: u32, _size_of_image: u32) -> &[Build] {
        &self.builds
    }
}
