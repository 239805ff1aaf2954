#![no_main]
//! Any bytes as a dispatch routine, in any of the three machines: bounded, no panic, and a code that is
//! listed as proved was not disputed.

use analysis_ioctl::map::{MapRequest, map_entry};
use code_flow::CodeImage;
use libfuzzer_sys::fuzz_target;
use target::Halt;

fuzz_target!(|bytes: &[u8]| {
    let Ok(file) = pe::FileImage::new(bytes.to_vec()) else { return };
    let (base, entry) = (file.pe().image_base, file.pe().entry_point);
    let Ok(image) = CodeImage::of_file("fuzz", file, base) else { return };
    let Some(entry) = image.checked_va(entry, 1) else { return };
    let map = map_entry(&image, &MapRequest::at(entry), &Halt::unbounded()).map;
    assert!(map.codes.len() <= map.code_count);
});
