//! DbgEng under Wine behind the same interface: workers, their loss, and what is said where it is not
//! to be had. Runs with `WINDBG_MCP_LAB=1`, which the full test command sets after making the lab.

#![allow(clippy::unwrap_used, clippy::expect_used)]
#![cfg(unix)]

mod mcp;

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use differential::Lab;
use mcp::{Client, Era, fixture};
use serde_json::{Value, json};

const ERA: Era = Era::Handshake("2025-11-25");

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The lab, or why this test does not run.
fn lab() -> Option<Lab> {
    if std::env::var("WINDBG_MCP_LAB").is_err() {
        test_data::not_run("lab absent (cargo xtask lab, cargo xtask wine-worker, WINDBG_MCP_LAB=1)");
        return None;
    }
    Some(Lab::of(&root()).unwrap())
}

/// A prefix with a server of its own over the lab's files.
fn prefix_beside(lab: &Lab) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in ["system.reg", "user.reg", "userdef.reg", ".update-timestamp"] {
        std::fs::copy(lab.prefix.join(name), folder.path().join(name)).unwrap();
    }
    symlink(lab.prefix.join("drive_c"), folder.path().join("drive_c")).unwrap();
    std::fs::create_dir(folder.path().join("dosdevices")).unwrap();
    symlink("../drive_c", folder.path().join("dosdevices/c:")).unwrap();
    symlink("/", folder.path().join("dosdevices/z:")).unwrap();
    folder
}

/// A server whose environment is the lab's with `changes`.
fn server(lab: &Lab, changes: &[(&str, &Path)]) -> Client {
    let mut command = Command::new(env!("CARGO_BIN_EXE_windbg-mcp"));
    command.envs(lab.environment()).envs(changes.iter().copied()).env_remove("WINDBG_MCP_ENGINE");
    let mut client = Client::of(command, ERA);
    client.greet();
    client
}

fn open(client: &mut Client, path: &Path, engine: &str) -> Value {
    client.ok("open_dump", json!({ "path": path, "engine": engine }))
}

fn id(opened: &Value) -> String {
    opened["session_id"].as_str().unwrap().to_owned()
}

fn row(client: &mut Client, session: &str) -> Value {
    client.ok("session_status", json!({ "session_id": session }))["sessions"][0].clone()
}

fn pid(client: &mut Client, session: &str) -> u64 {
    row(client, session)["engine_pid"].as_u64().unwrap()
}

fn kill(pid: u64) {
    assert!(Command::new("kill").args(["-KILL", &pid.to_string()]).status().unwrap().success());
}

/// Whether the process is there and no zombie.
fn runs(pid: u64) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

