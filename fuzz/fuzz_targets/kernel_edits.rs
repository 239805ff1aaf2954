#![no_main]
//! The crashed kernel of the fixtures with words changed, its symbols beside it: lists that loop,
//! tables that point anywhere. Every tool that reads a kernel is asked.

#[path = "../support/call.rs"]
mod call;
#[path = "../support/watch.rs"]
mod watch;

use std::path::Path;
use std::sync::LazyLock;

use engine_native::OpenOptions;
use serde_json::{Value, json};

struct Base {
    dump: Vec<u8>,
    /// Where it is not zero.
    words: Vec<usize>,
    calls: Vec<(String, Value)>,
}

static BASE: LazyLock<Base> = LazyLock::new(|| {
    let dump = std::fs::read(Path::new(call::FIXTURES).join("kernel.dmp")).expect("fixtures/kernel.dmp");
    let words = (0..dump.len() / 8).map(|n| n * 8).filter(|at| dump[*at..*at + 8] != [0; 8]).collect();
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

/// An edit is seven bytes: a word, a way, a value.
fn edited(data: &[u8]) -> Vec<u8> {
    let mut dump = BASE.dump.clone();
    for edit in data.chunks_exact(7).take(64) {
        let word = |at: usize| BASE.words[at % BASE.words.len()];
        let at = word(usize::from(u16::from_le_bytes([edit[0], edit[1]])));
        let value = u32::from_le_bytes([edit[3], edit[4], edit[5], edit[6]]);
        let old = u64::from_le_bytes(dump[at..at + 8].try_into().expect("eight bytes"));
        let new = match edit[2] % 6 {
            0 => old & !0xffff_ffff | u64::from(value),
            1 => old & 0xffff_ffff | u64::from(value) << 32,
            2 => old ^ u64::from(value),
            3 => 0xffff_f803_0000_0000 | u64::from(value),
            4 => old.wrapping_add_signed(i64::from(value.cast_signed())),
            _ => {
                let other = word(value as usize);
                u64::from_le_bytes(dump[other..other + 8].try_into().expect("eight bytes"))
            }
        };
        dump[at..at + 8].copy_from_slice(&new.to_le_bytes());
    }
    dump
}

libfuzzer_sys::fuzz_target!(init: watch::watch(), |data: &[u8]| {
    let options = OpenOptions { symbol_path: Some(call::FIXTURES.to_owned()), ..OpenOptions::default() };
    let Ok(target) = engine_native::open_bytes(edited(data), "kernel.dmp", &options) else { return };
    let mut caller = call::Caller::default();
    for (tool, args) in &BASE.calls {
        caller.call(target.as_ref(), tool, args);
    }
});
