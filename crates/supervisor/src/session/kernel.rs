//! Sessions that control a remote kernel through an engine that cannot be called off (spec 10 section
//! 1.9). Ending such a process neither resumes nor releases its target, so one whose target is in an
//! unknown state is kept: its worker, its slot and its endpoint, until somebody who looked at the target
//! from outside gives it up by name.

use std::sync::Arc;
use std::time::Duration;

use channel::Op;
use tools::sessions::Ended;
use tools::{Category, ToolError};

use super::{Gate, Outgoing, Phase, Session, State};

/// The worker's reader answers at once.
const TOLD: Duration = Duration::from_secs(2);

impl Session {
    /// What the target does is not known any more; nothing that comes later undoes it.
    pub(crate) fn unresolve(&self, why: &str) {
        let mut state = self.state();
        self.unresolve_in(&mut state, why);
    }

    pub(super) fn unresolve_in(&self, state: &mut State, why: &str) {
        if self.controls_kernel {
            self.keep_kernel_in(state, why);
        }
    }

    /// A remote kernel whose release failed stays with its worker, on either engine.
    pub(crate) fn keep_kernel(&self, why: &str) {
        let mut state = self.state();
        self.keep_kernel_in(&mut state, why);
    }

    fn keep_kernel_in(&self, state: &mut State, why: &str) {
        if !self.remote_kernel || !state.phase.live() {
            return;
        }
        (state.ending, state.releasing) = (false, false);
        if state.phase == Phase::KernelUnresolved {
            return;
        }
        self.advance(state, Phase::KernelUnresolved, Some(why));
        let id = state.next_id;
        state.next_id += 1;
        // Its answer matters to nobody but a shutdown, which asks again.
        self.send(Outgoing {
            id,
            op: Op::PreserveKernel,
            gate: Gate::Supervisor,
            deadline: None,
            retires: false,
        });
    }

    pub(crate) fn is_unresolved(&self) -> bool {
        self.state().phase == Phase::KernelUnresolved
    }

    /// Returns once the worker knows that it is to be kept.
    pub(crate) async fn preserve(&self) {
        if let Ok(told) = self.control(Op::PreserveKernel, Gate::Supervisor)
            && tokio::time::timeout(TOLD, told).await.is_err()
        {
            tracing::warn!(session = self.id, "the worker did not say that it keeps its kernel");
        }
    }

    /// The refusal of everything asked of it.
    pub(crate) fn recovery(&self, state: &State) -> ToolError {
        let why = state.why.as_deref().unwrap_or("its state is not known");
        let message = format!(
            "session {id} controls a remote kernel whose state is not known: {why}. Its engine process (pid {pid}) is \
             kept, because ending that would neither resume nor release the target. {retry}Look at the target from outside \
             and do not attach again; then end the session with that pid as kernel_handoff_pid",
            retry = if self.controls_kernel { "" } else { "end_session tries the release once more. " },
            id = self.id,
            pid = self.pid,
        );
        ToolError::new(Category::RecoveryRequired, message)
            .about(&self.id)
            .then(&["session_status", "end_session"])
    }

    /// Refuses what goes round the queue.
    pub(crate) fn check_resolved(&self) -> Result<(), ToolError> {
        let state = self.state();
        if state.phase == Phase::KernelUnresolved { Err(self.recovery(&state)) } else { Ok(()) }
    }

    /// The answer to an end of it: it is kept.
    pub(crate) fn preserved(&self) -> Ended {
        Ended { recovery_required: true, ..self.ended("preserved") }
    }

    /// Ends the worker, which must have the process id `pid`, without letting go of the target. Goes on
    /// when the caller stops waiting.
    pub(crate) async fn hand_off(self: Arc<Self>, pid: u32) -> Result<Ended, ToolError> {
        {
            let mut state = self.state();
            if !state.phase.live() {
                return Err(self.stale(&state));
            }
            if state.phase != Phase::KernelUnresolved {
                let message = format!(
                    "kernel_handoff_pid is for a session that is kernel_unresolved; {} is {}: end it without",
                    self.id,
                    state.phase.name()
                );
                return Err(ToolError::invalid(message).about(&self.id));
            }
            if pid != self.pid {
                let message = format!(
                    "kernel_handoff_pid is {pid}, which is not the engine process of session {}; its row in the \
                     status says engine_pid",
                    self.id
                );
                return Err(ToolError::invalid(message).about(&self.id).then(&["session_status"]));
            }
            state.handed_off = true;
        }
        let session = Arc::clone(&self);
        let ending = tokio::spawn(async move {
            session.kill.cancel();
            session.exits_within(session.shared.config.handoff_wait).await
        });
        match ending.await {
            Ok(true) => {
                Ok(Ended { worker_terminated: true, recovery_required: true, ..self.ended("handed_off") })
            }
            _ => {
                let mut error = self.recovery(&self.state());
                error.message = format!(
                    "the engine process {} was told to end and could not be seen gone; {}",
                    self.pid, error.message
                );
                Err(error)
            }
        }
    }

    /// The server goes: the kernel is let go of within the shutdown grace, or its worker is left to
    /// itself.
    pub(crate) async fn let_kernel_go(&self) {
        if !self.is_unresolved() {
            let batch = self.announce().await;
            let grace = self.shared.config.shutdown_grace;
            let ended = self.release_kernel(grace, batch, "the server shut down").await;
            self.tell_end(ended.released, ended.worker_terminated, None);
        }
        if self.is_unresolved() {
            self.preserve().await;
            tracing::error!(
                "session {} ({}): its kernel was not let go of; the engine process {} is left as it is",
                self.id,
                self.aim,
                self.pid
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::Birth;
    use crate::stderr::LastWords;
    use crate::{Config, Supervisor, endpoint};
    use tools::live_opening::KernelRequest;
    use tools::{EngineChoice, OpenRequest};

    /// A worker whose end nobody sees: it has no process here at all.
    #[tokio::test]
    async fn a_worker_that_is_not_seen_gone_keeps_its_endpoint() {
        let config = Config { handoff_wait: Duration::from_millis(50), ..Config::default() };
        let shared = Arc::clone(&Supervisor::new(config).shared);
        let request = OpenRequest::Kernel(KernelRequest {
            connection: connection_string::Connection::parse("com:ipport=1,port=h").unwrap(),
            engine: EngineChoice::Auto,
            symbol_path: None,
            image_path: None,
            network: false,
        });
        let (session, _outgoing) = Session::new(Birth {
            id: "sess-1".to_owned(),
            aim: request.aim(),
            pid: 7,
            engine: "dbgeng".to_owned(),
            engine_reason: String::new(),
            limitation: None,
            under_wine: false,
            remote_kernel: true,
            reservation: endpoint::reserve(&shared, &request).unwrap(),
            shared: Arc::clone(&shared),
            client: std::sync::Weak::new(),
            last_words: LastWords::none(),
        });
        session.unresolve("a test says so");
        let error = Arc::clone(&session).hand_off(7).await.unwrap_err();
        assert_eq!(error.category, Category::RecoveryRequired);
        assert!(error.message.contains("could not be seen gone"), "{}", error.message);
        assert!(session.is_unresolved());
        assert_eq!(endpoint::reserve(&shared, &request).unwrap_err().category, Category::Capacity);
    }
}
