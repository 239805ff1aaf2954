//! Letting a live kernel move, and waiting for it, always within a bound.

use std::time::{Duration, Instant};

use target::{
    Halt, Result, Run, Selection, Stop, TargetError,
    capability::{Access, Resume, RunStop, StopReason},
};

use super::steps::{Behind, Verdict};
use super::{Going, KernelEvent, KernelStop, Live, SLOTS, Waited};
use crate::kernel::live_pages;
use crate::native_target::{NativeTarget, Side};
use crate::raw::RawMemory;

/// Stops passed in one run at most: of a breakpoint whose pass count is never reached, of drivers.
const MOST_PASSES: u32 = 10_000_000;
/// How long a break-in may take, and how often it is sent again meanwhile. A kernel looks for it at
/// every tick of its clock.
const BREAK_BOUND: Duration = Duration::from_secs(10);
const BREAK_AGAIN: Duration = Duration::from_secs(2);

/// Who asked for a break-in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cause {
    Bound,
    Request,
}

/// One run with everything that goes on by itself in it.
struct Drive<'a> {
    target: &'a NativeTarget,
    live: &'a Live,
    until: Option<Instant>,
    halt: &'a Halt,
    moving: &'a dyn Fn(),
    cause: Option<Cause>,
    notes: String,
}

impl Run for NativeTarget {
    fn resume(&self, how: Resume, bound: Duration, on_moving: &dyn Fn(), halt: &Halt) -> Result<RunStop> {
        let live = self.live()?;
        let stop = match live.stopped() {
            Ok(stop) => Some(stop),
            // An earlier break-in was not answered: its stop is what there is to wait for.
            Err(TargetError::Running) if how == Resume::Go => None,
            Err(error) => return Err(error),
        };
        halt.check("resuming the target")?;
        let mut drive = Drive {
            target: self,
            live,
            until: Instant::now().checked_add(bound),
            halt,
            moving: on_moving,
            cause: None,
            notes: String::new(),
        };
        let ended = match stop {
            Some(stop) => drive.from(&stop, how),
            None => drive.wait_through(None),
        };
        let (reason, gone) = match ended {
            Ok(reason) => (reason, live.gone.borrow().is_some()),
            Err(error) => {
                self.settle(live);
                return Err(error);
            }
        };
        // The break-in comes yet.
        live.owed.set(drive.cause.is_some() && reason != StopReason::BreakIn);
        let output = live.kernel.output() + &drive.notes;
        Ok(RunStop {
            reason,
            timed_out: drive.cause == Some(Cause::Bound),
            interrupted: drive.cause == Some(Cause::Request),
            target_gone: gone,
            break_thread: None,
            output,
        })
    }
}

