//! Tools of group `crash`.

mod crash_triage;
mod decode_error_reporting;
mod exception_triage;

use crate::tool::{Group, ToolEntry};

/// The group's tools in `tools/list` order.
pub(crate) fn tools() -> Vec<ToolEntry> {
    vec![
        ToolEntry::worker::<crash_triage::CrashTriageTool>(Group::Crash),
        ToolEntry::worker::<exception_triage::ExceptionTriageTool>(Group::Crash),
        ToolEntry::pure::<decode_error_reporting::DecodeErrorReporting>(Group::Crash),
    ]
}
