#![no_main]
//! Symbol paths: what is understood reads back as itself.

use libfuzzer_sys::fuzz_target;
use symbol_store::SymbolPath;

fuzz_target!(|text: &str| {
    let path = SymbolPath::parse(text);
    let again = SymbolPath::parse(&path.to_string());
    assert_eq!(path.elements.len(), again.elements.len());
});
