//! Tools of group `ioctl`.

mod decode_ioctl;

use crate::tool::{Group, ToolEntry};

/// The group's tools in `tools/list` order.
pub(crate) fn tools() -> Vec<ToolEntry> {
    vec![ToolEntry::pure::<decode_ioctl::DecodeIoctl>(Group::Ioctl)]
}
