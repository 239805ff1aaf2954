//! A PDB of any bytes: every question ends in an answer or an error.
#![no_main]

#[path = "../support/watch.rs"]
mod watch;

use libfuzzer_sys::fuzz_target;
use symbols::{PdbFile, SymbolFile};

fuzz_target!(init: watch::watch(), |data: &[u8]| {
    let Ok(file) = PdbFile::from_bytes(data.to_vec(), "fuzz.pdb") else { return };
    for rva in [0x1000, 0x1010, 0x1040, 0x2000] {
        let _ = file.symbol_at(rva);
        let _ = file.line_at(rva);
        let _ = file.inline_chain(rva);
        let _ = file.locals_at(rva);
        let _ = file.frame_program(rva);
    }
    let _ = file.by_name("main");
    let _ = file.matching("*a*", 100);
    for name in file.types_matching("*", 100).unwrap_or_default() {
        let _ = file.type_layout(&name);
    }
});
