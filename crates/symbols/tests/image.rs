//! COFF symbols and DWARF of `data/dwarf.exe`, whose source beside it says what is in it.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use symbols::{ImageSymbols, SymbolError, SymbolFile};
use target::{SymbolKind, SymbolState};

fn bytes() -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/dwarf.exe")).unwrap()
}

fn line(file: &ImageSymbols, rva: u64) -> (String, u32) {
    let line = file.line_at(rva).unwrap().unwrap();
    (line.file.rsplit('/').next().unwrap().to_owned(), line.line)
}

#[test]
fn functions_and_lines() {
    let file = ImageSymbols::from_bytes(bytes()).unwrap();
    assert_eq!(file.state(), SymbolState::Dwarf);
    let leaf = file.symbol_at(0x1014).unwrap().unwrap();
    assert_eq!((leaf.name.as_str(), leaf.rva, leaf.kind), ("leaf", 0x1000, SymbolKind::Function));
    assert_eq!(file.symbol_at(0x1040).unwrap().unwrap().name, "Main");
    assert_eq!(file.by_name("main").unwrap()[0].rva, 0x1015);
    assert_eq!(line(&file, 0x1006), ("dwarf.c".to_owned(), 9));
    assert_eq!(line(&file, 0x103a), ("dwarf.c".to_owned(), 22));
    assert_eq!(file.symbol_at(0x5000_0000).unwrap(), None);
}

#[test]
fn an_inlined_function_and_its_call_site() {
    let file = ImageSymbols::from_bytes(bytes()).unwrap();
    let chain = file.inline_chain(0x1024).unwrap();
    assert_eq!(chain.len(), 1);
    assert_eq!((chain[0].name.as_str(), chain[0].line.as_ref().unwrap().line), ("inlined", 16));
    assert_eq!(line(&file, 0x1024).1, 21);
    assert!(file.inline_chain(0x1000).unwrap().is_empty());
}

#[test]
fn without_dwarf_the_coff_table_is_left() {
    let mut image = bytes();
    // The length of the first unit in `.debug_info` (file offset 0xa00) becomes a lie.
    image[0xa00..0xa04].copy_from_slice(&[0xff; 4]);
    let file = ImageSymbols::from_bytes(image).unwrap();
    assert_eq!(file.symbol_at(0x1014).unwrap().unwrap().name, "leaf");
    let _ = file.line_at(0x1014);
}

#[test]
fn a_stripped_image_is_refused() {
    let mut image = bytes();
    let pe = u32::from_le_bytes(image[0x3c..0x40].try_into().unwrap()) as usize;
    // PointerToSymbolTable and NumberOfSymbols: without them long section names are gone too.
    image[pe + 12..pe + 20].fill(0);
    let error = ImageSymbols::from_bytes(image).err().unwrap();
    assert!(matches!(&error, SymbolError::NotSymbols(why) if why.contains("stripped")), "{error}");
    assert!(ImageSymbols::from_bytes(b"MZ".to_vec()).is_err());
}

#[test]
fn mutated_images_never_panic() {
    let original = bytes();
    for at in (0..original.len()).step_by(3) {
        let mut image = original.clone();
        image[at] ^= 0xff;
        if let Ok(file) = ImageSymbols::from_bytes(image) {
            let _ = file.symbol_at(0x1024);
            let _ = file.line_at(0x1024);
            let _ = file.inline_chain(0x1024);
        }
    }
}
