//! Numbers in fields documented as addresses (spec 00 decision 6): what can be read two ways is
//! refused with both readings.

use crate::token::{self, Number};

/// Why a token is no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    #[error(
        "'{text}' can be read as 0x{hex:x} or as decimal {decimal} (0x{decimal:x}): write 0x{text} or 0n{text}"
    )]
    Ambiguous { text: String, hex: u64, decimal: u64 },
    #[error("'{text}' does not fit 64 bits")]
    TooLarge { text: String },
    /// Not a number at all; an expression, perhaps.
    #[error("'{text}' is not a number: write an address as 0x and hexadecimal digits")]
    NotANumber { text: String },
}

impl From<AddressError> for target::TargetError {
    fn from(error: AddressError) -> Self {
        Self::InvalidArgument(error.to_string())
    }
}

/// Reads `0x1f`, `0n31`, `0t37`, `0y1`, ``fffff804`7ba00000``, `deadbeef`, `1fh`. Digits only are
/// refused unless both readings are the same number.
pub fn parse_address(text: &str) -> Result<u64, AddressError> {
    let word = text.trim();
    match token::number(word) {
        Number::Not => Err(AddressError::NotANumber { text: word.to_owned() }),
        Number::TooLarge => Err(AddressError::TooLarge { text: word.to_owned() }),
        Number::Value(hex) => {
            // Digits that overflow as decimal have one reading left.
            let decimal =
                word.bytes().all(|b| b.is_ascii_digit()).then(|| word.parse::<u64>().ok()).flatten();
            match decimal {
                Some(decimal) if decimal != hex => {
                    Err(AddressError::Ambiguous { text: word.to_owned(), hex, decimal })
                }
                _ => Ok(hex),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_reading_or_none() {
        for (text, value) in [
            ("0x1000", 0x1000),
            (" 0n4096 ", 4096),
            ("fffff804`7ba00000", 0xffff_f804_7ba0_0000),
            ("00000000`00401000", 0x40_1000),
            ("deadbeef", 0xdead_beef),
            ("1000h", 0x1000),
            ("7", 7),
            ("0", 0),
            ("007", 7),
        ] {
            assert_eq!(parse_address(text), Ok(value), "{text}");
        }
        let error = parse_address("1000").unwrap_err();
        assert_eq!(
            error.to_string(),
            "'1000' can be read as 0x1000 or as decimal 1000 (0x3e8): write 0x1000 or 0n1000"
        );
        assert!(matches!(parse_address("rip"), Err(AddressError::NotANumber { .. })));
        assert!(matches!(parse_address(""), Err(AddressError::NotANumber { .. })));
        assert!(matches!(parse_address("0x1ffffffffffffffff"), Err(AddressError::TooLarge { .. })));
    }
}
