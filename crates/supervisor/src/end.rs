//! Letting sessions go (spec 10 section 1.8).

use std::sync::Arc;
use std::time::{Duration, Instant};

use channel::Op;
use tokio::sync::oneshot;
use tools::sessions::Ended;
use tools::{Category, ToolError};
use transcript::Event;

use crate::call::Answer;
use crate::session::{Gate, Phase, Session};

/// A released worker has so long to exit by itself, a killed one to be reaped.
const EXIT: Duration = Duration::from_secs(2);
/// A worker's reader answers at once; one that does not is not waited for.
const ANNOUNCED: Duration = Duration::from_secs(2);

impl Session {
    /// Ends the session at its place in the queue: jobs ahead still run. Kills the worker when it
    /// has not let go within the grace.
    pub(crate) async fn end(&self) -> Result<Ended, ToolError> {
        {
            let mut state = self.state();
            if state.lost {
                // The first end of a session whose worker died is no error: there is nothing left.
                state.lost = false;
                let late = state.late_release.take().and_then(|mut answer| answer.try_recv().ok());
                return Ok(match late {
                    Some(Ok(reply)) if refusal(&reply.data).is_none() => self.let_go_of(&reply.data),
                    _ => self.ended("closed"),
                });
            }
            // An engine that cannot be called off is not asked twice.
            if state.phase == Phase::KernelUnresolved && self.controls_kernel {
                return Ok(self.preserved());
            }
            if !state.phase.live() {
                return Err(self.stale(&state));
            }
            if state.ending {
                let message = format!("session {} is being ended already", self.id);
                return Err(ToolError::new(Category::StaleSession, message).about(&self.id));
            }
            state.ending = true;
        }
        let batch = self.announce().await;
        let grace = self.shared.config.release_grace;
        let ended = if self.remote_kernel {
            self.release_kernel(grace, batch, "ended on request").await
        } else {
            self.release(grace, batch).await
        };
        self.tell_end(ended.released, ended.worker_terminated, ended.waited_ms);
        Ok(ended)
    }

    pub(crate) fn tell_end(&self, released: bool, worker_terminated: bool, waited_ms: Option<u64>) {
        let session = self.id.clone();
        self.record(Event::SessionEnd { session, released, worker_terminated, waited_ms });
    }

    /// Says that the session is to end before it is: a batch that runs stops at its next step and
    /// cleans up, one that waits does not begin. How long the running one may still take, which is
    /// never longer than its caller was ready to wait.
    pub(crate) async fn announce(&self) -> Duration {
        let Ok(answered) = self.control(Op::Abandon, Gate::Supervisor) else { return Duration::ZERO };
        let answer = tokio::time::timeout(ANNOUNCED, answered).await;
        let within = match answer {
            Ok(Ok(Ok(reply))) => reply.data.get("within_ms").and_then(serde_json::Value::as_u64),
            _ => None,
        };
        let within = Duration::from_millis(within.unwrap_or(0)).min(self.shared.config.call_timeout);
        if !within.is_zero() {
            tracing::info!(
                session = self.id,
                "batch abandoned: it has {} ms to clean up",
                within.as_millis()
            );
        }
        within
    }

    /// Waits for `event`: for a running batch `batch`, and `grace` from when that is over.
    async fn patiently<T>(
        &self,
        batch: Duration,
        grace: Duration,
        event: impl Future<Output = T>,
    ) -> Option<T> {
        tokio::pin!(event);
        if !batch.is_zero() {
            let mut over = self.rolled_back.subscribe();
            tokio::select! {
                biased;
                done = &mut event => return Some(done),
                _ = over.wait_for(|over| *over) => {}
                () = tokio::time::sleep(batch) => {}
            }
        }
        tokio::time::timeout(grace, event).await.ok()
    }

    pub(crate) fn ended(&self, ending: &str) -> Ended {
        Ended {
            session_id: self.id.clone(),
            ending: ending.to_owned(),
            released: false,
            worker_terminated: false,
            waited_ms: None,
            target_left_running: None,
            recovery_required: false,
        }
    }

    async fn release(&self, grace: Duration, batch: Duration) -> Ended {
        let began = Instant::now();
        let answer = match self.control(Op::End, Gate::Teardown) {
            Ok(answered) => self.patiently(batch, grace, answered).await,
            // It died or failed in between.
            Err(_) => return self.ended("closed"),
        };
        let released = match answer {
            Some(Ok(Ok(reply))) => reply.data,
            // The worker was lost while it released.
            Some(_) => {
                self.state().lost = false;
                return self.ended("closed");
            }
            None => return self.kill_for(began).await,
        };
        if let Some(failed) = released.get("failed") {
            tracing::warn!(session = self.id, %failed, "the release of the target failed");
        }
        self.let_exit(&released).await
    }

