//! `walk_memory` over real lists: the loader's module lists of a user minidump against `modules`, the
//! same on DbgEng; and in words and forms (spec 20 section 3).

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod mcp;

use std::path::PathBuf;

use mcp::checked::Checked;
use mcp::{Client, Era, data, fixture};
use serde_json::{Value, json};

const ERA: Era = Era::Handshake("2025-11-25");

/// A user minidump whose memory has the loader's lists.
fn with_loader_lists() -> Option<PathBuf> {
    Some(data()?.join("user/kd_x64_release/targetapp_stacktest_x64_release.cab"))
}

/// `PEB.Ldr.InLoadOrderModuleList`: `_PEB.Ldr` is at 0x18, the list's head at 0x10 of
/// `_PEB_LDR_DATA`, `DllBase` at 0x30 and `SizeOfImage` at 0x40 of an `_LDR_DATA_TABLE_ENTRY`.
fn loader_list() -> Value {
    json!({
        "start": "poi(poi(@$peb+0x18)+0x10)",
        "next_offset": 0,
        "stop_at": "poi(@$peb+0x18)+0x10",
        "count": 256,
        "fields": [{ "name": "DllBase", "offset": 0x30 }, { "name": "SizeOfImage", "offset": 0x40, "size": 4 }],
    })
}

fn number(value: &Value) -> u64 {
    u64::from_str_radix(value.as_str().unwrap().trim_start_matches("0x"), 16).unwrap()
}

#[test]
fn the_loaders_list_is_the_module_list() {
    let Some(dump) = with_loader_lists() else { return };
    let mut client = Checked::start(ERA);
    client.ok("open_dump", json!({ "path": dump }));
    let walk = client.ok("walk_memory", loader_list());
    assert_eq!((&walk["mode"], &walk["stopped"]["reason"]), (&json!("chain"), &json!("stop_address")));
    assert_eq!(
        (&walk["unreadable"], &walk["stopped"]["at"]),
        (&json!(0), &walk["nodes"].as_array().unwrap().last().unwrap()["next"])
    );
    let mut walked: Vec<(u64, u64)> = walk["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|node| (number(&node["values"][0]), number(&node["values"][1])))
        .collect();
    let modules = client.ok("modules", json!({ "limit": 2000 }));
    let mut listed: Vec<(u64, u64)> = modules["modules"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (number(&row["start"]), row["size"].as_u64().unwrap()))
        .collect();
    walked.sort_unstable();
    listed.sort_unstable();
    assert!(walked.len() > 4);
    assert_eq!(walked, listed);
}

/// The rows of the same calls in a session of `engine`.
#[cfg(unix)]
fn rows(client: &mut Client, dump: &std::path::Path, engine: &str, calls: &[Value]) -> Vec<Value> {
    let opened = client.ok("open_dump", json!({ "path": dump, "engine": engine }));
    assert_eq!(opened["engine"], engine);
    let answers = calls.iter().map(|call| client.ok("walk_memory", call.clone())).collect();
    client.ok("end_session", json!({}));
    answers
}

#[cfg(unix)]
#[test]
fn both_engines_walk_the_same_rows() {
    if std::env::var("WINDBG_MCP_LAB").is_err() {
        test_data::not_run("lab absent (cargo xtask lab, cargo xtask wine-worker, WINDBG_MCP_LAB=1)");
        return;
    }
    let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).canonicalize().unwrap();
    let lab = differential::Lab::of(&root).unwrap();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_windbg-mcp"));
    command.envs(lab.environment()).env_remove("WINDBG_MCP_ENGINE");
    let mut client = Client::of(command, ERA);
    client.greet();
    let stack = [
        json!({ "start": "@rsp", "stride": 8, "count": 16 }),
        json!({ "start": "@rsp+0x40", "stride": -8, "count": 9, "fields": [{ "offset": 0, "size": 1 }] }),
        json!({ "addresses": ["0x10", "0x0000000000000020"] }),
        json!({ "start": "@rsp", "next_offset": 0, "count": 4, "fields": [{ "offset": -16 }, { "offset": 0x2000 }] }),
        json!({ "start": "@rsp", "next_offset": 0, "pointer_size": 4, "count": 3 }),
    ];
    for dump in [fixture("crash.dmp"), fixture("kernel.dmp")] {
        let native = rows(&mut client, &dump, "native", &stack);
        let mut dbgeng = rows(&mut client, &dump, "dbgeng", &stack);
        // The engine's own words for a failed read.
        for (one, other) in native.iter().zip(&mut dbgeng) {
            assert_eq!(one.get("note").is_some(), other.get("note").is_some());
            if let Some(note) = one.get("note") {
                other["note"] = note.clone();
            }
        }
        assert_eq!(native, dbgeng, "{}", dump.display());
    }
    if let Some(dump) = with_loader_lists() {
        let native = rows(&mut client, &dump, "native", &[loader_list()]);
        // `$peb` is a pseudo register of both.
        let dbgeng = rows(&mut client, &dump, "dbgeng", &[loader_list()]);
        assert_eq!(native, dbgeng);
    }
}

