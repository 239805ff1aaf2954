//! Any JSON is a batch or a list of problems; any batch, whatever happens in it, ends in a report that
//! claims no rollback that did not happen.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod script;

use std::collections::HashSet;

use batch::{Budget, Outcome, Rollback, StepResult};
use proptest::prelude::*;
use script::{Act, Script};
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Value, json};

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-z{}; @\"\\n\u{0}é]{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 64, 8, |inner| {
        let key = prop_oneof![
            Just("op".to_owned()),
            Just("steps".to_owned()),
            Just("expect".to_owned()),
            Just("command".to_owned()),
            Just("address".to_owned()),
            "[a-z]{1,6}"
        ];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
            prop::collection::hash_map(key, inner, 0..8)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// Near-misses and hits: every field may be there, right or wrong.
fn any_step() -> impl Strategy<Value = Value> {
    let op = prop_oneof![
        Just("command"),
        Just("resume"),
        Just("run_to"),
        Just("eval"),
        Just("read_memory"),
        Just("write_memory"),
        Just("evil"),
    ];
    let text = prop_oneof![
        Just("1000".to_owned()),
        Just("0x1000".to_owned()),
        Just("{{x}}".to_owned()),
        Just("eb 1 2; g".to_owned()),
        Just("9090".to_owned()),
        Just("{{".to_owned()),
        Just("a;b".to_owned()),
        Just("x".to_owned()),
    ];
    let field = prop_oneof![
        Just("command"),
        Just("address"),
        Just("expr"),
        Just("size"),
        Just("bytes"),
        Just("restore"),
        Just("timeout_ms"),
        Just("capture"),
        Just("name"),
        Just("expect"),
        Just("expct"),
    ];
    let value = prop_oneof![
        4 => text.prop_map(Value::from),
        1 => (0_u64..5000).prop_map(Value::from),
        1 => Just(json!([{ "check": "eval", "expr": "1", "equals": "1" }])),
        1 => Just(json!([{ "check": "contains", "text": "a" }])),
        1 => Just(json!("always")),
        1 => Just(Value::Null),
    ];
    (op, prop::collection::vec((field, value), 0..5)).prop_map(|(op, fields)| {
        let mut step = json!({ "op": op });
        for (field, value) in fields {
            step[field] = value;
        }
        step
    })
}

/// The same, more often right.
fn good_step() -> impl Strategy<Value = Value> {
    let slot = 0_u64..8;
    prop_oneof![
        3 => (slot.clone(), prop_oneof![Just("always"), Just("on_failure"), Just("never")]).prop_map(|(slot, when)| {
            json!({ "op": "write_memory", "address": format!("{:x}", 0x1000 + slot * 4), "bytes": "9090", "restore": when })
        }),
        2 => (0_u64..8).prop_map(|n| json!({ "op": "command", "command": format!("c{n}") })),
        1 => (0_u64..8).prop_map(|n| json!({ "op": "resume", "command": format!("c{n}") })),
        1 => slot.prop_map(|slot| json!({ "op": "read_memory", "address": format!("{:#x}", 0x1000 + slot * 4), "size": 2 })),
        1 => Just(json!({ "op": "eval", "expr": "1", "expect": [{ "check": "eval", "expr": "1", "equals": "2" }] })),
    ]
}

fn any_act() -> impl Strategy<Value = Act> {
    prop_oneof![
        3 => (0_u64..40_000).prop_map(Act::Cost),
        1 => Just(Act::Fail("no")),
        1 => Just(Act::Panic("boom")),
        1 => Just(Act::Interrupt),
        1 => Just(Act::Abandon),
        1 => Just(Act::Hold),
        1 => Just(Act::Aim("process 2")),
        1 => Just(Act::Gone("it exited")),
        1 => Just(Act::Unreadable),
        2 => Just(Act::Say("text")),
    ]
}

/// A JSON object whose keys must be there once each.
struct Unique;

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(UniqueVisitor)
    }
}

struct UniqueVisitor;

impl<'de> Visitor<'de> for UniqueVisitor {
    type Value = Unique;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JSON")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Unique, A::Error> {
        let mut seen = HashSet::new();
        while let Some(key) = map.next_key::<String>()? {
            if !seen.insert(key.clone()) {
                return Err(serde::de::Error::custom(format!("{key} is there twice")));
            }
            map.next_value::<Unique>()?;
        }
        Ok(Unique)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Unique, A::Error> {
        while list.next_element::<Unique>()?.is_some() {}
        Ok(Unique)
    }
    fn visit_bool<E>(self, _: bool) -> Result<Unique, E> {
        Ok(Unique)
    }
    fn visit_i64<E>(self, _: i64) -> Result<Unique, E> {
        Ok(Unique)
    }
    fn visit_u64<E>(self, _: u64) -> Result<Unique, E> {
        Ok(Unique)
    }
    fn visit_f64<E>(self, _: f64) -> Result<Unique, E> {
        Ok(Unique)
    }
    fn visit_str<E>(self, _: &str) -> Result<Unique, E> {
        Ok(Unique)
    }
    fn visit_unit<E>(self) -> Result<Unique, E> {
        Ok(Unique)
    }
}

