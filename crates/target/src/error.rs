//! Errors of a target. Each maps to one category of spec 20 section 1.3 by an exhaustive match.

use crate::memory::{ReadError, Unreadable};

/// What a target could not do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// This engine, target kind or architecture cannot do it; the message names what could.
    #[error("{message}")]
    Unsupported { reason: &'static str, message: String },
    /// The engine tried and failed.
    #[error("{message}")]
    Failed { reason: Option<&'static str>, message: String },
    #[error(transparent)]
    Unreadable(#[from] ReadError),
    /// Refused before the engine was asked.
    #[error("{0}")]
    InvalidArgument(String),
    #[error("the target is running")]
    Running,
    /// There is no target any more.
    #[error("the target is gone: {0}")]
    Gone(String),
    #[error("interrupted on request")]
    Interrupted,
    /// The call's time ran out before the engine could finish.
    #[error("{0} was cut short: the call's time ran out")]
    Deadline(&'static str),
}

pub type Result<T, E = TargetError> = std::result::Result<T, E>;

impl TargetError {
    #[must_use]
    pub fn unsupported(reason: &'static str, message: impl Into<String>) -> Self {
        Self::Unsupported { reason, message: message.into() }
    }
    #[must_use]
    pub fn failed(message: impl Into<String>) -> Self {
        Self::Failed { reason: None, message: message.into() }
    }
    #[must_use]
    pub fn failed_because(reason: &'static str, message: impl Into<String>) -> Self {
        Self::Failed { reason: Some(reason), message: message.into() }
    }

    /// `(category, reason)` as results carry them.
    #[must_use]
    pub fn category(&self) -> (&'static str, Option<&'static str>) {
        match self {
            Self::Unsupported { reason, .. } => ("unsupported", Some(reason)),
            Self::Failed { reason, .. } => ("debugger", *reason),
            Self::Unreadable(ReadError { why: Unreadable::Interrupted, .. }) | Self::Interrupted => {
                ("interrupted", None)
            }
            Self::Unreadable(ReadError { why: Unreadable::Deadline, .. }) | Self::Deadline(_) => {
                ("timeout", None)
            }
            Self::Unreadable(error) => ("debugger", Some(error.why.reason())),
            Self::InvalidArgument(_) => ("invalid_argument", None),
            Self::Running => ("target_running", None),
            Self::Gone(_) => ("stale_session", None),
        }
    }
}
