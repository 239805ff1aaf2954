//! A whole stack.

use target::{Context, Found, Halt, WalkEnd};

use crate::source::UnwindSource;

/// One physical frame: its registers, how it was found, and where it returns to.
#[derive(Clone, Debug, PartialEq)]
pub struct RawFrame {
    pub context: Context,
    pub found: Found,
    /// Return address of this frame's function: the next frame's ip, 0 when unknown.
    pub return_address: u64,
    /// The context's ip is the instruction about to run, not a return address: symbols are looked
    /// up at the ip itself and not at the instruction before it.
    pub exact_ip: bool,
}

/// A walked stack, innermost frame first.
#[derive(Clone, Debug, PartialEq)]
pub struct RawStack {
    pub frames: Vec<RawFrame>,
    pub end: WalkEnd,
    /// What a reader must know, in sentences.
    pub limitations: Vec<String>,
}

/// Walks from `context`, at most `limit` frames (capped at 4096).
#[must_use]
pub fn walk(source: &dyn UnwindSource, context: &Context, limit: usize, halt: &Halt) -> RawStack {
    let _ = (source, context, limit, halt);
    RawStack { frames: Vec::new(), end: WalkEnd::Limit, limitations: Vec::new() }
}
