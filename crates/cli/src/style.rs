//! Colour, where a terminal wants it.

use std::io::IsTerminal as _;

/// How text is marked up. Off, it adds nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Style {
    on: bool,
    /// Columns of the terminal, where there is one.
    width: Option<usize>,
}

/// Narrower terminals are not wrapped for.
const NARROWEST: usize = 40;

impl Style {
    #[cfg(test)]
    pub(crate) const PLAIN: Self = Self { on: false, width: None };

    /// Colour on a terminal only, and never where `NO_COLOR` is set (to anything but nothing).
    pub(crate) fn of_stdout() -> Self {
        let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
            || std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let terminal = std::io::stdout().is_terminal();
        let size = console::Term::stdout().size_checked();
        let width = size.map(|(_, columns)| usize::from(columns)).filter(|w| terminal && *w >= NARROWEST);
        Self { on: terminal && !unwanted, width }
    }

    /// The lines of `text` on a terminal whose first `indent` columns are taken. Words, and so paths, stay
    /// whole.
    pub(crate) fn wrapped(self, text: &str, indent: usize) -> Vec<String> {
        let Some(width) = self.width.and_then(|width| width.checked_sub(indent)) else {
            return vec![text.to_owned()];
        };
        let mut lines = vec![String::new()];
        for (index, word) in text.split(' ').enumerate() {
            let Some(line) = lines.last_mut() else { break };
            if index == 0 {
                line.push_str(word);
            } else if line.chars().count() + 1 + word.chars().count() <= width {
                line.push(' ');
                line.push_str(word);
            } else {
                lines.push(word.to_owned());
            }
        }
        lines
    }

    fn wrap(self, code: &str, text: &str) -> String {
        if self.on && !text.is_empty() { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
    pub(crate) fn bold(self, text: &str) -> String {
        self.wrap("1", text)
    }
    pub(crate) fn dim(self, text: &str) -> String {
        self.wrap("2", text)
    }
    pub(crate) fn red(self, text: &str) -> String {
        self.wrap("1;31", text)
    }
    pub(crate) fn yellow(self, text: &str) -> String {
        self.wrap("33", text)
    }
    pub(crate) fn green(self, text: &str) -> String {
        self.wrap("32", text)
    }
    pub(crate) fn cyan(self, text: &str) -> String {
        self.wrap("36", text)
    }
}

/// Text of a dump made safe for a terminal: characters that act become dots.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|c| if target::acts(c) { '.' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_from_a_dump_cannot_drive_the_terminal() {
        assert_eq!(plain("a\x1b[2Jb\u{9b}c"), "a.[2Jb.c");
        assert_eq!(plain("a\u{202e}sys.b\u{e0041}"), "a.sys.b.");
        let narrow = Style { on: false, width: Some(20) };
        assert_eq!(narrow.wrapped("a long sentence of words", 8), ["a long", "sentence of", "words"]);
        assert_eq!(
            narrow.wrapped("at C:\\a\\very\\long\\path.exe", 8),
            ["at", "C:\\a\\very\\long\\path.exe"]
        );
        assert_eq!(Style::PLAIN.wrapped("a long sentence of words", 8).len(), 1);
        assert_eq!(Style::PLAIN.red("x"), "x");
        assert_eq!(Style { on: true, width: None }.red("x"), "\x1b[1;31mx\x1b[0m");
    }
}
