//! Opening: a slot, a worker, the opener's outcome; and reclaiming idle sessions for it (spec 10
//! sections 1.10 and 2).

use std::sync::Arc;
use std::time::Instant;

use channel::Op;
use tools::sessions::OpenedSession;
use tools::{Category, OpenReport, OpenRequest, ToolError};
use transcript::Event;

use crate::answer::NO_WORKER;
use crate::attend::attend;
use crate::call;
use crate::client::Client;
use crate::endpoint;
use crate::image;
use crate::image_header;
use crate::lock;
use crate::process;
use crate::scope::Scope;
use crate::session::{Ask, Birth, Effects, Gate, Phase, Session};

/// An admitted open; its place is given back when it is dropped.
struct Slot<'a>(&'a Client);

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        lock(&self.0.sessions).in_flight -= 1;
    }
}

/// Marks the opener's outcome as its caller's, also when that caller is gone.
struct HandedOut<'a>(&'a Session);

impl Drop for HandedOut<'_> {
    fn drop(&mut self) {
        self.0.hand_out();
    }
}

/// A handle nobody can guess by counting: 64 random bits.
pub(crate) fn handle(kind: &str) -> Result<String, ToolError> {
    let mut bytes = [0_u8; 8];
    getrandom::fill(&mut bytes).map_err(|error| {
        ToolError::new(Category::Internal, format!("the system gave no random bytes: {error}"))
    })?;
    Ok(format!("{kind}-{:016x}", u64::from_be_bytes(bytes)))
}

impl Client {
    /// Takes a slot. Reclaims nothing yet: a failed open must cost nothing.
    fn admit(&self) -> Result<Slot<'_>, ToolError> {
        let mut held = lock(&self.sessions);
        let limit = self.shared.config.sessions;
        let live: Vec<_> = held.all.iter().filter(|session| session.state().phase.live()).collect();
        let idle = live.iter().filter(|session| session.idle(&session.state())).count();
        let needed = (live.len() + held.in_flight + 1).saturating_sub(limit);
        if needed > idle {
            let mut rows: Vec<String> = live.iter().map(|session| describe(session)).collect();
            if held.in_flight > 0 {
                rows.push(format!("{} still opening", held.in_flight));
            }
            let message = format!(
                "all {limit} sessions are in use: {}. Wait for one, interrupt it or end it, then open again",
                rows.join("; ")
            );
            return Err(ToolError::new(Category::Capacity, message)
                .then(&["session_status", "end_session", "interrupt"])
                .with("target", "no"));
        }
        held.in_flight += 1;
        Ok(Slot(self))
    }

    /// Closes the idle sessions used longest ago until the client is within its limit, never the
    /// one just opened.
    pub(crate) fn reclaim(&self, just_opened: &str) {
        let held = lock(&self.sessions);
        loop {
            let staying = |session: &&Arc<Session>| {
                let state = session.state();
                state.phase.live() && !state.ending
            };
            let live = held.all.iter().filter(staying);
            if live.count() <= self.shared.config.sessions {
                return;
            }
            let idle = held.all.iter().filter(|session| session.id != just_opened);
            let idle = idle.filter(|session| session.idle(&session.state()));
            let Some(victim) = idle.min_by_key(|session| session.state().last_used) else { return };
            {
                let mut state = victim.state();
                // A call may have come in between.
                if !victim.idle(&state) {
                    continue;
                }
                state.ending = true;
                // A kernel is closed when it was let go of.
                if victim.controls_kernel {
                    drop(state);
                    Arc::clone(victim).release_later();
                    continue;
                }
                let why = format!("reclaimed: it was idle and session {just_opened} needed its place");
                victim.advance(&mut state, Phase::Closed, Some(&why));
            }
            Arc::clone(victim).release_later();
        }
    }
}

fn describe(session: &Session) -> String {
    let row = session.row(false);
    let doing = match (row.busy, row.execution) {
        (Some(busy), _) => format!("busy with {}", busy.tool),
        (None, Some(run)) if !run.stopped => format!("running as {}", run.execution),
        _ => "idle".to_owned(),
    };
    format!("{} ({}, {}, {doing})", row.session_id, row.kind.as_deref().unwrap_or("opening"), row.target)
}

impl Scope {
    /// Opens a target, or goes on waiting for the same open whose caller gave up.
    pub(crate) async fn open_target(&self, request: OpenRequest) -> Result<OpenedSession, ToolError> {
        let value = serde_json::to_value(&request).map_err(|error| {
            ToolError::new(Category::Internal, format!("the request did not serialise: {error}"))
        })?;
        let key = call::key("open", &value);
        let joined = self.client.live().into_iter().find_map(|session| {
            let call = session.join(&key, &self.milestones)?;
            Some((session, call))
        });
        let (session, call) = match joined {
            Some((session, call)) => {
                self.routed.note(&session.id);
                (session, call)
            }
            None => {
                let session = self.begin(&request).await?;
                let value = if session.under_wine { absolute(request)? } else { value };
                let call = session.submit(Ask {
                    name: self.tool.clone(),
                    key,
                    op: Op::Open { request: value },
                    gate: Gate::Supervisor,
                    deadline: self.deadline,
                    effects: Effects::default(),
                    milestones: self.milestones.clone(),
                    request: self.routed.request(),
                })?;
                (session, call)
            }
        };
        // However this ends, from then on the session may be reclaimed.
        let _handed = HandedOut(&session);
        let reply = self.wait(&session, &call).await;
        let reply = reply.map_err(|error| outcome(error, &session, call.peek().is_some()))?;
        let mut report: OpenReport = serde_json::from_value(reply.data).map_err(|error| {
            ToolError::new(Category::Internal, format!("the worker's report of the target: {error}"))
                .about(&session.id)
                .with("target", "yes")
        })?;
        report.engine_reason = session.engine_reason();
        report.summary.limit(session.limitation.as_deref());
        Ok(OpenedSession { session_id: session.id.clone(), report })
    }

