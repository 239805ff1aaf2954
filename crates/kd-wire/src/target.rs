//! The machine's end of a link.

use std::collections::VecDeque;
use std::time::Duration;

use crate::frame::{Frame, PacketType, TooLong, encode_data};
use crate::sequence::{Arrival, INITIAL, Lost, MOST_QUEUED, SYNC, Stream, arrival, plain};

/// Times of a [`TargetLink`].
#[derive(Clone, Copy, Debug)]
pub struct TargetOptions {
    /// How long a packet may go unacknowledged before it is repeated.
    pub repeat: Duration,
}

impl Default for TargetOptions {
    fn default() -> Self {
        Self { repeat: Duration::from_secs(1) }
    }
}

/// How often a packet is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Until the debugger takes it: a state change, an answer. It may be away for long.
    Forever,
    /// This many times, then it is dropped: a target must not hang on printing.
    Times(u32),
}

/// What happened on the link, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetEvent {
    /// A data packet arrived, once.
    Received { kind: PacketType, payload: Vec<u8> },
    /// The packet sent first of those under way was taken.
    Acknowledged { kind: PacketType },
    /// A packet with bounded repeats was not taken, and dropped.
    Dropped { kind: PacketType },
    /// The debugger wants the target to stop.
    BreakIn,
    /// Both ends start again; what was under way is gone. A stopped target tells its state again.
    Reset,
    /// Nothing more will happen.
    Lost(Lost),
}

#[derive(Debug)]
struct Outstanding {
    kind: PacketType,
    payload: Vec<u8>,
    retry: Retry,
    repeats: u32,
    due: Duration,
}

/// A target's link.
#[derive(Debug)]
pub struct TargetLink {
    options: TargetOptions,
    stream: Stream,
    /// The first is under way, the others wait for it.
    queue: VecDeque<Outstanding>,
    next_id: u32,
    expected_id: u32,
    /// The payload of the request that came last since both ends started again.
    last_request: Vec<u8>,
    events: VecDeque<TargetEvent>,
    told_lost: bool,
}

impl TargetLink {
    #[must_use]
    pub fn new(options: TargetOptions) -> Self {
        Self {
            options,
            stream: Stream::enduring(),
            queue: VecDeque::new(),
            next_id: INITIAL | SYNC,
            expected_id: INITIAL,
            last_request: Vec::new(),
            events: VecDeque::new(),
            told_lost: false,
        }
    }

    /// Sends a data packet, after those that are not yet acknowledged.
    ///
    /// # Errors
    /// [`TooLong`]; nothing was sent then. A packet over 64 that wait is dropped.
    pub fn send(
        &mut self,
        kind: PacketType,
        payload: Vec<u8>,
        retry: Retry,
        now: Duration,
    ) -> Result<(), TooLong> {
        encode_data(kind, 0, &payload)?;
        if self.queue.len() >= MOST_QUEUED {
            return Ok(());
        }
        self.queue.push_back(Outstanding { kind, payload, retry, repeats: 0, due: now });
        if self.queue.len() == 1 {
            self.transmit(now);
        }
        Ok(())
    }

    /// Packets that are not yet acknowledged.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.queue.len()
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

    /// Repeats what is due. Call it at [`deadline`](Self::deadline).
    pub fn poll(&mut self, now: Duration) {
        let Some(first) = self.queue.front_mut().filter(|o| now >= o.due) else { return self.tell_lost() };
        match first.retry {
            Retry::Times(most) if first.repeats >= most => {
                let kind = first.kind;
                // Whether the debugger saw it cannot be known, nor what id it expects: start again.
                self.queue.pop_front();
                self.start_again();
                self.stream.control(PacketType::RESET, 0);
                self.events.push_back(TargetEvent::Dropped { kind });
                self.transmit(now);
            }
            Retry::Times(_) | Retry::Forever => {
                first.repeats = first.repeats.saturating_add(1);
                self.transmit(now);
            }
        }
        self.tell_lost();
    }

