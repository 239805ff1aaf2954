//! One call's view of its client's sessions: what [`tools::Sessions`] is implemented on.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use channel::Op;
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use tools::sessions::{
    BrokenIn, Ended, Interrupted, LogPage, LogQuery, OpenedSession, StartedRun, StatusPage, SymbolSettings,
    WaitedRun,
};
use tools::{Admission, Category, OpenRequest, Sessions, ToolError};
use transcript::Event;

use crate::call::{self, Answer, Call, Reply};
use crate::client::Client;
use crate::lock;
use crate::progress::Milestones;
use crate::recording::Routed;
use crate::session::{Ask, Effects, Gate, Phase, Session};

/// After its caller's time ran out, a queued job has so long to be taken back.
const TAKE_BACK: Duration = Duration::from_millis(500);

pub(crate) struct Scope {
    pub(crate) client: Arc<Client>,
    pub(crate) tool: String,
    pub(crate) milestones: Milestones,
    pub(crate) cancel: CancellationToken,
    pub(crate) deadline: Instant,
    pub(crate) routed: Routed,
}

/// Gives a call up when its caller stops waiting in any way.
struct Waiting<'a> {
    session: &'a Session,
    call: &'a Arc<Call>,
    answered: bool,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.answered {
            return;
        }
        if self.session.abandon(self.call) {
            // Takes it out of the queue if it has not begun; nobody waits for the outcome.
            let _ = self.session.control(Op::Cancel { job: self.call.id }, Gate::Supervisor);
        }
    }
}

impl Scope {
    /// The session a call names, or the current one.
    pub(crate) fn resolve(&self, named: Option<&str>) -> Result<(Arc<Session>, Gate), ToolError> {
        if let Some(id) = named {
            let shown: String = id.chars().take(64).collect();
            let session = self.client.named(id).ok_or_else(|| {
                let message = format!(
                    "no session is called {shown:?} here: it was never opened by this client, or ended long ago. \
                     Open the target again"
                );
                ToolError::new(Category::StaleSession, message).then(&["open_dump", "session_status"])
            })?;
            self.routed.note(&session.id);
            return Ok((session, Gate::Named));
        }
        let current = self.current();
        if let Some(session) = &current {
            self.routed.note(&session.id);
        }
        current.map(|session| (session, Gate::Default)).ok_or_else(|| {
            ToolError::new(Category::StaleSession, "no session is open; open a target first")
                .then(&["open_dump"])
        })
    }

    fn current(&self) -> Option<Arc<Session>> {
        self.client.live().into_iter().find(|session| {
            let state = session.state();
            !state.ending && state.phase != Phase::KernelUnresolved
        })
    }

    /// Queues an operation, or joins the same one whose caller gave up, and waits.
    async fn run_on(
        &self,
        session: Option<&str>,
        operation: &str,
        args: Value,
        effects: Effects,
    ) -> Result<(Arc<Session>, Reply), ToolError> {
        let (session, gate) = self.resolve(session)?;
        // Also of an answer that waits to be collected: it tells of before the run.
        session.check_stopped()?;
        let key = call::key(operation, &args);
        let call = match session.join(&key, &self.milestones) {
            Some(call) => call,
            None => session.submit(Ask {
                name: operation.to_owned(),
                key,
                op: Op::Run { operation: operation.to_owned(), args },
                gate,
                deadline: self.deadline,
                effects,
                milestones: self.milestones.clone(),
                request: self.routed.request(),
            })?,
        };
        match self.wait(&session, &call).await {
            Ok(reply) => Ok((session, reply)),
            Err(error) => Err(ToolError { session_id: Some(session.id.clone()), ..error }),
        }
    }

    /// Runs an admitted worker tool.
    pub(crate) async fn run_tool(&self, admission: Admission) -> Result<Reply, ToolError> {
        let named = admission.session_id.as_deref();
        let name = admission.entry.name;
        let effects = Effects { retires: admission.retires_handle, moves: !admission.entry.hints.read_only };
        self.run_on(named, name, admission.args, effects).await.map(|(_, reply)| reply)
    }

    /// Waits for an answer until the caller's time is out or it cancels. A job that has not begun
    /// is taken back; one that has goes on and can be collected.
    pub(crate) async fn wait(&self, session: &Session, call: &Arc<Call>) -> Answer {
        let mut waiting = Waiting { session, call, answered: false };
        tokio::select! {
            biased;
            answer = call.answer() => {
                waiting.answered = true;
                return answer;
            }
            () = self.cancel.cancelled() => {
                let message = format!("{} was cancelled by its caller; if it had begun, it goes on", self.tool);
                return Err(ToolError::new(Category::Timeout, message));
            }
            () = tokio::time::sleep_until(self.deadline.into()) => {}
        }
        // Dropped unread: its effect comes as the job's own answer.
        let _cancelling = session.control(Op::Cancel { job: call.id }, Gate::Supervisor);
        if let Ok(answer) = tokio::time::timeout(TAKE_BACK, call.answer()).await {
            waiting.answered = true;
            return answer;
        }
        Err(self.timed_out(session))
    }