    /// A worker and its session, registered and listening.
    async fn begin(&self, request: &OpenRequest) -> Result<Arc<Session>, ToolError> {
        let client = &self.client;
        let slot = client.admit()?;
        let id = handle("sess")?;
        let choice = image::choose(&client.shared.config, request)?;
        let reservation = endpoint::reserve(&client.shared, request)?;
        let remote_kernel = reservation.is_some();
        let no_worker = |failure: process::NotStarted| {
            if failure.no_engine {
                return image::unavailable(&failure.why);
            }
            ToolError::new(Category::Internal, failure.why).because(NO_WORKER).with("target", "no")
        };
        let started = process::start_first(&client.shared, &id, &choice.images, remote_kernel).await;
        let (worker, image, failures) = started.map_err(no_worker)?;
        let pid = worker.pid;
        let notes: Vec<String> = choice.limitation.iter().cloned().chain(failures).collect();
        let (session, outgoing) = Session::new(Birth {
            id,
            aim: request.aim().to_owned(),
            pid,
            engine: worker.engine,
            engine_reason: image.reason.clone(),
            limitation: (!notes.is_empty()).then(|| notes.join("; ")),
            under_wine: image.under_wine,
            remote_kernel,
            reservation,
            shared: Arc::clone(&client.shared),
            client: Arc::downgrade(client),
            last_words: worker.last_words,
        });
        {
            let mut held = lock(&client.sessions);
            if client.shared.closing() {
                // Dropping the child kills it; it holds nothing.
                return Err(
                    ToolError::new(Category::Capacity, "the server is shutting down").with("target", "no")
                );
            }
            held.all.push(Arc::clone(&session));
            held.forget(client.shared.config.history);
        }
        self.routed.note(&session.id);
        session.record(Event::SessionOpen {
            session: session.id.clone(),
            kind: kind(request).to_owned(),
            target: session.shared.told(&session.aim),
            engine: session.engine(),
            engine_pid: pid,
        });
        attend(&session, worker.child, worker.input, worker.output, outgoing);
        #[cfg(unix)]
        if let Some(prefix) = &image.prefix {
            tokio::spawn(crate::wine_server::watch(Arc::clone(&session), prefix.clone()));
        }
        drop(slot);
        self.milestones.say(format!("engine worker started (pid {pid}); opening the target"));
        Ok(session)
    }
}

/// What is being opened, as far as it is known before it is open.
fn kind(request: &OpenRequest) -> &'static str {
    match request {
        OpenRequest::Dump { path, .. } if image_header::is_image(std::path::Path::new(path)) => "image",
        OpenRequest::Dump { path, .. } if path.to_ascii_lowercase().ends_with(".run") => "trace",
        OpenRequest::Dump { .. } => "dump",
        OpenRequest::Launch(_) => "launch",
        OpenRequest::Attach(_) => "process",
        OpenRequest::Kernel(_) => "kernel",
        OpenRequest::Scripted { .. } => "scripted",
    }
}

/// The request with paths that mean the same in another process's eyes.
fn absolute(mut request: OpenRequest) -> Result<serde_json::Value, ToolError> {
    if let Some(path) = request.file_mut()
        && let Ok(absolute) = std::path::absolute(&*path)
    {
        *path = absolute.to_string_lossy().into_owned();
    }
    serde_json::to_value(&request).map_err(|error| {
        ToolError::new(Category::Internal, format!("the request did not serialise: {error}"))
    })
}

/// The error of a failed open, saying what exists now.
fn outcome(error: ToolError, session: &Session, answered: bool) -> ToolError {
    let state = session.state();
    let unresolved = state.phase == Phase::KernelUnresolved;
    let error = if unresolved { session.recovery(&state) } else { error };
    let target = match error.category {
        Category::RecoveryRequired if !answered => "pending",
        Category::Timeout if state.phase.live() => "pending",
        Category::WorkerLost => "no",
        _ if state.phase.live() && state.committed => "yes",
        _ => "no",
    };
    drop(state);
    let mut error = error.with("target", target);
    // The handle is given only when it reaches something.
    error.session_id = (target != "no").then(|| session.id.clone());
    if target == "yes" && !unresolved {
        error.message.push_str(&format!(
            ". The target exists in session {}: use it or end it, do not open it again",
            session.id
        ));
        error.next = vec!["end_session".to_owned(), "session_status".to_owned()];
    }
    error
}

impl crate::client::Held {
    /// Drops the oldest closed sessions past `history`; what still releases is never forgotten.
    pub(crate) fn forget(&mut self, history: usize) {
        let gone = |session: &Arc<Session>| !session.state().phase.live() && session.has_exited();
        let mut excess = self.all.iter().filter(|session| gone(session)).count().saturating_sub(history);
        self.all.retain(|session| {
            let drop_it = excess > 0 && gone(session);
            excess -= usize::from(drop_it);
            !drop_it
        });
    }
}

/// The moment a call that begins now must have its answer.
pub(crate) fn deadline(client: &Client) -> Instant {
    let now = Instant::now();
    now.checked_add(client.shared.config.call_timeout).unwrap_or(now)
}
