#![no_main]
//! Any bytes behind the signature `PAGEDU64`.

#[path = "../../crates/dump/tests/support/exercise.rs"]
mod exercise;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let mut bytes = data.to_vec();
    let signature = b"PAGEDU64";
    let length = bytes.len().min(signature.len());
    bytes[..length].copy_from_slice(&signature[..length]);
    exercise::exercise(&bytes);
});
