//! Every tool once well and once badly, every result held to its schema.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod mcp;

use std::collections::BTreeSet;

use mcp::checked::Checked;
use mcp::{Era, data, fixture};
use serde_json::{Value, json};

/// Arguments that work on the bundled user dump.
fn good(tool: &str) -> Value {
    match tool {
        "open_dump" => json!({ "path": fixture("crash.dmp") }),
        "read_memory" => json!({ "address": "@rsp", "size": 32 }),
        "set_symbol_path" => json!({ "symbol_path": fixture("crash.pdb").parent().unwrap() }),
        "execute" => json!({ "command": "k; r" }),
        "decode_error_reporting" => json!({ "code": "STATUS_ACCESS_VIOLATION", "space": "ntstatus" }),
        "decode_ioctl" => json!({ "code": "0x222003" }),
        "registers" => json!({ "all": true }),
        "modules" => json!({ "filter": "crash*", "refresh": true }),
        _ => json!({}),
    }
}

/// Whether a dump cannot serve it; `live_session.rs` calls these well, in the lab.
fn needs_a_live_target(tool: &str) -> bool {
    ["launch", "attach_process", "dx"].contains(&tool)
        || tools::find(tool).is_some_and(|entry| entry.group == tools::Group::Exec)
}

/// Arguments that every admission refuses, or the engine does.
fn bad(tool: &str) -> (Value, &'static str) {
    match tool {
        "open_dump" => (json!({ "path": "/nonesuch.dmp" }), "debugger"),
        "read_memory" => (json!({ "address": "0x10" }), "debugger"),
        "set_symbol_path" => (json!({ "symbol_path": "a\nb" }), "invalid_argument"),
        "execute" => (json!({ "command": ".writemem x 0 1" }), "unsupported"),
        "decode_error_reporting" => (json!({ "code": "0x1234567890" }), "invalid_argument"),
        "decode_ioctl" => (json!({ "code": "0x1ffffffff" }), "invalid_argument"),
        "disassemble" => (json!({ "address": "crash!NoSuchThing" }), "debugger"),
        "backtrace" => (json!({ "thread": 4_000_000_000_u32 }), "debugger"),
        "registers" => (json!({ "view": "sideways" }), "invalid_argument"),
        "modules" => (json!({ "limit": 2001 }), "invalid_argument"),
        "threads" => (json!({ "limit": 0 }), "invalid_argument"),
        "crash_triage" => (json!({}), "unsupported"),
        "exception_triage" => (json!({ "frames": 129 }), "invalid_argument"),
        "server_log" => (json!({ "level": "loud" }), "invalid_argument"),
        "session_status" => (json!({ "session_id": 7 }), "invalid_argument"),
        "launch" => (json!({ "command_line": " " }), "invalid_argument"),
        "attach_process" => (json!({ "pid": 0 }), "invalid_argument"),
        "dx" => (json!({ "expression": "1;2" }), "invalid_argument"),
        "wait_for_stop" | "break_in" => (json!({ "execution": "exec-nonesuch" }), "stale_session"),
        "set_breakpoint" => (json!({ "expression": "@rip" }), "unsupported"),
        "run_to_address" => (json!({ "address": "@rip" }), "unsupported"),
        "clear_breakpoints" => (json!({ "all": false }), "invalid_argument"),
        live if needs_a_live_target(live) => (json!({}), "unsupported"),
        _ => (json!({ "session_id": "sess-nonesuch" }), "stale_session"),
    }
}

#[test]
fn every_tool_answers_well_and_badly_in_both_eras() {
    for era in [Era::Handshake("2025-11-25"), Era::Stateless] {
        let mut client = Checked::start(era);
        let names: Vec<String> = tools::all().iter().map(|entry| entry.name.to_owned()).collect();
        client.ok("open_dump", good("open_dump"));
        let elsewhere =
            |name: &str| ["end_session", "crash_triage"].contains(&name) || needs_a_live_target(name);
        for name in names.iter().filter(|name| !elsewhere(name)) {
            client.text(name, good(name));
        }
        let kernel = client.ok("open_dump", json!({ "path": fixture("kernel.dmp") }));
        assert_eq!(kernel["summary"]["kernel_mode"], true);
        let triage = client.ok("crash_triage", json!({ "session_id": kernel["session_id"] }));
        assert_eq!(triage["bug_check"]["code"], "0x000000d1");
        client.ok("end_session", json!({ "session_id": kernel["session_id"] }));
        client.ok("open_dump", good("open_dump"));
        for name in &names {
            let (arguments, category) = bad(name);
            let error = client.err(name, arguments.clone());
            assert_eq!(error["category"], category, "{name} {arguments}: {error}");
        }
        let opened = client.ok("session_status", json!({}))["sessions"].as_array().unwrap().len();
        assert_eq!(opened, 3);
        for _ in 0..opened {
            assert_eq!(client.ok("end_session", json!({}))["released"], true);
        }
        assert_eq!(client.err("registers", json!({}))["category"], "stale_session");
    }
}

