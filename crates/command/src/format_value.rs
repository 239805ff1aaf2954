//! Types and values in `dt`'s spelling.

use target::{MemoryExt as _, Target, TypeKind, TypeRef};

use crate::notation::{Notation, known_place};

/// Nesting of a spelled type.
const DEPTH_LIMIT: usize = 16;
/// Characters of a string shown behind a pointer or in an array.
const TEXT_LIMIT: usize = 128;

/// A type without a value: `Uint4B`, `Ptr64 _KPROCESS`, `[15] UChar`.
pub(crate) fn type_text(ty: &TypeRef) -> String {
    spell(ty, 0)
}

fn spell(ty: &TypeRef, depth: usize) -> String {
    if depth > DEPTH_LIMIT {
        return "...".to_owned();
    }
    match ty {
        TypeRef::Named { name, .. } | TypeRef::Base { name, .. } => name.clone(),
        TypeRef::Pointer { to, size } => format!("Ptr{} {}", size.saturating_mul(8), spell(to, depth + 1)),
        TypeRef::Array { of, count, .. } => format!("[{count}] {}", spell(of, depth + 1)),
        TypeRef::Function { text } => text.clone(),
        TypeRef::Void => "Void".to_owned(),
        TypeRef::Unknown => "<unknown type>".to_owned(),
    }
}

/// A type as `dv` spells it: `int`, `struct _X *`, `char [16]`.
pub(crate) fn c_type_text(ty: &TypeRef) -> String {
    spell_c(ty, 0)
}

fn spell_c(ty: &TypeRef, depth: usize) -> String {
    if depth > DEPTH_LIMIT {
        return "...".to_owned();
    }
    match ty {
        TypeRef::Named { name, kind, .. } => {
            let keyword = match kind {
                TypeKind::Class => "class",
                TypeKind::Union => "union",
                TypeKind::Enum => "enum",
                _ => "struct",
            };
            format!("{keyword} {name}")
        }
        TypeRef::Base { name, .. } => match name.as_str() {
            "Char" => "char",
            "UChar" => "unsigned char",
            "WChar" => "wchar_t",
            "Bool" => "bool",
            "Int1B" => "int8",
            "Int2B" => "short",
            "Uint2B" => "unsigned short",
            "Int4B" => "int",
            "Uint4B" => "unsigned int",
            "Int8B" => "int64",
            "Uint8B" => "unsigned int64",
            "Float" => "float",
            "Double" => "double",
            other => other,
        }
        .to_owned(),
        TypeRef::Pointer { to, .. } => {
            let to = spell_c(to, depth + 1);
            let gap = if to.ends_with('*') { "" } else { " " };
            format!("{to}{gap}*")
        }
        TypeRef::Array { of, count, .. } => format!("{} [{count}]", spell_c(of, depth + 1)),
        TypeRef::Function { text } => text.clone(),
        TypeRef::Void => "void".to_owned(),
        TypeRef::Unknown => "<unknown type>".to_owned(),
    }
}

/// A bit field without a value: `Pos 3, 1 Bit`.
pub(crate) fn bits_text((position, length): (u8, u8)) -> String {
    format!("Pos {position}, {length} Bit{}", if length == 1 { "" } else { "s" })
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().take(8).rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

fn signed(value: u64, size: u64) -> i64 {
    let shift = 64 - 8 * u32::try_from(size.clamp(1, 8)).unwrap_or(8);
    (value << shift).cast_signed() >> shift
}

/// The bits of a bit field: `0y101`.
pub(crate) fn bits_value(bytes: &[u8], (position, length): (u8, u8)) -> String {
    let value = number(bytes).checked_shr(u32::from(position)).unwrap_or(0);
    let mask = if length >= 64 { u64::MAX } else { (1u64 << length) - 1 };
    format!("0y{:0width$b}", value & mask, width = usize::from(length.min(64)))
}

/// The value in `bytes`, which are the whole of `ty`, in `dt`'s spelling.
pub(crate) fn value_text(target: &dyn Target, ty: &TypeRef, bytes: &[u8]) -> String {
    match ty {
        TypeRef::Base { name, size, signed: is_signed, float } => {
            base_text(name, *size, *is_signed, *float, bytes)
        }
        TypeRef::Pointer { to, size } => pointer_text(target, to, *size, number(bytes)),
        TypeRef::Array { of, count, .. } => array_text(of, *count, bytes),
        TypeRef::Named { name, size, kind: TypeKind::Enum } => {
            let value = signed(number(bytes), *size);
            let layout = target.type_layout(name).ok();
            let known = layout.and_then(|l| l.fields.into_iter().find(|f| f.value == Some(value)));
            known.map_or_else(|| format!("{value}"), |f| format!("{value} ( {} )", f.name))
        }
        _ => type_text(ty),
    }
}

fn base_text(name: &str, size: u64, is_signed: bool, float: bool, bytes: &[u8]) -> String {
    let value = number(bytes);
    let lower = name.to_ascii_lowercase();
    if float {
        return match size {
            4 => format!("{} ", f32::from_bits(u32::try_from(value).unwrap_or(0))),
            8 => format!("{} ", f64::from_bits(value)),
            _ => format!("{value:#x}"),
        };
    }
    if lower.contains("char") {
        let c = u32::try_from(value).ok().and_then(char::from_u32).filter(|c| !c.is_control());
        let shown = c.map(String::from).unwrap_or_default();
        return if is_signed && size == 1 {
            format!("{} '{shown}'", signed(value, size))
        } else {
            format!("{value:#x} '{shown}'")
        };
    }
    if lower == "bool" {
        return value.to_string();
    }
    if is_signed {
        return format!("0n{}", signed(value, size));
    }
    if value >> 32 != 0 { format!("0x{}", target::value::backticked(value)) } else { format!("{value:#x}") }
}

fn pointer_text(target: &dyn Target, to: &TypeRef, size: u64, value: u64) -> String {
    if value == 0 {
        return "(null) ".to_owned();
    }
    let notation = Notation { pointer_size: if size == 4 { 4 } else { 8 } };
    let shown = format!("0x{}", notation.address(value));
    match to {
        TypeRef::Base { name, size: unit @ (1 | 2), .. } if name.to_ascii_lowercase().contains("char") => {
            match string_at(target, value, *unit) {
                Some(text) => format!("{shown}  \"{text}\""),
                None => format!("{shown}  \"--- memory read error at address {shown} ---\""),
            }
        }
        TypeRef::Function { text } => {
            let place = known_place(target, value).unwrap_or_default();
            format!("{shown}     {text}  {place}").trim_end().to_owned()
        }
        _ => format!("{shown} {}", type_text(to)),
    }
}

fn string_at(target: &dyn Target, address: u64, unit: u64) -> Option<String> {
    if unit == 1 {
        return target
            .read_c_string(address, TEXT_LIMIT)
            .map(|bytes| printable(&String::from_utf8_lossy(&bytes)));
    }
    let (bytes, _) = target.read_prefix(address, 2 * TEXT_LIMIT);
    (bytes.len() >= 2).then(|| printable(&utf16(&bytes)))
}

fn utf16(bytes: &[u8]) -> String {
    let units: Vec<u16> = bytes.chunks_exact(2).map(|p| u16::from_le_bytes([p[0], p[1]])).collect();
    let end = units.iter().position(|u| *u == 0).unwrap_or(units.len());
    String::from_utf16_lossy(&units[..end])
}

fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '.' } else { c }).collect()
}

