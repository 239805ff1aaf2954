//! The filter of a `--redact` file: finds, numbers, replaces, counts.

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::io::Read as _;
use std::ops::Range;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use crate::counts::Counts;
use crate::hints;
use crate::rules::{self, BadRules, Matcher, Rule};
use crate::sets::BUILTINS;

/// Distinct values that are told apart; those beyond share the number 0.
const NUMBERED: usize = 1 << 20;

/// A file's rules and what they found so far in this run.
pub struct Filter {
    rules: Vec<Rule>,
    hasher: RandomState,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Number of a value, by rule and hash: values themselves are not kept.
    numbers: HashMap<(usize, u64), u32>,
    /// Numbers given, by rule.
    given: Vec<u32>,
    totals: Vec<u64>,
}

impl std::fmt::Debug for Filter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.rules.iter().map(|rule| &rule.name)).finish()
    }
}

impl Filter {
    /// The filter of a file.
    ///
    /// # Errors
    /// [`BadRules`]: do not start without it.
    pub fn load(path: &Path) -> Result<Self, BadRules> {
        let unreadable = |why: String| BadRules::Unreadable { path: path.display().to_string(), why };
        let file = std::fs::File::open(path).map_err(|error| unreadable(error.to_string()))?;
        let mut text = String::new();
        file.take(rules::FILE + 1)
            .read_to_string(&mut text)
            .map_err(|error| unreadable(error.to_string()))?;
        if text.len() as u64 > rules::FILE {
            return Err(unreadable(format!("it has more than {} bytes", rules::FILE)));
        }
        Self::parse(&text)
    }

    /// The filter of a file's text.
    ///
    /// # Errors
    /// [`BadRules`].
    pub fn parse(text: &str) -> Result<Self, BadRules> {
        let rules = rules::parse(text)?;
        let state = State { given: vec![0; rules.len()], totals: vec![0; rules.len()], ..State::default() };
        Ok(Self { rules, hasher: RandomState::new(), state: Mutex::new(state) })
    }

    /// What was replaced in this run, by name.
    #[must_use]
    pub fn totals(&self) -> Counts {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let rows = self.rules.iter().zip(&state.totals).filter(|(_, total)| **total > 0);
        Counts { redactions: rows.map(|(rule, total)| (rule.name.clone(), *total)).collect(), secrets: 0 }
    }

    /// `text` with every match as `<name:N>`.
    pub(crate) fn text<'a>(&self, text: &'a str, counts: &mut Counts) -> Cow<'a, str> {
        let found = self.find(text);
        if found.is_empty() {
            return Cow::Borrowed(text);
        }
        let mut out = String::with_capacity(text.len() + found.len() * 8);
        let mut copied = 0;
        for (range, rule) in found {
            out.push_str(&text[copied..range.start]);
            copied = range.end;
            let number = self.number(rule, &text[range]);
            let name = &self.rules[rule].name;
            counts.add(name);
            out.push_str(&format!("<{name}:{number}>"));
        }
        out.push_str(&text[copied..]);
        Cow::Owned(out)
    }

    /// Counts a match whose value is blanked instead of numbered.
    pub(crate) fn blanked(&self, rule: usize, counts: &mut Counts) {
        counts.add(&self.rules[rule].name);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.totals[rule] += 1;
    }

    /// Matches in order, disjoint: what overlaps is one, named by its longest part.
    pub(crate) fn find(&self, text: &str) -> Vec<(Range<usize>, usize)> {
        let mut found: Vec<(Range<usize>, usize)> = Vec::new();
        let hints = hints::hints(text);
        for (index, rule) in self.rules.iter().enumerate() {
            match &rule.matcher {
                Matcher::Set(at) => {
                    if hints & (1 << at) != 0 {
                        BUILTINS[*at].find(text, |range| found.push((range, index)));
                    }
                }
                Matcher::Pattern(custom) if custom.group == 0 => {
                    found.extend(custom.regex.find_iter(text).map(|hit| (hit.range(), index)));
                }
                Matcher::Pattern(custom) => {
                    let groups = custom.regex.captures_iter(text).filter_map(|hit| hit.get(custom.group));
                    found.extend(groups.map(|group| (group.range(), index)));
                }
            }
        }
        found.retain(|(range, _)| !range.is_empty());
        if found.is_empty() {
            return found;
        }
        let tokens = self.tokens(text);
        // A token of an earlier pass is no news; one that a match reaches into goes with it.
        found.retain(|(range, _)| {
            !tokens.iter().any(|token| token.start <= range.start && range.end <= token.end)
        });
        for (range, _) in &mut found {
            for token in &tokens {
                if token.start < range.end && range.start < token.end {
                    *range = range.start.min(token.start)..range.end.max(token.end);
                }
            }
        }
        merge(found)
    }

    /// The number of a value in this run: the same for the same value, whatever its case.
    fn number(&self, rule: usize, value: &str) -> u32 {
        let key = (rule, self.hasher.hash_one(value.to_lowercase()));
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.totals[rule] += 1;
        if let Some(number) = state.numbers.get(&key) {
            return *number;
        }
        if state.numbers.len() >= NUMBERED {
            return 0;
        }
        state.given[rule] += 1;
        let number = state.given[rule];
        state.numbers.insert(key, number);
        number
    }

    /// Where `text` holds tokens this filter writes.
    pub(crate) fn tokens(&self, text: &str) -> Vec<Range<usize>> {
        let mut out = Vec::new();
        for (start, _) in text.match_indices('<') {
            let inner = &text[start + 1..];
            let Some((name, rest)) = inner.split_once(':') else { continue };
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            let closed = (1..=10).contains(&digits) && rest[digits..].starts_with('>');
            if closed && self.rules.iter().any(|rule| rule.name == name) {
                out.push(start..start + 1 + name.len() + 1 + digits + 1);
            }
        }
        out
    }
}

