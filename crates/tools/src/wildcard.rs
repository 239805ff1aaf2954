//! The name filter of lists: `*` any run, `?` one character, everything else literal, any case.

/// A filter as it is applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wildcard {
    pattern: Vec<char>,
}

impl Wildcard {
    /// A pattern without `*` or `?` matches anywhere in the name.
    #[must_use]
    pub fn new(text: &str) -> Self {
        let text = text.trim();
        let whole = if text.contains(['*', '?']) { text.to_owned() } else { format!("*{text}*") };
        Self { pattern: whole.chars().collect() }
    }

    /// The pattern in full.
    #[must_use]
    pub fn as_text(&self) -> String {
        self.pattern.iter().collect()
    }

    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        let name: Vec<char> = name.chars().collect();
        let (mut p, mut n) = (0, 0);
        // Where to go back to: the last `*` and the name position it is tried from.
        let mut retry: Option<(usize, usize)> = None;
        while n < name.len() {
            match self.pattern.get(p) {
                Some('*') => {
                    retry = Some((p + 1, n));
                    p += 1;
                }
                Some(&c) if c == '?' || same(c, name[n]) => {
                    p += 1;
                    n += 1;
                }
                _ => match retry {
                    Some((after, from)) => {
                        retry = Some((after, from + 1));
                        p = after;
                        n = from + 1;
                    }
                    None => return false,
                },
            }
        }
        self.pattern[p..].iter().all(|&c| c == '*')
    }
}

/// Equal in either case fold: some letters agree in only one of them.
fn same(a: char, b: char) -> bool {
    a == b || a.to_lowercase().eq(b.to_lowercase()) || a.to_uppercase().eq(b.to_uppercase())
}

#[cfg(test)]
mod tests {
    use super::Wildcard;

    #[test]
    fn grammar() {
        let matches = |pattern, name| Wildcard::new(pattern).matches(name);
        assert!(matches("nt", "WiNTdll"));
        assert!(matches("nt*", "NTFS") && !matches("nt*", "intel"));
        assert!(matches("?t", "nt") && !matches("?t", "ant"));
        assert!(matches("*", ""));
        assert!(matches("[n]t", "a[N]t") && !matches("[n]t", "nt"));
        assert!(matches("*a*b?c*", "xxaxxbzcxx") && !matches("a*b", "acc"));
    }
}
