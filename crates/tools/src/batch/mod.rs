//! Tools of group `batch`.

mod debug_batch;
mod derived;
mod over_job;

use crate::tool::{Group, ToolEntry};

/// The group's tools in `tools/list` order.
pub(crate) fn tools() -> Vec<ToolEntry> {
    vec![ToolEntry::worker::<debug_batch::DebugBatch>(Group::Batch)]
}
