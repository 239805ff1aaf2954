//! Little-endian fields written into byte buffers that grow as needed.

/// Writes `value` at `offset`, growing the buffer.
pub(crate) fn put(bytes: &mut Vec<u8>, offset: usize, value: &[u8]) {
    let end = offset + value.len();
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    bytes[offset..end].copy_from_slice(value);
}
pub(crate) fn put16(bytes: &mut Vec<u8>, offset: usize, value: u16) {
    put(bytes, offset, &value.to_le_bytes());
}
pub(crate) fn put32(bytes: &mut Vec<u8>, offset: usize, value: u32) {
    put(bytes, offset, &value.to_le_bytes());
}
pub(crate) fn put64(bytes: &mut Vec<u8>, offset: usize, value: u64) {
    put(bytes, offset, &value.to_le_bytes());
}

pub(crate) fn utf16(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_le_bytes).collect()
}

/// The low 32 bits: for sizes that fit by construction.
pub(crate) fn low32(value: usize) -> u32 {
    (value & 0xffff_ffff) as u32
}
pub(crate) fn low16(value: u64) -> u16 {
    (value & 0xffff) as u16
}

pub(crate) fn pad_to(bytes: &mut Vec<u8>, unit: usize) {
    bytes.resize(bytes.len().next_multiple_of(unit), 0);
}
