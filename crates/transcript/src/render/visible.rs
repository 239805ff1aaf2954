//! Text that shows what it is and does nothing.

use std::borrow::Cow;

/// Characters that move a cursor, end a line or turn a text around.
fn acts(c: char) -> bool {
    !matches!(c, '\n' | '\t') && target::acts(c)
}

/// `text` with every acting character as a visible escape: `^[`, `^?`, `<U+2028>`. Line ends are
/// plain ones.
pub(super) fn visible(text: &str) -> Cow<'_, str> {
    if !text.contains(acts) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.replace("\r\n", "\n").chars() {
        match c {
            _ if !acts(c) => out.push(c),
            '\u{0}'..='\u{1f}' => {
                out.push('^');
                // Caret notation: the letter 64 further on.
                out.extend(char::from_u32(u32::from(c) + 64));
            }
            '\u{7f}' => out.push_str("^?"),
            c => out.push_str(&format!("<U+{:04X}>", u32::from(c))),
        }
    }
    Cow::Owned(out)
}

/// The same on one line, cut to `most` characters.
pub(super) fn one_line(text: &str, most: usize) -> String {
    let words = visible(text)
        .split(['\n', '\t'])
        .filter(|part| !part.trim().is_empty())
        .collect::<Vec<_>>()
        .join(" ");
    if words.chars().count() <= most {
        return words;
    }
    let mut cut: String = words.chars().take(most.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acting_characters_are_shown() {
        let text = "a\u{1b}]52;c;x\u{7}\r\nb\r\u{7f}\u{9b}1m\u{2028}\u{202e}\u{2066}\tc";
        assert_eq!(visible(text), "a^[]52;c;x^G\nb^M^?<U+009B>1m<U+2028><U+202E><U+2066>\tc");
        assert!(matches!(visible("plain\n\té"), Cow::Borrowed(_)));
    }

    #[test]
    fn one_line_is_one_line() {
        assert_eq!(one_line("a\n\n b\tc", 80), "a  b c");
        assert_eq!(one_line("abcdef", 4), "abc…");
    }

    proptest::proptest! {
        #[test]
        fn nothing_acting_survives(text in "\\PC{0,40}[\\x00-\\x1f\\x7f-\\u{9f}\\u{2028}-\\u{202e}\\u{2066}-\\u{2069}]{0,9}.{0,9}") {
            proptest::prop_assert!(!visible(&text).contains(acts));
            proptest::prop_assert!(!one_line(&text, 20).contains(['\n', '\t']));
        }
    }
}