fn within(limit: Duration, mut done: impl FnMut() -> bool) -> bool {
    let until = Instant::now() + limit;
    while Instant::now() < until {
        if done() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    done()
}

/// Processes called `name` whose environment says `variable`.
fn processes(name: &str, variable: &str) -> Vec<u64> {
    let pids =
        std::fs::read_dir("/proc").unwrap().flatten().filter_map(|e| e.file_name().to_str()?.parse().ok());
    pids.filter(|pid: &u64| {
        let read = |file: &str| std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        let line = String::from_utf8_lossy(&read("cmdline")).into_owned();
        line.contains(name) && read("environ").split(|b| *b == 0).any(|v| v == variable.as_bytes())
    })
    .collect()
}

#[test]
fn a_session_says_which_engine_serves_it_and_why() {
    let Some(lab) = lab() else { return };
    let mut client = server(&lab, &[]);
    let opened = open(&mut client, &fixture("crash.dmp"), "dbgeng");
    assert_eq!((&opened["engine"], &opened["kind"]), (&json!("dbgeng"), &json!("dump")), "{opened}");
    let why = opened["engine_reason"].as_str().unwrap();
    assert!(why.starts_with("it was asked for, under Wine; DbgEng of Z:") && why.contains("Wine "), "{why}");
    assert_eq!(row(&mut client, &id(&opened))["engine_reason"], why);
    let native = open(&mut client, &fixture("crash.dmp"), "auto");
    assert_eq!(native["engine"], "native");
    assert!(!native["engine_reason"].as_str().unwrap().is_empty());
    let named = client.ok("registers", json!({ "session_id": id(&opened) }));
    let other = client.ok("registers", json!({ "session_id": id(&native) }));
    assert_eq!(named["ip"], other["ip"], "{named} {other}");
}

#[test]
fn raw_commands_are_the_engines_own() {
    let Some(lab) = lab() else { return };
    let mut client = server(&lab, &[]);
    open(&mut client, &fixture("crash.dmp"), "dbgeng");
    // The native engine's subset has neither.
    let result = client.call("execute", json!({ "command": ".formats 41; .chain" }));
    let text = result["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("Evaluate expression") && text.contains("dbghelp:"), "{text}");
}

#[test]
fn a_packed_dump_is_unpacked_for_dbgeng_and_removed_with_its_session() {
    let Some(lab) = lab() else { return };
    let Some(data) = mcp::data() else { return };
    let packed = data.join("user/wine/cxx_eh_x64.dmp.xz");
    let packed = if packed.is_file() { packed } else { find(&data, "cxx_eh_x64.dmp.xz") };
    let mut client = server(&lab, &[]);
    let opened = open(&mut client, &packed, "dbgeng");
    assert_eq!(opened["summary"]["dump"]["container"], "xz", "{opened}");
    client.ok("end_session", json!({ "session_id": id(&opened) }));
}

/// The copy that a killed worker left goes when the next one unpacks; what is young may be on its way to
/// an engine, what has another name is somebody else's.
#[test]
fn an_unpacked_dump_that_was_left_behind_goes_when_the_next_is_unpacked() {
    let Some(lab) = lab() else { return };
    let users = lab.prefix.join("drive_c/users");
    let user = std::fs::read_dir(&users).unwrap().flatten().map(|entry| entry.path());
    let places = user.flat_map(|home| [home.join("Temp"), home.join("AppData/Local/Temp")]);
    let temp =
        places.into_iter().find(|place| place.is_dir()).expect("the prefix has a folder for such files");
    let own = std::process::id();
    let hour_ago = std::time::SystemTime::now() - Duration::from_secs(3600);
    let left = |name: String, old: bool| {
        let path = temp.join(name);
        let file = std::fs::File::create(&path).unwrap();
        if old {
            file.set_modified(hour_ago).unwrap();
        }
        path
    };
    let stale = left(format!("windbg-mcp-{own}.dmp"), true);
    let kept = [
        left(format!("windbg-mcp-{own}0.dmp"), false),
        left(format!("windbg-mcp-{own}x.dmp"), true),
        left(format!("mine-{own}.dmp"), true),
    ];
    let folder = tempfile::tempdir().unwrap();
    let packed = folder.path().join("crash.dmp.xz");
    let mut encoder = liblzma::write::XzEncoder::new(std::fs::File::create(&packed).unwrap(), 1);
    std::io::Write::write_all(&mut encoder, &std::fs::read(fixture("crash.dmp")).unwrap()).unwrap();
    encoder.finish().unwrap();
    let mut client = server(&lab, &[]);
    let opened = open(&mut client, &packed, "dbgeng");
    assert_eq!(opened["summary"]["dump"]["container"], "xz", "{opened}");
    let (gone, there) = (!stale.exists(), kept.each_ref().map(|path| path.exists()));
    for path in kept.iter().chain([&stale]) {
        let _ = std::fs::remove_file(path);
    }
    assert!(gone, "{} is still there", stale.display());
    assert_eq!(there, [true; 3], "{kept:?}");
}

fn find(folder: &Path, name: &str) -> PathBuf {
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.file_name().is_some_and(|file| file == name) {
                return path;
            }
        }
    }
    panic!("{name} is not in {}", folder.display());
}

