//! Every row of spec 20 section 2.12's table, named after it, and what the rows leave out.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod script;

use batch::{Change, Outcome, Rollback, StepResult, Unidentified};
use control::Verdict;
use script::{Act, Script, run};
use serde_json::json;

fn results(rows: &[batch::Row]) -> Vec<StepResult> {
    rows.iter().map(|row| row.result).collect()
}

use StepResult::{Failed, Ok as Fine, Skipped, Unmet};

#[test]
fn a_verdict_that_is_not_the_one_expected_fails_the_batch_and_restores() {
    let mut script = Script::default()
        .on("eb 1000 90", vec![Act::Set(0x1000, 0x90)])
        .on("run_to app!main", vec![Act::Verdict(Verdict::Timeout), Act::Stop(0x40_2000)])
        .on("eb 1000 11", vec![Act::Set(0x1000, 0x11)]);
    let report = run(
        &mut script,
        &json!({
            "steps": [
                { "op": "command", "command": "eb 1000 90" },
                { "op": "run_to", "address": "app!main", "expect": [{ "check": "verdict", "equals": "hit" }] },
                { "op": "command", "command": "k" },
            ],
            "always": [{ "op": "command", "command": "eb 1000 11", "name": "restore" }],
        }),
    );
    assert_eq!((report.outcome, report.at), (Outcome::Failed, Some(2)));
    assert_eq!(results(&report.steps), [Fine, Unmet, Skipped]);
    assert_eq!(report.steps[2].detail.as_deref(), Some("step 2 failed"));
    assert_eq!(report.steps[1].stopped_at, Some(target::Address(0x40_2000)));
    assert_eq!(
        (report.rollback, report.rollback_complete, report.is_error()),
        (Rollback::Complete, true, true)
    );
    assert_eq!(script.byte(0x1000), 0x11);
    assert_eq!(script.calls, ["eb 1000 90", "run_to app!main", "eb 1000 11"]);
}

#[test]
fn a_command_that_errors_may_have_changed_something() {
    let mut script = Script::default().on("eb x 1", vec![Act::Fail("Couldn't resolve error at 'x 1'")]);
    let report = run(
        &mut script,
        &json!({
            "steps": [{ "op": "command", "command": "bp app!main" }, { "op": "command", "command": "eb x 1" }],
            "always": [{ "op": "command", "command": "bc *" }],
        }),
    );
    assert_eq!((report.outcome, report.at), (Outcome::Failed, Some(2)));
    assert_eq!(report.steps[0].changes, [Change::Breakpoints]);
    assert_eq!(report.steps[1].changes, [Change::Memory]);
    assert_eq!((report.always[0].result, report.rollback), (Fine, Rollback::Complete));
}

#[test]
fn a_step_that_leaves_the_reserve_is_the_last() {
    let mut script = Script::default().on("slow", vec![Act::Cost(45_000)]);
    let report = run(
        &mut script,
        &json!({
            "timeout_ms": 60_000,
            "steps": [{ "op": "command", "command": "slow" }, { "op": "command", "command": "k" }],
            "always": [{ "op": "command", "command": "bc *" }],
        }),
    );
    assert_eq!((report.outcome, report.at), (Outcome::TimedOut, Some(2)));
    assert_eq!(report.steps[1].detail.as_deref(), Some("ran out of time at step 2"));
    assert_eq!((report.always[0].result, report.rollback), (Fine, Rollback::Complete));
    assert_eq!((report.budget_ms, report.elapsed_ms), (60_000, 45_000));
}

#[test]
fn a_step_that_spends_everything_leaves_no_cleanup() {
    let mut script = Script::default().on("slow", vec![Act::Cost(61_000)]);
    let report = run(
        &mut script,
        &json!({
            "timeout_ms": 60_000,
            "steps": [{ "op": "command", "command": "slow" }, { "op": "command", "command": "k" }],
            "always": [{ "op": "command", "command": "bc *" }],
        }),
    );
    assert_eq!((report.always[0].result, report.rollback), (Skipped, Rollback::Incomplete));
    assert!(!report.rollback_complete && !script.calls.contains(&"bc *".to_owned()));
}

