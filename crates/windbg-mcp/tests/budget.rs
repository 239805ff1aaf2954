//! What the surface and the answers cost a model, in bytes (spec 20 section 8). Ceilings stop what a
//! re-recorded golden would wave through; raising one is a commit of its own, with its reason.
//! `cargo xtask surface` (or WINDBG_MCP_RECORD=1) records the golden anew.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod mcp;

use std::collections::BTreeMap;
use std::path::PathBuf;

use mcp::checked::Checked;
use mcp::surface::{Listing, Row, recording};
use mcp::{Era, data, fixture};
use serde_json::{Map, Value, json};

/// Bytes a tool may have on average, of what reaches a model.
const AVERAGE: usize = 920;

/// Bytes of whole surfaces that reach a model.
const SURFACES: [(&str, usize); 3] =
    [("session,inspect,exec,crash", 28_000), ("session,inspect,crash", 19_000), ("crash", 11_500)];

/// Bytes of single tools; of all others, [`ANY_TOOL`].
const TOOLS: [(&str, usize); 2] = [("debug_batch", 3_000), ("set_breakpoint", 2_000)];
const ANY_TOOL: usize = 3_600;
const ANY_DESCRIPTION: usize = 900;
/// Characters; clients read the first 2048.
const INSTRUCTIONS: usize = 1_900;
/// Bytes of the whole `tools/list` answer of everything.
const PAYLOAD: usize = 190_000;

/// What `rows` breaks, all of it.
fn over(rows: &BTreeMap<String, Row>) -> Vec<String> {
    let mut found = Vec::new();
    let total: usize = rows.values().map(|row| row.model_visible).sum();
    if total > AVERAGE * rows.len() {
        found.push(format!("{total} bytes, {} a tool; {AVERAGE} are allowed", total / rows.len()));
    }
    for row in rows.values() {
        let bound = TOOLS.iter().find(|(name, _)| *name == row.name).map_or(ANY_TOOL, |(_, bound)| *bound);
        if row.model_visible > bound {
            found.push(format!("{} has {} bytes; {bound} are allowed", row.name, row.model_visible));
        }
        if row.description > ANY_DESCRIPTION {
            found.push(format!("the description of {} has {} bytes", row.name, row.description));
        }
    }
    found
}

