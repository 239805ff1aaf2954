//! The KD packet protocol on a byte stream (serial line, pipe, TCP, Unix socket): frames, checksums, and
//! the link state machines of both ends.
//!
//! Nothing here reads, writes or looks at a clock. The owner of a link passes in the bytes that arrived
//! and the time ([`Duration`](std::time::Duration) since any fixed moment, never going back), and takes
//! out frames to write and events. [`HostLink`] is the debugger's end, [`TargetLink`] the machine's.
//!
//! Facts: ReactOS `windbgkd.h` for names and layouts; order, ids and timings as measured against
//! Microsoft's DbgEng 10.0.15063.

#![forbid(unsafe_code)]

mod decode;
mod frame;
mod host;
mod sequence;
mod target;

pub use decode::{Decoder, FrameError};
pub use frame::{BREAK_IN, Frame, MAX_PAYLOAD, PacketType, TooLong, checksum, encode_control, encode_data};
pub use host::{Expect, Failure, HostEvent, HostLink, HostOptions, SendError};
pub use sequence::Lost;
pub use target::{Retry, TargetEvent, TargetLink, TargetOptions};
