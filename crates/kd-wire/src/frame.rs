//! Frames and their bytes.

/// The one byte that asks a running target to stop.
pub const BREAK_IN: u8 = 0x62;
/// The most payload bytes a data packet carries.
pub const MAX_PAYLOAD: usize = 4_000;

pub(crate) const DATA_LEADER: u8 = 0x30;
pub(crate) const CONTROL_LEADER: u8 = 0x69;
pub(crate) const TRAILER: u8 = 0xAA;
pub(crate) const HEADER: usize = 16;

/// What a packet is (`PACKET_TYPE_*`). Any value may arrive; the constants are those with a meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PacketType(pub u16);

impl PacketType {
    /// `DBGKD_WAIT_STATE_CHANGE32`: of 32-bit protocol versions that nobody speaks.
    pub const STATE_CHANGE32: Self = Self(1);
    /// A request of the debugger, or the answer to it.
    pub const STATE_MANIPULATE: Self = Self(2);
    /// Text printed or asked for by the target, and the answer.
    pub const DEBUG_IO: Self = Self(3);
    /// Control: the packet with this id arrived.
    pub const ACKNOWLEDGE: Self = Self(4);
    /// Control: send again what is not acknowledged.
    pub const RESEND: Self = Self(5);
    /// Control: both ids start again.
    pub const RESET: Self = Self(6);
    /// The target stopped.
    pub const STATE_CHANGE64: Self = Self(7);
    /// A target's own note to itself; it never travels.
    pub const POLL_BREAKIN: Self = Self(8);
    /// Trace data of the target.
    pub const TRACE_IO: Self = Self(9);
    /// The target asks for a hardware breakpoint, or gives one back.
    pub const CONTROL_REQUEST: Self = Self(10);
    /// The target reads a file of the debugger's machine, and the answer.
    pub const FILE_IO: Self = Self(11);
}

/// One frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A packet with a payload; it is acknowledged by its id.
    Data { kind: PacketType, id: u32, payload: Vec<u8> },
    /// ACKNOWLEDGE, RESEND, RESET.
    Control { kind: PacketType, id: u32 },
    /// The lone byte [`BREAK_IN`].
    BreakIn,
}

/// A payload over [`MAX_PAYLOAD`] bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a KD packet of {length} bytes; the most is {MAX_PAYLOAD}: send less at a time")]
pub struct TooLong {
    /// The payload's bytes.
    pub length: usize,
}

/// The sum of the bytes, wrapping: what stands in a data packet's header.
#[must_use]
pub fn checksum(payload: &[u8]) -> u32 {
    payload.iter().fold(0u32, |sum, &byte| sum.wrapping_add(u32::from(byte)))
}

/// The bytes of a data packet: header, payload, trailer.
///
/// # Errors
/// [`TooLong`] over [`MAX_PAYLOAD`] bytes.
pub fn encode_data(kind: PacketType, id: u32, payload: &[u8]) -> Result<Vec<u8>, TooLong> {
    let too_long = TooLong { length: payload.len() };
    let count = u16::try_from(payload.len()).map_err(|_| too_long)?;
    if payload.len() > MAX_PAYLOAD {
        return Err(too_long);
    }
    let mut bytes = header(DATA_LEADER, kind, count, id, checksum(payload));
    bytes.extend_from_slice(payload);
    bytes.push(TRAILER);
    Ok(bytes)
}

/// The bytes of a control packet.
#[must_use]
pub fn encode_control(kind: PacketType, id: u32) -> Vec<u8> {
    header(CONTROL_LEADER, kind, 0, id, 0)
}

fn header(leader: u8, kind: PacketType, count: u16, id: u32, sum: u32) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER + usize::from(count) + 1);
    bytes.extend_from_slice(&[leader; 4]);
    bytes.extend_from_slice(&kind.0.to_le_bytes());
    bytes.extend_from_slice(&count.to_le_bytes());
    bytes.extend_from_slice(&id.to_le_bytes());
    bytes.extend_from_slice(&sum.to_le_bytes());
    bytes
}
