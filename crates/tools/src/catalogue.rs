//! The names of every tool the product has, served by this build or not (spec 20 section 5.1).

use crate::error::{Category, ToolError};
use crate::surface::Surface;

/// Group and members, in `tools/list` order.
pub const CATALOGUE: [(&str, &[&str]); 9] = [
    (
        "session",
        &[
            "open_dump",
            "open_trace",
            "attach_kernel",
            "attach_kernel_local",
            "attach_process",
            "launch",
            "interrupt",
            "end_session",
            "session_status",
            "server_log",
        ],
    ),
    (
        "inspect",
        &[
            "current_location",
            "registers",
            "read_memory",
            "backtrace",
            "modules",
            "threads",
            "disassemble",
            "dx",
            "set_symbol_path",
            "execute",
        ],
    ),
    (
        "exec",
        &[
            "go",
            "step_over",
            "step_into",
            "run_to_address",
            "set_breakpoint",
            "breakpoints",
            "clear_breakpoints",
            "continue_async",
            "wait_for_stop",
            "break_in",
        ],
    ),
    (
        "ttd",
        &[
            "step_back",
            "step_over_back",
            "reverse_go",
            "goto_position",
            "ttd_calls",
            "ttd_memory",
            "ttd_events",
            "index_trace",
            "record_trace",
        ],
    ),
    (
        "ioctl",
        &[
            "decode_ioctl",
            "driver_object",
            "device_object",
            "irp_stack",
            "ioctl_trace",
            "reachable_from_dispatch",
            "driver_hazards",
            "ioctl_map",
            "xrefs_to",
            "device_security",
            "driver_surface",
        ],
    ),
    (
        "allocator",
        &[
            "pool_find_tag",
            "pool_chunk",
            "pool_census",
            "pool_diagnostics",
            "pool_trace",
            "pool_trace_read",
            "heap_list",
            "heap_allocations",
            "heap_chunk",
            "heap_census",
            "heap_diagnostics",
            "walk_memory",
        ],
    ),
    ("crash", &["crash_triage", "exception_triage", "decode_error_reporting"]),
    ("batch", &["debug_batch"]),
    (
        "securekernel",
        &[
            "open_sk_capture",
            "sk_modules",
            "sk_read_memory",
            "sk_symbol",
            "open_sk_live_control",
            "sk_live_arm",
            "sk_live_wait",
            "sk_live_registers",
            "sk_live_read_memory",
            "sk_live_step",
            "sk_live_continue",
            "open_sk_kd",
        ],
    ),
];

/// The name as the catalogue spells it, when the product has a tool of it.
#[must_use]
pub fn known(name: &str) -> Option<&'static str> {
    CATALOGUE.iter().flat_map(|(_, tools)| tools.iter()).find(|tool| **tool == name).copied()
}

/// Whether the product has a tool of this name.
#[must_use]
pub fn contains(name: &str) -> bool {
    known(name).is_some()
}

/// The answer to a call of a tool the product has and `surface` does not serve; `None` when it is
/// served, or no tool at all.
#[must_use]
pub fn not_served(name: &str, surface: &Surface) -> Option<ToolError> {
    if surface.serves(name) || !contains(name) {
        return None;
    }
    let summary = surface.summary();
    let error = |text: String| Some(ToolError::new(Category::NotServed, text));
    if crate::find(name).is_none() {
        let text = format!(
            "{name} is a tool of windbg-mcp, but this build does not have it yet; it serves {summary}"
        );
        return error(text).map(|error| error.because("not_in_this_build"));
    }
    // Whose choice it was, so that whoever reads it asks the right person and not for other arguments.
    let text = match surface.chosen_by() {
        Some(source) => format!(
            "{name} is a tool of windbg-mcp that is not served here: {source} of whoever runs this server chose \
             {summary}; only they can add it"
        ),
        None => format!(
            "{name} is a tool of windbg-mcp that is not served unless --tools on the server's command line names \
             it; served are {summary}"
        ),
    };
    error(text).map(|error| error.because("not_on_this_surface"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seventy_eight_names_and_every_served_tool_in_its_group() {
        let names: std::collections::BTreeSet<&str> =
            CATALOGUE.iter().flat_map(|(_, tools)| tools.iter().copied()).collect();
        assert_eq!(names.len(), 78);
        let order: Vec<&str> = CATALOGUE.iter().flat_map(|(_, tools)| tools.iter().copied()).collect();
        let mut last = 0;
        for entry in crate::all().iter() {
            let at = order.iter().position(|name| *name == entry.name).unwrap();
            assert!(at >= last, "{} is out of order", entry.name);
            last = at;
            assert!(
                CATALOGUE.iter().any(|(g, tools)| *g == entry.group.name() && tools.contains(&entry.name))
            );
        }
    }
}
