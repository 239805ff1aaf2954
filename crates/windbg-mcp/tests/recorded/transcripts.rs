//! Transcripts of real servers (spec 20 section 4.6).

use std::path::Path;
use std::process::Command;

use serde_json::json;

use crate::mcp::fixture;
use crate::{Watched, events, leave};

#[test]
fn a_session_from_start_to_shutdown() {
    let watched = Watched::new();
    let mut client = watched.server("true", &[]);
    let session = client.open(&fixture("crash.dmp"));
    client.ok("exception_triage", json!({}));
    client.err("read_memory", json!({ "address": "0" }));
    client.ok("interrupt", json!({}));
    client.ok("end_session", json!({}));
    client.err("registers", json!({ "session_id": session }));
    leave(client);
    let lines = watched.lines();
    assert!(lines.iter().enumerate().all(|(index, line)| line["seq"] == index && line["v"] == 1));
    let start = &lines[0];
    assert_eq!((&start["event"], &start["field_limit"]), (&json!("start"), &json!(16_384)));
    assert!(start["version"].as_str().unwrap().starts_with("0.1.0"), "{start}");
    let requests = events(&lines, "tool_request");
    assert_eq!(
        requests.iter().map(|r| r["request"].as_u64().unwrap()).collect::<Vec<_>>(),
        [1, 2, 3, 4, 5, 6]
    );
    let results = events(&lines, "tool_result");
    // Five were routed to the session without naming it; one named it and was routed there too.
    assert!(results.iter().all(|result| result["session"] == session), "{results:?}");
    assert_eq!(results[2]["category"], "debugger");
    assert_eq!(results[2]["data"]["error"]["message"], results[2]["text"]["text"]);
    assert_eq!(results[5]["category"], "stale_session");
    let open = events(&lines, "session_open")[0];
    assert_eq!((&open["kind"], &open["engine"]), (&json!("dump"), &json!("native")));
    let states: Vec<_> = events(&lines, "session_state").iter().map(|s| s["state"].clone()).collect();
    assert_eq!(states, ["attaching", "open", "closed"]);
    assert_eq!(events(&lines, "interrupt")[0]["delivered"], false);
    assert_eq!(events(&lines, "session_end")[0]["released"], true);
    assert_eq!(lines.last().unwrap()["event"], "shutdown");
}

#[test]
fn a_killed_server_leaves_whole_lines() {
    let watched = Watched::new();
    for _ in 0..5 {
        let mut client = watched.server("true", &[]);
        client.open(&fixture("crash.dmp"));
        for _ in 0..40 {
            client.send("tools/call", json!({ "name": "modules", "arguments": {} }));
        }
        client.child.kill().unwrap();
        client.child.wait().unwrap();
    }
    let text = std::fs::read_to_string(watched.transcript()).unwrap();
    let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n') && line.len() > 1);
    let torn = whole.filter(|line| serde_json::from_str::<serde_json::Value>(line).is_err()).count();
    assert_eq!(torn, 0, "one write a record");
    let reading = transcript::Reading::of(&[watched.transcript()]).unwrap();
    assert!(reading.unreadable <= 1 && reading.records.iter().filter(|r| r.name == "start").count() == 5);
}

#[test]
fn two_servers_share_a_path() {
    let watched = Watched::new();
    let (mut one, mut other) = (watched.server("true", &[]), watched.server("true", &[]));
    for _ in 0..10 {
        let ids = [&mut one, &mut other]
            .map(|client| client.send("tools/call", json!({ "name": "session_status", "arguments": {} })));
        one.answer(ids[0]);
        other.answer(ids[1]);
    }
    leave(one);
    leave(other);
    let lines = watched.lines();
    let runs: Vec<&str> =
        events(&lines, "start").iter().map(|start| start["run"].as_str().unwrap()).collect();
    assert!(runs.len() == 2 && runs[0] != runs[1]);
    for run in runs {
        let seqs: Vec<u64> =
            lines.iter().filter(|l| l["run"] == run).map(|l| l["seq"].as_u64().unwrap()).collect();
        assert_eq!(seqs, (0..22).collect::<Vec<_>>(), "start, ten calls, shutdown");
    }
}

