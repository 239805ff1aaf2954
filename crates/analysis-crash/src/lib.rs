//! Crash analysis as pure functions of a [`target::Target`]: bug checks, user-mode exceptions,
//! failure buckets and their hashes.
//!
//! No debugger command is issued and no selection is moved. Every step is best-effort: a failed read
//! loses one field, never the call.

mod owner;
mod result;

pub use owner::Owners;
pub use result::*;

use target::{Halt, Result, Target};

/// How to triage a bug check.
#[derive(Clone, Debug)]
pub struct CrashParams {
    /// Physical frames to walk, 1..=128.
    pub frames: usize,
    /// Whether to run the analysis (tag, bucket, leads).
    pub analyze: bool,
    pub owners: Owners,
}

impl Default for CrashParams {
    fn default() -> Self {
        Self { frames: 16, analyze: true, owners: Owners::default() }
    }
}

/// How to triage an exception.
#[derive(Clone, Debug)]
pub struct ExceptionParams {
    /// Physical frames to walk, 1..=128.
    pub frames: usize,
    /// Whether the stack may be searched for a buried throw.
    pub scan_stack: bool,
    pub owners: Owners,
}

impl Default for ExceptionParams {
    fn default() -> Self {
        Self { frames: 32, scan_stack: true, owners: Owners::default() }
    }
}

/// Triages a kernel bug check. Refuses user-mode targets, and kernel targets without a bug check.
pub fn crash_triage(target: &dyn Target, params: &CrashParams, halt: &Halt) -> Result<CrashTriage> {
    let _ = (target, params, halt);
    Err(target::TargetError::unsupported("not_served", "crash_triage is being written"))
}

/// Triages a user-mode exception. Refuses kernel targets, and targets without an exception record.
pub fn exception_triage(
    target: &dyn Target,
    params: &ExceptionParams,
    halt: &Halt,
) -> Result<ExceptionTriage> {
    let _ = (target, params, halt);
    Err(target::TargetError::unsupported("not_served", "exception_triage is being written"))
}

/// The report of a bug check for a person (spec 60 section 1.5's order).
#[must_use]
pub fn render_crash(triage: &CrashTriage) -> String {
    triage.verdict.sentence.clone()
}

/// The report of an exception for a person.
#[must_use]
pub fn render_exception(triage: &ExceptionTriage) -> String {
    triage.verdict.sentence.clone()
}