#[test]
fn a_missing_a_foreign_and_an_empty_file_are_refused_in_the_same_words_by_both_engines() {
    let Some(lab) = lab() else { return };
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().join("empty.dmp");
    std::fs::write(&empty, b"").unwrap();
    let mut client = server(&lab, &[]);
    let elf = PathBuf::from(env!("CARGO_BIN_EXE_windbg-mcp"));
    for path in [folder.path().join("nonesuch.dmp"), empty, elf, folder.path().to_owned()] {
        let ask = |engine: &str| json!({ "path": path, "engine": engine });
        let (native, dbgeng) =
            (client.err("open_dump", ask("native")), client.err("open_dump", ask("dbgeng")));
        assert_eq!(native["message"], dbgeng["message"]);
        assert_eq!((&native["category"], &native["reason"]), (&dbgeng["category"], &dbgeng["reason"]));
    }
}

#[test]
fn kill_9_of_the_worker_costs_its_session_and_no_other() {
    let Some(lab) = lab() else { return };
    let mut client = server(&lab, &[]);
    let doomed = id(&open(&mut client, &fixture("crash.dmp"), "dbgeng"));
    let other = id(&open(&mut client, &fixture("crash.dmp"), "dbgeng"));
    let native = id(&open(&mut client, &fixture("crash.dmp"), "native"));
    let victim = pid(&mut client, &doomed);
    kill(victim);
    let error = client.err("registers", json!({ "session_id": doomed }));
    assert!(["worker_lost", "stale_session"].contains(&error["category"].as_str().unwrap()), "{error}");
    assert_eq!(row(&mut client, &doomed)["live"], false);
    assert!(!runs(victim));
    for session in [other, native] {
        client.ok("registers", json!({ "session_id": session }));
    }
    open(&mut client, &fixture("crash.dmp"), "dbgeng");
}

#[test]
fn kill_9_of_wines_server_loses_every_session_of_its_prefix_and_no_native_one() {
    let Some(lab) = lab() else { return };
    let prefix = prefix_beside(&lab);
    let mut client = server(&lab, &[("WINEPREFIX", prefix.path())]);
    let wine: Vec<String> = (0..2).map(|_| id(&open(&mut client, &fixture("crash.dmp"), "dbgeng"))).collect();
    let native = id(&open(&mut client, &fixture("crash.dmp"), "native"));
    let pids: Vec<u64> = wine.iter().map(|session| pid(&mut client, session)).collect();
    let servers = processes("wineserver", &format!("WINEPREFIX={}", prefix.path().display()));
    assert_eq!(servers.len(), 1, "{servers:?}");
    kill(servers[0]);
    for session in &wine {
        assert!(within(Duration::from_secs(10), || row(&mut client, session)["live"] == false), "{session}");
    }
    assert!(pids.iter().all(|pid| !runs(*pid)), "{pids:?}");
    client.ok("registers", json!({ "session_id": native }));
    open(&mut client, &fixture("crash.dmp"), "dbgeng");
}

#[test]
fn kill_9_of_the_supervisor_ends_its_workers() {
    let Some(lab) = lab() else { return };
    let mut client = server(&lab, &[]);
    let session = id(&open(&mut client, &fixture("crash.dmp"), "dbgeng"));
    let worker = pid(&mut client, &session);
    client.child.kill().unwrap();
    client.child.wait().unwrap();
    assert!(within(Duration::from_secs(6), || !runs(worker)), "the worker {worker} is still there");
}

/// A program that sleeps for ever, started under the debugger; the Unix pids of it.
fn launch_spin(client: &mut Client, prefix: &Path) -> Option<(String, u64)> {
    let program = root().join("target/live/spin.exe");
    assert!(program.is_file(), "{} is missing: cargo xtask test lab", program.display());
    let launched = client.ok("launch", json!({ "command_line": program }));
    assert_eq!(launched["kind"], "launch", "{launched}");
    let spins = processes("spin.exe", &format!("WINEPREFIX={}", prefix.display()));
    assert_eq!(spins.len(), 1, "{spins:?}");
    Some((id(&launched), spins[0]))
}

