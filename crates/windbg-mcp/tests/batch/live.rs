//! Live processes of DbgEng: spec 20 section 2.12's cases (4) to (6), and the client that is killed
//! while its batch waits.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::mcp::{Client, fixture};
use crate::process::{
    Process, batch, lab, launched, mark, memory, number, root, server, told, value, windows, within,
};

/// The victim launched; its Unix id.
fn launch(client: &mut Client, lab: &differential::Lab, arguments: &str) -> u32 {
    let (mark, folder) = (mark(), root().join("target/live"));
    let line = format!("\"{}\" {arguments} {mark}", windows(&folder.join("victim.exe")));
    client.ok("launch", json!({ "command_line": line, "wine_prefix": lab.prefix, "symbol_path": folder }));
    launched(&mark)
}

fn command(text: &str) -> Value {
    json!({ "op": "command", "command": text })
}

#[test]
fn patched_run_and_put_back_as_a_later_read_agrees() {
    let Some(lab) = lab() else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut client = server(&lab, &folder.path().join("t.jsonl"), 300);
    let unix = launch(&mut client, &lab, "3 1");
    let other = value(&mut client, "victim!g_other");
    let report = batch(
        &mut client,
        json!({
            "steps": [
                { "op": "eval", "expr": "poi(victim!g_other)", "capture": "orig" },
                command("eq victim!g_other 1122334455667788; bp victim!poke"),
                { "op": "resume", "command": "g", "expect": [
                    { "check": "eval", "expr": "@rip", "equals": "victim!poke" },
                    { "check": "eval", "expr": "poi(victim!g_other)", "equals": "1122334455667788" },
                ] },
                { "op": "run_to", "address": "victim!work", "timeout_ms": 1000,
                  "expect": [{ "check": "verdict", "equals": "target_gone" }] },
            ],
            "always": [command("bc *"), command("eq victim!g_other {{orig}}")],
        }),
    );
    // The run_to meets the breakpoint again: nothing but the verdict it asked for is missing.
    assert_eq!((&report["outcome"], &report["at"]), (&json!("failed"), &json!(4)), "{report:#}");
    assert_eq!(report["steps"][3]["verdict"], "stopped_elsewhere", "{report:#}");
    assert_eq!(report["steps"][3]["result"], "unmet");
    assert_eq!((&report["rollback"], &report["after"]["state"]), (&json!("complete"), &json!("stopped")));
    assert_eq!(report["always"][1]["action"], "eq victim!g_other 0x0");
    assert_eq!(memory(unix, other, 8), [0; 8], "the second reader");
    let read = client.ok("read_memory", json!({ "address": "victim!g_other", "size": 8 }));
    assert_eq!(read["data"], "0000000000000000");
    assert_eq!(client.ok("breakpoints", json!({}))["breakpoints"], json!([]));
    // Bytes of code, put back by the engine process, where a breakpoint stands.
    let report = batch(
        &mut client,
        json!({
            "steps": [
                { "op": "write_memory", "address": "victim!work", "bytes": "cccc" },
                { "op": "read_memory", "address": "victim!work", "size": 2,
                  "expect": [{ "check": "bytes", "equals": "cccc" }] },
            ],
        }),
    );
    assert_eq!(
        (&report["outcome"], &report["rollback"]),
        (&json!("committed"), &json!("complete")),
        "{report:#}"
    );
    let work = number(&report["restores"][0]["address"]);
    assert_ne!(memory(unix, work, 2), [0xcc; 2]);
}

#[test]
fn a_target_replaced_behind_a_wrapper_gets_nothing_of_the_cleanup_that_would_move_it() {
    let Some(lab) = lab() else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut client = server(&lab, &folder.path().join("t.jsonl"), 300);
    let unix = launch(&mut client, &lab, "0");
    let other = value(&mut client, "victim!g_other");
    let dump = windows(&fixture("crash.dmp"));
    let report = batch(
        &mut client,
        json!({
            "steps": [
                { "op": "write_memory", "address": "victim!g_other", "bytes": "90909090" },
                command(&format!(".if (1) {{ .opendump {dump} }}")),
                command("eb victim!g_other 91"),
            ],
            "always": [command(&format!("eb {other:#x}+4 0 0 0 0")), { "op": "resume", "command": "g" }],
        }),
    );
    assert_eq!((&report["outcome"], &report["at"]), (&json!("target_replaced"), &json!(2)), "{report:#}");
    assert_eq!(report["steps"][1]["target_changed"], true);
    assert_eq!(report["steps"][2]["result"], "skipped");
    assert_eq!(
        (&report["always"][0]["result"], &report["always"][1]["result"]),
        (&json!("ok"), &json!("skipped"))
    );
    assert_eq!((&report["rollback"], &report["restores"][0]["result"]), (&json!("incomplete"), &json!("ok")));
    assert_eq!(memory(unix, other, 8), [0; 8], "the restore landed in the live process");
}

