//! Words of an expression: numbers in radix 16 with the debugger's prefixes, and how far a symbol
//! name reaches (`module!ns::type<int>::operator[]`).

/// How a word reads as a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Number {
    Value(u64),
    TooLarge,
    Not,
}

/// Reads a whole word in radix 16: `1f`, `0x1f`, `0n31`, `0t37`, `0y11111`, `1fh`, ``fffff804`7ba00000``.
pub(crate) fn number(word: &str) -> Number {
    let lower = word.to_ascii_lowercase();
    let (digits, radix) = match lower.get(..2) {
        Some("0x") => (&lower[2..], 16),
        Some("0n") => (&lower[2..], 10),
        Some("0t") => (&lower[2..], 8),
        Some("0y") => (&lower[2..], 2),
        _ => match lower.strip_suffix('h') {
            Some(digits) => (digits, 16),
            None => (lower.as_str(), 16),
        },
    };
    if digits.is_empty() || digits.starts_with('`') || digits.ends_with('`') {
        return Number::Not;
    }
    let mut value: u64 = 0;
    let mut large = false;
    for c in digits.chars().filter(|&c| c != '`') {
        let Some(digit) = c.to_digit(radix) else { return Number::Not };
        match value.checked_mul(u64::from(radix)).and_then(|v| v.checked_add(u64::from(digit))) {
            Some(next) => value = next,
            None => large = true,
        }
    }
    if large { Number::TooLarge } else { Number::Value(value) }
}

pub(crate) fn is_word(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '$' | '?' | '`')
}

/// End of the plain word at the start of `text`.
pub(crate) fn word_end(text: &str) -> usize {
    text.find(|c| !is_word(c)).unwrap_or(text.len())
}

/// Ends a symbol name at the start of `text` may have, shortest first. Longer ones take in template
/// arguments, which could also be comparisons: the caller tries the longest that resolves.
pub(crate) fn symbol_ends(text: &str) -> Vec<usize> {
    const CANDIDATES: usize = 8;
    let mut ends = Vec::new();
    let mut at = plain_end(text, 0);
    ends.push(at);
    while ends.len() < CANDIDATES {
        let Some(next) = template_end(text, at).or_else(|| operator_end(text, at)) else { break };
        at = plain_end(text, next);
        ends.push(at);
    }
    ends
}

/// From `at` over word characters, `!`, `::`, `~` after those, `.` inside, and `` `...' `` groups.
fn plain_end(text: &str, mut at: usize) -> usize {
    let bytes = text.as_bytes();
    while at < text.len() {
        let rest = &text[at..];
        let after_break = at > 0 && matches!(bytes[at - 1], b'!' | b':');
        if rest.starts_with("!=") {
            break;
        } else if rest.starts_with('!') || (rest.starts_with('~') && after_break) {
            at += 1;
        } else if rest.starts_with("::") {
            at += 2;
        } else if rest.starts_with('`') {
            match rest.find('\'') {
                Some(close) => at += close + 1,
                None => at += 1,
            }
        } else if rest.starts_with('.') && rest[1..].starts_with(is_word) && at > 0 {
            at += 1;
        } else if let Some(c) = rest.chars().next().filter(|&c| is_word(c) || (c == '@' && at > 0)) {
            at += c.len_utf8();
        } else {
            break;
        }
    }
    at
}

/// End of balanced `<...>` at `at`.
fn template_end(text: &str, at: usize) -> Option<usize> {
    let rest = &text[at..];
    if !rest.starts_with('<') {
        return None;
    }
    let mut depth = 0usize;
    for (index, c) in rest.char_indices() {
        match c {
            '<' => depth += 1,
            '>' => {
                depth -= 1;
                if depth == 0 {
                    return Some(at + index + 1);
                }
            }
            _ if is_word(c)
                || matches!(c, ' ' | ',' | ':' | '*' | '&' | '(' | ')' | '[' | ']' | '\'' | '-' | '.') => {}
            _ => return None,
        }
    }
    None
}

/// End of the operator characters after the word `operator`.
fn operator_end(text: &str, at: usize) -> Option<usize> {
    const OPERATORS: [&str; 38] = [
        "()", "[]", "<<=", ">>=", "<=>", "->*", "->", "<<", ">>", "<=", ">=", "==", "!=", "&&", "||", "++",
        "--", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "+", "-", "*", "/", "%", "&", "|", "^", "~",
        "!", "<", ">", "=",
    ];
    if !text[..at].ends_with("operator") {
        return None;
    }
    OPERATORS.iter().find(|op| text[at..].starts_with(**op)).map(|op| at + op.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_radix_16() {
        for (word, value) in [
            ("10", 0x10),
            ("0x10", 0x10),
            ("0n10", 10),
            ("0t17", 0o17),
            ("0y101", 5),
            ("ffh", 0xff),
            ("DeadBeef", 0xdead_beef),
            ("fffff804`7ba00000", 0xffff_f804_7ba0_0000),
            ("0xffffffffffffffff", u64::MAX),
        ] {
            assert_eq!(number(word), Number::Value(value), "{word}");
        }
        for word in ["", "0x", "0n", "0n1a", "0y2", "h", "xyz", "`1", "1`", "0x`", "add_"] {
            assert_eq!(number(word), Number::Not, "{word}");
        }
        assert_eq!(number("1ffffffffffffffff"), Number::TooLarge);
        assert_eq!(number("0n18446744073709551616"), Number::TooLarge);
    }

    #[test]
    fn how_far_a_symbol_reaches() {
        let longest = |text: &str| symbol_ends(text).last().map(|&e| text[..e].to_owned()).unwrap();
        assert_eq!(longest("nt!KeBugCheckEx+0x14"), "nt!KeBugCheckEx");
        assert_eq!(longest("a!b::~c)"), "a!b::~c");
        assert_eq!(
            longest("m!std::vector<int,std::allocator<int> >::operator[]+8"),
            "m!std::vector<int,std::allocator<int> >::operator[]"
        );
        assert_eq!(longest("m!`anonymous namespace'::f - 1"), "m!`anonymous namespace'::f");
        assert_eq!(longest("m!operator<<(x"), "m!operator<<");
        assert_eq!(longest("a!b!=3"), "a!b");
        assert_eq!(longest("m!?A0xc3a0617d::crash"), "m!?A0xc3a0617d::crash");
        assert_eq!(symbol_ends("m!x<5").len(), 1);
    }
}
