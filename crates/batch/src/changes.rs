//! What a raw command line can change, from its words (spec 20 section 2.9). Best effort, biased to
//! report a change: it decides only the report and the retirement of a handle. What makes a mutation
//! recoverable is the `always` block.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A kind of change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum Change {
    Memory,
    Registers,
    Breakpoints,
    Execution,
    EngineSettings,
    DebugTarget,
    Unknown,
}

impl Change {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Registers => "registers",
            Self::Breakpoints => "breakpoints",
            Self::Execution => "execution",
            Self::EngineSettings => "engine_settings",
            Self::DebugTarget => "debug_target",
            Self::Unknown => "unknown",
        }
    }
}

const MEMORY: [&str; 24] = [
    "e", "ea", "eb", "ed", "ef", "ep", "eq", "eu", "ew", "ez", "eza", "ezu", "f", "fp", "m", ".readmem",
    ".fillmem", ".dvalloc", ".dvfree", "wrmsr", "o", "ob", "od", "ow",
];
const BREAKPOINTS: [&str; 14] =
    ["ba", "bc", "bd", "be", "bm", "bp", "br", "bs", "bsc", "bu", "sxd", "sxe", "sxi", "sxn"];
const EXECUTION: [&str; 18] =
    ["g", "gc", "gh", "gn", "gu", "p", "pa", "pc", "pt", "t", "ta", "tb", "tc", "tt", "wt", "g-", "p-", "t-"];
const ENGINE_SETTINGS: [&str; 13] = [
    ".load",
    ".loadby",
    ".unload",
    ".unloadall",
    ".reload",
    ".sympath",
    ".sympath+",
    ".symfix",
    ".symfix+",
    ".srcpath",
    ".srcpath+",
    ".exepath",
    ".exepath+",
];
/// Constructs whose inside may not be readable from here.
const CONSTRUCTS: [&str; 12] =
    [".if", ".for", ".foreach", ".while", ".do", ".block", "j", "z", "$<", "$$<", "$><", "$$><"];
const SCRIPT: &str = "$$>a<";

/// The changes of a command line, in the order of the vocabulary, each once.
#[must_use]
pub fn changes(command: &str) -> Vec<Change> {
    let command = command.to_ascii_lowercase();
    let (mut found, mut construct) = (Vec::new(), false);
    for segment in command.split([';', '\n', '\r', '{', '}']) {
        if control::replaces_target(segment) {
            found.push(Change::DebugTarget);
        }
        for candidate in candidates(segment) {
            let class = class(candidate, segment);
            construct |= class == Some(Change::Unknown);
            found.extend(class.filter(|class| *class != Change::Unknown));
        }
    }
    if found.is_empty() && construct {
        found.push(Change::Unknown);
    }
    found.sort();
    found.dedup();
    found
}

/// The words of a segment that may be commands: its first, and in a construct that carries commands
/// every one that follows a quote or, of `~e`, the thread.
fn candidates(segment: &str) -> Vec<&str> {
    let mut words = segment.split(char::is_whitespace).filter(|word| !word.is_empty());
    let Some(first) = words.next() else { return Vec::new() };
    let first = first.trim_start_matches(['"', '\'']);
    let mut found = vec![word(first)];
    if let Some(rest) = thread_command(segment.trim_start()) {
        found.push(word(rest.trim_start_matches(['"', '\''])));
    }
    if carries_commands(word(first)) {
        let parts = segment.split(['"', '\'']).skip(1);
        found.extend(parts.filter_map(|part| part.split_whitespace().next()).map(word));
    }
    found
}

/// What `~*e` and `~3e` run.
fn thread_command(segment: &str) -> Option<&str> {
    let rest = segment.strip_prefix('~')?;
    let rest = rest.trim_start_matches(|c: char| c.is_ascii_digit() || matches!(c, '*' | '.' | '#' | ' '));
    let rest = rest.strip_prefix('e')?;
    rest.starts_with([' ', '\t', '"']).then(|| rest.trim_start())
}

/// A word without what may follow a command without a space: `.kill/n`, `r@rax=1`, `bc*`.
fn word(text: &str) -> &str {
    if text.starts_with('$') {
        // `$$>a<script` and its like end at the last arrow.
        return text.find('<').map_or(text, |at| &text[..=at]);
    }
    let skip = usize::from(text.starts_with(['.', '!', '~']));
    let ends = |c: char| !c.is_ascii_alphanumeric() && !matches!(c, '_' | '+' | '-');
    let end = text.get(skip..).and_then(|rest| rest.find(ends)).map_or(text.len(), |at| at + skip);
    &text[..end]
}

