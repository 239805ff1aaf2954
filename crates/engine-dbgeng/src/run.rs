//! Letting a live target move, and why it stopped. The target moves only inside `WaitForEvent`; the
//! wait is always endless, and the watchdog breaks in at the bound (spec 10 section 9.2).

use std::time::{Duration, Instant};

use target::capability::{Resume, RunStop, StopReason};
use target::{ExceptionRecord, Halt, MemoryExt, Result, Run, TargetError, TargetExt};
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
const BREAKPOINT: [u32; 2] = [0x8000_0003, 0x4000_001f];
const SINGLE_STEP: [u32; 2] = [0x8000_0004, 0x4000_001e];
const INT3: u8 = 0xcc;
/// A breakpoint whose condition is never true stops the pump this often at most before it gives up.
const MOST_PASSES: u32 = 10_000_000;

/// What the run started from.
pub(crate) struct Before {
    /// `(engine id, system id)` of every thread.
    threads: Vec<(u32, u32)>,
    /// Engine id of the current one.
    current: Option<u32>,
    /// Engine ids of the processes.
    processes: Vec<u32>,
}

/// The event the engine stopped on.
pub(crate) struct Event {
    pub(crate) kind: u32,
    /// Engine ids of its thread and process.
    pub(crate) thread: u32,
    process: u32,
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
        Before { threads: self.thread_ids().unwrap_or_default(), current, processes }
    }

    /// Pumps a target that was set going until it stops, the bound passes or the halt stops it.
    pub(crate) fn pump(&self, bound: Duration, before: &Before, halt: &Halt) -> Result<RunStop> {
        let status = self.status();
        let stepping = matches!(status, DEBUG_STATUS_STEP_INTO | DEBUG_STATUS_STEP_OVER);
        let deadline = Instant::now().checked_add(bound);
        let mut cause = None;
        let mut leftover = self.undelivered.replace(false);
        for _ in 0..MOST_PASSES {
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            let first = self.first_resume.replace(false);
            let (answer, raised) =
                self.watchdog.during(halt, left, Watched::Resume { first_of_launch: first }, || {
                    wait(&self.control, u32::MAX)
                });
            cause = raised.or(cause);
            self.forget();
            if self.status() == DEBUG_STATUS_NO_DEBUGGEE {
                return Ok(self.ended(cause));
            }
            if answer != HRESULT(0) {
                self.watchdog.drain();
                self.sync_selection();
                return Err(self.did_not_move(answer));
            }
            let mut stop = self.stop(before, stepping, leftover);
            if cause.is_none() && leftover && stop.reason == StopReason::BreakIn {
                // The stop of a break an earlier run no longer needed.
                tracing::debug!("resumed past a break that an earlier run had asked for");
                leftover = false;
                self.leave_break_thread(before);
                self.set_status(status)?;
                continue;
            }
            // Going on from inside a call would lose the step: `control` takes a step past a condition.
            if cause.is_none() && !stepping && self.passes_by(&stop.reason, halt) {
                self.set_status(DEBUG_STATUS_GO)?;
                continue;
            }
            if self.running() && cause.is_none() {
                // A breakpoint's own command ended with `gc`.
                continue;
            }
            self.settle_stop(&mut stop, before, cause);
            return Ok(stop);
        }
        Err(TargetError::failed("the target stopped at a conditional breakpoint too often"))
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

    fn stop(&self, before: &Before, stepping: bool, leftover: bool) -> RunStop {
        let event = self.last_event();
        let reason = event
            .as_ref()
            .map_or(StopReason::Unknown, |event| self.reason(event, before, stepping, leftover));
        let break_thread = match (&reason, &event) {
            (StopReason::BreakIn, Some(event)) => self
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

    fn reason(&self, event: &Event, before: &Before, stepping: bool, leftover: bool) -> StopReason {
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
                if BREAKPOINT.contains(&record.code) && self.is_break_thread(event, record, before, leftover)
                {
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

    /// A thread that was not there before and stands in `ntdll!DbgBreakPoint` was injected.
    fn is_break_thread(
        &self,
        event: &Event,
        record: &ExceptionRecord,
        before: &Before,
        leftover: bool,
    ) -> bool {
        // The engine gives an ended thread's id to the next one, so both ids count.
        let now = self.thread_ids().unwrap_or_default();
        let thread = now.iter().find(|(id, _)| *id == event.thread);
        let old = thread.is_none_or(|thread| before.threads.contains(thread));
        // A new process's own first stop looks the same.
        // That of a break which an earlier run no longer needed may have been there already.
        if (old && !leftover) || !before.processes.contains(&event.process) {
            return false;
        }
        let at = self.read_symbol_at(record.address).ok().flatten();
        at.is_some_and(|hit| hit.displacement <= 1 && hit.name.eq_ignore_ascii_case("DbgBreakPoint"))
            || self
                .export_address("ntdll", "DbgBreakPoint")
                .is_some_and(|a| record.address.wrapping_sub(a) <= 1)
    }

    fn export_address(&self, module: &str, name: &str) -> Option<u64> {
        let module = self.module_named(module).ok().flatten()?;
        let image = pe::MappedImage::new(self, module.base);
        let header = pe::Pe::parse(&image).ok()?;
        let export = header.exports(&image).into_iter().find(|e| e.name.as_deref() == Some(name))?;
        module.base.checked_add(u64::from(export.rva()?))
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
            Some(_) => self.undelivered.set(true),
            None => {}
        }
        self.watchdog.drain();
        self.sync_selection();
        stop.output = Collected::take(&self.output);
    }

    /// Makes the thread current again that was before the run, if it still is there.
    pub(crate) fn leave_break_thread(&self, before: &Before) {
        self.step_past_break();
        let now = self.thread_ids().unwrap_or_default();
        let still_there =
            |current: &u32| before.threads.iter().any(|thread| thread.0 == *current && now.contains(thread));
        if let Some(current) = before.current.filter(still_there) {
            // SAFETY: integers only.
            let _ = unsafe { self.system.SetCurrentThreadId(current) };
        }
    }

    /// The engine steps off a break instruction on the current thread only; with another one made
    /// current the injected thread would run into it again.
    fn step_past_break(&self) {
        // SAFETY: no arguments.
        let Ok(ip) = (unsafe { self.registers.GetInstructionOffset() }) else { return };
        if self.read_u8(self.narrow(ip)) != Ok(INT3) {
            return;
        }
        let past = self.narrow(ip).wrapping_add(1);
        let set = |name| target::Write::set_register(self, name, past);
        if let Err(error) = set("rip").or_else(|_| set("eip")) {
            tracing::warn!("the break-in thread stays at its break instruction: {error}");
        }
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
