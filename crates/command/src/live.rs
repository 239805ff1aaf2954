//! Commands that change a live target: memory, registers, breakpoints, and letting it move. On a
//! target that cannot, they are errors and never success with a text (spec 20 section 2.11).

use std::time::{Duration, Instant};

use control::{Control, Runs, StopRecord, Wanted};
use target::capability::{Access, CommandOutput, Resume, RunStop};
use target::{Driven, Halt, Result, Space, Target, TargetError, TargetExt};

use crate::catalog;
use crate::line;
use crate::operand::{word, words};
use crate::run::{Run, usage};
use crate::session::{COMMANDS_LIMIT, Session, before_any, is_stop, with_output};

/// What a line needs that may let the target move.
pub struct Live<'a> {
    pub runs: &'a mut Runs,
    /// From the line's beginning to the last stop.
    pub wait: Duration,
    /// Called once the target really moves.
    pub moving: &'a dyn Fn(),
}

/// Bytes one `e` command writes.
const WRITE_LIMIT: usize = 4096;
/// Steps of one `p` or `t`.
const STEPS_LIMIT: u64 = 0x1_0000;

/// What is done by a command of this module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    /// Units of so many bytes.
    Enter(usize),
    /// Text, as UTF-16 or not, with a zero or not.
    EnterText {
        wide: bool,
        zero: bool,
    },
    Register,
    Break,
    Watch,
    Clear,
    List,
    Move(Resume),
    Up,
}

const TABLE: [(&str, Change); 19] = [
    ("eb", Change::Enter(1)),
    ("ew", Change::Enter(2)),
    ("ed", Change::Enter(4)),
    ("eq", Change::Enter(8)),
    ("ep", Change::Enter(0)),
    ("ea", Change::EnterText { wide: false, zero: false }),
    ("eza", Change::EnterText { wide: false, zero: true }),
    ("eu", Change::EnterText { wide: true, zero: false }),
    ("ezu", Change::EnterText { wide: true, zero: true }),
    ("bp", Change::Break),
    ("bu", Change::Break),
    ("ba", Change::Watch),
    ("bc", Change::Clear),
    ("bl", Change::List),
    ("g", Change::Move(Resume::Go)),
    ("p", Change::Move(Resume::StepOver)),
    ("t", Change::Move(Resume::StepInto)),
    ("gu", Change::Up),
    ("r", Change::Register),
];

/// The change a command makes, and its operands.
fn find(command: &str) -> Option<(Change, &str)> {
    let end = command.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(command.len());
    let (verb, operands) = (&command[..end], command[end..].trim());
    let (_, change) = TABLE.iter().find(|(known, _)| known.eq_ignore_ascii_case(verb))?;
    let pseudo = operands.trim_start_matches('@').starts_with('$');
    match change {
        // Without a value it is read; `$t0` is the session's own.
        Change::Register if !operands.contains('=') || pseudo => None,
        change => Some((*change, operands)),
    }
}

impl Session {
    /// [`Session::execute`] with the commands that change a live target: `e*`, `r x=`, `bp`, `bu`,
    /// `ba`, `bc`, `bl`, `g`, `gu`, `p`, `t`.
    ///
    /// # Errors
    /// As there; `unsupported` where the target cannot, before anything of the line is run for a
    /// command that is not known.
    pub fn drive(&mut self, target: &dyn Target, text: &str, live: Live<'_>, halt: &Halt) -> Result<Driven> {
        let commands = line::split(text)?;
        if commands.len() > COMMANDS_LIMIT {
            return Err(usage(format!("more than {COMMANDS_LIMIT} commands")));
        }
        for command in &commands {
            if find(command).is_none() {
                catalog::find(command).map_err(|error| before_any(error, commands.len()))?;
            }
        }
        let mut driving = Driving { live, began: Instant::now(), stop: None };
        let halt = halt.at_most(driving.live.wait);
        let mut run = Run::new(self, target, &halt);
        let mut cut_short = false;
        for command in &commands {
            let served = run.check().and_then(|()| match find(command) {
                Some((change, operands)) => driving.serve(&mut run, change, operands),
                None => catalog::find(command).and_then(|(serve, operands)| serve(&mut run, operands)),
            });
            match served {
                Ok(()) => {}
                Err(error) if is_stop(&error) => {
                    cut_short = true;
                    break;
                }
                Err(error) => return Err(with_output(error, &run.into_text())),
            }
            // What follows a stop nobody asked for would run somewhere else.
            if driving.stop.as_ref().is_some_and(|s| s.interrupted || s.timed_out || s.target_gone) {
                break;
            }
        }
        let cut_short = cut_short || run.is_full();
        let output = CommandOutput { text: run.into_text(), cut_short };
        Ok(Driven { output, failed: None, stop: driving.stop })
    }

    /// The value of an expression as this session's commands see it: its `$t0` to `$t19`, and the
    /// context `.cxr` set.
    ///
    /// # Errors
    /// The evaluator's.
    pub fn evaluate(&mut self, target: &dyn Target, text: &str, halt: &Halt) -> Result<u64> {
        Run::new(self, target, halt).evaluate(text)
    }
}

