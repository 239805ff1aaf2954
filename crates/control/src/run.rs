//! Runs and steps: bounded, with breaks told apart by who asked for them.

use std::time::{Duration, Instant};

use target::capability::{Breakpoint, Resume, RunStop, StopReason};
use target::{Flow, Halt, Result, Run, Selection, Target, TargetError};

use crate::location::pointers;
use crate::output::Output;
use crate::stop::StopRecord;
use crate::targets::run_of;

/// What one run leaves for the next. One a target, kept by whoever holds the target.
#[derive(Debug, Default)]
pub struct Runs {
    /// A break was raised for the run before and the target stopped by itself (spec 10 section 7.8).
    undelivered: bool,
    /// Breakpoints whose hits are looked at in passing.
    pub(crate) observed: Vec<crate::observe::Observed>,
}

/// What a run needs beside the target.
pub struct Control<'a> {
    pub target: &'a dyn Target,
    pub runs: &'a mut Runs,
    /// The bound and the break flag of the job.
    pub halt: &'a Halt,
    /// Called once the target really moves; perhaps more than once.
    pub moving: &'a dyn Fn(),
}

/// The bound a run gets: the caller's, or what is left of the job's time.
///
/// # Errors
/// When nothing is left: a bound of zero means "for ever" to some engines.
pub(crate) fn effective(bound: Duration, halt: &Halt) -> Result<Duration> {
    let bound = halt.remaining().map_or(bound, |left| left.min(bound));
    if bound < Duration::from_millis(1) {
        Err(TargetError::Deadline("running the target"))
    } else {
        Ok(bound)
    }
}

/// Runs or steps until the target stops, at most `bound`. A bound that passes is a stop like any
/// other: the target is broken in.
///
/// # Errors
/// `Unsupported` for a target that does not run; the engine's own.
pub fn run(control: &mut Control<'_>, how: Resume, bound: Duration) -> Result<StopRecord> {
    let run = run_of(control.target)?;
    let bound = effective(bound, control.halt)?;
    let mut output = Output::default();
    let stop = Drive::new(control, run, bound).stop(how, None, &mut output)?;
    let stop = RunStop { output: output.finish(), ..stop };
    Ok(StopRecord::new(control.target, how, stop, bound))
}

/// One run with everything that goes on by itself in it: conditions that do not hold, a break left
/// over from the run before.
pub(crate) struct Drive<'a, 'b> {
    control: &'a mut Control<'b>,
    run: &'b dyn Run,
    bound: Duration,
    began: Instant,
    selected: Selection,
    /// Instruction and stack pointer it began at.
    start: Option<(u64, u64)>,
}

/// What to do at a stop.
enum Next {
    Stop,
    Again(Resume),
}

/// A breakpoint nobody set: removed again on every path.
pub(crate) struct Temporary<'a> {
    target: &'a dyn Target,
    pub(crate) id: u32,
}

impl<'a> Temporary<'a> {
    pub(crate) fn set(target: &'a dyn Target, address: u64, thread: Option<u32>) -> Result<Self> {
        let wanted = Breakpoint {
            address: Some(address),
            thread,
            enabled: true,
            pass_count: 1,
            ..Breakpoint::default()
        };
        let set = crate::targets::breakpoints_of(target)?.add(&wanted)?;
        Ok(Self { target, id: set.id })
    }
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        // With the target gone there is nothing to remove it from.
        if let Some(Err(error)) = self.target.breakpoints().map(|all| all.remove(self.id))
            && !matches!(error, TargetError::Gone(_))
        {
            tracing::warn!(id = self.id, %error, "a temporary breakpoint could not be removed");
        }
    }
}

