//! Runs nobody waits for, as a call sees them: start, wait, break in.

use std::sync::Arc;
use std::time::{Duration, Instant};

use channel::Op;
use control::StopRecord;
use serde_json::Value;
use tools::sessions::{BrokenIn, InterruptOutcome, StartedRun, WaitedRun};
use tools::{Category, ToolError};
use transcript::Event;

use crate::call::Answer;
use crate::lock;
use crate::open::handle;
use crate::scope::Scope;
use crate::session::{COMMAND, Gate, Session};

/// A wait for a stop answers so long before its caller's time is out.
const MARGIN: Duration = Duration::from_secs(5);

/// The stop record of a run that stopped.
fn stop(session: &Session, answer: Answer) -> Result<StopRecord, ToolError> {
    let reply = answer.map_err(|error| ToolError { session_id: Some(session.id.clone()), ..error })?;
    serde_json::from_value(reply.data).map_err(|error| {
        ToolError::new(Category::Internal, format!("the worker's stop: {error}")).about(&session.id)
    })
}

impl Scope {
    pub(crate) async fn start_run(
        &self,
        named: Option<&str>,
        bound: Duration,
    ) -> Result<StartedRun, ToolError> {
        let (session, gate) = self.resolve(named)?;
        let execution = handle("exec")?;
        session.start_run(&execution, gate, bound)?;
        let started = |running, moved, breaks_in_ms| StartedRun {
            session_id: session.id.clone(),
            execution: execution.clone(),
            command: COMMAND.to_owned(),
            running,
            moved,
            breaks_in_ms,
        };
        loop {
            // What is looked at first and waited for next is one moment: no change falls in between.
            let mut seen = session.look(&execution)?;
            if let Some(outcome) = seen.outcome {
                stop(&session, outcome)?;
                return Ok(started(false, seen.moved, None));
            }
            if seen.moved {
                return Ok(started(true, true, seen.breaks_in_ms));
            }
            tokio::select! {
                // An error means that another run has the slot; the look says so.
                _ = seen.changes.changed() => {}
                () = self.cancel.cancelled() => {
                    let _cancelling = session.control(Op::Cancel { job: seen.job }, Gate::Supervisor);
                    let message = format!("cancelled by its caller; if {execution} had begun, it goes on");
                    return Err(ToolError::new(Category::Timeout, message).about(&session.id));
                }
                () = tokio::time::sleep_until(self.deadline.into()) => {
                    if session.controls_kernel {
                        session.unresolve("the target was told to run and had not begun to move in time");
                        session.check_resolved()?;
                    }
                    let message = format!(
                        "the target had not begun to move when the call's time ran out; the run is {execution} and \
                         stays queued"
                    );
                    return Err(ToolError::new(Category::Timeout, message)
                        .about(&session.id)
                        .then(&["wait_for_stop", "break_in"])
                        .with("execution", execution));
                }
            }
        }
    }

    /// The session of a run: the one named, or whichever of the client's has it.
    fn session_of(&self, named: Option<&str>, execution: &str) -> Result<Arc<Session>, ToolError> {
        if named.is_some() {
            return self.resolve(named).map(|(session, _)| session);
        }
        let held = lock(&self.client.sessions);
        let found = held.all.iter().find(|session| session.has_run(execution));
        if let Some(session) = found {
            self.routed.note(&session.id);
        }
        found.cloned().ok_or_else(|| {
            let shown: String = execution.chars().take(64).collect();
            let message = format!(
                "no session's run is called {shown}: it was never started, or another took its place"
            );
            ToolError::new(Category::StaleSession, message).then(&["session_status"])
        })
    }

