#![no_main]
//! Any bytes as a dispatch routine, in any of the three machines: bounded, no panic, and a code that is
//! listed as proved was not disputed.

use analysis_ioctl::map::{MapRequest, map_entry};
use code_flow::{CodeImage, Origin, Whole};
use libfuzzer_sys::fuzz_target;
use target::{Halt, Module};

fuzz_target!(|bytes: &[u8]| {
    let Ok(file) = pe::FileImage::new(bytes.to_vec()) else { return };
    let (base, size, entry) = (file.pe().image_base, file.pe().size_of_image, file.pe().entry_point);
    let module = Module {
        name: "fuzz".into(),
        image_name: "fuzz.sys".into(),
        image_path: String::new(),
        base,
        size: u64::from(size),
        timestamp: 0,
        checksum: 0,
        pdb: None,
        user_mode: None,
        file_version: None,
    };
    let Ok(image) = CodeImage::open(&module, Box::new(Whole(file, Origin::ImageFile))) else { return };
    let Some(entry) = image.checked_va(entry, 1) else { return };
    let map = map_entry(&image, &MapRequest::at(entry), &Halt::unbounded()).map;
    assert!(map.codes.len() <= map.code_count);
});