#[test]
fn cleanup_goes_on_past_its_own_failures() {
    let mut script = Script::default().on("one", vec![Act::Fail("no")]);
    let report = run(
        &mut script,
        &json!({
            "steps": [{ "op": "command", "command": "k" }],
            "always": [{ "op": "command", "command": "one" }, { "op": "command", "command": "two" }],
        }),
    );
    assert_eq!(results(&report.always), [Failed, Fine]);
    assert_eq!((report.outcome, report.rollback), (Outcome::Committed, Rollback::Incomplete));
    assert!(report.is_error());
}

#[test]
fn abandoned_after_the_first_call() {
    let mut script = Script::default().on("one", vec![Act::Abandon]);
    let report = run(
        &mut script,
        &json!({
            "steps": [{ "op": "command", "command": "one" }, { "op": "command", "command": "two" }],
            "always": [{ "op": "command", "command": "a" }, { "op": "command", "command": "b" }],
        }),
    );
    assert_eq!((report.outcome, report.at), (Outcome::Abandoned, Some(2)));
    assert_eq!(report.steps[1].detail.as_deref(), Some("torn down at step 2"));
    assert_eq!((results(&report.always), report.rollback), (vec![Fine, Fine], Rollback::Complete));
}

#[test]
fn an_interrupt_during_the_last_step_is_seen() {
    let mut script = Script::default().on("last", vec![Act::Say("half"), Act::Interrupt]);
    let report = run(&mut script, &json!({ "steps": [{ "op": "command", "command": "last" }] }));
    assert_eq!((report.outcome, report.at, report.committed), (Outcome::Interrupted, Some(1), false));
    assert!(report.steps[0].cut_short && report.steps[0].output.as_deref() == Some("half"));
}

#[test]
fn an_interrupt_during_always_is_refused() {
    let mut script = Script::default().on("a", vec![Act::Interrupt]);
    let report = run(
        &mut script,
        &json!({
            "steps": [{ "op": "command", "command": "k" }],
            "always": [{ "op": "command", "command": "a" }, { "op": "command", "command": "b" }],
        }),
    );
    assert_eq!((report.outcome, report.rollback), (Outcome::Committed, Rollback::Complete));
    assert_eq!((results(&report.always), script.refused_breaks), (vec![Fine, Fine], 1));
}

#[test]
fn a_step_that_panics_fails_and_is_cleaned_up() {
    let mut script = Script::default().on("boom", vec![Act::Panic("the parser broke")]);
    let report = run(
        &mut script,
        &json!({
            "steps": [
                { "op": "write_memory", "address": "1000", "bytes": "90" },
                { "op": "command", "command": "boom" },
            ],
            "always": [{ "op": "command", "command": "bc *" }],
        }),
    );
    assert_eq!((report.outcome, report.at, report.rollback), (Outcome::Failed, Some(2), Rollback::Complete));
    assert!(report.steps[1].detail.as_ref().unwrap().contains("the parser broke"));
    assert_eq!(script.byte(0x1000), 0x11);
}

#[test]
fn cleanup_that_names_a_capture_that_never_came_is_skipped_alone() {
    let mut script = Script::default().on("one", vec![Act::Fail("no")]).value("poi(@rsp)", 7);
    let report = run(
        &mut script,
        &json!({
            "steps": [
                { "op": "command", "command": "one" },
                { "op": "eval", "expr": "poi(@rsp)", "capture": "x" },
            ],
            "always": [
                { "op": "command", "command": "eq @rsp {{x}}" },
                { "op": "command", "command": "bc *" },
            ],
        }),
    );
    assert_eq!(results(&report.always), [Skipped, Fine]);
    assert!(report.always[0].detail.as_ref().unwrap().starts_with("x was never"), "{report:#?}");
    assert_eq!(report.rollback, Rollback::Incomplete);
}

#[test]
fn a_mistyped_block_or_key_is_refused() {
    let nearest = script::nearest;
    // The schema refuses `aways` at the top; a step's keys are refused here.
    let value = json!({ "steps": [{ "op": "eval", "expr": "1", "expct": [] }] });
    let problems = batch::parse(&value, nearest).unwrap_err();
    assert_eq!(
        problems,
        ["steps, step 1 (eval): unknown key \"expct\"; eval takes op, expr, capture, name, expect \
          (did you mean \"expr\"?)"]
    );
}

