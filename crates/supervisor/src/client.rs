//! A client: the sessions it opened, and its calls.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use redaction::{Redactor, Shape};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;
use tools::sessions::SymbolSettings;
use tools::tool::Run;
use tools::{Admission, Category, Sessions, Surface, ToolError};

use crate::answer::{self, CallFailure, CallResult, NO_WORKER};
use crate::call::Reply;
use crate::egress::{self, Filtered};
use crate::open::deadline;
use crate::progress::{Milestones, ProgressSink, relay};
use crate::recording::{Recording, Routed};
use crate::scope::Scope;
use crate::session::Session;
use crate::{Shared, lock};

/// One client's sessions, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Held {
    pub(crate) all: Vec<Arc<Session>>,
    /// Opens that were admitted and have no session yet.
    pub(crate) in_flight: usize,
}

/// A client of the supervisor. State hangs on it, never on a transport's connection.
#[derive(Debug)]
pub struct Client {
    id: String,
    pub(crate) shared: Arc<Shared>,
    pub(crate) sessions: Mutex<Held>,
    pub(crate) symbols: Mutex<Option<SymbolSettings>>,
}

impl Client {
    pub(crate) fn new(id: &str, shared: Arc<Shared>) -> Self {
        Self { id: id.to_owned(), shared, sessions: Mutex::default(), symbols: Mutex::default() }
    }

    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Calls a tool: admission, run at its place, text and structure for `surface`. A refused or
    /// failed tool is an `Ok` whose `is_error` is set. When `cancel` fires or the future is
    /// dropped, only the wait ends: the job goes on, and the same call again collects it.
    ///
    /// # Errors
    /// [`CallFailure`]: what a transport answers as a protocol error.
    pub async fn call(
        self: &Arc<Self>,
        name: &str,
        args: Option<Map<String, Value>>,
        surface: &Surface,
        progress: Option<Arc<dyn ProgressSink>>,
        cancel: CancellationToken,
    ) -> Result<CallResult, CallFailure> {
        let recording = Recording::begin(&self.shared, &self.id, name, args.as_ref());
        let answered = self.answer(name, args, surface, progress, cancel, recording.routed()).await;
        recording.end(tools::find(name), &answered);
        answered
    }

    /// Everything it answers has passed the redactor.
    async fn answer(
        self: &Arc<Self>,
        name: &str,
        args: Option<Map<String, Value>>,
        surface: &Surface,
        progress: Option<Arc<dyn ProgressSink>>,
        cancel: CancellationToken,
        routed: Routed,
    ) -> Result<CallResult, CallFailure> {
        let redactor = self.redactor();
        let failed = |error: ToolError| Ok(CallResult::failure(error, surface, redactor));
        if let Some(error) = tools::catalogue::not_served(name, surface) {
            return failed(error);
        }
        let Some(entry) = tools::find(name) else {
            let names: Vec<&'static str> = surface.entries().map(|entry| entry.name).collect();
            let name: String = redactor.log_line(name).chars().take(64).collect();
            let near = tools::admit::nearest_few(&name, &names);
            return Err(CallFailure::UnknownTool { name, near });
        };
        if let Some(token) = args.as_ref().and_then(|args| redactor.token_in(args)) {
            return failed(stands_for_something(&token));
        }
        let admission = match tools::admit(entry, args) {
            Ok(admission) => admission,
            Err(error) => return failed(error),
        };
        let (client, interval) = (Arc::clone(self), self.shared.config.heartbeat);
        let progress = progress
            .map(|sink| Arc::new(Filtered { redactor: redactor.clone(), sink }) as Arc<dyn ProgressSink>);
        let scoped = |milestones| (client.scope(entry.name, milestones, cancel, routed), admission);
        let answer = relay(progress, interval, |milestones| {
            let (scope, admission) = scoped(milestones);
            run(scope, admission)
        })
        .await;
        let bound = self.shared.config.answer_bytes;
        let finished = answer
            .and_then(|reply| answer::finish(entry, reply.data, reply.interrupted, surface, bound, redactor));
        match finished {
            Ok(result) => Ok(result),
            Err(error) if error.reason.as_deref() == Some(NO_WORKER) => {
                Err(CallFailure::NoWorker(redactor.log_line(&error.message).into_owned()))
            }
            Err(error) => failed(error),
        }
    }

