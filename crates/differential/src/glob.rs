//! `*` in the patterns of the table of accepted differences.

/// Whether `text` is what `pattern` says; `*` is any run of characters, nothing else is wild.
pub(crate) fn fits(pattern: &str, text: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut left) = text.strip_prefix(head) else { return false };
    let mut parts = rest.split('*').peekable();
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return left.ends_with(part);
        }
        let Some(at) = left.find(part) else { return false };
        left = &left[at + part.len()..];
    }
    true
}

#[cfg(test)]
mod tests {
    use super::fits;

    #[test]
    fn stars_are_wild_and_brackets_are_not() {
        for (pattern, text) in [
            ("*", ""),
            ("a", "a"),
            ("a*", "abc"),
            ("*c", "abc"),
            ("frames[*].symbol", "frames[12].symbol"),
            ("*a*b*", "xxaxxbxx"),
        ] {
            assert!(fits(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [("a", "b"), ("a*c", "abcd"), ("frames[*].sp", "frames[1].symbol"), ("", "a")]
        {
            assert!(!fits(pattern, text), "{pattern} {text}");
        }
    }
}