#[test]
fn bad_walks_are_refused_before_a_session_is_asked() {
    let mut client = Checked::start(ERA);
    let chain = json!({ "start": "1", "next_offset": 0 });
    let with = |more: Value| {
        let mut call = chain.clone();
        call.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        call
    };
    let fields: Vec<Value> = (0..17).map(|offset| json!({ "offset": offset })).collect();
    for (call, word) in [
        (with(json!({ "count": 1025 })), "count"),
        (with(json!({ "count": 0 })), "count"),
        (json!({ "addresses": ["0x1"], "count": 1 }), "addresses excludes count"),
        (json!({ "addresses": ["0x1"], "start": "1", "stride": 8 }), "addresses excludes start, stride"),
        (json!({ "addresses": [] }), "addresses"),
        (json!({ "start": "1" }), "exactly one of stride"),
        (with(json!({ "stride": 8 })), "exactly one of stride"),
        (json!({ "start": "1", "stride": 0 }), "stride must not be 0"),
        (json!({ "start": "1", "stride": 8, "stop_at": "2" }), "stop_at belongs to a chain"),
        (json!({ "stride": 8 }), "give addresses, or start"),
        (json!({}), "give addresses, or start"),
        (with(json!({ "fields": [{ "offset": 0, "size": 3 }] })), "size must be 1, 2, 4 or 8"),
        (with(json!({ "fields": fields })), "fields has 17 entries"),
        (with(json!({ "fields": [{ "offset": 8 }, { "name": "+0x8", "offset": 0 }] })), "is there twice"),
        (with(json!({ "fields": [{ "offset": 0, "type": "ptr" }] })), "fields[0].type"),
        (with(json!({ "pointer_size": 6 })), "pointer_size must be 4 or 8"),
        (json!({ "addresses": ["1000"] }), "0x1000"),
        (json!({ "addresses": ["@rsp"] }), "addresses[0]"),
        (json!({ "addresses": [9_007_199_254_740_992_u64] }), "addresses[0]"),
        (json!({ "addresses": [-1] }), "addresses[0]"),
        (with(json!({ "start": "1; .echo" })), "start"),
    ] {
        let error = client.err("walk_memory", call.clone());
        assert_eq!(error["category"], "invalid_argument", "{call}: {error}");
        assert!(error["message"].as_str().unwrap().contains(word), "{call}: {error}");
    }
}

#[test]
fn rows_have_their_forms_and_holes_are_null() {
    let mut client = Checked::start(ERA);
    client.ok("open_dump", json!({ "path": fixture("crash.dmp") }));
    let rsp = client.ok("walk_memory", json!({ "start": "@rsp", "stride": 8, "count": 1 }))["start"].clone();
    let plain = u64::from_str_radix(rsp.as_str().unwrap().trim_start_matches("0x"), 16).unwrap();

    let list = json!({ "addresses": [plain, rsp, format!("{plain:016x}"), "00000010"] });
    let walk = client.ok("walk_memory", list.clone());
    let nodes = walk["nodes"].as_array().unwrap();
    assert!(nodes[..3].iter().all(|node| node == &nodes[0]), "{walk}");
    assert_eq!(nodes[3], json!({ "address": "0x0000000000000010", "values": [null] }));
    assert_eq!((&walk["unreadable"], walk.get("start")), (&json!(1), None));
    assert_eq!(walk["columns"], json!([{ "name": "value", "offset": 0, "size": 8 }]));
    let text = client.text("walk_memory", list);
    assert!(text.contains("0x????????????????") && text.contains("?? did not read."), "{text}");
    assert!(text.ends_with("Stopped: every node asked for was visited."), "{text}");

    let chain = json!({ "start": "@rsp", "next_offset": 0, "fields": [{ "offset": -16, "size": 2 }] });
    let walk = client.ok("walk_memory", chain.clone());
    assert_eq!((&walk["mode"], &walk["start"]), (&json!("chain"), &rsp));
    assert_eq!(walk["columns"][0]["name"], "-0x10");
    let last = walk["nodes"].as_array().unwrap().last().unwrap().clone();
    assert!(last.get("next").is_some(), "a chain's rows always have next: {last}");
    assert_eq!(walk["stopped"]["reason"], "unreadable_link");
    assert_eq!(walk["stopped"]["at"], last["address"]);

    let nothing = client.ok("walk_memory", json!({ "addresses": ["0x10", "0x20"] }));
    assert!(nothing["note"].as_str().unwrap().contains("0x0000000000000010"), "{nothing}");
    // An expression's bare digits are hexadecimal, and the answer says what was understood.
    let hex = client.ok("walk_memory", json!({ "start": "1000", "stride": 8, "count": 1 }));
    assert_eq!(hex["start"], "0x0000000000001000");
}
