#![no_main]
//! Any unwind data, code and stack: an x64 walk ends.

#[path = "../../crates/unwind/tests/support/any_image.rs"]
mod any_image;

libfuzzer_sys::fuzz_target!(|data: &[u8]| any_image::exercise(target::Machine::X64, data));
