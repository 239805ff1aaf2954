//! One connected kernel: its state, and what becomes of packets nobody asked for.

use std::cell::{RefCell, RefMut};
use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use engine_native::live::{KernelStop, Origin, SLOTS, Slot};
use kd_api::{ControlRequest, DebugIo, FileReply, NO_SUCH_FILE, StateChange, StopReason};
use kd_transport::{ByteStream, TransportError};
use kd_wire::{Expect, Failure, HostEvent, PacketType};
use target::TargetError;

use crate::Options;
use crate::link::Link;
use crate::output::Output;
use crate::stops::{kernel_stop, same};

/// Answers to the target's own questions that may wait to be sent.
const MOST_ANSWERS: usize = 32;
/// Packets of no use to anybody that end the link.
const MOST_STRAYS: u32 = 1000;

/// The present stop.
pub(crate) struct Standing {
    pub(crate) change: StateChange,
    pub(crate) stop: KernelStop,
}

/// An answer to a question of the target's.
struct Answer {
    kind: PacketType,
    payload: Vec<u8>,
    /// When it may be sent.
    due: Instant,
}

/// What happened to the packet under way.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Came {
    Reply(Vec<u8>),
    Acknowledged,
    Failed(Failure),
    /// The link was made good; a stopped target tells its state next.
    Reset,
    /// No RESET was answered: the target runs.
    Silent,
    /// A stop; it is in [`State::standing`].
    Stopped,
}

/// Everything that changes of a connection.
pub(crate) struct State {
    pub(crate) link: Link,
    pub(crate) options: Options,
    pub(crate) standing: Option<Standing>,
    pub(crate) stops: u64,
    /// Why nothing goes over the link any more.
    pub(crate) lost: Option<String>,
    /// It was lost to silence, and may be tried again.
    silent: bool,
    pub(crate) output: Output,
    /// CONTEXT records by processor, of this stop.
    pub(crate) contexts: HashMap<u32, Vec<u8>>,
    /// Special registers by processor, of this stop.
    pub(crate) specials: HashMap<u32, Vec<u8>>,
    /// The target refuses to send parts of a CONTEXT.
    pub(crate) whole_contexts: bool,
    /// Enable bits of DR7 that were there before this session.
    pub(crate) foreign_dr7: u64,
    pub(crate) slots: [Option<Slot>; SLOTS],
    answers: VecDeque<Answer>,
    files: u64,
    strays: u32,
}

/// A connected kernel.
pub(crate) struct Kernel {
    pub(crate) origin: Origin,
    state: RefCell<State>,
}

impl Kernel {
    pub(crate) fn new(origin: Origin, state: State) -> Self {
        Self { origin, state: RefCell::new(state) }
    }
    pub(crate) fn state(&self) -> RefMut<'_, State> {
        self.state.borrow_mut()
    }
}

impl State {
    pub(crate) fn new(stream: Box<dyn ByteStream>, options: Options) -> Self {
        Self {
            link: Link::new(stream, options.timeout),
            options,
            standing: None,
            stops: 0,
            lost: None,
            silent: false,
            output: Output::default(),
            contexts: HashMap::new(),
            specials: HashMap::new(),
            whole_contexts: false,
            foreign_dr7: 0,
            slots: [None; SLOTS],
            answers: VecDeque::new(),
            files: 0,
            strays: 0,
        }
    }

    pub(crate) fn lose(&mut self, why: impl Into<String>) -> TargetError {
        let why = self.lost.get_or_insert_with(|| why.into()).clone();
        TargetError::failed_because("link_lost", why)
    }

    /// As [`Self::lose`], of a target that gives no answer: it may give one later.
    pub(crate) fn lose_to_silence(&mut self, why: impl Into<String>) -> TargetError {
        self.silent = self.lost.is_none() || self.silent;
        self.lose(why)
    }

    /// After silence: starts the link again, and breaks into a target that runs.
    pub(crate) fn reach_again(&mut self) -> Result<(), TargetError> {
        for breaks in [false, true] {
            if !self.silent {
                return self.alive();
            }
            (self.lost, self.silent) = (None, false);
            self.link.reset();
            if breaks && let Err(error) = self.link.break_in() {
                return Err(self.transport(&error));
            }
            // Any stop will do.
            let _ = self.settle("the link was started again");
        }
        self.alive()
    }

    /// Refuses once nothing can be reached any more.
    pub(crate) fn alive(&self) -> Result<(), TargetError> {
        match &self.lost {
            Some(why) => Err(TargetError::failed_because("link_lost", why.clone())),
            None => Ok(()),
        }
    }

    /// One turn of the link, at most `wait` long; the first thing that concerns whoever waits.
    pub(crate) fn turn(&mut self, wait: Duration) -> Result<Option<Came>, TargetError> {
        self.alive()?;
        if let Some(came) = self.next_event()? {
            return Ok(Some(came));
        }
        self.send_answers()?;
        let turned = self.link.turn(wait);
        // What came before the other side hung up still counts.
        if let Some(came) = self.next_event()? {
            return Ok(Some(came));
        }
        match turned {
            Ok(()) => Ok(None),
            Err(error) => Err(self.transport(&error)),
        }
    }

    pub(crate) fn transport(&mut self, error: &TransportError) -> TargetError {
        self.lose(format!("{error}; whether the target runs is not known. End the session and attach again"))
    }

