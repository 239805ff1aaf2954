//! What both ends share: ids, the frames to write, and when a link is beyond use.

use std::collections::VecDeque;

use crate::decode::Decoder;
use crate::frame::{Frame, PacketType, encode_control};

/// The id of the first data packet after a RESET.
pub(crate) const INITIAL: u32 = 0x8080_0000;
/// Set in the id of a target's first packet after a RESET.
pub(crate) const SYNC: u32 = 0x0000_0800;

/// Errors without a good frame between them that end a link.
const MOST_ERRORS: u32 = 3;
/// Frames that may wait to be written, events that may wait to be taken.
pub(crate) const MOST_QUEUED: usize = 64;

/// Why a link carries nothing any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    /// Three broken packets with no good one between; a debugger's end only.
    #[error("KD framing lost: three broken packets in a row")]
    Framing,
    /// More frames or events wait than a link holds: its owner does not take them, or the peer floods.
    #[error("the KD link is flooded: {MOST_QUEUED} frames wait")]
    Flooded,
}

/// An id without its mark of the first packet.
pub(crate) fn plain(id: u32) -> u32 {
    id & !SYNC
}

/// What an arriving data packet's id says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// The one expected.
    New,
    /// The one before it: our acknowledgement was lost.
    Repeated,
    /// Neither.
    Stray,
}

pub(crate) fn arrival(id: u32, expected: u32) -> Arrival {
    match plain(id) {
        id if id == expected => Arrival::New,
        id if id == expected ^ 1 => Arrival::Repeated,
        _ => Arrival::Stray,
    }
}

/// The stream's side of a link.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    decoder: Decoder,
    out: VecDeque<Vec<u8>>,
    errors: u32,
    /// A target's: broken packets and floods do not lose it, as only it can answer the RESET that mends.
    enduring: bool,
    pub(crate) lost: Option<Lost>,
}

impl Stream {
    pub(crate) fn enduring() -> Self {
        Self { enduring: true, ..Self::default() }
    }

    /// Feeds the decoder; how much of `bytes` it took.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> usize {
        self.decoder.push(bytes)
    }

    /// The next good frame. A broken one is answered with RESEND here.
    pub(crate) fn frame(&mut self) -> Option<Frame> {
        while self.lost.is_none() {
            match self.decoder.next()? {
                Ok(frame) => {
                    self.errors = 0;
                    return Some(frame);
                }
                Err(_) => {
                    self.errors = self.errors.saturating_add(1);
                    if self.errors < MOST_ERRORS {
                        self.control(PacketType::RESEND, 0);
                    } else if !self.enduring {
                        self.lost = Some(Lost::Framing);
                    }
                }
            }
        }
        None
    }

    pub(crate) fn control(&mut self, kind: PacketType, id: u32) {
        self.write(encode_control(kind, id));
    }

    pub(crate) fn write(&mut self, bytes: Vec<u8>) {
        if self.out.len() < MOST_QUEUED {
            self.out.push_back(bytes);
        } else if !self.enduring {
            self.lost.get_or_insert(Lost::Flooded);
        }
    }

    pub(crate) fn next_output(&mut self) -> Option<Vec<u8>> {
        self.out.pop_front()
    }
}
