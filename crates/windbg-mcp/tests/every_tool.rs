//! Every tool once well and once badly, every result held to its schema.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod mcp;

use std::collections::BTreeSet;

use mcp::calls::{calls, good};
use mcp::checked::Checked;
use mcp::{Era, data, fixture};
use serde_json::{Value, json};

#[test]
fn every_tool_answers_well_and_badly_in_both_eras() {
    let calls = calls();
    let on = |what: &'static str| calls.iter().filter(move |call| call.on == what);
    for era in [Era::Handshake("2025-11-25"), Era::Stateless] {
        let mut client = Checked::start(era);
        client.ok("open_dump", good("open_dump"));
        for call in on("user") {
            client.text(&call.tool, call.good.clone());
        }
        let kernel = client.ok("open_dump", json!({ "path": fixture("kernel.dmp") }));
        assert_eq!(kernel["summary"]["kernel_mode"], true);
        for call in on("kernel") {
            client.text(&call.tool, call.good.clone());
        }
        let triage = client.ok("crash_triage", json!({ "session_id": kernel["session_id"] }));
        assert_eq!(triage["bug_check"]["code"], "0x000000d1");
        client.ok("end_session", json!({ "session_id": kernel["session_id"] }));
        for call in on("image") {
            client.ok("open_dump", json!({ "path": fixture("crash.exe") }));
            client.text(&call.tool, call.good.clone());
            client.ok("end_session", json!({}));
        }
        client.ok("open_dump", good("open_dump"));
        for call in &calls {
            let error = client.err(&call.tool, call.bad.clone());
            assert_eq!(error["category"], call.category.as_str(), "{} {}: {error}", call.tool, call.bad);
        }
        let opened = client.ok("session_status", json!({}))["sessions"].as_array().unwrap().len();
        assert_eq!(opened, 2);
        for _ in 0..opened {
            assert_eq!(client.ok("end_session", json!({}))["released"], true);
        }
        assert_eq!(client.err("registers", json!({}))["category"], "stale_session");
    }
}

#[test]
fn an_unknown_key_is_refused_by_every_tool_before_any_session_is_asked() {
    let mut client = Checked::start(Era::Handshake("2025-06-18"));
    for call in calls() {
        let mut arguments = call.good.clone();
        arguments["zz_unknown"] = json!(1);
        let error = client.err(&call.tool, arguments);
        assert_eq!(error["category"], "invalid_argument", "{}: {error}", call.tool);
        assert!(error["message"].as_str().unwrap().contains("zz_unknown"));
    }
    assert_eq!(client.ok("session_status", json!({}))["sessions"], json!([]));
}

/// The validator that holds every result of these tests to its schema is no rubber stamp.
#[test]
fn a_planted_wrong_result_is_rejected_whatever_tool_it_is_of() {
    let mut client = Checked::start(Era::Handshake("2025-11-25"));
    client.ok("open_dump", good("open_dump"));
    let right = client.ok("registers", json!({}));
    let refused = json!({ "status": "error", "error": { "category": "debugger", "message": "no" } });
    for entry in tools::all().iter().filter(|entry| !entry.raw) {
        let schema = jsonschema::validator_for(entry.output_schema().unwrap()).unwrap();
        assert!(schema.is_valid(&refused), "{}", entry.name);
        for wrong in [
            json!({}),
            json!({ "status": "ok" }),
            json!({ "status": "fine" }),
            json!({ "status": "error" }),
            json!({ "status": "error", "error": { "category": "debugger" } }),
            json!({ "status": "error", "error": { "category": 7, "message": "no" } }),
            json!([]),
            json!("ok"),
        ] {
            assert!(!schema.is_valid(&wrong), "{} takes {wrong}", entry.name);
        }
    }
    let schema =
        jsonschema::validator_for(tools::find("registers").unwrap().output_schema().unwrap()).unwrap();
    assert!(schema.is_valid(&right));
    for (place, value) in [
        ("/registers", json!("none")),
        ("/registers/0/value", json!(true)),
        ("/registers/0/name", json!(null)),
        ("/instruction_pointer", json!("1000")),
    ] {
        let mut wrong = right.clone();
        *wrong.pointer_mut(place).unwrap() = value;
        assert!(!schema.is_valid(&wrong), "{place}");
    }
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
    for tool in ["current_location", "registers", "backtrace", "threads"] {
        assert_eq!(client.err(tool, json!({}))["reason"], "wrong_target_kind", "{tool}");
    }
    assert_eq!(client.err("disassemble", json!({}))["reason"], "no_context");
    assert_eq!(client.err("exception_triage", json!({}))["reason"], "wrong_target_kind");
    let code = client.ok("disassemble", json!({ "address": "crash!ShipOrder", "count": 2 }));
    assert_eq!(code["instructions"].as_array().unwrap().len(), 2);
}
