//! String literals: `??_C@_` names, which carry the literal's size. Linkers put them between
//! functions too, where the code behind one is not the literal's.

/// Bytes of the literal that `name` is the decorated name of, its terminator included; `None` for
/// any other name.
pub(crate) fn literal_size(name: &[u8]) -> Option<u64> {
    let rest = name.strip_prefix(b"??_C@_")?;
    // The kind of character, then the size as the decoration writes numbers: a digit is 1 to 10,
    // else hexadecimal digits from A to P up to an @.
    let (first, digits) = rest.get(1..)?.split_first()?;
    if first.is_ascii_digit() {
        return Some(u64::from(first - b'0') + 1);
    }
    let mut size = hexadecimal(*first)?;
    for &digit in digits {
        if digit == b'@' {
            return Some(size);
        }
        size = size.checked_mul(16)?.checked_add(hexadecimal(digit)?)?;
    }
    None
}

fn hexadecimal(digit: u8) -> Option<u64> {
    (b'A'..=b'P').contains(&digit).then(|| u64::from(digit - b'A'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_literals() {
        assert_eq!(literal_size(b"??_C@_0L@MENOPLJP@partition?$CI@"), Some(11));
        assert_eq!(literal_size(b"??_C@_1BE@BDEKEKBI@?$AAW?$AAI?$AAN?$AA?3@"), Some(0x14));
        assert_eq!(literal_size(b"??_C@_00CNPNBAHC@@"), Some(1));
        assert_eq!(literal_size(b"??_C@_15OHIPBLFN@?$AAS?$AAA@"), Some(6));
        for other in [&b"??_C@_1BE"[..], b"??_C@_", b"??_C@_1", b"??_7Item@@6B@", b"KeBugCheckEx", b""] {
            assert_eq!(literal_size(other), None, "{}", String::from_utf8_lossy(other));
        }
        assert_eq!(literal_size(format!("??_C@_1{}@", "P".repeat(40)).as_bytes()), None);
    }
}
