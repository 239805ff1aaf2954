//! A call of every tool that works and one that must fail, from `tests/calls.json`: the one list that
//! every client's tests read. `on` says what the good call needs: the bundled `user` or `kernel` dump
//! open, a `live` target, nothing (`open`), or a session to `end`.

use serde_json::{Map, Value};

use super::fixture;

pub struct Call {
    pub tool: String,
    pub on: String,
    pub good: Value,
    pub bad: Value,
    /// Of the failure, where the target is the bundled user dump.
    pub category: String,
}

/// A call a tool, in `tools/list` order. Every tool there is has one.
pub fn calls() -> Vec<Call> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/calls.json");
    let table: Map<String, Value> =
        serde_json::from_str(&std::fs::read_to_string(path).unwrap()).expect("tests/calls.json");
    for name in table.keys() {
        assert!(tools::find(name).is_some(), "tests/calls.json: there is no tool {name}");
    }
    tools::all()
        .iter()
        .map(|entry| {
            let row =
                table.get(entry.name).unwrap_or_else(|| panic!("tests/calls.json lacks {}", entry.name));
            let text = |key: &str| row[key].as_str().unwrap().to_owned();
            Call {
                tool: entry.name.to_owned(),
                on: text("on"),
                good: filled(&row["good"]),
                bad: filled(&row["bad"]),
                category: text("category"),
            }
        })
        .collect()
}

/// Puts the fixtures' paths where the table names them.
fn filled(arguments: &Value) -> Value {
    let dump = fixture("crash.dmp").to_str().unwrap().to_owned();
    let folder = fixture("crash.dmp").parent().unwrap().to_str().unwrap().to_owned();
    match arguments {
        Value::String(text) => Value::String(text.replace("{dump}", &dump).replace("{folder}", &folder)),
        Value::Array(list) => Value::Array(list.iter().map(filled).collect()),
        Value::Object(map) => {
            Value::Object(map.iter().map(|(key, value)| (key.clone(), filled(value))).collect())
        }
        other => other.clone(),
    }
}

/// The good call of `tool`.
pub fn good(tool: &str) -> Value {
    calls().into_iter().find(|call| call.tool == tool).unwrap().good
}
