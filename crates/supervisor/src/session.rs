//! A session: its state machine, its unanswered calls, the gate in front of its worker.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};

use channel::{Message, OPEN_ID, Op, Outcome};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tools::sessions::{BusyRow, SessionRow};
use tools::{Category, ToolError};
use transcript::Event;

use crate::call::{Answer, Call, Reply};
use crate::client::Client;
use crate::endpoint::Reservation;
use crate::progress::Milestones;
use crate::stderr::LastWords;
use crate::{Shared, lock};

mod kernel;
mod phase;
mod run;

pub(crate) use phase::Phase;
pub(crate) use run::COMMAND;

/// How a call came to its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gate {
    /// By handle.
    Named,
    /// As the current session.
    Default,
    Teardown,
    /// The supervisor's own.
    Supervisor,
}

/// A request on its way to the writer.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) id: u64,
    pub(crate) op: Op,
    pub(crate) gate: Gate,
    pub(crate) deadline: Option<Instant>,
    /// Writing it retires the handle.
    pub(crate) retires: bool,
}

/// What a call may do beyond answering.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Effects {
    /// Replace the target: the handle is retired.
    pub(crate) retires: bool,
    /// Let the target move, or change it.
    pub(crate) moves: bool,
}

/// A call to be queued.
pub(crate) struct Ask {
    pub(crate) name: String,
    pub(crate) key: String,
    pub(crate) op: Op,
    pub(crate) gate: Gate,
    pub(crate) deadline: Instant,
    pub(crate) effects: Effects,
    pub(crate) milestones: Milestones,
    /// Its number in the transcript, 0 without.
    pub(crate) request: u64,
}

/// Unanswered calls a session takes.
const CALLS: usize = 256;
/// Answers of abandoned calls kept for collection.
const KEPT: usize = 8;

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) phase: Phase,
    since: Instant,
    why: Option<String>,
    kind: Option<String>,
    engine: String,
    engine_reason: String,
    /// The opener's target exists or is claimed.
    pub(crate) committed: bool,
    calls: BTreeMap<u64, Arc<Call>>,
    controls: HashMap<u64, oneshot::Sender<Answer>>,
    /// Calls nobody waits for any more.
    abandoned: HashSet<u64>,
    kept: VecDeque<(Arc<Call>, Instant)>,
    next_id: u64,
    pub(crate) last_used: Instant,
    target_gone: bool,
    /// The target can be run.
    runs: bool,
    run: Option<run::Slot>,
    /// Somebody is releasing it.
    pub(crate) ending: bool,
    /// Its worker died; told once by `end_session`.
    pub(crate) lost: bool,
    /// The opener's outcome reached its caller.
    handed_out: bool,
    /// Its release is on its way to the worker: nothing more is asked of it.
    pub(crate) releasing: bool,
    /// Its worker is being ended on request, its target as it is.
    handed_off: bool,
    /// The answer to a release that took longer than its grace.
    pub(crate) late_release: Option<oneshot::Receiver<Answer>>,
}

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: String,
    pub(crate) aim: String,
    pub(crate) pid: u32,
    created: Instant,
    pub(crate) shared: Arc<Shared>,
    pub(crate) client: Weak<Client>,
    pub(crate) last_words: Arc<LastWords>,
    pub(crate) limitation: Option<String>,
    pub(crate) under_wine: bool,
    /// It controls a remote kernel that only a release lets go of ([`kernel`]).
    pub(crate) controls_kernel: bool,
    pub(crate) remote_kernel: bool,
    /// Its endpoint, until the worker's process is gone.
    pub(crate) reservation: Mutex<Option<Reservation>>,
    to_worker: mpsc::UnboundedSender<Outgoing>,
    state: Mutex<State>,
    /// Ends the writer and with it the request channel.
    pub(crate) hang_up: CancellationToken,
    pub(crate) kill: CancellationToken,
    /// The worker process was reaped.
    pub(crate) exited: watch::Sender<bool>,
    /// The batch a teardown was told to wait for is over.
    pub(crate) rolled_back: watch::Sender<bool>,
}

