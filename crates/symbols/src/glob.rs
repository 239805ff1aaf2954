//! `*` and `?` matching of symbol names.

/// A pattern: `*` is any run, `?` one character, anything else literal in any ASCII case.
#[derive(Clone, Debug)]
pub struct Glob {
    pattern: Vec<u8>,
    /// Underscores a text begins with are passed over.
    any_underscores: bool,
}

impl Glob {
    #[must_use]
    pub fn new(pattern: &str) -> Self {
        Self { pattern: pattern.to_ascii_lowercase().into_bytes(), any_underscores: false }
    }

    /// For names of symbols: an underscore a pattern begins with stands for any number of them, none
    /// included ("String Wildcard Syntax" of the debugger's documentation).
    #[must_use]
    pub fn of_symbol(pattern: &str) -> Self {
        let bare = pattern.trim_start_matches('_');
        Self { any_underscores: bare.len() < pattern.len(), ..Self::new(bare) }
    }

    /// Linear in both lengths times the number of stars: one restart point is enough, because a
    /// later star makes every earlier one irrelevant.
    #[must_use]
    pub fn matches(&self, text: &str) -> bool {
        let text = if self.any_underscores { text.trim_start_matches('_') } else { text };
        let text = text.as_bytes();
        let (mut t, mut p) = (0, 0);
        let mut restart: Option<(usize, usize)> = None;
        while t < text.len() {
            match self.pattern.get(p) {
                Some(b'*') => {
                    restart = Some((p + 1, t));
                    p += 1;
                }
                Some(b'?') => {
                    t = next_char(text, t);
                    p += 1;
                }
                Some(&c) if c == text[t].to_ascii_lowercase() => {
                    t += 1;
                    p += 1;
                }
                _ => match restart {
                    Some((after_star, from)) => {
                        p = after_star;
                        t = from + 1;
                        restart = Some((after_star, t));
                    }
                    None => return false,
                },
            }
        }
        self.pattern[p..].iter().all(|&c| c == b'*')
    }
}

/// One past the UTF-8 character at `at`.
fn next_char(text: &[u8], at: usize) -> usize {
    let mut end = at + 1;
    while text.get(end).is_some_and(|b| b & 0xc0 == 0x80) {
        end += 1;
    }
    end
}

#[cfg(test)]
mod tests {
    use super::Glob;

    #[test]
    fn a_symbols_leading_underscore_is_any_number_of_them() {
        for name in ["_Cxx", "__Cxx", "cxx"] {
            assert!(Glob::of_symbol("_C*").matches(name), "{name}");
        }
        assert!(!Glob::of_symbol("C*").matches("_Cxx"));
        assert!(!Glob::new("_C*").matches("Cxx"));
    }

    #[test]
    fn stars_and_question_marks_match_any_case() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("Nt*File", "ntCreateFile", true),
            ("Nt*File", "NtCreateFileEx", false),
            ("?t*", "NtX", true),
            ("?", "ä", true),
            ("a*b*c", "aXbXbc", true),
            ("a*b*c", "aXcXb", false),
            ("", "", true),
            ("", "x", false),
        ] {
            assert_eq!(Glob::new(pattern).matches(text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn many_stars_do_not_explode() {
        let glob = Glob::new(&"*a".repeat(50));
        assert!(!glob.matches(&"a".repeat(20_000).replace('a', "b")));
    }
}