#[test]
fn an_unknown_key_is_refused_by_every_tool_before_any_session_is_asked() {
    let mut client = Checked::start(Era::Handshake("2025-06-18"));
    for entry in tools::all() {
        let mut arguments = good(entry.name);
        arguments["zz_unknown"] = json!(1);
        let error = client.err(entry.name, arguments);
        assert_eq!(error["category"], "invalid_argument", "{}: {error}", entry.name);
        assert!(error["message"].as_str().unwrap().contains("zz_unknown"));
    }
    assert_eq!(client.ok("session_status", json!({}))["sessions"], json!([]));
}

#[test]
fn a_failed_open_says_that_nothing_was_opened_and_names_the_file() {
    let mut client = Checked::start(Era::Handshake("2025-06-18"));
    let folder = tempfile::tempdir().unwrap();
    let odd = folder.path().join("a name with spaces, ünïcode and a \u{2603}.dmp");
    std::fs::write(&odd, b"neither dump nor image").unwrap();
    let empty = folder.path().join("empty.dmp");
    std::fs::write(&empty, b"").unwrap();
    for path in [odd, empty, folder.path().to_owned(), folder.path().join("missing.dmp")] {
        let result = client.call("open_dump", json!({ "path": path }));
        let answer = &result["structuredContent"];
        assert_eq!(answer["target"], "no", "{answer}");
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.contains(path.to_str().unwrap()), "{message}");
    }
    let error = client.err("open_dump", json!({ "path": fixture("crash.dmp"), "engine": "dbgeng" }));
    assert_eq!(error["category"], "unsupported", "{error}");
    assert!(error["message"].as_str().unwrap().contains("dbgeng"), "{error}");
}

#[test]
fn memory_registers_stack_and_code_agree_about_the_crash() {
    let mut client = Checked::start(Era::Handshake("2025-06-18"));
    client.ok("open_dump", good("open_dump"));
    let here = client.ok("current_location", json!({}));
    let registers = client.ok("registers", json!({}));
    let stack = client.ok("backtrace", json!({ "frames": 2 }));
    let code = client.ok("disassemble", json!({ "count": 1 }));
    let triage = client.ok("exception_triage", json!({}));
    let address = &here["address"];
    assert_eq!(here["location_state"], "mapped");
    assert_eq!(&registers["instruction_pointer"], address);
    assert_eq!(&stack["frames"][0]["address"], address);
    assert_eq!(stack["frames"].as_array().unwrap().len(), 2);
    assert_eq!(stack["frames_truncated"], true);
    assert_eq!(&code["start"], address);
    assert_eq!(&triage["exception"]["address"], address);
    let bytes = code["instructions"][0]["bytes"].as_str().unwrap().to_owned();
    let size = bytes.len() / 2;
    let read = client.ok("read_memory", json!({ "address": "@rip", "size": size }));
    assert_eq!(read["data"], bytes);
}

#[test]
fn a_coordinate_names_the_same_place_and_no_other_build() {
    let mut client = Checked::start(Era::Handshake("2025-06-18"));
    let session = client.ok("open_dump", good("open_dump"))["session_id"].clone();
    let here = client.ok("current_location", json!({}));
    let at = here["coordinate"].clone();
    let read = |at: &Value| json!({ "coordinate": at, "size": 4, "session_id": session });
    assert_eq!(client.ok("read_memory", read(&at))["address"], here["address"]);
    let mut others: Vec<(Value, &str)> = Vec::new();
    let mut plant = |pointer: &str, value: Value, problem: &'static str| {
        let mut other = at.clone();
        *other.pointer_mut(pointer).unwrap() = value;
        others.push((other, problem));
    };
    plant("/module", json!("nonesuch"), "module_not_loaded");
    plant("/identity/timestamp", json!(1), "image_mismatch");
    plant("/identity/size", json!(1), "image_mismatch");
    plant("/identity/pdb/age", json!(77), "pdb_mismatch");
    plant("/rva", json!(format!("{:#x}", at["identity"]["size"].as_u64().unwrap())), "out_of_range");
    for (other, problem) in others {
        let result = client.call("read_memory", read(&other));
        assert_eq!(result["structuredContent"]["coordinate"]["problem"], problem, "{other}");
    }
}

