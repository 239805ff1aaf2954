//! ARM64 descriptors, 4 KiB granule (Arm ARM section D8.3). Windows keeps the user and the kernel
//! root in the two halves of one page, so one table indexed by bits 47:39 serves both.

use super::{Entry, Mapping, PAGE_SIZE};

const VALID: u64 = 1;
const TABLE_OR_PAGE: u64 = 1 << 1;
const USER: u64 = 1 << 6;
const READ_ONLY: u64 = 1 << 7;
const PRIVILEGED_NO_EXECUTE: u64 = 1 << 53;
/// Output address bits 47:12; LPA2 is not used.
const FRAME: u64 = 0x0000_ffff_ffff_f000;

/// Strips tags and pointer-authentication bits: bit 55 says which half, and the bits above the
/// 48-bit address repeat it.
pub(super) fn canonical(address: u64) -> u64 {
    if address >> 55 & 1 == 1 { address | 0xffff_0000_0000_0000 } else { address & 0x0000_ffff_ffff_ffff }
}

/// `level` counts as on x64: 4 is the root (ARM's level 0), 1 the leaf (ARM's level 3).
pub(super) fn decode(raw: u64, level: u32, address: u64) -> Entry {
    if raw & VALID == 0 {
        return Entry::Invalid(raw);
    }
    let table = raw & TABLE_OR_PAGE != 0;
    let page_size = match level {
        1 if table => PAGE_SIZE,
        2 | 3 if !table => PAGE_SIZE << (9 * (level - 1)),
        2..=4 if table => return Entry::Table(raw & FRAME),
        _ => return Entry::Invalid(0),
    };
    let frame = raw & FRAME & !(page_size - 1);
    Entry::Page(Mapping {
        physical: frame | (address & (page_size - 1) & !(PAGE_SIZE - 1)),
        page_size,
        transition: false,
        writable: raw & READ_ONLY == 0,
        executable: raw & PRIVILEGED_NO_EXECUTE == 0,
        user: raw & USER != 0,
    })
}
