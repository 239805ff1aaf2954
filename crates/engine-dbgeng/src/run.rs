//! Letting a live target move, and why it stopped. The target moves only inside `WaitForEvent`; the
//! wait is always endless, and the watchdog breaks in at the bound (spec 10 section 9.2).

use std::time::{Duration, Instant};

use target::capability::{Resume, RunStop, StopReason};
use target::{ExceptionRecord, Halt, Result, Run, TargetError, TargetExt};
use windows::Win32::System::Diagnostics::Debug::Extensions::{
    DEBUG_EVENT_BREAKPOINT, DEBUG_EVENT_CREATE_PROCESS, DEBUG_EVENT_CREATE_THREAD, DEBUG_EVENT_EXCEPTION,
    DEBUG_EVENT_EXIT_PROCESS, DEBUG_EVENT_EXIT_THREAD, DEBUG_EVENT_LOAD_MODULE,
    DEBUG_LAST_EVENT_INFO_BREAKPOINT, DEBUG_LAST_EVENT_INFO_EXCEPTION, DEBUG_LAST_EVENT_INFO_EXIT_PROCESS,
    DEBUG_LAST_EVENT_INFO_LOAD_MODULE, DEBUG_STATUS_GO, DEBUG_STATUS_GO_NOT_HANDLED,
    DEBUG_STATUS_NO_DEBUGGEE, DEBUG_STATUS_STEP_INTO, DEBUG_STATUS_STEP_OVER,
};
use windows::core::HRESULT;

use crate::engine::{DbgEng, EngineResult, Origin, explain};
use crate::open::wait;
use crate::output::Collected;
use crate::watchdog::{Cause, Watched};

/// `STATUS_BREAKPOINT`, `STATUS_SINGLE_STEP` and their WoW64 twins (ntstatus.h).
pub(crate) const BREAKPOINT: [u32; 2] = [0x8000_0003, 0x4000_001f];
pub(crate) const SINGLE_STEP: [u32; 2] = [0x8000_0004, 0x4000_001e];
/// A breakpoint whose condition is never true stops the pump this often at most before it gives up.
const MOST_PASSES: u32 = 10_000_000;

/// What the run started from.
pub(crate) struct Before {
    /// `(engine id, system id)` of every thread.
    pub(crate) threads: Vec<(u32, u32)>,
    /// Engine id of the current one.
    pub(crate) current: Option<u32>,
    /// Where that one was.
    pub(crate) ip: Option<u64>,
    /// Engine ids of the processes.
    pub(crate) processes: Vec<u32>,
}

/// The event the engine stopped on.
pub(crate) struct Event {
    pub(crate) kind: u32,
    /// Engine ids of its thread and process.
    pub(crate) thread: u32,
    pub(crate) process: u32,
    pub(crate) detail: Detail,
}

pub(crate) enum Detail {
    None,
    Breakpoint(u32),
    Exception(ExceptionRecord, bool),
    ExitCode(u32),
    Module(u64),
}

#[repr(C)]
union Extra {
    breakpoint: DEBUG_LAST_EVENT_INFO_BREAKPOINT,
    exception: DEBUG_LAST_EVENT_INFO_EXCEPTION,
    exit: DEBUG_LAST_EVENT_INFO_EXIT_PROCESS,
    module: DEBUG_LAST_EVENT_INFO_LOAD_MODULE,
    raw: [u64; 32],
}

impl DbgEng {
    pub(crate) fn is_live(&self) -> bool {
        self.origin != Origin::Dump
    }

    /// What `GetLastEventInformation` says, never the text it prints.
    pub(crate) fn last_event(&self) -> Option<Event> {
        let (mut kind, mut process, mut thread) = (0, 0, 0);
        let mut extra = Extra { raw: [0; 32] };
        // SAFETY: the pointers are to locals and the record is as long as said.
        unsafe {
            self.control.GetLastEventInformation(
                &mut kind,
                &mut process,
                &mut thread,
                Some((&raw mut extra).cast()),
                u32::try_from(size_of::<Extra>()).unwrap_or(0),
                None,
                None,
                None,
            )
        }
        .ok()?;
        // SAFETY: every bit pattern is a value of each of these records, and `kind` says which was filled.
        let detail = unsafe {
            match kind {
                DEBUG_EVENT_BREAKPOINT => Detail::Breakpoint(extra.breakpoint.Id),
                DEBUG_EVENT_EXCEPTION => {
                    let info = extra.exception;
                    Detail::Exception(self.exception_record(&info.ExceptionRecord), info.FirstChance != 0)
                }
                DEBUG_EVENT_EXIT_PROCESS => Detail::ExitCode(extra.exit.ExitCode),
                DEBUG_EVENT_LOAD_MODULE => Detail::Module(extra.module.Base),
                _ => Detail::None,
            }
        };
        Some(Event { kind, thread, process, detail })
    }

