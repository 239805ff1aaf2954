//! Tools of group `allocator`.

mod walk_memory;
mod walk_result;

use crate::tool::{Group, ToolEntry};

/// The group's tools in `tools/list` order.
pub(crate) fn tools() -> Vec<ToolEntry> {
    vec![ToolEntry::worker::<walk_memory::WalkMemory>(Group::Allocator)]
}
