//! What only some targets can do. Written for live and reverse targets too, so that their engines
//! need no second vocabulary; a dump has none of these.

use std::time::Duration;

use crate::error::Result;
use crate::execution::ExceptionRecord;
use crate::halt::Halt;
use crate::memory::Space;

/// Writing to the target.
pub trait Write {
    /// Writes and verifies by reading back; says how many bytes hold the new value.
    fn write(&self, space: Space, address: u64, bytes: &[u8]) -> Result<usize>;
    fn set_register(&self, name: &str, value: u64) -> Result<()>;
}

/// How to resume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resume {
    Go,
    StepInto,
    StepOver,
}

/// Why a run stopped (spec 10 section 7.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopReason {
    Breakpoint { id: u32 },
    DataBreakpoint { id: u32 },
    Step,
    Exception { record: ExceptionRecord, first_chance: bool },
    BreakIn,
    ModuleLoad { name: String },
    ThreadEvent,
    EndOfTrace,
    Exited { code: Option<u32> },
    Unknown,
}

/// A stop after a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunStop {
    pub reason: StopReason,
    pub timed_out: bool,
    pub interrupted: bool,
    pub target_gone: bool,
    /// The thread injected for a break-in, if one was.
    pub break_thread: Option<u32>,
    /// Everything the engine printed meanwhile.
    pub output: String,
}

/// Letting the target move.
pub trait Run {
    /// Resumes and waits until the target stops. `on_moving` is called once the target really moves.
    ///
    /// A breakpoint at the current instruction is stepped off. When `bound` (never zero) or the halt's
    /// deadline passes, the engine breaks in and says `timed_out`; when the halt's flag is raised, it
    /// breaks in and says `interrupted`; when the target stopped by itself at that moment, `reason` is
    /// the target's own. The thread of the stop becomes the selected one. A break left over from an
    /// earlier run is drained first. Caches of memory, modules and threads are dropped, also when the
    /// run fails. An exception is passed on as not handled; a breakpoint, step or break-in is handled.
    fn resume(&self, how: Resume, bound: Duration, on_moving: &dyn Fn(), halt: &Halt) -> Result<RunStop>;
}

/// A watched access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Read,
    Write,
    ReadWrite,
    Execute,
    Io,
}

/// A breakpoint to set or as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Breakpoint {
    /// Chosen by the engine; ignored by [`Breakpoints::add`].
    pub id: u32,
    /// Where it is. To be set without one: deferred, `expression` is looked at again whenever a module loads.
    pub address: Option<u64>,
    /// How it was asked for; passed the operand guard.
    pub expression: Option<String>,
    pub watch: Option<(Access, u8)>,
    /// Run at each hit; `gc` at its end goes on.
    pub command: Option<String>,
    /// Kept by the engine. It may go on by itself where this is zero; `control` looks at it after
    /// every stop in any case.
    pub condition: Option<String>,
    /// System thread id.
    pub thread: Option<u32>,
    pub enabled: bool,
    pub one_shot: bool,
    /// Stops at this arrival, 1 for the first.
    pub pass_count: u32,
    /// Arrivals until the next stop, if the engine says.
    pub passes_remaining: Option<u32>,
    pub hits: Option<u32>,
}

/// Breakpoints. `control` decides what may be set; an engine sets it or leaves nothing behind.
pub trait Breakpoints {
    /// Sets it and answers it as read back.
    fn add(&self, breakpoint: &Breakpoint) -> Result<Breakpoint>;
    fn remove(&self, id: u32) -> Result<()>;
    /// All that were set, the engine's own temporary ones left out.
    fn list(&self) -> Result<Vec<Breakpoint>>;
}

/// Running backwards through a recording.
pub trait Reverse {
    fn reverse(&self, how: Resume, bound: Duration, halt: &Halt) -> Result<RunStop>;
    /// The current position in the recording's own spelling.
    fn position(&self) -> Result<String>;
    fn seek(&self, position: &str) -> Result<()>;
}

/// Physical memory.
pub trait Physical {
    /// Physical address behind a virtual one in the selected process.
    fn translate(&self, address: u64) -> Result<u64>;
}

/// The engine's own command interpreter.
pub trait Command {
    /// Runs one line, its output so far kept when it is cut.
    fn execute(&self, line: &str, halt: &Halt) -> Result<CommandOutput>;
    /// Runs one line and says what became of it apart from its text. One that left the target running
    /// is waited for: at most `wait` from its beginning, then it is broken in. `on_moving` is called
    /// once the target really moves.
    ///
    /// # Errors
    /// As [`Self::execute`]. That the engine said the line failed is [`Driven::failed`].
    fn drive(&self, line: &str, wait: Duration, on_moving: &dyn Fn(), halt: &Halt) -> Result<Driven> {
        let _ = on_moving;
        let output = self.execute(line, &halt.at_most(wait))?;
        Ok(Driven { output, ..Driven::default() })
    }
}

/// What a line of [`Command::drive`] came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Driven {
    pub output: CommandOutput,
    /// Why, when the engine said that it failed.
    pub failed: Option<String>,
    /// The stop, when the target moved. Its output is part of `output`.
    pub stop: Option<RunStop>,
}

/// What a raw command printed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandOutput {
    pub text: String,
    /// It was stopped before its end.
    pub cut_short: bool,
}

/// The debugger data model (`dx`).
pub trait DataModel {
    fn dx(&self, expression: &str, recursion: u32, halt: &Halt) -> Result<CommandOutput>;
}
