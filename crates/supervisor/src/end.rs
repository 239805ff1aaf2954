//! Letting sessions go (spec 10 section 1.8).

use std::sync::Arc;
use std::time::{Duration, Instant};

use channel::Op;
use tools::sessions::Ended;
use tools::{Category, ToolError};

use crate::session::{Gate, Phase, Session};

/// A released worker has so long to exit by itself, a killed one to be reaped.
const EXIT: Duration = Duration::from_secs(2);

impl Session {
    /// Ends the session at its place in the queue: jobs ahead still run. Kills the worker when it
    /// has not let go within the grace.
    pub(crate) async fn end(&self) -> Result<Ended, ToolError> {
        {
            let mut state = self.state();
            if state.lost {
                // The first end of a session whose worker died is no error: there is nothing left.
                state.lost = false;
                return Ok(self.ended("closed"));
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
        Ok(self.release(self.shared.config.release_grace).await)
    }

    fn ended(&self, ending: &str) -> Ended {
        Ended {
            session_id: self.id.clone(),
            ending: ending.to_owned(),
            released: false,
            worker_terminated: false,
            waited_ms: None,
            target_left_running: None,
        }
    }

    async fn release(&self, grace: Duration) -> Ended {
        let began = Instant::now();
        let answer = match self.control(Op::End, Gate::Teardown) {
            Ok(answered) => tokio::time::timeout(grace, answered).await,
            // It died or failed in between.
            Err(_) => return self.ended("closed"),
        };
        let released = match answer {
            Ok(Ok(Ok(reply))) => reply.data,
            // The worker was lost while it released.
            Ok(_) => {
                self.state().lost = false;
                return self.ended("closed");
            }
            Err(_) => {
                self.close("it did not let go of its target within the grace, so its process was killed");
                self.kill.cancel();
                self.exits_within(EXIT).await;
                let waited_ms = u64::try_from(began.elapsed().as_millis()).ok();
                return Ended { worker_terminated: true, waited_ms, ..self.ended("killed") };
            }
        };
        if let Some(failed) = released.get("failed") {
            tracing::warn!(session = self.id, %failed, "the release of the target failed");
        }
        self.hang_up.cancel();
        if !self.exits_within(EXIT).await {
            self.kill.cancel();
            self.exits_within(EXIT).await;
        }
        Ended {
            released: true,
            target_left_running: released.get("target_left_running").and_then(serde_json::Value::as_bool),
            ..self.ended(released.get("ending").and_then(|v| v.as_str()).unwrap_or("closed"))
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
            self.hang_up.cancel();
            if !self.exits_within(grace).await {
                self.kill.cancel();
                self.exits_within(EXIT).await;
            }
        });
    }

    /// The server goes: close the channel, which makes the worker let go, and kill what has not
    /// gone within the shutdown grace.
    pub(crate) async fn let_go(&self) {
        self.close("the server shut down");
        self.hang_up.cancel();
        if !self.exits_within(self.shared.config.shutdown_grace).await {
            self.kill.cancel();
            self.exits_within(EXIT).await;
        }
    }
}