#[test]
fn kill_9_of_the_supervisor_while_a_launch_is_stopped_ends_worker_and_debuggee() {
    let Some(lab) = lab() else { return };
    let prefix = prefix_beside(&lab);
    let mut client = server(&lab, &[("WINEPREFIX", prefix.path())]);
    let Some((session, spin)) = launch_spin(&mut client, prefix.path()) else { return };
    let worker = pid(&mut client, &session);
    client.child.kill().unwrap();
    client.child.wait().unwrap();
    assert!(within(Duration::from_secs(6), || !runs(worker)), "the worker {worker} is still there");
    assert!(within(Duration::from_secs(6), || !runs(spin)), "the program {spin} is still there");
}

#[test]
fn kill_9_of_the_worker_takes_the_program_it_launched_along() {
    let Some(lab) = lab() else { return };
    let prefix = prefix_beside(&lab);
    let mut client = server(&lab, &[("WINEPREFIX", prefix.path())]);
    let Some((session, spin)) = launch_spin(&mut client, prefix.path()) else { return };
    let worker = pid(&mut client, &session);
    kill(worker);
    assert!(within(Duration::from_secs(5), || row(&mut client, &session)["live"] == false));
    let why = row(&mut client, &session)["why"].as_str().unwrap().to_owned();
    assert!(why.contains("worker lost"), "{why}");
    assert!(within(Duration::from_secs(6), || !runs(spin)), "the program {spin} is still there");
}

#[test]
fn nothing_reaches_a_debuggee_but_overrides_of_the_engines_own_files() {
    let Some(lab) = lab() else { return };
    let prefix = prefix_beside(&lab);
    let mut client = server(&lab, &[("WINEPREFIX", prefix.path())]);
    let session = id(&open(&mut client, &fixture("crash.dmp"), "dbgeng"));
    let worker = pid(&mut client, &session);
    let environment = std::fs::read(format!("/proc/{worker}/environ")).unwrap();
    let environment = String::from_utf8_lossy(&environment).into_owned();
    let overrides = environment.split('\0').find_map(|v| v.strip_prefix("WINEDLLOVERRIDES=")).unwrap();
    let (names, how) = overrides.split_once('=').unwrap();
    assert_eq!(how, "n");
    assert!(names.split(',').all(|name| name.starts_with("Z:\\")), "{overrides}");
    client.ok("end_session", json!({ "session_id": session }));
    let _ = Command::new("wineserver").arg("-k").env("WINEPREFIX", prefix.path()).status();
    for file in ["user.reg", "system.reg"] {
        let text = std::fs::read(prefix.path().join(file)).unwrap();
        let text = String::from_utf8_lossy(&text).to_lowercase();
        assert!(!text.contains("appdefaults\\\\windbg-mcp") && !text.contains("\"*dbgeng\""), "{file}");
    }
}

#[test]
fn a_32_bit_minidump_with_an_x86_worker_absent_opens_with_a_limitation() {
    let Some(lab) = lab() else { return };
    let Some(data) = mcp::data() else { return };
    let mut client = server(&lab, &[]);
    let opened = open(&mut client, &find(&data, "crash_x86.dmp"), "dbgeng");
    assert_eq!(opened["summary"]["arch"], "x86", "{opened}");
    assert!(opened["summary"]["limitation"].as_str().unwrap().contains("x86 worker"), "{opened}");
}