impl Drive<'_> {
    fn from(&mut self, stop: &KernelStop, how: Resume) -> Result<StopReason> {
        let context = self.live.kernel.context(stop.processor)?;
        let behind = match how {
            Resume::StepOver => self.target.behind(stop, context.ip(), context.sp()),
            _ => None,
        };
        match (how, behind) {
            (Resume::Go, _) => self.run(None),
            (_, Some(behind)) => self.run(Some(behind)),
            _ => self.step(stop, context.ip()),
        }
    }

    /// One instruction of the stopped processor.
    fn step(&mut self, stop: &KernelStop, ip: u64) -> Result<StopReason> {
        // Its own break instruction has done all it does: it has stopped the target.
        if stop.is_breakpoint()
            && !self.live.moved.get()
            && let Some(length) = self.target.own_break(ip)
        {
            self.target.set_ip(self.live, stop, ip.wrapping_add(length))?;
            self.target.settle(self.live);
            return Ok(StopReason::Step);
        }
        for _ in 0..MOST_PASSES {
            let at = self.live.stopped()?;
            self.let_go(&at, true, None)?;
            match self.stopped(true, None)? {
                Some(reason) => return Ok(reason),
                // A driver was loaded under it, or a count went up: the step is still to be done.
                None => continue,
            }
        }
        Err(too_often())
    }

    fn run(&mut self, behind: Option<Behind>) -> Result<StopReason> {
        for _ in 0..MOST_PASSES {
            if let Some(reason) = self.step_off(behind.as_ref())? {
                return Ok(reason);
            }
            let at = self.live.stopped()?;
            self.let_go(&at, false, behind.as_ref())?;
            if let Some(reason) = self.stopped(false, behind.as_ref())? {
                return Ok(reason);
            }
        }
        Err(too_often())
    }

    /// The target runs already: waits for it, then for whatever else passes by.
    fn wait_through(&mut self, behind: Option<Behind>) -> Result<StopReason> {
        (self.moving)();
        match self.stopped(false, behind.as_ref())? {
            Some(reason) => Ok(reason),
            None => self.run(behind),
        }
    }

    /// Leaves what stands at the instruction pointer: the target's own break instruction, or a
    /// breakpoint of ours. The reason when that was no plain step.
    fn step_off(&mut self, behind: Option<&Behind>) -> Result<Option<StopReason>> {
        let stop = self.live.stopped()?;
        let ip = self.live.kernel.context(stop.processor)?.ip();
        if stop.is_breakpoint()
            && !self.live.moved.get()
            && !self.target.stops_at(self.live, ip)
            && let Some(length) = self.target.own_break(ip)
        {
            self.target.set_ip(self.live, &stop, ip.wrapping_add(length))?;
            return Ok(None);
        }
        let at_behind = behind.is_some_and(|behind| behind.address == ip);
        if !(self.target.stops_at(self.live, ip) || at_behind) {
            return Ok(None);
        }
        self.let_go(&stop, true, None)?;
        let reason = self.stopped(true, behind)?;
        Ok(reason.filter(|reason| *reason != StopReason::Step || self.cause.is_some()))
    }

    /// Inserts what is to stop it and lets it move.
    fn let_go(&mut self, stop: &KernelStop, step: bool, behind: Option<&Behind>) -> Result<()> {
        if self.cause.is_none() {
            self.halt.check("resuming the target")?;
        }
        let ip = self.live.kernel.context(stop.processor)?.ip();
        let mut places = self.live.table.borrow().places();
        places.extend(behind.map(|behind| behind.address).filter(|address| !places.contains(address)));
        // Stepped off without it; nothing else may leave without it.
        places.retain(|&place| !(step && place == ip));
        self.target.insert_all(self.live, &places)?;
        let mut armed = [false; SLOTS];
        for entry in &self.live.table.borrow().entries {
            let executes_here = matches!(entry.breakpoint.watch, Some((Access::Execute, _)))
                && entry.breakpoint.address == Some(ip);
            if let Some(slot) = entry.slot.and_then(|slot| armed.get_mut(slot)) {
                *slot = entry.breakpoint.enabled && !(step && executes_here);
            }
        }
        if let Some(pages) = live_pages(&self.target.core) {
            pages.forget();
        }
        let handled = self.live.moved.get() || stop.is_handled();
        self.live.kernel.go(Going { step, handled, armed })?;
        (self.moving)();
        Ok(())
    }

    /// Waits for a stop and says what it is; `None` when the target is to go on.
    fn stopped(&mut self, stepping: bool, behind: Option<&Behind>) -> Result<Option<StopReason>> {
        let stop = self.wait()?;
        self.live.moved.set(false);
        match &stop.event {
            KernelEvent::Module { path, unloaded, .. } => {
                self.module(path, *unloaded);
                return Ok(self.cut_short());
            }
            KernelEvent::Rebooting => return self.rebooting().map(Some),
            KernelEvent::Exception { .. } | KernelEvent::Other => {}
        }
        // Before anything is looked at: what is read must be this stop's, without break instructions.
        let verdict = {
            self.target.settle(self.live);
            self.target.verdict(self.live, &stop, stepping, self.cause.is_some(), behind)
        };
        if !self.live.table.borrow().forgotten.is_empty() {
            self.target.drop_used(self.live)?;
        }
        match verdict {
            Verdict::Tell(reason) => Ok(Some(reason)),
            Verdict::PassBy => Ok(self.cut_short()),
        }
    }

    /// A stop that would be passed by is the one that was asked for, when one was.
    fn cut_short(&self) -> Option<StopReason> {
        self.cause.map(|_| StopReason::BreakIn)
    }

    fn module(&mut self, path: &str, unloaded: bool) {
        let what = if unloaded { "unloaded" } else { "loaded" };
        self.notes.push_str(&format!("{what}: {}\n", path.escape_debug()));
        self.live.modules_changed.set(true);
        self.target.settle(self.live);
        if !unloaded {
            self.target.resolve_deferred(self.live);
        }
    }

    /// It starts again with another kernel somewhere else: nothing that is known of it holds.
    fn rebooting(&mut self) -> Result<StopReason> {
        self.live.table.borrow_mut().inserted.clear();
        let why = "the target restarts; end this session and attach again to see it start";
        *self.live.gone.borrow_mut() = Some(why.to_owned());
        self.live.kernel.go(Going { step: false, handled: true, armed: [false; SLOTS] })?;
        self.notes.push_str("the target restarts\n");
        Ok(StopReason::Exited { code: None })
    }

    fn wait(&mut self) -> Result<KernelStop> {
        if self.cause.is_none() {
            let left = self.until.map_or(Duration::MAX, |at| at.saturating_duration_since(Instant::now()));
            match self.live.kernel.wait(left, self.halt)? {
                Waited::Stopped(stop) => return Ok(stop),
                Waited::Bound => self.cause = Some(Cause::Bound),
                Waited::Halted => {
                    let asked = self.halt.stop() == Some(Stop::Interrupted);
                    self.cause = Some(if asked { Cause::Request } else { Cause::Bound });
                }
            }
        }
        break_in(self.live)
    }
}

