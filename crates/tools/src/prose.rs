//! Prose that narrows with the surface (spec 20 section 5.4): a sentence that names a tool is sent
//! only to those who are served that tool. One mechanism for every channel a model reads:
//!
//! | channel | written as |
//! |---|---|
//! | instructions, descriptions | a list of [`Fragment`]s |
//! | descriptions in an input schema | doc comments; a sentence that names an unserved tool is left out |
//! | results | [`crate::Tool::next`]: the names of sensible next calls |
//! | failures | [`crate::ToolError::then`] for names, [`crate::ToolError::when_served`] for a sentence |

use crate::{Surface, catalogue};

/// A piece of prose.
#[derive(Clone, Copy, Debug)]
pub enum Fragment {
    /// May name only the tool itself and the session group.
    Fixed(&'static str),
    /// Sent when the surface serves all of `needs`, which are all the tools that `text` names.
    If { needs: &'static [&'static str], text: &'static str },
}

/// The fragments `surface` is entitled to, joined by spaces.
#[must_use]
pub fn render(fragments: &[Fragment], surface: &Surface) -> String {
    let parts: Vec<&str> = fragments
        .iter()
        .filter_map(|fragment| match fragment {
            Fragment::Fixed(text) => Some(*text),
            Fragment::If { needs, text } => needs.iter().all(|tool| surface.serves(tool)).then_some(*text),
        })
        .collect();
    parts.join(" ")
}

/// The tools of the product that `text` names, in the order they come: a code span or quotation
/// that is a name or opens a call with it, or a bare word with an underscore. `go` and `modules`
/// are English.
#[must_use]
pub fn named(text: &str) -> Vec<&'static str> {
    let part_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let bare = text.split(|c: char| !part_of_name(c)).filter(|word| word.contains('_'));
    let marked = ['`', '"'].into_iter().flat_map(|mark| text.split(mark).skip(1).step_by(2)).map(|span| {
        let end = span.find(|c: char| !part_of_name(c)).unwrap_or(span.len());
        // `modules {"filter": ...}` and `modules(...)` open a call; `modules of a process` does not.
        let opens = span[end..].trim_start().chars().next().is_none_or(|c| matches!(c, '(' | '{'));
        if opens { &span[..end] } else { "" }
    });
    let mut found: Vec<&'static str> = Vec::new();
    for name in bare.chain(marked).filter_map(catalogue::known) {
        if !found.contains(&name) {
            found.push(name);
        }
    }
    found
}

/// The tools that `text` names and `surface` does not serve.
#[must_use]
pub fn leaks(text: &str, surface: &Surface) -> Vec<&'static str> {
    named(text).into_iter().filter(|name| !surface.serves(name)).collect()
}

/// `text` without the sentences that name a tool `surface` does not serve. A sentence ends with a
/// full stop or a semicolon and a space.
#[must_use]
pub fn narrowed(text: &str, surface: &Surface) -> String {
    if leaks(text, surface).is_empty() {
        return text.to_owned();
    }
    let mut kept = String::new();
    let mut rest = text;
    while !rest.is_empty() {
        let end =
            [". ", "; "].iter().filter_map(|mark| rest.find(mark)).min().map_or(rest.len(), |at| at + 2);
        let (sentence, after) = rest.split_at(end);
        if leaks(sentence, surface).is_empty() {
            kept.push_str(sentence);
        }
        rest = after;
    }
    kept.trim_end().trim_end_matches(';').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_is_named_in_a_span_a_quotation_or_by_an_underscore() {
        for (text, names) in [
            ("list them with `modules`", vec!["modules"]),
            ("`modules(filter)` and `go {}`", vec!["modules", "go"]),
            ("then read_memory, twice read_memory", vec!["read_memory"]),
            ("the tool \"threads\"", vec!["threads"]),
            ("let it go; modules and threads launch", vec![]),
            ("`modules of a process` and `gone`", vec![]),
            ("read_memory_of and _go", vec![]),
            ("an unclosed `modules", vec!["modules"]),
            ("", vec![]),
        ] {
            assert_eq!(named(text), names, "{text}");
        }
    }

    #[test]
    fn sentences_are_left_out_whole() {
        let surface = Surface::of(&["modules"]);
        let text = "As `modules` lists them. Or as read_memory gives it. Bare digits are hex.";
        assert_eq!(narrowed(text, &surface), "As `modules` lists them. Bare digits are hex.");
        assert_eq!(narrowed(text, &Surface::all()), text);
        assert_eq!(narrowed("A name; see read_memory", &surface), "A name");
    }
}
