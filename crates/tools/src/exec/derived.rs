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