/// Sends break-ins until the target stops.
pub(crate) fn break_in(live: &Live) -> Result<KernelStop> {
    let until = Instant::now() + BREAK_BOUND;
    while Instant::now() < until {
        live.kernel.break_in()?;
        match live.kernel.wait(BREAK_AGAIN, &Halt::unbounded())? {
            Waited::Stopped(stop) => return Ok(stop),
            Waited::Bound | Waited::Halted => {}
        }
    }
    Err(TargetError::failed_because(
        "break_in_unanswered",
        format!(
            "the target did not stop within {} s of being asked: it runs on, or stands in code that takes no \
             interrupts; its breakpoints are in it. Running it again waits for its stop",
            BREAK_BOUND.as_secs()
        ),
    ))
}

fn too_often() -> TargetError {
    TargetError::failed("the target stopped at what passes by too often")
}

impl NativeTarget {
    /// After the target moved: takes break instructions out and forgets what was read.
    pub(crate) fn settle(&self, live: &Live) {
        if let Some(pages) = live_pages(&self.core) {
            pages.forget();
        }
        let Some(stop) = live.kernel.stop() else { return };
        live.seen.set(live.kernel.stops());
        self.take_out_all(live);
        if let RawMemory::Paged(translator) = &self.core.raw
            && let Ok((root, five_levels)) = live.kernel.translation_root(stop.processor)
        {
            translator.set_root(root, five_levels);
        }
        let Side::Kernel(kernel) = &self.side else { return };
        kernel.stopped_again(live.modules_changed.take());
        self.apply_selection(Selection { thread: None, processor: Some(stop.processor), process: None });
    }

    /// Breakpoints that were to stop once are gone after that.
    fn drop_used(&self, live: &Live) -> Result<()> {
        let mut table = live.table.borrow_mut();
        let used = std::mem::take(&mut table.forgotten);
        let watches = table.entries.iter().any(|e| used.contains(&e.breakpoint.id) && e.slot.is_some());
        table.entries.retain(|e| !used.contains(&e.breakpoint.id));
        drop(table);
        if watches { self.write_slots(live) } else { Ok(()) }
    }
}
