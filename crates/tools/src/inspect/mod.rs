//! Tools of group `inspect`.

mod backtrace;
mod clip;
mod current_location;
mod disassemble;
mod dx;
mod execute;
mod modules;
mod read_memory;
mod registers;
mod set_symbol_path;
mod threads;

use crate::tool::{Group, ToolEntry};

pub(crate) use set_symbol_path::operation as set_symbol_path_operation;

/// The group's tools in `tools/list` order.
pub(crate) fn tools() -> Vec<ToolEntry> {
    vec![
        ToolEntry::worker::<current_location::CurrentLocation>(Group::Inspect),
        ToolEntry::worker::<registers::Registers>(Group::Inspect),
        ToolEntry::worker::<read_memory::ReadMemory>(Group::Inspect),
        ToolEntry::worker::<backtrace::Backtrace>(Group::Inspect),
        ToolEntry::worker::<modules::Modules>(Group::Inspect),
        ToolEntry::worker::<threads::Threads>(Group::Inspect),
        ToolEntry::worker::<disassemble::Disassemble>(Group::Inspect),
        ToolEntry::worker::<dx::Dx>(Group::Inspect),
        ToolEntry::sessions::<set_symbol_path::SetSymbolPath>(Group::Inspect),
        ToolEntry::worker::<execute::Execute>(Group::Inspect),
    ]
}
