//! Tools of group `session`.

mod attach_kernel;
mod attach_process;
mod end_session;
mod interrupt;
mod launch;
mod open_dump;
mod opened;
mod server_log;
mod session_status;

use crate::tool::{Group, ToolEntry};

/// The group's tools in `tools/list` order.
pub(crate) fn tools() -> Vec<ToolEntry> {
    vec![
        ToolEntry::sessions::<open_dump::OpenDump>(Group::Session),
        ToolEntry::sessions::<attach_kernel::AttachKernel>(Group::Session),
        ToolEntry::sessions::<attach_process::AttachProcess>(Group::Session),
        ToolEntry::sessions::<launch::Launch>(Group::Session),
        ToolEntry::sessions::<interrupt::Interrupt>(Group::Session),
        ToolEntry::sessions::<end_session::EndSession>(Group::Session),
        ToolEntry::sessions::<session_status::SessionStatus>(Group::Session),
        ToolEntry::sessions::<server_log::ServerLog>(Group::Session),
    ]
}