/// 32-bit Wine is not part of the lab: `CONTRIBUTING.md` says how to get it.
#[test]
fn a_32_bit_minidump_is_opened_by_the_32_bit_worker() {
    let Some(lab) = lab() else { return };
    let Some(data) = mcp::data() else { return };
    let named = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let (Some(wine), Some(prefix)) = (named("WINDBG_MCP_WINE32"), named("WINDBG_MCP_WINE32_PREFIX")) else {
        return test_data::not_run("32-bit Wine absent (WINDBG_MCP_WINE32, WINDBG_MCP_WINE32_PREFIX)");
    };
    let folder = tempfile::tempdir().unwrap();
    let (workers, engines) = (folder.path().join("workers"), folder.path().join("engines"));
    std::fs::create_dir_all(workers.join("x86")).unwrap();
    std::fs::create_dir(&engines).unwrap();
    let built = root().join("target/windows/i686-pc-windows-gnu/debug/windbg-mcp.exe");
    for (from, to) in [
        (lab.worker.clone(), "windbg-mcp.exe"),
        (lab.worker.with_file_name("bcryptprimitives.dll"), "bcryptprimitives.dll"),
        (built, "x86/windbg-mcp.exe"),
        (root().join(".lab/shim-x86/bcryptprimitives.dll"), "x86/bcryptprimitives.dll"),
    ] {
        std::fs::copy(&from, workers.join(to)).unwrap_or_else(|error| panic!("{}: {error}", from.display()));
    }
    for dll in std::fs::read_dir(&lab.engine_dir).unwrap().map(Result::unwrap) {
        symlink(dll.path(), engines.join(dll.file_name())).unwrap();
    }
    symlink(lab.engine_dir.with_file_name("dbgeng-x86"), engines.join("x86")).unwrap();
    let worker = workers.join("windbg-mcp.exe");
    let mut client = server(
        &lab,
        &[
            ("WINDBG_MCP_WINE", &wine),
            ("WINEPREFIX", &prefix),
            ("WINDBG_MCP_WINE_WORKER", &worker),
            ("WINDBG_MCP_ENGINE_DIR", &engines),
        ],
    );
    let opened = open(&mut client, &find(&data, "crash_x86.dmp"), "dbgeng");
    assert_eq!(opened["summary"]["arch"], "x86", "{opened}");
    assert_eq!(opened["summary"].get("limitation"), None, "{opened}");
    let registers = client.ok("registers", json!({}));
    assert_eq!(registers["instruction_pointer"], "0x00000000002a2a3d", "{registers}");
    // Its images can be mapped here: 64-bit DbgEng under Wine cannot.
    let code = client.ok("disassemble", json!({ "count": 1 }));
    assert_eq!(code["symbol"].as_str().unwrap().split('!').next(), Some("crash"), "{code}");
    client.ok("end_session", json!({}));
}

#[test]
fn missing_and_foreign_dlls_are_named_and_auto_serves_natively() {
    let Some(lab) = lab() else { return };
    let folder = tempfile::tempdir().unwrap();
    let x86 = lab.engine_dir.with_file_name("dbgeng-x86");
    for (engine_dir, said) in [(folder.path(), "dbgeng.dll"), (&*x86, "is not a DLL for x64")] {
        let mut client = server(&lab, &[("WINDBG_MCP_ENGINE_DIR", engine_dir)]);
        let asked = json!({ "path": fixture("crash.dmp"), "engine": "dbgeng" });
        let error = client.err("open_dump", asked);
        assert_eq!(
            (&error["category"], &error["reason"]),
            (&json!("unsupported"), &json!("no_dbgeng")),
            "{error}"
        );
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(said) && message.contains("windbg-mcp doctor"), "{message}");
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_windbg-mcp"));
    command.envs(lab.environment()).env("WINDBG_MCP_ENGINE_DIR", folder.path());
    command.env("WINDBG_MCP_ENGINE", "dbgeng");
    let mut client = Client::of(command, ERA);
    client.greet();
    let opened = open(&mut client, &fixture("crash.dmp"), "auto");
    assert_eq!(opened["engine"], "native");
    assert!(opened["summary"]["limitation"].as_str().unwrap().contains("dbgeng.dll"), "{opened}");
}

#[test]
fn a_dll_that_does_not_load_is_said_by_the_worker() {
    let Some(lab) = lab() else { return };
    let folder = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(&lab.engine_dir).unwrap().flatten() {
        let bytes = std::fs::read(entry.path()).unwrap();
        let kept = if entry.file_name() == "dbgeng.dll" { 0x1000 } else { bytes.len() };
        std::fs::write(folder.path().join(entry.file_name()), &bytes[..kept]).unwrap();
    }
    let mut client = server(&lab, &[("WINDBG_MCP_ENGINE_DIR", folder.path())]);
    let error = client.err("open_dump", json!({ "path": fixture("crash.dmp"), "engine": "dbgeng" }));
    assert_eq!(error["reason"], "no_dbgeng", "{error}");
    assert!(error["message"].as_str().unwrap().contains("does not load"), "{error}");
}

