#![no_main]
//! Any file as an image whose code is recovered: imports, the walk, listings, blocks, hardening.

use code_flow::{Blocks, CodeImage, ImageIndex, Structural, listing, mitigations};
use pe::FileImage;
use target::Halt;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Ok(file) = FileImage::new(data) else { return };
    let base = file.pe().image_base;
    let Ok(image) = CodeImage::of_file("fuzz", file, base) else { return };
    let halt = Halt::within(std::time::Duration::from_secs(5));
    let index = ImageIndex::build(&image, &halt);
    let entry = image.base + u64::from(image.pe.entry_point);
    for start in image.starts().sure.iter().copied().take(8).chain([entry]) {
        let found = listing(&image, start, &Structural, &halt);
        let _ = Blocks::of(&found).reverse_post_order();
    }
    let _ = (mitigations(&image), image.imports().slots.len(), index.privileged_counts);
    let _ = code_flow::wdf::wdf_table(&image);
});