    fn timed_out(&self, session: &Session) -> ToolError {
        let budget = self.client.shared.config.call_timeout;
        session.record(Event::CallTimeout {
            session: session.id.clone(),
            budget_ms: u64::try_from(budget.as_millis()).unwrap_or(u64::MAX),
        });
        if session.controls_kernel {
            session.unresolve(&format!("{} gave no answer within {} s", self.tool, budget.as_secs()));
            // It may have been closed meanwhile.
            if let Err(unresolved) = session.check_resolved() {
                return unresolved;
            }
        }
        let message = format!(
            "{tool} gave no answer within {seconds} s. It goes on in session {id} and was not cancelled. Make the \
             same call again to wait for it and collect its answer: it is not run twice. session_status shows \
             whether it still runs, interrupt cuts it short",
            tool = self.tool,
            seconds = budget.as_secs(),
            id = session.id,
        );
        ToolError::new(Category::Timeout, message).about(&session.id).then(&[
            &self.tool,
            "session_status",
            "interrupt",
        ])
    }
}

#[async_trait]
impl Sessions for Scope {
    async fn open(&self, request: OpenRequest) -> Result<OpenedSession, ToolError> {
        self.open_target(request).await
    }

    async fn operate(
        &self,
        session: Option<&str>,
        operation: &str,
        args: Value,
    ) -> Result<(String, Value), ToolError> {
        let (session, reply) = self.run_on(session, operation, args, Effects::default()).await?;
        Ok((session.id.clone(), reply.data))
    }

    async fn interrupt(&self, session: Option<&str>) -> Result<Interrupted, ToolError> {
        let (session, _) = self.resolve(session)?;
        let (outcome, job) = self.ask_interrupt(&session, None).await?;
        Ok(Interrupted { session_id: session.id.clone(), outcome, job })
    }

    async fn end(&self, session: Option<&str>) -> Result<Ended, ToolError> {
        let (session, _) = self.resolve(session)?;
        let ended = session.end().await;
        lock(&self.client.sessions).forget(self.client.shared.config.history);
        ended
    }

    async fn hand_off(&self, session: &str, pid: u32) -> Result<Ended, ToolError> {
        let (session, _) = self.resolve(Some(session))?;
        let ended = session.hand_off(pid).await;
        lock(&self.client.sessions).forget(self.client.shared.config.history);
        ended
    }

    async fn status(&self, session: Option<&str>) -> Result<StatusPage, ToolError> {
        let current = self.current().map(|session| session.id.clone());
        let row = |session: &Arc<Session>| session.row(current.as_deref() == Some(session.id.as_str()));
        let asked = session.map(|id| self.client.named(id));
        let sessions = match &asked {
            Some(found) => found.iter().map(row).collect(),
            None => self.client.live().iter().map(row).collect(),
        };
        Ok(StatusPage {
            sessions,
            max_sessions: u32::try_from(self.client.shared.config.sessions).unwrap_or(u32::MAX),
            unknown_handle: matches!(asked, Some(None)),
            redactions: self.client.shared.config.redactor.totals().redactions,
        })
    }

    async fn log(&self, query: LogQuery) -> Result<LogPage, ToolError> {
        Ok(self.client.shared.log.page(&query, &self.client.ids()))
    }

    async fn continue_async(
        &self,
        session: Option<&str>,
        max_run: Duration,
    ) -> Result<StartedRun, ToolError> {
        self.start_run(session, max_run).await
    }

    async fn wait_for_stop(
        &self,
        session: Option<&str>,
        execution: &str,
        timeout: Duration,
    ) -> Result<WaitedRun, ToolError> {
        self.wait_run(session, execution, timeout).await
    }

    async fn break_in(&self, session: Option<&str>, execution: &str) -> Result<BrokenIn, ToolError> {
        self.break_run(session, execution).await
    }

    async fn remember_symbols(&self, settings: Option<SymbolSettings>) {
        *lock(&self.client.symbols) = settings;
    }

    async fn remembered_symbols(&self) -> Option<SymbolSettings> {
        lock(&self.client.symbols).clone()
    }
}
