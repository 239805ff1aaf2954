//! Colour, where a terminal wants it.

use std::io::IsTerminal as _;

/// How text is marked up. Off, it adds nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Style {
    on: bool,
}

impl Style {
    #[cfg(test)]
    pub(crate) const PLAIN: Self = Self { on: false };

    /// Colour on a terminal only, and never where `NO_COLOR` is set (to anything but nothing).
    pub(crate) fn of_stdout() -> Self {
        let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
            || std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self { on: std::io::stdout().is_terminal() && !unwanted }
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

/// Text of a dump made safe for a terminal: control characters become dots.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '.' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_from_a_dump_cannot_drive_the_terminal() {
        assert_eq!(plain("a\x1b[2Jb\u{9b}c"), "a.[2Jb.c");
        assert_eq!(Style::PLAIN.red("x"), "x");
        assert_eq!(Style { on: true }.red("x"), "\x1b[1;31mx\x1b[0m");
    }
}
