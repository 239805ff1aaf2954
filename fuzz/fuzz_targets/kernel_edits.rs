#![no_main]
//! The crashed kernel of the fixtures with words changed, its symbols beside it: lists that loop,
//! tables that point anywhere. Every tool that reads a kernel is asked.

#[path = "../support/call.rs"]
mod call;
#[path = "../support/edits.rs"]
mod edits;
#[path = "../support/watch.rs"]
mod watch;

use std::path::Path;
use std::sync::LazyLock;

use engine_native::OpenOptions;
use serde_json::{Value, json};

struct Base {
    dump: Vec<u8>,
    words: Vec<usize>,
    calls: Vec<(String, Value)>,
}

static BASE: LazyLock<Base> = LazyLock::new(|| {
    let dump = std::fs::read(Path::new(call::FIXTURES).join("kernel.dmp")).expect("fixtures/kernel.dmp");
    let words = edits::words(&dump);
    let table = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/calls.json");
    let table = std::fs::read_to_string(table).expect("tests/calls.json");
    let table: serde_json::Map<String, Value> = serde_json::from_str(&table).expect("a table of calls");
    let mut calls: Vec<(String, Value)> = table
        .iter()
        .filter(|(_, row)| row["on"] == "kernel")
        .map(|(tool, row)| (tool.clone(), row["good"].clone()))
        .collect();
    for tool in ["crash_triage", "backtrace", "threads", "modules", "current_location"] {
        calls.push((tool.to_owned(), json!({})));
    }
    calls.push((
        "execute".into(),
        json!({ "command": "!process 0 7; ~*k; lmv; !thread; .trap; r; dps @rsp" }),
    ));
    Base { dump, words, calls }
});

libfuzzer_sys::fuzz_target!(init: watch::watch(), |data: &[u8]| {
    let options = OpenOptions { symbol_path: Some(call::FIXTURES.to_owned()), ..OpenOptions::default() };
    let dump = edits::edited(&BASE.dump, &BASE.words, data);
    let Ok(target) = engine_native::open_bytes(dump, "kernel.dmp", &options) else { return };
    let mut caller = call::Caller::default();
    for (tool, args) in &BASE.calls {
        caller.call(target.as_ref(), tool, args);
    }
});
