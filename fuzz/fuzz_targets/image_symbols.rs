#![no_main]
//! Any image's own symbols: COFF names, DWARF functions, lines and types.

#[path = "../support/ask.rs"]
mod ask;
#[path = "../support/watch.rs"]
mod watch;

libfuzzer_sys::fuzz_target!(init: watch::watch(), |data: &[u8]| {
    if let Ok(file) = symbols::ImageSymbols::from_bytes(data.to_vec()) {
        ask::ask(&file);
    }
});
