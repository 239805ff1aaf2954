//! Operands are operands (spec 20 section 6.4): no string that becomes part of an expression can end
//! it, open another or switch evaluators. Every string a tool takes is tried; one that is no operand
//! says here what it is.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use serde_json::{Map, Value, json};
use tools::{Category, admit};

/// Strings that are no operands, and what they are instead.
const OTHER: [(&str, &str); 18] = [
    ("*.session_id", "looked up among the client's sessions"),
    ("*.path", "opened as a file"),
    ("*.symbol_path", "a search path; its own guard"),
    ("*.image_path", "a search path; its own guard"),
    ("launch.command_line", "Windows's own command line"),
    ("launch.directory", "a path"),
    ("launch.environment[]", "NAME=VALUE"),
    ("*.wine_prefix", "a path"),
    ("execute.command", "a raw command, which chaining is for"),
    ("set_breakpoint.command", "a raw command, run at each hit"),
    ("debug_batch.steps[].command", "a raw command, which chaining is for"),
    ("debug_batch.always[].command", "a raw command, which chaining is for"),
    ("modules.filter", "matched here against names"),
    ("*.execution", "looked up among the client's runs"),
    ("ioctl_trace.trace_id", "looked up among the session's traces"),
    ("walk_memory.fields[].name", "a column's heading"),
    ("debug_batch.*.name", "a step's label"),
    ("debug_batch.*.text", "looked for in a step's output"),
];

/// What an operand must not hold, with what it stands in.
const BREAKERS: [&str; 8] =
    ["@rip; .echo x", "a\nb", "a\rb", "a\"b", "a\0b", "@@c++(1)", "1+@@(2)", "${alias}"];

fn exempt(place: &str) -> bool {
    OTHER.iter().any(|(pattern, _)| match pattern.split_once('*') {
        None => *pattern == place,
        Some((before, after)) => place.starts_with(before) && place.ends_with(after),
    })
}

/// The places of strings in a schema: `address`, `coordinate.module`, `steps[].expr`.
fn strings(schema: &Value, root: &Value, at: &str, found: &mut Vec<String>) {
    if let Some(reference) = schema["$ref"].as_str() {
        let name = reference.rsplit('/').next().unwrap();
        return strings(&root["$defs"][name], root, at, found);
    }
    match schema["type"].as_str() {
        Some("string") => found.push(at.to_owned()),
        Some("array") => strings(&schema["items"], root, &format!("{at}[]"), found),
        _ => {
            for (key, inner) in schema["properties"].as_object().unwrap_or(&Map::new()) {
                let at = if at.is_empty() { key.clone() } else { format!("{at}.{key}") };
                strings(inner, root, &at, found);
            }
        }
    }
}

/// Puts `text` at `place`, making what leads there.
fn put(value: &mut Value, place: &str, text: &str) {
    let (first, rest) = match place.split_once('.') {
        Some((first, rest)) => (first, Some(rest)),
        None => (place, None),
    };
    let (key, depth) = (first.trim_end_matches("[]"), first.matches("[]").count());
    let mut inner = &mut value[key];
    for _ in 0..depth {
        if !inner.is_array() {
            *inner = json!([{}]);
        }
        inner = &mut inner[0];
    }
    match rest {
        None => *inner = json!(text),
        Some(rest) => {
            if !inner.is_object() {
                *inner = json!({});
            }
            put(inner, rest, text);
        }
    }
}

