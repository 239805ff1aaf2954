//! The action of one step, inside a panic guard: an unwind becomes a failed step, because the guard
//! around the whole operation sits outside the rollback and would skip it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use control::Verdict;

use crate::budget::{FLOOR, step_budget};
use crate::step::{Op, Restore, Step};
use crate::subject::{Done, Failure, Subject};
use crate::validate::hex;

/// Wait of a `resume` or `run_to` that names none.
const WAIT: Duration = Duration::from_secs(60);
/// Bytes of a read rendered as text; the rest is counted.
const RENDERED: usize = 4096;
/// Characters of one full line of a hex dump.
const LINE: usize = 16 + 1 + 48 + 2 + 16 + 1;

/// A restore the engine process owes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owed {
    pub(crate) step: usize,
    pub(crate) address: u64,
    pub(crate) old: Vec<u8>,
    pub(crate) when: Restore,
}

/// What an action came to.
#[derive(Debug, Default)]
pub(crate) struct Acted {
    pub(crate) done: Done,
    pub(crate) failure: Option<String>,
    pub(crate) value: Option<u64>,
    pub(crate) bytes: Option<Vec<u8>>,
    /// Characters of output that were not made.
    pub(crate) beyond: usize,
    /// It was refused before anything could change.
    pub(crate) untouched: bool,
    /// It succeeded in part: a read that met a hole.
    pub(crate) partial: bool,
}

/// The text of a panic.
pub(crate) fn panic_text(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    format!("panicked: {}", text.unwrap_or("no message"))
}

/// Runs `action`, a panic as its text.
pub(crate) fn guarded<T>(action: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(action)).map_err(|payload| panic_text(&*payload))
}

/// Does what `step` says, its block ending at `deadline`. A restore that is owed from here on is in
/// `owed` before anything is written.
pub(crate) fn act(
    subject: &mut dyn Subject,
    step: &Step,
    position: usize,
    deadline: Duration,
    owed: &mut Vec<Owed>,
) -> Acted {
    guarded(|| perform(subject, step, position, deadline, owed))
        .unwrap_or_else(|panic| Acted { failure: Some(panic), ..Acted::default() })
}

fn perform(
    subject: &mut dyn Subject,
    step: &Step,
    position: usize,
    deadline: Duration,
    owed: &mut Vec<Owed>,
) -> Acted {
    let within = step_budget(deadline, subject.elapsed());
    let wait = step.timeout_ms.map_or(WAIT, Duration::from_millis).clamp(FLOOR, within);
    let command = step.command.as_deref().unwrap_or_default();
    let address = step.address.as_deref().unwrap_or_default();
    match step.op {
        Op::Command => stopped(refusable(subject.command(command, within), command), within),
        Op::Resume => stopped(refusable(subject.resume(command, wait), command), wait),
        Op::RunTo => done(refusable(subject.run_to(address, wait), address), wait),
        Op::Eval => match subject.eval(step.expr.as_deref().unwrap_or_default(), within) {
            Ok(value) => Acted { value: Some(value), ..Acted::default() },
            Err(failure) => failed(failure),
        },
        Op::ReadMemory => read(subject, address, step.size.unwrap_or_default() as usize, within),
        Op::WriteMemory => {
            let when = step.restore.unwrap_or(Restore::Always);
            let write = Write { position, address, when, within };
            write.perform(subject, step.bytes.as_deref().unwrap_or_default(), owed)
        }
    }
}

/// A single command that was refused by kind or by its arguments did nothing; of several, the first
/// may have run.
fn refusable(result: Result<Done, Failure>, text: &str) -> Result<Done, Failure> {
    result.map_err(|failure| {
        let refused = matches!(failure.category, "unsupported" | "invalid_argument");
        let single = !text.contains([';', '\n', '\r', '{', '"', '<']);
        let untouched = failure.untouched || (refused && single && failure.done == Done::default());
        Failure { untouched, ..failure }
    })
}

fn failed(failure: Failure) -> Acted {
    let untouched = failure.untouched;
    let prefix = match failure.category {
        "" | "debugger" => String::new(),
        category => format!("{category}: "),
    };
    let message = format!("{prefix}{}", failure.message);
    Acted { failure: Some(message), done: failure.done, untouched, ..Acted::default() }
}

fn done(result: Result<Done, Failure>, within: Duration) -> Acted {
    match result {
        Ok(done) if done.cut_short => {
            let failure = format!("it was stopped before its end; it had at most {} ms", within.as_millis());
            Acted { failure: Some(failure), done, ..Acted::default() }
        }
        Ok(done) => Acted { done, ..Acted::default() },
        Err(failure) => failed(failure),
    }
}

/// A target that was broken in because the wait ran out did not reach a stop.
fn stopped(result: Result<Done, Failure>, wait: Duration) -> Acted {
    let mut acted = done(result, wait);
    if acted.done.timed_out {
        let text = format!("{} ms passed without a stop and the target was broken in", wait.as_millis());
        acted.failure = Some(text);
    }
    acted
}