#[test]
fn what_fails_and_what_only_reads_like_it() {
    let Some(lab) = lab() else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut client = server(&lab, &folder.path().join("t.jsonl"), 300);
    launch(&mut client, &lab, "0");
    for failing in
        ["eb nosuch!symbol 1", "db poi(0)", "r nosuch=1", ".if (1) { eb nosuch!symbol 1 }", "? @@@"]
    {
        let report = batch(&mut client, json!({ "steps": [command(failing)] }));
        assert_eq!(
            (&report["outcome"], &report["steps"][0]["result"]),
            (&json!("failed"), &json!("failed")),
            "{failing}: {report:#}"
        );
    }
    for suspect in ["dd 0 L4", "bp nosuch!symbol"] {
        let report = batch(&mut client, json!({ "steps": [command(suspect)], "always": [command("bc *")] }));
        assert_eq!(
            (&report["outcome"], &report["steps"][0]["suspect_output"]),
            (&json!("committed"), &json!(true)),
            "{report:#}"
        );
    }
    let report = batch(&mut client, json!({ "steps": [command("t"), command(".echo on")] }));
    assert!(report["outcome"] == "committed" && report["steps"][0]["stopped_at"].is_string(), "{report:#}");
    assert_eq!(report["steps"][0]["changes"], json!(["execution"]));
    let report = batch(&mut client, json!({ "steps": [{ "op": "resume", "command": ".echo still" }] }));
    assert!(
        report["steps"][0]["detail"].as_str().unwrap().contains("did not let the target move"),
        "{report:#}"
    );
    let report = batch(
        &mut client,
        json!({ "steps": [command("aS evil \"; .echo ran\""), { "op": "eval", "expr": "evil" }] }),
    );
    assert!(report["outcome"] == "failed" && !report.to_string().contains("\"ran\""), "{report:#}");
    let report = batch(&mut client, json!({ "steps": [command(".kill"), command("k")] }));
    assert_eq!((&report["outcome"], &report["at"]), (&json!("target_gone"), &json!(1)), "{report:#}");
    assert_eq!(report["after"]["state"], "ended");
}

#[test]
fn ending_the_session_returns_after_the_restore() {
    let Some(lab) = lab() else { return };
    let folder = tempfile::tempdir().unwrap();
    let transcript = folder.path().join("t.jsonl");
    let mut client = server(&lab, &transcript, 300);
    let mut process = Process::start(&lab);
    process.attach(&mut client, &lab);
    let other = value(&mut client, &format!("{}!g_other", process.name));
    client.send(
        "tools/call",
        json!({ "name": "debug_batch", "arguments": { "steps": [
            { "op": "write_memory", "address": format!("{other:#x}"), "bytes": "90909090" },
            { "op": "resume", "command": "g", "timeout_ms": 5000 },
        ] } }),
    );
    assert!(within(Duration::from_secs(20), || process.read(other, 4) == [0x90; 4]));
    std::thread::sleep(Duration::from_millis(300));
    let began = Instant::now();
    let ended = client.ok("end_session", json!({}));
    assert_eq!(process.read(other, 4), [0; 4], "it returns only after the restore");
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    assert_eq!((&ended["released"], &ended["ending"]), (&json!(true), &json!("detached")), "{ended:#}");
    let told = told(&transcript);
    let last = told.last().unwrap();
    assert_eq!((&last["outcome"], &last["rollback"]), (&json!("abandoned"), &json!("complete")), "{last:#}");
    assert!(process.lives());
}

