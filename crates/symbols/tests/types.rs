//! Type layouts against their sources.
#![allow(clippy::unwrap_used)]

mod shared;

use symbols::{PdbFile, SymbolFile};
use target::{TypeKind, TypeRef};

/// A type as `dt` would show it.
fn dump(pdb: &PdbFile, name: &str) -> String {
    let layout = pdb.type_layout(name).unwrap();
    let mut text = format!("{} {:?} {:#x}\n", layout.name, layout.kind, layout.size);
    for field in &layout.fields {
        let mark = if field.base_class { "base " } else { "" };
        text += &format!("  {mark}+{:#05x} {} : {}", field.offset, field.name, spelled(&field.ty));
        if let Some((position, length)) = field.bits {
            text += &format!(" pos {position}, {length} bits");
        }
        if let Some(value) = field.value {
            text += &format!(" = {value}");
        }
        text.push('\n');
    }
    text
}

fn spelled(ty: &TypeRef) -> String {
    match ty {
        TypeRef::Named { name, .. } | TypeRef::Base { name, .. } => name.clone(),
        TypeRef::Pointer { to, size } => format!("Ptr{} {}", size * 8, spelled(to)),
        TypeRef::Array { of, count, .. } => format!("[{count}] {}", spelled(of)),
        TypeRef::Function { text } => text.clone(),
        TypeRef::Void => "Void".to_owned(),
        TypeRef::Unknown => "?".to_owned(),
    }
}

/// The source, test-pdb-types.cpp, is the answer key.
#[test]
fn acceptance_20_struct_dump_equals_the_source() {
    let Some(data) = shared::data() else { return };
    let pdb = shared::pdb(&data, "pe/llvm_types/test-pdb-types.pdb");
    let all: String = ["NS::NSClass", "Class", "Class::NestedClass", "Enum", "ShortEnum"]
        .iter()
        .map(|name| dump(&pdb, name))
        .collect();
    assert_eq!(
        all,
        "NS::NSClass Class 0x10\n  +0x000 f : Float\n  +0x008 d : Float\n\
         Class Class 0x2\n  +0x000 se : ShortEnum\n\
         Class::NestedClass Class 0x4\n  +0x000 e : Enum\n\
         Enum Enum 0x4\n  +0x000 EValue1 : Int4B = 1\n  +0x000 EValue2 : Int4B = 2\n\
         ShortEnum Enum 0x2\n  +0x000 ESValue1 : Int2B = 1\n  +0x000 ESValue2 : Int2B = 2\n"
    );
    assert_eq!(dump(&pdb, "ClassTypedef"), dump(&pdb, "Class"));
    assert_eq!(dump(&pdb, "NSClassTypedef"), dump(&pdb, "NS::NSClass"));
    let pointer = pdb.type_layout("FuncPointerTypedef").unwrap();
    // The image is an x64 one.
    assert_eq!((pointer.kind, pointer.size), (TypeKind::Pointer, 8));
    let pointer = pdb.type_of("GlobalVariadicFunc").unwrap().unwrap();
    assert_eq!(spelled(&pointer), "Ptr64 int (char,...)");
    assert_eq!(spelled(&pdb.type_of("GlobalArray").unwrap().unwrap()), "[10] Int4B");
    assert!(pdb.types_matching("ns::*", 10).unwrap().contains(&"NS::NSClass".to_owned()));
    assert!(pdb.type_layout("NoSuchType").is_err());
}

#[test]
fn acceptance_20_locals_of_main() {
    let Some(data) = shared::data() else { return };
    let pdb = shared::pdb(&data, "pe/llvm_types/test-pdb-types.pdb");
    let main = pdb.by_name("main").unwrap();
    let locals = pdb.locals_at(main[0].rva + 4).unwrap();
    let names: Vec<_> = locals.iter().map(|l| (l.name.as_str(), l.parameter, spelled(&l.ty))).collect();
    let argument = |name, ty: &str| (name, true, ty.to_owned());
    // The compiler dropped the unused locals.
    assert_eq!(names, [argument("argc", "Int4B"), argument("argv", "Ptr64 Ptr64 Char")]);
}

#[test]
fn eprocess_at_real_offsets() {
    let Some(data) = shared::data() else { return };
    let pdb = shared::pdb(&data, "synthetic/ntkrnlmp.pdb");
    let layout = pdb.type_layout("_EPROCESS").unwrap();
    let offset = |name: &str| layout.fields.iter().find(|f| f.name == name).map(|f| f.offset);
    assert_eq!(offset("UniqueProcessId"), Some(0x440));
    assert_eq!(offset("ActiveProcessLinks"), Some(0x448));
    assert_eq!(offset("ImageFileName"), Some(0x5a8));
    assert_eq!(pdb.type_layout("struct _eprocess").unwrap(), layout);
}

#[test]
fn standard_library_types_have_bases_and_pointers() {
    let Some(data) = shared::data() else { return };
    let pdb = shared::pdb(&data, "user/kt2/CppConsoleApplication.pdb.xz");
    insta::assert_snapshot!(
        [
            "Item",
            "std::shared_ptr<Item>",
            "std::_Ptr_base<Item>",
            "std::_Ref_count_base",
            "_RTL_CRITICAL_SECTION"
        ]
        .iter()
        .filter(|name| pdb.type_layout(name).is_ok())
        .map(|name| dump(&pdb, name))
        .collect::<String>()
    );
}
