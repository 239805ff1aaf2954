//! The payloads of the KD protocol, typed, in both directions: what stands inside a data packet.
//!
//! | packet | types |
//! |---|---|
//! | `STATE_MANIPULATE` | [`Request`], [`Reply`] |
//! | `STATE_CHANGE64` | [`StateChange`] |
//! | `DEBUG_IO` | [`DebugIo`] |
//! | `FILE_IO` | [`FileRequest`], [`FileReply`] |
//! | `TRACE_IO`, `CONTROL_REQUEST` | [`TraceIo`], [`ControlRequest`] |
//!
//! and what a debugger reads from the target: [`Version`], [`DebuggerData`], [`Context`],
//! [`SpecialRegisters`]. Every decoder takes any bytes, allocates no more than they are long, and reads
//! only the fields its API defines: DbgEng leaves the others undefined. Machines are x64.
//!
//! Facts: the layouts of ReactOS `windbgkd.h` and the public `wdbgexts.h`, as measured against
//! Microsoft's DbgEng 10.0.15063.

#![forbid(unsafe_code)]

mod bytes;
mod context;
mod debug_io;
mod debugger_data;
mod file_io;
mod manipulate;
mod reply;
mod request;
mod special;
mod state_change;
mod version;

pub use context::{Context, flags as context_flags};
pub use debug_io::{ControlRequest, DebugIo, TraceIo};
pub use debugger_data::{DataField, DebuggerData, DebuggerDataError, Width};
pub use file_io::{FileReply, FileRequest, NO_SUCH_FILE};
pub use manipulate::{Answer, Api, ENVELOPE, MAX_VARIABLE, status};
pub use reply::{Reply, ReplyBody};
pub use request::{Continue2, FillSpace, Request};
pub use special::{SpecialRegisters, selector};
pub use state_change::{ControlReport, Exception, LoadSymbols, StateChange, StopReason};
pub use version::{KernelClass, Version, version_flags};

/// Bytes that are not the payload they should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Fewer bytes than the fixed part.
    #[error("{what} of {found} bytes; it has at least {needed}")]
    Short { what: &'static str, needed: usize, found: usize },
    /// A number that this payload cannot carry.
    #[error("{what} {found:#x} is none that is known")]
    Unknown { what: &'static str, found: u64 },
    /// A count or length that does not agree with the bytes that came.
    #[error("{what} tells {told} bytes, {found} came")]
    Length { what: &'static str, told: u64, found: usize },
    /// The answer to another request.
    #[error("asked {asked:#x}, answered {answered:#x}")]
    OtherApi { asked: u32, answered: u32 },
}
