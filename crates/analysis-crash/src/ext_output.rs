//! What Microsoft's `!analyze -v` printed, as fields (spec 60 section 1.8), and how it is asked for.
//! Only the keys named here are read; nothing else is scraped.

use target::{Command, Halt, Target};

use crate::result::{Analysis, AnalysisSource};

/// What the engine prints for an extension command it does not have. `Execute` succeeds all the same:
/// success is decided from the text.
const MISSING: [&str; 2] = ["No export analyze found", "LoadLibrary(ext)"];

/// Runs the analysis of the engine's extension and restores the selection. `None`: the engine has no
/// commands or no extension.
pub(crate) fn run(target: &dyn Target, halt: &Halt) -> Option<Analysis> {
    let commands = target.command()?;
    let before = target.selection();
    let mut answer = ask(commands, halt)?;
    if target.selection() != before && target.select(before).is_err() {
        answer.note = Some("The selection could not be restored after !analyze.".into());
    }
    Some(answer)
}

fn ask(commands: &dyn Command, halt: &Halt) -> Option<Analysis> {
    let attempt = |line: &str| commands.execute(line, halt).ok().filter(|o| !is_missing(&o.text));
    let (line, output) = match attempt("!analyze -v") {
        Some(output) => ("!analyze -v", output),
        None => {
            commands.execute(".load ext", halt).ok()?;
            ("!ext.analyze -v", attempt("!ext.analyze -v")?)
        }
    };
    let mut analysis = parse(&output.text);
    analysis.command = Some(line.to_owned());
    analysis.truncated = output.cut_short;
    Some(analysis)
}

fn is_missing(text: &str) -> bool {
    MISSING.iter().any(|phrase| text.contains(phrase))
}

/// Reads the output. A key counts only at column 0; its first occurrence wins.
#[must_use]
pub fn parse(text: &str) -> Analysis {
    let mut out = Analysis { ran: true, source: Some(AnalysisSource::Ext), ..Analysis::default() };
    let mut arguments: [Option<String>; 4] = [const { None }; 4];
    for line in text.lines() {
        let line = line.trim_end();
        if let Some((index, note)) = argument(line) {
            arguments[index].get_or_insert(note);
        } else if let Some(name) = header(line) {
            out.bug_check_name.get_or_insert(name);
        } else if let Some((key, value)) = key_value(line) {
            set(&mut out, key, value);
        }
    }
    fallback(&mut out, text);
    // The texts stop at the first gap: a later one would be read as another argument's.
    let notes: Vec<String> = arguments.into_iter().map_while(|a| a).collect();
    out.parameter_notes = (!notes.is_empty()).then_some(notes);
    out
}

/// `KEY:  value` with an upper-snake key at column 0.
fn key_value(line: &str) -> Option<(&str, &str)> {
    let (key, value) = line.split_once(':')?;
    let shape =
        !key.is_empty() && key.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_');
    let value = value.strip_prefix(char::is_whitespace)?.trim();
    (shape && !value.is_empty()).then_some((key, value))
}

/// `IRQL_NOT_LESS_OR_EQUAL (a)`.
fn header(line: &str) -> Option<String> {
    let (name, rest) = line.split_once(" (")?;
    let code = rest.strip_suffix(')')?;
    let upper =
        name.contains('_') && name.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_');
    let hex = (1..=8).contains(&code.len()) && code.bytes().all(|b| b.is_ascii_hexdigit());
    (upper && hex).then(|| name.to_owned())
}

/// `Arg1: fffff8048b58334c, address referenced`.
fn argument(line: &str) -> Option<(usize, String)> {
    let rest = line.strip_prefix("Arg")?;
    let index = usize::from(rest.bytes().next()?.checked_sub(b'1')?);
    let (value, note) = rest.get(1..)?.strip_prefix(": ")?.split_once(", ")?;
    let hex = !value.is_empty() && value.bytes().all(|b| b.is_ascii_hexdigit() || b == b'`');
    (index < 4 && hex).then(|| (index, note.trim().to_owned()))
}

