//! x64 table entries (Intel SDM volume 3, section 4.5).

use target::Unreadable;

use super::{Entry, Mapping, PAGE_SIZE};

const PRESENT: u64 = 1;
const WRITABLE: u64 = 1 << 1;
const USER: u64 = 1 << 2;
const LARGE: u64 = 1 << 7;
const NO_EXECUTE: u64 = 1 << 63;
/// Frame bits 51:12. Bits above a machine's physical width name memory no dump holds.
const FRAME: u64 = 0x000f_ffff_ffff_f000;

/// Number of levels to walk, if `address` is canonical at that width.
pub(super) fn check_canonical(address: u64, five_levels: bool) -> Result<u32, Unreadable> {
    let (levels, width) = if five_levels { (5, 57) } else { (4, 48) };
    let top = address.cast_signed() >> (width - 1);
    if top == 0 || top == -1 { Ok(levels) } else { Err(Unreadable::NonCanonical) }
}

pub(super) fn decode(raw: u64, level: u32, address: u64) -> Entry {
    if raw & PRESENT == 0 {
        return Entry::Invalid(raw);
    }
    let page_size = match level {
        1 => PAGE_SIZE,
        2 | 3 if raw & LARGE != 0 => PAGE_SIZE << (9 * (level - 1)),
        _ => return Entry::Table(raw & FRAME),
    };
    let frame = raw & FRAME & !(page_size - 1);
    Entry::Page(Mapping {
        physical: frame | (address & (page_size - 1) & !(PAGE_SIZE - 1)),
        page_size,
        transition: false,
        writable: raw & WRITABLE != 0,
        executable: raw & NO_EXECUTE == 0,
        user: raw & USER != 0,
    })
}