#[test]
fn a_capture_is_inserted_as_a_number() {
    let mut script = Script::default().value("poi(X)", 0x41);
    let report = run(
        &mut script,
        &json!({
            "steps": [
                { "op": "eval", "expr": "poi(X)", "capture": "orig" },
                { "op": "command", "command": "eq X 1" },
            ],
            "always": [{ "op": "command", "command": "eq X {{orig}}" }],
        }),
    );
    assert_eq!(report.always[0].action, "eq X 0x41");
    assert_eq!(script.calls.last().unwrap(), "eq X 0x41");
    assert_eq!(report.captures["orig"], target::Address(0x41));
}

#[test]
fn an_evaluation_that_spends_the_clock_between_its_halves_learned_nothing() {
    let mut script = Script::default().on("eval (slow)", vec![Act::Cost(31_000)]).value("slow", 1);
    let report = run(
        &mut script,
        &json!({
            "timeout_ms": 60_000,
            "steps": [{
                "op": "command", "command": "k",
                "expect": [{ "check": "eval", "expr": "slow", "equals": "2" }],
            }],
        }),
    );
    assert_eq!(report.steps[0].result, Failed);
    assert!(report.steps[0].detail.as_ref().unwrap().contains("before its assertions could be checked"));
    assert_eq!((report.outcome, report.at), (Outcome::TimedOut, Some(1)));
}

#[test]
fn a_batch_travels_and_is_the_same() {
    let value = json!({
        "steps": [
            { "op": "command", "command": "eb 1 2", "name": "patch" },
            { "op": "resume", "command": "g", "timeout_ms": 5000 },
            { "op": "run_to", "address": "a!b", "expect": [{ "check": "verdict", "equals": "hit" }] },
            { "op": "eval", "expr": "poi(1)", "capture": "x" },
            { "op": "read_memory", "address": "0x10", "size": 4, "expect": [{ "check": "bytes", "equals": "00" }] },
            { "op": "write_memory", "address": "10", "bytes": "90", "restore": "on_failure" },
        ],
        "always": [{ "op": "command", "command": "bc *; eq 1 {{x}}" }],
        "timeout_ms": 5000,
    });
    let batch = script::parsed(&value);
    let text = serde_json::to_string(&batch).unwrap();
    let again: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(again, value);
    assert_eq!(script::parsed(&again), batch);
}

#[test]
fn writes_are_restored_newest_first_and_as_they_were_asked_to() {
    let value = json!({
        "steps": [
            { "op": "write_memory", "address": "1000", "bytes": "90" },
            { "op": "write_memory", "address": "1000", "bytes": "91" },
            { "op": "write_memory", "address": "1010", "bytes": "9292", "restore": "on_failure" },
            { "op": "write_memory", "address": "1020", "bytes": "93", "restore": "never" },
        ],
        "always": [{ "op": "write_memory", "address": "1030", "bytes": "94" }],
    });
    let mut script = Script::default();
    let report = run(&mut script, &value);
    assert_eq!((report.outcome, report.rollback), (Outcome::Committed, Rollback::Complete));
    assert_eq!(report.restores.iter().map(|row| row.step).collect::<Vec<_>>(), [2, 1]);
    let bytes = [0x1000, 0x1010, 0x1011, 0x1020, 0x1030].map(|at| script.byte(at));
    assert_eq!(bytes, [0x11, 0x92, 0x92, 0x93, 0x94]);

    let mut script = Script::default().on("eval 1020", vec![Act::Fail("no")]);
    let report = run(&mut script, &value);
    assert_eq!((report.outcome, report.at), (Outcome::Failed, Some(4)));
    assert_eq!(report.restores.iter().map(|row| row.step).collect::<Vec<_>>(), [3, 2, 1]);
    assert_eq!([0x1000, 0x1010, 0x1011, 0x1020].map(|at| script.byte(at)), [0x11; 4]);
}

#[test]
fn a_write_that_cannot_be_undone_is_not_made() {
    let mut script = Script::default();
    let report = run(
        &mut script,
        &json!({ "steps": [{ "op": "write_memory", "address": "10fe", "bytes": "90909090" }] }),
    );
    assert_eq!((report.outcome, report.rollback), (Outcome::Failed, Rollback::NotSupplied));
    assert!(report.steps[0].detail.as_ref().unwrap().contains("nothing was written"));
    assert_eq!(script.byte(0x10ff), 0x11);

    let mut script = Script { writable: false, ..Script::default() };
    let report =
        run(&mut script, &json!({ "steps": [{ "op": "write_memory", "address": "1000", "bytes": "90" }] }));
    assert_eq!(report.rollback, Rollback::NotSupplied);
    assert_eq!(report.steps[0].detail.as_deref(), Some("unsupported: a dump takes no writes"));
}

