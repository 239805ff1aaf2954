//! A dump can be asked in a batch and not changed.

use serde_json::json;

use crate::mcp::{Client, Era, fixture};
use crate::process::batch;

#[test]
fn a_dump_is_asked_and_not_changed() {
    let mut client = Client::start(Era::Handshake("2025-11-25"));
    client.open(&fixture("crash.dmp"));
    let report = batch(
        &mut client,
        json!({ "steps": [
            { "op": "eval", "expr": "@$ip", "capture": "ip" },
            { "op": "eval", "expr": "crash!ShipOrder", "capture": "ship", "expect": [
                { "check": "eval", "expr": "{{ip}} > crash", "equals": "1" },
            ] },
            { "op": "command", "command": "u {{ship}} L1; r $t1=5", "expect": [{ "check": "contains", "text": "crash!shiporder" }] },
            { "op": "eval", "expr": "@$t1", "expect": [{ "check": "eval", "expr": "@$t1", "equals": "5" }] },
            { "op": "read_memory", "address": "{{ip}}", "size": 16 },
            { "op": "read_memory", "address": "crash", "size": 2, "expect": [{ "check": "bytes", "equals": "4d5a" }] },
        ] }),
    );
    assert_eq!(
        (&report["outcome"], &report["rollback"]),
        (&json!("committed"), &json!("not_supplied")),
        "{report:#}"
    );
    assert_eq!(report["after"]["state"], "stopped");
    let report = batch(
        &mut client,
        json!({
            "steps": [{ "op": "write_memory", "address": "@$ip", "bytes": "90" }],
            "always": [{ "op": "eval", "expr": "1" }],
        }),
    );
    assert_eq!((&report["outcome"], &report["at"]), (&json!("failed"), &json!(1)), "{report:#}");
    assert!(
        report["steps"][0]["detail"].as_str().unwrap().starts_with("unsupported: a dump takes no writes")
    );
    assert!(report.get("restores").is_none() && report["rollback"] == "complete");
    for (step, said) in [
        (json!({ "op": "command", "command": "eb @$ip 90" }), "unsupported: "),
        (json!({ "op": "command", "command": "bp crash!ShipOrder" }), "unsupported: "),
        (json!({ "op": "command", "command": "r rax=1" }), "unsupported: "),
        (json!({ "op": "command", "command": "g" }), "unsupported: "),
        (json!({ "op": "resume", "command": "g" }), "unsupported: "),
        (json!({ "op": "run_to", "address": "crash!ShipOrder" }), "unsupported: "),
        (json!({ "op": "command", "command": ".kill" }), "unsupported: "),
    ] {
        let report = batch(&mut client, json!({ "steps": [step] }));
        let detail = report["steps"][0]["detail"].as_str().unwrap();
        assert!(report["outcome"] == "failed" && detail.starts_with(said), "{step}: {report:#}");
    }
}
