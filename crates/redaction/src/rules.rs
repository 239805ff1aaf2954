//! The `--redact` file: which sets, and patterns of one's own.

use regex::{Regex, RegexBuilder};
use serde::Deserialize;

use crate::sets::BUILTINS;

/// Patterns a file may have.
const MOST: usize = 64;
/// Bytes a compiled pattern may take.
const COMPILED: usize = 1 << 20;
/// Bytes a file may have.
pub(crate) const FILE: u64 = 1 << 20;

/// Why a `--redact` file cannot be used; the process refuses to start with it.
#[derive(Debug, thiserror::Error)]
pub enum BadRules {
    #[error("the redaction rules {path} cannot be read: {why}; name a TOML file that can")]
    Unreadable { path: String, why: String },
    #[error("the redaction rules do not parse: {0}")]
    Syntax(String),
    #[error("builtin {0:?} is no set of redaction rules; the sets are {known}", known = names())]
    UnknownSet(String),
    #[error("{0} patterns are too many; a file may have {MOST}")]
    TooMany(usize),
    #[error(
        "pattern {0:?}: a name is 1 to 32 lower-case letters, digits and _, begins with a letter and is used once"
    )]
    BadName(String),
    #[error("pattern {name:?}: {why}")]
    BadPattern { name: String, why: String },
    #[error("the redaction rules have neither builtin sets nor patterns; a filter of nothing is a mistake")]
    Nothing,
}

fn names() -> String {
    BUILTINS.iter().map(|set| set.name).collect::<Vec<_>>().join(", ")
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    builtin: Vec<String>,
    #[serde(default)]
    pattern: Vec<Pattern>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Pattern {
    name: String,
    regex: String,
    group: Option<Group>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Group {
    Number(usize),
    Name(String),
}

/// A pattern of the file.
pub(crate) struct Custom {
    pub(crate) regex: Regex,
    /// The capture group that is the value; 0 is all of it.
    pub(crate) group: usize,
}

/// What a rule matches with.
pub(crate) enum Matcher {
    /// Index into [`BUILTINS`].
    Set(usize),
    Pattern(Custom),
}

pub(crate) struct Rule {
    pub(crate) name: String,
    pub(crate) matcher: Matcher,
}

/// The rules of a file's text; its own patterns come first.
pub(crate) fn parse(text: &str) -> Result<Vec<Rule>, BadRules> {
    let file: File = toml::from_str(text).map_err(|error| BadRules::Syntax(error.to_string()))?;
    if file.pattern.len() > MOST {
        return Err(BadRules::TooMany(file.pattern.len()));
    }
    let mut rules: Vec<Rule> = Vec::new();
    for pattern in file.pattern {
        let taken = rules.iter().any(|rule| rule.name == pattern.name)
            || BUILTINS.iter().any(|set| set.name == pattern.name);
        if taken || !is_name(&pattern.name) {
            return Err(BadRules::BadName(pattern.name));
        }
        let custom = custom(&pattern)?;
        rules.push(Rule { name: pattern.name, matcher: Matcher::Pattern(custom) });
    }
    for name in file.builtin {
        let Some(at) = BUILTINS.iter().position(|set| set.name == name) else {
            return Err(BadRules::UnknownSet(name));
        };
        if rules.iter().all(|rule| rule.name != name) {
            rules.push(Rule { name, matcher: Matcher::Set(at) });
        }
    }
    if rules.is_empty() { Err(BadRules::Nothing) } else { Ok(rules) }
}

fn is_name(name: &str) -> bool {
    (1..=32).contains(&name.len())
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
}

fn custom(pattern: &Pattern) -> Result<Custom, BadRules> {
    let bad = |why: String| BadRules::BadPattern { name: pattern.name.clone(), why };
    let regex = RegexBuilder::new(&pattern.regex)
        .size_limit(COMPILED)
        .build()
        .map_err(|error| bad(error.to_string()))?;
    let shape = regex_syntax::parse(&pattern.regex).map_err(|error| bad(error.to_string()))?;
    if shape.properties().minimum_len().is_none_or(|shortest| shortest == 0) {
        return Err(bad(
            "it can match nothing at all, which is everywhere; make it match something".to_owned()
        ));
    }
    let group = match &pattern.group {
        None => 0,
        Some(Group::Number(number)) => *number,
        Some(Group::Name(wanted)) => {
            let position = regex.capture_names().position(|name| name == Some(wanted));
            position.ok_or_else(|| bad(format!("it has no group called {wanted:?}")))?
        }
    };
    if group >= regex.captures_len() {
        let groups = regex.captures_len() - 1;
        return Err(bad(format!("it has {groups} groups and no group {group}")));
    }
    Ok(Custom { regex, group })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        parse(text).err().map_or_else(|| panic!("accepted: {text}"), |error| error.to_string())
    }

    #[test]
    fn a_good_file() {
        let rules = parse(
            "builtin = [\"mail\", \"ipv4\", \"mail\"]\n\
             [[pattern]]\nname = \"ticket\"\nregex = 'TCK-[0-9]+'\n\
             [[pattern]]\nname = \"host\"\nregex = 'host=(?<h>\\w+)'\ngroup = \"h\"\n",
        )
        .unwrap();
        let names: Vec<&str> = rules.iter().map(|rule| rule.name.as_str()).collect();
        assert_eq!(names, ["ticket", "host", "mail", "ipv4"]);
    }

    #[test]
    fn bad_files_are_refused_in_words() {
        let pattern = |name: &str, regex: &str, more: &str| {
            format!("[[pattern]]\nname = '{name}'\nregex = '{regex}'\n{more}")
        };
        let many: String = (0..65).map(|n| pattern(&format!("p{n}"), "x", "")).collect();
        let texts = [
            refused("builtin = ["),
            refused("builtins = []"),
            refused("builtin = [\"mails\"]"),
            refused(""),
            refused(&many),
            refused(&pattern("Bad", "x", "")),
            refused(&pattern("mail", "x", "")),
            refused(&(pattern("a", "x", "") + &pattern("a", "y", ""))),
            refused(&pattern("a", "(", "")),
            refused(&pattern("a", "x*", "")),
            refused(&pattern("a", r"\b", "")),
            refused(&pattern("a", "x", "group = 1")),
            refused(&pattern("a", "(x)", "group = \"n\"")),
            refused(&pattern("a", "(?:x{1000}){1000}", "")),
        ];
        insta::assert_snapshot!(texts.join("\n----\n"));
    }
}