#[test]
fn a_long_read_is_cut_at_what_an_answer_may_hold_and_says_where_to_go_on() {
    let Some(data) = data() else { return };
    let mut client = Checked::start(Era::Handshake("2025-06-18"));
    let cab = data.join("user/kd_x64_release/targetapp_stacktest_x64_release.cab");
    client.ok("open_dump", json!({ "path": cab }));
    let modules = client.ok("modules", json!({ "limit": 2000 }));
    let rows = modules["modules"].as_array().unwrap();
    let large = rows.iter().max_by_key(|row| row["size"].as_u64()).unwrap();
    let read = client.ok("read_memory", json!({ "address": large["start"], "size": 1_048_576 }));
    assert_eq!(read["requested_size"], 1_048_576);
    assert!(read["read_size"].as_u64().unwrap() <= 393_216);
    assert!(read["stopped_at"].is_string(), "{}", read["stopped"]);
    let on = client.ok("read_memory", json!({ "address": read["stopped_at"], "size": 16 }));
    assert_eq!(on["read_size"], 16);
}

#[test]
fn symbol_paths_are_set_read_back_and_remembered_for_later_sessions() {
    let mut client = Checked::start(Era::Handshake("2025-06-18"));
    let folder = tempfile::tempdir().unwrap();
    let dump = folder.path().join("alone.dmp");
    std::fs::copy(fixture("crash.dmp"), &dump).unwrap();
    let symbols = fixture("crash.pdb").parent().unwrap().to_owned();
    let set = |more: Value| {
        let mut arguments = json!({ "symbol_path": symbols });
        arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        arguments
    };
    assert_eq!(client.err("set_symbol_path", set(json!({})))["category"], "stale_session");
    let kept = client.ok("set_symbol_path", set(json!({ "for_new_sessions": true })));
    assert_eq!((&kept["applied"], &kept["startup"]), (&json!(false), &json!("remembered")));
    client.ok("open_dump", json!({ "path": dump }));
    let frame = client.ok("backtrace", json!({}))["frames"][0]["symbol"].clone();
    assert_eq!(frame, "crash!ShipOrder");
    client.ok("set_symbol_path", json!({ "for_new_sessions": false }));
    client.ok("open_dump", json!({ "path": dump }));
    let frame = client.ok("backtrace", json!({}))["frames"][0].clone();
    assert!(frame.get("symbol").is_none(), "{frame}");
    let now = client.ok("set_symbol_path", set(json!({ "reload": "/f crash" })));
    assert_eq!((&now["applied"], &now["reload"]["ok"]), (&json!(true), &json!(true)));
    assert_eq!(client.ok("backtrace", json!({}))["frames"][0]["symbol"], "crash!ShipOrder");
}

#[test]
fn every_dump_of_the_data_answers_every_tool_within_its_schema() {
    let Some(data) = data() else { return };
    let mut client = Checked::start(Era::Stateless);
    let mut folders = vec![data.join("user"), data.join("kernel"), data.join("synthetic")];
    let mut answered = BTreeSet::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if !name.ends_with(".dmp") && !name.ends_with(".cab") && !name.ends_with(".dmp.xz") {
                continue;
            }
            if client.call("open_dump", json!({ "path": path }))["isError"] == true {
                continue;
            }
            // Header-only dumps have no module list, and may say so.
            let whole = !["full_header_only_19045.dmp", "triage_arm32_17134.cab"].contains(&name.as_str());
            for tool in ["current_location", "registers", "backtrace", "modules", "threads"] {
                let result = client.call(tool, json!({}));
                assert!(!whole || result["isError"] != true, "{name}: {tool}: {result}");
            }
            for tool in ["disassemble", "crash_triage", "exception_triage"] {
                client.call(tool, json!({}));
            }
            client.call("execute", json!({ "command": "vertarget; .lastevent; r; k; lm" }));
            client.ok("end_session", json!({}));
            answered.insert(name);
        }
    }
    println!("{} dumps, {} results", answered.len(), client.results);
    assert!(answered.len() >= 20, "{answered:?}");
}

#[test]
fn an_image_is_a_session_without_a_crash() {
    let mut client = Checked::start(Era::Handshake("2025-06-18"));
    let base = "0x00007ff600000000";
    let opened = client.ok("open_dump", json!({ "path": fixture("crash.exe"), "image_base": base }));
    assert_eq!(opened["kind"], "image");
    assert_eq!(client.ok("modules", json!({}))["modules"][0]["start"], base);
    assert_eq!(client.ok("read_memory", json!({ "address": base, "size": 2 }))["data"], "4d5a");
    assert_eq!(client.ok("current_location", json!({}))["location_state"], "context_unavailable");
    assert_eq!(client.ok("registers", json!({}))["registers"], json!([]));
    assert_eq!(client.err("disassemble", json!({}))["reason"], "no_context");
    assert_eq!(client.err("exception_triage", json!({}))["reason"], "wrong_target_kind");
    let code = client.ok("disassemble", json!({ "address": "crash!ShipOrder", "count": 2 }));
    assert_eq!(code["instructions"].as_array().unwrap().len(), 2);
}
