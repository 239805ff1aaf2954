//! Running to an address, the breakpoints as they were on every way out.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use target::capability::{Resume, RunStop, StopReason};
use target::{Address, Result, Rva, Target};

use crate::breakpoint::readable_code;
use crate::location::{Position, pointers, position};
use crate::output::Output;
use crate::run::{Control, Drive, Temporary, effective};
use crate::stop::{Reason, milliseconds, reason};
use crate::targets::{breakpoints_of, run_of};

/// How a run to an address ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum Verdict {
    Hit,
    StoppedElsewhere,
    /// Broken in when its time was up, and stopped.
    Timeout,
    TargetGone,
}

/// What a run to an address came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunTo {
    pub verdict: Verdict,
    /// The address it was to reach.
    pub target: Address,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped_at: Option<Address>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub module: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rva: Option<Rva>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub symbol: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub displacement: Option<Rva>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processor: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub interrupted: bool,
    pub elapsed_ms: u64,
    /// The bound in effect.
    pub timeout_ms: u64,
    pub output: String,
}

/// Runs until execution arrives at `address`, at most `bound`. At the address already, it steps off
/// and runs to the next arrival.
///
/// # Errors
/// `Unsupported`; an address no code can be read at; the engine's own.
pub fn run_to(control: &mut Control<'_>, address: u64, bound: Duration) -> Result<RunTo> {
    let target = control.target;
    let run = run_of(target)?;
    breakpoints_of(target)?;
    readable_code(target, address)?;
    let bound = effective(bound, control.halt)?;
    let mut output = Output::default();
    let mut drive = Drive::new(control, run, bound);
    let (stop, temporary) = arrive(&mut drive, target, address, &mut output)?;
    let elapsed = drive.elapsed();
    let at = if stop.target_gone { Position::default() } else { position(target) };
    let verdict = if stop.target_gone {
        Verdict::TargetGone
    } else if at.ip == Some(Address(address)) {
        Verdict::Hit
    } else if stop.timed_out {
        Verdict::Timeout
    } else {
        Verdict::StoppedElsewhere
    };
    Ok(RunTo {
        verdict,
        target: Address(address),
        stopped_at: at.ip,
        module: at.module,
        rva: at.rva,
        symbol: at.symbol,
        displacement: at.displacement,
        thread: at.thread,
        processor: at.processor,
        reason: Some(reason(&stop.reason, temporary)),
        interrupted: stop.interrupted,
        elapsed_ms: milliseconds(elapsed),
        timeout_ms: milliseconds(bound),
        output: output.finish(),
    })
}

/// The stop, and the id of the temporary breakpoint if one was set.
fn arrive(
    drive: &mut Drive<'_, '_>,
    target: &dyn Target,
    address: u64,
    output: &mut Output,
) -> Result<(RunStop, Option<u32>)> {
    if pointers(target).is_some_and(|(ip, _)| ip == address) {
        let stop = drive.stop(off(target, address), None, output)?;
        let stepped = matches!(stop.reason, StopReason::Step) && !stop.timed_out && !stop.interrupted;
        if stop.target_gone || !stepped || pointers(target).is_some_and(|(ip, _)| ip == address) {
            return Ok((stop, None));
        }
    }
    let temporary = Temporary::set(target, address, None)?;
    let stop = drive.stop(Resume::Go, Some(temporary.id), output)?;
    Ok((stop, Some(temporary.id)))
}

/// A repeated string instruction stands where it is until it is done, so it is stepped as a whole.
fn off(target: &dyn Target, address: u64) -> Resume {
    let text = target.disassemble(address, 1).ok().and_then(|rows| rows.into_iter().next()?.text);
    if text.is_some_and(|text| text.starts_with("rep")) { Resume::StepOver } else { Resume::StepInto }
}