impl<'a, 'b> Drive<'a, 'b> {
    pub(crate) fn new(control: &'a mut Control<'b>, run: &'b dyn Run, bound: Duration) -> Self {
        let (selected, start) = (control.target.selection(), pointers(control.target));
        Self { control, run, bound, began: Instant::now(), selected, start }
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Runs to a stop worth telling. `temporary` is a breakpoint of the caller's own.
    pub(crate) fn stop(
        &mut self,
        how: Resume,
        temporary: Option<u32>,
        output: &mut Output,
    ) -> Result<RunStop> {
        let mut leftover = std::mem::take(&mut self.control.runs.undelivered);
        let mut resume = how;
        // Stands behind the call that is stepped over, once a stop inside it was passed.
        let mut behind: Option<Temporary<'b>> = None;
        loop {
            let left = self.bound.saturating_sub(self.began.elapsed()).max(Duration::from_millis(1));
            let mut stop = self.run.resume(resume, left, self.control.moving, self.control.halt)?;
            output.push(&std::mem::take(&mut stop.output));
            if stop.target_gone {
                return Ok(stop);
            }
            self.reselect(stop.break_thread);
            let asked = stop.interrupted || stop.timed_out;
            if stop.reason == StopReason::BreakIn {
                if leftover && !asked && (how == Resume::Go || self.unmoved()) {
                    tracing::info!("a break left over from the run before was passed over");
                    leftover = false;
                    continue;
                }
                // Two breaks, one stop: the other is still to come.
                self.control.runs.undelivered = leftover && asked;
                return Ok(stop);
            }
            let next = if self.observed(&stop) {
                self.pass(&mut stop, how, &mut behind)
            } else {
                self.at(&mut stop, how, temporary, &mut behind, output)
            };
            if asked && stop.reason != StopReason::Unknown {
                self.control.runs.undelivered = true;
                match next {
                    // The target's own stop: nobody broke it in.
                    Next::Stop => (stop.interrupted, stop.timed_out) = (false, false),
                    Next::Again(_) => stop.reason = StopReason::BreakIn,
                }
                return Ok(stop);
            }
            match next {
                Next::Stop => return Ok(stop),
                Next::Again(_) if self.began.elapsed() >= self.bound => {
                    stop.reason = StopReason::BreakIn;
                    stop.timed_out = true;
                    return Ok(stop);
                }
                Next::Again(again) => resume = again,
            }
        }
    }

    fn unmoved(&self) -> bool {
        pointers(self.control.target).map(|(ip, _)| ip) == self.start.map(|(ip, _)| ip)
    }

    /// A break-in through an injected thread is no reason to look at another thread.
    fn reselect(&self, break_thread: Option<u32>) {
        let target = self.control.target;
        if break_thread.is_some()
            && target.selection().thread == break_thread
            && let Err(error) = target.select(self.selected)
        {
            tracing::debug!(%error, "the thread selected before the run is gone");
        }
    }

    /// Shows a hit to whoever looks at it in passing.
    fn observed(&mut self, stop: &RunStop) -> bool {
        let StopReason::Breakpoint { id } = stop.reason else { return false };
        self.control.runs.hit(self.control.target, id)
    }

    /// Whether the target's own stop is one to tell.
    fn at(
        &self,
        stop: &mut RunStop,
        how: Resume,
        temporary: Option<u32>,
        behind: &mut Option<Temporary<'b>>,
        output: &mut Output,
    ) -> Next {
        let (StopReason::Breakpoint { id } | StopReason::DataBreakpoint { id }) = stop.reason else {
            return Next::Stop;
        };
        if temporary == Some(id) {
            return Next::Stop;
        }
        if behind.as_ref().is_some_and(|behind| behind.id == id) {
            if self.returned() {
                stop.reason = StopReason::Step;
                return Next::Stop;
            }
            return Next::Again(Resume::Go);
        }
        if self.holds(id, output) {
            return Next::Stop;
        }
        self.pass(stop, how, behind)
    }

    /// Back in the frame that was stepped in, not in a recursion below it.
    fn returned(&self) -> bool {
        match (self.start, pointers(self.control.target)) {
            (Some((_, before)), Some((_, now))) => now >= before,
            _ => true,
        }
    }

    /// Whether the breakpoint's condition is met; one that cannot be told stops.
    fn holds(&self, id: u32, output: &mut Output) -> bool {
        let target = self.control.target;
        let all = target.breakpoints().and_then(|all| all.list().ok()).unwrap_or_default();
        let Some(condition) = all.into_iter().find(|b| b.id == id).and_then(|b| b.condition) else {
            return true;
        };
        match target.evaluate(&condition, self.control.halt) {
            Ok(value) => value != 0,
            Err(error) => {
                output.note(&format!("condition {condition} of breakpoint {id} has no value here: {error}"));
                true
            }
        }
    }

    /// Goes on from a breakpoint whose condition is not met.
    fn pass(&self, stop: &mut RunStop, how: Resume, behind: &mut Option<Temporary<'b>>) -> Next {
        if how == Resume::Go || behind.is_some() {
            return Next::Again(Resume::Go);
        }
        let target = self.control.target;
        let next = self.start.filter(|_| how == Resume::StepOver).and_then(|(ip, _)| after_call(target, ip));
        let here = pointers(target).map(|(ip, _)| ip);
        match next {
            // Stopped inside the call: the step ends behind it.
            Some(next) if here != Some(next) => match Temporary::set(target, next, self.selected.thread) {
                Ok(set) => {
                    *behind = Some(set);
                    Next::Again(Resume::Go)
                }
                Err(_) => Next::Stop,
            },
            // The step is done, and where it ended there happens to be a breakpoint.
            _ => {
                stop.reason = StopReason::Step;
                Next::Stop
            }
        }
    }
}

/// Where a call at `ip` returns to; `None` when there is no call.
fn after_call(target: &dyn Target, ip: u64) -> Option<u64> {
    let call = target.disassemble(ip, 1).ok()?.into_iter().next()?;
    let is_call = matches!(call.flow, Flow::Call | Flow::IndirectCall);
    is_call.then(|| ip.checked_add(call.bytes.0.len() as u64)).flatten()
}
