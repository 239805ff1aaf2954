//! The executor: steps in order, then the cleanup, on every path (spec 20 section 2.6).

use std::collections::BTreeMap;
use std::time::Duration;

use target::{Address, Identity};

use crate::act::{Acted, Owed, act, guarded, suspect};
use crate::budget::Budget;
use crate::capture::Captures;
use crate::check::{Checked, checked};
use crate::clip;
use crate::report::{After, Outcome, Report, RestoreRow, Rollback, Row, StepResult, TargetState};
use crate::step::{Batch, Step};
use crate::subject::{Probe, Subject, Unidentified};

/// Why no step was run: nothing was read and nothing changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotBegun {
    #[error("not begun: the target is gone: {0}")]
    Gone(String),
    #[error(
        "not begun: which target the engine holds cannot be read: {0}. Nothing was run and nothing changed"
    )]
    Unidentified(String),
}

/// Runs a batch that [`crate::parse`] admitted.
///
/// # Errors
/// [`NotBegun`], before anything was run.
pub fn run(batch: &Batch, budget: Budget, subject: &mut dyn Subject) -> Result<Report, NotBegun> {
    let original = match seen(subject) {
        Ok(original) => original,
        Err(Unidentified::Gone(why)) => return Err(NotBegun::Gone(why)),
        Err(Unidentified::Unreadable(why)) => return Err(NotBegun::Unidentified(why)),
    };
    let mut running = Running {
        batch,
        budget,
        subject,
        baseline: original.clone(),
        original,
        captures: Captures::default(),
        decided: None,
        owed: Vec::new(),
        gone: None,
        steps: Vec::new(),
        always: Vec::new(),
        restores: Vec::new(),
    };
    running.steps();
    let rollback = running.undo();
    Ok(running.report(rollback))
}

/// The identity, a panic of the engine as "unreadable".
pub(crate) fn seen(subject: &mut dyn Subject) -> Result<Identity, Unidentified> {
    guarded(|| subject.identity()).unwrap_or_else(|panic| Err(Unidentified::Unreadable(panic)))
}

/// How the steps ended, and where.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Decided {
    pub(crate) outcome: Outcome,
    pub(crate) at: usize,
}

impl Decided {
    /// Why what comes later is skipped.
    pub(crate) fn reason(self) -> String {
        let at = self.at;
        match self.outcome {
            Outcome::Committed => "the batch was over".to_owned(),
            Outcome::Failed => format!("step {at} failed"),
            Outcome::TimedOut => format!("ran out of time at step {at}"),
            Outcome::Abandoned => format!("torn down at step {at}"),
            Outcome::Interrupted => format!("interrupted at step {at}"),
            Outcome::TargetGone => format!("target ended at step {at}"),
            Outcome::TargetReplaced => format!("target replaced at step {at}"),
            Outcome::TargetUncertain => format!("target could not be identified after step {at}"),
        }
    }
}

/// Who ended the target.
#[derive(Clone, Debug)]
pub(crate) struct GoneBy {
    by: String,
    why: String,
    detached: bool,
}

pub(crate) struct Running<'a> {
    pub(crate) batch: &'a Batch,
    pub(crate) budget: Budget,
    pub(crate) subject: &'a mut dyn Subject,
    /// What was held before step 1.
    pub(crate) original: Identity,
    /// What a step is compared with; another one during a cleanup of a replaced target.
    pub(crate) baseline: Identity,
    pub(crate) captures: Captures,
    pub(crate) decided: Option<Decided>,
    pub(crate) owed: Vec<Owed>,
    pub(crate) gone: Option<GoneBy>,
    steps: Vec<Row>,
    pub(crate) always: Vec<Row>,
    pub(crate) restores: Vec<RestoreRow>,
}

/// What the identity says after a step.
pub(crate) enum Holding {
    Same,
    Changed,
    Gone,
    Unreadable,
}

