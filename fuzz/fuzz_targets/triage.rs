#![no_main]
//! Any triage block behind a sound x64 header.

#[path = "../../crates/dump/tests/support/exercise.rs"]
mod exercise;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let mut bytes = b"PAGEDU64".repeat(0x400);
    bytes[0x30..0x34].copy_from_slice(&0x8664u32.to_le_bytes());
    bytes[0xf98..0xf9c].copy_from_slice(&4u32.to_le_bytes());
    bytes.extend_from_slice(data);
    exercise::exercise(&bytes);
});
