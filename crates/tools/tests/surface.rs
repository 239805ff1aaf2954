//! What a client sees of the tools: names, hints, schemas, and how many bytes of it reach a model.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use tools::{Category, Hints, Surface, ToolEntry, admit};

fn model_visible(entry: &ToolEntry, surface: &Surface) -> usize {
    json!({
        "name": entry.name,
        "description": entry.description(surface),
        "inputSchema": entry.input_schema(),
    })
    .to_string()
    .len()
}

/// Every schema inside `schema`, itself included.
fn schemas<'a>(schema: &'a Value, found: &mut Vec<&'a Map<String, Value>>) {
    match schema {
        Value::Object(map) => {
            found.push(map);
            map.values().for_each(|inner| schemas(inner, found));
        }
        Value::Array(list) => list.iter().for_each(|inner| schemas(inner, found)),
        _ => {}
    }
}

#[test]
fn a_tool_costs_a_model_at_most_920_bytes_on_average() {
    let names: Vec<&str> = tools::all().iter().map(|entry| entry.name).collect();
    for surface in [Surface::all(), Surface::of(&names)] {
        let sizes: Vec<(usize, &str)> =
            surface.entries().map(|entry| (model_visible(entry, &surface), entry.name)).collect();
        let total: usize = sizes.iter().map(|(size, _)| size).sum();
        println!("{total} bytes, {} a tool: {sizes:?}", total / sizes.len());
        assert!(total / sizes.len() <= 920, "{} bytes a tool: {sizes:?}", total / sizes.len());
        assert!(
            sizes.iter().all(|(size, name)| *size <= 3600 && (*size <= 2000 || *name != "set_breakpoint"))
        );
        assert!(surface.entries().all(|entry| entry.description(&surface).len() <= 900));
    }
}