    pub(crate) async fn wait_run(
        &self,
        named: Option<&str>,
        execution: &str,
        timeout: Duration,
    ) -> Result<WaitedRun, ToolError> {
        let session = self.session_of(named, execution)?;
        let now = Instant::now();
        // One deadline for the whole call: a change that is no stop does not move it.
        let last = self.deadline.checked_sub(MARGIN).unwrap_or(now).max(now);
        let until = now.checked_add(timeout).map_or(last, |asked| asked.min(last));
        loop {
            let mut seen = session.look(execution)?;
            if seen.outcome.is_some() || Instant::now() >= until {
                return Ok(WaitedRun {
                    session_id: session.id.clone(),
                    execution: execution.to_owned(),
                    running_for_ms: seen.running_for_ms,
                    stop: seen.outcome.map(|outcome| stop(&session, outcome)).transpose()?,
                    breaks_in_ms: seen.breaks_in_ms,
                });
            }
            tokio::select! {
                _ = seen.changes.changed() => {}
                () = self.cancel.cancelled() => {
                    let message = format!("cancelled by its caller; {execution} goes on");
                    return Err(ToolError::new(Category::Timeout, message).about(&session.id));
                }
                () = tokio::time::sleep_until(until.into()) => {}
            }
        }
    }

    pub(crate) async fn break_run(
        &self,
        named: Option<&str>,
        execution: &str,
    ) -> Result<BrokenIn, ToolError> {
        let session = self.session_of(named, execution)?;
        let seen = session.look(execution)?;
        let answer = |requested, detail: &str| BrokenIn {
            session_id: session.id.clone(),
            execution: execution.to_owned(),
            requested,
            detail: detail.to_owned(),
        };
        if seen.outcome.is_some() {
            return Ok(answer(false, "it had stopped already, so nothing was sent"));
        }
        let (outcome, _) = self.ask_interrupt(&session, Some(seen.job)).await?;
        match outcome {
            InterruptOutcome::Raised => Ok(answer(true, "it was asked to stop")),
            InterruptOutcome::AlreadyPending => {
                Ok(answer(true, "it was asked to stop before and has not yet"))
            }
            InterruptOutcome::Barred => Ok(answer(true, "it was not running yet, and will not")),
            outcome => {
                let message =
                    format!("{execution} cannot be stopped now ({outcome:?}); end the session instead");
                Err(ToolError::new(Category::Debugger, message).about(&session.id).then(&["end_session"]))
            }
        }
    }

    /// Has the worker break the running job, or `job` and no other.
    pub(crate) async fn ask_interrupt(
        &self,
        session: &Session,
        job: Option<u64>,
    ) -> Result<(InterruptOutcome, Option<String>), ToolError> {
        let asked = self.ask_break(session, job).await;
        let (delivered, detail) = match &asked {
            Ok((outcome, tool)) => {
                let delivered =
                    matches!(outcome, InterruptOutcome::Raised | InterruptOutcome::AlreadyPending);
                let tool = tool.as_deref().map(|tool| format!(" ({tool})")).unwrap_or_default();
                let word = serde_json::to_value(outcome).unwrap_or_default();
                (delivered, format!("{}{tool}", word.as_str().unwrap_or_default()))
            }
            Err(error) => (false, error.message.clone()),
        };
        let detail = Some(session.shared.told(&detail));
        session.record(Event::Interrupt { session: session.id.clone(), delivered, detail });
        asked
    }

    async fn ask_break(
        &self,
        session: &Session,
        job: Option<u64>,
    ) -> Result<(InterruptOutcome, Option<String>), ToolError> {
        let answered = session.control(Op::Interrupt { job }, Gate::Teardown)?;
        let reply = match tokio::time::timeout(self.client.shared.config.interrupt_wait, answered).await {
            Ok(Ok(answer)) => answer.map_err(|error| error.about(&session.id))?,
            Ok(Err(_)) => {
                let message = format!("the engine process of session {} is gone", session.id);
                return Err(ToolError::new(Category::WorkerLost, message).about(&session.id));
            }
            Err(_) => {
                let message =
                    format!("the worker of session {} did not take the interrupt in time", session.id);
                return Err(ToolError::new(Category::Timeout, message)
                    .about(&session.id)
                    .then(&["end_session"]));
            }
        };
        let outcome = reply.data.get("outcome").cloned().unwrap_or_default();
        let outcome: InterruptOutcome = serde_json::from_value(outcome).map_err(|error| {
            ToolError::new(Category::Internal, format!("the worker's interrupt outcome: {error}"))
                .about(&session.id)
        })?;
        let tool = reply.data.get("tool").and_then(Value::as_str).map(ToOwned::to_owned);
        Ok((outcome, tool))
    }
}