struct Driving<'a> {
    live: Live<'a>,
    began: Instant,
    stop: Option<RunStop>,
}

impl Driving<'_> {
    fn serve(&mut self, run: &mut Run<'_>, change: Change, operands: &str) -> Result<()> {
        match change {
            Change::Enter(unit) => enter(run, unit, operands),
            Change::EnterText { wide, zero } => enter_text(run, wide, zero, operands),
            Change::Register => register(run, operands),
            Change::Break => set(run, Wanted { pass_count: 1, ..Wanted::default() }, operands),
            Change::Watch => watch(run, operands),
            Change::Clear => clear(run, operands),
            Change::List => list(run),
            Change::Move(how) => self.moves(run, how, operands),
            Change::Up => {
                let stack = run.stack(1)?;
                let back = stack.frames.iter().find(|frame| !frame.inline).map(|f| f.return_address);
                match back.filter(|back| *back != 0) {
                    Some(back) => self.run_to(run, back),
                    None => Err(TargetError::failed("this frame has no caller to go up to")),
                }
            }
        }
    }

    fn left(&self) -> Duration {
        self.live.wait.saturating_sub(self.began.elapsed()).max(Duration::from_millis(1))
    }

    fn moves(&mut self, run: &mut Run<'_>, how: Resume, operands: &str) -> Result<()> {
        control::run_of(run.target)?;
        if how == Resume::Go && !operands.is_empty() {
            let at = run.evaluate(operands)?;
            return self.run_to(run, at);
        }
        let count = if operands.is_empty() { 1 } else { run.evaluate(operands)? };
        if count == 0 || count > STEPS_LIMIT {
            return Err(usage(format!("a count is 1 to {STEPS_LIMIT:#x}")));
        }
        for _ in 0..count {
            run.check()?;
            let bound = self.left();
            let mut control = Control {
                target: run.target,
                runs: self.live.runs,
                halt: run.halt,
                moving: self.live.moving,
            };
            let record = control::run(&mut control, how, bound)?;
            run.session.reset_scope();
            let going = record.reason.as_ref().is_some_and(|reason| reason.kind == control::ReasonKind::Step);
            self.stopped(run, record);
            if !going {
                break;
            }
        }
        Ok(())
    }

    fn run_to(&mut self, run: &mut Run<'_>, at: u64) -> Result<()> {
        let bound = self.left();
        let mut control =
            Control { target: run.target, runs: self.live.runs, halt: run.halt, moving: self.live.moving };
        let ran = control::run_to(&mut control, at, bound)?;
        run.session.reset_scope();
        let record = StopRecord {
            command: "g".to_owned(),
            stopped_at: ran.stopped_at,
            reason: ran.reason,
            interrupted: ran.interrupted,
            timed_out: ran.verdict == control::Verdict::Timeout,
            target_gone: ran.verdict == control::Verdict::TargetGone,
            output: ran.output,
            ..StopRecord::default()
        };
        self.stopped(run, record);
        Ok(())
    }

    fn stopped(&mut self, run: &mut Run<'_>, record: StopRecord) {
        run.say_block(&record.output);
        if !record.output.is_empty() && !record.output.ends_with('\n') {
            run.say("");
        }
        let why = record.reason.as_ref().map(control::Reason::describe).unwrap_or_default();
        match record.stopped_at {
            Some(at) => run.say(format!("stopped at {} ({at}): {why}", run.target.describe(at.0))),
            None => run.say(why),
        }
        self.stop = Some(RunStop {
            reason: target::capability::StopReason::Unknown,
            timed_out: record.timed_out,
            interrupted: record.interrupted,
            target_gone: record.target_gone,
            break_thread: record.break_thread,
            output: String::new(),
        });
    }
}

fn writer<'a>(run: &Run<'a>) -> Result<&'a dyn target::Write> {
    let target = run.target;
    target.write().ok_or_else(|| {
        let what = match target.facts().kind.is_live() {
            true => "this target takes no writes",
            false => "a dump takes no writes; a live process does",
        };
        TargetError::unsupported("not_live", what)
    })
}

fn write(run: &mut Run<'_>, address: u64, bytes: &[u8]) -> Result<()> {
    let holding = writer(run)?.write(Space::Virtual, address, bytes)?;
    if holding == bytes.len() {
        return Ok(());
    }
    Err(TargetError::failed(format!(
        "only {holding} of {} bytes at {address:#x} hold the new value",
        bytes.len()
    )))
}

