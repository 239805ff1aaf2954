//! Layouts of every command on scripted targets, and what a session keeps between commands.
#![allow(clippy::unwrap_used)]

mod scene;

use std::sync::atomic::Ordering;

use command::Session;
use insta::assert_snapshot;
use target::{Halt, Target};

/// The text of lines run one after the other in one session; errors in place of their output.
fn run(target: &dyn Target, lines: &[&str]) -> String {
    let mut session = Session::new();
    let mut text = String::new();
    for line in lines {
        text.push_str(&format!("> {line}\n"));
        match session.execute(target, line, &Halt::unbounded()) {
            Ok(output) => text.push_str(&output.text),
            Err(error) => text.push_str(&format!("{:?} {error}\n", error.category())),
        }
    }
    // Editors strip trailing blanks from snapshots.
    text.lines().map(|l| format!("{}\n", l.trim_end())).collect()
}

#[test]
fn a_user_target() {
    let target = scene::user();
    assert_snapshot!(
        "user_target",
        run(&target, &["vertarget", ".lastevent", ".exr -1", ".effmach", "|", ".time"])
    );
    assert_snapshot!(
        "user_stack",
        run(&target, &["k", "k L1", "kb", "kv 2", "kn", "kc", "kL 1", ".frame 1", ".frame /r 0"])
    );
    assert_snapshot!(
        "user_registers",
        run(&target, &["r", "r rax,al", "r @rip", "r $t0 = rip+2; r $t0; ? @$t0", ".ecxr", "r cs"])
    );
    assert_snapshot!(
        "user_threads",
        run(&target, &["~", "~1", "~*kc", "~1s", "~", "~0s; ~.", "~~[200]", "~#"])
    );
    assert_snapshot!(
        "user_modules",
        run(&target, &["lm", "lmvm app", "lm m k*", "lma app+10", "lm1m *", "lmf"])
    );
}

#[test]
fn memory_and_numbers() {
    let target = scene::user();
    assert_snapshot!(
        "memory",
        run(
            &target,
            &[
                "db 2000 L20",
                "d",
                "dw 2000 L8",
                "dd 2000 L4",
                "dq 2000 L2",
                "dc 2000 L4",
                "da 2000",
                "du 2100",
                "dps 3000 L3",
                "dd 2ff8 L4",
                "db 2000 200f",
                "db 2010 L-8",
                "da 9000",
                "dpp 3008 L1",
                "dpa 3008 L2",
            ],
        )
    );
    assert_snapshot!(
        "numbers",
        run(
            &target,
            &[
                "? 10+0n10",
                "? -1",
                "? app!main",
                "? poi(3000)",
                ".formats 41424344",
                "? nosuch+1",
                "? 1/0",
                "?",
                "ln 401010",
                "ln 9999999",
                "x app!*",
                "x app!no*",
                "!address 2000",
                "!address 500000",
            ],
        )
    );
    assert_snapshot!(
        "search",
        run(
            &target,
            &[
                "s 2000 L100 \"needle\"",
                "s -a 2000 L100 \"needle\"",
                "s -u 2000 L200 \"wide\"",
                "s -b 2000 L100 6e 65",
                "s -[1]b 2000 L100 6e 65",
                "s -d 2000 L40 656c6465",
                "s 2000 L100 \"absent\"",
                "s 900000 L100 1",
                "s 0 L20000000 1",
                "s 2000 L100",
                "s -z 2000 L1 1",
            ],
        )
    );
}

#[test]
fn code_and_types() {
    let target = scene::user();
    assert_snapshot!(
        "code",
        run(&target, &["u app!main L3", "u", "u 401000 401004", "u 500000", "uf app!main", "ub 401008 L2"])
    );
    assert_snapshot!(
        "types",
        run(
            &target,
            &[
                "dt app!_NODE",
                "dt app!_NODE 2200",
                "dt -r app!_NODE 2200",
                "dt app!_NODE Next Flags.Low 2200",
                "dt -v app!_COLOUR",
                "dt app!_N*",
                "dt app!_NODE -y Co 2200",
                "dt app!_NONE",
                "dt",
                "dv",
            ],
        )
    );
}

#[test]
fn a_kernel_target() {
    let target = scene::kernel();
    assert_snapshot!(
        "kernel",
        run(
            &target,
            &[
                "vertarget",
                ".bugcheck",
                ".lastevent",
                "k",
                "kb 1",
                "~",
                "lm",
                "!process 0 0",
                "!process",
                "!process 4 2",
                "!process 0 0 app.exe",
                "!process 0 0 none",
                "!thread",
                ".process",
                ".process ffff8000`00002000; .process",
                ".thread",
                ".trap 0",
                ".cxr ffff8000`00009000",
            ],
        )
    );
}

