#![no_main]
//! Any bytes as a security descriptor, any text as SDDL; what parses is put to the access model.

use analysis_driver::{Descriptor, TokenKind, access_of, parse_sddl};
use target::RegionMemory;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let mut memory = RegionMemory::new();
    memory.add(0x1000, data);
    let binary = Descriptor::read(&memory, 0x1000).ok();
    let text = std::str::from_utf8(data).ok().and_then(|text| parse_sddl(text).ok());
    for descriptor in binary.iter().chain(&text) {
        for token in TokenKind::ALL {
            let _ = access_of(descriptor, token);
        }
    }
});
