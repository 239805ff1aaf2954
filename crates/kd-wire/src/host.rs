//! The debugger's end of a link.

use std::collections::VecDeque;
use std::time::Duration;

use crate::frame::{BREAK_IN, Frame, PacketType, TooLong, encode_data};
use crate::sequence::{Arrival, INITIAL, Lost, MOST_QUEUED, Stream, arrival, plain};

/// Times and counts of a [`HostLink`].
#[derive(Clone, Copy, Debug)]
pub struct HostOptions {
    /// How long a packet may go unanswered before it is repeated.
    pub timeout: Duration,
    /// Repeats of one packet before the link is reset.
    pub repeats: u32,
    /// How long a RESET may go unanswered before it is repeated.
    pub reset_interval: Duration,
    /// RESETs in a row before [`HostEvent::Silent`].
    pub resets: u32,
    /// After the first answer to several RESETs: how long to wait for the answers to the others.
    pub settle: Duration,
}

impl Default for HostOptions {
    /// What DbgEng does with `timeout=4000`.
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(4),
            repeats: 5,
            reset_interval: Duration::from_secs(1),
            resets: 3,
            settle: Duration::from_millis(250),
        }
    }
}

/// What ends a packet that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// Its acknowledgement (a continue, an answer to the target).
    Acknowledgement,
    /// A packet of this type (the answer to a request).
    Answer(PacketType),
}

/// Why a packet could not be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// One is under way: only one may be.
    #[error("a KD packet is under way; wait until it is answered")]
    Busy,
    /// A RESET is unanswered.
    #[error("the KD link is being reset; wait for the target")]
    Resetting,
    /// The link is lost.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// The payload is too long.
    #[error(transparent)]
    TooLong(#[from] TooLong),
}

/// Why a packet under way will not be answered. The target may have acted on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// Nothing came after all repeats; the link is being reset.
    #[error("the target did not answer; the link is being reset, and what was asked may have been done")]
    Unanswered,
    /// The link was reset, by the target or by the owner.
    #[error("the KD link was reset; what was asked may have been done")]
    Reset,
    /// The link is lost.
    #[error("{0}; what was asked may have been done")]
    Lost(Lost),
}

/// What happened on the link, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostEvent {
    /// A data packet arrived, once. It may be the answer to the packet under way (its type tells).
    Received { kind: PacketType, payload: Vec<u8> },
    /// The packet sent with [`Expect::Acknowledgement`] arrived at the target.
    Acknowledged,
    /// The packet under way will not be answered.
    Failed(Failure),
    /// The target answered a RESET, or reset by itself: both ends start again. A stopped target tells
    /// its state next; one that runs does not.
    Reset,
    /// All RESETs of a round went unanswered: the target runs (send a break-in) or is not there. The
    /// link stays in its reset: a packet that arrives starts another round.
    Silent,
    /// Nothing more will happen.
    Lost(Lost),
}

/// The packet under way.
#[derive(Debug)]
struct Outstanding {
    bytes: Vec<u8>,
    id: u32,
    expect: Expect,
    acknowledged: bool,
    repeats: u32,
    due: Duration,
}

#[derive(Debug)]
enum State {
    /// RESETs are out.
    Resetting {
        sent: u32,
        answered: u32,
        due: Option<Duration>,
        round: u32,
    },
    Ready,
}

/// A debugger's link. A new one is as after [`reset`](Self::reset) without having sent one: call it.
#[derive(Debug)]
pub struct HostLink {
    options: HostOptions,
    stream: Stream,
    state: State,
    outstanding: Option<Outstanding>,
    next_id: u32,
    expected_id: u32,
    /// A data packet went out since both ends started again.
    used: bool,
    /// Arrived while answers to RESETs were still due.
    held: Option<(PacketType, Vec<u8>)>,
    events: VecDeque<HostEvent>,
    told_lost: bool,
}

impl HostLink {
    #[must_use]
    pub fn new(options: HostOptions) -> Self {
        Self {
            options,
            stream: Stream::default(),
            state: State::Ready,
            outstanding: None,
            next_id: INITIAL,
            expected_id: INITIAL,
            used: false,
            held: None,
            events: VecDeque::new(),
            told_lost: false,
        }
    }

    /// Starts both ends again: sends RESET, repeated until it is answered or the round is over. What is
    /// under way fails.
    pub fn reset(&mut self, now: Duration) {
        self.fail(Failure::Reset);
        self.start_reset(now);
    }

