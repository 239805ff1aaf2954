//! The run slot (spec 10 section 7.7): the run nobody waits for, or the last there was. It is
//! replaced by the next run and never cleared: a stop is read, not taken. Everything here happens
//! under the session's one lock, which is also the one calls are submitted under.

use std::time::{Duration, Instant};

use channel::Op;
use serde_json::{Value, json};
use tokio::sync::watch;
use tools::sessions::ExecutionRow;
use tools::{Category, ToolError};

use super::{Gate, Outgoing, Session, State};
use crate::call::Answer;

/// What a run is called in answers: the debugger's word for it.
pub(crate) const COMMAND: &str = "g";

#[derive(Debug)]
pub(super) struct Slot {
    execution: String,
    job: u64,
    bound: Duration,
    moving_since: Option<Instant>,
    /// Frozen at the stop.
    ran_for: Option<Duration>,
    outcome: Option<Answer>,
    changed: watch::Sender<()>,
}

/// A run as it is at one moment.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) job: u64,
    pub(crate) running_for_ms: u64,
    /// Until it is broken in; none once it stopped.
    pub(crate) breaks_in_ms: Option<u64>,
    pub(crate) moved: bool,
    /// Its stop record, or why there is none.
    pub(crate) outcome: Option<Answer>,
    /// Changes after this moment; closed when another run takes the slot.
    pub(crate) changes: watch::Receiver<()>,
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Slot {
    fn running(&self) -> bool {
        self.outcome.is_none()
    }

    /// From when it moved: a queued run reports nothing yet, and its whole bound.
    fn running_for(&self) -> Duration {
        self.ran_for.or(self.moving_since.map(|since| since.elapsed())).unwrap_or_default()
    }

    fn breaks_in_ms(&self) -> Option<u64> {
        self.running().then(|| milliseconds(self.bound.saturating_sub(self.running_for())))
    }

    fn seen(&self) -> Seen {
        Seen {
            job: self.job,
            running_for_ms: milliseconds(self.running_for()),
            breaks_in_ms: self.breaks_in_ms(),
            moved: self.moving_since.is_some(),
            outcome: self.outcome.clone(),
            changes: self.changed.subscribe(),
        }
    }

    pub(super) fn row(&self) -> ExecutionRow {
        ExecutionRow {
            execution: self.execution.clone(),
            command: COMMAND.to_owned(),
            running_for_ms: milliseconds(self.running_for()),
            stopped: !self.running(),
            breaks_in_ms: self.breaks_in_ms(),
        }
    }

    /// The target moves.
    pub(super) fn moving(&mut self) {
        self.moving_since.get_or_insert_with(Instant::now);
        self.changed.send_replace(());
    }

    /// Files the outcome; only the first counts.
    pub(super) fn file(&mut self, answer: Answer) {
        if self.running() {
            self.ran_for = Some(self.running_for());
            self.outcome = Some(answer);
            self.changed.send_replace(());
        }
    }
}

/// The target ran to its end or was let go.
pub(super) fn is_gone(data: &Value) -> bool {
    data.get("target_gone").and_then(Value::as_bool) == Some(true)
        || ["verdict", "outcome"]
            .iter()
            .any(|field| data.get(field).and_then(Value::as_str) == Some("target_gone"))
}

impl State {
    /// The run that `job` is, as long as it has not ended.
    pub(super) fn run_of(&mut self, job: u64) -> Option<&mut Slot> {
        self.run.as_mut().filter(|slot| slot.job == job && slot.running())
    }

    pub(super) fn running(&self) -> bool {
        self.run.as_ref().is_some_and(Slot::running)
    }

    /// Before the target may move: answers kept for collection tell of another moment. Those of
    /// runs tell what happened and stay.
    pub(super) fn forget_readings(&mut self) {
        self.kept.retain(|(call, _)| call.moves);
        let calls = &self.calls;
        self.abandoned.retain(|id| calls.get(id).is_some_and(|call| call.moves));
    }
}

impl Session {
    /// Why nothing may be asked of the target now: refused, not queued, because an answer that waits
    /// for the stop tells of a position nobody asked about.
    pub(super) fn running_refusal(&self, state: &State) -> Option<ToolError> {
        let slot = state.run.as_ref().filter(|slot| slot.running())?;
        let doing = match slot.moving_since {
            Some(_) => format!("has been running for {} ms", milliseconds(slot.running_for())),
            None => "is about to run".to_owned(),
        };
        let message = format!(
            "the target of session {} {doing} as {}; wait for its stop or break in, then ask again",
            self.id, slot.execution
        );
        let error = ToolError::new(Category::TargetRunning, message);
        Some(
            error
                .about(&self.id)
                .then(&["wait_for_stop", "break_in"])
                .with("execution", slot.execution.clone()),
        )
    }

    /// Refuses while the target may move.
    pub(crate) fn check_stopped(&self) -> Result<(), ToolError> {
        let state = self.state();
        self.running_refusal(&state).map_or(Ok(()), Err)
    }

    /// Claims the slot and queues the run in one step, so that there is no instant in which the
    /// target may move and a call passes.
    pub(crate) fn start_run(&self, execution: &str, gate: Gate, bound: Duration) -> Result<(), ToolError> {
        let mut state = self.state();
        if let Some(refusal) = self.refusal(&state, gate).or_else(|| self.running_refusal(&state)) {
            return Err(refusal);
        }
        if state.ending {
            let message = format!("session {} is being ended", self.id);
            return Err(ToolError::new(Category::StaleSession, message).about(&self.id));
        }
        state.forget_readings();
        let job = state.next_id;
        state.next_id += 1;
        state.last_used = Instant::now();
        state.run = Some(Slot {
            execution: execution.to_owned(),
            job,
            bound,
            moving_since: None,
            ran_for: None,
            outcome: None,
            changed: watch::Sender::new(()),
        });
        let op = Op::Run {
            operation: tools::operations::RUN.to_owned(),
            args: json!({ "max_run_ms": milliseconds(bound) }),
        };
        // Nobody's patience ends it: its bound is its own.
        self.send(Outgoing { id: job, op, gate, deadline: None, retires: false });
        Ok(())
    }

    /// The run `execution` now.
    pub(crate) fn look(&self, execution: &str) -> Result<Seen, ToolError> {
        self.check_resolved()?;
        let state = self.state();
        let shown: String = execution.chars().take(64).collect();
        let message = match &state.run {
            Some(slot) if slot.execution == execution => return Ok(slot.seen()),
            Some(slot) => {
                format!("{shown} is not the run of session {} any more: {} is", self.id, slot.execution)
            }
            None => format!("session {} has had no run, so none called {shown}", self.id),
        };
        Err(ToolError::new(Category::StaleSession, message).about(&self.id).then(&["session_status"]))
    }

    pub(crate) fn has_run(&self, execution: &str) -> bool {
        self.state().run.as_ref().is_some_and(|slot| slot.execution == execution)
    }
}
