//! A PDB of any bytes: every question ends in an answer or an error.
#![no_main]

#[path = "../support/ask.rs"]
mod ask;
#[path = "../support/watch.rs"]
mod watch;

libfuzzer_sys::fuzz_target!(init: watch::watch(), |data: &[u8]| {
    if let Ok(file) = symbols::PdbFile::from_bytes(data.to_vec(), "fuzz.pdb") {
        ask::ask(&file);
    }
});
