//! Why a file could not be opened.

use target::TargetError;

/// A refused open: what a result's error block carries.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct OpenError {
    /// Of the closed list of spec 20 section 1.3.
    pub category: &'static str,
    /// Finer cause (`malformed_file`, `foreign_platform`), snake_case.
    pub reason: Option<&'static str>,
    /// What happened, to what, and what to do next.
    pub message: String,
}

impl OpenError {
    pub(crate) fn malformed(message: impl Into<String>) -> Self {
        Self { category: "debugger", reason: Some("malformed_file"), message: message.into() }
    }
    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self { category: "debugger", reason: None, message: message.into() }
    }
    pub(crate) fn unsupported(reason: &'static str, message: impl Into<String>) -> Self {
        Self { category: "unsupported", reason: Some(reason), message: message.into() }
    }
}

impl From<dump::DumpError> for OpenError {
    fn from(error: dump::DumpError) -> Self {
        let (category, reason) = error.category();
        Self { category, reason, message: error.to_string() }
    }
}

impl From<OpenError> for TargetError {
    fn from(error: OpenError) -> Self {
        match error.category {
            "unsupported" => {
                Self::Unsupported { reason: error.reason.unwrap_or("unsupported"), message: error.message }
            }
            "interrupted" => Self::Interrupted,
            "timeout" => Self::Deadline("opening the file"),
            _ => Self::Failed { reason: error.reason, message: error.message },
        }
    }
}
