//! Programs that do not exist, end at once, start others, flood.

use std::time::Duration;

use engine_dbgeng::{InitialBreak, LaunchOptions, OpenError};
use target::capability::{Resume, StopReason};
use target::{Halt, Target};

use crate::harness::{command_line, launched, program, resume, try_launch, windows_path};

pub(crate) const CASES: &[crate::harness::Case] = &[
    ("a_program_that_does_not_exist", a_program_that_does_not_exist),
    ("a_file_that_is_no_program", a_file_that_is_no_program),
    ("a_blank_command_line", a_blank_command_line),
    ("a_program_that_ends_at_once", a_program_that_ends_at_once),
    ("no_initial_break_and_the_end", no_initial_break_and_the_end),
    ("no_initial_break_and_a_spin", no_initial_break_and_a_spin),
    ("a_flood_of_debug_output", a_flood_of_debug_output),
    ("children_are_not_debugged", children_are_not_debugged),
    ("children_are_debugged_on_request", children_are_debugged_on_request),
    ("its_output_does_not_reach_ours", its_output_does_not_reach_ours),
    ("the_environment_is_changed", the_environment),
    ("the_engines_own_dlls_are_not_forced_on_the_program", engine_dlls_are_not_forced),
    ("the_directory_is_its_own", the_directory),
    ("a_missing_engine_says_what_to_set", a_missing_engine),
];

fn refusal(line: &str) -> String {
    let launch = LaunchOptions { command_line: line.to_owned(), ..Default::default() };
    match try_launch(&launch) {
        Err(error @ OpenError::NotStarted { .. }) => error.to_string(),
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("\"{line}\" was started"),
    }
}

fn a_program_that_does_not_exist() {
    assert!(refusal("Z:\\no\\such\\program.exe").contains("0x8007000"));
}

fn a_file_that_is_no_program() {
    assert!(refusal(&windows_path(&program("victim.pdb"))).contains("0x800700c1"));
}

fn a_blank_command_line() {
    assert!(refusal("   ").contains("name a program"));
}

fn a_program_that_ends_at_once() {
    let engine = launched("thrower.exe", "quit 0");
    assert_eq!(resume(&engine, Resume::Go).reason, StopReason::Exited { code: Some(0) });
}

fn no_initial_break(name: &str, arguments: &str, wait: Duration) -> Result<engine_dbgeng::DbgEng, OpenError> {
    let launch = LaunchOptions {
        command_line: command_line(name, arguments),
        initial_break: InitialBreak::None,
        ..Default::default()
    };
    engine_dbgeng::launch(&launch, &crate::harness::options(), &|_| {}, &Halt::within(wait))
}

fn no_initial_break_and_the_end() {
    match no_initial_break("thrower.exe", "quit 9", Duration::from_secs(30)) {
        Err(OpenError::Exited { code, .. }) => assert_eq!(code, Some(9)),
        Err(error) => panic!("{error}"),
        Ok(engine) => panic!("{:?}", engine.stored_event()),
    }
}

fn no_initial_break_and_a_spin() {
    let engine =
        no_initial_break("spin.exe", "", Duration::from_secs(2)).unwrap_or_else(|error| panic!("{error}"));
    let stop = crate::harness::resume_within(&engine, Resume::Go, Duration::from_millis(300));
    assert!(stop.timed_out, "{stop:?}");
}

fn a_flood_of_debug_output() {
    let engine = launched("thrower.exe", "flood 20000");
    let stop = resume(&engine, Resume::Go);
    assert_eq!(stop.reason, StopReason::Exited { code: Some(2) });
    assert!(stop.output.contains("line 19999 of many") && stop.output.len() < 13 << 20);
}

fn children_are_not_debugged() {
    let engine = launched("thrower.exe", "child");
    let stop = resume(&engine, Resume::Go);
    assert_eq!(stop.reason, StopReason::Exited { code: Some(5) }, "{stop:?}");
}

fn children_are_debugged_on_request() {
    let launch = LaunchOptions {
        command_line: command_line("thrower.exe", "child"),
        children: true,
        ..Default::default()
    };
    let engine = try_launch(&launch).unwrap_or_else(|error| panic!("{error}"));
    let parent = engine.facts().process.as_ref().and_then(|p| p.pid);
    // The child stops at its own initial break.
    let stop = resume(&engine, Resume::Go);
    assert!(!stop.target_gone, "{stop:?}");
    let threads = engine.threads().unwrap();
    assert!(threads.iter().all(|t| t.process_id.is_some() && t.process_id != parent), "{threads:?}");
    assert_eq!(engine.release().unwrap(), target::Ending::Terminated);
}

fn its_output_does_not_reach_ours() {
    // What this process prints is looked at by the one that started it.
    let engine = launched("thrower.exe", "print");
    assert_eq!(resume(&engine, Resume::Go).reason, StopReason::Exited { code: Some(8) });
}

fn exit_code(launch: &LaunchOptions) -> Option<u32> {
    let engine = try_launch(launch).unwrap_or_else(|error| panic!("{error}"));
    match resume(&engine, Resume::Go).reason {
        StopReason::Exited { code } => code,
        other => panic!("{other:?}"),
    }
}

fn the_environment() {
    let with = |name: &str, environment: &[(&str, &str)]| {
        exit_code(&LaunchOptions {
            command_line: command_line("thrower.exe", &format!("env {name}")),
            environment: environment.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect(),
            ..Default::default()
        })
    };
    assert_eq!(with("ADDED", &[("ADDED", "yes")]), Some(4));
    assert_eq!(with("ADDED", &[]), Some(0));
    assert_ne!(with("SystemRoot", &[]), Some(0));
    assert_eq!(with("NUMBER_OF_PROCESSORS", &[("number_of_processors", "")]), Some(0));
}

fn engine_dlls_are_not_forced() {
    let line = command_line("thrower.exe", "helper");
    assert_eq!(exit_code(&LaunchOptions { command_line: line, ..Default::default() }), Some(6));
}

fn the_directory() {
    let folder = windows_path(&program(""));
    let launch = LaunchOptions {
        command_line: "thrower.exe quit 5".to_owned(),
        directory: Some(folder.clone()),
        ..Default::default()
    };
    // A bare name is looked for where this process looks, not in the directory asked for.
    assert!(try_launch(&launch).is_err());
    let launch = LaunchOptions { command_line: command_line("thrower.exe", "quit 5"), ..launch };
    assert_eq!(exit_code(&launch), Some(5));
    let missing = LaunchOptions { directory: Some("Z:\\no\\such".to_owned()), ..launch };
    assert!(matches!(try_launch(&missing), Err(OpenError::NotStarted { .. })));
}

fn a_missing_engine() {
    let options = engine_dbgeng::OpenOptions { engine: "Z:\\no\\engine".into(), ..crate::harness::options() };
    let refused = engine_dbgeng::open_dump("Z:\\x.dmp".as_ref(), &options, &|_| {});
    let error = refused.err().expect("there is no engine").to_string();
    assert!(error.contains("dbgeng.dll is missing") && error.contains("WINDBG_MCP_ENGINE_DIR"), "{error}");
}
