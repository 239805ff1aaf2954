//! Bug-check codes and names (spec 60 section 1.4).

use crate::tables::{Table, name_of};

/// Codes that are complete although they carry modifier bits.
const COMPLETE: [u32; 4] = [0xc000_0218, 0xc000_021a, 0xc000_0221, 0xdead_dead];

/// `code` without the minidump twin's bit (0x10000000) and the context modifier (0x80000000).
///
/// Bits are modifiers only of a code that is one without them: `0xdeadbeef` of a private driver stays
/// as it is.
#[must_use]
pub fn base_code(code: u32) -> u32 {
    let cleared = code & !0x9000_0000;
    let is_code = cleared <= 0xffff || name_of(Table::BugCheck, cleared).is_some();
    if COMPLETE.contains(&code) || !is_code { code } else { cleared }
}

/// The name of a code, else of its base code. `None` is an unknown code, never a guess.
#[must_use]
pub fn bug_check_name(code: u32) -> Option<&'static str> {
    name_of(Table::BugCheck, code).or_else(|| name_of(Table::BugCheck, base_code(code)))
}

/// Whether the code is written for a system that went on running.
#[must_use]
pub fn is_live_dump(code: u32) -> bool {
    base_code(code) == 0x161
        || bug_check_name(code).is_some_and(|n| n.contains("LIVEDUMP") || n.contains("LIVE_DUMP"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modifier_bits() {
        assert_eq!(base_code(0x1000_007e), 0x7e);
        assert_eq!(base_code(0x8000_00ea), 0xea);
        assert_eq!(base_code(0x9000_0050), 0x50);
        assert_eq!(base_code(0xdead_beef), 0xdead_beef);
        assert_eq!(base_code(0x1000_fff0), 0xfff0);
        for complete in COMPLETE {
            assert_eq!(base_code(complete), complete);
        }
    }

    #[test]
    fn names() {
        assert_eq!(bug_check_name(0x1000_007e), Some("SYSTEM_THREAD_EXCEPTION_NOT_HANDLED_M"));
        assert_eq!(bug_check_name(0x1000_009f), Some("DRIVER_POWER_STATE_FAILURE"));
        assert_eq!(bug_check_name(0x71), Some("SESSION5_INITIALIZATION_FAILED"));
        assert_eq!(bug_check_name(0xc000_0218), Some("STATUS_CANNOT_LOAD_REGISTRY_FILE"));
        assert_eq!(bug_check_name(0x58), Some("VOLMGRX_INTERNAL_ERROR"));
        assert_eq!(bug_check_name(0x0bad_f00d), None);
        assert_eq!(bug_check_name(0x8000_0000), None);
        assert!(is_live_dump(0x161) && is_live_dump(0x193) && !is_live_dump(0x7e));
    }
}
