//! The real dumps in `../shared/data` and DbgEng's answers about them.
#![allow(dead_code, clippy::unwrap_used)]

pub mod transcript;

use std::io::Read;
use std::path::{Path, PathBuf};

use engine_native::OpenOptions;
use target::Target;

pub use test_data::shared as data;

/// Every dump of the data, as paths relative to it.
pub fn dumps(data: &Path) -> Vec<String> {
    let mut out = Vec::new();
    for top in ["user", "kernel", "synthetic", "negative"] {
        collect(data, &data.join(top), &mut out);
    }
    out.sort();
    out
}

fn collect(data: &Path, folder: &Path, out: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(data, &path, out);
            continue;
        }
        let name = path.strip_prefix(data).unwrap().to_string_lossy().replace('\\', "/");
        if [".dmp", ".dmp.xz", ".cab"].iter().any(|end| name.ends_with(end)) {
            out.push(name);
        }
    }
}

/// A dump with its folder's symbols, packed ones unpacked.
pub struct Prepared {
    pub path: PathBuf,
    pub options: OpenOptions,
    _unpacked: tempfile::TempDir,
}

impl Prepared {
    pub fn new(data: &Path, dump: &str) -> Self {
        let path = data.join(dump);
        let folder = path.parent().unwrap().to_owned();
        let unpacked = tempfile::tempdir().unwrap();
        for entry in std::fs::read_dir(&folder).unwrap().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if let Some(plain) = name.strip_suffix(".pdb.xz") {
                let mut bytes = Vec::new();
                let file = std::fs::File::open(entry.path()).unwrap();
                liblzma::read::XzDecoder::new(file).read_to_end(&mut bytes).unwrap();
                std::fs::write(unpacked.path().join(format!("{plain}.pdb")), bytes).unwrap();
            }
        }
        let symbols = format!("{};{}", folder.display(), unpacked.path().display());
        let options = OpenOptions { symbol_path: Some(symbols), ..OpenOptions::default() };
        Self { path, options, _unpacked: unpacked }
    }

    /// With another folder on the symbol path.
    pub fn and_symbols(mut self, folder: &Path) -> Self {
        let path = self.options.symbol_path.get_or_insert_default();
        path.push(';');
        path.push_str(&folder.display().to_string());
        self
    }

    pub fn open(&self) -> Box<dyn Target> {
        engine_native::open(&self.path, &self.options)
            .unwrap_or_else(|e| panic!("{}: {e}", self.path.display()))
    }
}

/// DbgEng's transcript of a dump, if there is one.
pub fn oracle(data: &Path, dump: &str) -> Option<transcript::Transcript> {
    let text = std::fs::read(data.join("oracle").join(format!("{}.txt", dump.replace('/', "_")))).ok()?;
    Some(transcript::Transcript::parse(&String::from_utf8_lossy(&text)))
}

/// Wine's DLLs as an image path.
pub fn wine_images() -> Option<String> {
    Some(test_data::wine_images()?.display().to_string())
}
