//! What the engine holds and is aimed at, and lines that say what became of them.

use std::time::Duration;

use target::capability::{Driven, Resume};
use target::{Halt, MemoryExt, Space, Target, TargetError};

use crate::harness::{Case, execute, launched, program, resume_within, windows_path};

pub(crate) const CASES: &[Case] = &[
    ("identity_holds_while_a_process_runs_and_stops", identity_holds),
    ("a_hidden_opendump_is_another_target_and_the_first_can_be_aimed_at", a_hidden_opendump),
    ("a_killed_process_has_no_identity", a_killed_process),
    ("driven_lines_say_what_failed", driven_lines),
    ("a_driven_line_that_runs_is_waited_for", a_driven_line_that_runs),
];

fn drive(engine: &engine_dbgeng::DbgEng, line: &str) -> Driven {
    let wait = Duration::from_secs(10);
    engine
        .command()
        .unwrap()
        .drive(line, wait, &|| {}, &Halt::unbounded())
        .unwrap_or_else(|error| panic!("{error}"))
}

fn identity_holds() {
    let engine = launched("spin.exe", "");
    let before = engine.identify().unwrap();
    assert!(before.aim.starts_with("system 0, process "), "{before:?}");
    let stop = resume_within(&engine, Resume::Go, Duration::from_millis(300));
    assert!(stop.timed_out, "{stop:?}");
    assert_eq!(engine.identify().unwrap(), before);
    execute(&engine, "~0s; lm; .reload; !handle");
    assert_eq!(engine.identify().unwrap(), before);
}

fn a_hidden_opendump() {
    let engine = launched("spin.exe", "");
    let before = engine.identify().unwrap();
    let at = engine.evaluate("spin", &Halt::unbounded()).unwrap();
    let dump = windows_path(&program("../../fixtures/crash.dmp"));
    execute(&engine, &format!(".if (1) {{ .opendump {dump} }}"));
    let opened = engine.identify().unwrap();
    assert_ne!(opened.generation, before.generation, "{opened:?}");
    assert_eq!(opened.aim, before.aim, "the switch comes with the next wait: {opened:?}");
    // A write still lands in the process.
    assert_eq!(engine.write().unwrap().write(Space::Virtual, at, b"XY"), Ok(2));
    assert_eq!(engine.read_u16(at), Ok(u16::from_le_bytes(*b"XY")));
    engine.aim_at(&before.aim).unwrap();
    assert_eq!(engine.identify().unwrap().aim, before.aim);
    assert!(engine.aim_at("system 9").is_err());
}

fn a_killed_process() {
    let engine = launched("spin.exe", "");
    engine.identify().unwrap();
    execute(&engine, ".kill; g");
    assert!(matches!(engine.identify(), Err(TargetError::Gone(_))), "{:?}", engine.identify());
}

fn driven_lines() {
    let engine = launched("victim.exe", "");
    for line in ["eb nosuch!symbol 1", "db poi(0)", "r nosuch=1", ".if (1) { eb nosuch!symbol 1 }; .echo on"]
    {
        let driven = drive(&engine, line);
        assert!(driven.failed.is_some() && !driven.output.text.contains("\non"), "{line}: {driven:?}");
    }
    let driven = drive(&engine, "dd 0 L4");
    assert!(driven.failed.is_none() && driven.output.text.contains("????????"), "{driven:?}");
    let driven = drive(&engine, "bp nosuch!symbol");
    assert!(driven.failed.is_none(), "{driven:?}");
    assert!(driven.output.text.contains("could not be resolved, adding deferred"), "{driven:?}");
}

fn a_driven_line_that_runs() {
    let engine = launched("spin.exe", "");
    let moved = std::cell::Cell::new(false);
    let interpreter = engine.command().unwrap();
    let driven = interpreter
        .drive("g", Duration::from_secs(1), &|| moved.set(true), &Halt::unbounded())
        .unwrap_or_else(|error| panic!("{error}"));
    assert!(moved.get() && driven.stop.as_ref().is_some_and(|stop| stop.timed_out), "{driven:?}");
    let driven = drive(&engine, "t");
    assert!(driven.stop.as_ref().is_some_and(|stop| !stop.timed_out), "{driven:?}");
}