fn table() -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/calls.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// A call that has `text` at `place` and is otherwise as good as may be.
fn call(tool: &str, good: &Value, place: &str, text: &str) -> Map<String, Value> {
    let mut call = good.clone();
    let coordinate = json!({
        "module": "nt", "image_name": "nt.exe", "rva": "0x10", "identity": {
            "timestamp": 1, "size": 4096, "pdb": { "guid": "0".repeat(32), "age": 1 }
        }
    });
    if place.starts_with("coordinate") {
        let args = call.as_object_mut().unwrap();
        ["address", "expression"].iter().for_each(|key| drop(args.remove(*key)));
        call["coordinate"] = coordinate;
        call["session_id"] = json!("sess-1");
    }
    match (tool, place) {
        // Fields of a step belong to its operation.
        ("debug_batch", place) => {
            let field = place.rsplit('.').next().unwrap();
            let step = match field {
                "address" => json!({ "op": "run_to" }),
                "expr" if !place.contains("expect") => json!({ "op": "eval" }),
                "bytes" => json!({ "op": "write_memory", "address": "0x1000" }),
                _ => {
                    json!({ "op": "eval", "expr": "1", "expect": [{ "check": "eval", "expr": "1", "equals": "1" }] })
                }
            };
            call = json!({ "steps": [{ "op": "eval", "expr": "1" }] });
            call[place.split('[').next().unwrap()] = json!([step]);
        }
        ("walk_memory", "addresses[]") => call = json!({}),
        ("walk_memory", "stop_at") => call = json!({ "start": "1", "next_offset": 0 }),
        _ => {}
    }
    put(&mut call, place, text);
    call.as_object().unwrap().clone()
}

#[test]
fn no_operand_takes_a_breaker() {
    let (table, mut wrong, mut operands) = (table(), Vec::new(), Vec::new());
    for entry in tools::all() {
        let schema = entry.input_schema();
        let mut places = Vec::new();
        strings(schema, schema, "", &mut places);
        for place in places.iter().filter(|place| !exempt(&format!("{}.{place}", entry.name))) {
            operands.push(format!("{}.{place}", entry.name));
            let field = place.rsplit('.').next().unwrap().trim_end_matches("[]");
            for breaker in BREAKERS {
                // The data model's expressions quote; they have no C++ evaluator and no aliases.
                if entry.name == "dx" && !breaker.contains([';', '\n', '\r', '\0']) {
                    continue;
                }
                let arguments = call(entry.name, &table[entry.name]["good"], place, breaker);
                match admit(entry, Some(arguments.clone())) {
                    Ok(_) => wrong.push(format!("{}.{place} takes {breaker:?}", entry.name)),
                    Err(error)
                        if error.category != Category::InvalidArgument || !error.message.contains(field) =>
                    {
                        wrong.push(format!("{}.{place} {breaker:?}: {}", entry.name, error.message));
                    }
                    Err(_) => {}
                }
            }
        }
    }
    assert!(wrong.is_empty(), "guard these, or say in OTHER what they are: {wrong:#?}");
    for operand in [
        "disassemble.address",
        "read_memory.address",
        "read_memory.coordinate.module",
        "run_to_address.address",
        "set_breakpoint.expression",
        "set_breakpoint.condition",
        "set_symbol_path.reload",
        "driver_object.name",
        "device_object.device",
        "irp_stack.irp",
        "device_security.device",
        "walk_memory.start",
        "walk_memory.stop_at",
        "debug_batch.steps[].address",
        "debug_batch.steps[].expr",
        "debug_batch.steps[].expect[].equals",
    ] {
        assert!(operands.iter().any(|known| known == operand), "{operand} was not tried: {operands:#?}");
    }
}

#[test]
fn a_refusal_names_the_character_and_where_it_is() {
    let entry = tools::find("disassemble").unwrap();
    let error = admit(entry, json!({ "address": "@rip; .opendump x" }).as_object().cloned()).err().unwrap();
    assert_eq!(error.message, "address: ';' at position 4 is not allowed in an operand");
}

#[test]
fn what_is_no_operand_is_still_there() {
    let mut places = Vec::new();
    for entry in tools::all() {
        let mut found = Vec::new();
        strings(entry.input_schema(), entry.input_schema(), "", &mut found);
        places.extend(found.iter().map(|place| format!("{}.{place}", entry.name)));
    }
    for (pattern, _) in OTHER {
        let used = places.iter().any(|place| match pattern.split_once('*') {
            None => pattern == place,
            Some((before, after)) => place.starts_with(before) && place.ends_with(after),
        });
        assert!(used, "{pattern} names no string of any tool");
    }
}
