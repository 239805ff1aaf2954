//! A report in words, a pure function of it.

use crate::changes::Change;
use crate::report::{Outcome, Report, Rollback, Row, StepResult, TargetState};

fn headline(report: &Report) -> String {
    let at = report.at.map(|at| format!(" at step {at} of {}", report.steps.len())).unwrap_or_default();
    let word = match report.outcome {
        Outcome::Committed => "COMMITTED",
        Outcome::Failed => "FAILED",
        Outcome::TimedOut => "TIMED OUT",
        Outcome::Abandoned => "ABANDONED",
        Outcome::Interrupted => "INTERRUPTED",
        Outcome::TargetGone => "TARGET GONE",
        Outcome::TargetReplaced => "TARGET REPLACED",
        Outcome::TargetUncertain => "TARGET UNCERTAIN",
    };
    format!("BATCH: {word}{at} ({} of {} ms)\n", report.elapsed_ms, report.budget_ms)
}

fn mutations(report: &Report) -> String {
    let mut parts = Vec::new();
    for (block, rows) in [("step", &report.steps), ("always step", &report.always)] {
        for row in rows.iter().filter(|row| !row.changes.is_empty()) {
            let kinds: Vec<&str> = row.changes.iter().copied().map(Change::name).collect();
            parts.push(format!("{block} {}: {}", row.position, kinds.join(", ")));
        }
    }
    match parts.is_empty() {
        true => "can have changed: nothing\n".to_owned(),
        false => format!("can have changed: {}\n", parts.join("; ")),
    }
}

/// What of the cleanup did not go well, and what that leaves.
fn undone(report: &Report, changed: bool) -> String {
    let word = |result| match result {
        StepResult::Ok => None,
        StepResult::Failed => Some("failed"),
        StepResult::Unmet => Some("came out otherwise than expected"),
        StepResult::Skipped => Some("did not run"),
    };
    let always = report
        .always
        .iter()
        .filter_map(|row| word(row.result).map(|word| format!("always step {} {word}", row.position)));
    let restores = report
        .restores
        .iter()
        .filter(|row| row.result != StepResult::Ok)
        .map(|row| format!("step {}'s bytes were not put back", row.step));
    let parts: Vec<String> = always.chain(restores).collect();
    let left = if changed { "look at the rows below before going on" } else { "nothing had been changed" };
    format!("INCOMPLETE: {}; {left}", parts.join(", "))
}

fn rollback(report: &Report) -> String {
    let changed = report.steps.iter().chain(&report.always).any(|row| !row.changes.is_empty());
    let word = match report.rollback {
        Rollback::NotSupplied if changed => {
            "no cleanup given or due: what the steps changed stays".to_owned()
        }
        Rollback::NotSupplied => "nothing to undo".to_owned(),
        Rollback::Complete => "complete".to_owned(),
        Rollback::Incomplete => undone(report, changed),
        Rollback::NotAttempted => "NOT ATTEMPTED: the target may hold what the steps changed".to_owned(),
    };
    let mut text = format!("rollback: {word}\n");
    for row in &report.restores {
        let detail = row.detail.as_ref().map(|detail| format!(": {detail}")).unwrap_or_default();
        text.push_str(&format!(
            "  step {}'s {} bytes at {}: {}{detail}\n",
            row.step,
            row.size,
            row.address,
            result(row.result)
        ));
    }
    text
}

fn after(report: &Report) -> String {
    let state = match report.after.state {
        TargetState::Stopped => "stopped",
        TargetState::Running => "running",
        TargetState::Detached => "detached",
        TargetState::Ended => "ended",
        TargetState::Uncertain => "uncertain",
    };
    let mut text = format!("session after: {state}");
    if let Some(ip) = report.after.ip {
        text.push_str(&format!(" at {ip}"));
    }
    if let Some(by) = &report.after.by {
        text.push_str(&format!(", by {by}"));
    }
    if let Some(why) = &report.after.why {
        text.push_str(&format!(": {why}"));
    }
    text.push('\n');
    text
}

fn result(result: StepResult) -> &'static str {
    match result {
        StepResult::Ok => "ok",
        StepResult::Failed => "failed",
        StepResult::Unmet => "unmet",
        StepResult::Skipped => "skipped",
    }
}

fn step(row: &Row) -> String {
    let mut text = format!("  {}. {}: {}", row.position, result(row.result), row.label.replace('\n', " "));
    if row.label != row.action {
        text.push_str(&format!(" | {}", row.action.replace('\n', " ")));
    }
    if let Some(value) = row.value {
        text.push_str(&format!(" = {value}"));
    }
    if let Some(verdict) = row.verdict {
        text.push_str(&format!(" -> {}", crate::act::verdict_word(verdict)));
    }
    if let Some(at) = row.stopped_at {
        text.push_str(&format!(", stopped at {at}"));
    }
    if let Some(count) = row.bytes_read {
        text.push_str(&format!(", {count} bytes"));
    }
    text.push('\n');
    if let Some(detail) = &row.detail {
        text.push_str(&format!("     {detail}\n"));
    }
    if row.suspect_output {
        text.push_str("     it succeeded, but printed what reads like a complaint: assert on it\n");
    }
    for line in row.output.iter().flat_map(|output| output.lines()) {
        text.push_str(&format!("     | {line}\n"));
    }
    if let Some(dropped) = row.output_dropped {
        text.push_str(&format!("     [{dropped} characters of output left out]\n"));
    }
    text
}

/// The text of a report: how it ended, what can have changed, the rollback, the session, every step.
#[must_use]
pub fn render(report: &Report) -> String {
    let mut text = headline(report) + &mutations(report) + &rollback(report) + &after(report);
    text.push_str("steps:\n");
    text.extend(report.steps.iter().map(step));
    if !report.always.is_empty() {
        text.push_str("always:\n");
        text.extend(report.always.iter().map(step));
    }
    for (name, value) in &report.captures {
        text.push_str(&format!("captured {name} = {value}\n"));
    }
    text.truncate(text.trim_end().len());
    text
}
