//! Rows of bytes and numbers as `d` prints them.

/// A little-endian number of the bytes, if all were readable.
pub(crate) fn number(bytes: &[Option<u8>]) -> Option<u64> {
    bytes.iter().rev().try_fold(0u64, |value, byte| Some(value << 8 | u64::from((*byte)?)))
}

/// A byte as text panes show it.
pub(crate) fn printable(byte: u8) -> char {
    if (0x20..0x7f).contains(&byte) { char::from(byte) } else { '.' }
}

/// ``4d 5a 90 00 03 00 00 00-04 00 00 00 ff ff 00 00  MZ..............``.
pub(crate) fn bytes_row(bytes: &[Option<u8>]) -> String {
    let mut row = String::new();
    for (index, byte) in bytes.iter().enumerate() {
        if index > 0 {
            row.push(if index == 8 { '-' } else { ' ' });
        }
        match byte {
            Some(byte) => row.push_str(&format!("{byte:02x}")),
            None => row.push_str("??"),
        }
    }
    let text: String = bytes.iter().map(|b| b.map_or('?', printable)).collect();
    format!("{row:<47}  {text}")
}

/// One number of `size` bytes; eight-byte ones with the backtick.
pub(crate) fn one_number(value: Option<u64>, size: usize) -> String {
    match (value, size) {
        (Some(value), 8) => target::value::backticked(value),
        (Some(value), _) => format!("{value:0width$x}", width = 2 * size),
        (None, 8) => "????????`????????".to_owned(),
        (None, _) => "?".repeat(2 * size),
    }
}

pub(crate) fn numbers_row(units: &[Option<u64>], size: usize) -> String {
    let cells: Vec<String> = units.iter().map(|u| one_number(*u, size)).collect();
    cells.join(" ")
}

/// Characters of a string, unprintable ones as dots.
pub(crate) fn characters(units: &[Option<u64>]) -> String {
    units
        .iter()
        .map(|unit| {
            let c = unit.and_then(|u| u32::try_from(u).ok()).and_then(char::from_u32).unwrap_or('.');
            if c.is_control() { '.' } else { c }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows() {
        let bytes: Vec<Option<u8>> = (0x40..0x50).map(Some).collect();
        assert_eq!(bytes_row(&bytes), "40 41 42 43 44 45 46 47-48 49 4a 4b 4c 4d 4e 4f  @ABCDEFGHIJKLMNO");
        assert_eq!(bytes_row(&[Some(1), None]), format!("{:<47}  .?", "01 ??"));
        assert_eq!(number(&bytes[..4]), Some(0x4342_4140));
        assert_eq!(number(&[Some(1), None]), None);
        assert_eq!(numbers_row(&[Some(1), None], 8), "00000000`00000001 ????????`????????");
        assert_eq!(characters(&[Some(0x41), Some(7), Some(0xe9), Some(0xd800)]), "A.é.");
    }
}
