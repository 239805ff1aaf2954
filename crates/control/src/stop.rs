//! The stop record (spec 10 section 7.1).

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use target::capability::{Resume, RunStop, StopReason};
use target::{Address, Code, Rva, Target};

use crate::location::position;

fn is_false(value: &bool) -> bool {
    !*value
}

/// What a run came to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StopRecord {
    /// What was run: `g`, `p`, `t`.
    pub command: String,
    /// Instruction pointer after it; absent when the target is gone or has no context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped_at: Option<Address>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub module: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rva: Option<Rva>,
    /// Only from symbols that are loaded already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub symbol: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub displacement: Option<Rva>,
    /// Whose position it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processor: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// Broken in on request.
    #[serde(default, skip_serializing_if = "is_false")]
    pub interrupted: bool,
    /// Its own bound passed and the debugger broke in; the position is where it happened to be.
    #[serde(default, skip_serializing_if = "is_false")]
    pub timed_out: bool,
    /// The bound that passed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound_ms: Option<u64>,
    /// It ran to its end or was released.
    #[serde(default, skip_serializing_if = "is_false")]
    pub target_gone: bool,
    /// The thread a break-in was made through.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub break_thread: Option<u32>,
    /// Everything the engine printed meanwhile.
    pub output: String,
}

/// Why it stopped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Reason {
    pub kind: ReasonKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub breakpoint: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exception: Option<ExceptionPart>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<Code>,
    /// Of a module load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loaded: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum ReasonKind {
    Breakpoint,
    DataBreakpoint,
    Step,
    Exception,
    BreakIn,
    ModuleLoad,
    ThreadEvent,
    EndOfTrace,
    Exited,
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ExceptionPart {
    pub code: Code,
    pub first_chance: bool,
    pub address: Address,
}

impl Reason {
    fn of(kind: ReasonKind) -> Self {
        Self { kind, breakpoint: None, exception: None, exit_code: None, loaded: None }
    }

    /// In a few words.
    #[must_use]
    pub fn describe(&self) -> String {
        let id = |what: &str| match self.breakpoint {
            Some(id) => format!("{what} {id}"),
            None => format!("a {what}"),
        };
        match self.kind {
            ReasonKind::Breakpoint => id("breakpoint"),
            ReasonKind::DataBreakpoint => id("data breakpoint"),
            ReasonKind::Step => "step done".to_owned(),
            ReasonKind::Exception => match &self.exception {
                Some(e) if e.first_chance => format!("exception {} at {}, first chance", e.code, e.address),
                Some(e) => format!("exception {} at {}, not handled", e.code, e.address),
                None => "an exception".to_owned(),
            },
            ReasonKind::BreakIn => "break-in".to_owned(),
            ReasonKind::ModuleLoad => {
                self.loaded.as_ref().map_or_else(|| "a module loaded".to_owned(), |n| format!("{n} loaded"))
            }
            ReasonKind::ThreadEvent => "a thread started or ended".to_owned(),
            ReasonKind::EndOfTrace => "the end of the recording".to_owned(),
            ReasonKind::Exited => {
                self.exit_code.map_or_else(|| "it exited".to_owned(), |code| format!("it exited with {code}"))
            }
            ReasonKind::Unknown => "the engine gave no reason".to_owned(),
        }
    }
}

/// The reason as records carry it; `temporary` is a breakpoint no inventory shows.
pub(crate) fn reason(from: &StopReason, temporary: Option<u32>) -> Reason {
    let shown = |id: u32| Some(id).filter(|id| Some(*id) != temporary);
    match from {
        StopReason::Breakpoint { id } => {
            Reason { breakpoint: shown(*id), ..Reason::of(ReasonKind::Breakpoint) }
        }
        StopReason::DataBreakpoint { id } => {
            Reason { breakpoint: shown(*id), ..Reason::of(ReasonKind::DataBreakpoint) }
        }
        StopReason::Step => Reason::of(ReasonKind::Step),
        StopReason::Exception { record, first_chance } => {
            let (code, address) = (Code(record.code), Address(record.address));
            let exception = Some(ExceptionPart { code, first_chance: *first_chance, address });
            Reason { exception, ..Reason::of(ReasonKind::Exception) }
        }
        StopReason::BreakIn => Reason::of(ReasonKind::BreakIn),
        StopReason::ModuleLoad { name } => {
            Reason { loaded: Some(name.clone()), ..Reason::of(ReasonKind::ModuleLoad) }
        }
        StopReason::ThreadEvent => Reason::of(ReasonKind::ThreadEvent),
        StopReason::EndOfTrace => Reason::of(ReasonKind::EndOfTrace),
        StopReason::Exited { code } => Reason { exit_code: code.map(Code), ..Reason::of(ReasonKind::Exited) },
        StopReason::Unknown => Reason::of(ReasonKind::Unknown),
    }
}

pub(crate) fn command(how: Resume) -> &'static str {
    match how {
        Resume::Go => "g",
        Resume::StepInto => "t",
        Resume::StepOver => "p",
    }
}

pub(crate) fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl StopRecord {
    /// The record of `stop`, its position asked of the stopped target.
    pub(crate) fn new(target: &dyn Target, how: Resume, stop: RunStop, bound: Duration) -> Self {
        let reason = Some(reason(&stop.reason, None));
        let at = if stop.target_gone { Default::default() } else { position(target) };
        Self {
            command: command(how).to_owned(),
            stopped_at: at.ip,
            module: at.module,
            rva: at.rva,
            symbol: at.symbol,
            displacement: at.displacement,
            thread: at.thread,
            processor: at.processor,
            reason,
            interrupted: stop.interrupted,
            timed_out: stop.timed_out,
            bound_ms: stop.timed_out.then(|| milliseconds(bound)),
            target_gone: stop.target_gone,
            break_thread: stop.break_thread,
            output: stop.output,
        }
    }
}
