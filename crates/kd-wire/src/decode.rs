//! Bytes in any split to frames.

use crate::frame::{
    BREAK_IN, CONTROL_LEADER, DATA_LEADER, Frame, HEADER, MAX_PAYLOAD, PacketType, TRAILER, checksum,
};

/// Why bytes that began like a packet are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The header tells more than [`MAX_PAYLOAD`] bytes.
    #[error("a KD packet header tells {0} bytes; the most is {MAX_PAYLOAD}")]
    Oversized(u16),
    /// The payload's sum is not the header's.
    #[error("a KD packet's bytes sum to {found:#x}; its header says {expected:#x}")]
    BadChecksum { expected: u32, found: u32 },
    /// The byte after the payload is not 0xAA.
    #[error("a KD packet ends in {0:#04x}, not in 0xaa")]
    MissingTrailer(u8),
    /// A control packet whose header tells a payload or a checksum.
    #[error("a KD control packet with a payload")]
    ControlPayload,
}

/// Frames from a stream. It holds at most one packet and what was pushed last.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: Vec<u8>,
    /// Bytes of `buffer` already used.
    used: usize,
    noise: u64,
}

impl Decoder {
    /// The most bytes that are held back between pushes: a whole packet short of one byte.
    pub const MOST_HELD: usize = HEADER + MAX_PAYLOAD + 1;
    /// The most bytes to push before [`next`](Self::next) is asked until it has nothing more.
    pub const MOST_PUSHED: usize = 4_096;

    /// Takes bytes of the stream, at most [`MOST_PUSHED`](Self::MOST_PUSHED); how many were taken.
    pub fn push(&mut self, bytes: &[u8]) -> usize {
        self.buffer.drain(..self.used.min(self.buffer.len()));
        self.used = 0;
        let room = (Self::MOST_HELD + Self::MOST_PUSHED).saturating_sub(self.buffer.len());
        let taken = bytes.len().min(room).min(Self::MOST_PUSHED);
        self.buffer.extend_from_slice(bytes.get(..taken).unwrap_or_default());
        taken
    }

    /// The next frame or error; `None` when more bytes are needed.
    #[allow(clippy::should_implement_trait)] // more bytes may follow a `None`
    pub fn next(&mut self) -> Option<Result<Frame, FrameError>> {
        loop {
            let rest = self.buffer.get(self.used..).unwrap_or_default();
            match parse(rest) {
                Parsed::Need => return None,
                Parsed::Noise => {
                    self.used += 1;
                    self.noise = self.noise.saturating_add(1);
                }
                Parsed::Frame(frame, length) => {
                    self.used += length;
                    return Some(Ok(frame));
                }
                Parsed::Error(error, length) => {
                    self.used += length;
                    return Some(Err(error));
                }
            }
        }
    }

    /// Bytes held back for the packet they begin.
    #[must_use]
    pub fn held(&self) -> usize {
        self.buffer.len().saturating_sub(self.used)
    }

    /// Bytes dropped because they belonged to no packet.
    #[must_use]
    pub fn noise(&self) -> u64 {
        self.noise
    }
}

enum Parsed {
    Need,
    Noise,
    Frame(Frame, usize),
    Error(FrameError, usize),
}

fn parse(bytes: &[u8]) -> Parsed {
    let Some(&leader) = bytes.first() else { return Parsed::Need };
    match leader {
        BREAK_IN => return Parsed::Frame(Frame::BreakIn, 1),
        DATA_LEADER | CONTROL_LEADER => {}
        _ => return Parsed::Noise,
    }
    if bytes.iter().take(4).any(|&byte| byte != leader) {
        return Parsed::Noise;
    }
    let (Some(kind), Some(count), Some(id), Some(sum)) =
        (u16_at(bytes, 4), u16_at(bytes, 6), u32_at(bytes, 8), u32_at(bytes, 12))
    else {
        return Parsed::Need;
    };
    let kind = PacketType(kind);
    if leader == CONTROL_LEADER {
        return if count == 0 && sum == 0 {
            Parsed::Frame(Frame::Control { kind, id }, HEADER)
        } else {
            // Like an oversized one: the header itself may be noise.
            Parsed::Error(FrameError::ControlPayload, 1)
        };
    }
    let length = usize::from(count);
    if length > MAX_PAYLOAD {
        return Parsed::Error(FrameError::Oversized(count), 1);
    }
    let (Some(payload), Some(&trailer)) = (bytes.get(HEADER..HEADER + length), bytes.get(HEADER + length))
    else {
        return Parsed::Need;
    };
    if trailer != TRAILER {
        return Parsed::Error(FrameError::MissingTrailer(trailer), 1);
    }
    let found = checksum(payload);
    if found != sum {
        return Parsed::Error(FrameError::BadChecksum { expected: sum, found }, HEADER + length + 1);
    }
    Parsed::Frame(Frame::Data { kind, id, payload: payload.to_vec() }, HEADER + length + 1)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2)?.try_into().ok().map(u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes)
}