#[test]
fn a_32_bit_target() {
    let target = scene::narrow();
    assert_snapshot!(
        "narrow",
        run(
            &target,
            &["r", "k", "kb", "kn", "dps 12f000 L2", "? -1", ".formats ffffffff", "dp 12f000 L2", "~", "lm"]
        )
    );
}

#[test]
fn long_runs_of_equal_frames_are_collapsed() {
    let target = scene::recursion();
    let text = run(&target, &["kn 1000"]);
    assert!(text.contains("… the frame above repeated 199 times"), "{text}");
    assert!(text.contains("… the 2 frames above repeated 49 times"), "{text}");
    assert!(text.contains("12d "), "numbers count every frame: {text}");
    assert!(text.lines().count() < 12, "{text}");
}

#[test]
fn guesses_are_marked() {
    let target = scene::scanned();
    assert_snapshot!("scanned", run(&target, &["k"]));
}

#[test]
fn what_is_not_served_says_so_before_anything_runs() {
    let target = scene::user();
    let mut session = Session::new();
    let error = session.execute(&target, "k; !analyze -v", &Halt::unbounded()).unwrap_err();
    assert_eq!(error.category(), ("unsupported", Some("unknown_command")));
    assert!(error.to_string().contains("dbgeng"), "{error}");
    assert!(!error.to_string().contains("Call Site"), "nothing ran: {error}");
    for line in [
        "eb 2000 1",
        "r rax = 5",
        ".writemem c:\\x 0 L1",
        "$$><x",
        "? @@c++(1)",
        "~1f",
        ".sympath c:\\x",
        "g",
    ] {
        let error = session.execute(&target, line, &Halt::unbounded()).unwrap_err();
        assert_eq!(error.category().0, "unsupported", "{line}: {error}");
    }
}

#[test]
fn a_failure_keeps_what_was_printed_before() {
    let target = scene::user();
    let mut session = Session::new();
    let error = session.execute(&target, ".echo before; ? nosuch", &Halt::unbounded()).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("Couldn't resolve error at 'nosuch'") && text.contains("before"), "{text}");
    assert_eq!(error.category(), ("debugger", Some("unresolved_symbol")));
}

#[test]
fn a_break_keeps_the_output_so_far() {
    let target = scene::user();
    let mut session = Session::new();
    let halt = Halt::unbounded();
    halt.flag().store(true, Ordering::Relaxed);
    let output = session.execute(&target, "db 2000 L1000", &halt).unwrap();
    assert!(output.cut_short);
    // Raised half way: the flag is seen between the rows.
    let halt = Halt::within(std::time::Duration::from_millis(30));
    let output = session.execute(&target, "dd 0 L100000", &halt).unwrap();
    assert!(output.cut_short && !output.text.is_empty(), "{} bytes", output.text.len());
}

#[test]
fn scope_is_kept_and_reset() {
    let target = scene::user();
    let mut session = Session::new();
    let mut run = |line: &str| session.execute(&target, line, &Halt::unbounded()).map(|o| o.text);
    run(".frame 1").unwrap();
    assert!(run(".frame").unwrap().starts_with("01 "));
    run(".cxr 4000").unwrap();
    assert!(run(".frame").unwrap().starts_with("00 "));
    assert_eq!(run("? @rax").unwrap(), "Evaluate expression: 4660 = 00000000`00001234\n");
    assert!(run("k").unwrap().contains("Stack trace for last set context"));
    assert_eq!(run(".cxr").unwrap(), "Resetting default scope\n");
    assert!(!run("k").unwrap().contains("last set context"));
    run(".cxr 4000; ~0s").unwrap();
    assert!(!run("k").unwrap().contains("last set context"), "a thread switch resets the scope");
    assert!(run(".cxr 2000").is_err(), "no context there");
}

#[test]
fn an_option_in_another_alphabet_is_refused() {
    for line in ["dt app!_NODE -ߠ", "dt /é app!_NODE", "dt -\u{10400}2 app!_NODE"] {
        let error = Session::new().execute(&scene::user(), line, &Halt::unbounded()).unwrap_err();
        assert!(error.to_string().contains("is not served"), "{line}: {error}");
    }
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(256))]

    #[test]
    fn any_line_is_answered(line in "(k|r|u|ub|uf|db|dq|da|du|dps|dt|dv|x|ln|s|\\?|\\.formats|\\.exr|\\.cxr|\\.frame|~|lm|!address|!process|\\.thread)[-+ 0-9a-fL@$!*.?\"~\\[\\];é]{0,24}") {
        let target = scene::user();
        let halt = Halt::within(std::time::Duration::from_millis(500));
        let _ = Session::new().execute(&target, &line, &halt);
    }

    #[test]
    fn any_text_is_answered(line in "\\PC{0,40}") {
        let target = scene::kernel();
        let halt = Halt::within(std::time::Duration::from_millis(500));
        let _ = Session::new().execute(&target, &line, &halt);
    }
}