#[test]
fn titles_are_unique_and_short_and_names_plain() {
    let titles: BTreeSet<&str> = tools::all().iter().map(|entry| entry.title).collect();
    assert_eq!(titles.len(), tools::all().len());
    assert!(titles.iter().all(|title| title.len() <= 40));
    for entry in tools::all().iter() {
        assert!(entry.name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_' || b.is_ascii_digit()));
    }
}

/// Spec 20 section 7 with the corrections of decision 00-5: a breakpoint can carry a command, a second
/// break into a run changes nothing more.
#[test]
fn hints_are_those_of_the_table() {
    const ROWS: [(Hints, usize, &str); 6] = [
        (Hints::PURE, 4, "session_status server_log decode_ioctl decode_error_reporting"),
        (
            Hints::READ,
            40,
            "current_location registers read_memory backtrace modules threads disassemble breakpoints wait_for_stop \
             ttd_calls ttd_memory ttd_events driver_object device_object irp_stack reachable_from_dispatch \
             driver_hazards ioctl_map xrefs_to device_security driver_surface pool_find_tag pool_chunk pool_census \
             pool_diagnostics pool_trace_read heap_list heap_allocations heap_chunk heap_census heap_diagnostics \
             walk_memory crash_triage exception_triage sk_modules sk_read_memory sk_symbol sk_live_wait \
             sk_live_registers sk_live_read_memory",
        ),
        (Hints::AGAIN, 2, "goto_position break_in"),
        (Hints::STATE, 6, "interrupt set_symbol_path ioctl_trace step_back step_over_back reverse_go"),
        (Hints::END, 3, "end_session clear_breakpoints index_trace"),
        (
            Hints::OPEN,
            23,
            "open_dump open_trace attach_kernel attach_kernel_local attach_process launch go step_over step_into \
             run_to_address set_breakpoint continue_async execute dx debug_batch pool_trace record_trace \
             open_sk_capture open_sk_live_control open_sk_kd sk_live_arm sk_live_step sk_live_continue",
        ),
    ];
    let mut all = BTreeSet::new();
    for (hints, count, names) in ROWS {
        assert_eq!(names.split_whitespace().count(), count);
        for name in names.split_whitespace() {
            assert!(all.insert(name), "{name} is there twice");
            if let Some(entry) = tools::find(name) {
                assert_eq!(entry.hints, hints, "{name}");
            }
        }
    }
    let product: BTreeSet<&str> =
        tools::catalogue::CATALOGUE.iter().flat_map(|(_, names)| names.iter().copied()).collect();
    assert_eq!(all, product);
}

#[test]
fn input_schemas_are_closed_inline_and_in_one_dialect() {
    for entry in tools::all().iter() {
        let schema = entry.input_schema();
        let mut found = Vec::new();
        schemas(schema, &mut found);
        for map in found {
            if map.get("type") == Some(&json!("object")) {
                assert_eq!(map.get("additionalProperties"), Some(&json!(false)), "{}", entry.name);
            }
            for keyword in ["oneOf", "anyOf", "allOf", "format", "$schema"] {
                assert!(!map.contains_key(keyword), "{keyword} in {}", entry.name);
            }
            // The blocks of a batch share their step; nothing else refers, and nothing twice.
            for keyword in ["$ref", "$defs"].iter().filter(|keyword| map.contains_key(**keyword)) {
                assert_eq!(entry.name, "debug_batch", "{keyword}");
            }
            assert!(!matches!(map.get("type"), Some(Value::Array(_))), "{}", entry.name);
            if let Some(Value::String(text)) = map.get("description") {
                assert!(text.len() <= 120, "{} in {}", text, entry.name);
            }
        }
    }
}

#[test]
fn a_batchs_blocks_share_one_definition_one_level_deep() {
    let entry = tools::find("debug_batch").unwrap();
    let schema = entry.input_schema();
    assert_eq!(schema["$defs"].as_object().unwrap().len(), 1);
    for block in ["steps", "always"] {
        assert_eq!(schema["properties"][block]["items"], json!({ "$ref": "#/$defs/step" }));
    }
    assert!(!schema["$defs"]["step"].to_string().contains("$ref"));
    let size = model_visible(entry, &Surface::all());
    println!("debug_batch: {size} bytes");
    assert!(size <= 3000, "{size} bytes");
}

#[test]
fn session_id_is_worded_once() {
    let wordings: BTreeSet<String> = tools::all()
        .iter()
        .filter(|entry| entry.name != "session_status" && entry.name != "server_log")
        .filter_map(|entry| Some(entry.input_schema()["properties"].get("session_id")?.to_string()))
        .collect();
    assert_eq!(wordings.len(), 1, "{wordings:?}");
}

#[test]
fn output_schemas_hold_constraints_only_and_their_references_resolve() {
    for entry in tools::all().iter() {
        let Some(schema) = entry.output_schema() else {
            assert!(entry.raw);
            continue;
        };
        assert_eq!(schema["type"], "object");
        // Names of the envelope's own; a payload field would be lost behind them.
        let required = schema["oneOf"][0]["required"].as_array().unwrap();
        assert_eq!(required.iter().filter(|name| *name == "status").count(), 1, "{}", entry.name);
        for own in ["error", "next", "redactions", "secrets_masked"] {
            assert!(schema["oneOf"][0]["properties"].get(own).is_none(), "{own} of {}", entry.name);
        }
        let mut found = Vec::new();
        schemas(schema, &mut found);
        for map in found {
            for prose in ["description", "title", "examples"] {
                // A field may be called so; then its value is a schema, not text.
                assert!(!matches!(map.get(prose), Some(Value::String(_))), "{prose} in {}", entry.name);
            }
            if let Some(Value::String(reference)) = map.get("$ref") {
                let name = reference.strip_prefix("#/$defs/").unwrap();
                assert!(schema["$defs"].get(name).is_some(), "{reference} in {}", entry.name);
            }
        }
        jsonschema::validator_for(schema).unwrap();
    }
}

fn arguments(value: Value) -> Option<Map<String, Value>> {
    value.as_object().cloned()
}

/// A call of `name` that is admitted: the good one of the table all clients' tests read.
fn least(name: &str) -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/calls.json");
    let table: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    assert!(table[name].is_object(), "tests/calls.json lacks {name}");
    table[name]["good"].clone()
}

