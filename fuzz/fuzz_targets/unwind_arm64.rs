#![no_main]
//! Any unwind data, code and stack: an arm64 walk ends.

#[path = "../../crates/unwind/tests/support/any_image.rs"]
mod any_image;

libfuzzer_sys::fuzz_target!(|data: &[u8]| any_image::exercise(target::Machine::Arm64, data));