    pub(crate) fn before(&self) -> Before {
        // SAFETY: no arguments.
        let current = unsafe { self.system.GetCurrentThreadId() }.ok();
        let processes = self.processes_here().into_iter().map(|(id, _)| id).collect();
        // SAFETY: no arguments.
        let ip = unsafe { self.registers.GetInstructionOffset() }.ok().map(|ip| self.narrow(ip));
        Before { threads: self.thread_ids().unwrap_or_default(), current, ip, processes }
    }

    /// Pumps a target that was set going until it stops, the bound passes or the halt stops it.
    pub(crate) fn pump(&self, bound: Duration, before: &Before, halt: &Halt) -> Result<RunStop> {
        let status = self.status();
        let stepping = matches!(status, DEBUG_STATUS_STEP_INTO | DEBUG_STATUS_STEP_OVER);
        let deadline = Instant::now().checked_add(bound);
        let mut cause = None;
        for _ in 0..MOST_PASSES {
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            let earlier = cause;
            let watched = Watched::Resume { processes: self.pids_here(), raised: earlier };
            let (answer, raised) =
                self.watchdog.during(halt, left, watched, || wait(&self.control, u32::MAX));
            cause = raised;
            self.forget();
            if self.status() == DEBUG_STATUS_NO_DEBUGGEE {
                return Ok(self.ended(cause));
            }
            if answer != HRESULT(0) {
                self.watchdog.drain();
                self.sync_selection();
                return Err(self.did_not_move(answer));
            }
            let mut stop = self.stop(before, stepping);
            if raised.is_some() && self.is_asked_break(&stop.reason) {
                stop.reason = StopReason::BreakIn;
            }
            let outstanding = self.count_break(&stop.reason, earlier.is_none() && raised.is_some());
            if cause.is_none() && outstanding {
                tracing::debug!("resumed past a break that an earlier run had asked for");
                self.leave_break_thread(before);
                self.set_status(status)?;
                continue;
            }
            if let Some(on) = self.after_cut_step(before, status, stepping) {
                self.set_status(on)?;
                continue;
            }
            // Going on from inside a call would lose the step: `control` takes a step past a condition.
            if !stepping && self.passes_by(&stop.reason) {
                self.set_status(DEBUG_STATUS_GO)?;
                continue;
            }
            if self.running() && cause.is_none() {
                // A breakpoint's own command ended with `gc`.
                continue;
            }
            self.remember_cut_step(before, stepping);
            self.settle_stop(&mut stop, before, cause);
            return Ok(stop);
        }
        Err(TargetError::failed("the target stopped at a conditional breakpoint too often"))
    }

    /// Keeps count of the breaks that `SetInterrupt` was called for and whose stop has not come: it may
    /// come in the next run or in the one after that. Whether this stop is one of those.
    fn count_break(&self, reason: &StopReason, raised: bool) -> bool {
        if self.origin != Origin::Kernel && self.watchdog.injection().is_some() {
            // A late one stops nothing.
            return false;
        }
        let outstanding = self.undelivered.get();
        match (reason == &StopReason::BreakIn, raised) {
            (true, false) => self.undelivered.set(outstanding.saturating_sub(1)),
            (false, true) => self.undelivered.set(outstanding.saturating_add(1)),
            _ => {}
        }
        reason == &StopReason::BreakIn && !raised && outstanding > 0
    }

    pub(crate) fn go_status(&self) -> u32 {
        if self.at_own_exception() { DEBUG_STATUS_GO_NOT_HANDLED } else { DEBUG_STATUS_GO }
    }

    /// Whether the target stands at an exception that is its own to handle. Plain `go` would take one
    /// at its second chance for handled and run into it again.
    fn at_own_exception(&self) -> bool {
        matches!(self.last_event().map(|e| e.detail), Some(Detail::Exception(record, _))
            if !BREAKPOINT.contains(&record.code) && !SINGLE_STEP.contains(&record.code))
    }

    /// Whether the engine's state says that the target is to move at the next wait.
    pub(crate) fn running(&self) -> bool {
        (DEBUG_STATUS_GO..=DEBUG_STATUS_STEP_INTO).contains(&self.status())
    }

    pub(crate) fn set_status(&self, status: u32) -> Result<()> {
        // SAFETY: integers only.
        unsafe { self.control.SetExecutionStatus(status) }.said("resume the target")
    }

    fn did_not_move(&self, answer: HRESULT) -> TargetError {
        let printed = Collected::take(&self.output);
        let error = windows::core::Error::from(answer);
        let said = printed.trim();
        let more = if said.is_empty() { String::new() } else { format!("; it said: {said}") };
        TargetError::failed(format!("DbgEng could not let the target move: {}{more}", explain(&error)))
    }

