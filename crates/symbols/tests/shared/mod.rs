//! The shared test data: where it is, or a visible "not run".
#![allow(dead_code)]

use std::path::Path;

pub(crate) use test_data::shared as data;

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