#[test]
fn a_write_that_does_not_read_back_fails_and_its_restore_is_owed() {
    // The write panics after it wrote: the old bytes are known to the batch already.
    let mut script =
        Script::default().on("write 0x1000 90", vec![Act::Set(0x1000, 0x90), Act::Panic("half way")]);
    let report =
        run(&mut script, &json!({ "steps": [{ "op": "write_memory", "address": "1000", "bytes": "90" }] }));
    assert_eq!((report.outcome, report.restores[0].result), (Outcome::Failed, Fine));
    assert_eq!(script.byte(0x1000), 0x11);
    // A restore that does not take is never reported as one.
    let mut script = Script::default().on("write 0x1000 11", vec![Act::Fail("protected")]);
    let report =
        run(&mut script, &json!({ "steps": [{ "op": "write_memory", "address": "1000", "bytes": "90" }] }));
    assert_eq!((report.outcome, report.rollback), (Outcome::Committed, Rollback::Incomplete));
    assert_eq!(report.restores[0].detail.as_deref(), Some("protected"));
}

#[test]
fn a_wait_that_runs_out_fails_a_resume_and_not_a_run_to() {
    let mut script = Script::default()
        .on("run_to x", vec![Act::Verdict(Verdict::Timeout), Act::TimedOut, Act::Stop(1)])
        .on("g", vec![Act::TimedOut, Act::Stop(2)]);
    let report = run(
        &mut script,
        &json!({ "steps": [{ "op": "run_to", "address": "x" }, { "op": "resume", "command": "g" }] }),
    );
    assert_eq!(results(&report.steps), [Fine, Failed]);
    assert_eq!((report.steps[0].timed_out, report.steps[1].timed_out), (false, true));
    assert_eq!(report.steps[1].stopped_at, Some(target::Address(2)));
}

#[test]
fn a_command_that_left_the_target_running_to_the_deadline_is_no_success() {
    let mut script = Script::default().on("g", vec![Act::Cost(30_000), Act::TimedOut, Act::Stop(2)]);
    let report =
        run(&mut script, &json!({ "timeout_ms": 60_000, "steps": [{ "op": "command", "command": "g" }] }));
    assert_eq!((report.outcome, report.at), (Outcome::TimedOut, Some(1)));
    assert!(report.steps[0].timed_out && report.steps[0].result == Failed);
}

#[test]
fn checks_of_every_kind() {
    let mut script =
        Script::default().on("k", vec![Act::Say("Child-SP RetAddr\nAPP!Main+0x4")]).value("@rcx", 5);
    let report = run(
        &mut script,
        &json!({ "steps": [
            { "op": "command", "command": "k", "expect": [
                { "check": "contains", "text": "app!main" },
                { "check": "not_contains", "text": "nt!" },
                { "check": "eval", "expr": "@rcx", "equals": "5" },
            ] },
            { "op": "read_memory", "address": "0x1000", "size": 2, "expect": [{ "check": "bytes", "equals": "1111" }] },
            { "op": "eval", "expr": "@rcx", "expect": [{ "check": "contains", "text": "0x0000000000000005" }] },
            { "op": "read_memory", "address": "0x1000", "size": 2, "expect": [{ "check": "bytes", "equals": "1112" }] },
        ] }),
    );
    assert_eq!(results(&report.steps), [Fine, Fine, Fine, Unmet]);
    assert_eq!(report.steps[3].detail.as_deref(), Some("check 1: byte 1 is 11, not 12"));
    assert_eq!(report.steps[1].bytes_read, Some(2));
}

#[test]
fn a_value_from_a_rejected_state_is_not_captured() {
    let mut script = Script::default().value("@rcx", 5);
    let report = run(
        &mut script,
        &json!({ "steps": [{
            "op": "eval", "expr": "@rcx", "capture": "x",
            "expect": [{ "check": "eval", "expr": "@rcx", "equals": "6" }],
        }] }),
    );
    assert!(report.captures.is_empty() && report.outcome == Outcome::Failed);
}

