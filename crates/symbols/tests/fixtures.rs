//! The repository's own PDBs against their sources in `fixtures/src`: what a fresh clone can check.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};

use symbols::{PdbFile, SymbolFile, VarLocation};
use target::{SymbolKind, SymbolState, TypeRef};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(name)
}

/// Line of the only place in a fixture's source that contains `text`.
fn line_of(source: &str, text: &str) -> u32 {
    let source = std::fs::read_to_string(fixture("src").join(source)).unwrap();
    let at = source.lines().position(|l| l.contains(text)).unwrap();
    u32::try_from(at + 1).unwrap()
}

#[test]
fn functions_lines_and_identity() {
    let pdb = PdbFile::open(&fixture("crash.pdb")).unwrap();
    let image = pe::FileImage::new(std::fs::read(fixture("crash.exe")).unwrap()).unwrap();
    let recorded = image.pe().pdb(&image).unwrap();
    let identity = pdb.identity().unwrap();
    assert_eq!((identity.guid, identity.age), (recorded.guid, recorded.age));
    assert_eq!(pdb.state(), SymbolState::Pdb);

    for name in ["ShipOrder", "ProcessOrder", "Main"] {
        let function = pdb.by_name(name).unwrap().remove(0);
        assert_eq!(function.kind, SymbolKind::Function);
        let last = function.rva + function.size.unwrap() - 1;
        assert_eq!(pdb.symbol_at(last).unwrap().unwrap(), function);
        assert_eq!(pdb.function_bounds(last).unwrap(), Some((function.rva, last + 1)));
        let line = pdb.line_at(function.rva).unwrap().unwrap();
        assert!(line.file.ends_with("crash.c"), "{line:?}");
    }
    let fault = line_of("crash.c", "order->Buyer->Id");
    let ship = pdb.by_name("ShipOrder").unwrap().remove(0);
    let lines = (ship.rva..ship.rva + ship.size.unwrap()).filter_map(|rva| pdb.line_at(rva).unwrap());
    assert!(lines.map(|l| l.line).any(|line| line == fault));
}

#[test]
fn a_structure_with_bits_enum_pointer_and_array() {
    let pdb = PdbFile::open(&fixture("crash.pdb")).unwrap();
    let order = pdb.type_layout("Order").unwrap();
    let rows: Vec<_> = order.fields.iter().map(|f| (f.name.as_str(), f.offset, f.size, f.bits)).collect();
    let expected = [
        ("Number", 0, 4, None),
        ("State", 4, 4, Some((0, 4))),
        ("Express", 4, 4, Some((4, 1))),
        ("Buyer", 8, 8, None),
        ("Quantity", 16, 16, None),
    ];
    assert_eq!(rows, expected);
    let TypeRef::Pointer { to, size: 8 } = &order.fields[3].ty else { panic!("{order:?}") };
    assert!(matches!(&**to, TypeRef::Named { name, size: 16, .. } if name == "Customer"));
    assert_eq!(pdb.type_of("g_order").unwrap().unwrap().size(), order.size);
    let datum = pdb.by_name("g_order").unwrap().remove(0);
    assert_eq!((datum.kind, datum.size), (SymbolKind::Data, Some(order.size)));
    assert_eq!(pdb.symbol_at(datum.rva + 5).unwrap().unwrap().name, "g_order");
}

#[test]
fn parameters_are_where_the_call_puts_them() {
    let pdb = PdbFile::open(&fixture("crash.pdb")).unwrap();
    let ship = pdb.by_name("ShipOrder").unwrap().remove(0);
    let locals = pdb.locals_at(ship.rva).unwrap();
    let parameters: Vec<_> = locals.iter().filter(|l| l.parameter).collect();
    assert_eq!(parameters.iter().map(|l| l.name.as_str()).collect::<Vec<_>>(), ["order", "warehouse"]);
    let VarLocation::Register(register) = &parameters[0].location else { panic!("{parameters:?}") };
    assert_eq!(register.name, "rcx");
    assert!(locals.iter().any(|l| l.name == "total" && !l.parameter));
}

#[test]
fn eprocess_of_the_stand_in_kernel() {
    let pdb = PdbFile::open(&fixture("ntkrnlmp.pdb")).unwrap();
    let layout = pdb.type_layout("_EPROCESS").unwrap();
    let offset = |name: &str| layout.fields.iter().find(|f| f.name == name).map(|f| f.offset);
    assert_eq!(offset("UniqueProcessId"), Some(0x440));
    assert_eq!(offset("ActiveProcessLinks"), Some(0x448));
    assert_eq!(offset("ImageFileName"), Some(0x5a8));
}
