//! Damaged and made-up images: no panic, no long loop, no answer without bytes behind it.
#![allow(clippy::unwrap_used)]

use pe::{CoffSymbols, DirectoryIndex, FileImage, ImageSource, MappedImage, Pe, PeError};
use proptest::prelude::*;
use target::RegionMemory;

/// A small PE32+ image: one executable section at 0x1000 of 0x200 raw bytes.
fn small() -> Vec<u8> {
    let mut b = vec![0u8; 0x600];
    let mut put = |at: usize, bytes: &[u8]| b[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, b"MZ");
    put(0x3c, &0x80u32.to_le_bytes());
    put(0x80, b"PE\0\0");
    put(0x84, &0x8664u16.to_le_bytes());
    put(0x86, &1u16.to_le_bytes());
    put(0x94, &0xf0u16.to_le_bytes());
    put(0x98, &0x20bu16.to_le_bytes());
    put(0x98 + 24, &0x1_4000_0000u64.to_le_bytes());
    put(0x98 + 32, &0x1000u32.to_le_bytes());
    put(0x98 + 56, &0x3000u32.to_le_bytes());
    put(0x98 + 60, &0x200u32.to_le_bytes());
    put(0x98 + 108, &16u32.to_le_bytes());
    put(0x188, b".text\0\0\0");
    put(0x188 + 8, &0x1800u32.to_le_bytes());
    put(0x188 + 12, &0x1000u32.to_le_bytes());
    put(0x188 + 16, &0x200u32.to_le_bytes());
    put(0x188 + 20, &0x400u32.to_le_bytes());
    put(0x188 + 36, &0x6000_0020u32.to_le_bytes());
    put(0x400, &[0xcc; 0x200]);
    b
}

fn everything(bytes: &[u8]) {
    let Ok(image) = FileImage::new(bytes) else { return };
    let pe = image.pe();
    let _ = (pe.exports(&image), pe.imports(&image), pe.pdb(&image), pe.version(&image));
    let _ = (pe.load_config(&image), pe.relocations(&image, 0, 0x1_0000), pe.export_name(&image));
    let mut buffer = [0; 64];
    let _ = image.read_rva_at(0x1000, 0x10_0000, &mut buffer);
    if let Some(table) = pe.exception_table(&image) {
        let _ = (table.find(0x1000), table.get(table.len().saturating_sub(1)), table.get(u32::MAX));
    }
    if let Some(table) = CoffSymbols::new(pe, bytes) {
        let _ = table.symbols(pe);
    }
}

#[test]
fn the_virtual_tail_is_zero_and_gaps_are_gaps() {
    let bytes = small();
    let image = FileImage::new(&bytes[..]).unwrap();
    let mut buffer = [1; 0x400];
    assert_eq!(image.read_rva(0x1100, &mut buffer), 0x400);
    assert_eq!((buffer[0xff], buffer[0x100], buffer[0x3ff]), (0xcc, 0, 0));
    // The section ends at 0x3000; between the headers and 0x1000 there is nothing.
    assert_eq!(image.read_rva(0x2fff, &mut buffer), 1);
    assert_eq!(image.read_rva(0x800, &mut buffer), 0);
    assert_eq!(image.read_rva(0x1f0, &mut buffer), 0x10);
    assert_eq!(image.read_rva(u32::MAX, &mut buffer), 0);
    assert_eq!(image.file_offset(0x1010), Some(0x410));
    assert_eq!(image.file_offset(0x1300), None);
    assert_eq!(image.pe().directory(DirectoryIndex::Export), None);
}

#[test]
fn errors_name_what_is_wrong() {
    let mut bytes = small();
    assert_eq!(FileImage::new(&[0u8; 100][..]).err(), Some(PeError::NoMz));
    assert_eq!(FileImage::new(&b"MZ"[..]).err(), Some(PeError::Unreadable("DOS header")));
    bytes[0x80] = 0;
    assert_eq!(FileImage::new(&bytes[..]).err(), Some(PeError::NoPe(0x80)));
    bytes[0x80] = b'P';
    bytes[0x98] = 0;
    assert!(matches!(FileImage::new(&bytes[..]).err(), Some(PeError::BadMagic(_))));
    let empty = RegionMemory::new();
    assert_eq!(Pe::parse(&MappedImage::new(&empty, 0x1000)), Err(PeError::Unreadable("DOS header")));
}

/// The symbol table as MinGW's linker writes it (PE/COFF specification section 5.4).
#[test]
fn coff_symbols_of_a_file() {
    let mut bytes = small();
    let table = bytes.len() as u32;
    let mut record = |name: &[u8; 8], value: u32, section: u16, kind: u16, class: u8, auxiliary: u8| {
        bytes.extend_from_slice(name);
        bytes.extend_from_slice(&value.to_le_bytes());
        bytes.extend_from_slice(&section.to_le_bytes());
        bytes.extend_from_slice(&kind.to_le_bytes());
        bytes.extend_from_slice(&[class, auxiliary]);
    };
    record(b".file\0\0\0", 0, 0xfffe, 0, 103, 1);
    record(b"a.c\0\0\0\0\0", 0, 0, 0, 0, 0);
    record(b".text\0\0\0", 0, 1, 0, 3, 1);
    record(&[0; 8], 0, 0, 0, 0, 0);
    record(b"main\0\0\0\0", 0x10, 1, 0x20, 2, 0);
    record(&[0, 0, 0, 0, 4, 0, 0, 0], 0x20, 1, 0x20, 3, 0);
    record(b"extern\0\0", 0, 0, 0x20, 2, 0);
    record(b"far\0\0\0\0\0", 0, 9, 0x20, 2, 0);
    let strings = b"\x12\0\0\0a_long_static\0";
    bytes.extend_from_slice(strings);
    bytes[0x84 + 8..0x84 + 12].copy_from_slice(&table.to_le_bytes());
    bytes[0x84 + 12..0x84 + 16].copy_from_slice(&8u32.to_le_bytes());
    let image = FileImage::new(&bytes[..]).unwrap();
    let symbols = CoffSymbols::new(image.pe(), &bytes).unwrap().symbols(image.pe());
    let got: Vec<_> = symbols.iter().map(|s| (s.name.as_str(), s.rva, s.function, s.global)).collect();
    assert_eq!(got, [("main", 0x1010, true, true), ("a_long_static", 0x1020, true, false)]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..2048)) {
        everything(&bytes);
    }

    #[test]
    fn any_damage(changes in proptest::collection::vec((0usize..0x600, any::<u8>()), 1..64),
                  directory in 0usize..15, rva in any::<u32>(), size in any::<u32>()) {
        let mut bytes = small();
        let at = 0x98 + 112 + 8 * directory;
        bytes[at..at + 4].copy_from_slice(&rva.to_le_bytes());
        bytes[at + 4..at + 8].copy_from_slice(&size.to_le_bytes());
        for (at, value) in changes {
            bytes[at] = value;
        }
        everything(&bytes);
    }

    #[test]
    fn directories_of_noise(body in proptest::collection::vec(any::<u8>(), 0x200), directory in 0usize..15) {
        let mut bytes = small();
        bytes[0x400..].copy_from_slice(&body);
        let at = 0x98 + 112 + 8 * directory;
        bytes[at..at + 4].copy_from_slice(&0x1000u32.to_le_bytes());
        bytes[at + 4..at + 8].copy_from_slice(&0x200u32.to_le_bytes());
        everything(&bytes);
    }
}