    /// What every message to this client passes; for whoever says something beside the tools.
    #[must_use]
    pub fn redactor(&self) -> &Redactor {
        &self.shared.config.redactor
    }

    /// The last 256 KiB of whole lines of this run's transcript, of this client's own records;
    /// `None` when no transcript is kept.
    #[must_use]
    pub fn transcript(&self) -> Option<String> {
        self.shared.config.transcript.as_ref().map(|recorder| recorder.recent(&self.id))
    }

    /// A value as it may leave, for an answer that is no tool's: fields are known by their names.
    #[must_use]
    pub fn redacted(&self, mut value: Value) -> Value {
        let counts = self.redactor().value(&mut value, &Shape::untyped());
        if let Value::Object(answer) = &mut value {
            egress::report(answer, &counts);
        }
        value
    }

    /// The client's sessions as tools see them, for one call that is no tool's (resources, tests);
    /// its call timeout runs from now.
    #[must_use]
    pub fn sessions(self: &Arc<Self>) -> Arc<dyn Sessions> {
        Arc::new(self.scope("call", Milestones::none(), CancellationToken::new(), Routed::default()))
    }

    fn scope(
        self: &Arc<Self>,
        tool: &str,
        milestones: Milestones,
        cancel: CancellationToken,
        routed: Routed,
    ) -> Scope {
        Scope {
            routed,
            client: Arc::clone(self),
            tool: tool.to_owned(),
            milestones,
            cancel,
            deadline: deadline(self),
        }
    }

    /// Sessions that are not closed, newest first.
    pub(crate) fn live(&self) -> Vec<Arc<Session>> {
        let held = lock(&self.sessions);
        held.all.iter().rev().filter(|session| session.state().phase.live()).cloned().collect()
    }

    /// Sessions whose process may still be there.
    pub(crate) fn held(&self) -> Vec<Arc<Session>> {
        lock(&self.sessions).all.iter().filter(|session| !session.has_exited()).cloned().collect()
    }

    /// Handles of every session remembered.
    pub(crate) fn ids(&self) -> HashSet<String> {
        lock(&self.sessions).all.iter().map(|session| session.id.clone()).collect()
    }

    pub(crate) fn named(&self, id: &str) -> Option<Arc<Session>> {
        lock(&self.sessions).all.iter().find(|session| session.id == id).cloned()
    }
}

/// The refusal of an argument with a token of the redaction filter in it.
fn stands_for_something(token: &str) -> ToolError {
    let message = format!(
        "{token} stands for a value that the redaction rules of this server keep back; it names nothing here. Use \
         what does not contain it: an address, a module, a session"
    );
    ToolError::invalid(message).because("redacted_value")
}

async fn run(scope: Scope, admission: Admission) -> Result<Reply, ToolError> {
    let whole = |data: Value| Reply { data, interrupted: false };
    match admission.entry.run {
        Run::Pure(run) => {
            let task = tokio::task::spawn_blocking(move || run(admission.args));
            joined(admission.entry.name, task.await).map(whole)
        }
        Run::Sessions(run) => {
            let scope = Arc::new(scope);
            // A task of its own, so that a panic in it is this call's only; ended with this call.
            let mut task = tokio::task::JoinSet::new();
            task.spawn(run(scope, admission.args));
            match task.join_next().await {
                Some(result) => joined(admission.entry.name, result).map(whole),
                None => Err(ToolError::new(Category::Internal, "the call vanished; please report it")),
            }
        }
        Run::Worker(_) => scope.run_tool(admission).await,
    }
}

fn joined<T>(
    name: &str,
    result: Result<Result<T, ToolError>, tokio::task::JoinError>,
) -> Result<T, ToolError> {
    result.unwrap_or_else(|error| {
        tracing::error!(tool = name, %error, "a tool broke in the supervisor");
        Err(ToolError::new(Category::Internal, format!("{name} broke: {error}; please report this")))
    })
}
