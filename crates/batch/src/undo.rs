//! The cleanup: the `always` block, then the restores the engine process owes, on every path on which
//! they can be aimed at the target they were written for.

use std::time::Duration;

use target::{Address, HexBytes};

use crate::act::{Owed, guarded};
use crate::budget::FLOOR;
use crate::changes::Change;
use crate::execute::{Decided, Holding, Running, seen, skipped};
use crate::report::{Outcome, RestoreRow, Rollback, StepResult};
use crate::step::{Op, Restore, Step};
use crate::subject::Unidentified;

/// A restore is a few bytes and what the batch is for, so it is still tried this long after the time
/// was up; the headroom kept back from the caller's patience covers it.
const RESTORE_GRACE: Duration = Duration::from_millis(500);

impl Running<'_> {
    /// Runs the cleanup and says what became of it.
    pub(crate) fn undo(&mut self) -> Rollback {
        self.seal();
        let committed = self.decided.is_none();
        let owed: Vec<Owed> =
            self.owed.drain(..).rev().filter(|owed| owed.when == Restore::Always || !committed).collect();
        let batch = self.batch;
        if batch.always.is_empty() && owed.is_empty() {
            return Rollback::NotSupplied;
        }
        let restricted = self
            .decided
            .is_some_and(|d| matches!(d.outcome, Outcome::TargetReplaced | Outcome::TargetUncertain));
        if restricted && let Err(why) = self.aim() {
            self.give_up(&owed, &why);
            return Rollback::NotAttempted;
        }
        let mut complete = self.block(restricted);
        complete &= self.restore(owed);
        if complete { Rollback::Complete } else { Rollback::Incomplete }
    }

    /// A break that came after the last step was looked at, and was said to be raised, is this
    /// batch's: it does not commit.
    fn seal(&mut self) {
        let broken = self.subject.rolling_back();
        if broken && self.decided.is_none() {
            let outcome = if self.subject.abandoned() { Outcome::Abandoned } else { Outcome::Interrupted };
            self.decided = Some(Decided { outcome, at: self.batch.steps.len() });
        }
    }

    /// Makes writes land where they did before step 1; from then on this is what steps are compared
    /// with. A target that is gone refuses a restore by itself.
    fn aim(&mut self) -> Result<(), String> {
        let aimed = |running: &mut Self| match seen(running.subject) {
            Ok(now) if now.aim == running.original.aim => {
                running.baseline = now;
                Ok(())
            }
            Ok(now) => Err(format!("{} is selected instead of {}", now.aim, running.original.aim)),
            Err(Unidentified::Gone(_)) => Ok(()),
            Err(Unidentified::Unreadable(why)) => Err(why),
        };
        let Err(first) = aimed(self) else { return Ok(()) };
        let (subject, aim) = (&mut *self.subject, &self.original.aim);
        guarded(|| subject.aim_at(aim))
            .and_then(|selected| selected)
            .map_err(|why| format!("{first}, and it could not be selected again: {why}"))?;
        aimed(self)
    }

    fn give_up(&mut self, owed: &[Owed], why: &str) {
        let batch = self.batch;
        let reason = format!("the cleanup can no longer be aimed at the target it was written for: {why}");
        for (index, step) in batch.always.iter().enumerate() {
            self.always.push(skipped(step, index + 1, reason.clone()));
        }
        self.restores.extend(owed.iter().map(|owed| row(owed, StepResult::Skipped, Some(reason.clone()))));
    }

    /// Runs the `always` block past its own failures; whether all of it went well.
    fn block(&mut self, restricted: bool) -> bool {
        let batch = self.batch;
        let (mut complete, mut lost) = (true, None::<String>);
        for (index, step) in batch.always.iter().enumerate() {
            let position = index + 1;
            let why = lost.clone().or_else(|| self.withheld(step, restricted));
            if let Some(why) = why {
                complete = false;
                self.always.push(skipped(step, position, why));
                continue;
            }
            let deadline = self.budget.always_deadline;
            let (row, holding) = self.attempt(step, position, deadline, "always step");
            complete &= row.result == StepResult::Ok;
            match holding {
                Holding::Same => {}
                // What is gone refuses the rest by itself; how far it came shows in the rows.
                Holding::Gone => complete = false,
                Holding::Changed => {
                    complete = false;
                    lost = Some(format!("target replaced by always step {position}"));
                }
                Holding::Unreadable => {
                    complete = false;
                    lost = Some(format!("target could not be identified after always step {position}"));
                }
            }
            self.always.push(row);
        }
        complete
    }

    /// Why a cleanup step is not run.
    fn withheld(&self, step: &Step, restricted: bool) -> Option<String> {
        if self.subject.elapsed() >= self.budget.always_deadline {
            return Some("no time was left for it".to_owned());
        }
        let pumps = [Change::Execution, Change::DebugTarget, Change::Unknown];
        let moves = matches!(step.op, Op::Resume | Op::RunTo)
            || step.changes().iter().any(|change| pumps.contains(change));
        (restricted && moves)
            .then(|| "it could move the engine on to the target that replaced its own".to_owned())
    }

    /// Writes old bytes back, newest first.
    fn restore(&mut self, owed: Vec<Owed>) -> bool {
        if owed.is_empty() {
            return true;
        }
        if let Err(why) = self.aim() {
            let reason = format!("no longer aimed at the target it was read from: {why}");
            self.restores
                .extend(owed.iter().map(|owed| row(owed, StepResult::Skipped, Some(reason.clone()))));
            return false;
        }
        let mut complete = true;
        for owed in &owed {
            let late = self.subject.elapsed() >= self.budget.always_deadline + RESTORE_GRACE;
            let done = if late {
                row(owed, StepResult::Skipped, Some("no time was left for it".to_owned()))
            } else {
                self.write_back(owed)
            };
            complete &= done.result == StepResult::Ok;
            self.restores.push(done);
        }
        complete
    }

    fn write_back(&mut self, owed: &Owed) -> RestoreRow {
        let subject = &mut *self.subject;
        let written = guarded(|| {
            subject.write(owed.address, &owed.old, FLOOR).map_err(|failure| failure.message)?;
            let now = subject.read(owed.address, owed.old.len(), FLOOR).map_err(|failure| failure.message)?;
            if now == owed.old {
                Ok(())
            } else {
                Err(format!("it reads {} and not {}", HexBytes(now), HexBytes(owed.old.clone())))
            }
        });
        match written.and_then(|written| written) {
            Ok(()) => row(owed, StepResult::Ok, None),
            Err(why) => row(owed, StepResult::Failed, Some(why)),
        }
    }
}

fn row(owed: &Owed, result: StepResult, detail: Option<String>) -> RestoreRow {
    RestoreRow { step: owed.step, address: Address(owed.address), size: owed.old.len(), result, detail }
}
