//! Opening a driver's file as an image.

#![allow(clippy::unwrap_used, clippy::expect_used, dead_code, unreachable_pub)]

use std::path::{Path, PathBuf};

use code_flow::CodeImage;
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
    let base = file.pe().image_base;
    CodeImage::of_file(name, file, base).map_err(|e| e.to_string())
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

/// A section of a made-up image: name, RVA, virtual size, characteristics, bytes.
pub struct Part<'b>(pub &'b str, pub u32, pub u32, pub u32, pub &'b [u8]);

pub const CODE: u32 = 0x6000_0020;
pub const CONSTANT: u32 = 0x4000_0040;
pub const DATA: u32 = 0xc000_0040;

/// An x64 image at 0x140000000 of these sections and directories (index, RVA, size).
pub fn build(size_of_image: u32, parts: &[Part<'_>], directories: &[(usize, u32, u32)]) -> Vec<u8> {
    let mut out = vec![0u8; 0x1000];
    let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, b"MZ");
    put(0x3c, &0x80u32.to_le_bytes());
    put(0x80, b"PE\0\0");
    put(0x84, &0x8664u16.to_le_bytes());
    put(0x86, &(parts.len() as u16).to_le_bytes());
    put(0x94, &0xf0u16.to_le_bytes());
    put(0x96, &0x22u16.to_le_bytes());
    let optional = 0x98;
    put(optional, &0x20bu16.to_le_bytes());
    put(optional + 16, &0x1000u32.to_le_bytes());
    put(optional + 24, &0x1_4000_0000u64.to_le_bytes());
    put(optional + 32, &0x1000u32.to_le_bytes());
    put(optional + 36, &0x200u32.to_le_bytes());
    put(optional + 56, &size_of_image.to_le_bytes());
    put(optional + 60, &0x1000u32.to_le_bytes());
    put(optional + 68, &1u16.to_le_bytes());
    put(optional + 108, &16u32.to_le_bytes());
    for (index, rva, size) in directories {
        put(optional + 112 + index * 8, &rva.to_le_bytes());
        put(optional + 116 + index * 8, &size.to_le_bytes());
    }
    let mut raw = 0x1000u32;
    for (index, Part(name, rva, size, characteristics, bytes)) in parts.iter().enumerate() {
        let header = optional + 0xf0 + index * 40;
        put(header, name.as_bytes());
        put(header + 8, &size.to_le_bytes());
        put(header + 12, &rva.to_le_bytes());
        put(header + 16, &(bytes.len() as u32).to_le_bytes());
        put(header + 20, &raw.to_le_bytes());
        put(header + 36, &characteristics.to_le_bytes());
        raw += (bytes.len() as u32).next_multiple_of(0x200);
    }
    for Part(.., bytes) in parts {
        out.extend_from_slice(bytes);
        out.resize(out.len().next_multiple_of(0x200), 0);
    }
    out
}
