//! Opening a driver's file as an image.

#![allow(clippy::unwrap_used, clippy::expect_used, dead_code, unreachable_pub)]

use std::path::{Path, PathBuf};

use code_flow::{CodeImage, ImageError, Origin, Whole};
use pe::FileImage;
use target::Module;

pub struct AtBase(pub FileImage<Vec<u8>>, pub u64);

impl pe::ImageSource for AtBase {
    fn read_rva(&self, rva: u32, buffer: &mut [u8]) -> usize {
        self.0.read_rva_at(rva, self.1, buffer)
    }
}

pub fn module(name: &str, base: u64, size: u64) -> Module {
    Module {
        name: name.to_owned(),
        image_name: format!("{name}.sys"),
        image_path: String::new(),
        base,
        size,
        timestamp: 0,
        checksum: 0,
        pdb: None,
        user_mode: None,
        file_version: None,
    }
}

pub fn open_bytes(name: &str, bytes: Vec<u8>) -> Result<CodeImage<'static>, String> {
    let file = FileImage::new(bytes).map_err(|e| e.to_string())?;
    let (base, size) = (file.pe().image_base, u64::from(file.pe().size_of_image));
    let source = Whole(AtBase(file, base), Origin::ImageFile);
    CodeImage::open(&module(name, base, size), Box::new(source)).map_err(|e: ImageError| e.to_string())
}

pub fn open(path: &Path) -> CodeImage<'static> {
    let name = path.file_stem().unwrap().to_string_lossy().into_owned();
    open_bytes(&name, std::fs::read(path).unwrap()).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

pub fn driver(build: &str, id: &str) -> PathBuf {
    test_data::fixture(&format!("drivers/bin/{build}/{id}.sys"))
}

/// The addresses a driver's `.marks` section lists.
pub fn marks(image: &CodeImage<'_>) -> Vec<u64> {
    let section = image.pe.sections.iter().find(|s| s.name == ".marks").expect("a .marks section");
    let start = image.base + u64::from(section.rva);
    (0..u64::from(section.virtual_size) / 4)
        .map(|i| image.base + image.value(start + i * 4, 4).unwrap())
        .collect()
}

/// Every committed driver.
pub fn all_drivers() -> Vec<PathBuf> {
    let mut out = Vec::new();
    for build in std::fs::read_dir(test_data::fixture("drivers/bin")).unwrap() {
        for file in std::fs::read_dir(build.unwrap().path()).unwrap() {
            let path = file.unwrap().path();
            if path.extension().is_some_and(|e| e == "sys") {
                out.push(path);
            }
        }
    }
    out.sort();
    out
}
