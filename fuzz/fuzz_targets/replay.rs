#![no_main]
//! Any file replayed as a driver: it ends, within its budgets.

use std::rc::Rc;

use driver_replay::{PlacedImage, discover, replay};
use pe::FileImage;
use target::Halt;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Ok(file) = FileImage::new(data.to_vec()) else { return };
    let Some(image) = PlacedImage::of_file(Rc::new(file), None, "fuzzed.sys") else { return };
    let halt = Halt::within(std::time::Duration::from_millis(500));
    let result = replay(&image, &halt);
    let _ = discover(&image, &result);
});
