//! What the engine printed during a run: the only copy, bounded.

/// Bytes one answer carries.
const LIMIT: usize = 256 * 1024;

/// Keeps the head and the tail of what is printed; the middle of too much is counted.
#[derive(Debug, Default)]
pub(crate) struct Output {
    head: String,
    tail: String,
    omitted: usize,
}

impl Output {
    pub(crate) fn push(&mut self, text: &str) {
        let room = (LIMIT / 2).saturating_sub(self.head.len());
        let cut = if self.tail.is_empty() { floor(text, room) } else { 0 };
        self.head.push_str(&text[..cut]);
        self.tail.push_str(&text[cut..]);
        let excess = self.tail.len().saturating_sub(LIMIT / 2);
        let excess = (excess..=self.tail.len()).find(|&i| self.tail.is_char_boundary(i)).unwrap_or(0);
        self.tail.drain(..excess);
        self.omitted += excess;
    }

    /// A line of the debugger's own.
    pub(crate) fn note(&mut self, text: &str) {
        let last = if self.tail.is_empty() { &self.head } else { &self.tail };
        let line_break = if last.is_empty() || last.ends_with('\n') { "" } else { "\n" };
        self.push(&format!("{line_break}[{text}]\n"));
    }

    pub(crate) fn finish(self) -> String {
        if self.omitted == 0 {
            return self.head + &self.tail;
        }
        format!("{}\n[... {} bytes left out ...]\n{}", self.head, self.omitted, self.tail)
    }
}

/// The last character boundary at or before `at`.
fn floor(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|&i| text.is_char_boundary(i)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_and_tail_are_kept_and_the_gap_is_counted() {
        let mut output = Output::default();
        output.push("start é");
        for _ in 0..300 {
            output.push(&"é".repeat(1000));
        }
        output.note("end");
        let text = output.finish();
        assert!(text.starts_with("start é") && text.ends_with("\n[end]\n"));
        assert!(text.len() < LIMIT + 100 && text.contains("bytes left out"), "{}", text.len());
    }

    #[test]
    fn little_is_kept_as_it_is() {
        let mut output = Output::default();
        output.push("a\n");
        output.push("b");
        output.note("c");
        assert_eq!(output.finish(), "a\nb\n[c]\n");
    }
}
