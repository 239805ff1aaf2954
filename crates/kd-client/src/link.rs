//! The link over its stream: one turn reads what came, lets the state machine act, and writes what it
//! wants written. Nobody else touches either.

use std::time::{Duration, Instant};

use kd_transport::{ByteStream, TransportError};
use kd_wire::{Expect, HostEvent, HostLink, HostOptions, PacketType, SendError};

/// Longest a turn waits, so that whoever waits looks up often enough.
const TURN: Duration = Duration::from_millis(20);
/// Bytes taken from the stream in one turn.
const CHUNK: usize = 4096;

pub(crate) struct Link {
    stream: Box<dyn ByteStream>,
    host: HostLink,
    epoch: Instant,
    buffer: Vec<u8>,
    /// Bytes that came since the connection was made.
    pub(crate) heard: u64,
}

impl Link {
    pub(crate) fn new(stream: Box<dyn ByteStream>, timeout: Duration) -> Self {
        let options = HostOptions {
            timeout,
            reset_interval: timeout.min(HostOptions::default().reset_interval),
            ..HostOptions::default()
        };
        Self { stream, host: HostLink::new(options), epoch: Instant::now(), buffer: vec![0; CHUNK], heard: 0 }
    }

    fn now(&self) -> Duration {
        self.epoch.elapsed()
    }

    /// One turn; what happened is in [`Self::event`].
    pub(crate) fn turn(&mut self, wait: Duration) -> Result<(), TransportError> {
        self.flush()?;
        let now = self.now();
        let due = self.host.deadline().map_or(TURN, |at| at.saturating_sub(now));
        let read = self.stream.read(&mut self.buffer, wait.min(TURN).min(due));
        let now = self.now();
        let count = match read {
            Ok(count) => count,
            Err(error) => {
                self.host.poll(now);
                return Err(error);
            }
        };
        self.heard = self.heard.saturating_add(count as u64);
        self.host.receive(self.buffer.get(..count).unwrap_or_default(), now);
        self.host.poll(now);
        self.flush()
    }

    pub(crate) fn flush(&mut self) -> Result<(), TransportError> {
        while let Some(bytes) = self.host.next_output() {
            self.stream.write(&bytes)?;
        }
        Ok(())
    }

    pub(crate) fn event(&mut self) -> Option<HostEvent> {
        self.host.next_event()
    }

    pub(crate) fn reset(&mut self) {
        let now = self.now();
        self.host.reset(now);
    }

    pub(crate) fn ready(&self) -> bool {
        self.host.ready()
    }

    pub(crate) fn send(&mut self, kind: PacketType, payload: &[u8], expect: Expect) -> Result<(), SendError> {
        let now = self.now();
        self.host.send(kind, payload, expect, now)
    }

    pub(crate) fn break_in(&mut self) -> Result<(), TransportError> {
        self.host.break_in();
        self.flush()
    }
}