#[test]
fn success_that_reads_like_a_failure_is_marked() {
    let mut script = Script::default().on("dd 0", vec![Act::Say("00000000  ???????? ????????")]);
    let report = run(&mut script, &json!({ "steps": [{ "op": "command", "command": "dd 0" }] }));
    assert!(report.steps[0].suspect_output && report.committed);
    insta::assert_snapshot!(batch::render(&report), @r"
    BATCH: COMMITTED (0 of 120000 ms)
    can have changed: nothing
    rollback: nothing to undo
    session after: stopped at 0x0000000000401000
    steps:
      1. ok: dd 0
         it succeeded, but printed what reads like a complaint: assert on it
         | 00000000  ???????? ????????
    ");
}

#[test]
fn a_break_after_the_last_step_was_looked_at_is_this_batchs() {
    // It lands while the identity is read, which is after the action.
    struct Late(Script);
    impl batch::Subject for Late {
        fn elapsed(&self) -> std::time::Duration {
            self.0.elapsed()
        }
        fn abandoned(&self) -> bool {
            false
        }
        fn interrupted(&self) -> bool {
            false
        }
        fn rolling_back(&mut self) -> bool {
            self.0.sealed = true;
            true
        }
        fn identity(&mut self) -> Result<batch::Identity, Unidentified> {
            self.0.identity()
        }
        fn aim_at(&mut self, aim: &str) -> Result<(), String> {
            self.0.aim_at(aim)
        }
        fn command(
            &mut self,
            text: &str,
            within: std::time::Duration,
        ) -> Result<batch::Done, batch::Failure> {
            self.0.command(text, within)
        }
        fn resume(&mut self, text: &str, wait: std::time::Duration) -> Result<batch::Done, batch::Failure> {
            self.0.resume(text, wait)
        }
        fn run_to(&mut self, at: &str, wait: std::time::Duration) -> Result<batch::Done, batch::Failure> {
            self.0.run_to(at, wait)
        }
        fn eval(&mut self, text: &str, within: std::time::Duration) -> Result<u64, batch::Failure> {
            self.0.eval(text, within)
        }
        fn read(
            &mut self,
            at: u64,
            size: usize,
            within: std::time::Duration,
        ) -> Result<Vec<u8>, batch::Failure> {
            self.0.read(at, size, within)
        }
        fn write(
            &mut self,
            at: u64,
            bytes: &[u8],
            within: std::time::Duration,
        ) -> Result<(), batch::Failure> {
            self.0.write(at, bytes, within)
        }
        fn probe(&mut self) -> batch::Probe {
            self.0.probe()
        }
    }
    let batch = script::parsed(&json!({
        "steps": [{ "op": "write_memory", "address": "1000", "bytes": "90", "restore": "on_failure" }],
    }));
    let mut late = Late(Script::default());
    let report = batch::run(&batch, batch::Budget::of(None, None).unwrap(), &mut late).unwrap();
    assert_eq!((report.outcome, report.at), (Outcome::Interrupted, Some(1)));
    assert_eq!(late.0.byte(0x1000), 0x11);
}

#[test]
fn an_unreadable_operand_that_r_previews_is_no_complaint() {
    let mut script =
        Script::default().on("r", vec![Act::Say("mov rax,[rcx] ds:002b:00000000=????????????????")]);
    let report = run(&mut script, &json!({ "steps": [{ "op": "command", "command": "r" }] }));
    assert!(!report.steps[0].suspect_output);
}

#[test]
fn what_was_refused_changed_nothing() {
    let mut script = Script::default()
        .on("g", vec![Act::Refuse("a dump cannot be run")])
        .on("k; eb 1 2", vec![Act::Refuse("'eb' is not served")]);
    let refused = |script: &mut Script, steps: serde_json::Value| run(script, &json!({ "steps": steps }));
    let report = refused(&mut script, json!([{ "op": "resume", "command": "g" }]));
    assert!(report.steps[0].changes.is_empty(), "{report:?}");
    assert!(batch::render(&report).contains("rollback: nothing to undo"));
    // Of several commands the first may have run.
    let report = refused(&mut script, json!([{ "op": "command", "command": "k; eb 1 2" }]));
    assert_eq!(report.steps[0].changes, [Change::Memory]);
}

#[test]
fn an_unfinished_cleanup_is_named() {
    let mut script = Script::default().on("bc *", vec![Act::Fail("no")]);
    let report = run(
        &mut script,
        &json!({
            "steps": [{ "op": "command", "command": "k" }],
            "always": [{ "op": "command", "command": "bc *" }],
        }),
    );
    let text = batch::render(&report);
    assert!(text.contains("rollback: INCOMPLETE: always step 1 failed; look at"), "{text}");
}
