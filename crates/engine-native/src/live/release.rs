//! Letting a live kernel go (spec 30 section 13.5): its breakpoints out of it, and running.

use target::{Ending, Halt, Result, TargetError};

use super::run::break_in;
use super::{Going, Live, SLOTS, Waited};
use crate::native_target::NativeTarget;

/// How long the target is listened to for a stop it still owes, and how often in a row it must be
/// silent: one quiet window is not enough, a slow break looks like freedom.
const WINDOW: std::time::Duration = std::time::Duration::from_millis(1500);
const QUIET: u32 = 2;

impl NativeTarget {
    /// Takes breakpoints out, lets the target run, and passes over the stops it still owes.
    pub(crate) fn let_go(&self, live: &Live) -> Result<Ending> {
        if live.released.get() {
            return Ok(Ending::ResumedAndDetached);
        }
        if live.gone.borrow().is_some() {
            return Ok(Ending::Closed);
        }
        live.kernel.reach_again()?;
        let patched = |live: &Live| !live.table.borrow().inserted.is_empty();
        if live.kernel.stop().is_none() {
            // Nothing of ours is in it: it may run on as it does.
            if !patched(live) {
                live.released.set(true);
                return Ok(Ending::ResumedAndDetached);
            }
            break_in(live)?;
            self.settle(live);
        }
        self.clear(live)?;
        self.drain(live)?;
        live.released.set(true);
        Ok(Ending::ResumedAndDetached)
    }

    fn clear(&self, live: &Live) -> Result<()> {
        let watched = live.table.borrow().entries.iter().any(|e| e.slot.is_some());
        live.table.borrow_mut().entries.clear();
        let stuck = self.take_out_all(live);
        if let Some(address) = stuck.first() {
            return Err(TargetError::failed_because(
                "breakpoint_left",
                format!(
                    "the target does not take the breakpoint at {address:#018x} out, so it is not let run"
                ),
            ));
        }
        if watched { self.write_slots(live) } else { Ok(()) }
    }

    /// Lets it run until it stays running. Stops that breakpoints of before still owe come now, one
    /// a processor at most.
    fn drain(&self, live: &Live) -> Result<()> {
        let stop = live.stopped()?;
        let owes = stop.processors > 1 || live.owed.get();
        for _ in 0..stop.processors.saturating_add(2) {
            let at = live.stopped()?;
            self.leave_own_break(live, &at)?;
            if !owes {
                return live.kernel.release();
            }
            live.kernel.go(Going { step: false, handled: true, armed: [false; SLOTS] })?;
            if quiet(live)? {
                return Ok(());
            }
            self.settle(live);
        }
        Err(TargetError::failed_because(
            "still_stopping",
            "the target stopped again and again while it was let go, and stands; end the session again to try once more",
        ))
    }

    fn leave_own_break(&self, live: &Live, stop: &super::KernelStop) -> Result<()> {
        if !stop.is_breakpoint() || live.moved.get() {
            return Ok(());
        }
        let ip = live.kernel.context(stop.processor)?.ip();
        match self.own_break(ip) {
            Some(length) => self.set_ip(live, stop, ip.wrapping_add(length)),
            None => Ok(()),
        }
    }
}

/// Whether it ran through two windows in a row.
fn quiet(live: &Live) -> Result<bool> {
    for _ in 0..QUIET {
        if let Waited::Stopped(_) = live.kernel.wait(WINDOW, &Halt::unbounded())? {
            return Ok(false);
        }
    }
    Ok(true)
}
