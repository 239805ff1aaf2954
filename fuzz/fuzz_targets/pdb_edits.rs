#![no_main]
//! PDBs of the fixtures with words changed: streams, records and references that lie. The first byte
//! chooses the PDB.

#[path = "../support/ask.rs"]
mod ask;
#[path = "../support/edits.rs"]
mod edits;
#[path = "../support/watch.rs"]
mod watch;

use std::sync::LazyLock;

static BASES: LazyLock<Vec<(Vec<u8>, Vec<usize>)>> = LazyLock::new(|| {
    let fixtures = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures"));
    ["crash.pdb", "ntkrnlmp.pdb", "drivers/bin/x64-clang/d24.pdb"]
        .iter()
        .map(|name| std::fs::read(fixtures.join(name)).expect("a PDB of the fixtures"))
        .map(|bytes| {
            let words = edits::words(&bytes);
            (bytes, words)
        })
        .collect()
});

libfuzzer_sys::fuzz_target!(init: watch::watch(), |data: &[u8]| {
    let Some((which, edits)) = data.split_first() else { return };
    let (base, words) = &BASES[usize::from(*which) % BASES.len()];
    let bytes = edits::edited(base, words, edits);
    if let Ok(file) = symbols::PdbFile::from_bytes(bytes, "fuzz.pdb") {
        ask::ask(&file);
    }
});
