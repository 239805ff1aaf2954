//! A script: what a scripted target does when it is opened, asked and let go.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::ScriptedTarget;
use super::live::ScriptRun;
use crate::Ending;
use crate::context::{Context, ContextSource};
use crate::error::TargetError;
use crate::execution::Thread;
use crate::halt::{Halt, Stop};
use crate::machine::Machine;
use crate::value::{Address, HexBytes};

/// A scripted target as text describes it (JSON in tests of worker and supervisor).
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Script {
    /// Before the target exists: a failure here leaves nothing behind.
    pub open: Vec<Step>,
    /// After it exists.
    pub load: Vec<Step>,
    /// What each command line does; others fail.
    pub commands: BTreeMap<String, Vec<Step>>,
    pub release: Vec<Step>,
    /// What each resume does; with any, the target is a live process.
    pub runs: Vec<ScriptRun>,
    /// Threads of a live one, numbered from 1.
    pub threads: u32,
    /// How a live one ends; `terminated` when absent.
    pub ending: Option<ScriptEnding>,
    pub memory: Vec<ScriptBytes>,
    pub modules: Vec<ScriptModule>,
    pub writable: Option<ScriptFile>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScriptEnding {
    Closed,
    Detached,
    Terminated,
}

impl From<ScriptEnding> for Ending {
    fn from(ending: ScriptEnding) -> Self {
        match ending {
            ScriptEnding::Closed => Self::Closed,
            ScriptEnding::Detached => Self::Detached,
            ScriptEnding::Terminated => Self::Terminated,
        }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptBytes {
    pub address: Address,
    pub bytes: HexBytes,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptModule {
    pub name: String,
    pub base: Address,
    pub size: u64,
}

/// One thing a script does.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    Say(String),
    /// `text` so many times.
    Repeat {
        text: String,
        count: usize,
    },
    /// What is left of the job's bound, in milliseconds.
    SayRemaining,
    /// Every command line run so far, one a line.
    SayHistory,
    /// Works for `ms`; a break or the deadline cuts it.
    Sleep {
        ms: u64,
    },
    /// Sleeps `ms` whatever is asked of it.
    Deaf {
        ms: u64,
    },
    Fail(String),
    /// The target is gone.
    Gone(String),
    Panic(String),
    /// Ends the process like a crash.
    Abort,
    Exit(i32),
    /// Recurses until the stack is used up.
    Overflow,
    /// Keeps so much more memory.
    Allocate {
        mib: usize,
    },
    /// Writes to the process's own stdout, without a line break.
    Print(String),
    /// Of a command: the target holds something else from here on.
    Replace,
    /// Of a command: another target or process is selected.
    Aim(String),
    /// Of a command: writes to the writable memory.
    Poke(ScriptBytes),
    /// Of a command: does what the next resume does.
    Go,
}

/// Memory that can be written: a file, so that somebody else can look at it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptFile {
    pub address: Address,
    pub path: std::path::PathBuf,
}

impl ScriptedTarget {
    /// An x64 target as `script` describes it. Its `open` and `load` steps are the opener's.
    #[must_use]
    pub fn from_script(script: &Script) -> Self {
        let mut target = Self::new(Machine::X64);
        for bytes in &script.memory {
            target.memory.add(bytes.address.0, bytes.bytes.0.clone());
        }
        for module in &script.modules {
            target = target.with_module(&module.name, module.base.0, module.size);
        }
        target.commands.clone_from(&script.commands);
        target.release.clone_from(&script.release);
        target.writable = script.writable.clone().and_then(super::writable::FileMemory::open);
        if script.runs.is_empty() {
            return target;
        }
        for id in 1..=script.threads.max(1) {
            let mut context = Context::new(Machine::X64, ContextSource::Live);
            context.set_ip(0x1000 * u64::from(id));
            let thread = Thread { system_id: id, event: id == 1, ..Thread::default() };
            target = target.with_thread(thread, Some(context));
        }
        target.ending = script.ending.map_or(Ending::Terminated, Into::into);
        target.with_runs(script.runs.clone())
    }
}

/// What a run of steps came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Played {
    pub text: String,
    /// Stopped by the halt before the last step.
    pub cut_short: bool,
}

/// Plays steps; `history` is what [`Step::SayHistory`] says.
///
/// # Errors
/// What the script says, never anything else.
pub fn play(steps: &[Step], history: &[String], halt: &Halt) -> Result<Played, TargetError> {
    let mut played = Played::default();
    for step in steps {
        if let Some(stop) = play_one(step, history, halt, &mut played.text)? {
            played.cut_short = true;
            played.text.push_str(match stop {
                Stop::Interrupted => "[cut: interrupted]",
                Stop::Deadline => "[cut: time ran out]",
            });
            break;
        }
    }
    Ok(played)
}

fn play_one(
    step: &Step,
    history: &[String],
    halt: &Halt,
    text: &mut String,
) -> Result<Option<Stop>, TargetError> {
    match step {
        Step::Say(words) => text.push_str(words),
        Step::Repeat { text: piece, count } => text.push_str(&piece.repeat(*count)),
        Step::SayRemaining => {
            let remaining = halt.remaining().map_or("unbounded".to_owned(), |r| r.as_millis().to_string());
            text.push_str(&remaining);
        }
        Step::SayHistory => text.push_str(&history.join("\n")),
        Step::Sleep { ms } => return Ok(sleep(Duration::from_millis(*ms), halt)),
        Step::Deaf { ms } => std::thread::sleep(Duration::from_millis(*ms)),
        Step::Fail(words) => return Err(TargetError::failed(words.clone())),
        Step::Gone(words) => return Err(TargetError::Gone(words.clone())),
        Step::Panic(words) => panic!("{words}"),
        Step::Abort => std::process::abort(),
        Step::Exit(code) => std::process::exit(*code),
        Step::Overflow => text.push_str(&overflow(1).to_string()),
        Step::Allocate { mib } => {
            // Kept: a script that asks for memory wants it held.
            std::mem::forget(std::hint::black_box(vec![1_u8; mib << 20]));
        }
        Step::Print(words) => {
            let mut out = std::io::stdout();
            let _ = out.write_all(words.as_bytes()).and_then(|()| out.flush());
        }
        // What changes the target is the target's own to do.
        Step::Replace | Step::Aim(_) | Step::Poke(_) | Step::Go => {}
    }
    Ok(None)
}

fn sleep(length: Duration, halt: &Halt) -> Option<Stop> {
    let end = Instant::now() + length;
    loop {
        if let Some(stop) = halt.stop() {
            return Some(stop);
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return None;
        }
        std::thread::sleep(left.min(Duration::from_millis(5)));
    }
}

#[expect(unconditional_recursion, reason = "that is what the step is for")]
fn overflow(depth: u64) -> u64 {
    let page = std::hint::black_box([depth; 512]);
    overflow(depth + 1) + page[1]
}
