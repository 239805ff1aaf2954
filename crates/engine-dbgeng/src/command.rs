//! The engine's own interpreter, bounded: a command that leaves the target running is pumped to a
//! stop, and what became of the target is asked from the engine, never read from the text.

use std::time::Duration;

use target::capability::{CommandOutput, RunStop, StopReason};
use target::{Command, DataModel, Driven, Halt, Result, TargetError, TargetExt};
use windows::Win32::System::Diagnostics::Debug::Extensions::{
    DEBUG_OUTCTL_THIS_CLIENT, DEBUG_STATUS_NO_DEBUGGEE, DEBUG_STATUS_RESTART_REQUESTED,
};
use windows::core::HSTRING;

use crate::engine::{DbgEng, explain};
use crate::output::Collected;
use crate::run::Before;
use crate::watchdog::Watched;

/// Longest a command that resumed the target is waited for.
const PUMP: Duration = Duration::from_secs(60);
/// `DEBUG_EXECUTE_NO_REPEAT` (dbgeng.h): an empty line is not the last command again.
const NO_REPEAT: u32 = 4;

/// The wait for the stop of a target a command set going.
struct Pump<'a> {
    before: &'a Before,
    halt: &'a Halt,
    wait: Duration,
    on_moving: &'a dyn Fn(),
}

impl DbgEng {
    pub(crate) fn run_line(&self, line: &str, halt: &Halt) -> Result<CommandOutput> {
        let wait = halt.remaining().map_or(PUMP, |left| left.min(PUMP));
        let driven = self.driven(line, halt, wait, &|| {})?;
        match driven.failed {
            Some(why) if driven.output.text.trim().is_empty() => {
                Err(TargetError::failed(format!("DbgEng refused the command: {why}")))
            }
            _ => Ok(driven.output),
        }
    }

    /// Runs a line until `halt` says otherwise and, if it left the target running, waits for the stop:
    /// at most `wait` from then on.
    fn driven(&self, line: &str, halt: &Halt, wait: Duration, on_moving: &dyn Fn()) -> Result<Driven> {
        self.alive()?;
        halt.check("running the command")?;
        self.watchdog.drain();
        Collected::take(&self.output);
        let before = self.before();
        let identity = self.processes_here();
        let line = HSTRING::from(line);
        let (result, cause) = self.watchdog.during(halt, None, Watched::Call, || {
            // SAFETY: the string lives for the call.
            unsafe { self.control.ExecuteWide(DEBUG_OUTCTL_THIS_CLIENT, &line, NO_REPEAT) }
        });
        let mut text = Collected::take(&self.output);
        let failed = result.err().filter(|_| cause.is_none()).map(|error| refusal(&error));
        self.forget();
        let pump = Pump { before: &before, halt, wait, on_moving };
        let stop = self.after_command(&pump, &mut text);
        self.watchdog.drain();
        if self.processes_here() != identity {
            self.generation.set(self.generation.get() + 1);
        }
        // The user may have changed what evaluation depends on.
        // SAFETY: integers only.
        let _ = unsafe { self.control.SetRadix(16) };
        let output = CommandOutput { text, cut_short: cause.is_some() };
        Ok(Driven { output, failed, stop })
    }

    /// What the command did to the target, from the engine's state.
    fn after_command(&self, pump: &Pump<'_>, text: &mut String) -> Option<RunStop> {
        // SAFETY: no arguments.
        let status = match unsafe { self.control.GetExecutionStatus() } {
            Ok(status) => status,
            Err(error) => {
                note(text, &format!("whether the target is running could not be asked: {}", explain(&error)));
                return None;
            }
        };
        match status {
            DEBUG_STATUS_NO_DEBUGGEE => {
                let what = match self.exited_with() {
                    Some(code) => format!("the process ended with exit code {code:#x} ({code})"),
                    None if self.is_live() => "it was let go of".to_owned(),
                    None => "the dump was closed".to_owned(),
                };
                note(text, &format!("the engine holds no target any more: {what}"));
                self.set_gone(format!("a command ended the session with it: {what}"));
            }
            DEBUG_STATUS_RESTART_REQUESTED => note(text, "the engine was asked to restart the target"),
            _ if self.is_live() && self.running() => return self.pump_command(pump, text),
            _ => self.sync_selection(),
        }
        None
    }

    fn pump_command(&self, pump: &Pump<'_>, text: &mut String) -> Option<RunStop> {
        (pump.on_moving)();
        match self.pump(pump.wait, pump.before, pump.halt) {
            Ok(stop) => {
                text.push_str(&stop.output);
                note(text, &self.where_stopped(&stop));
                Some(stop)
            }
            Err(error) => {
                let more = if self.running() { "; the target is still set to run" } else { "" };
                note(text, &format!("{error}{more}"));
                self.sync_selection();
                None
            }
        }
    }

    fn where_stopped(&self, stop: &RunStop) -> String {
        if stop.target_gone {
            return match stop.reason {
                StopReason::Exited { code: Some(code) } => {
                    format!("the process ended with exit code {code:#x} ({code})")
                }
                _ => "the process ended".to_owned(),
            };
        }
        // SAFETY: no arguments.
        let ip = unsafe { self.registers.GetInstructionOffset() }.map(|ip| self.narrow(ip));
        let place = ip.map_or_else(
            |_| "an unknown place".to_owned(),
            |ip| format!("{} ({})", self.describe(ip), target::Address(ip)),
        );
        let why = if stop.timed_out {
            "broken in at the bound, which is not a stop it reached".to_owned()
        } else if stop.interrupted {
            "broken in on request".to_owned()
        } else {
            reason_words(&stop.reason)
        };
        format!("the target is stopped at {place}: {why}")
    }
}

/// `Execute` answers this for whatever a command complains of; the complaint is in the output.
const COMMAND_FAILED: u32 = 0x8004_0205;

fn refusal(error: &windows::core::Error) -> String {
    match error.code().0.cast_unsigned() {
        COMMAND_FAILED => format!("the command failed ({COMMAND_FAILED:#010x})"),
        _ => explain(error),
    }
}

fn reason_words(reason: &StopReason) -> String {
    match reason {
        StopReason::Breakpoint { id } => format!("breakpoint {id}"),
        StopReason::DataBreakpoint { id } => format!("data breakpoint {id}"),
        StopReason::Step => "step".to_owned(),
        StopReason::Exception { record, first_chance } => {
            format!(
                "exception {:#010x}, {} chance",
                record.code,
                if *first_chance { "first" } else { "second" }
            )
        }
        StopReason::BreakIn => "break-in".to_owned(),
        StopReason::ModuleLoad { name } => format!("{name} was loaded"),
        StopReason::ThreadEvent => "a thread event".to_owned(),
        StopReason::EndOfTrace => "the end of the trace".to_owned(),
        StopReason::Exited { .. } => "the process ends".to_owned(),
        StopReason::Unknown => "for a reason the engine does not say".to_owned(),
    }
}

fn note(text: &mut String, line: &str) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(line);
    text.push('\n');
}

impl Command for DbgEng {
    fn execute(&self, line: &str, halt: &Halt) -> Result<CommandOutput> {
        self.run_line(line, halt)
    }

    fn drive(&self, line: &str, wait: Duration, on_moving: &dyn Fn(), halt: &Halt) -> Result<Driven> {
        self.driven(line, &halt.at_most(wait), wait, on_moving)
    }
}

impl DataModel for DbgEng {
    fn dx(&self, expression: &str, recursion: u32, halt: &Halt) -> Result<CommandOutput> {
        self.run_line(&format!("dx -r{recursion} {expression}"), halt)
    }
}
