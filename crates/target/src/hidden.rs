//! Characters that do something to a text in place of being seen in it.

/// Whether `c` moves a cursor, ends a line, turns the text around it or is read without being shown:
/// control characters, separators, bidirectional formatting and tags. Line feed and tab are among them.
#[must_use]
pub fn acts(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{61c}'
                | '\u{200e}'
                | '\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2066}'..='\u{2069}'
                | '\u{e0000}'..='\u{e007f}'
        )
}