#[test]
fn every_tool_takes_its_least_call_and_refuses_an_unknown_key_with_the_nearest() {
    for entry in tools::all().iter() {
        let mut call = least(entry.name);
        assert!(admit(entry, arguments(call.clone())).is_ok(), "{}", entry.name);
        call["zz_unknown"] = json!(1);
        let error = admit(entry, arguments(call.clone())).err().unwrap();
        assert_eq!(error.category, Category::InvalidArgument);
        assert!(error.message.contains("zz_unknown"), "{}", error.message);
        let known = entry.input_schema()["properties"].as_object().unwrap();
        for key in known.keys().filter(|key| key.len() > 3) {
            let slip = format!("{key}x");
            if known.contains_key(&slip) {
                continue;
            }
            let error = admit(entry, arguments(json!({ slip: 1 }))).err().unwrap();
            assert!(error.message.contains(&format!("did you mean \"{key}\"")), "{}", error.message);
        }
    }
}

#[test]
fn what_admission_refuses_and_what_it_forgives() {
    let refused = [
        ("read_memory", json!({ "address": "0x1", "size": 0 })),
        ("read_memory", json!({ "address": "0x1", "size": 1_048_577 })),
        ("read_memory", json!({ "address": "0x1", "size": "64" })),
        ("read_memory", json!({ "address": " " })),
        ("read_memory", json!({ "address": "0x1;g" })),
        ("read_memory", json!({ "address": "@@c++(1)" })),
        ("read_memory", json!({})),
        ("disassemble", json!({ "target": "nt!Foo" })),
        ("disassemble", json!({ "address": "${x}" })),
        ("modules", json!({ "filter": "  " })),
        ("set_symbol_path", json!({ "path": "a\"b" })),
        ("set_symbol_path", json!({ "path": "a", "reload": "x;q" })),
        ("set_symbol_path", json!({})),
        ("open_dump", json!({ "path": "a\0b" })),
        ("launch", json!({ "command_line": "  " })),
        ("launch", json!({ "command_line": "a", "environment": ["=x"] })),
        ("launch", json!({ "command_line": "a", "environment": { "A": "b" } })),
        ("launch", json!({ "command_line": "a", "initial_break": "main" })),
        ("attach_process", json!({ "pid": 0 })),
        ("attach_process", json!({ "pid": 4_294_967_296_u64 })),
        ("dx", json!({ "expression": "a;b" })),
        ("dx", json!({ "expression": "a", "recursion": 6 })),
        ("go", json!({ "timeout_ms": 0 })),
        ("go", json!({ "timeout_ms": 3_600_001 })),
        ("run_to_address", json!({ "address": "a", "coordinate": {} })),
        ("set_breakpoint", json!({})),
        ("set_breakpoint", json!({ "expression": "a\"b" })),
        ("set_breakpoint", json!({ "expression": "a", "condition": "@@c++(x=1)" })),
        ("set_breakpoint", json!({ "expression": "a", "command": "r; .kill" })),
        ("set_breakpoint", json!({ "expression": "a", "comand": "gc" })),
        ("set_breakpoint", json!({ "expression": "a", "pass_count": 0 })),
        ("set_breakpoint", json!({ "expression": "a", "watch": { "access": "write", "size": 3 } })),
        ("set_breakpoint", json!({ "expression": "a", "watch": { "access": "execute", "size": 4 } })),
        ("set_breakpoint", json!({ "expression": "a", "watch": { "access": "write" } })),
        ("clear_breakpoints", json!({})),
        ("clear_breakpoints", json!({ "all": false })),
        ("clear_breakpoints", json!({ "ids": [], "all": true })),
        ("clear_breakpoints", json!({ "ids": [1, 1] })),
        ("continue_async", json!({ "max_run_ms": 0 })),
        ("wait_for_stop", json!({})),
        ("open_dump", json!({ "path": "a", "engine": "gdb" })),
        ("open_dump", json!({ "path": "a", "image_base": "401000" })),
        ("open_dump", json!({ "path": "a", "session_id": "x" })),
        ("crash_triage", json!({ "analyze": false, "analyzer": "native" })),
        ("decode_error_reporting", json!({ "code": "0x1234567890" })),
        ("server_log", json!({ "level": "loud" })),
    ];
    for (name, call) in refused {
        let answer = admit(tools::find(name).unwrap(), arguments(call.clone()));
        assert_eq!(answer.err().map(|e| e.category), Some(Category::InvalidArgument), "{name} {call}");
    }
    let forgiven = [
        ("read_memory", json!({ "address": "0x1", "size": 64.0, "session_id": null })),
        ("decode_error_reporting", json!({ "code": -2_147_024_891 })),
        ("set_symbol_path", json!({ "path": "srv*/cache*https://h/s" })),
        ("open_dump", json!({ "path": "a", "image_base": "0x401000" })),
    ];
    for (name, call) in forgiven {
        assert!(admit(tools::find(name).unwrap(), arguments(call.clone())).is_ok(), "{name} {call}");
    }
}