impl Running<'_> {
    fn steps(&mut self) {
        let batch = self.batch;
        for (index, step) in batch.steps.iter().enumerate() {
            let position = index + 1;
            if self.decided.is_none()
                && let Some(outcome) = self.between()
            {
                self.decided = Some(Decided { outcome, at: position });
            }
            let row = match self.decided {
                Some(decided) => skipped(step, position, decided.reason()),
                None => self.step(step, position),
            };
            self.steps.push(row);
        }
    }

    /// What ends a batch between two steps.
    fn between(&self) -> Option<Outcome> {
        if self.subject.abandoned() {
            return Some(Outcome::Abandoned);
        }
        if self.subject.interrupted() {
            return Some(Outcome::Interrupted);
        }
        (self.subject.elapsed() >= self.budget.steps_deadline).then_some(Outcome::TimedOut)
    }

    fn step(&mut self, step: &Step, position: usize) -> Row {
        let deadline = self.budget.steps_deadline;
        let (mut row, after) = self.attempt(step, position, deadline, "step");
        let outcome = match after {
            Holding::Changed => Some(Outcome::TargetReplaced),
            Holding::Unreadable => Some(Outcome::TargetUncertain),
            Holding::Gone => Some(Outcome::TargetGone),
            Holding::Same => self.classify(&mut row),
        };
        self.decided = outcome.map(|outcome| Decided { outcome, at: position });
        row
    }

    /// The outcome of a step on the same target. Whether a break cut it is told by the flag bound to
    /// this operation, whatever the engine returned.
    fn classify(&mut self, row: &mut Row) -> Option<Outcome> {
        if self.subject.interrupted() {
            row.cut_short = true;
            let (outcome, who) = match self.subject.abandoned() {
                true => (Outcome::Abandoned, "a teardown"),
                false => (Outcome::Interrupted, "an interrupt"),
            };
            let said = row.detail.take().map(|detail| format!(": {detail}")).unwrap_or_default();
            row.failed(format!("cut short by {who}; what it had done stands{said}"));
            return Some(outcome);
        }
        match row.result {
            StepResult::Unmet => Some(Outcome::Failed),
            StepResult::Failed if self.subject.elapsed() >= self.budget.steps_deadline => {
                Some(Outcome::TimedOut)
            }
            StepResult::Failed => Some(Outcome::Failed),
            StepResult::Ok | StepResult::Skipped => None,
        }
    }

    /// Action, identity, checks, capture: one step of either block.
    pub(crate) fn attempt(
        &mut self,
        step: &Step,
        position: usize,
        deadline: Duration,
        what: &str,
    ) -> (Row, Holding) {
        let filled = match self.captures.fill_step(step) {
            Ok(filled) => filled,
            Err(name) => {
                return (skipped(step, position, format!("{name} was never captured")), Holding::Same);
            }
        };
        let mut row = fresh(&filled, position);
        row.changes = filled.changes();
        self.subject.progress(&format!("{what} {position}: {}", row.label));
        let acted = act(self.subject, &filled, position, deadline, &mut self.owed);
        tell(&mut row, &acted, filled.raw().unwrap_or_default());
        let after = self.compare(&filled, &mut row, &format!("{what} {position}"));
        if matches!(after, Holding::Same) && row.result == StepResult::Ok {
            match checked(self.subject, &filled, &acted, deadline) {
                Checked::Hold => {}
                Checked::Unmet(why) => (row.result, row.detail) = (StepResult::Unmet, Some(why)),
                Checked::Failed(why) => row.failed(why),
            }
        }
        if let (StepResult::Ok, Some(name), Some(value)) = (row.result, &filled.capture, acted.value) {
            self.captures.0.insert(name.clone(), value);
        }
        clip::keep(&mut row, &acted.done.output, acted.beyond);
        (row, after)
    }

    /// Reads the identity again, before any check: a check must not be answered by a replacement.
    fn compare(&mut self, step: &Step, row: &mut Row, by: &str) -> Holding {
        if self.gone.is_some() {
            return Holding::Same;
        }
        let (after, why) = match seen(self.subject) {
            Ok(now) if now == self.baseline => return Holding::Same,
            Ok(now) => {
                row.target_changed = true;
                let what = if now.aim == self.baseline.aim {
                    "the engine holds another target"
                } else {
                    "another target is selected"
                };
                (
                    Holding::Changed,
                    format!("after it {what}: {} (it was {})", describe(&now), describe(&self.baseline)),
                )
            }
            Err(Unidentified::Gone(why)) => {
                row.target_gone = true;
                let detached = step.raw().is_some_and(detaches);
                self.gone = Some(GoneBy { by: by.to_owned(), why: why.clone(), detached });
                (Holding::Gone, format!("the target is gone: {why}"))
            }
            Err(Unidentified::Unreadable(why)) => {
                (Holding::Unreadable, format!("which target the engine holds now cannot be read: {why}"))
            }
        };
        let said = row.detail.take().map(|detail| format!("{detail}; ")).unwrap_or_default();
        row.failed(format!("{said}{why}"));
        after
    }

    fn report(mut self, rollback: Rollback) -> Report {
        let after = self.after();
        let committed = self.decided.is_none();
        let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let captures: BTreeMap<String, Address> =
            self.captures.0.iter().map(|(name, value)| (name.clone(), Address(*value))).collect();
        let mut report = Report {
            outcome: self.decided.map_or(Outcome::Committed, |decided| decided.outcome),
            at: self.decided.map(|decided| decided.at),
            committed,
            rollback,
            rollback_complete: matches!(rollback, Rollback::Complete | Rollback::NotSupplied),
            after,
            budget_ms: milliseconds(self.budget.total),
            elapsed_ms: milliseconds(self.subject.elapsed()),
            captures,
            steps: self.steps,
            always: self.always,
            restores: self.restores,
        };
        clip::whole(&mut report);
        report
    }

    /// The state probe. "Could not read" never becomes "detached" or "ended": those come only from
    /// what the batch did or from the target's own event.
    fn after(&mut self) -> After {
        if let Some(gone) = self.gone.take() {
            let state = if gone.detached { TargetState::Detached } else { TargetState::Ended };
            return After { state, ip: None, by: Some(gone.by), why: Some(gone.why) };
        }
        let subject = &mut *self.subject;
        let (state, ip, why) = match guarded(|| subject.probe()) {
            Ok(Probe::Stopped { ip }) => (TargetState::Stopped, Some(Address(ip)), None),
            Ok(Probe::Running) => (TargetState::Running, None, None),
            Ok(Probe::Unknown(why)) | Err(why) => (TargetState::Uncertain, None, Some(why)),
        };
        After { state, ip, by: None, why }
    }
}