fn carries_commands(word: &str) -> bool {
    matches!(plain(word), "bp" | "bu" | "bm" | "ba" | "j" | "z")
        || ["sx", "~", ".for", "!for_each"].iter().any(|start| word.starts_with(start))
}

/// Without a count or an id: `p5`, `bp0`.
fn plain(word: &str) -> &str {
    let without = word.trim_end_matches(|c: char| c.is_ascii_digit());
    if without.is_empty() { word } else { without }
}

fn class(word: &str, segment: &str) -> Option<Change> {
    if MEMORY.contains(&word) {
        return Some(Change::Memory);
    }
    if plain(word) == "r" && segment.contains('=') {
        return Some(Change::Registers);
    }
    if BREAKPOINTS.contains(&plain(word)) {
        return Some(Change::Breakpoints);
    }
    if EXECUTION.contains(&plain(word)) {
        return Some(Change::Execution);
    }
    if ENGINE_SETTINGS.contains(&word) {
        return Some(Change::EngineSettings);
    }
    let construct = CONSTRUCTS.contains(&word) || word == SCRIPT || word.starts_with("!for_each_");
    construct.then_some(Change::Unknown)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn named(command: &str) -> Vec<&'static str> {
        changes(command).into_iter().map(Change::name).collect()
    }

    #[test]
    fn the_table_of_classes() {
        for (command, expected) in [
            ("eb 1000 90", vec!["memory"]),
            ("k; EQ @rsp 1", vec!["memory"]),
            ("ezu x \"abc\"", vec!["memory"]),
            ("r", vec![]),
            ("r rax", vec![]),
            ("r @rax=1", vec!["registers"]),
            ("r@rax=1", vec!["registers"]),
            ("bp nt!X", vec!["breakpoints"]),
            ("bp0 nt!X", vec!["breakpoints"]),
            ("bc *", vec!["breakpoints"]),
            ("bc*", vec!["breakpoints"]),
            ("bp nt!X \"eb 1 90; g\"", vec!["memory", "breakpoints", "execution"]),
            ("sxe -c \"eb 1 2\" ld", vec!["memory", "breakpoints"]),
            ("sxe ld", vec!["breakpoints"]),
            ("g", vec!["execution"]),
            ("p5", vec!["execution"]),
            ("t 10", vec!["execution"]),
            ("g-", vec!["execution"]),
            (".reload /f", vec!["engine_settings"]),
            (".sympath+ c:\\x", vec!["engine_settings"]),
            (".exepath c:\\x", vec!["engine_settings"]),
            (".detach", vec!["debug_target"]),
            (".kill/n", vec!["debug_target"]),
            ("qd", vec!["debug_target"]),
            (".if (1) {.opendump x}", vec!["debug_target"]),
            (".if (1) {eb 1 2}", vec!["memory"]),
            (".if (1) {k}", vec!["unknown"]),
            (".foreach (x {lm1m}) {k}", vec!["unknown"]),
            ("$$>a<c:\\x.txt 1", vec!["unknown"]),
            ("$<c:\\x.txt", vec!["unknown"]),
            ("!for_each_process \"eb 1 2\"", vec!["memory"]),
            ("!for_each_module", vec!["unknown"]),
            ("~*e r rax=1", vec!["registers"]),
            ("~0e \"g\"", vec!["execution"]),
            ("j (@rax==1) 'eb 1 2' ; 'g'", vec!["memory", "execution"]),
            ("dd 0; db @rsp; lm; x nt!*", vec![]),
            (".echo eb 1 2", vec![]),
            ("", vec![]),
            (" ;; ", vec![]),
        ] {
            assert_eq!(named(command), expected, "{command}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_looked_through(text in ".{0,300}") {
            let found = changes(&text);
            let mut sorted = found.clone();
            sorted.sort();
            sorted.dedup();
            prop_assert_eq!(found, sorted);
        }
        #[test]
        fn a_write_is_seen_behind_anything_harmless(before in "[a-z0-9 .@]{0,20}") {
            let line = format!("{before}; eb 1 2");
            prop_assert!(changes(&line).contains(&Change::Memory), "{line}");
        }
    }
}
