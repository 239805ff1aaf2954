//! MCP over stdio: revisions, the list, refusals, progress, and how the process ends.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod mcp;

use std::time::Duration;

use mcp::{Client, ERAS, Era, fixture};
use serde_json::{Value, json};

#[test]
fn every_revision_lists_and_calls() {
    for era in ERAS {
        let mut client = Client::start(era);
        let list = client.result("tools/list", json!({}));
        assert!(list["tools"].as_array().unwrap().len() >= 17, "{era:?}");
        let stateless = era == Era::Stateless;
        assert_eq!(list.get("ttlMs").is_some(), stateless, "{era:?}: {}", list["ttlMs"]);
        assert_eq!(list.get("cacheScope").is_some(), stateless, "{era:?}");
        if stateless {
            assert_eq!((&list["ttlMs"], &list["cacheScope"]), (&json!(0), &json!("public")));
        }
        let answer = client.ok("decode_error_reporting", json!({ "code": "0xc0000005" }));
        assert_eq!(answer["status"], "ok");
    }
}

#[test]
fn the_handshake_answers_the_revision_asked_for_or_the_newest_it_can() {
    for (asked, answered) in [
        ("2024-11-05", "2024-11-05"),
        ("2025-11-25", "2025-11-25"),
        ("1999-01-01", "2025-11-25"),
        ("2026-07-28", "2025-11-25"),
    ] {
        let client = Client::start(Era::Handshake(asked));
        assert_eq!(client.greeting["protocolVersion"], answered, "{asked}");
        let capabilities = client.greeting["capabilities"].as_object().unwrap();
        let known: std::collections::BTreeSet<&str> = capabilities.keys().map(String::as_str).collect();
        assert_eq!(known, ["completions", "prompts", "resources", "tools"].into());
        assert!(capabilities.values().all(|capability| *capability == json!({})), "{capabilities:?}");
        assert!(client.greeting["instructions"].as_str().unwrap().len() <= 1900);
    }
}

#[test]
fn a_stateless_request_must_describe_itself() {
    let mut client = Client::mute(Era::Stateless, &[]);
    client.line(r#"{"jsonrpc":"2.0","id":7,"method":"tools/list","params":{}}"#);
    let answer = client.answer(7);
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
    let discovered = client.result("server/discover", json!({}));
    assert!(discovered["supportedVersions"].as_array().unwrap().contains(&json!("2026-07-28")));
}

#[test]
fn two_lists_are_the_same_bytes() {
    let list = || Client::start(Era::Stateless).result("tools/list", json!({})).to_string();
    let mut client = Client::start(Era::Stateless);
    let first = client.result("tools/list", json!({})).to_string();
    assert_eq!(first, client.result("tools/list", json!({})).to_string());
    assert_eq!(first, list());
}

#[test]
fn the_list_says_what_the_tools_say_of_themselves() {
    let mut client = Client::start(Era::Handshake("2025-06-18"));
    let list = client.result("tools/list", json!({}));
    let rows = list["tools"].as_array().unwrap();
    let names: Vec<&str> = rows.iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!(names, tools::all().iter().map(|entry| entry.name).collect::<Vec<_>>());
    let mut titles = std::collections::BTreeSet::new();
    let mut visible = 0;
    for (row, entry) in rows.iter().zip(tools::all()) {
        assert!(titles.insert(row["title"].as_str().unwrap().to_owned()), "{}", row["title"]);
        assert_eq!(row["annotations"]["title"], row["title"]);
        for hint in ["readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"] {
            assert!(row["annotations"][hint].is_boolean(), "{hint} of {}", entry.name);
        }
        assert_eq!(row.get("outputSchema").is_none(), entry.raw, "{}", entry.name);
        visible += json!({
            "name": row["name"], "description": row["description"], "inputSchema": row["inputSchema"]
        })
        .to_string()
        .len();
    }
    assert!(visible / rows.len() <= 920, "{} bytes a tool", visible / rows.len());
}

#[test]
fn what_is_not_there_is_refused_by_kind() {
    let mut client = Client::start(Era::Handshake("2025-06-18"));
    let unknown = client.request("tools/call", json!({ "name": "registres", "arguments": {} }));
    assert_eq!(unknown["error"]["code"], -32602);
    assert!(unknown["error"]["message"].as_str().unwrap().contains("registers"), "{unknown}");
    let error = client.err("step_back", json!({}));
    assert_eq!(error["category"], "not_served");
    for method in ["resources/subscribe", "logging/setLevel", "tasks/get", "nonesuch/nonesuch"] {
        let answer = client.request(method, json!({}));
        assert_eq!(answer["error"]["code"], -32601, "{method}: {answer}");
    }
    for params in [
        json!({ "name": 7 }),
        json!({ "name": "modules", "arguments": [] }),
        json!({ "name": "modules", "arguments": "x" }),
    ] {
        let answer = client.request("tools/call", params);
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
        assert!(answer["error"]["message"].as_str().unwrap().contains("an object"), "{answer}");
    }
}

#[test]
fn malformed_lines_do_not_end_the_process() {
    let mut client = Client::mute(Era::Handshake("2025-06-18"), &[]);
    // Before the handshake too, and a notification that belongs to no session.
    for line in
        ["", "nonsense", "{", r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#, "[]", "\u{0}"]
    {
        client.line(line);
    }
    let info = json!({ "name": "test", "version": "1" });
    let params = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info });
    client.result("initialize", params);
    for line in ["nonsense", "{\"jsonrpc\":", r#"{"jsonrpc":"2.0"}"#, r#"{"id":1}"#, "\"\"", "[1,2]"] {
        client.line(line);
    }
    assert_eq!(client.ok("session_status", json!({}))["status"], "ok");
}

