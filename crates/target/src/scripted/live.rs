//! What a scripted target does when it is resumed, and its breakpoints.

use std::time::Duration;

use serde::Deserialize;

use super::{ScriptedTarget, Step, absent, play};
use crate::capability::{Breakpoint, Breakpoints, Resume, Run, RunStop, StopReason};
use crate::error::{Result, TargetError};
use crate::execution::ExceptionRecord;
use crate::halt::{Halt, Stop};
use crate::value::{Address, Code};

/// What one resume does. A break or the bound that cuts `steps` is the stop; else `stop` is.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ScriptRun {
    /// Whether the target really moves.
    pub moves: bool,
    pub steps: Vec<Step>,
    pub stop: ScriptStop,
    /// Where it stands afterwards; where it stood before when `None`.
    pub ip: Option<Address>,
    /// The thread it stops on.
    pub thread: Option<u32>,
    /// The thread a break-in was made through.
    pub break_thread: Option<u32>,
}

impl Default for ScriptRun {
    fn default() -> Self {
        let stop = ScriptStop::BreakIn;
        Self { moves: true, steps: Vec::new(), stop, ip: None, thread: None, break_thread: None }
    }
}

/// Why a scripted run stops by itself.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScriptStop {
    Step,
    BreakIn,
    Breakpoint {
        id: u32,
    },
    /// The breakpoint set last: what a temporary one is hit as.
    NewestBreakpoint,
    DataBreakpoint {
        id: u32,
    },
    Exception {
        code: Code,
        address: Address,
        first_chance: bool,
    },
    ModuleLoad {
        name: String,
    },
    /// The target is gone afterwards.
    Exited {
        code: Option<u32>,
    },
}

impl ScriptStop {
    fn reason(&self, newest: u32) -> StopReason {
        match self {
            Self::Step => StopReason::Step,
            Self::BreakIn => StopReason::BreakIn,
            Self::Breakpoint { id } => StopReason::Breakpoint { id: *id },
            Self::NewestBreakpoint => StopReason::Breakpoint { id: newest },
            Self::DataBreakpoint { id } => StopReason::DataBreakpoint { id: *id },
            Self::Exception { code, address, first_chance } => StopReason::Exception {
                record: ExceptionRecord { code: code.0, address: address.0, ..ExceptionRecord::default() },
                first_chance: *first_chance,
            },
            Self::ModuleLoad { name } => StopReason::ModuleLoad { name: name.clone() },
            Self::Exited { code } => StopReason::Exited { code: *code },
        }
    }
}

impl ScriptedTarget {
    fn next_run(&self) -> Result<ScriptRun> {
        let done = self.resumes.get();
        self.resumes.set(done + 1);
        let run = self.runs.get(done).or(self.runs.last());
        run.cloned().ok_or_else(|| absent("run left"))
    }

    /// How often it was resumed.
    #[must_use]
    pub fn resumes(&self) -> usize {
        self.resumes.get()
    }
}

impl Run for ScriptedTarget {
    fn resume(&self, how: Resume, bound: Duration, on_moving: &dyn Fn(), halt: &Halt) -> Result<RunStop> {
        self.fails("resume")?;
        let run = self.next_run()?;
        let word = match how {
            Resume::Go => "g",
            Resume::StepInto => "t",
            Resume::StepOver => "p",
        };
        let before = self.history.borrow().clone();
        self.history.borrow_mut().push(word.to_owned());
        if run.moves {
            on_moving();
        }
        let halt = halt.at_most(bound);
        let played = play(&run.steps, &before, &halt)?;
        let halted = halt.stop();
        let own = run.stop.reason(self.next_breakpoint.get().saturating_sub(1));
        let (reason, timed_out) = match halted {
            Some(Stop::Deadline) if played.cut_short => (StopReason::BreakIn, true),
            Some(Stop::Interrupted) if played.cut_short => (StopReason::BreakIn, false),
            _ => (own, false),
        };
        if let Some(ip) = run.ip {
            self.ip.set(Some(ip.0));
        }
        if let Some(thread) = run.thread.or(run.break_thread) {
            self.selection.set(self.selecting(thread));
        }
        let target_gone = matches!(reason, StopReason::Exited { .. });
        self.gone.set(target_gone);
        Ok(RunStop {
            reason,
            timed_out,
            interrupted: halted == Some(Stop::Interrupted),
            target_gone,
            break_thread: run.break_thread,
            output: played.text,
        })
    }
}

impl Breakpoints for ScriptedTarget {
    fn add(&self, breakpoint: &Breakpoint) -> Result<Breakpoint> {
        self.fails("add_breakpoint")?;
        let id = self.next_breakpoint.get();
        self.next_breakpoint.set(id + 1);
        let passes_remaining = Some(breakpoint.pass_count);
        let set = Breakpoint { id, enabled: true, passes_remaining, hits: Some(0), ..breakpoint.clone() };
        self.breakpoints.borrow_mut().push(set.clone());
        Ok(set)
    }
    fn remove(&self, id: u32) -> Result<()> {
        self.fails("remove_breakpoint")?;
        let mut all = self.breakpoints.borrow_mut();
        let at = all.iter().position(|breakpoint| breakpoint.id == id);
        let at = at.ok_or_else(|| TargetError::failed(format!("there is no breakpoint {id}")))?;
        all.remove(at);
        Ok(())
    }
    fn list(&self) -> Result<Vec<Breakpoint>> {
        self.fails("list_breakpoints")?;
        Ok(self.breakpoints.borrow().clone())
    }
}
