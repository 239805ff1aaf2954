//! What the supervisor may ask of a worker besides running a tool.

use serde_json::Value;

use crate::error::ToolError;
use crate::tool::Job;

/// A worker operation.
pub type Operation = for<'a, 'b> fn(&'a mut Job<'b>, Value) -> Result<Value, ToolError>;

/// Lets the target run until it stops; what `continue_async` has a worker do.
pub const RUN: &str = "continue_async";

/// Where a symbol is; its argument is `name`.
pub const SYMBOL: &str = "resource symbol";
/// Loaded modules that begin with the argument `prefix`.
pub const COMPLETE_MODULE: &str = "complete module";
/// Loaded symbols that begin with the argument `prefix`.
pub const COMPLETE_SYMBOL: &str = "complete symbol";

/// The operation of this name.
#[must_use]
pub fn find(name: &str) -> Option<Operation> {
    match name {
        "set_symbol_path" => Some(crate::inspect::set_symbol_path_operation),
        RUN => Some(crate::exec::run_operation),
        SYMBOL => Some(crate::lookup::symbol),
        COMPLETE_MODULE => Some(crate::lookup::complete_module),
        COMPLETE_SYMBOL => Some(crate::lookup::complete_symbol),
        _ => None,
    }
}