#[test]
fn surfaces_and_tools_keep_to_their_ceilings() {
    let everything = Listing::of(Some("all"));
    let default = Listing::of(None);
    let mut found = over(&everything.rows());
    found.extend(over(&default.rows()));
    for (spec, bound) in SURFACES {
        let size = Listing::of(Some(spec)).model_visible();
        println!("--tools {spec}: {size} bytes of {bound}");
        if size > bound {
            found.push(format!("--tools {spec} has {size} bytes; {bound} are allowed"));
        }
    }
    let (tools, size) = (everything.tools.len(), everything.model_visible());
    println!("all: {size} bytes, {} a tool; payload {} bytes", size / tools, everything.payload);
    if everything.payload > PAYLOAD {
        found.push(format!("tools/list has {} bytes; {PAYLOAD} are allowed", everything.payload));
    }
    for listing in [&everything, &default] {
        let (text, count) = (&listing.instructions, listing.instructions.chars().count());
        if count > INSTRUCTIONS || !text.is_ascii() {
            found.push(format!(
                "the instructions have {count} characters; {INSTRUCTIONS} ASCII ones are allowed"
            ));
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn a_tool_that_grows_past_its_bound_is_found() {
    let mut rows = Listing::of(Some("crash")).rows();
    assert_eq!(over(&rows), Vec::<String>::new());
    let row = rows.get_mut("crash_triage").unwrap();
    (row.model_visible, row.description) = (ANY_TOOL + 1, ANY_DESCRIPTION + 1);
    assert_eq!(over(&rows).len(), 2, "{:?}", over(&rows));
    for row in rows.values_mut() {
        row.model_visible = AVERAGE + 1;
    }
    assert!(over(&rows)[0].contains("a tool"), "{:?}", over(&rows));
}

fn golden() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/surface.json"))
}

/// Where the bytes are: a row a tool, then totals.
fn measured() -> Value {
    let listing = Listing::of(Some("all"));
    let rows = listing.rows();
    let tools: Map<String, Value> = rows
        .iter()
        .map(|(name, row)| {
            let bytes = json!({
                "modelVisible": row.model_visible,
                "wire": row.wire,
                "description": row.description,
                "inputSchema": row.input_schema,
                "outputSchema": row.output_schema,
                "annotations": row.annotations,
            });
            (name.clone(), bytes)
        })
        .collect();
    let worst = rows.values().max_by_key(|row| row.model_visible).unwrap();
    json!({
        "tools": tools,
        "totals": {
            "tools": rows.len(),
            "modelVisible": listing.model_visible(),
            "payload": listing.payload,
            "instructions": listing.instructions.len(),
            "worst": { "name": worst.name, "modelVisible": worst.model_visible },
        },
    })
}

/// What moved, tool by tool.
fn moved(old: &Value, new: &Value) -> Vec<String> {
    let (empty, mut found) = (Map::new(), Vec::new());
    let rows = |value: &Value| value["tools"].as_object().unwrap_or(&empty).clone();
    let (old_rows, new_rows) = (rows(old), rows(new));
    for (name, row) in &new_rows {
        match old_rows.get(name) {
            None => found.push(format!("{name}: new, {} bytes", row["modelVisible"])),
            Some(before) if before != row => {
                let change = |key: &str| {
                    (before[key] != row[key]).then(|| format!("{key} {} -> {}", before[key], row[key]))
                };
                let keys = row.as_object().unwrap().keys().filter_map(|key| change(key)).collect::<Vec<_>>();
                found.push(format!("{name}: {}", keys.join(", ")));
            }
            Some(_) => {}
        }
    }
    found.extend(
        old_rows.keys().filter(|name| !new_rows.contains_key(*name)).map(|name| format!("{name}: gone")),
    );
    if found.is_empty() && old["totals"] != new["totals"] {
        found.push(format!("totals: {} -> {}", old["totals"], new["totals"]));
    }
    found
}

#[test]
fn the_golden_says_where_the_bytes_are() {
    let new = measured();
    if recording() {
        std::fs::create_dir_all(golden().parent().unwrap()).unwrap();
        std::fs::write(golden(), serde_json::to_string_pretty(&new).unwrap() + "\n").unwrap();
    }
    let old: Value = serde_json::from_str(&std::fs::read_to_string(golden()).unwrap()).unwrap();
    let found = moved(&old, &new);
    assert!(found.is_empty(), "these moved; record them with cargo xtask surface: {found:#?}");
}

#[test]
fn only_what_moved_is_blamed() {
    let old = json!({ "tools": { "a": { "wire": 1 }, "b": { "wire": 2 } }, "totals": 3 });
    let new =
        json!({ "tools": { "0": { "wire": 9, "modelVisible": 9 }, "a": { "wire": 1 }, "b": { "wire": 3 } } });
    assert_eq!(moved(&old, &new), ["0: new, 9 bytes", "b: wire 2 -> 3"]);
    assert_eq!(moved(&old, &old), Vec::<String>::new());
}

/// Bytes of an answer: structured, then text. Set at what was measured and about 40 % more.
struct Answer {
    dump: &'static str,
    tool: &'static str,
    arguments: &'static str,
    structured: usize,
    text: usize,
}

const fn answer(
    dump: &'static str,
    tool: &'static str,
    arguments: &'static str,
    structured: usize,
    text: usize,
) -> Answer {
    Answer { dump, tool, arguments, structured, text }
}

/// A real kernel minidump of 151 modules.
const DATA: &str = "data:kernel/triage_x64_19041_7e.dmp";

const ANSWERS: [Answer; 34] = [
    answer("crash.dmp", "open_dump", "{}", 1150, 550),
    answer("crash.dmp", "modules", "{}", 1700, 750),
    answer("crash.dmp", "threads", "{}", 350, 250),
    answer("crash.dmp", "registers", "{}", 2900, 1200),
    answer("crash.dmp", "backtrace", "{}", 1500, 800),
    answer("crash.dmp", "disassemble", "{}", 2550, 1600),
    answer("crash.dmp", "read_memory", r#"{"address":"@rsp"}"#, 350, 550),
    answer("crash.dmp", "current_location", "{}", 450, 200),
    answer("crash.dmp", "execute", r#"{"command":"lm"}"#, 0, 450),
    answer("crash.dmp", "walk_memory", r#"{"start":"@rsp","stride":8}"#, 6100, 3700),
    answer("crash.dmp", "exception_triage", "{}", 3650, 1400),
    answer("kernel.dmp", "open_dump", "{}", 1350, 700),
    answer("kernel.dmp", "modules", "{}", 1350, 700),
    answer("kernel.dmp", "threads", "{}", 300, 200),
    answer("kernel.dmp", "registers", "{}", 2900, 1200),
    answer("kernel.dmp", "backtrace", "{}", 2350, 850),
    answer("kernel.dmp", "disassemble", "{}", 2550, 1650),
    answer("kernel.dmp", "read_memory", r#"{"address":"@rsp"}"#, 350, 550),
    answer("kernel.dmp", "current_location", "{}", 450, 200),
    answer("kernel.dmp", "execute", r#"{"command":"lm"}"#, 0, 450),
    answer("kernel.dmp", "walk_memory", r#"{"start":"@rsp","stride":8}"#, 6100, 3700),
    answer("kernel.dmp", "crash_triage", "{}", 3650, 1600),
    answer(DATA, "open_dump", "{}", 1450, 800),
    answer(DATA, "modules", "{}", 22_700, 11_100),
    answer(DATA, "threads", "{}", 3150, 1100),
    answer(DATA, "registers", "{}", 2750, 1150),
    answer(DATA, "backtrace", "{}", 5800, 2950),
    answer(DATA, "disassemble", "{}", 2750, 1800),
    answer(DATA, "read_memory", r#"{"address":"@rsp"}"#, 350, 550),
    answer(DATA, "current_location", "{}", 300, 150),
    answer(DATA, "execute", r#"{"command":"lm"}"#, 0, 13_250),
    answer(DATA, "walk_memory", r#"{"start":"@rsp","stride":8}"#, 6100, 3700),
    answer(DATA, "crash_triage", "{}", 5100, 2500),
    answer("crash.dmp", "session_status", "{}", 450, 200),
];

/// Whether an answer keeps to its bounds, and to what is fair between its halves: a text that doubles
/// lowers their ratio, so that alone would be no guard.
fn too_long(answer: &Answer, structured: usize, text: usize) -> Option<String> {
    let bound =
        |what, size, bound| (size > bound).then(|| format!("{what} has {size} bytes; {bound} are allowed"));
    bound("the structured half", structured, answer.structured)
        .or_else(|| bound("the text half", text, answer.text))
        .or_else(|| {
            (structured > 20 * text).then(|| format!("{structured} structured bytes to {text} of text"))
        })
}

#[test]
fn answers_keep_to_their_ceilings() {
    let mut found = Vec::new();
    let mut client = Checked::start(Era::Handshake("2025-11-25"));
    for answer in &ANSWERS {
        let path = match answer.dump.strip_prefix("data:") {
            None => fixture(answer.dump),
            Some(name) => match data() {
                Some(folder) => folder.join(name),
                None => continue,
            },
        };
        let opened = client.call("open_dump", json!({ "path": path }));
        let result = if answer.tool == "open_dump" {
            opened
        } else {
            client.call(answer.tool, serde_json::from_str(answer.arguments).unwrap())
        };
        client.ok("end_session", json!({}));
        let structured = result.get("structuredContent").map_or(0, |value| value.to_string().len());
        let text = result["content"][0]["text"].as_str().unwrap().len();
        let called = format!("{} {} on {}", answer.tool, answer.arguments, answer.dump);
        println!("{called}: {structured} structured, {text} text");
        found.extend(too_long(answer, structured, text).map(|problem| format!("{called}: {problem}")));
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn a_long_answer_is_found() {
    let bounds = answer("crash.dmp", "modules", "{}", 100, 50);
    assert_eq!(too_long(&bounds, 100, 50), None);
    for (structured, text) in [(101, 50), (100, 51), (100, 4)] {
        assert!(too_long(&bounds, structured, text).is_some());
    }
}
