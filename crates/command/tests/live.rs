//! Commands that change a target, on one that can be changed and on a dump.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use command::{Live, Session};
use control::Runs;
use target::scripted::{Script, ScriptedTarget};
use target::{Driven, Halt, Machine, MemoryExt, Result, Target, TargetError};

const AT: u64 = 0x10_0000;

/// A process with 64 writable bytes; it stops at each of `stops` in turn.
fn live(stops: &str) -> (ScriptedTarget, tempfile::NamedTempFile) {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), [0x11; 64]).unwrap();
    let text = format!(
        r#"{{"runs":[{stops}],"threads":1,"commands":{{}},
            "memory":[{{"address":"0x0000000000001000","bytes":"{}"}}],
            "modules":[{{"name":"app","base":"0x0000000000001000","size":4096}}],
            "writable":{{"address":"{AT:#018x}","path":{:?}}}}}"#,
        "90".repeat(64),
        file.path()
    );
    let script: Script = serde_json::from_str(&text).unwrap();
    (ScriptedTarget::from_script(&script), file)
}

fn drive(target: &dyn Target, session: &mut Session, line: &str) -> Result<Driven> {
    let mut runs = Runs::default();
    let live = Live { runs: &mut runs, wait: Duration::from_secs(5), moving: &|| {} };
    session.drive(target, line, live, &Halt::unbounded())
}

fn bytes(target: &ScriptedTarget, size: usize) -> Vec<u8> {
    (0..size as u64).map(|at| target.read_u8(AT + at).unwrap()).collect()
}

#[test]
fn memory_is_entered_in_units_and_as_text() {
    let (target, _file) = live(r#"{"stop":"step"}"#);
    let session = &mut Session::new();
    for (line, expected) in [
        ("eb 100000 1 2 -1", vec![1, 2, 0xff, 0x11]),
        ("ew 100000 1234", vec![0x34, 0x12]),
        ("ed 100000 12345678 9", vec![0x78, 0x56, 0x34, 0x12, 9, 0, 0, 0]),
        ("eq 100000 1122334455667788", vec![0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11]),
        ("ep 100000 1", vec![1, 0, 0, 0, 0, 0, 0, 0]),
        ("ea 100000 \"ab\"", vec![b'a', b'b', 0, 0]),
        ("eza 100000 \"xyz\"", vec![b'x', b'y', b'z', 0]),
        ("eu 100000 \"h\u{e9}\"", vec![b'h', 0, 0xe9, 0]),
        ("ezu 100004 \"\"; eb 100000 7", vec![7, 0, 0xe9, 0, 0, 0]),
        ("r $t0=100002; eb @$t0 5", vec![7, 0, 5]),
    ] {
        drive(&target, session, line).unwrap_or_else(|error| panic!("{line}: {error}"));
        assert_eq!(bytes(&target, expected.len()), expected, "{line}");
    }
    for line in [
        "eb 100000",
        "eb 100000 100",
        "eb 10003f 1 2",
        "ea 100000 x",
        "e 100000 1",
        "ew 100000 12345",
        "r rax=1",
    ] {
        assert!(drive(&target, session, line).is_err(), "{line}");
    }
    // A failure ends the line and tells what was printed.
    let error = drive(&target, session, ".echo before; eb 10003f 1 2; eb 100000 0").unwrap_err();
    assert!(error.to_string().contains("before") && bytes(&target, 1) == [7], "{error}");
}

#[test]
fn an_unknown_command_is_refused_before_anything_runs() {
    let (target, _file) = live(r#"{"stop":"step"}"#);
    let error = drive(&target, &mut Session::new(), "eb 100000 1; nosuch").unwrap_err();
    assert!(matches!(error, TargetError::Unsupported { reason: "unknown_command", .. }), "{error}");
    assert_eq!(bytes(&target, 1), [0x11]);
}

#[test]
fn it_moves_and_says_where_it_stopped() {
    let stops = r#"{"stop":"step","ip":"0x0000000000001004"},{"stop":"step","ip":"0x0000000000001005"},
        {"stop":{"breakpoint":{"id":0}},"ip":"0x0000000000001020"},{"steps":[{"sleep":{"ms":60000}}]}"#;
    let (target, _file) = live(stops);
    let session = &mut Session::new();
    let driven = drive(&target, session, "t 2").unwrap();
    assert!(driven.stop.is_some() && driven.output.text.contains("0x0000000000001005"), "{driven:?}");
    let driven = drive(&target, session, "bp 1020; g; bl").unwrap();
    assert!(
        driven.output.text.contains("breakpoint 0") && driven.output.text.contains(" 0 e 0x0000000000001020"),
        "{driven:?}"
    );
    drive(&target, session, "bc *").unwrap();
    assert_eq!(control::list(&target).unwrap(), []);
    assert!(drive(&target, session, "bc 7").unwrap().output.text.contains("no breakpoint 7"));
    let mut runs = Runs::default();
    let wait = Duration::from_millis(100);
    let live = Live { runs: &mut runs, wait, moving: &|| {} };
    let driven = session.drive(&target, "g; eb 100000 1", live, &Halt::unbounded()).unwrap();
    assert!(driven.stop.is_some_and(|stop| stop.timed_out), "the wait ran out");
    assert_eq!(bytes(&target, 1), [0x11], "what follows a stop nobody asked for is not run");
    for line in ["p 0", "t 10001", "bp", "ba x 4 1000", "bc", "gu 1;;nosuch"] {
        assert!(drive(&target, session, line).is_err(), "{line}");
    }
}

#[test]
fn a_dump_is_changed_by_none_of_them() {
    let target = ScriptedTarget::new(Machine::X64).with_memory(AT, vec![0x11; 64]);
    for line in [
        "eb 100000 1",
        "ea 100000 \"a\"",
        "r rax=1",
        "bp 100000",
        "ba w4 100000",
        "bc *",
        "bl",
        "g",
        "p",
        "t 2",
        "g 100000",
    ] {
        let error = drive(&target, &mut Session::new(), line).unwrap_err();
        assert!(matches!(error, TargetError::Unsupported { .. }), "{line}: {error}");
    }
    assert!(drive(&target, &mut Session::new(), "db 100000 L1").is_ok(), "what reads is served");
}
