//! What went over a connection.

use std::time::Duration;

use kd_wire::{Decoder, Frame, PacketType};
use serde::Serialize;

/// Most frames that are kept of one simulator.
const MOST: usize = 100_000;
/// Most payload bytes that are kept of a frame.
const MOST_BYTES: usize = 0x48;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    FromDebugger,
    FromTarget,
}

/// A frame.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FrameRecord {
    pub t_ms: u64,
    pub dir: Direction,
    /// The packet's type; `None` of a break-in.
    #[serde(rename = "type")]
    pub kind: Option<u16>,
    pub id: u32,
    /// Of a data packet: the first number of its payload.
    pub api: Option<u32>,
    /// Of a manipulate packet.
    pub status: Option<u32>,
    /// The payload's first bytes.
    pub hex: String,
}

/// Frames of both directions in order. A decoder a direction: bytes come in any split.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    pub(crate) frames: Vec<FrameRecord>,
    decoders: [Decoder; 2],
}

impl Recorder {
    /// Forgets half a packet: the connection is another.
    pub(crate) fn connected(&mut self) {
        self.decoders = Default::default();
    }

    pub(crate) fn bytes(&mut self, dir: Direction, mut bytes: &[u8], now: Duration) {
        while !bytes.is_empty() && self.frames.len() < MOST {
            let decoder = &mut self.decoders[usize::from(dir == Direction::FromTarget)];
            let taken = decoder.push(bytes);
            bytes = bytes.get(taken..).unwrap_or_default();
            while let Some(frame) = decoder.next() {
                if let Ok(frame) = frame {
                    let record = record(dir, &frame, now);
                    self.frames.push(record);
                }
            }
        }
    }
}

fn record(dir: Direction, frame: &Frame, now: Duration) -> FrameRecord {
    let number = |bytes: &[u8], at: usize| {
        bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map(u32::from_le_bytes)
    };
    let t_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
    let (kind, id, payload): (_, _, &[u8]) = match frame {
        Frame::BreakIn => (None, 0, &[]),
        Frame::Control { kind, id } => (Some(*kind), *id, &[]),
        Frame::Data { kind, id, payload } => (Some(*kind), *id, payload),
    };
    let manipulate = kind == Some(PacketType::STATE_MANIPULATE);
    let shown = payload.get(..MOST_BYTES).unwrap_or(payload);
    FrameRecord {
        t_ms,
        dir,
        kind: kind.map(|kind| kind.0),
        id,
        api: number(payload, 0),
        status: manipulate.then(|| number(payload, 8)).flatten(),
        hex: shown.iter().map(|byte| format!("{byte:02x}")).collect(),
    }
}
