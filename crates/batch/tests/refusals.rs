//! What is refused before a session is touched, and in which words (spec 20 section 2.4).
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod script;

use serde_json::{Value, json};

fn refused(value: &Value) -> String {
    batch::parse(value, script::nearest).unwrap_err().join("\n")
}

fn step(step: Value) -> String {
    refused(&json!({ "steps": [step] }))
}

#[test]
fn v1_and_v2_a_key_no_operation_takes() {
    insta::assert_snapshot!(step(json!({ "op": "command", "command": "k", "expcet": [] })));
    insta::assert_snapshot!(step(json!({ "op": "eval", "expr": "1", "size": 4 })));
    insta::assert_snapshot!(refused(&json!({
        "steps": [{ "op": "command", "command": "k" }],
        "always": [{ "op": "command", "command": "k" }, { "op": "comand", "command": "bc *" }],
    })));
    insta::assert_snapshot!(step(
        json!({ "op": "eval", "expr": "1", "expect": [{ "check": "contains", "txt": "a" }, { "check": "equals" }] })
    ));
    insta::assert_snapshot!(step(json!({ "op": "write_memory", "address": "1" })));
    insta::assert_snapshot!(refused(&json!({ "steps": "k" })));
}

#[test]
fn v3_too_few_and_too_many() {
    let k = json!({ "op": "command", "command": "k" });
    insta::assert_snapshot!(refused(&json!({ "steps": [] })), @"steps has 0 entries; it takes 1 to 64");
    insta::assert_snapshot!(refused(&json!({ "steps": vec![k.clone(); 65] })), @"steps has 65 entries; at most 64");
    insta::assert_snapshot!(
        refused(&json!({ "steps": [k], "always": vec![json!({ "op": "command", "command": "k" }); 65] })),
        @"always has 65 entries; at most 64"
    );
    let checks = vec![json!({ "check": "contains", "text": "a" }); 17];
    insta::assert_snapshot!(
        step(json!({ "op": "command", "command": "k", "expect": checks })),
        @"steps, step 1 (command): expect has 17 checks; at most 16"
    );
}

#[test]
fn v4_and_v5_captures_and_references() {
    insta::assert_snapshot!(step(json!({ "op": "command", "command": "k", "capture": "x" })));
    insta::assert_snapshot!(step(json!({ "op": "eval", "expr": "1", "capture": "9x" })));
    let twice = json!({ "op": "eval", "expr": "1", "capture": "x" });
    insta::assert_snapshot!(refused(&json!({ "steps": [twice.clone(), twice.clone()] })));
    insta::assert_snapshot!(refused(&json!({
        "steps": [
            { "op": "command", "command": "eb 1 {{x}}" },
            twice,
            { "op": "command", "command": "eb 1 {{y}}" },
            { "op": "command", "command": ".if (1) {{eb 1 2}}" },
            { "op": "command", "command": "eb 1 {{x" },
            { "op": "eval", "expr": "1", "expect": [{ "check": "eval", "expr": "{{z}}", "equals": "1" }] },
        ],
        "always": [{ "op": "command", "command": "eb 1 {{x}}; eb 2 {{later}}" }],
    })));
    // A capture of the steps is in scope of the cleanup, whether or not its step runs.
    let scoped = json!({
        "steps": [{ "op": "eval", "expr": "1", "capture": "x" }],
        "always": [{ "op": "command", "command": "eb 1 {{x}}" }],
    });
    assert!(batch::parse(&scoped, script::nearest).is_ok());
}

#[test]
fn v6_to_v9_operands_times_checks_and_bytes() {
    for (field, value) in [
        ("address", json!({ "op": "run_to", "address": "rip; .opendump x" })),
        ("expr", json!({ "op": "eval", "expr": "@@c++(1)" })),
        ("expr", json!({ "op": "eval", "expr": "${x}" })),
        ("address", json!({ "op": "read_memory", "address": "a\nb", "size": 1 })),
        (
            "equals",
            json!({ "op": "eval", "expr": "1", "expect": [{ "check": "eval", "expr": "1", "equals": "1;2" }] }),
        ),
        ("address", json!({ "op": "write_memory", "address": "a\"b", "bytes": "90" })),
    ] {
        let said = step(value.clone());
        assert!(said.contains(field) && said.contains("not allowed in an operand"), "{value}: {said}");
    }
    // Chaining is what raw text is for.
    assert!(
        batch::parse(
            &json!({ "steps": [{ "op": "command", "command": "k; .echo \"x\"" }] }),
            script::nearest
        )
        .is_ok()
    );
    insta::assert_snapshot!(refused(
        &json!({ "steps": [{ "op": "eval", "expr": "1" }], "timeout_ms": 1999 })
    ));
    insta::assert_snapshot!(step(
        json!({ "op": "command", "command": "k", "expect": [{ "check": "verdict", "equals": "hit" }, { "check": "bytes", "equals": "90" }] })
    ));
    insta::assert_snapshot!(step(
        json!({ "op": "run_to", "address": "1", "expect": [{ "check": "verdict", "equals": "reached" }] })
    ));
    for bytes in ["9", "9g", "", "90 90", "{{x}}"] {
        assert!(
            step(json!({ "op": "write_memory", "address": "1", "bytes": bytes })).contains("bytes "),
            "{bytes}"
        );
    }
    insta::assert_snapshot!(step(json!({ "op": "read_memory", "address": "1000", "size": 1 })));
    insta::assert_snapshot!(step(json!({ "op": "read_memory", "address": "0x1000", "size": 1_048_577 })));
    insta::assert_snapshot!(refused(&json!({
        "steps": [{ "op": "command", "command": " " }],
        "always": [{ "op": "write_memory", "address": "1", "bytes": "90", "restore": "always" }],
    })));
}

#[test]
fn what_is_meant_is_taken() {
    let value = json!({
        "steps": [{ "op": "read_memory", "address": "0x10", "size": 64.0, "name": null, "expect": null }],
        "always": null, "timeout_ms": 2000.0,
    });
    let batch = batch::parse(&value, script::nearest).unwrap();
    assert_eq!((batch.steps[0].size, batch.timeout_ms, batch.always.len()), (Some(64), Some(2000), 0));
}
