//! What the answers of this group tell a transcript: stops, and changes of breakpoints.

use control::{BreakpointRecord, Cleared, RunTo, StopRecord};
use serde_json::Value;
use transcript::Derived;

use super::records;

pub(super) fn stop(stop: &StopRecord) -> Vec<Derived> {
    vec![Derived::Stop {
        command: stop.command.clone(),
        stopped_at: stop.stopped_at.map(|at| at.to_string()),
        interrupted: stop.interrupted,
        timed_out: stop.timed_out,
        target_gone: stop.target_gone,
    }]
}

pub(super) fn run_to(run: &RunTo) -> Vec<Derived> {
    let verdict = serde_json::to_value(run.verdict).ok();
    vec![Derived::RunTo {
        verdict: verdict.as_ref().and_then(Value::as_str).unwrap_or_default().to_owned(),
        target: run.target.to_string(),
        stopped_at: run.stopped_at.map(|at| at.to_string()),
    }]
}

fn breakpoint(detail: String) -> Derived {
    Derived::Mutation { kind: "breakpoint", detail, step: None }
}

/// One for what was set, one for each that gave way.
pub(super) fn set(set: &BreakpointRecord, replaced: &[u32]) -> Vec<Derived> {
    let gone = replaced.iter().map(|id| breakpoint(format!("breakpoint {id} replaced by {}", set.id)));
    std::iter::once(breakpoint(format!("set {}", records::words(set)))).chain(gone).collect()
}

pub(super) fn cleared(cleared: &Cleared) -> Vec<Derived> {
    cleared.removed.iter().map(|id| breakpoint(format!("breakpoint {id} cleared"))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use transcript::Derived;

    fn derived(tool: &str, answer: serde_json::Value) -> Vec<Derived> {
        crate::find(tool).unwrap().derived(&answer)
    }

    fn breakpoint(id: u32) -> serde_json::Value {
        json!({ "id": id, "kind": "code", "address": "0x0000000140001000", "enabled": true, "pass_count": 1 })
    }

    #[test]
    fn stops_are_told_of_runs_that_stopped() {
        let stop =
            json!({ "status": "ok", "command": "g", "stopped_at": "0x0000000140001000", "output": "" });
        let told = vec![Derived::Stop {
            command: "g".into(),
            stopped_at: Some("0x0000000140001000".into()),
            interrupted: false,
            timed_out: false,
            target_gone: false,
        }];
        for tool in ["go", "step_into", "step_over"] {
            assert_eq!(derived(tool, stop.clone()), told, "{tool}");
        }
        let waited = json!({ "session_id": "s", "execution": "e", "running_for_ms": 1, "stop": stop });
        assert_eq!(derived("wait_for_stop", waited), told);
        let running = json!({ "session_id": "s", "execution": "e", "running_for_ms": 1 });
        assert_eq!(derived("wait_for_stop", running), []);
    }

    #[test]
    fn a_breakpoint_set_in_anothers_place_is_two_changes() {
        let set = json!({ "breakpoint": breakpoint(3), "replaced": [1] });
        let details: Vec<String> = derived("set_breakpoint", set)
            .into_iter()
            .map(|told| match told {
                Derived::Mutation { kind: "breakpoint", detail, step: None } => detail,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(details, ["set breakpoint 3, code, 0x0000000140001000", "breakpoint 1 replaced by 3"]);
        let cleared = json!({ "removed": [1, 2], "missing": [9], "failed": [], "remaining": [] });
        assert_eq!(derived("clear_breakpoints", cleared).len(), 2);
    }

    #[test]
    fn raw_text_and_errors_tell_nothing() {
        assert_eq!(derived("execute", json!({ "text": "bp 1" })), []);
        assert_eq!(derived("go", json!({ "status": "error" })), []);
    }
}
