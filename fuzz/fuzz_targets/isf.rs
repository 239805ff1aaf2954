//! An ISF of any bytes, packed or not.
#![no_main]

use libfuzzer_sys::fuzz_target;
use symbols::{IsfFile, SymbolFile};

fuzz_target!(|data: &[u8]| {
    let Ok(file) = IsfFile::from_bytes(data.to_vec()) else { return };
    let _ = file.symbol_at(0x1000);
    let _ = file.matching("*", 100);
    for name in file.types_matching("*", 100).unwrap_or_default() {
        let _ = file.type_layout(&name);
    }
});
