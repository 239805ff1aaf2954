//! What to look at next: what would make the report better, and the commands that go on from here.
//! Each line is something to do; commands work as they are pasted.

use target::{Found, FrameInfo};

use crate::report::{Report, analysis};
use crate::style::plain;
use crate::triage::{Crash, Triaged};

/// Lines in all.
const LINES: usize = 4;
/// Microsoft's symbols and images, kept in the default store.
const MICROSOFT: &str = "srv**https://msdl.microsoft.com/download/symbols";
/// How the limitations begin that the stack's marks and the lines here stand for.
const WALK_ENDED: &str = "the walk ended at";
const NO_SYMBOLS: &str = "no symbols for";

/// Whether a limitation of the triage is said by the stack or here.
pub(crate) fn is_covered(note: &str) -> bool {
    note.starts_with(WALK_ENDED) || note.starts_with(NO_SYMBOLS) || note.contains("(found: scan)")
}

fn frames(triaged: &Triaged) -> &[FrameInfo] {
    match &triaged.crash {
        Crash::BugCheck(triage) => &triage.frames,
        Crash::Exception(triage) => &triage.frames,
        Crash::None { frames, .. } => frames,
    }
}

fn limitation<'t>(triaged: &'t Triaged, start: &str) -> Option<&'t String> {
    let limitations: &[String] = match &triaged.crash {
        Crash::BugCheck(triage) => &triage.limitations,
        Crash::Exception(triage) => &triage.limitations,
        Crash::None { .. } => &[],
    };
    limitations.iter().find(|text| text.starts_with(start))
}

/// The dump as an argument, and the paths it was opened with.
fn opened_with(triaged: &Triaged) -> String {
    let mut text = quoted(&triaged.path.display().to_string());
    for (option, value) in [("--symbols", &triaged.symbols), ("--images", &triaged.images)] {
        if let Some(value) = value {
            text.push_str(&format!(" {option} {}", quoted(value)));
        }
    }
    text
}

/// Writes the lines, hints before commands, a command at least.
pub(crate) fn rows(report: &mut Report, triaged: &Triaged) {
    report.heading("Look at next");
    let hints = hints(triaged);
    let commands = commands(triaged);
    let kept = hints.len().min(LINES - commands.len().min(1));
    for (label, text) in hints.iter().take(kept) {
        report.add(label, text);
    }
    let arguments = opened_with(triaged);
    for (label, command) in commands.iter().take(LINES - kept) {
        let command = quoted(&format!("command={command}"));
        report.add_whole(label, &format!("windbg-mcp call execute --dump {arguments} {command}"));
    }
}

/// What is missing and how to get it.
fn hints(triaged: &Triaged) -> Vec<(&'static str, String)> {
    let mut out = Vec::new();
    if limitation(triaged, WALK_ENDED).is_some()
        && let Some(text) = images(triaged)
    {
        out.push(("Stack", text));
    }
    let own = triaged.module.as_ref().filter(|module| !module.is_system() && module.lacks_symbols());
    if let Some(module) = own {
        let wanted = match (&module.pdb, &module.symbols_note) {
            (Some(pdb), _) => Some(format!("{} {}", pdb.name, pdb.key)),
            (None, Some(note)) => Some(format!("symbols for {} ({note})", module.image_name)),
            (None, None) => (!triaged.is_image()).then(|| format!("a PDB of {}", module.image_name)),
        };
        let beside = if triaged.is_image() { "it" } else { "the dump" };
        out.extend(wanted.map(|wanted| {
            ("Symbols", format!("put {wanted} beside {beside}, or name its folder with --symbols"))
        }));
    }
    if limitation(triaged, NO_SYMBOLS).is_some() {
        let mut names: Vec<&str> = Vec::new();
        for frame in frames(triaged).iter().filter(|frame| frame.symbol.is_none()) {
            let named = frame.module.as_deref().filter(|name| own.is_none_or(|own| own.name != **name));
            names.extend(named.filter(|name| !names.contains(name)));
        }
        if !names.is_empty() {
            out.push(("Symbols", microsoft(triaged, &names)));
        }
    }
    out
}

