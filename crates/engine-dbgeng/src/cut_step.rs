//! A run that another thread's event cuts before its own thread came one instruction further.
//!
//! The engine takes the thread it resumes over one instruction first, when that stands at a breakpoint
//! or steps. When a break ends the run meanwhile, the engine forgets about it: the trap comes in a
//! later run as if it were the program's, or the thread meets the breakpoint once more that it was just
//! resumed from.

use target::Result;
use windows::Win32::System::Diagnostics::Debug::Extensions::DEBUG_STATUS_GO_HANDLED;

use crate::engine::{DbgEng, EngineResult};
use crate::run::{Before, Detail, SINGLE_STEP};

/// What may come of a thread whose instruction was cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CutStep {
    /// `(engine id, system id)`
    thread: (u32, u32),
    /// Where it stood, when it has not moved from a breakpoint.
    unmoved: Option<u64>,
}

impl DbgEng {
    /// Called when a run has stopped, before another thread is made current.
    pub(crate) fn remember_cut_step(&self, before: &Before, stepping: bool) {
        let Some(current) = before.current else { return };
        if self.last_event().is_none_or(|event| event.thread == current) {
            return;
        }
        let breakpoint = before.ip.filter(|&ip| self.is_break_point_at(ip));
        if !stepping && breakpoint.is_none() {
            return;
        }
        let Some(&thread) = before.threads.iter().find(|thread| thread.0 == current) else { return };
        let now = self.on_thread(current, || self.instruction_pointer());
        let unmoved = breakpoint.filter(|&ip| now.is_ok_and(|now| now == ip));
        self.cut_step.set(Some(CutStep { thread, unmoved }));
    }

    fn instruction_pointer(&self) -> Result<u64> {
        // SAFETY: no arguments.
        let ip = unsafe { self.registers.GetInstructionOffset() }.said("read the instruction pointer")?;
        Ok(self.narrow(ip))
    }

    /// Whether the stop is what is left of a cut step, and how the run goes on then.
    pub(crate) fn after_cut_step(&self, before: &Before, status: u32, stepping: bool) -> Option<u32> {
        let cut = self.cut_step.get()?;
        let event = self.last_event().filter(|event| event.thread == cut.thread.0)?;
        self.cut_step.set(None);
        let ours = before.current == Some(cut.thread.0);
        if !self.thread_ids().is_ok_and(|now| now.contains(&cut.thread)) {
            return None;
        }
        let here = self.instruction_pointer().ok()?;
        let moved = !ours || before.ip != Some(here);
        match event.detail {
            Detail::Exception(record, _) if SINGLE_STEP.contains(&record.code) && !stepping => {
                Some(DEBUG_STATUS_GO_HANDLED)
            }
            // A step has come to its end only if it moved; the engine says its end without an event.
            Detail::Exception(record, _) if SINGLE_STEP.contains(&record.code) => (!moved).then_some(status),
            Detail::None if stepping && event.kind == 0 => (!moved).then_some(status),
            Detail::Breakpoint(_) => (!moved && cut.unmoved == Some(here)).then_some(status),
            _ => None,
        }
    }
}
