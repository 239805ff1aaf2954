//! What the supervisor may ask of a worker besides running a tool.

use serde_json::Value;

use crate::error::ToolError;
use crate::tool::Job;

/// A worker operation.
pub type Operation = for<'a, 'b> fn(&'a mut Job<'b>, Value) -> Result<Value, ToolError>;

/// Lets the target run until it stops; what `continue_async` has a worker do.
pub const RUN: &str = "continue_async";

/// The operation of this name.
#[must_use]
pub fn find(name: &str) -> Option<Operation> {
    match name {
        "set_symbol_path" => Some(crate::inspect::set_symbol_path_operation),
        RUN => Some(crate::exec::run_operation),
        _ => None,
    }
}