    fn ended(&self, cause: Option<Cause>) -> RunStop {
        let code = self.exited_with();
        let said = code.map(|c| format!(" with exit code {c:#x} ({c})")).unwrap_or_default();
        self.set_gone(format!("the process ended{said}"));
        self.watchdog.drain();
        RunStop {
            reason: StopReason::Exited { code },
            timed_out: false,
            interrupted: cause == Some(Cause::Request) && code.is_none(),
            target_gone: true,
            break_thread: None,
            output: Collected::take(&self.output),
        }
    }

    fn stop(&self, before: &Before, stepping: bool) -> RunStop {
        let event = self.last_event();
        let injected = self.watchdog.injection().is_some_and(|injection| injection.take_hit());
        let reason = match &event {
            Some(event) if injected && event.kind == DEBUG_EVENT_CREATE_THREAD => StopReason::BreakIn,
            Some(event) => self.reason(event, before, stepping),
            None => StopReason::Unknown,
        };
        let break_thread = match (&reason, &event) {
            (StopReason::BreakIn, Some(event)) if self.origin != Origin::Kernel => self
                .thread_ids()
                .unwrap_or_default()
                .into_iter()
                .find(|(id, _)| *id == event.thread)
                .map(|(_, system_id)| system_id),
            _ => None,
        };
        RunStop {
            reason,
            timed_out: false,
            interrupted: false,
            target_gone: false,
            break_thread,
            output: String::new(),
        }
    }

    fn reason(&self, event: &Event, before: &Before, stepping: bool) -> StopReason {
        match (&event.detail, event.kind) {
            (Detail::Breakpoint(id), _) => {
                if self.is_data_breakpoint(*id) {
                    StopReason::DataBreakpoint { id: *id }
                } else {
                    StopReason::Breakpoint { id: *id }
                }
            }
            (Detail::Exception(record, first_chance), _) => {
                if SINGLE_STEP.contains(&record.code) && stepping {
                    return StopReason::Step;
                }
                if BREAKPOINT.contains(&record.code) && self.is_break_in(event, record, before) {
                    return StopReason::BreakIn;
                }
                StopReason::Exception { record: record.clone(), first_chance: *first_chance }
            }
            (Detail::Module(base), _) => {
                let module = self.module_at(self.narrow(*base)).ok().flatten();
                StopReason::ModuleLoad { name: module.map(|m| m.image_name).unwrap_or_default() }
            }
            (Detail::ExitCode(code), _) => StopReason::Exited { code: Some(*code) },
            (_, DEBUG_EVENT_CREATE_THREAD | DEBUG_EVENT_EXIT_THREAD | DEBUG_EVENT_CREATE_PROCESS) => {
                StopReason::ThreadEvent
            }
            _ if stepping => StopReason::Step,
            _ => StopReason::Unknown,
        }
    }

    /// Whose position it is, and by whom it was stopped.
    fn settle_stop(&self, stop: &mut RunStop, before: &Before, cause: Option<Cause>) {
        let injected = stop.reason == StopReason::BreakIn;
        if injected {
            self.leave_break_thread(before);
        }
        match cause {
            Some(Cause::Bound | Cause::Deadline) if injected => stop.timed_out = true,
            Some(Cause::Request) if injected => stop.interrupted = true,
            _ => {}
        }
        self.watchdog.drain();
        self.sync_selection();
        stop.output = Collected::take(&self.output);
    }

    pub(crate) fn exception_record(
        &self,
        record: &windows::Win32::System::Diagnostics::Debug::EXCEPTION_RECORD64,
    ) -> ExceptionRecord {
        let count = (record.NumberParameters as usize).min(record.ExceptionInformation.len());
        ExceptionRecord {
            code: record.ExceptionCode.0.cast_unsigned(),
            flags: record.ExceptionFlags,
            nested: self.narrow(record.ExceptionRecord),
            address: self.narrow(record.ExceptionAddress),
            parameters: record.ExceptionInformation[..count].iter().map(|&p| self.narrow(p)).collect(),
        }
    }
}

impl Run for DbgEng {
    fn resume(&self, how: Resume, bound: Duration, on_moving: &dyn Fn(), halt: &Halt) -> Result<RunStop> {
        self.alive()?;
        halt.check("resuming the target")?;
        self.watchdog.drain();
        Collected::take(&self.output);
        let before = self.before();
        let status = match how {
            Resume::Go => self.go_status(),
            Resume::StepInto => DEBUG_STATUS_STEP_INTO,
            Resume::StepOver => DEBUG_STATUS_STEP_OVER,
        };
        self.set_status(status)?;
        on_moving();
        self.pump(bound, &before, halt)
    }
}
