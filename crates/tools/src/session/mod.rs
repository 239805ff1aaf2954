//! Tools of group `session`.

use crate::tool::{Group, ToolEntry};

/// The group's tools in `tools/list` order.
pub(crate) fn tools() -> Vec<ToolEntry> {
    let _ = Group::Session;
    vec![]
}
