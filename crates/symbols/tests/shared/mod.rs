//! The shared test data: where it is, or a visible "not run".
#![allow(dead_code)]

use std::path::{Path, PathBuf};

/// The data folder; `None` after saying so. In CI its absence is a failure.
pub(crate) fn data() -> Option<PathBuf> {
    let folder = std::env::var_os("WINDBG_MCP_DATA")
        .map(PathBuf::from)
        .unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"));
    if folder.is_dir() {
        return Some(folder);
    }
    assert!(std::env::var_os("CI").is_none(), "no ../shared/data");
    println!("not run: no ../shared/data");
    None
}

/// A file of it, unpacked when its name ends in `.xz`.
pub(crate) fn bytes(folder: &Path, name: &str) -> Vec<u8> {
    let file = std::fs::read(folder.join(name)).unwrap();
    if !name.ends_with(".xz") {
        return file;
    }
    let mut out = Vec::new();
    std::io::Read::read_to_end(&mut liblzma::read::XzDecoder::new(file.as_slice()), &mut out).unwrap();
    out
}

pub(crate) fn pdb(folder: &Path, name: &str) -> symbols::PdbFile {
    symbols::PdbFile::from_bytes(bytes(folder, name), name).unwrap()
}
