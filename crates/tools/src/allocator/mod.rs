//! Tools of group `allocator`.

use crate::tool::ToolEntry;

/// The group's tools in `tools/list` order.
pub(crate) fn tools() -> Vec<ToolEntry> {
    Vec::new()
}