#[test]
fn without_wine_dbgeng_is_refused_with_what_is_missing_and_native_lives() {
    let absent = Path::new("/nonesuch/wine");
    let mut client = Client::start_with(ERA, &[("WINDBG_MCP_WINE", "/nonesuch/wine")]);
    let error = client.err("open_dump", json!({ "path": fixture("crash.dmp"), "engine": "dbgeng" }));
    assert_eq!(error["category"], "unsupported", "{error}");
    assert!(
        error["message"].as_str().unwrap().contains(&format!("Wine is missing ({}", absent.display())),
        "{error}"
    );
    open(&mut client, &fixture("crash.dmp"), "native");
}

#[test]
fn a_worker_of_another_build_is_refused_and_both_builds_are_named() {
    let Some(lab) = lab() else { return };
    let folder = tempfile::tempdir().unwrap();
    let wine = folder.path().join("wine");
    let ready = r#"{"message":"ready","build":"0.0.9+gother","engine":"dbgeng","arch":"x86_64"}"#;
    std::fs::write(&wine, format!("#!/bin/sh\necho '{ready}'\ncat > /dev/null\n")).unwrap();
    std::fs::set_permissions(&wine, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut client = server(&lab, &[("WINDBG_MCP_WINE", &wine)]);
    let params =
        json!({ "name": "open_dump", "arguments": { "path": fixture("crash.dmp"), "engine": "dbgeng" } });
    let answer = client.request("tools/call", params);
    assert_eq!(answer["error"]["code"], -32603, "{answer}");
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.contains("0.0.9+gother") && message.contains("this server of build"), "{message}");
}

#[test]
fn the_windows_program_serves_stdio_under_wine() {
    let Some(lab) = lab() else { return };
    let folder = lab.engine_dir.to_string_lossy().replace('/', "\\");
    let names = ["dbgeng", "dbghelp", "dbgmodel", "symsrv"].map(|name| format!("Z:{folder}\\{name}"));
    let mut command = Command::new("wine");
    command.arg(&lab.worker).env("WINEPREFIX", &lab.prefix).env("WINEDEBUG", "-all");
    command.env("WINEDLLOVERRIDES", format!("{}=n", names.join(",")));
    command.env("WINDBG_MCP_ENGINE_DIR", &lab.engine_dir);
    let mut client = Client::of(command, ERA);
    client.greet();
    let opened = open(&mut client, &fixture("crash.dmp"), "auto");
    assert_eq!(opened["engine"], "dbgeng", "{opened}");
    assert!(opened["engine_reason"].as_str().unwrap().contains("default on Windows"), "{opened}");
    assert_eq!(open(&mut client, &fixture("crash.dmp"), "native")["engine"], "native");
    client.ok("exception_triage", json!({ "session_id": id(&opened) }));
    client.hang_up();
    let status = client.exit(Duration::from_secs(20)).expect("the server ends with its input");
    assert_eq!(status.code(), Some(0));
}

#[test]
fn the_windows_program_says_in_its_resource_who_made_it_and_which_build_it_is() {
    let Some(lab) = lab() else { return };
    let image = pe::FileImage::new(std::fs::read(&lab.worker).unwrap()).unwrap();
    let version = image.pe().version(&image).expect("a version resource");
    let release = env!("CARGO_PKG_VERSION");
    assert_eq!(version.string("FileVersion"), Some(release));
    assert_eq!(version.string("OriginalFilename"), Some("windbg-mcp.exe"));
    let numbers: Vec<u16> = release.split('.').map(|part| part.parse().unwrap()).collect();
    assert_eq!(version.file_version.unwrap()[..3], numbers);
    for name in ["CompanyName", "ProductName", "FileDescription", "LegalCopyright"] {
        assert!(version.string(name).is_some_and(|text| !text.is_empty()), "{name}");
    }
    let own = Command::new(env!("CARGO_BIN_EXE_windbg-mcp")).arg("--version").output().unwrap();
    let build = version.string("ProductVersion").unwrap();
    assert!(String::from_utf8(own.stdout).unwrap().contains(build), "{build}");
}
