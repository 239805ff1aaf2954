//! Tools of group `ioctl`.

use crate::tool::ToolEntry;

/// The group's tools in `tools/list` order.
pub(crate) fn tools() -> Vec<ToolEntry> {
    Vec::new()
}