    fn next_event(&mut self) -> Result<Option<Came>, TargetError> {
        while let Some(event) = self.link.event() {
            let came = match event {
                HostEvent::Acknowledged => Some(Came::Acknowledged),
                HostEvent::Failed(failure) => Some(Came::Failed(failure)),
                HostEvent::Reset => Some(Came::Reset),
                HostEvent::Silent => Some(Came::Silent),
                HostEvent::Lost(lost) => {
                    return Err(self.lose(format!("{lost}. End the session and attach again")));
                }
                HostEvent::Received { kind, payload } => self.received(kind, payload)?,
            };
            if came.is_some() {
                return Ok(came);
            }
        }
        Ok(None)
    }

    fn received(&mut self, kind: PacketType, payload: Vec<u8>) -> Result<Option<Came>, TargetError> {
        match kind {
            PacketType::STATE_MANIPULATE => return Ok(Some(Came::Reply(payload))),
            PacketType::STATE_CHANGE64 => match StateChange::decode(&payload) {
                Ok(change) => {
                    self.stopped(change);
                    return Ok(Some(Came::Stopped));
                }
                Err(error) => self.stray(&error.to_string())?,
            },
            PacketType::STATE_CHANGE32 => {
                return Err(self.lose(
                    "the target is of 32 bits, which the native engine does not serve; engine dbgeng does",
                ));
            }
            PacketType::DEBUG_IO => self.debug_io(&payload)?,
            PacketType::FILE_IO => self.file(&payload)?,
            PacketType::CONTROL_REQUEST => self.control(&payload)?,
            PacketType::TRACE_IO => {}
            other => self.stray(&format!("a packet of type {}", other.0))?,
        }
        Ok(None)
    }

    /// A packet that means nothing here. A target that sends nothing else is none.
    fn stray(&mut self, what: &str) -> Result<(), TargetError> {
        tracing::debug!(what, "a KD packet was ignored");
        self.strays = self.strays.saturating_add(1);
        if self.strays > MOST_STRAYS {
            return Err(self.lose("what is at the other side sends packets no KD target sends"));
        }
        Ok(())
    }

    fn stopped(&mut self, change: StateChange) {
        if let StopReason::CommandString { command, .. } = &change.reason {
            self.output.refused_command(command);
        }
        let again = self.standing.as_ref().is_some_and(|standing| same(&standing.change, &change));
        if !again {
            self.stops = self.stops.wrapping_add(1);
            self.contexts.clear();
            self.specials.clear();
        }
        self.standing = Some(Standing { stop: kernel_stop(&change), change });
    }

    pub(crate) fn moving(&mut self) {
        self.standing = None;
        self.contexts.clear();
        self.specials.clear();
    }

    fn debug_io(&mut self, payload: &[u8]) -> Result<(), TargetError> {
        match DebugIo::decode(payload) {
            Ok(DebugIo::Print { text, .. }) => self.output.print(&text),
            Ok(DebugIo::GetString { processor, prompt, .. }) => {
                self.output.print(&prompt);
                let wait = self.options.input_wait;
                self.output.note(&format!(
                    "(the target waits for a line of text; it gets an empty one after {} ms)",
                    wait.as_millis()
                ));
                let answer = DebugIo::Answer { processor, text: Vec::new() };
                self.answer(PacketType::DEBUG_IO, answer.encode(), wait)?;
            }
            Ok(DebugIo::Answer { .. }) => {}
            Err(error) => self.stray(&error.to_string())?,
        }
        Ok(())
    }

    /// No file of this machine is served, whatever its name: the name comes from the target.
    fn file(&mut self, payload: &[u8]) -> Result<(), TargetError> {
        self.files = self.files.saturating_add(1);
        tracing::debug!(requests = self.files, "the target asked for a file; none is served");
        self.answer(PacketType::FILE_IO, FileReply::failure(NO_SUCH_FILE).encode(payload), Duration::ZERO)
    }

    fn control(&mut self, payload: &[u8]) -> Result<(), TargetError> {
        match ControlRequest::decode(payload) {
            Ok(request) => {
                let answer = ControlRequest { granted: false, ..request };
                self.answer(PacketType::CONTROL_REQUEST, answer.encode(), Duration::ZERO)
            }
            Err(error) => self.stray(&error.to_string()),
        }
    }

    fn answer(&mut self, kind: PacketType, payload: Vec<u8>, wait: Duration) -> Result<(), TargetError> {
        if self.answers.len() >= MOST_ANSWERS {
            return Err(self.lose("the target asks without waiting for answers, as no KD target does"));
        }
        let now = Instant::now();
        self.answers.push_back(Answer { kind, payload, due: now.checked_add(wait).unwrap_or(now) });
        Ok(())
    }

    fn send_answers(&mut self) -> Result<(), TargetError> {
        if !self.link.ready() || self.answers.front().is_none_or(|answer| answer.due > Instant::now()) {
            return Ok(());
        }
        let Some(answer) = self.answers.pop_front() else { return Ok(()) };
        // What becomes of it is the target's affair: it asks again when it got none.
        if let Err(error) = self.link.send(answer.kind, &answer.payload, Expect::Acknowledgement) {
            tracing::debug!(%error, "an answer to the target was not sent");
        }
        Ok(())
    }
}