    /// Sends a data packet.
    ///
    /// # Errors
    /// [`SendError`]; nothing was sent then.
    pub fn send(
        &mut self,
        kind: PacketType,
        payload: &[u8],
        expect: Expect,
        now: Duration,
    ) -> Result<(), SendError> {
        if let Some(lost) = self.stream.lost {
            return Err(lost.into());
        }
        if matches!(self.state, State::Resetting { .. }) {
            return Err(SendError::Resetting);
        }
        if self.outstanding.is_some() {
            return Err(SendError::Busy);
        }
        let bytes = encode_data(kind, self.next_id, payload)?;
        self.stream.write(bytes.clone());
        self.used = true;
        self.outstanding = Some(Outstanding {
            bytes,
            id: self.next_id,
            expect,
            acknowledged: false,
            repeats: 0,
            due: now.saturating_add(self.options.timeout),
        });
        Ok(())
    }

    /// Sends the break-in byte. Nothing acknowledges it.
    pub fn break_in(&mut self) {
        self.stream.write(vec![BREAK_IN]);
    }

    /// Whether [`send`](Self::send) would accept a packet.
    #[must_use]
    pub fn ready(&self) -> bool {
        self.stream.lost.is_none() && matches!(self.state, State::Ready) && self.outstanding.is_none()
    }

    /// Takes what arrived from the transport.
    pub fn receive(&mut self, mut bytes: &[u8], now: Duration) {
        while !bytes.is_empty() && self.stream.lost.is_none() {
            let taken = self.stream.push(bytes);
            bytes = bytes.get(taken..).unwrap_or_default();
            while let Some(frame) = self.stream.frame() {
                self.frame(frame, now);
                if self.events.len() >= MOST_QUEUED {
                    self.stream.lost.get_or_insert(Lost::Flooded);
                }
            }
        }
        self.tell_lost();
    }

    /// Does what is due: repeats, resets. Call it at [`deadline`](Self::deadline).
    pub fn poll(&mut self, now: Duration) {
        if self.stream.lost.is_none() {
            self.poll_reset(now);
            self.poll_outstanding(now);
        }
        self.tell_lost();
    }