    /// When [`poll`](Self::poll) has something to do, if nothing arrives before.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        if self.stream.lost.is_some() { None } else { self.queue.front().map(|o| o.due) }
    }

    /// The next frame to write, whole.
    pub fn next_output(&mut self) -> Option<Vec<u8>> {
        self.stream.next_output()
    }

    /// The next event.
    pub fn next_event(&mut self) -> Option<TargetEvent> {
        self.events.pop_front()
    }

    /// Writes the first packet of the queue.
    fn transmit(&mut self, now: Duration) {
        let Some(first) = self.queue.front_mut() else { return };
        first.due = now.saturating_add(self.options.repeat);
        if let Ok(bytes) = encode_data(first.kind, self.next_id, &first.payload) {
            self.stream.write(bytes);
        }
    }

    fn frame(&mut self, frame: Frame, now: Duration) {
        match frame {
            Frame::BreakIn => self.tell_once(TargetEvent::BreakIn),
            Frame::Control { kind: PacketType::ACKNOWLEDGE, id } => self.acknowledged(id, now),
            // With nothing under way the debugger has to ask again. Starting again by ourselves would let
            // a request that is repeated because the RESET was lost be done twice.
            Frame::Control { kind: PacketType::RESEND, .. } => self.transmit(now),
            Frame::Control { kind: PacketType::RESET, .. } => self.reset(),
            Frame::Control { .. } => {}
            Frame::Data { kind, id, payload } => match arrival(id, self.expected_id) {
                Arrival::New => {
                    self.stream.control(PacketType::ACKNOWLEDGE, plain(id));
                    self.expected_id ^= 1;
                    self.new_packet(kind, payload, now);
                }
                Arrival::Repeated => {
                    self.stream.control(PacketType::ACKNOWLEDGE, plain(id));
                    // It asks again because our answer did not arrive.
                    self.transmit(now);
                }
                Arrival::Stray => self.stream.control(PacketType::RESEND, 0),
            },
        }
    }

    /// The debugger goes on although our packet is not acknowledged: the acknowledgement was lost. But
    /// DbgEng asks again under a new id when the answer itself was lost: that must not be done twice.
    fn new_packet(&mut self, kind: PacketType, payload: Vec<u8>, now: Duration) {
        let answering = self.queue.front().is_some_and(|o| o.kind == PacketType::STATE_MANIPULATE);
        if answering && kind == PacketType::STATE_MANIPULATE && self.last_request == payload {
            return self.transmit(now);
        }
        if !self.queue.is_empty() {
            self.taken(now);
        }
        if kind == PacketType::STATE_MANIPULATE {
            self.last_request.clone_from(&payload);
        }
        self.events.push_back(TargetEvent::Received { kind, payload });
    }

    /// The first of the queue arrived.
    fn taken(&mut self, now: Duration) {
        let Some(done) = self.queue.pop_front() else { return };
        self.next_id = plain(self.next_id) ^ 1;
        self.events.push_back(TargetEvent::Acknowledged { kind: done.kind });
        self.transmit(now);
    }

    fn acknowledged(&mut self, id: u32, now: Duration) {
        if plain(id) == plain(self.next_id) {
            self.taken(now);
        }
    }

    fn start_again(&mut self) {
        self.next_id = INITIAL | SYNC;
        self.expected_id = INITIAL;
        self.last_request.clear();
    }

    fn reset(&mut self) {
        self.queue.clear();
        self.start_again();
        self.stream.control(PacketType::RESET, 0);
        self.tell_once(TargetEvent::Reset);
    }

    /// Any number of break-in bytes may arrive, and of resets: together they ask for one thing.
    fn tell_once(&mut self, event: TargetEvent) {
        if self.events.back() != Some(&event) {
            self.events.push_back(event);
        }
    }

    fn tell_lost(&mut self) {
        if let (Some(lost), false) = (self.stream.lost, self.told_lost) {
            self.told_lost = true;
            self.queue.clear();
            self.events.push_back(TargetEvent::Lost(lost));
        }
    }
}
