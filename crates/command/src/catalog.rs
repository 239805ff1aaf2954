//! Every command served, and honest refusals for the rest.

use target::{Result, TargetError};

use crate::run::Run;
use crate::{
    address, arithmetic, code, dump, events, kernel, locals, modules, names, registers, search, stack,
    system, threads, types,
};

/// Serves one command's arguments.
pub(crate) type Serve = fn(&mut Run<'_>, &str) -> Result<()>;

/// Commands by their exact word.
const BY_WORD: [(&str, Serve); 47] = [
    ("r", registers::r),
    ("u", code::u),
    ("ub", code::ub),
    ("uf", code::uf),
    ("d", dump::again),
    ("db", dump::db),
    ("dw", dump::dw),
    ("dd", dump::dd),
    ("dq", dump::dq),
    ("da", dump::da),
    ("du", dump::du),
    ("dc", dump::dc),
    ("dp", dump::dp),
    ("dps", dump::dps),
    ("dpp", dump::dpp),
    ("dpa", dump::dpa),
    ("dpu", dump::dpu),
    ("dds", dump::dds),
    ("dqs", dump::dqs),
    ("dt", types::dt),
    ("dv", locals::dv),
    ("x", names::x),
    ("ln", names::ln),
    ("s", search::s),
    ("?", arithmetic::question),
    (".formats", arithmetic::formats),
    (".lastevent", events::last_event),
    (".exr", events::exr),
    (".ecxr", events::ecxr),
    (".cxr", events::cxr),
    (".trap", events::trap),
    (".bugcheck", events::bug_check),
    (".frame", stack::frame),
    (".process", kernel::dot_process),
    (".thread", kernel::dot_thread),
    ("!process", kernel::process),
    ("!thread", kernel::thread),
    ("!address", address::address),
    ("vertarget", system::vertarget),
    (".effmach", system::effective_machine),
    (".sympath", system::symbol_path),
    (".exepath", system::symbol_path),
    (".reload", system::reload),
    (".echo", system::echo),
    (".time", system::time),
    ("version", system::version),
    ("|", system::process_list),
];

const WRITES: &str = "it writes memory";
const RUNS: &str = "a dump does not run";

/// Commands that mean to change something or to leave: what they do instead of what is near.
const CHANGING: [(&str, &str); 30] = [
    ("e", WRITES),
    ("ea", WRITES),
    ("eb", WRITES),
    ("ed", WRITES),
    ("ep", WRITES),
    ("eq", WRITES),
    ("eu", WRITES),
    ("ew", WRITES),
    ("f", WRITES),
    ("fp", WRITES),
    ("m", WRITES),
    ("a", WRITES),
    ("g", RUNS),
    ("gh", RUNS),
    ("gn", RUNS),
    ("gu", RUNS),
    ("p", RUNS),
    ("pc", RUNS),
    ("t", RUNS),
    ("bp", RUNS),
    ("bu", RUNS),
    ("ba", RUNS),
    ("bm", RUNS),
    ("q", "a session is ended by its own tool"),
    ("qd", "a session is ended by its own tool"),
    (".detach", "a session is ended by its own tool"),
    (".kill", "a session is ended by its own tool"),
    (".writemem", "it writes a file"),
    (".dump", "it writes a file"),
    (".shell", "it runs a program"),
];

/// What comes near a command that is not served.
const NEAR: [(&str, &str); 30] = [
    ("!analyze", "the triage tools"),
    ("!teb", "dt ntdll!_TEB @$teb"),
    ("!peb", "dt ntdll!_PEB @$peb"),
    ("!vprot", "!address"),
    ("!vadump", "!address"),
    ("!pte", "!address"),
    ("!lmi", "lmv m NAME"),
    ("!dlls", "lm"),
    ("!drvobj", "dt nt!_DRIVER_OBJECT ADDRESS"),
    ("!devobj", "dt nt!_DEVICE_OBJECT ADDRESS"),
    ("!irp", "dt nt!_IRP ADDRESS"),
    ("!object", "dt nt!_OBJECT_HEADER ADDRESS"),
    ("!running", "~"),
    ("!threads", "~"),
    ("!runaway", "~"),
    ("!findstack", "~*k"),
    ("!uniqstack", "~*k"),
    ("!stacks", "!process 0 7"),
    ("!error", "the status decoding tool"),
    ("!gle", "dt ntdll!_TEB @$teb LastErrorValue"),
    ("!sym", ".sympath"),
    ("!chksym", "lmv m NAME"),
    ("!itoldyouso", "lmv m NAME"),
    ("dx", "dt, dv"),
    ("??", "?, dt"),
    ("dl", "dps"),
    ("dyb", "db"),
    ("dyd", "dd"),
    ("df", "dd"),
    (".context", ".process"),
];

/// The handler of a command and its arguments.
pub(crate) fn find(command: &str) -> Result<(Serve, &str)> {
    if command.contains("@@") {
        return Err(refused("@@", "C++ expressions can change the target; use MASM syntax"));
    }
    if let Some(arguments) = command.strip_prefix('~') {
        return Ok((threads::tilde, arguments));
    }
    let verb = verb(command);
    let arguments = command[verb.len()..].trim();
    if let Some((_, serve)) = BY_WORD.iter().find(|(word, _)| word.eq_ignore_ascii_case(verb)) {
        return Ok((*serve, arguments));
    }
    let lower = verb.to_ascii_lowercase();
    if stack::is_stack_verb(verb) {
        return Ok((stack::k, command));
    }
    if lower.starts_with("lm") {
        return Ok((modules::lm, &command[2..]));
    }
    Err(unknown(verb, command))
}

/// The word a command starts with: letters, or `.`/`!` and what follows up to a blank, or a symbol.
fn verb(command: &str) -> &str {
    let end = match command.chars().next() {
        Some('.' | '!') => command.find([' ', '\t', '"']).unwrap_or(command.len()),
        Some('?') if command.starts_with("??") => 2,
        Some(c) if c.is_ascii_alphabetic() => {
            command.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(command.len())
        }
        Some(c) => c.len_utf8(),
        None => 0,
    };
    &command[..end]
}

fn refused(verb: &str, why: &str) -> TargetError {
    TargetError::unsupported(
        "unknown_command",
        format!(
            "'{verb}' is not served by the native engine: {why}. The dbgeng engine has WinDbg's commands."
        ),
    )
}

fn unknown(verb: &str, command: &str) -> TargetError {
    if verb == "$" || verb == "{" || verb == "}" {
        return refused(command.get(..2).unwrap_or(verb), "scripts and blocks are not run");
    }
    let lower = verb.to_ascii_lowercase();
    if let Some((_, why)) = CHANGING.iter().find(|(word, _)| *word == lower) {
        return match *why {
            WRITES | RUNS => TargetError::unsupported(
                "unknown_command",
                format!(
                    "'{verb}' is not served here: {why}. No session on a dump takes writes or runs, with either \
                     engine; a live process does, through the dbgeng engine."
                ),
            ),
            why => refused(verb, why),
        };
    }
    if let Some((_, near)) = NEAR.iter().find(|(word, _)| *word == lower) {
        return refused(verb, &format!("the nearest served here is {near}"));
    }
    let shown: String = verb.chars().take(40).collect();
    let near = nearest(&lower).map(|n| format!("did you mean '{n}'?"));
    refused(&shown, &near.unwrap_or_else(|| "it is not one of the read-only commands served".to_owned()))
}

/// A served command one edit away.
fn nearest(verb: &str) -> Option<&'static str> {
    if verb.len() < 2 {
        return None;
    }
    let words = BY_WORD.iter().map(|(word, _)| *word).chain(["k", "kb", "kv", "kn", "lm", "lmv", "~"]);
    words.filter(|word| word.len() > 1).find(|word| one_edit_apart(verb, word))
}

