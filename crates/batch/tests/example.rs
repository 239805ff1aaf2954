//! The example of `docs/batch.md`, and that it stands there as it is.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod script;

use control::Verdict;
use script::{Act, Script, run};
use serde_json::json;

#[test]
fn the_documented_example() {
    let mut script = Script::default()
        .value("victim!work", 0x1000)
        .value("poi(victim!g_watch)", 5)
        .on("run_to victim!poke", vec![Act::Cost(31), Act::Verdict(Verdict::Hit), Act::Stop(0x1_4000_1450)]);
    let args = json!({
        "steps": [
            { "op": "eval", "expr": "poi(victim!g_watch)", "capture": "before" },
            { "op": "write_memory", "address": "victim!work", "bytes": "90", "name": "patch" },
            { "op": "run_to", "address": "victim!poke", "expect": [{ "check": "verdict", "equals": "hit" }] },
            { "op": "command", "command": "k 2", "expect": [{ "check": "contains", "text": "victim!work" }] },
        ],
        "always": [{ "op": "command", "command": "bc *; ed victim!g_watch {{before}}" }],
    });
    let report = run(&mut script, &args);
    let text = batch::render(&report);
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/batch.md")).unwrap();
    let shown = serde_json::to_string_pretty(&args).unwrap();
    assert!(page.contains(&text), "docs/batch.md lacks:\n{text}");
    assert!(page.contains(&shown), "docs/batch.md lacks:\n{shown}");
}