fn parses_or_says_why(value: &Value) {
    match batch::parse(value, script::nearest) {
        Err(problems) => {
            assert!(!problems.is_empty() && problems.len() <= 16);
            assert!(
                problems.iter().all(|problem| problem.len() < 1500 && !problem.is_empty()),
                "{problems:?}"
            );
        }
        Ok(batch) => {
            assert!((1..=64).contains(&batch.steps.len()) && batch.always.len() <= 64);
            let text = serde_json::to_string(&batch).unwrap();
            serde_json::from_str::<Unique>(&text).unwrap();
            let again = batch::parse(&serde_json::from_str(&text).unwrap(), script::nearest).unwrap();
            assert_eq!(again, batch);
            let _ = batch.replaces_target();
        }
    }
}

proptest! {
    #[test]
    fn any_json_is_a_batch_or_says_why_not(value in any_json()) {
        parses_or_says_why(&value);
        parses_or_says_why(&json!({ "steps": value }));
        parses_or_says_why(&json!({ "steps": [value.clone()], "always": [value] }));
    }

    #[test]
    fn steps_that_are_nearly_right_travel_or_are_refused(
        steps in prop::collection::vec(any_step(), 0..4), always in prop::collection::vec(any_step(), 0..3),
    ) {
        parses_or_says_why(&json!({ "steps": steps, "always": always }));
    }

    /// Nothing that happens in a batch makes a report that lies.
    #[test]
    fn no_rollback_is_claimed_that_did_not_happen(
        steps in prop::collection::vec(good_step(), 1..6),
        always in prop::collection::vec(good_step(), 0..3),
        acts in prop::collection::vec((0_u64..8, any_act()), 0..8),
        write_fails in prop::option::of(0_u64..8),
        reaims: bool,
    ) {
        let mut args = json!({ "timeout_ms": 60_000, "steps": steps, "always": always });
        for step in args["always"].as_array_mut().unwrap() {
            step.as_object_mut().unwrap().remove("restore");
        }
        let Ok(batch) = batch::parse(&args, script::nearest) else { return Ok(()) };
        let mut script = Script { reaims, ..Script::default() };
        for (n, act) in acts {
            script.acts.entry(format!("c{n}")).or_default().push(act);
        }
        if let Some(slot) = write_fails {
            script.acts.insert(format!("write {:#x} 1111", 0x1000 + slot * 4), vec![Act::Fail("protected")]);
        }
        let report = batch::run(&batch, Budget::of(batch.timeout_ms, None).unwrap(), &mut script).unwrap();
        prop_assert_eq!(report.committed, report.outcome == Outcome::Committed);
        prop_assert_eq!(report.rollback_complete, matches!(report.rollback, Rollback::Complete | Rollback::NotSupplied));
        prop_assert_eq!(report.at.is_none(), report.committed);
        prop_assert!(report.committed == report.steps.iter().all(|row| row.result == StepResult::Ok) || report.outcome == Outcome::Interrupted
            || report.outcome == Outcome::Abandoned);
        if report.rollback == Rollback::NotAttempted {
            prop_assert!(report.always.iter().all(|row| row.result == StepResult::Skipped));
        }
        // What the cleanup writes itself stays; everything else that was owed is as it was.
        let cleaned: Vec<String> = batch.always.iter().filter_map(|step| step.address.clone()).collect();
        for (row, step) in report.steps.iter().zip(&batch.steps) {
            let Some(address) = &step.address else { continue };
            let owed = matches!(step.restore, Some(batch::Restore::Always))
                || matches!(step.restore, Some(batch::Restore::OnFailure)) && !report.committed;
            let shared = batch.steps.iter().filter(|other| other.address.as_ref() == Some(address) && other.bytes.is_some()).count() > 1;
            if report.rollback_complete && owed && step.bytes.is_some() && !shared && !cleaned.contains(address) {
                let at = u64::from_str_radix(address, 16).unwrap();
                prop_assert_eq!([script.byte(at), script.byte(at + 1)], [0x11, 0x11], "{:?} {:#?}", row, report);
            }
        }
        let rendered = batch::render(&report);
        prop_assert!(rendered.starts_with("BATCH: ") && rendered.contains("\nrollback: ") && rendered.contains("\nsession after: "));
        let travelled: batch::Report = serde_json::from_str(&serde_json::to_string(&report).unwrap()).unwrap();
        prop_assert_eq!(travelled, report);
    }
}