#[test]
fn progress_comes_only_to_who_gave_a_token_and_strictly_rises() {
    let mut client = Client::start(Era::Handshake("2025-06-18"));
    let path = fixture("crash.dmp");
    client.open(&path);
    assert!(client.notifications.is_empty(), "{:?}", client.notifications);
    let params = json!({
        "name": "open_dump", "arguments": { "path": path }, "_meta": { "progressToken": "t1" }
    });
    assert_ne!(client.result("tools/call", params)["isError"], true);
    let steps: Vec<&Value> = client.notifications.iter().map(|note| &note["params"]).collect();
    assert!(!steps.is_empty());
    assert!(steps.iter().all(|step| step["progressToken"] == "t1" && step.get("total").is_none()));
    let times: Vec<f64> = steps.iter().map(|step| step["progress"].as_f64().unwrap()).collect();
    assert!(times.windows(2).all(|pair| pair[0] < pair[1]), "{times:?}");
}

#[test]
fn a_cancelled_call_is_not_answered_and_the_session_goes_on() {
    let mut client = Client::start(Era::Handshake("2025-06-18"));
    client.open(&fixture("crash.dmp"));
    let id = client
        .send("tools/call", json!({ "name": "execute", "arguments": { "command": "s 0 L?0x7fffffff 41" } }));
    let cancel =
        json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id } });
    client.line(&cancel.to_string());
    client.call("interrupt", json!({}));
    assert_eq!(client.ok("registers", json!({}))["status"], "ok");
}

#[test]
fn a_client_that_leaves_takes_the_process_with_it() {
    let mut client = Client::start(Era::Handshake("2025-06-18"));
    client.open(&fixture("crash.dmp"));
    let status = client.ok("session_status", json!({}));
    let pid = status["sessions"][0]["engine_pid"].as_u64().unwrap();
    client.hang_up();
    let exit = client.exit(Duration::from_secs(20)).expect("still there after 20 s");
    assert!(exit.success(), "{exit}");
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists(), "worker {pid} was left behind");
}

#[test]
fn a_client_that_never_spoke_leaves_no_process() {
    let mut client = Client::mute(Era::Stateless, &[]);
    client.hang_up();
    assert!(client.exit(Duration::from_secs(20)).expect("still there after 20 s").success());
}

#[cfg(unix)]
#[test]
fn sigterm_ends_the_process_in_time() {
    for speak in [false, true] {
        let mut client = if speak {
            Client::start(Era::Handshake("2025-06-18"))
        } else {
            Client::mute(Era::Handshake("2025-06-18"), &[])
        };
        if speak {
            client.open(&fixture("crash.dmp"));
        } else {
            // The handler is installed a moment after the start.
            std::thread::sleep(Duration::from_millis(500));
        }
        let killed = std::process::Command::new("kill").arg(client.child.id().to_string()).status().unwrap();
        assert!(killed.success());
        assert!(client.exit(Duration::from_secs(20)).expect("still there after 20 s").success());
    }
}

#[test]
fn a_bad_variable_refuses_the_start() {
    let mut client = Client::mute(Era::Stateless, &[("WINDBG_MCP_CALL_TIMEOUT_SECS", "soon")]);
    assert_eq!(client.exit(Duration::from_secs(20)).unwrap().code(), Some(2));
}
