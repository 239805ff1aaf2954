//! Type indices below 0x1000: the built-in types and pointers to them (cvinfo.h `TYPE_ENUM_e`).

use target::TypeRef;

/// `(number, DbgEng's name, C's name, bytes, signed, float)`.
type Primitive = (u8, &'static str, &'static str, u64, bool, bool);

const PRIMITIVES: [Primitive; 37] = [
    (0x08, "Int4B", "HRESULT", 4, true, false),
    (0x10, "Char", "signed char", 1, true, false),
    (0x11, "Int2B", "short", 2, true, false),
    (0x12, "Int4B", "long", 4, true, false),
    (0x13, "Int8B", "__int64", 8, true, false),
    (0x14, "Int16B", "__int128", 16, true, false),
    (0x20, "UChar", "unsigned char", 1, false, false),
    (0x21, "Uint2B", "unsigned short", 2, false, false),
    (0x22, "Uint4B", "unsigned long", 4, false, false),
    (0x23, "Uint8B", "unsigned __int64", 8, false, false),
    (0x24, "Uint16B", "unsigned __int128", 16, false, false),
    (0x30, "Bool", "bool", 1, false, false),
    (0x31, "Bool", "bool16", 2, false, false),
    (0x32, "Bool", "bool32", 4, false, false),
    (0x33, "Bool", "bool64", 8, false, false),
    // DbgEng calls every width `Float`; the size tells them apart.
    (0x40, "Float", "float", 4, true, true),
    (0x41, "Float", "double", 8, true, true),
    (0x42, "Float", "long double", 10, true, true),
    (0x43, "Float", "float128", 16, true, true),
    (0x44, "Float", "float48", 6, true, true),
    (0x46, "Float", "float16", 2, true, true),
    (0x68, "Char", "int8_t", 1, true, false),
    (0x69, "UChar", "uint8_t", 1, false, false),
    (0x70, "Char", "char", 1, true, false),
    (0x71, "Wchar", "wchar_t", 2, false, false),
    (0x72, "Int2B", "int16_t", 2, true, false),
    (0x73, "Uint2B", "uint16_t", 2, false, false),
    (0x74, "Int4B", "int", 4, true, false),
    (0x75, "Uint4B", "unsigned int", 4, false, false),
    (0x76, "Int8B", "int64_t", 8, true, false),
    (0x77, "Uint8B", "uint64_t", 8, false, false),
    (0x78, "Int16B", "int128_t", 16, true, false),
    (0x79, "Uint16B", "uint128_t", 16, false, false),
    (0x7a, "Char16", "char16_t", 2, false, false),
    (0x7b, "Char32", "char32_t", 4, false, false),
    (0x7c, "Char8", "char8_t", 1, false, false),
    (0x60, "Uint1B", "bit", 1, false, false),
];

/// Pointer bytes of a primitive index's mode, 0 when it is the value itself.
fn pointer_size(index: u32) -> Option<u64> {
    match (index >> 8) & 0xf {
        0 => Some(0),
        1 => Some(2),
        2..=5 => Some(4),
        6 => Some(8),
        7 => Some(16),
        _ => None,
    }
}

fn find(index: u32) -> Option<&'static Primitive> {
    PRIMITIVES.iter().find(|p| u32::from(p.0) == index & 0xff)
}

fn reference(p: &Primitive) -> TypeRef {
    TypeRef::Base { name: p.1.to_owned(), size: p.3, signed: p.4, float: p.5 }
}

/// The type a primitive index names.
pub(super) fn primitive(index: u32) -> TypeRef {
    let value = match index & 0xff {
        0x03 => TypeRef::Void,
        _ => find(index).map_or(TypeRef::Unknown, reference),
    };
    match pointer_size(index) {
        // T_NOTTRANS and T_NOTYPE have no size either.
        Some(0) => value,
        Some(size) => TypeRef::Pointer { to: Box::new(value), size },
        None => TypeRef::Unknown,
    }
}

/// Its C spelling, for function types.
pub(super) fn primitive_text(index: u32) -> String {
    let value = if index & 0xff == 3 { "void" } else { find(index).map_or("?", |p| p.2) };
    match pointer_size(index) {
        Some(0) => value.to_owned(),
        _ => format!("{value}*"),
    }
}

/// A built-in by C's or the debugger's name.
pub(crate) fn primitive_named(name: &str) -> Option<TypeRef> {
    let alias = match name {
        "unsigned" => "unsigned int",
        "long long" => "__int64",
        "unsigned long long" => "unsigned __int64",
        "unsigned __int32" => "unsigned int",
        "__int32" => "int",
        other => other,
    };
    PRIMITIVES.iter().find(|p| p.2 == alias || p.1 == alias).map(reference)
}