#[test]
fn the_report_comes_before_the_caller_gives_up() {
    let Some(lab) = lab() else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut client = server(&lab, &folder.path().join("t.jsonl"), 10);
    let unix = launch(&mut client, &lab, "0");
    let other = value(&mut client, "victim!g_other");
    let began = Instant::now();
    let report = batch(
        &mut client,
        json!({
            "steps": [
                { "op": "write_memory", "address": format!("{other:#x}"), "bytes": "90909090" },
                { "op": "resume", "command": "g" },
                command("k"),
            ],
            "timeout_ms": 120_000,
        }),
    );
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert!(report["budget_ms"].as_u64().unwrap() <= 7500, "{report:#}");
    assert_eq!((&report["outcome"], &report["at"]), (&json!("timed_out"), &json!(2)), "{report:#}");
    assert_eq!((&report["steps"][1]["timed_out"], &report["rollback"]), (&json!(true), &json!("complete")));
    assert!(report["steps"][1]["stopped_at"].is_string(), "broken in, and really stopped: {report:#}");
    assert_eq!(memory(unix, other, 4), [0; 4]);
}

/// Byte patched, run, client killed while the resume waits: the byte is restored, as a second reader
/// and a later session both see; the transcript is the report.
#[test]
fn a_client_killed_while_its_batch_waits_leaves_no_patch() {
    let Some(lab) = lab() else { return };
    let folder = tempfile::tempdir().unwrap();
    let transcript = folder.path().join("t.jsonl");
    let mut process = Process::start(&lab);
    let mut client = server(&lab, &transcript, 300);
    process.attach(&mut client, &lab);
    let other = value(&mut client, &format!("{}!g_other", process.name));
    client.send(
        "tools/call",
        json!({ "name": "debug_batch", "arguments": {
            "steps": [
                { "op": "write_memory", "address": format!("{other:#x}"), "bytes": "90909090" },
                command(&format!("eb {other:#x}+4 91")),
                { "op": "resume", "command": "g", "timeout_ms": 60_000 },
            ],
            "always": [command(&format!("eb {other:#x}+4 0"))],
        } }),
    );
    assert!(within(Duration::from_secs(20), || process.read(other, 5) == [0x90, 0x90, 0x90, 0x90, 0x91]));
    std::thread::sleep(Duration::from_millis(300));
    let began = Instant::now();
    // What the kill of a client is to its server: its input ends, nobody reads its output.
    client.hang_up();
    assert!(client.exit(Duration::from_secs(20)).is_some_and(|status| status.success()));
    assert_eq!(process.read(other, 8), [0; 8], "within {:?}", began.elapsed());
    assert!(process.lives(), "detached from and left running");
    let told = told(&transcript);
    let last = told.last().unwrap();
    assert_eq!((&last["outcome"], &last["rollback"]), (&json!("abandoned"), &json!("complete")), "{last:#}");
    assert_eq!((&last["at_step"], &last["committed"]), (&json!("3"), &json!(false)));
    let mut later = server(&lab, &folder.path().join("later.jsonl"), 300);
    process.attach(&mut later, &lab);
    let read = later.ok("read_memory", json!({ "address": format!("{other:#x}"), "size": 8 }));
    assert_eq!(read["data"], "0000000000000000", "a later session");
}

/// The server itself is killed: its worker sees its channel close, cleans up, lets go and exits.
#[test]
fn a_server_killed_while_a_batch_waits_leaves_no_patch() {
    let Some(lab) = lab() else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut process = Process::start(&lab);
    let mut client = server(&lab, &folder.path().join("t.jsonl"), 300);
    process.attach(&mut client, &lab);
    let other = value(&mut client, &format!("{}!g_other", process.name));
    client.send(
        "tools/call",
        json!({ "name": "debug_batch", "arguments": { "steps": [
            { "op": "write_memory", "address": format!("{other:#x}"), "bytes": "90909090" },
            { "op": "resume", "command": "g", "timeout_ms": 60_000 },
        ] } }),
    );
    assert!(within(Duration::from_secs(20), || process.read(other, 4) == [0x90; 4]));
    std::thread::sleep(Duration::from_millis(300));
    client.child.kill().unwrap();
    client.child.wait().unwrap();
    assert!(
        within(Duration::from_secs(20), || process.read(other, 4) == [0; 4]),
        "restored by the worker alone"
    );
    std::thread::sleep(Duration::from_secs(1));
    assert!(process.lives(), "detached from and left running");
}