/// The number an address field means; names need the engine.
fn place(subject: &mut dyn Subject, address: &str, within: Duration) -> Result<u64, Failure> {
    match expression::parse_address(address) {
        Ok(address) => Ok(address),
        Err(error @ expression::AddressError::Ambiguous { .. }) => {
            Err(Failure::new("invalid_argument", error.to_string()))
        }
        Err(_) => subject.eval(address, within),
    }
}

fn read(subject: &mut dyn Subject, address: &str, size: usize, within: Duration) -> Acted {
    let read = place(subject, address, within).and_then(|at| Ok((at, subject.read(at, size, within)?)));
    let (at, bytes) = match read {
        Ok((at, bytes)) if bytes.is_empty() => {
            return Acted { failure: Some(format!("nothing can be read at {at:#018x}")), ..Acted::default() };
        }
        Ok(read) => read,
        Err(failure) => return failed(failure),
    };
    let rendered = bytes.len().min(RENDERED);
    let mut output = dump(at, &bytes[..rendered]);
    let partial = bytes.len() < size;
    if partial {
        output.push_str(&format!("{} of {size} bytes can be read\n", bytes.len()));
    }
    let beyond = (bytes.len() - rendered).div_ceil(16) * LINE;
    let done = Done { output, ..Done::default() };
    Acted { done, bytes: Some(bytes), beyond, partial, ..Acted::default() }
}

/// Lines of a hex dump.
pub(crate) fn dump(address: u64, bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(16) * LINE);
    for (index, line) in bytes.chunks(16).enumerate() {
        let hex: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
        let shown = |byte: &u8| if (0x20..0x7f).contains(byte) { char::from(*byte) } else { '.' };
        let ascii: String = line.iter().map(shown).collect();
        let at = address.wrapping_add(index as u64 * 16);
        text.push_str(&format!("{at:016x} {:<48}  {ascii}\n", hex.join(" ")));
    }
    text
}

struct Write<'a> {
    position: usize,
    address: &'a str,
    when: Restore,
    within: Duration,
}

impl Write<'_> {
    fn perform(&self, subject: &mut dyn Subject, bytes: &str, owed: &mut Vec<Owed>) -> Acted {
        match self.write(subject, bytes, owed) {
            Ok(output) => Acted { done: Done { output, ..Done::default() }, ..Acted::default() },
            Err(failure) => failed(failure),
        }
    }

    fn write(&self, subject: &mut dyn Subject, bytes: &str, owed: &mut Vec<Owed>) -> Result<String, Failure> {
        let bytes = hex(bytes).map_err(|why| Failure::new("invalid_argument", format!("bytes {why}")))?;
        let at = subject
            .eval(self.address, self.within)
            .map_err(|failure| Failure { untouched: true, ..failure })?;
        let old = subject.read(at, bytes.len(), self.within);
        let old = match old {
            Ok(old) if old.len() == bytes.len() => old,
            Ok(old) => return Err(unreadable(at, bytes.len(), &format!("only {} can be", old.len()))),
            Err(failure) => return Err(unreadable(at, bytes.len(), &failure.message)),
        };
        let owes = self.when != Restore::Never;
        if owes {
            owed.push(Owed { step: self.position, address: at, old: old.clone(), when: self.when });
        }
        if let Err(failure) = subject.write(at, &bytes, self.within) {
            if owes && failure.untouched {
                owed.pop();
            }
            return Err(failure);
        }
        let now = subject.read(at, bytes.len(), self.within)?;
        if now != bytes {
            let text =
                format!("{} bytes were written at {at:#018x} and do not read back as written", bytes.len());
            return Err(Failure::new("debugger", text));
        }
        Ok(format!("{at:#018x}: {} was {}", target::HexBytes(bytes), target::HexBytes(old)))
    }
}

fn unreadable(at: u64, size: usize, why: &str) -> Failure {
    let text = format!("the {size} bytes at {at:#018x} cannot be read, so that nothing was written: {why}");
    Failure { untouched: true, ..Failure::new("debugger", text) }
}

/// What reads like a complaint of the engine although the command succeeded (measured).
const COMPLAINTS: [&str; 6] = [
    "could not be resolved, adding deferred",
    "Couldn't resolve error",
    "Memory access error",
    "Syntax error",
    "Unable to",
    "*** ERROR",
];

/// What a dump of memory shows where none can be read; `r` previews an operand with it.
const UNREADABLE: &str = "????????";

/// Whether a success of the command `text` reads like a failure.
pub(crate) fn suspect(acted: &Acted, text: &str) -> bool {
    let output = &acted.done.output;
    let dumps = || text.split([';', '{', '"']).any(|part| part.trim_start().starts_with(['d', 'D']));
    acted.partial
        || COMPLAINTS.iter().any(|complaint| output.contains(complaint))
        || (output.contains(UNREADABLE) && dumps())
}

/// The word of a verdict, as checks compare it.
pub(crate) fn verdict_word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Hit => "hit",
        Verdict::StoppedElsewhere => "stopped_elsewhere",
        Verdict::Timeout => "timeout",
        Verdict::TargetGone => "target_gone",
    }
}
