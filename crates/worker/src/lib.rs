//! A worker: one process, one engine, one target (spec 10 section 1).
//!
//! The binary hands over [`Factories`] and calls [`main`] first thing. Three threads: the reader
//! (the caller's) takes request lines and acts at once on interrupts and cancels; the engine thread
//! alone touches the target and runs one job at a time; the log writer mirrors records up the
//! channel.

mod emit;
mod engine;
mod jobs;
mod logs;
mod memory;
mod panics;
mod reader;
pub mod scripted;
mod stdio;

use std::sync::Arc;

use target::{Halt, Progress, Target};
use tools::{Job, OpenReport, OpenRequest, ToolError};

pub use memory::BoundedAllocator;

/// What an opener tells while it works.
pub trait Opener: Progress {
    /// The target now exists or is claimed: from here on a failure leaves something behind.
    /// Called for the factory when it returns `Ok` without having said so.
    fn committed(&self);
    /// To be called, on any thread, when a remote kernel that was dialled has answered: from then on a
    /// break reaches it.
    fn when_connected(&self) -> Arc<dyn Fn() + Send + Sync> {
        Arc::new(|| {})
    }
}

/// Opens what a request asks for, on the engine thread.
pub type Open =
    dyn Fn(&OpenRequest, &dyn Opener, &Halt) -> Result<(Box<dyn Target>, OpenReport), ToolError> + Send;

/// Something a worker does that is not a tool: `set_symbol_path`'s half, test operations.
pub type Operation =
    for<'a, 'b> fn(&'a mut Job<'b>, serde_json::Value) -> Result<serde_json::Value, ToolError>;

/// Finds the engine before the worker says it is ready, on the engine thread; else says why there is
/// none.
pub type Prepare = dyn FnOnce() -> Result<(), String> + Send;

/// What the binary wires into its worker role.
pub struct Factories {
    /// `native`, `dbgeng`.
    pub engine: &'static str,
    pub prepare: Option<Box<Prepare>>,
    pub open: Box<Open>,
    /// Operations beyond the tools' and [`tools::operations`]; the binary has none.
    pub operations: Vec<(&'static str, Operation)>,
}

/// Exit code when the channel cannot be set up.
const NO_CHANNEL: i32 = 2;

/// The worker's whole life. Takes over stdin and stdout as its channel before anything else, serves
/// until told to end or until the supervisor goes away, and answers the exit code.
pub fn main(factories: Factories) -> i32 {
    let channel = match stdio::adopt() {
        Ok(channel) => channel,
        Err(error) => {
            eprintln!("windbg-mcp worker: cannot take over stdin and stdout: {error}");
            return NO_CHANNEL;
        }
    };
    let emitter = Arc::new(emit::Emitter::new(channel.output));
    let logs = logs::start(Arc::clone(&emitter));
    panics::install();
    memory::bound();
    let jobs = Arc::new(jobs::Jobs::default());
    let engine = engine::start(factories, Arc::clone(&jobs), Arc::clone(&emitter));
    let code = match engine {
        Ok(()) => reader::read(channel.input, &jobs, &emitter),
        Err(error) => {
            emitter
                .emit(&channel::Message::Fatal { text: format!("the engine thread did not start: {error}") });
            1
        }
    };
    logs.flush();
    code
}