fn enter(run: &mut Run<'_>, unit: usize, operands: &str) -> Result<()> {
    writer(run)?;
    let unit = if unit == 0 { usize::from(run.target.facts().machine.pointer_size()) } else { unit };
    let (address, mut rest) = run.evaluate_prefix(operands)?;
    if rest.is_empty() {
        return Err(usage("values are needed: nobody is asked for them here"));
    }
    let mut bytes = Vec::new();
    while !rest.is_empty() {
        let (token, after) = word(rest);
        let value = run.evaluate(token)?;
        if unit < 8 && value >> (unit * 8) != 0 && value >> (unit * 8 - 1) != u64::MAX >> (unit * 8 - 1) {
            return Err(usage(format!("{token} does not fit {unit} bytes")));
        }
        bytes.extend_from_slice(&value.to_le_bytes()[..unit]);
        if bytes.len() > WRITE_LIMIT {
            return Err(usage(format!("at most {WRITE_LIMIT} bytes at once")));
        }
        rest = after;
    }
    write(run, address, &bytes)
}

fn enter_text(run: &mut Run<'_>, wide: bool, zero: bool, operands: &str) -> Result<()> {
    writer(run)?;
    let (address, rest) = run.evaluate_prefix(operands)?;
    let text = rest.trim().strip_prefix('"').map(|text| text.strip_suffix('"').unwrap_or(text));
    let text = text.ok_or_else(|| usage("text in quotes is needed"))?;
    let mut bytes: Vec<u8> = match wide {
        true => text.encode_utf16().flat_map(u16::to_le_bytes).collect(),
        false => text.as_bytes().to_vec(),
    };
    if zero {
        bytes.extend_from_slice(if wide { &[0, 0] } else { &[0] });
    }
    if bytes.len() > WRITE_LIMIT {
        return Err(usage(format!("at most {WRITE_LIMIT} bytes at once")));
    }
    write(run, address, &bytes)
}

fn register(run: &mut Run<'_>, operands: &str) -> Result<()> {
    let writer = writer(run)?;
    for part in operands.split(',') {
        let (name, value) = part.split_once('=').ok_or_else(|| usage("r NAME=VALUE"))?;
        let value = run.evaluate(value)?;
        writer.set_register(name.trim().trim_start_matches('@'), value)?;
    }
    run.session.reset_scope();
    Ok(())
}

fn set(run: &mut Run<'_>, wanted: Wanted, operands: &str) -> Result<()> {
    let (place, command) = match operands.split_once('"') {
        Some((place, command)) => (place.trim(), Some(command.trim_end().trim_end_matches('"'))),
        None => (operands, None),
    };
    if place.is_empty() {
        return Err(usage("a place is needed"));
    }
    let wanted =
        Wanted { expression: Some(place.to_owned()), command: command.map(ToOwned::to_owned), ..wanted };
    let change = control::set(run.target, &wanted, run.halt)?;
    for id in &change.replaced {
        run.say(format!("breakpoint {id} redefined"));
    }
    if change.breakpoint.deferred {
        run.say(format!("breakpoint {} waits until {place} is loaded", change.breakpoint.id));
    }
    Ok(())
}

fn watch(run: &mut Run<'_>, operands: &str) -> Result<()> {
    let (how, rest) = word(operands);
    let access = match how.get(..1).map(str::to_ascii_lowercase).as_deref() {
        Some("r") => Access::Read,
        Some("w") => Access::Write,
        Some("e") => Access::Execute,
        Some("i") => Access::Io,
        _ => return Err(usage("ba e|r|w|i SIZE ADDRESS")),
    };
    let (size, rest) = match how.get(1..).filter(|digits| !digits.is_empty()) {
        Some(digits) => (digits, rest),
        None => word(rest),
    };
    let size = size.parse::<u8>().map_err(|_| usage("a size of 1, 2, 4 or 8 is needed"))?;
    // `ba r` stops on writes, too: the processor cannot tell.
    let access = if access == Access::Read { Access::ReadWrite } else { access };
    set(run, Wanted { pass_count: 1, watch: Some((access, size)), ..Wanted::default() }, rest)
}

fn clear(run: &mut Run<'_>, operands: &str) -> Result<()> {
    let ids = match operands {
        "*" => None,
        "" => return Err(usage("bc * or the breakpoints' ids")),
        list => {
            let parsed: Option<Vec<u32>> =
                words(list).iter().flat_map(|w| w.split(',')).map(|id| id.parse().ok()).collect();
            Some(parsed.ok_or_else(|| usage("breakpoints are named by their ids, decimal"))?)
        }
    };
    let cleared = control::clear(run.target, ids.as_deref())?;
    for id in &cleared.missing {
        run.say(format!("there is no breakpoint {id}"));
    }
    match cleared.failed.first() {
        Some(failed) => Err(TargetError::failed(format!("breakpoint {}: {}", failed.id, failed.error))),
        None => Ok(()),
    }
}

fn list(run: &mut Run<'_>) -> Result<()> {
    for row in control::list(run.target)? {
        let enabled = if row.enabled { 'e' } else { 'd' };
        let place = row.address.map(|at| format!("{at} {}", run.target.describe(at.0)));
        let watch = row.watch.map(|w| format!(" {} {}", w.access.word(), w.size)).unwrap_or_default();
        run.say(format!("{:>2} {enabled}{watch} {}", row.id, place.or(row.expression).unwrap_or_default()));
    }
    Ok(())
}
