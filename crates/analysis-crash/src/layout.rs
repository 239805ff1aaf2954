//! Offsets of kernel structures: from the target's own types where there are any.

use target::{MemoryExt as _, Target};

/// Offset of `field` in `nt!type_name`, if types are loaded.
pub(crate) fn offset(target: &dyn Target, type_name: &str, field: &str) -> Option<u64> {
    let layout = target.type_layout(&format!("nt!{type_name}")).ok()?;
    layout.fields.iter().find(|f| f.name == field).map(|f| f.offset)
}

/// A pointer-sized read that loses only itself.
pub(crate) fn pointer(target: &dyn Target, address: u64) -> Option<u64> {
    target.read_pointer(address, target.facts().machine.pointer_size()).ok()
}

/// Text up to a NUL: printable ASCII or UTF-8 only, at least one character.
pub(crate) fn c_text(target: &dyn Target, address: u64, limit: usize) -> Option<String> {
    let bytes = target.read_c_string(address, limit)?;
    printable(&bytes)
}

/// Valid UTF-8, or printable ANSI read as Latin-1, without control characters.
pub(crate) fn printable(bytes: &[u8]) -> Option<String> {
    if bytes.is_empty() {
        return None;
    }
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => bytes.iter().map(|&b| char::from(b)).collect(),
    };
    text.chars().all(|c| !c.is_control() || matches!(c, '\n' | '\r' | '\t')).then_some(text)
}

/// NUL-terminated UTF-16, at most `limit` bytes.
pub(crate) fn wide_text(target: &dyn Target, address: u64, limit: usize) -> Option<String> {
    if address == 0 {
        return None;
    }
    let (bytes, _) = target.read_prefix(address, limit & !1);
    let units: Vec<u16> = bytes
        .chunks_exact(2)
        .map(|p| u16::from_le_bytes([p[0], p[1]]))
        .take_while(|&unit| unit != 0)
        .collect();
    if units.is_empty() {
        return None;
    }
    let text = String::from_utf16(&units).ok()?;
    text.chars().all(|c| !c.is_control() || matches!(c, '\n' | '\r' | '\t')).then_some(text)
}

/// The four characters of a pool tag, others than printable ASCII as `.`.
pub(crate) fn tag_text(tag: u32) -> String {
    tag.to_le_bytes().iter().map(|&b| if (0x20..0x7f).contains(&b) { char::from(b) } else { '.' }).collect()
}
