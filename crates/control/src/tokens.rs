//! Commands that change which target the debugger has. A breakpoint may not carry one: it would run
//! when nobody can retire the session's handle.

const TARGET_CHANGING: [&str; 13] = [
    ".opendump",
    ".attach",
    ".detach",
    ".kill",
    ".restart",
    ".create",
    ".abandon",
    ".remote",
    ".reboot",
    ".crash",
    "q",
    "qd",
    "qq",
];

/// Constructs that carry commands inside quotes.
fn carries_commands(word: &str) -> bool {
    matches!(word, "bp" | "bu" | "bm" | "ba" | "j" | "z")
        || ["sx", "~", ".for", "!for_each"].iter().any(|start| word.starts_with(start))
}

/// The first target-changing token of `command` outside its quoted spans, if it has one. Best
/// effort, and rather refuses too much: an alias can still hide one.
#[must_use]
pub fn target_changing(command: &str) -> Option<&'static str> {
    command.split(['\n', '\r']).find_map(line)
}

/// Whether `command` can replace the target, by the first word of each of its commands; inside the
/// quotes of those that carry commands, by any word. Best effort, as above.
#[must_use]
pub fn replaces_target(command: &str) -> bool {
    let command = command.to_ascii_lowercase();
    command.split([';', '\n', '\r', '{', '}']).any(|segment| {
        let mut words = words(segment);
        let Some(first) = words.next() else { return false };
        token(first).is_some() || (carries_commands(first) && words.any(|word| token(word).is_some()))
    })
}

fn line(text: &str) -> Option<&'static str> {
    let text = text.to_ascii_lowercase();
    let without_quotes = text.replace('"', " ");
    if words(&without_quotes).any(carries_commands) {
        return words(&without_quotes).find_map(token);
    }
    let outside = blanked(&text).unwrap_or(without_quotes);
    words(&outside).find_map(token)
}

/// `text` with its quoted spans blanked; `None` when the quotes do not pair up, so that nothing can
/// hide behind a stray one.
fn blanked(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let (mut quoted, mut escaped) = (false, false);
    for c in text.chars() {
        let quote = c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        out.push(if quote || quoted { ' ' } else { c });
        quoted ^= quote;
    }
    (!quoted).then_some(out)
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    let ends = |c: char| c.is_whitespace() || matches!(c, ';' | '{' | '}' | '(' | ')' | ',' | '"' | '\'');
    text.split(ends).filter(|word| !word.is_empty())
}

fn token(word: &str) -> Option<&'static str> {
    let end = word.char_indices().skip(1).find(|(_, c)| !c.is_ascii_alphanumeric() && *c != '_');
    // A switch may follow without a space: `.kill/n`.
    let name = end.map_or(word, |(at, _)| &word[..at]);
    let name = if word.starts_with('.') { name } else { word };
    TARGET_CHANGING.into_iter().find(|known| *known == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_a_breakpoint_may_not_run() {
        for command in [
            ".kill",
            "r; .DETACH",
            "k;q",
            ".echo \"x\"; qd; gc",
            ".if (1) {q}",
            "\"x.kill",
            ".echo \"a\nq",
            ".echo \\\"; .kill ; .echo \\\"",
            "j (@rcx == 1) \"q\"; \"gc\"",
            "bp nt!X \".kill\"",
            ".kill/n",
            "~*e q",
            "\" \" .kill \"",
        ] {
            let found = target_changing(command);
            let expected = command != "\"x.kill";
            assert_eq!(found.is_some(), expected, "{command:?}: {found:?}");
        }
        for command in
            [".echo \"q\"; gc", "k 5; gc", ".printf \"%x .kill\\n\", @rcx; gc", "r rax; qword", "dq @rsp; gc"]
        {
            assert_eq!(target_changing(command), None, "{command:?}");
        }
    }

    #[test]
    fn what_retires_a_handle() {
        for command in [
            ".detach",
            "k; .OPENDUMP C:\\x.dmp",
            "q",
            ".if (1) { .kill }",
            "~*e .detach",
            "bp x \".kill\"",
            "k\n.restart",
            "!for_each_process \"qd\"",
        ] {
            assert!(replaces_target(command), "{command:?}");
        }
        for command in
            ["k", ".echo q", "dq @rsp", "r q", "x nt!*kill*", "s -a 0 L10 \".kill\"", ".symfix; .reload"]
        {
            assert!(!replaces_target(command), "{command:?}");
        }
    }

    proptest! {
        #[test]
        fn a_token_after_balanced_quotes_is_found(text in "[a-z \\\\.]{0,20}", pick in 0..TARGET_CHANGING.len()) {
            let command = format!(".echo \"{}\"; {}", text.replace('\\', ""), TARGET_CHANGING[pick]);
            prop_assert!(target_changing(&command).is_some(), "{command}");
        }
        #[test]
        fn any_text_is_looked_through(text in ".{0,200}") {
            let _ = target_changing(&text);
        }
    }
}