    /// When [`poll`](Self::poll) has something to do, if nothing arrives before.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        if self.stream.lost.is_some() {
            return None;
        }
        match self.state {
            State::Resetting { due, .. } => due,
            State::Ready => self.outstanding.as_ref().map(|o| o.due),
        }
    }

    /// The next frame to write, whole.
    pub fn next_output(&mut self) -> Option<Vec<u8>> {
        self.stream.next_output()
    }

    /// The next event.
    pub fn next_event(&mut self) -> Option<HostEvent> {
        self.events.pop_front()
    }

    fn frame(&mut self, frame: Frame, now: Duration) {
        match frame {
            Frame::BreakIn => {}
            Frame::Control { kind: PacketType::ACKNOWLEDGE, id } => self.acknowledged(id),
            Frame::Control { kind: PacketType::RESEND, .. } => self.repeat(now),
            Frame::Control { kind: PacketType::RESET, .. } => self.reset_arrived(now),
            Frame::Control { .. } => {}
            Frame::Data { kind, id, payload } => self.data(kind, id, payload, now),
        }
    }

    fn data(&mut self, kind: PacketType, id: u32, payload: Vec<u8>, now: Duration) {
        if let State::Resetting { answered: 0, due, .. } = self.state {
            // From before the reset, or of a target that stopped after it ignored our RESETs.
            if due.is_none() {
                self.start_reset(now);
            }
            return;
        }
        match arrival(id, self.expected_id) {
            Arrival::New => {
                self.stream.control(PacketType::ACKNOWLEDGE, plain(id));
                self.expected_id ^= 1;
                if matches!(self.state, State::Resetting { .. }) {
                    self.held = Some((kind, payload));
                } else {
                    self.deliver(kind, payload);
                }
            }
            Arrival::Repeated => self.stream.control(PacketType::ACKNOWLEDGE, plain(id)),
            Arrival::Stray => self.stream.control(PacketType::RESEND, 0),
        }
    }

    /// A packet in order: what it answers was received too, whether or not that was acknowledged.
    fn deliver(&mut self, kind: PacketType, payload: Vec<u8>) {
        if let Some(outstanding) = self.outstanding.take() {
            if !outstanding.acknowledged {
                self.next_id ^= 1;
            }
            match outstanding.expect {
                Expect::Acknowledgement => self.events.push_back(HostEvent::Acknowledged),
                Expect::Answer(wanted) if wanted == kind => {}
                Expect::Answer(_) => {
                    self.outstanding = Some(Outstanding { acknowledged: true, ..outstanding });
                }
            }
        }
        self.events.push_back(HostEvent::Received { kind, payload });
    }

    fn acknowledged(&mut self, id: u32) {
        let Some(outstanding) = &mut self.outstanding else { return };
        if outstanding.acknowledged || plain(id) != outstanding.id {
            return;
        }
        outstanding.acknowledged = true;
        self.next_id ^= 1;
        if outstanding.expect == Expect::Acknowledgement {
            self.outstanding = None;
            self.events.push_back(HostEvent::Acknowledged);
        }
    }

    fn repeat(&mut self, now: Duration) {
        let Some(outstanding) = &mut self.outstanding else { return };
        if outstanding.repeats < self.options.repeats {
            outstanding.repeats += 1;
            outstanding.due = now.saturating_add(self.options.timeout);
            self.stream.write(outstanding.bytes.clone());
        }
    }

    fn poll_outstanding(&mut self, now: Duration) {
        let Some(outstanding) = &self.outstanding else { return };
        if now < outstanding.due {
            return;
        }
        if outstanding.repeats < self.options.repeats {
            self.repeat(now);
        } else {
            self.fail(Failure::Unanswered);
            self.start_reset(now);
        }
    }

    fn fail(&mut self, failure: Failure) {
        if self.outstanding.take().is_some() {
            self.events.push_back(HostEvent::Failed(failure));
        }
    }

    fn start_again(&mut self) {
        self.next_id = INITIAL;
        self.expected_id = INITIAL;
        self.used = false;
        self.held = None;
    }

    fn start_reset(&mut self, now: Duration) {
        self.start_again();
        self.stream.control(PacketType::RESET, 0);
        // Answers to RESETs of the round before may still come: they count.
        let before = match self.state {
            State::Resetting { sent, answered, .. } => sent.saturating_sub(answered),
            State::Ready => 0,
        };
        self.state = State::Resetting {
            sent: before.saturating_add(1),
            answered: 0,
            due: Some(now.saturating_add(self.options.reset_interval)),
            round: 1,
        };
    }

    /// An answer to our RESET, or the target's own. While answers to other RESETs of ours are due,
    /// nothing may be sent: the target would start again behind it.
    fn reset_arrived(&mut self, now: Duration) {
        let settled = now.saturating_add(self.options.settle);
        match &mut self.state {
            State::Resetting { sent, answered, due, .. } => {
                *answered = answered.saturating_add(1);
                let over = *answered >= *sent;
                *due = Some(settled);
                self.start_again();
                if over {
                    self.settle();
                }
            }
            State::Ready if self.used => {
                // Whether it took what we sent before it or after it cannot be known: agree anew.
                self.fail(Failure::Reset);
                self.start_reset(now);
            }
            State::Ready => {
                self.start_again();
                self.events.push_back(HostEvent::Reset);
            }
        }
    }

    fn settle(&mut self) {
        self.state = State::Ready;
        self.events.push_back(HostEvent::Reset);
        if let Some((kind, payload)) = self.held.take() {
            self.deliver(kind, payload);
        }
    }

    fn poll_reset(&mut self, now: Duration) {
        let State::Resetting { sent, answered, due, round } = &mut self.state else { return };
        if due.is_none_or(|due| now < due) {
            return;
        }
        if *answered > 0 {
            self.settle();
        } else if *round < self.options.resets {
            *round += 1;
            *sent = sent.saturating_add(1);
            *due = Some(now.saturating_add(self.options.reset_interval));
            self.stream.control(PacketType::RESET, 0);
        } else {
            *due = None;
            self.events.push_back(HostEvent::Silent);
        }
    }

    fn tell_lost(&mut self) {
        if let (Some(lost), false) = (self.stream.lost, self.told_lost) {
            self.told_lost = true;
            self.fail(Failure::Lost(lost));
            self.events.push_back(HostEvent::Lost(lost));
        }
    }
}