    async fn kill_for(&self, began: Instant) -> Ended {
        self.close("it did not let go of its target within the grace, so its process was killed");
        self.kill.cancel();
        self.exits_within(EXIT).await;
        let waited_ms = u64::try_from(began.elapsed().as_millis()).ok();
        Ended { worker_terminated: true, waited_ms, ..self.ended("killed") }
    }

    /// The target was let go of: so is the worker.
    async fn let_exit(&self, released: &serde_json::Value) -> Ended {
        self.hang_up.cancel();
        if !self.exits_within(EXIT).await {
            self.kill.cancel();
            self.exits_within(EXIT).await;
        }
        self.let_go_of(released)
    }

    fn let_go_of(&self, released: &serde_json::Value) -> Ended {
        Ended {
            released: true,
            target_left_running: released.get("target_left_running").and_then(serde_json::Value::as_bool),
            ..self.ended(released.get("ending").and_then(|v| v.as_str()).unwrap_or("closed"))
        }
    }

    /// The same of a kernel: its worker is not killed over a target that may stand, and the session is
    /// closed, because of `why`, only when the target was let go of. The native engine's may be asked
    /// again.
    pub(crate) async fn release_kernel(&self, grace: Duration, batch: Duration, why: &str) -> Ended {
        let began = Instant::now();
        // Nothing stands still for an attach that can be called off.
        let standing = self.controls_kernel || self.state().phase >= Phase::Open;
        let mut answered = match self.ask_release() {
            Ok(answered) => answered,
            Err(_) if self.is_unresolved() => return self.preserved(),
            Err(_) => return self.ended("closed"),
        };
        let refused = match self.patiently(batch, grace, &mut answered).await {
            Some(Ok(Ok(reply))) => match refusal(&reply.data) {
                None => {
                    self.close(why);
                    return self.let_exit(&reply.data).await;
                }
                Some(failed) => format!("its release was refused: {failed}"),
            },
            Some(Ok(Err(error))) => format!("its release was refused: {}", error.message),
            Some(Err(_)) => {
                self.state().lost = false;
                return self.ended("closed");
            }
            None if !standing => return self.kill_for(began).await,
            None => {
                self.state().late_release = Some(answered);
                format!("it did not let go of its target within {} s", grace.as_secs())
            }
        };
        self.keep_kernel(&refused);
        self.preserved()
    }

    /// The answer to a release that was asked for and is still to come, or to another.
    fn ask_release(&self) -> Result<oneshot::Receiver<Answer>, ToolError> {
        let late = self.state().late_release.take();
        match late.map(|mut answer| (answer.try_recv(), answer)) {
            Some((Err(oneshot::error::TryRecvError::Empty), answer)) => Ok(answer),
            Some((Ok(Ok(reply)), _)) if refusal(&reply.data).is_none() => {
                let (sender, answer) = oneshot::channel();
                let _ = sender.send(Ok(reply));
                Ok(answer)
            }
            Some(_) => self.control(Op::End, Gate::Supervisor),
            None if self.is_unresolved() && !self.controls_kernel => self.control(Op::End, Gate::Supervisor),
            None => self.control(Op::End, Gate::Teardown),
        }
    }

    fn close(&self, why: &str) {
        let mut state = self.state();
        self.advance(&mut state, Phase::Closed, Some(why));
    }

    /// Releases a claimed session in the background.
    pub(crate) fn release_later(self: Arc<Self>) {
        tokio::spawn(async move {
            let grace = self.shared.config.release_grace;
            if self.controls_kernel {
                let ended = self.release_kernel(grace, Duration::ZERO, "reclaimed for another session").await;
                self.tell_end(ended.released, ended.worker_terminated, None);
                return;
            }
            self.hang_up.cancel();
            let released = self.exits_within(grace).await;
            if !released {
                self.kill.cancel();
                self.exits_within(EXIT).await;
            }
            self.tell_end(released, !released, None);
        });
    }

    /// The server goes: close the channel, which makes the worker let go, and kill what has not
    /// gone within the shutdown grace, a running batch given its time before that.
    pub(crate) async fn let_go(&self) {
        if self.is_unresolved() || self.controls_kernel && self.state().phase.live() {
            return self.let_kernel_go().await;
        }
        let batch = self.announce().await;
        self.close("the server shut down");
        self.hang_up.cancel();
        let mut exited = self.exited.subscribe();
        let gone = async { exited.wait_for(|gone| *gone).await.is_ok() };
        let released = self.patiently(batch, self.shared.config.shutdown_grace, gone).await == Some(true);
        if !released {
            self.kill.cancel();
            self.exits_within(EXIT).await;
        }
        self.tell_end(released, !released, None);
    }
}

/// Why a release was refused by the engine.
fn refusal(released: &serde_json::Value) -> Option<&str> {
    released.get("failed").and_then(serde_json::Value::as_str)
}
