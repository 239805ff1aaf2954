//! A status value as people write one.

use crate::tables::{Table, code_of_name};

/// Why a text is no status value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodeError {
    #[error("no status code given; pass a number (0xC0000005, -2147024891) or a name (E_FAIL)")]
    Empty,
    #[error(
        "{0} is wider than a 32-bit status code; only a zero upper half or the sign extension \
         0xFFFFFFFF of a negative code is accepted"
    )]
    TooWide(String),
    #[error(
        "\"{0}\" is neither a number nor a known HRESULT, NTSTATUS or Win32 name; write hex with 0x \
         (0x80070005), decimal (-2147024891) or a name as in the SDK (STATUS_ACCESS_VIOLATION)"
    )]
    Unknown(String),
}

/// Narrows a 64-bit reading: the upper half must be zero or the sign extension of bit 31.
fn narrow(value: u64, text: &str) -> Result<u32, CodeError> {
    let low = (value & 0xffff_ffff) as u32;
    match value >> 32 {
        0 => Ok(low),
        0xffff_ffff if low & 0x8000_0000 != 0 => Ok(low),
        _ => Err(CodeError::TooWide(text.to_owned())),
    }
}

/// `0x` or backtick hex, eight or more bare hex digits, decimal, negative decimal, or a symbolic name.
pub fn parse_code(text: &str) -> Result<u32, CodeError> {
    let text = text.trim();
    if text.is_empty() {
        return Err(CodeError::Empty);
    }
    let lower = text.to_ascii_lowercase();
    let prefixed = lower.strip_prefix("0x");
    if prefixed.is_some() || lower.contains('`') {
        let digits: String = prefixed.unwrap_or(&lower).chars().filter(|&c| c != '`').collect();
        return hex(&digits, text);
    }
    if let Some(decimal) = lower.strip_prefix("0n") {
        return decimal.parse::<i128>().map_or_else(|_| unknown(text), |v| integer(v, text));
    }
    if let Some(digits) = lower.strip_prefix('-') {
        return match digits.parse::<i128>() {
            Ok(value) => integer(-value, text),
            Err(_) => unknown(text),
        };
    }
    if lower.len() >= 8 && lower.bytes().all(|b| b.is_ascii_hexdigit()) {
        // Ten decimal digits (2147942405) are no 32-bit hex number but a decimal one.
        return hex(&lower, text).or_else(|error| match lower.parse::<u32>() {
            Ok(value) => Ok(value),
            Err(_) => Err(error),
        });
    }
    if lower.bytes().all(|b| b.is_ascii_digit()) {
        return lower.parse::<i128>().map_or_else(|_| unknown(text), |v| integer(v, text));
    }
    [Table::Hresult, Table::Ntstatus, Table::Win32, Table::Cor]
        .into_iter()
        .find_map(|table| code_of_name(table, text))
        .map_or_else(|| unknown(text), Ok)
}

/// A status given as a number, sign-extended ones included.
pub fn parse_integer(value: i64) -> Result<u32, CodeError> {
    narrow(value.cast_unsigned(), &value.to_string())
}

fn unknown(text: &str) -> Result<u32, CodeError> {
    Err(CodeError::Unknown(text.chars().take(80).collect()))
}

fn hex(digits: &str, text: &str) -> Result<u32, CodeError> {
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return unknown(text);
    }
    match u64::from_str_radix(digits, 16) {
        Ok(value) => narrow(value, text),
        Err(_) => Err(CodeError::TooWide(text.chars().take(80).collect())),
    }
}

fn integer(value: i128, text: &str) -> Result<u32, CodeError> {
    if let Ok(unsigned) = u64::try_from(value) {
        return narrow(unsigned, text);
    }
    match i64::try_from(value) {
        Ok(signed) => narrow(signed.cast_unsigned(), text),
        Err(_) => Err(CodeError::TooWide(text.chars().take(80).collect())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings() {
        for (text, value) in [
            ("0x80070005", 0x8007_0005),
            ("0xffffffff8000ffff", 0x8000_ffff),
            ("ffffffff`8000ffff", 0x8000_ffff),
            ("00000000`c0000005", 0xc000_0005),
            ("c0000005", 0xc000_0005),
            ("80070005", 0x8007_0005),
            ("-2147024891", 0x8007_0005),
            ("2147942405", 0x8007_0005),
            ("5", 5),
            ("0n10054", 10054),
            ("1722", 1722),
            ("E_FAIL", 0x8000_4005),
            ("status_access_violation", 0xc000_0005),
            ("ERROR_ACCESS_DENIED", 5),
            ("COR_E_NULLREFERENCE", 0x8000_4003),
            (" RPC_S_SERVER_UNAVAILABLE ", 1722),
        ] {
            assert_eq!(parse_code(text), Ok(value), "{text}");
        }
    }

    #[test]
    fn refusals() {
        assert!(matches!(parse_code("0x1234567890"), Err(CodeError::TooWide(_))));
        assert!(matches!(parse_code("0xffffffff00000005"), Err(CodeError::TooWide(_))));
        assert!(matches!(parse_code("-99999999999999999999999"), Err(CodeError::TooWide(_))));
        assert!(matches!(parse_code("-5000000000"), Err(CodeError::TooWide(_))));
        for text in ["E_NOT_A_NAME", "0x", "0xzz", "`", "-", "1.5", "0n", "E_FAIL E_ABORT", "é"] {
            assert!(matches!(parse_code(text), Err(CodeError::Unknown(_))), "{text}");
        }
        assert_eq!(parse_code("  "), Err(CodeError::Empty));
        assert_eq!(parse_integer(-2_147_024_891), Ok(0x8007_0005));
        assert!(parse_integer(i64::MIN).is_err());
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(256))]
        #[test]
        fn never_panics_and_round_trips(text in "\\PC{0,40}", value: u32) {
            let _ = parse_code(&text);
            proptest::prop_assert_eq!(parse_code(&format!("{value:#x}")), Ok(value));
            proptest::prop_assert_eq!(parse_code(&format!("0n{}", value.cast_signed())), Ok(value));
        }
    }
}
