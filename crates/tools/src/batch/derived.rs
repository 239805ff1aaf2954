//! What a batch tells a transcript beside its report: what it changed, what did not hold, how it ended.

use batch::{Report, Row, StepResult, TargetState};
use serde_json::Value;
use transcript::Derived;

/// A word of a vocabulary as results spell it.
fn word(value: impl serde::Serialize) -> String {
    serde_json::to_value(value).ok().as_ref().and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn changed(block: &str, row: &Row) -> Option<Derived> {
    let kinds: Vec<&str> = row.changes.iter().copied().map(batch::Change::name).collect();
    let ran = row.result != StepResult::Skipped && !kinds.is_empty();
    ran.then(|| Derived::Mutation {
        kind: "batch_step",
        detail: format!("{}: {}", kinds.join(", "), row.action),
        step: Some(format!("{block} {}", row.position)),
    })
}

fn unmet(block: &str, row: &Row) -> Option<Derived> {
    (row.result == StepResult::Unmet).then(|| Derived::Assertion {
        step: format!("{block} {}", row.position),
        detail: row.detail.clone().unwrap_or_default(),
    })
}

fn after(report: &Report) -> String {
    let state = match report.after.state {
        TargetState::Stopped => "stopped",
        TargetState::Running => "running",
        TargetState::Detached => "detached",
        TargetState::Ended => "ended",
        TargetState::Uncertain => "uncertain",
    };
    report.after.ip.map_or_else(|| state.to_owned(), |ip| format!("{state} at {ip}"))
}

pub(super) fn of(report: &Report) -> Vec<Derived> {
    let blocks = [("step", &report.steps), ("always step", &report.always)];
    let rows = blocks.into_iter().flat_map(|(block, rows)| rows.iter().map(move |row| (block, row)));
    let told = rows.flat_map(|(block, row)| [changed(block, row), unmet(block, row)].into_iter().flatten());
    let mut events: Vec<Derived> = told.collect();
    events.extend(report.restores.iter().map(|row| Derived::Mutation {
        kind: "restore",
        detail: format!("{} bytes at {}: {}", row.size, row.address, word(row.result)),
        step: Some(format!("step {}", row.step)),
    }));
    events.push(Derived::Batch {
        outcome: word(report.outcome),
        at_step: report.at.map(|at| at.to_string()),
        committed: report.committed,
        rollback: word(report.rollback),
        rollback_complete: report.rollback_complete,
        after: after(report),
        elapsed_ms: report.elapsed_ms,
    });
    events
}
