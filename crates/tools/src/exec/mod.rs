//! Tools of group `exec`: letting a target move, stopping it, and what it stops on.

mod break_in;
mod breakpoints;
mod clear_breakpoints;
mod continue_async;
mod derived;
mod go;
mod records;
mod run_to_address;
mod set_breakpoint;
mod step_into;
mod step_over;
mod stops;
mod wait_for_stop;

use std::time::Duration;

use control::{Control, StopRecord};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use target::TargetError;
use target::capability::Resume;

use crate::error::{Category, ToolError};
use crate::tool::{Group, Job, ToolEntry};

/// How long a run is waited for, and how long it may run, when the caller does not say.
const DEFAULT_MS: u64 = 60_000;

/// The group's tools in `tools/list` order.
pub(crate) fn tools() -> Vec<ToolEntry> {
    vec![
        ToolEntry::worker::<go::Go>(Group::Exec),
        ToolEntry::worker::<step_over::StepOver>(Group::Exec),
        ToolEntry::worker::<step_into::StepInto>(Group::Exec),
        ToolEntry::worker::<run_to_address::RunToAddress>(Group::Exec),
        ToolEntry::worker::<set_breakpoint::SetBreakpoint>(Group::Exec),
        ToolEntry::worker::<breakpoints::Breakpoints>(Group::Exec),
        ToolEntry::worker::<clear_breakpoints::ClearBreakpoints>(Group::Exec),
        ToolEntry::sessions::<continue_async::ContinueAsync>(Group::Exec),
        ToolEntry::sessions::<wait_for_stop::WaitForStop>(Group::Exec),
        ToolEntry::sessions::<break_in::BreakIn>(Group::Exec),
    ]
}

/// Gives `act` what a run needs. Whatever it comes to, the scope of raw commands belongs to the
/// stop before and is dropped.
fn controlled<T>(
    job: &mut Job<'_>,
    act: impl FnOnce(&mut Control<'_>) -> Result<T, TargetError>,
) -> Result<T, ToolError> {
    let progress = job.progress;
    let moving = || progress.moving();
    let mut control = Control { target: job.target, runs: job.runs, halt: job.halt, moving: &moving };
    let answer = act(&mut control);
    job.commands.reset_scope();
    answer.map_err(refused)
}

/// A refusal of a target that does not move names the openers of those that do.
fn refused(error: TargetError) -> ToolError {
    match error {
        error @ TargetError::Unsupported { .. } => {
            ToolError::from(error).then(&["launch", "attach_process", "session_status"])
        }
        TargetError::Deadline(doing) => ToolError::new(
            Category::NotRun,
            format!("{doing} was cut short: the call's time ran out. The target was left as it is"),
        ),
        error => error.into(),
    }
}

/// Runs or steps, the bound in milliseconds.
fn run(job: &mut Job<'_>, how: Resume, bound_ms: Option<u64>) -> Result<StopRecord, ToolError> {
    let bound = Duration::from_millis(bound_ms.unwrap_or(DEFAULT_MS));
    controlled(job, |control| control::run(control, how, bound))
}

/// Arguments of the operation behind `continue_async`.
#[derive(Debug, Serialize, Deserialize)]
struct RunArgs {
    max_run_ms: u64,
}

/// Lets the target run to its stop record; the supervisor does not wait for it.
pub(crate) fn run_operation(job: &mut Job<'_>, args: Value) -> Result<Value, ToolError> {
    let args: RunArgs = serde_json::from_value(args)
        .map_err(|error| ToolError::new(Category::Internal, format!("arguments of a run: {error}")))?;
    let stop = run(job, Resume::Go, Some(args.max_run_ms))?;
    serde_json::to_value(stop)
        .map_err(|error| ToolError::new(Category::Internal, format!("a stop did not serialise: {error}")))
}