/// What files may grow to, of a running process.
#[cfg(target_os = "linux")]
fn limit_files(pid: u32, bytes: u64) {
    let status = Command::new("prlimit")
        .args([&format!("--pid={pid}"), &format!("--fsize={bytes}:unlimited")])
        .status();
    assert!(status.unwrap().success());
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_costs_records_and_says_how_many() {
    let watched = Watched::new();
    // Past the limit a write fails as it does on a full disk, and with the signal ignored that is all.
    let mut client = watched.server("trap '' XFSZ", &[("RUST_LOG", Path::new("off"))]);
    client.open(&fixture("crash.dmp"));
    let size = std::fs::metadata(watched.transcript()).unwrap().len();
    // In the middle of the next record.
    limit_files(client.child.id(), size + 50);
    for _ in 0..4 {
        assert_eq!(client.ok("registers", json!({}))["status"], "ok", "calls are answered meanwhile");
    }
    limit_files(client.child.id(), 1 << 30);
    client.ok("registers", json!({}));
    leave(client);
    let reading = transcript::Reading::of(&[watched.transcript()]).unwrap();
    assert_eq!(reading.unreadable, 1, "the torn line costs one record");
    let gap = reading.records.iter().position(|record| record.name == "gap").unwrap();
    assert_eq!(reading.records[gap].event, transcript::Event::Gap { lost: 8 });
    assert_eq!(reading.records[gap].seq - reading.records[gap - 1].seq, 9, "numbers go on");
    assert_eq!(reading.records[gap + 1].name, "tool_request");
}

#[test]
fn a_path_that_cannot_be_opened_costs_the_transcript_only() {
    let watched = Watched::new();
    let folder = watched.folder.path().to_owned();
    let mut client = watched.server("true", &[("WINDBG_MCP_TRANSCRIPT", &folder)]);
    client.open(&fixture("crash.dmp"));
    leave(client);
    assert_eq!(watched.grep("NO TRANSCRIPT").len(), 1);
    let mut client = watched.server("true", &[("WINDBG_MCP_TRANSCRIPT", Path::new("/dev/stdout"))]);
    client.open(&fixture("crash.dmp"));
    leave(client);
    assert_eq!(watched.grep("standard output, which carries JSON-RPC").len(), 1);
}

#[test]
fn rendering_never_overwrites_a_transcript_and_tells_what_it_made() {
    let watched = Watched::new();
    let mut client = watched.server("true", &[]);
    client.open(&fixture("crash.dmp"));
    leave(client);
    let before = std::fs::read(watched.transcript()).unwrap();
    let render = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_windbg-mcp"));
        command.args(["transcript", "render"]).arg(watched.transcript()).args(more);
        let output = command.env("WINDBG_MCP_TRANSCRIPT", watched.transcript()).output().unwrap();
        (output.status.code().unwrap(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let own = watched.transcript();
    assert_eq!(render(&["-o", own.to_str().unwrap()]).0, 1);
    let link = watched.path("link");
    std::os::unix::fs::symlink(&own, &link).unwrap();
    assert_eq!(render(&["-o", link.to_str().unwrap()]).0, 1);
    assert_eq!(render(&["--format", "gif"]).0, 2);
    let (code, said) = render(&[]);
    assert!(code == 0 && said.contains("t.cast: ") && said.contains("1 run"), "{said}");
    assert_eq!(render(&["--format", "html"]).0, 0);
    let (code, cast) = render(&["-o", "-"]);
    assert!(code == 0 && cast.starts_with("{\"version\":2,"));
    assert!(std::fs::read_to_string(watched.path("t.html")).unwrap().contains("Content-Security-Policy"));
    assert_eq!(std::fs::read(own).unwrap(), before, "rendering records nothing and changes nothing");
}
