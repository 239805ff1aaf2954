//! The command line as people and scripts meet it.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod mcp;

use std::path::Path;
use std::process::{Command, Output, Stdio};

use mcp::{data, fixture};
use serde_json::Value;

fn run_in(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_windbg-mcp"))
        .args(arguments)
        .current_dir(folder)
        .env_remove("_NT_SYMBOL_PATH")
        .env_remove("_NT_EXECUTABLE_IMAGE_PATH")
        .env_remove("RUST_LOG")
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn run(arguments: &[&str]) -> Output {
    run_in(Path::new(env!("CARGO_MANIFEST_DIR")), arguments)
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Names the data by `DATA`, so that a snapshot holds on any machine.
fn redacted(text: &str, folder: &Path) -> String {
    text.replace(folder.to_str().unwrap(), "DATA")
}

fn triage_of(folder: &Path, name: &str, more: &[&str]) -> String {
    let path = folder.join(name);
    let mut arguments = vec!["triage", path.to_str().unwrap()];
    arguments.extend(more);
    let output = run(&arguments);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    redacted(&out(&output), folder)
}

#[test]
fn the_bundled_dumps_are_triaged() {
    let folder = fixture("crash.dmp").parent().unwrap().to_owned();
    insta::assert_snapshot!("bundled_kernel_dump", triage_of(&folder, "kernel.dmp", &[]));
    // A rebuilt fixture crashes at another time on another thread.
    let text = triage_of(&folder, "crash.dmp", &[]);
    let lines = text.lines().map(|line| match line.split_once(", thread ") {
        Some((process, _)) => process,
        None if line.starts_with("When") => "When     [time]",
        None => line,
    });
    insta::assert_snapshot!("bundled_user_dump", lines.collect::<Vec<_>>().join("\n"));
}

#[test]
fn a_blue_screen_is_triaged_by_name_with_the_kernels_symbols() {
    let Some(data) = data() else { return };
    let isf = data.join("isf");
    let text = triage_of(&data, "kernel/triage_x64_19041_7e.dmp", &["--symbols", isf.to_str().unwrap()]);
    assert!(text.contains("0x1000007e") && text.contains("amdppm+0x334c") && text.contains("nt!"), "{text}");
    insta::assert_snapshot!(text);
}

#[test]
fn user_crashes_are_triaged() {
    let Some(data) = data() else { return };
    for name in
        ["user/crash_x86/crash_x86.dmp", "user/bp_tiny-exe-fastfail.dmp", "user/cxx_eh_x64/cxx_eh_x64.dmp.xz"]
    {
        let label = Path::new(name).file_name().unwrap().to_str().unwrap();
        insta::assert_snapshot!(label, triage_of(&data, name, &[]));
    }
}

#[test]
fn a_folder_is_summed_up_by_bucket() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["one.dmp", "two.dmp", "deeper/three.dmp"] {
        std::fs::create_dir_all(folder.path().join(name).parent().unwrap()).unwrap();
        std::fs::copy(fixture("crash.dmp"), folder.path().join(name)).unwrap();
    }
    std::fs::write(folder.path().join("broken.dmp"), b"MDMP but no more").unwrap();
    let output = run(&["triage", folder.path().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    let text = out(&output);
    assert!(text.contains("4 dumps: 3 triaged in 1 bucket, 1 failed"), "{text}");
    assert!(err(&output).contains("broken.dmp"), "{}", err(&output));
}

#[test]
fn json_is_one_object_a_dump_and_nothing_else() {
    let dump = fixture("crash.dmp");
    let output = run(&["triage", "--json", dump.to_str().unwrap(), "/nonesuch.dmp"]);
    assert_eq!(output.status.code(), Some(1));
    let lines: Vec<Value> = out(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2);
    assert_eq!((&lines[0]["status"], &lines[1]["status"]), (&"ok".into(), &"error".into()));
    assert_eq!(lines[0]["triage"]["exception"]["code"], "0xc0000005");
    assert_eq!(lines[1]["error"]["category"], "debugger");
}

#[test]
fn a_pipe_gets_no_colour() {
    let text = out(&run(&["triage", fixture("crash.dmp").to_str().unwrap()]));
    assert!(!text.contains('\u{1b}'));
}

/// Runs the command line on a terminal that `script` (util-linux) makes.
#[cfg(target_os = "linux")]
fn on_a_terminal(prefix: &str, dump: &Path) -> Option<String> {
    let line = format!("{prefix} {} triage {}", env!("CARGO_BIN_EXE_windbg-mcp"), dump.display());
    let output =
        Command::new("script").args(["-qec", line.trim(), "/dev/null"]).stdin(Stdio::null()).output();
    match output {
        Ok(output) => {
            let text = out(&output);
            assert_eq!(output.status.code(), Some(0), "{text}");
            Some(text)
        }
        Err(error) => {
            assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "CI without script: {error}");
            test_data::not_run("a terminal: no script command");
            None
        }
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_terminal_gets_colour_unless_it_says_no() {
    let bold = "\u{1b}[1mcrash.exe wrote to a null pointer";
    let Some(text) = on_a_terminal("env -u NO_COLOR TERM=xterm", &fixture("crash.dmp")) else { return };
    assert!(text.contains(bold), "{text}");
    let Some(text) = on_a_terminal("env NO_COLOR=1 TERM=xterm", &fixture("crash.dmp")) else { return };
    assert!(!text.contains(bold) && text.contains("crash.exe wrote to a null pointer"), "{text}");
}

#[test]
fn wrong_usage_is_code_2_and_says_what_is_right() {
    for (arguments, said) in [
        (vec!["triage"], "PATH"),
        (vec!["tirage", "x"], "triage"),
        (vec!["call", "registres"], "registers"),
        (vec!["call", "registers", "--json", "[]"], "JSON object"),
        (vec!["call", "registers", "--json", "{"], "does not parse"),
    ] {
        let output = run(&arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", err(&output));
        assert!(err(&output).contains(said), "{arguments:?}: {}", err(&output));
    }
}

#[test]
fn a_call_prints_the_text_or_the_structure() {
    let dump = fixture("crash.dmp");
    let dump = dump.to_str().unwrap();
    let text = run(&["call", "execute", "--dump", dump, "--json", r#"{"command":"k"}"#]);
    assert!(out(&text).contains("crash!ShipOrder"), "{}", out(&text));
    let structured = run(&["call", "backtrace", "--structured", "--dump", dump]);
    let answer: Value = serde_json::from_str(&out(&structured)).unwrap();
    assert_eq!(answer["frames"][0]["symbol"], "crash!ShipOrder");
    let failed = run(&["call", "read_memory", "--dump", dump, "--json", r#"{"address":"0x10"}"#]);
    assert_eq!(failed.status.code(), Some(1));
    assert!(err(&failed).contains("0x0000000000000010"), "{}", err(&failed));
    let absent = run(&["call", "step_back"]);
    assert_eq!(absent.status.code(), Some(1));
    assert!(err(&absent).contains("does not have it yet"), "{}", err(&absent));
}

#[test]
fn the_tools_are_listed_for_people_and_programs() {
    let text = out(&run(&["tools"]));
    let all: Value = serde_json::from_str(&out(&run(&["tools", "--json"]))).unwrap();
    assert_eq!(all.as_array().unwrap().len(), tools::all().len());
    for entry in tools::all() {
        assert!(text.contains(entry.name), "{}", entry.name);
    }
}

#[test]
fn doctor_says_what_works_and_what_to_type() {
    let output = run(&["doctor"]);
    let text = out(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains("worker   native: a worker starts and answers in "), "{text}");
    assert!(text.contains("_NT_SYMBOL_PATH") && text.contains("msdl.microsoft.com"), "{text}");
}

#[test]
fn the_version_is_the_builds_identity() {
    let text = out(&run(&["--version"]));
    let version = text.trim().strip_prefix("windbg-mcp ").unwrap();
    assert!(version.starts_with(env!("CARGO_PKG_VERSION")), "{version}");
    if let Some(commit) = version.split("+g").nth(1) {
        assert!(commit.bytes().take(12).all(|b| b.is_ascii_hexdigit()), "{version}");
    }
}

#[cfg(unix)]
#[test]
fn a_reader_that_leaves_is_no_panic() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_windbg-mcp"))
        .args(["tools", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(!err(&output).contains("panicked"), "{}", err(&output));
}

#[test]
fn paths_with_spaces_and_unicode_are_taken_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let name = "a dump, schön \u{2603}.dmp";
    std::fs::copy(fixture("crash.dmp"), folder.path().join(name)).unwrap();
    let output = run_in(folder.path(), &["triage", name]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert!(out(&output).contains(name));
}

/// `2>&1 | head`: both streams lead to a reader that has left.
#[test]
fn a_reader_that_left_is_no_panic() {
    for arguments in
        [&["triage", "/nosuch"][..], &["call", "execute"], &["call", "nosuch"], &["tools", "--tools", "x"]]
    {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let status = Command::new(env!("CARGO_BIN_EXE_windbg-mcp"))
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(writer.try_clone().unwrap())
            .stderr(writer)
            .status()
            .unwrap();
        assert!(matches!(status.code(), Some(1 | 2)), "{arguments:?}: {status}");
    }
}