fn merge(mut found: Vec<(Range<usize>, usize)>) -> Vec<(Range<usize>, usize)> {
    found.sort_by_key(|(range, rule)| (range.start, *rule));
    let mut out: Vec<(Range<usize>, usize)> = Vec::with_capacity(found.len());
    let mut longest = 0;
    for (range, rule) in found {
        match out.last_mut() {
            Some((last, named)) if range.start < last.end => {
                if range.len() > longest {
                    longest = range.len();
                    *named = rule;
                }
                last.end = last.end.max(range.end);
            }
            _ => {
                longest = range.len();
                out.push((range, rule));
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(text: &str) -> Filter {
        Filter::parse(text).unwrap()
    }

    fn all() -> Filter {
        filter(r#"builtin = ["user_paths", "tokens", "private_keys", "mail", "ipv4", "ipv6"]"#)
    }

    fn text(filter: &Filter, text: &str) -> String {
        filter.text(text, &mut Counts::default()).into_owned()
    }

    #[test]
    fn the_same_value_has_the_same_number() {
        let filter = all();
        assert_eq!(
            text(&filter, r"C:\Users\jane\a C:\Users\bob\b"),
            r"C:\Users\<user_paths:1>\a C:\Users\<user_paths:2>\b"
        );
        assert_eq!(text(&filter, r"D:\users\JANE\c 10.1.2.3"), r"D:\users\<user_paths:1>\c <ipv4:1>");
        assert_eq!(filter.totals().words(), "ipv4 1, user_paths 3");
    }

    #[test]
    fn a_second_pass_changes_nothing() {
        let filter = filter(
            "builtin = ['user_paths', 'mail']\n[[pattern]]\nname='k'\nregex='id is (\\S+)'\ngroup=1\n\
             [[pattern]]\nname='line'\nregex='secret .*'",
        );
        for input in [r"id is 77 C:\Users\jane\x a@b.example", "id is 12, secret a@b.example <mail:1>"] {
            let once = text(&filter, input);
            assert_eq!(text(&filter, &once), once);
            assert!(!once.contains("jane") && !once.contains("a@b"), "{once}");
        }
    }

    #[test]
    fn what_overlaps_is_one_and_nothing_of_it_survives() {
        let filter = filter("[[pattern]]\nname='a'\nregex='abc'\n[[pattern]]\nname='b'\nregex='bcdef'");
        assert_eq!(text(&filter, "xabcdefx"), "x<b:1>x");
    }

    #[test]
    fn a_groups_value_is_what_goes() {
        let filter = filter("[[pattern]]\nname='host'\nregex='host=(?<h>\\w*);'\ngroup='h'");
        assert_eq!(text(&filter, "host=lab7; host=;"), "host=<host:1>; host=;");
    }

    #[test]
    fn tokens_are_known_by_their_names() {
        let filter = all();
        assert_eq!(filter.tokens("a <user_paths:12> <nonesuch:1> <mail:> <mail:1").len(), 1);
    }

    #[test]
    fn files_that_cannot_be_used() {
        let folder = std::env::temp_dir();
        assert!(matches!(Filter::load(&folder.join("nonesuch.toml")), Err(BadRules::Unreadable { .. })));
        assert!(matches!(Filter::load(&folder), Err(BadRules::Unreadable { .. })));
    }

    proptest::proptest! {
        #[test]
        fn any_text_comes_out_stable(text_ in r#"([a-zA-Z0-9 .:@<>/\\%_\-]|Users\\|::|<mail:1>){0,80}"#) {
            let filter = all();
            let once = text(&filter, &text_);
            proptest::prop_assert_eq!(text(&filter, &once), once);
        }
    }
}