/// What a new session is made of.
pub(crate) struct Birth {
    pub(crate) id: String,
    pub(crate) aim: String,
    pub(crate) pid: u32,
    pub(crate) engine: String,
    /// Why that engine, in a clause; the opener's report may say more.
    pub(crate) engine_reason: String,
    /// What a caller should know of the engine that serves instead of the first choice.
    pub(crate) limitation: Option<String>,
    /// Its worker sees this machine's files on Wine's drive Z.
    pub(crate) under_wine: bool,
    /// It attaches to a kernel on another machine.
    pub(crate) remote_kernel: bool,
    pub(crate) reservation: Option<Reservation>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) client: Weak<Client>,
    pub(crate) last_words: Arc<LastWords>,
}

impl Session {
    pub(crate) fn new(birth: Birth) -> (Arc<Self>, mpsc::UnboundedReceiver<Outgoing>) {
        let (to_worker, outgoing) = mpsc::unbounded_channel();
        let now = Instant::now();
        // The native engine's waits end when they are told to.
        let controls_kernel = birth.remote_kernel && birth.engine != "native";
        let state = State {
            phase: Phase::Opening,
            since: now,
            why: None,
            kind: birth.remote_kernel.then(|| "kernel".to_owned()),
            engine: birth.engine,
            engine_reason: birth.engine_reason,
            committed: false,
            calls: BTreeMap::new(),
            controls: HashMap::new(),
            abandoned: HashSet::new(),
            kept: VecDeque::new(),
            next_id: OPEN_ID + 1,
            last_used: now,
            target_gone: false,
            runs: false,
            run: None,
            ending: false,
            lost: false,
            handed_out: false,
            releasing: false,
            handed_off: false,
            late_release: None,
        };
        let session = Self {
            id: birth.id,
            aim: birth.aim,
            pid: birth.pid,
            created: now,
            shared: birth.shared,
            client: birth.client,
            last_words: birth.last_words,
            limitation: birth.limitation,
            under_wine: birth.under_wine,
            controls_kernel,
            remote_kernel: birth.remote_kernel,
            reservation: Mutex::new(birth.reservation),
            to_worker,
            state: Mutex::new(state),
            hang_up: CancellationToken::new(),
            kill: CancellationToken::new(),
            exited: watch::Sender::new(false),
            rolled_back: watch::Sender::new(false),
        };
        (Arc::new(session), outgoing)
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Moves on to `phase`, never back; every transition is one log line.
    pub(crate) fn advance(&self, state: &mut State, phase: Phase, why: Option<&str>) {
        if phase <= state.phase {
            return;
        }
        let because = why.map(|why| format!(": {why}")).unwrap_or_default();
        tracing::info!("{} ({}) is {}, was {}{because}", self.id, self.aim, phase.name(), state.phase.name());
        state.phase = phase;
        state.since = Instant::now();
        state.why = why.map(ToOwned::to_owned);
        let detail = why.map(|why| self.shared.told(why));
        self.record(Event::SessionState { session: self.id.clone(), state: phase.name().to_owned(), detail });
    }

    /// Why a call that came by `gate` may not run now.
    pub(crate) fn refusal(&self, state: &State, gate: Gate) -> Option<ToolError> {
        if state.phase == Phase::KernelUnresolved && gate != Gate::Supervisor {
            return Some(self.recovery(state));
        }
        if state.releasing && matches!(gate, Gate::Named | Gate::Default) {
            let message = format!("session {} is being ended", self.id);
            return Some(ToolError::new(Category::StaleSession, message).about(&self.id));
        }
        let admitted = match (gate, state.phase) {
            (Gate::Supervisor, _) => true,
            (_, Phase::Failed | Phase::Closed) | (Gate::Named, Phase::Retired) => false,
            (_, _) => true,
        };
        (!admitted).then(|| self.stale(state))
    }

    /// What became of a handle that no longer works.
    pub(crate) fn stale(&self, state: &State) -> ToolError {
        let ago = state.since.elapsed().as_secs();
        let why = state.why.as_deref().unwrap_or("no reason recorded");
        let message = match state.phase {
            Phase::Retired => format!(
                "session {} was retired {ago} s ago: {why}. Omit session_id to reach what the engine holds now, \
                 or end the session and open again",
                self.id
            ),
            phase => format!(
                "session {} {} {ago} s ago: {why}. Open the target again",
                self.id,
                match phase {
                    Phase::Failed => "failed to open",
                    _ => "was closed",
                }
            ),
        };
        ToolError::new(Category::StaleSession, message).about(&self.id).then(&["open_dump", "session_status"])
    }

    /// Queues a call: state check, queue place and waiter in one step.
    pub(crate) fn submit(&self, ask: Ask) -> Result<Arc<Call>, ToolError> {
        let mut state = self.state();
        if let Some(refusal) = self.refusal(&state, ask.gate).or_else(|| self.running_refusal(&state)) {
            return Err(refusal);
        }
        if ask.effects.moves && state.runs {
            state.forget_readings();
        }
        if state.calls.len() >= CALLS {
            let message =
                format!("{CALLS} calls wait on session {} already; wait for their answers", self.id);
            return Err(ToolError::new(Category::Capacity, message).about(&self.id));
        }
        let id = if matches!(ask.op, Op::Open { .. }) { OPEN_ID } else { state.next_id };
        state.next_id += 1;
        let call = Arc::new(
            Call::new(id, &ask.name, ask.key, ask.milestones).moving(ask.effects.moves).asked_as(ask.request),
        );
        state.calls.insert(id, Arc::clone(&call));
        state.last_used = Instant::now();
        let deadline = Some(ask.deadline);
        self.send(Outgoing { id, op: ask.op, gate: ask.gate, deadline, retires: ask.effects.retires });
        Ok(call)
    }

    /// Queues something only the supervisor answers to; never makes the session busy.
    pub(crate) fn control(&self, op: Op, gate: Gate) -> Result<oneshot::Receiver<Answer>, ToolError> {
        let mut state = self.state();
        if let Some(refusal) = self.refusal(&state, gate) {
            return Err(refusal);
        }
        let id = state.next_id;
        state.next_id += 1;
        let (answer, answered) = oneshot::channel();
        state.controls.insert(id, answer);
        self.send(Outgoing { id, op, gate, deadline: None, retires: false });
        Ok(answered)
    }

    fn send(&self, outgoing: Outgoing) {
        // Without a writer the worker is gone, and its loss answers every waiter.
        let _ = self.to_worker.send(outgoing);
    }

    /// The call `key` that was abandoned, running or answered: now the caller's.
    pub(crate) fn join(&self, key: &str, milestones: &Milestones) -> Option<Arc<Call>> {
        let mut state = self.state();
        if state.phase == Phase::KernelUnresolved {
            return None;
        }
        let running = state.calls.values().find(|call| call.key == key && state.abandoned.contains(&call.id));
        if let Some(call) = running.cloned() {
            state.abandoned.remove(&call.id);
            state.last_used = Instant::now();
            call.heard_by(milestones.clone());
            return Some(call);
        }
        let fresh = self.shared.config.kept_for;
        state.kept.retain(|(_, at)| at.elapsed() < fresh);
        let at = state.kept.iter().position(|(call, _)| call.key == key)?;
        state.kept.remove(at).map(|(call, _)| call)
    }

    /// Nobody waits for `call` any more. `false` when its answer had come already, unread.
    pub(crate) fn abandon(&self, call: &Arc<Call>) -> bool {
        let mut state = self.state();
        let unanswered = state.calls.contains_key(&call.id);
        if unanswered {
            call.heard_by(Milestones::none());
            state.abandoned.insert(call.id);
        } else {
            Self::keep(&mut state, Arc::clone(call));
        }
        unanswered
    }

    /// Keeps an answer nobody took. A job that was never begun has none: the same call begins it.
    fn keep(state: &mut State, call: Arc<Call>) {
        let unbegun = |answer: &Answer| matches!(answer, Err(error) if error.category == Category::NotRun);
        if !state.phase.live() || call.peek().is_none_or(|answer| unbegun(&answer)) {
            return;
        }
        if state.kept.len() == KEPT {
            state.kept.pop_front();
        }
        state.kept.push_back((call, Instant::now()));
    }

    pub(crate) fn hand_out(&self) {
        let mut state = self.state();
        state.handed_out = true;
        state.last_used = Instant::now();
    }

    /// Acts on a worker's message.
    pub(crate) fn dispatch(&self, message: Message) {
        match message {
            Message::Committed { .. } => {
                let mut state = self.state();
                state.committed = true;
                self.advance(&mut state, Phase::Attaching, None);
                Self::milestone(&state, OPEN_ID, "the target exists; loading it");
            }
            Message::Opened { .. } => {
                let mut state = self.state();
                self.advance(&mut state, Phase::Open, None);
                Self::milestone(&state, OPEN_ID, "the target is loaded");
            }
            Message::Resumed { id } => {
                let mut state = self.state();
                match state.run_of(id) {
                    Some(slot) => slot.moving(),
                    None => Self::milestone(&state, id, "the target is running"),
                }
            }
            Message::Progress { id, text } => Self::milestone(&self.state(), id, &text),
            Message::Log(line) => {
                let log = &self.shared.log;
                if line.dropped > 0 {
                    let text = format!("{} records of this worker were dropped", line.dropped);
                    log.push(line.at_ms, "warn", Some(&self.id), "worker", &text);
                }
                log.push(line.at_ms, &line.level, Some(&self.id), &line.target, &line.text);
            }
            Message::Done { id, result } => self.done(id, result),
            Message::RollingBack { within_ms, .. } => {
                if within_ms == 0 {
                    self.rolled_back.send_replace(true);
                }
            }
            Message::Ready { .. } | Message::Fatal { .. } => {}
        }
    }

    fn milestone(state: &State, id: u64, text: &str) {
        if let Some(call) = state.calls.get(&id) {
            call.say(text);
        }
    }

    fn done(&self, id: u64, result: Outcome) {
        let answer = match result {
            Outcome::Ok { data, interrupted } => Ok(Reply { data, interrupted }),
            Outcome::Err { error } => Err(serde_json::from_value::<ToolError>(error)
                .unwrap_or_else(|e| ToolError::new(Category::Internal, format!("the worker's error: {e}")))),
        };
        let mut state = self.state();
        if let Some(control) = state.controls.remove(&id) {
            // Whoever asked may have stopped waiting.
            let _ = control.send(answer);
            return;
        }
        if matches!(&answer, Ok(reply) if run::is_gone(&reply.data)) {
            state.target_gone = true;
        }
        if let Some(slot) = state.run_of(id) {
            // Filed whether or not anyone waits; a run longer than idle sessions are kept counts as use.
            slot.file(answer);
            state.last_used = Instant::now();
            return;
        }
        let Some(call) = state.calls.remove(&id) else { return };
        if id == OPEN_ID {
            self.settle(&mut state, &answer);
        }
        if matches!(&answer, Err(error) if error.category == Category::StaleSession) {
            state.target_gone = true;
        }
        call.finish(answer);
        if state.abandoned.remove(&id) {
            self.record_unheard(&call);
            Self::keep(&mut state, call);
        }
    }

    /// The opener is done: what the session is from now on (spec 10 section 2's table).
    fn settle(&self, state: &mut State, answer: &Answer) {
        match answer {
            Ok(reply) => {
                let text =
                    |field: &str| reply.data.get(field).and_then(|v| v.as_str()).map(ToOwned::to_owned);
                state.kind = text("kind");
                let can = reply.data.pointer("/summary/can").and_then(|can| can.as_array());
                state.runs = can.is_some_and(|can| can.iter().any(|ability| ability == "run"));
                if let Some(engine) = text("engine") {
                    state.engine = engine;
                }
                if let Some(more) = text("engine_reason").filter(|more| !more.is_empty()) {
                    let why = &mut state.engine_reason;
                    *why = if why.is_empty() { more } else { format!("{why}; {more}") };
                }
                self.advance(state, Phase::Open, None);
            }
            Err(error) if state.committed && self.controls_kernel => {
                self.unresolve_in(state, &format!("the attach came to no stop: {}", error.message));
            }
            Err(error) if state.committed => self.advance(state, Phase::Open, Some(&error.message)),
            Err(error) => {
                self.advance(state, Phase::Failed, Some(&error.message));
                // Nothing was taken.
                drop(lock(&self.reservation).take());
                self.hang_up.cancel();
            }
        }
        if let (true, Some(client)) = (state.phase.live(), self.client.upgrade()) {
            let id = self.id.clone();
            tokio::spawn(async move { client.reclaim(&id) });
        }
    }

    /// The worker is gone: every waiter learns it, the session is closed.
    pub(crate) fn lose(&self, how: &str, memory: bool) {
        let mut state = self.state();
        if state.handed_off {
            let why = "handed off on request: its engine process was ended, its target as it was";
            self.advance(&mut state, Phase::Closed, Some(why));
        }
        if state.phase.live() {
            state.lost = true;
            self.record(Event::WorkerLost { session: self.id.clone(), detail: self.shared.told(how) });
            self.advance(&mut state, Phase::Closed, Some(&format!("worker lost: {how}")));
        }
        let calls = std::mem::take(&mut state.calls);
        state.abandoned.clear();
        state.kept.clear();
        for call in calls.into_values() {
            let doing = if call.id == OPEN_ID { "opening the target".to_owned() } else { call.name.clone() };
            call.finish(Err(self.lost_during(&doing, how, memory)));
        }
        if let Some(slot) = state.run.as_mut() {
            slot.file(Err(self.lost_during("a run", how, memory)));
        }
        // Their receivers see the end.
        state.controls.clear();
    }

    fn lost_during(&self, doing: &str, how: &str, memory: bool) -> ToolError {
        let then = if self.controls_kernel {
            "the kernel it controlled may be halted: look at it from outside first"
        } else {
            "open the target again"
        };
        let message = format!(
            "the engine process of session {} (pid {}) was lost during {doing}: {how}. The session is closed, other \
             sessions are not affected; {then}",
            self.id, self.pid
        );
        let error =
            ToolError::new(Category::WorkerLost, message).about(&self.id).then(&["open_dump", "server_log"]);
        if memory { error.because("memory_bound") } else { error }
    }

    pub(crate) fn engine(&self) -> String {
        self.state().engine.clone()
    }

    /// Why its engine serves it.
    pub(crate) fn engine_reason(&self) -> String {
        self.state().engine_reason.clone()
    }

    /// Neither asked, nor running, nor being opened or released.
    pub(crate) fn idle(&self, state: &State) -> bool {
        let resolved = state.phase.live() && state.phase != Phase::KernelUnresolved;
        resolved && !state.ending && state.calls.is_empty() && !state.running() && state.handed_out
    }

    pub(crate) fn has_exited(&self) -> bool {
        *self.exited.borrow()
    }

    /// Waits until the worker was reaped; `false` when it was not within `limit`.
    pub(crate) async fn exits_within(&self, limit: Duration) -> bool {
        let mut exited = self.exited.subscribe();
        tokio::time::timeout(limit, exited.wait_for(|gone| *gone)).await.is_ok()
    }

    /// The row of `session_status`.
    pub(crate) fn row(&self, current: bool) -> SessionRow {
        let state = self.state();
        let milliseconds = |at: Instant| u64::try_from(at.elapsed().as_millis()).unwrap_or(u64::MAX);
        let unfinished = matches!(state.phase, Phase::Opening | Phase::Attaching);
        SessionRow {
            session_id: self.id.clone(),
            kind: state.kind.clone(),
            engine: state.engine.clone(),
            engine_reason: Some(state.engine_reason.clone()).filter(|reason| !reason.is_empty()),
            target: self.aim.clone(),
            engine_pid: Some(self.pid),
            state: state.phase.name().to_owned(),
            why: state.why.clone(),
            waits_indefinitely: unfinished && self.remote_kernel,
            interruptible: unfinished && self.remote_kernel && !self.controls_kernel,
            overdue: unfinished && state.since.elapsed() >= self.shared.config.overdue,
            in_state_for_ms: milliseconds(state.since),
            age_ms: milliseconds(self.created),
            current,
            live: state.phase.live(),
            busy: state.calls.values().next().map(|oldest| BusyRow {
                tool: oldest.name.clone(),
                running_for_ms: milliseconds(oldest.since),
                queued: u32::try_from(state.calls.len() - 1).unwrap_or(u32::MAX),
            }),
            execution: state.run.as_ref().map(run::Slot::row),
            target_gone: state.target_gone,
        }
    }
}
