//! The dumps that are compared, and the symbols each is opened with.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use crate::Error;

/// What a dump file's name ends with, containers included.
const ENDINGS: [&str; 3] = [".dmp", ".dmp.xz", ".cab"];
/// An unpacked PDB is not larger.
const PDB_LIMIT: u64 = 1 << 30;

/// A dump and the paths it is opened with.
pub struct Case {
    /// Short name: the path below the folder it was listed from.
    pub name: String,
    pub dump: PathBuf,
    /// Folders, `;` between.
    pub symbols: String,
    /// Folders, `;` between. Empty: none.
    pub images: String,
    /// Packed PDBs of the dump's folder, unpacked.
    _unpacked: Option<tempfile::TempDir>,
}

impl Case {
    /// A dump with its own folder as symbol path; PDBs packed with xz beside it are unpacked.
    ///
    /// # Errors
    /// When a packed PDB cannot be unpacked.
    pub fn new(dump: &Path, name: &str) -> Result<Self, Error> {
        let dump = dump.canonicalize().map_err(|error| Error::file(dump, error))?;
        let folder = dump.parent().unwrap_or(Path::new(".")).to_owned();
        let unpacked = unpack_pdbs(&folder)?;
        let mut symbols = folder.display().to_string();
        if let Some(unpacked) = &unpacked {
            symbols.push_str(&format!(";{}", unpacked.path().display()));
        }
        Ok(Self { name: name.to_owned(), dump, symbols, images: String::new(), _unpacked: unpacked })
    }

    /// With more folders on the symbol path.
    #[must_use]
    pub fn and_symbols(mut self, folders: &str) -> Self {
        self.symbols.push_str(&format!(";{folders}"));
        self
    }

    /// With folders where images are.
    #[must_use]
    pub fn and_images(mut self, folders: &str) -> Self {
        self.images = folders.to_owned();
        self
    }
}

fn unpack_pdbs(folder: &Path) -> Result<Option<tempfile::TempDir>, Error> {
    let mut unpacked = None;
    for entry in std::fs::read_dir(folder).map_err(|error| Error::file(folder, error))?.flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(plain) = name.strip_suffix(".xz").filter(|plain| plain.ends_with(".pdb")) else { continue };
        let failed = |error| Error::file(&path, error);
        if unpacked.is_none() {
            unpacked = Some(tempfile::tempdir().map_err(failed)?);
        }
        let Some(target) = &unpacked else { continue };
        let mut bytes = Vec::new();
        let packed = std::fs::File::open(&path).map_err(failed)?;
        liblzma::read::XzDecoder::new(packed).take(PDB_LIMIT).read_to_end(&mut bytes).map_err(failed)?;
        std::fs::write(target.path().join(plain), bytes).map_err(failed)?;
    }
    Ok(unpacked)
}

/// Every dump below `folder`, by name.
#[must_use]
pub fn dumps_below(folder: &Path) -> Vec<(String, PathBuf)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.strip_prefix(folder).unwrap_or(&path).to_string_lossy().replace('\\', "/");
            if ENDINGS.iter().any(|ending| name.ends_with(ending)) {
                found.push((name, path));
            }
        }
    }
    found.sort();
    found
}