fn describe(identity: &Identity) -> String {
    format!("{}, generation {}", identity.aim, identity.generation)
}

/// Whether a command lets the target go and leaves it alive.
fn detaches(command: &str) -> bool {
    let lower = command.to_ascii_lowercase();
    let mut words = lower.split(|c: char| !c.is_ascii_alphanumeric() && c != '.');
    words.any(|word| matches!(word, ".detach" | ".abandon" | "qd"))
}

fn fresh(step: &Step, position: usize) -> Row {
    let action = clip::action(&step.action());
    let label = step.name.as_deref().map_or_else(|| action.clone(), clip::action);
    Row::of(position, label, action)
}

/// The row of a step that is not run.
pub(crate) fn skipped(step: &Step, position: usize, why: String) -> Row {
    Row { result: StepResult::Skipped, detail: Some(why), ..fresh(step, position) }
}

fn tell(row: &mut Row, acted: &Acted, command: &str) {
    if acted.untouched {
        row.changes.clear();
    }
    row.value = acted.value.map(Address);
    row.bytes_read = acted.bytes.as_ref().map(Vec::len);
    row.verdict = acted.done.verdict;
    row.stopped_at = acted.done.stopped_at.map(Address);
    row.timed_out = acted.done.timed_out && acted.done.verdict.is_none();
    row.cut_short = acted.done.cut_short;
    match &acted.failure {
        Some(why) => row.failed(why.clone()),
        None => row.suspect_output = suspect(acted, command),
    }
}
