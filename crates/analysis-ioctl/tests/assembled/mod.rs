//! Routines assembled in place, and what is said of them.
#![allow(clippy::unwrap_used, clippy::expect_used, dead_code, unreachable_pub)]

#[path = "../random/assembler.rs"]
pub mod assembler;

use std::collections::BTreeSet;

use analysis_ioctl::map::{IoctlMap, MapRequest, map_entry};
use code_flow::CodeImage;
use target::Halt;

use assembler::{Assembler, Label};

/// Maps the routine at the start of `bytes`, an x64 image.
pub fn map_image(bytes: Vec<u8>, entry: u64) -> IoctlMap {
    let file = pe::FileImage::new(bytes).unwrap();
    let base = file.pe().image_base;
    let image = CodeImage::of_file("g", file, base).unwrap();
    map_entry(&image, &MapRequest { max_codes: 4096, ..MapRequest::at(entry) }, &Halt::unbounded()).map
}

/// A routine with the code in ecx and the IRP in rdx: `body` gets the labels of two accepting leaves and
/// of the default.
pub fn map(body: impl FnOnce(&mut Assembler, [Label; 2], Label)) -> IoctlMap {
    let mut asm = Assembler::default();
    let (entry, first, second, default) = (asm.label(), asm.label(), asm.label(), asm.label());
    asm.bind(entry);
    asm.bytes(&[0x4c, 0x8b, 0x92, 0xb8, 0, 0, 0]); // mov r10, [rdx+0B8h]
    asm.bytes(&[0x41, 0x8b, 0x4a, 0x18]); // mov ecx, [r10+18h]
    body(&mut asm, [first, second], default);
    asm.bind(default);
    asm.mov_immediate(0, 0xc000_0010);
    asm.bytes(&[0xc3]);
    for leaf in [first, second] {
        asm.bind(leaf);
        asm.mov_immediate(0, 0);
        asm.bytes(&[0xc3]);
    }
    let bytes = asm.finish();
    let entry = asm.address(entry);
    map_image(bytes, entry)
}

pub fn codes(map: &IoctlMap) -> BTreeSet<u32> {
    map.codes.iter().map(|row| row.code.0).collect()
}

pub fn set<const N: usize>(codes: [u32; N]) -> BTreeSet<u32> {
    codes.into()
}
