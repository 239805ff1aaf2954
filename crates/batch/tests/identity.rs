//! The rows of spec 20 section 2.12's table about which target a batch is aimed at.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod script;

use batch::{NotBegun, Outcome, Rollback, StepResult, TargetState, Unidentified};
use script::{Act, Script, run};
use serde_json::json;

fn results(rows: &[batch::Row]) -> Vec<StepResult> {
    rows.iter().map(|row| row.result).collect()
}

use StepResult::{Failed, Ok as Fine, Skipped};

#[test]
fn a_lost_aim_leaves_the_replacement_alone() {
    let mut script = Script::default().on("two", vec![Act::Hold, Act::Aim("process 2")]);
    script.reaims = false;
    let report = run(
        &mut script,
        &json!({
            "steps": [
                { "op": "write_memory", "address": "1000", "bytes": "90" },
                { "op": "command", "command": "two", "expect": [{ "check": "eval", "expr": "1", "equals": "1" }] },
                { "op": "command", "command": "three" },
            ],
            "always": [{ "op": "command", "command": "a" }, { "op": "command", "command": "b" }],
        }),
    );
    assert_eq!((report.outcome, report.at), (Outcome::TargetReplaced, Some(2)));
    assert_eq!((report.rollback, results(&report.always)), (Rollback::NotAttempted, vec![Skipped, Skipped]));
    assert_eq!(report.restores[0].result, Skipped);
    assert!(report.steps[1].target_changed);
    let after = script.calls.iter().position(|call| call == "two").unwrap();
    assert_eq!(script.calls[after + 1..], ["aim process 1"], "nothing reaches the engine after the change");
}

#[test]
fn with_the_aim_intact_only_what_would_pump_is_withheld() {
    let mut script =
        Script::default().on("two", vec![Act::Hold]).on("eb 1000 11", vec![Act::Set(0x1000, 0x11)]);
    let report = run(
        &mut script,
        &json!({
            "steps": [{ "op": "command", "command": "eb 1000 90" }, { "op": "command", "command": "two" }],
            "always": [{ "op": "command", "command": "eb 1000 11" }, { "op": "resume", "command": "g" }],
        }),
    );
    assert_eq!((report.outcome, report.rollback), (Outcome::TargetReplaced, Rollback::Incomplete));
    assert_eq!(results(&report.always), [Fine, Skipped]);
    assert!(!script.calls.contains(&"g".to_owned()));
}

#[test]
fn an_aim_that_can_be_taken_again_is() {
    let mut script = Script::default().on("|1s", vec![Act::Aim("process 2")]);
    let report = run(
        &mut script,
        &json!({
            "steps": [
                { "op": "write_memory", "address": "1000", "bytes": "90" },
                { "op": "command", "command": "|1s" },
            ],
            "always": [{ "op": "command", "command": "eb 1001 90" }],
        }),
    );
    assert_eq!(
        (report.outcome, report.at, report.rollback),
        (Outcome::TargetReplaced, Some(2), Rollback::Complete)
    );
    assert!(script.calls.contains(&"aim process 1".to_owned()));
    assert_eq!(script.byte(0x1000), 0x11);
}

#[test]
fn a_cleanup_step_that_replaces_the_target_is_no_complete_rollback() {
    let mut script = Script::default().on("last", vec![Act::Hold]);
    let report = run(
        &mut script,
        &json!({
            "steps": [{ "op": "command", "command": "k" }],
            "always": [{ "op": "command", "command": "a" }, { "op": "command", "command": "last" }],
        }),
    );
    assert_eq!((report.outcome, report.rollback), (Outcome::Committed, Rollback::Incomplete));
    let mut script = Script::default().on("a", vec![Act::Hold]);
    let report = run(
        &mut script,
        &json!({
            "steps": [{ "op": "command", "command": "k" }],
            "always": [{ "op": "command", "command": "a" }, { "op": "command", "command": "b" }],
        }),
    );
    assert_eq!((results(&report.always), report.rollback), (vec![Failed, Skipped], Rollback::Incomplete));
}

#[test]
fn a_thread_that_changes_is_no_other_target() {
    let mut script = Script::default().on("g", vec![Act::Thread, Act::Stop(0x40_1234)]);
    let report = run(&mut script, &json!({ "steps": [{ "op": "resume", "command": "g" }] }));
    assert_eq!((report.outcome, report.rollback), (Outcome::Committed, Rollback::NotSupplied));
    assert_eq!(report.steps[0].stopped_at, Some(target::Address(0x40_1234)));
}

#[test]
fn a_stop_in_another_process_is_another_target() {
    let mut script = Script::default().on("g", vec![Act::Aim("process 7")]);
    let report = run(&mut script, &json!({ "steps": [{ "op": "resume", "command": "g" }] }));
    assert_eq!((report.outcome, report.at), (Outcome::TargetReplaced, Some(1)));
}

#[test]
fn what_is_gone_refuses_its_restore_and_the_rows_show_it() {
    let mut script = Script::default()
        .on("g", vec![Act::Gone("the process ended with exit code 7")])
        .on("eb 1000 11", vec![Act::Fail("there is no target")])
        .on("write 0x1000 11", vec![Act::Fail("there is no target")]);
    let report = run(
        &mut script,
        &json!({
            "steps": [
                { "op": "write_memory", "address": "1000", "bytes": "90" },
                { "op": "resume", "command": "g" },
                { "op": "command", "command": "k" },
            ],
            "always": [{ "op": "command", "command": "eb 1000 11" }],
        }),
    );
    assert_eq!(
        (report.outcome, report.at, report.rollback),
        (Outcome::TargetGone, Some(2), Rollback::Incomplete)
    );
    assert_eq!((report.always[0].result, report.restores[0].result), (Failed, Failed));
    assert_eq!((report.after.state, report.after.by.as_deref()), (TargetState::Ended, Some("step 2")));
    assert!(report.steps[1].target_gone);
}

#[test]
fn who_detached_is_told_from_who_ended_it() {
    let mut script = Script::default().on(".detach", vec![Act::Gone("let go of")]);
    let report = run(&mut script, &json!({ "steps": [{ "op": "command", "command": ".detach" }] }));
    assert_eq!(report.after.state, TargetState::Detached);
    let mut script = Script::default().on("k", vec![Act::Unreadable]);
    let report = run(&mut script, &json!({ "steps": [{ "op": "command", "command": "k" }] }));
    assert_eq!((report.outcome, report.after.state), (Outcome::TargetUncertain, TargetState::Uncertain));
    assert_eq!(report.after.why.as_deref(), Some("no answer"));
}

#[test]
fn an_unreadable_identity_runs_nothing() {
    let mut script =
        Script { identity: Err(Unidentified::Unreadable("no answer".into())), ..Script::default() };
    let batch = script::parsed(&json!({ "steps": [{ "op": "command", "command": "k" }] }));
    let budget = batch::Budget::of(None, None).unwrap();
    let refused = batch::run(&batch, budget, &mut script).unwrap_err();
    assert!(matches!(refused, NotBegun::Unidentified(_)));
    assert!(script.calls.is_empty());
}