fn array_text(of: &TypeRef, count: u64, bytes: &[u8]) -> String {
    match of {
        TypeRef::Base { name, size: 1, .. } if name.to_ascii_lowercase().contains("char") => {
            let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len()).min(TEXT_LIMIT);
            format!("[{count}]  \"{}\"", printable(&String::from_utf8_lossy(&bytes[..end])))
        }
        TypeRef::Base { name, size: 2, .. } if name.to_ascii_lowercase().contains("char") => {
            let end = bytes.len().min(2 * TEXT_LIMIT);
            format!("[{count}]  \"{}\"", printable(&utf16(&bytes[..end])))
        }
        _ => format!("[{count}] {}", type_text(of)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base(name: &str, size: u64, signed: bool) -> TypeRef {
        TypeRef::Base { name: name.into(), size, signed, float: false }
    }

    #[test]
    fn spelled_types() {
        let pointer = TypeRef::Pointer { to: Box::new(TypeRef::Void), size: 8 };
        assert_eq!(type_text(&pointer), "Ptr64 Void");
        let array = TypeRef::Array { of: Box::new(base("UChar", 1, false)), count: 15, size: 15 };
        assert_eq!(type_text(&array), "[15] UChar");
        assert_eq!(c_type_text(&array), "unsigned char [15]");
        let twice = TypeRef::Pointer { to: Box::new(pointer), size: 8 };
        assert_eq!(c_type_text(&twice), "void **");
        assert_eq!(bits_text((0, 1)), "Pos 0, 1 Bit");
        assert_eq!(bits_text((4, 2)), "Pos 4, 2 Bits");
        let deep = (0..100).fold(TypeRef::Void, |to, _| TypeRef::Pointer { to: Box::new(to), size: 8 });
        assert!(type_text(&deep).ends_with("..."));
    }

    #[test]
    fn values() {
        let target =
            target::scripted::ScriptedTarget::new(target::Machine::X64).with_memory(0x1000, *b"hi\0");
        let text = |ty: &TypeRef, bytes: &[u8]| value_text(&target, ty, bytes);
        assert_eq!(text(&base("Uint4B", 4, false), &[0x10, 0, 0, 0]), "0x10");
        assert_eq!(text(&base("Uint8B", 8, false), &[1, 0, 0, 0, 2, 0, 0, 0]), "0x00000002`00000001");
        assert_eq!(text(&base("Int4B", 4, true), &[0xfb, 0xff, 0xff, 0xff]), "0n-5");
        assert_eq!(text(&base("Char", 1, true), b"A"), "65 'A'");
        assert_eq!(text(&base("UChar", 1, false), &[0]), "0x0 ''");
        assert_eq!(bits_value(&[0b1010_0000], (5, 3)), "0y101");
        assert_eq!(bits_value(&[0xff; 8], (0, 64)), format!("0y{}", "1".repeat(64)));
        let characters = TypeRef::Pointer { to: Box::new(base("Char", 1, true)), size: 8 };
        assert_eq!(text(&characters, &0x1000u64.to_le_bytes()), "0x00000000`00001000  \"hi\"");
        assert_eq!(text(&characters, &[0; 8]), "(null) ");
        let array = TypeRef::Array { of: Box::new(base("UChar", 1, false)), count: 4, size: 4 };
        assert_eq!(text(&array, b"ab\0c"), "[4]  \"ab\"");
    }
}