/// The command that names Windows' own frames.
fn microsoft(triaged: &Triaged, names: &[&str]) -> String {
    let path = |given: &Option<String>| match given {
        Some(given) => quoted(&format!("{given};{MICROSOFT}")),
        None => quoted(MICROSOFT),
    };
    let mut command = format!("windbg-mcp triage --symbols {}", path(&triaged.symbols));
    // A small kernel dump has no code to walk the stack with; the same server has it.
    let guessed = frames(triaged).iter().any(|frame| frame.found == Found::Scan);
    if guessed && triaged.opened.summary.kernel_mode == Some(true) {
        command.push_str(&format!(" --images {}", path(&triaged.images)));
    } else if let Some(images) = &triaged.images {
        command.push_str(&format!(" --images {}", quoted(images)));
    }
    let more = if names.len() > 3 { ", ..." } else { "" };
    let listed = names.iter().take(3).copied().collect::<Vec<_>>().join(", ");
    format!("for {listed}{more}: {command} {}", quoted(&triaged.path.display().to_string()))
}

/// Whose file is missing where the walk ended.
fn images(triaged: &Triaged) -> Option<String> {
    let last = frames(triaged).iter().rfind(|frame| frame.found != Found::Scan)?;
    let name = last.module.as_deref()?;
    // The image's file is what the walk lacks; where its symbols are, it usually has it.
    let module = triaged.module.as_ref().filter(|module| module.name == name && module.lacks_symbols())?;
    (!module.is_system()).then(|| {
        format!(
            "it ends early without {}'s own code: put that file beside the dump, or name its folder with --images",
            module.image_name
        )
    })
}

/// Commands that go on from here, best first.
fn commands(triaged: &Triaged) -> Vec<(&'static str, String)> {
    let module = triaged.module.as_ref().map(|module| module.name.as_str());
    let module = module.or_else(|| crate::image_file::name(&triaged.opened.summary));
    let name: Option<String> =
        module.map(|name| name.chars().filter(|c| c.is_alphanumeric() || "_-.".contains(*c)).collect());
    let name = name.filter(|name| !name.is_empty());
    if triaged.is_image() {
        let mut out = vec![("Header", "lmv".to_owned())];
        if let Some(name) = name {
            out.push(("Names", format!("x {name}!*")));
            out.push(("Code", format!("u {name}+0x1000")));
        }
        return out;
    }
    let stack = analysis(triaged).and_then(|analysis| analysis.stack_command.as_deref());
    let context = stack.and_then(|command| command.strip_suffix("k")).unwrap_or_default();
    let context = context.trim_end_matches([' ', ';']);
    // Choosing a context prints its registers.
    let code = format!("{}; u", if context.is_empty() { "r" } else { context });
    let mut out = match triaged.crash {
        Crash::None { .. } if triaged.opened.summary.kernel_mode == Some(true) => {
            vec![("Modules", "vertarget; lm".to_owned())]
        }
        Crash::None { .. } => vec![("Threads", "~*k".to_owned())],
        Crash::Exception(_) => {
            vec![("Code", code), ("Threads", "~*k".to_owned())]
        }
        Crash::BugCheck(_) => {
            vec![("Code", code), ("Process", "!process".to_owned())]
        }
    };
    out.extend(name.map(|name| ("Module", format!("lmv m {name}"))));
    out
}

/// Text as one word of a command line: single quotes where a POSIX shell reads it, double ones where
/// Windows does.
fn quoted(text: &str) -> String {
    let safe = |c: char| c.is_alphanumeric() || matches!(c, '/' | '.' | '_' | '-' | '\\' | ':' | ',' | '+');
    let text = plain(text);
    if cfg!(windows) {
        return if text.chars().all(safe) { text } else { format!("\"{}\"", text.replace('"', "\\\"")) };
    }
    let bare = |c: char| safe(c) && c != '\\' || c == '=';
    if !text.is_empty() && text.chars().all(bare) {
        return text;
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(not(windows))]
    #[test]
    fn words_survive_a_shell() {
        for text in
            ["a/b.dmp", "my dumps/it's.dmp", "command=!thread; k", "srv**https://x", "a\\b", "", "$HOME"]
        {
            let output = std::process::Command::new("sh")
                .args(["-c", &format!("printf %s {}", quoted(text))])
                .output()
                .unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), text);
        }
        assert_eq!(quoted("a/b.dmp"), "a/b.dmp");
    }

    #[test]
    fn what_the_stack_says_is_no_note() {
        assert!(is_covered("the walk ended at 0x1: no unwind data covers 0x1"));
        assert!(is_covered("no symbols for nt: ..."));
        assert!(!is_covered("the file ends before all the memory it declares"));
    }
}
