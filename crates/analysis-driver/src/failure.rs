//! Failures of this group, with the reasons of spec 40 section 1.2.

use target::TargetError;

pub(crate) fn because(reason: &'static str, message: impl Into<String>) -> TargetError {
    TargetError::failed_because(reason, message)
}

pub(crate) fn unreadable(what: &str, error: target::memory::ReadError) -> TargetError {
    because("unreadable", format!("{what}: {error}"))
}
