//! What the four parameters of a bug check mean (spec 60 section 5.2), in our own words.

use crate::bug_check::base_code;
use crate::fast_fail::fast_fail_name;
use crate::heap_failure::heap_failure_name;
use crate::tables::{Table, name_of};

/// Lines `8 hex digits[.P1]|note|note|note|note`; `#` starts a comment. A line with a P1 value is for
/// that value of parameter 1 only.
const NOTES: &str = include_str!("../data/parameter_notes.txt");

/// One note per parameter, `""` where there is nothing to say; `None` for a code without notes.
#[must_use]
pub fn parameter_notes(code: u32, parameters: &[u64; 4]) -> Option<[String; 4]> {
    let base = base_code(code);
    let exact = format!("{base:08x}.{:x}", parameters[0]);
    let plain = format!("{base:08x}");
    let line = line_of(&exact).or_else(|| line_of(&plain))?;
    let mut notes = [const { String::new() }; 4];
    for ((note, raw), &value) in notes.iter_mut().zip(line.split('|')).zip(parameters) {
        *note = fill(raw, value);
    }
    Some(notes)
}

fn line_of(key: &str) -> Option<&'static str> {
    NOTES.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('|'))
}

/// Puts what the value says in place of the marker at the end of a note.
fn fill(raw: &str, value: u64) -> String {
    let Some((text, marker)) = raw.split_once('{') else { return raw.to_owned() };
    let said = match marker.trim_end_matches('}') {
        // Statuses are sign-extended to 64 bits.
        "status" => status_name(value),
        "fastfail" => fast_fail_name(value).map(str::to_owned),
        "heap" => heap_failure_name(value).map(str::to_owned),
        "access" => access(value),
        "access50" => access50(value),
        "trap" => trap(value).map(str::to_owned),
        "whea" => whea(value).map(str::to_owned),
        "region109" => region(value).map(str::to_owned),
        _ => None,
    };
    match said {
        Some(said) => format!("{text}: {said}"),
        None => text.to_owned(),
    }
}

fn status_name(value: u64) -> Option<String> {
    let low = (value & 0xffff_ffff) as u32;
    if value == 0 || !matches!(value >> 32, 0 | 0xffff_ffff) {
        return None;
    }
    name_of(Table::Ntstatus, low).map(str::to_owned)
}

fn access(value: u64) -> Option<String> {
    let said = match value {
        0 => "read",
        1 => "write",
        8 => "execute",
        _ => return None,
    };
    Some(said.to_owned())
}

fn access50(value: u64) -> Option<String> {
    let said = match value {
        0 => "read",
        1 => "write",
        2 | 0x10 => "execute",
        _ => return None,
    };
    Some(said.to_owned())
}

/// Processor exceptions of x86 and x64.
fn trap(value: u64) -> Option<&'static str> {
    Some(match value {
        0 => "divide by zero",
        1 => "single step or debug register",
        3 => "breakpoint",
        4 => "overflow",
        5 => "bounds check",
        6 => "invalid opcode",
        7 => "no floating-point unit",
        8 => "double fault",
        0xa => "invalid task state segment",
        0xb => "segment not present",
        0xc => "stack segment fault",
        0xd => "general protection fault",
        0xe => "page fault",
        0x10 => "floating-point error",
        0x11 => "alignment check",
        0x12 => "machine check",
        0x13 => "SIMD floating-point error",
        0x15 => "control protection fault",
        _ => return None,
    })
}

/// `WHEA_ERROR_SOURCE_TYPE` of the WDK.
fn whea(value: u64) -> Option<&'static str> {
    Some(match value {
        0 => "machine check exception",
        1 => "corrected machine check",
        2 => "corrected platform error",
        3 => "non-maskable interrupt",
        4 => "PCI Express root port error",
        5 => "generic error source",
        6 => "initialisation error",
        7 => "boot error",
        8 => "generic SCI error",
        0xa => "Itanium platform error",
        0x10 => "device driver reported",
        _ => return None,
    })
}

/// Kinds of region that kernel patch protection watches.
fn region(value: u64) -> Option<&'static str> {
    Some(match value {
        0 => "a generic data region",
        1 => "a function or its unwind data was modified",
        2 => "a processor interrupt descriptor table",
        3 => "a processor global descriptor table",
        4 | 5 => "the process list",
        6 => "a debug routine",
        7 => "a critical model-specific register",
        8 => "an object type",
        9 => "a processor interrupt vector table",
        0xa => "a system service function",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANDATORY: &str = "0A 18 19 1A 1E 24 3B 3D 4E 50 51 74 76 77 7A 7B 7E 7F 8E 9C 9F A0 A5 B8 BE C1 C2 C4 \
        C5 C6 C9 CA CE D1 D5 D6 DA E2 E3 EA EF F4 F7 FC FE 101 109 10D 10E 113 116 119 122 124 133 139 13A 13C 144 \
        14F 154 15F 162 164 18B 192 19C 1C8 1CA 1D2 1D5 C000021A DEADDEAD";

    #[test]
    fn every_mandatory_code_has_four_notes() {
        for code in MANDATORY.split_whitespace() {
            let code = u32::from_str_radix(code, 16).unwrap();
            let notes = parameter_notes(code, &[0x1234_5678; 4]).unwrap_or_else(|| panic!("{code:#x}"));
            assert!(notes.iter().all(|n| !n.is_empty() && !n.contains(['{', '}'])), "{code:#x} {notes:?}");
        }
        assert_eq!(parameter_notes(0x0bad_f00d, &[0; 4]), None);
    }

    #[test]
    fn every_line_is_well_formed() {
        for line in NOTES.lines().filter(|l| !l.starts_with('#')) {
            let fields: Vec<&str> = line.split('|').collect();
            assert_eq!(fields.len(), 5, "{line}");
            let (code, p1) = fields[0].split_once('.').unwrap_or((fields[0], "0"));
            let code = u32::from_str_radix(code, 16).unwrap();
            assert!(crate::bug_check_name(code).is_some(), "{line}");
            assert!(u64::from_str_radix(p1, 16).is_ok(), "{line}");
            assert!(line_of(fields[0]).is_some());
        }
    }

    #[test]
    fn the_first_parameter_chooses_and_values_speak() {
        let notes = parameter_notes(0x9f, &[3, 0, 0, 0]).unwrap();
        assert_eq!(notes[0], "a device object has blocked an IRP for too long");
        assert!(notes[2].contains("_TRIAGE_9F_POWER"));
        assert!(parameter_notes(0x9f, &[4, 0, 0, 0]).unwrap()[2].contains("PnP lock"));
        assert!(parameter_notes(0x133, &[1, 0, 0, 0]).unwrap()[0].contains("DISPATCH_LEVEL"));
        let seven_e = parameter_notes(0x1000_007e, &[0xffff_ffff_c000_0005, 0, 0, 0]).unwrap();
        assert_eq!(seven_e[0], "exception code: STATUS_ACCESS_VIOLATION");
        assert_eq!(seven_e[3], "context record");
        assert!(parameter_notes(0x139, &[3, 0, 0, 0]).unwrap()[0].ends_with("CORRUPT_LIST_ENTRY"));
        assert!(parameter_notes(0x13a, &[0x12, 0, 0, 0]).unwrap()[0].ends_with("internal state"));
        assert!(parameter_notes(0xd1, &[0, 2, 8, 0]).unwrap()[2].ends_with(": execute"));
    }
}
