//! Message texts in our own short words, for the codes people meet; names alone do for the rest.

use crate::tables::find_line;

/// Sorted lines `8 hex digits text`.
const NTSTATUS: &str = include_str!("../data/messages_ntstatus.txt");
const SYSTEM: &str = include_str!("../data/messages_system.txt");

fn exact(text: &'static str, code: u32) -> Option<&'static str> {
    find_line(text, &format!("{code:08x}"))
}

/// NTSTATUS text: exact, then with the N bit (28) cleared.
pub(crate) fn ntstatus_message(code: u32) -> Option<&'static str> {
    exact(NTSTATUS, code).or_else(|| exact(NTSTATUS, code & !0x1000_0000))
}

/// HRESULT or Win32 text: the exact entry, then of facility 7 the Win32 entry of the low word.
pub(crate) fn system_message(code: u32) -> Option<&'static str> {
    exact(SYSTEM, code)
        .or_else(|| (code & 0xffff_0000 == 0x8007_0000).then(|| exact(SYSTEM, code & 0xffff)).flatten())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::{Table, names_of};

    /// A text without a name of the same value is a typing error in the file.
    #[test]
    fn files_are_sorted_and_every_code_has_a_name() {
        for (text, tables) in
            [(NTSTATUS, &[Table::Ntstatus][..]), (SYSTEM, &[Table::Hresult, Table::Win32, Table::Cor][..])]
        {
            let mut before = "";
            for line in text.lines() {
                let (value, message) = line.split_once(' ').unwrap();
                assert!(value > before, "{line}");
                assert!(message.ends_with(['.', '?', '!']), "{line}");
                assert!(!message.contains("  "), "{line}");
                let code = u32::from_str_radix(value, 16).unwrap();
                assert_eq!(value.len(), 8);
                assert!(tables.iter().any(|&t| !names_of(t, code).is_empty()), "{line}");
                before = value;
            }
        }
    }

    #[test]
    fn lookup_order() {
        assert_eq!(system_message(0x8007_0005), system_message(5));
        assert_eq!(ntstatus_message(0xd000_0022), ntstatus_message(0xc000_0022));
        assert_eq!(system_message(0x1234_5678), None);
    }
}