#[test]
fn a_slip_in_a_key_is_met_with_the_right_one() {
    let error =
        admit(tools::find("disassemble").unwrap(), arguments(json!({ "adress": "0x1" }))).err().unwrap();
    assert!(error.message.contains("did you mean \"address\""), "{}", error.message);
    assert!(error.message.contains("it takes address, count, session_id"), "{}", error.message);
}

#[test]
fn a_coordinate_needs_its_session() {
    let at = json!({
        "module": "nt", "image_name": "ntkrnlmp.exe", "rva": "0x10",
        "identity": { "timestamp": 1, "size": 4096 }
    });
    let entry = tools::find("read_memory").unwrap();
    assert!(admit(entry, arguments(json!({ "coordinate": at }))).is_err());
    assert!(admit(entry, arguments(json!({ "coordinate": at, "session_id": "s" }))).is_ok());
    assert!(
        admit(entry, arguments(json!({ "coordinate": at, "address": "0x1", "session_id": "s" }))).is_err()
    );
    let mut odd = at.clone();
    odd["identity"]["zz"] = json!(1);
    assert!(admit(entry, arguments(json!({ "coordinate": odd, "session_id": "s" }))).is_err());
}

#[test]
fn prose_names_only_tools_that_are_served() {
    let session: Vec<&str> =
        tools::all().iter().filter(|e| e.group == tools::Group::Session).map(|e| e.name).collect();
    let mut found = Vec::new();
    for entry in tools::all().iter() {
        let mut names = session.clone();
        names.push(entry.name);
        let surface = Surface::of(&names);
        found.extend(tools::prose::leaks(&tools::instructions::instructions(&surface), &surface));
        for served in surface.entries() {
            found.extend(tools::prose::leaks(&served.description(&surface), &surface));
            let schema = &served.input_schema_for(&surface);
            let mut inner = Vec::new();
            schemas(schema, &mut inner);
            let prose = inner.iter().filter_map(|map| map.get("description")?.as_str());
            found.extend(prose.flat_map(|text| tools::prose::leaks(text, &surface)));
        }
    }
    assert!(found.is_empty(), "{found:?}");
    let planted = tools::prose::leaks("try `registers` or crash_triage", &Surface::of(&session));
    assert_eq!(planted, ["crash_triage", "registers"]);
}

#[test]
fn a_refusal_is_short_whatever_the_call_was() {
    let long = "x".repeat(5_000_000);
    let unknown: serde_json::Map<String, Value> =
        (0..100_000).map(|index| (format!("k{index}"), json!(1))).collect();
    let calls = [
        ("open_dump", json!({ "path": "a", "image_base": long })),
        ("session_status", json!({ "session_id": long })),
        ("modules", json!({ "filter": long })),
        ("registers", Value::Object(unknown)),
    ];
    for (name, call) in calls {
        let error = admit(tools::find(name).unwrap(), arguments(call)).err().unwrap();
        assert_eq!(error.category, Category::InvalidArgument, "{name}");
        assert!(error.message.len() < 4096, "{name}: {} bytes", error.message.len());
    }
}
