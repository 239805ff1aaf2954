//! What the target prints, kept until somebody takes it.

/// Bytes kept; older ones go first.
const MOST: usize = 1 << 20;
/// Of a text that a target wanted to have run.
const MOST_COMMAND: usize = 4 << 10;

#[derive(Debug, Default)]
pub(crate) struct Output {
    text: String,
    lost: bool,
}

impl Output {
    /// Text in the target's code page: UTF-8 where it is that, else one character a byte.
    pub(crate) fn print(&mut self, bytes: &[u8]) {
        match std::str::from_utf8(bytes) {
            Ok(text) => self.push(text),
            Err(_) => self.push(&bytes.iter().map(|&b| char::from(b)).collect::<String>()),
        }
    }

    /// A line of ours.
    pub(crate) fn note(&mut self, text: &str) {
        if !self.text.is_empty() && !self.text.ends_with('\n') {
            self.text.push('\n');
        }
        self.push(text);
        self.text.push('\n');
    }

    /// A command the target wanted run on this machine, which it is not.
    pub(crate) fn refused_command(&mut self, command: &[u8]) {
        let shown: String = command.iter().take(MOST_COMMAND).map(|&b| char::from(b)).collect();
        self.note(&format!(
            "the target asks its debugger to run this, which was not done: {}",
            shown.escape_debug()
        ));
    }

    fn push(&mut self, text: &str) {
        self.text.push_str(text);
        if self.text.len() > MOST {
            let cut = self.text.len() - MOST;
            let cut = (cut..=self.text.len()).find(|&at| self.text.is_char_boundary(at)).unwrap_or(0);
            self.text.drain(..cut);
            self.lost = true;
        }
    }

    pub(crate) fn take(&mut self) -> String {
        let text = std::mem::take(&mut self.text);
        if std::mem::take(&mut self.lost) { format!("(older output was dropped)\n{text}") } else { text }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_bounded_and_said() {
        let mut output = Output::default();
        for _ in 0..2000 {
            output.print("\u{e4}".repeat(999).as_bytes());
        }
        let text = output.take();
        assert!(text.len() <= MOST + 64, "{}", text.len());
        assert!(text.starts_with("(older output was dropped)"));
        assert_eq!(output.take(), "");
    }

    #[test]
    fn bytes_of_another_code_page_are_shown_one_by_one() {
        let mut output = Output::default();
        output.print(b"caf\xe9");
        output.refused_command(b".shell\ndel");
        assert_eq!(
            output.take(),
            "caf\u{e9}\nthe target asks its debugger to run this, which was not done: .shell\\ndel\n"
        );
    }
}