fn set(out: &mut Analysis, key: &str, value: &str) {
    let field = match key {
        "POOL_TAG" | "FREED_POOL_TAG" => &mut out.pool_tag,
        "FAILURE_BUCKET_ID" => &mut out.failure_bucket_id,
        "FAILURE_ID_HASH" => &mut out.failure_id_hash,
        "MODULE_NAME" => &mut out.module_name,
        "IMAGE_NAME" => &mut out.image_name,
        "PROCESS_NAME" => &mut out.process_name,
        "SYMBOL_NAME" => &mut out.symbol_name,
        "PRIMARY_PROBLEM_CLASS" => &mut out.problem_class,
        "STACK_COMMAND" => &mut out.stack_command,
        "DEBUG_FLR_IMAGE_TIMESTAMP" => &mut out.image_timestamp,
        _ => return,
    };
    if field.is_none() {
        let value = if key == "FAILURE_ID_HASH" { value.trim_matches(['{', '}']) } else { value };
        *field = Some(value.to_owned());
    }
}

/// Indented `Key  : Failure.Bucket` and `Value: ...` pairs, where the plain keys are not there.
fn fallback(out: &mut Analysis, text: &str) {
    let mut lines = text.lines().map(str::trim).peekable();
    while let Some(line) = lines.next() {
        let Some(key) = line.strip_prefix("Key").and_then(|r| r.trim_start().strip_prefix(':')) else {
            continue;
        };
        let Some(value) = lines.peek().and_then(|l| l.strip_prefix("Value:")).map(str::trim) else {
            continue;
        };
        match key.trim() {
            "Failure.Bucket" => {
                out.failure_bucket_id.get_or_insert_with(|| value.to_owned());
            }
            "Failure.Hash" => {
                out.failure_id_hash.get_or_insert_with(|| value.trim_matches(['{', '}']).to_owned());
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
DRIVER_IRQL_NOT_LESS_OR_EQUAL (d1)
An attempt was made to access a pageable address at an IRQL that is too high.
Arg1: fffff80`48b58334c, memory referenced
Arg2: 0000000000000002, IRQL
Arg4: fffff8048b58334c, address which referenced memory

KEY_VALUES_STRING: 1
    Key  : Failure.Bucket
    Value: AV_other!decoy
    MODULE_NAME: indented_decoy
MODULE_NAME: myfault

IMAGE_NAME:  myfault.sys
MODULE_NAME: second
FAILURE_BUCKET_ID:  AV_myfault!unknown_function
FAILURE_ID_HASH:  {9745090a-9bce-ccba-c096-ca6e9ca04c64}
STACK_COMMAND:  .thread ; .cxr ; kb
NOT_A_FIELD: value
POOL_TAG:  Abcd
";

    #[test]
    fn fields_at_column_zero_first_one_wins() {
        let read = parse(TEXT);
        assert_eq!(read.bug_check_name.as_deref(), Some("DRIVER_IRQL_NOT_LESS_OR_EQUAL"));
        assert_eq!(read.module_name.as_deref(), Some("myfault"));
        assert_eq!(read.image_name.as_deref(), Some("myfault.sys"));
        assert_eq!(read.failure_bucket_id.as_deref(), Some("AV_myfault!unknown_function"));
        assert_eq!(read.failure_id_hash.as_deref(), Some("9745090a-9bce-ccba-c096-ca6e9ca04c64"));
        assert_eq!(read.pool_tag.as_deref(), Some("Abcd"));
        assert_eq!(
            read.parameter_notes,
            Some(vec!["memory referenced".into(), "IRQL".into()]),
            "cut at the gap"
        );
        assert_eq!(read.source, Some(AnalysisSource::Ext));
    }

    #[test]
    fn pairs_are_a_fallback() {
        let read = parse(
            "  Key  : Failure.Bucket\n  Value: AV_a!b\n  Key  : Failure.Hash\n  Value: {x-y}\n  Key  : Other\n",
        );
        assert_eq!(read.failure_bucket_id.as_deref(), Some("AV_a!b"));
        assert_eq!(read.failure_id_hash.as_deref(), Some("x-y"));
    }

    #[test]
    fn a_missing_extension_is_known_by_its_text() {
        assert!(is_missing("No export analyze found\n"));
        assert!(is_missing("The call to LoadLibrary(ext) failed, Win32 error 0n2"));
        assert!(!is_missing(TEXT));
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(256))]
        #[test]
        fn never_panics(text in "(Arg[0-9]: [0-9a-f]*, \\PC*\n|[A-Z_]{0,6}:[ ]{0,2}\\PC*\n|Key :x\n|Value:\n){0,12}") {
            let _ = parse(&text);
        }
    }
}
