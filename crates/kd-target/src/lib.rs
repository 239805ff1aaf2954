//! The target half of the KD protocol: any machine that is a [`KdBackend`], served to a debugger.
//!
//! [`Server`] owns framing, ids, repeats, envelopes, which APIs have no reply, and the bounds; the backend
//! owns memory, registers and run control. Nothing here reads, writes or looks at a clock.

#![forbid(unsafe_code)]

mod backend;
mod server;

pub use backend::{KdBackend, Refusal, Resume, Stop, TargetMessage};
pub use server::{Options, Server, Summary};