fn one_edit_apart(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let same_head = a.iter().zip(b).take_while(|(x, y)| x == y).count();
    let same_tail = a.iter().rev().zip(b.iter().rev()).take_while(|(x, y)| x == y).count();
    let longest = a.len().max(b.len());
    a.len().abs_diff(b.len()) <= 1 && same_head + same_tail + 1 >= longest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(command: &str) -> String {
        let error = find(command).map(|_| ()).unwrap_err();
        assert_eq!(error.category(), ("unsupported", Some("unknown_command")), "{command}");
        error.to_string()
    }

    #[test]
    fn verbs() {
        for command in [
            "k",
            "kb 5",
            "kP",
            "kn3",
            "kvn",
            "kc",
            "r",
            "r rax",
            "r@rax",
            "lm",
            "lmvm nt",
            "lm m nt*",
            "~",
            "~*k",
            "~0s",
            "?1+2",
            "? 1",
            ".exr -1",
            "dd@rsp",
            "dps esp L4",
            "DB 10",
            "!process 0 0",
            ".echo hi",
            "|",
        ] {
            assert!(find(command).is_ok(), "{command}");
        }
        assert_eq!(find("dd@rsp L4").unwrap().1, "@rsp L4");
    }

    #[test]
    fn refusals_name_the_engine_and_the_near_command() {
        for command in
            ["!analyze -v", "eb 0 1", "g", "$$><x.txt", ".writemem x", "{", "?? 1", "bp x", "zzz", "é"]
        {
            assert!(message(command).contains("dbgeng engine"), "{command}");
        }
        assert!(message("? @@c++(1)").contains("C++"));
        assert!(message("!teb").contains("dt ntdll!_TEB @$teb"));
        assert!(message(".lastevnt").contains("'.lastevent'"), "{}", message(".lastevnt"));
        assert!(message("eb 0 1").contains("writes memory"));
    }
}
