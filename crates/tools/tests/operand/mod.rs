//! Where the tools take operands: every string of every schema but those that are something else.

#![allow(clippy::unwrap_used, clippy::expect_used, dead_code, unreachable_pub)]

use serde_json::{Map, Value, json};

/// Strings that are no operands, and what they are instead.
pub const OTHER: [(&str, &str); 18] = [
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

pub fn exempt(place: &str) -> bool {
    OTHER.iter().any(|(pattern, _)| match pattern.split_once('*') {
        None => *pattern == place,
        Some((before, after)) => place.starts_with(before) && place.ends_with(after),
    })
}

/// The places of strings in a schema: `address`, `coordinate.module`, `steps[].expr`.
pub fn strings(schema: &Value, root: &Value, at: &str, found: &mut Vec<String>) {
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
pub fn put(value: &mut Value, place: &str, text: &str) {
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

pub fn table() -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/calls.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// A call that has `text` at `place` and is otherwise as good as may be.
pub fn call(tool: &str, good: &Value, place: &str, text: &str) -> Map<String, Value> {
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

/// `tool.place` of every operand there is, with a good call of its tool that has `text` there.
pub fn calls_with(text: &str) -> Vec<(String, &'static str, Map<String, Value>)> {
    let (table, mut out) = (table(), Vec::new());
    for entry in tools::all() {
        let (schema, mut places) = (entry.input_schema(), Vec::new());
        strings(schema, schema, "", &mut places);
        for place in places.iter().filter(|place| !exempt(&format!("{}.{place}", entry.name))) {
            let arguments = call(entry.name, &table[entry.name]["good"], place, text);
            out.push((format!("{}.{place}", entry.name), entry.name, arguments));
        }
    }
    out
}
