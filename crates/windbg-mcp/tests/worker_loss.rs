//! A dead worker costs its session and nothing else.

#![allow(clippy::unwrap_used, clippy::expect_used)]
#![cfg(unix)]

mod mcp;

use mcp::{Client, Era, fixture};
use serde_json::json;

#[test]
fn killing_a_worker_in_the_middle_of_a_call_answers_worker_lost_and_others_go_on() {
    let mut client = Client::start(Era::Handshake("2025-06-18"));
    let doomed = client.open(&fixture("crash.dmp"));
    let other = client.open(&fixture("crash.dmp"));
    let status = client.ok("session_status", json!({ "session_id": doomed }));
    let pid = status["sessions"][0]["engine_pid"].as_u64().unwrap().to_string();
    // Stopped, the worker has the call and cannot answer it before it dies.
    signal("-STOP", &pid);
    let id = client.send("tools/call", json!({ "name": "registers", "arguments": { "session_id": doomed } }));
    assert_eq!(client.ok("registers", json!({ "session_id": other }))["status"], "ok");
    signal("-KILL", &pid);
    let answer = client.answer(id);
    assert_eq!(answer["result"]["structuredContent"]["error"]["category"], "worker_lost", "{answer}");
    let row = client.ok("session_status", json!({ "session_id": doomed }))["sessions"][0].clone();
    assert_eq!((&row["live"], &row["session_id"]), (&json!(false), &json!(doomed)), "{row}");
    assert_eq!(client.ok("backtrace", json!({ "session_id": other }))["status"], "ok");
    let gone = client.err("registers", json!({ "session_id": doomed }));
    assert!(["stale_session", "worker_lost"].contains(&gone["category"].as_str().unwrap()), "{gone}");
    client.open(&fixture("crash.dmp"));
}

fn signal(name: &str, pid: &str) {
    assert!(std::process::Command::new("kill").args([name, pid]).status().unwrap().success());
}
