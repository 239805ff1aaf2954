//! The native engine's end of the KD protocol (spec 71): a live Windows kernel as a
//! [`target::Target`], on any host, over TCP or a Unix socket.
//!
//! [`attach`] dials, stops the target if it runs, and learns what it is. What is built on single
//! requests (modules, stacks, breakpoints, steps) is `engine-native`'s, over the
//! [`engine_native::live::LiveKernel`] that this crate serves. x64 kernels are served.

mod attach;
mod context;
mod kernel;
mod link;
mod output;
mod requests;
mod resume;
mod slots;
mod stops;

use std::time::Duration;

pub use attach::{Watch, attach, attach_stream};
use kd_transport::TransportError;

/// How to attach.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long one packet may go unanswered before it is repeated.
    pub timeout: Duration,
    /// How long a target that asks for a line of text is let wait before it gets an empty one.
    pub input_wait: Duration,
    /// How long a target that answers may take to stop.
    pub stop_within: Duration,
    /// What the target is called in answers.
    pub aim: String,
    pub symbols: engine_native::OpenOptions,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(4),
            input_wait: Duration::from_secs(10),
            stop_within: Duration::from_secs(60),
            aim: String::new(),
            symbols: engine_native::OpenOptions::default(),
        }
    }
}

/// Why there is no session.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// The call's time ran out, or it was broken off. Nothing was stopped, or it runs again.
    #[error("the attach was ended: {0}")]
    Ended(&'static str),
    /// It answers, and does not stop.
    #[error(
        "the target answers on its debug port and did not stop within {} s of that; it may be starting, or \
         run with interrupts off: attach again",
        .0.as_secs()
    )]
    DoesNotStop(Duration),
    /// It speaks KD and is nothing this engine serves.
    #[error("{0}")]
    Unsupported(String),
    /// It stopped and then did not answer as a KD target does.
    #[error("{0}")]
    Failed(String),
}

impl AttachError {
    /// `(category, reason)` as results carry them.
    #[must_use]
    pub fn category(&self) -> (&'static str, Option<&'static str>) {
        match self {
            Self::Transport(TransportError::Unsupported { .. } | TransportError::NoSuchTransport { .. }) => {
                ("unsupported", Some("foreign_transport"))
            }
            Self::Transport(TransportError::Halted) | Self::Ended("the call's time ran out") => {
                ("timeout", None)
            }
            Self::Ended(_) => ("interrupted", None),
            Self::Unsupported(_) => ("unsupported", Some("foreign_architecture")),
            Self::Transport(_) | Self::DoesNotStop(_) | Self::Failed(_) => ("debugger", None),
        }
    }
}
