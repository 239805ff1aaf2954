//! Every way a routine can go where a branch depends on an unknown value.

use std::collections::VecDeque;

use target::Halt;

use crate::emulator::{Call, Emulator, Event, Stop};
use crate::memory::Fault;
use crate::value::Value;

/// Bounds of an exploration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Instructions of all paths together.
    pub steps: u64,
    /// Forks of all paths together.
    pub forks: u32,
}

impl Default for Limits {
    /// 8,192 steps and 256 forks.
    fn default() -> Self {
        Self { steps: 8192, forks: 256 }
    }
}

/// What to do at an instruction that is about to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visit {
    Continue,
    /// This path has shown what it can.
    EndPath,
    /// The question is answered: no path goes on.
    Finish,
}

/// What to do with a call that was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallAction {
    /// Run the callee's code.
    Enter,
    /// As [`Emulator::return_from_call`].
    Return {
        value: Value,
        popped: u32,
    },
    EndPath,
    Finish,
}

/// Who asks: sees every instruction and decides about calls.
pub trait Host {
    /// Before the instruction at `emulator.registers.ip` runs.
    fn visit(&mut self, emulator: &mut Emulator) -> Visit {
        let _ = emulator;
        Visit::Continue
    }
    /// After a call was made; also for one to a stub (not [`RETURN`]).
    fn call(&mut self, emulator: &mut Emulator, call: &Call) -> CallAction {
        let popped = crate::stack_bytes::inferred(emulator, call);
        CallAction::Return { value: Value::UNKNOWN, popped }
    }
}

/// How a path ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// It returned to [`RETURN`] with this in the return register.
    Returned(Value),
    /// The host ended it.
    Host,
    Stopped(Stop),
}

/// What was explored.
#[derive(Clone)]
pub struct Exploration {
    pub steps: u64,
    pub forks: u32,
    /// The ends of paths, and each path's last state.
    pub ends: Vec<(End, Emulator)>,
    /// The host said [`Visit::Finish`].
    pub finished: bool,
    /// A limit or the halt ended it before every path had ended.
    pub cut_short: bool,
}

/// The return address of the outermost routine.
#[must_use]
pub fn return_address(emulator: &Emulator) -> u64 {
    if emulator.pointer() == 4 { 0xffff_e000 } else { RETURN }
}

/// [`return_address`] of 64-bit machines.
pub const RETURN: u64 = 0xffff_ffff_ffff_e000;

/// Runs `emulator`, whose routine must return to [`return_address`], along every way its branches can
/// go, breadth first, so that a loop on an unknown condition starves nobody.
pub fn explore(emulator: Emulator, limits: &Limits, halt: &Halt, host: &mut dyn Host) -> Exploration {
    let mut state = Exploration { steps: 0, forks: 0, ends: Vec::new(), finished: false, cut_short: false };
    let back = return_address(&emulator);
    let mut waiting = VecDeque::from([emulator]);
    while let Some(mut path) = waiting.pop_front() {
        path.add_stubs(back..back + 16);
        let end = walk(&mut path, limits, halt, host, &mut state, &mut waiting);
        match end {
            Some(end) => state.ends.push((end, path)),
            None => break,
        }
        if state.finished {
            break;
        }
    }
    state
}

/// One path to its end; `None` when a limit ended everything.
fn walk(
    path: &mut Emulator,
    limits: &Limits,
    halt: &Halt,
    host: &mut dyn Host,
    state: &mut Exploration,
    waiting: &mut VecDeque<Emulator>,
) -> Option<End> {
    let back = return_address(path);
    loop {
        if path.registers.ip == back {
            return Some(End::Returned(path.registers.general[0]));
        }
        if state.steps >= limits.steps || state.steps.is_multiple_of(1024) && halt.stop().is_some() {
            state.cut_short = true;
            return None;
        }
        match host.visit(path) {
            Visit::Continue => {}
            Visit::EndPath => return Some(End::Host),
            Visit::Finish => {
                state.finished = true;
                return Some(End::Host);
            }
        }
        let before = path.steps;
        let event = path.step();
        state.steps += path.steps - before;
        match event {
            Event::Ran => {}
            Event::Called(call) => {
                if let Some(end) = called(path, &call, host, state) {
                    return Some(end);
                }
            }
            Event::Stub(at) => {
                if let Some(end) = tail_called(path, at, host, state) {
                    return Some(end);
                }
            }
            Event::Fork(fork) => {
                if state.forks >= limits.forks {
                    state.cut_short = true;
                    return None;
                }
                state.forks += 1;
                let mut other = path.clone();
                other.take(&fork, false);
                path.take(&fork, true);
                // This path too waits for its turn.
                waiting.push_back(other);
                waiting.push_back(path.clone());
                *path = waiting.pop_front()?;
            }
            // A jump to where no code can be read: into another image.
            Event::Stopped(Stop::Fault {
                at,
                fault: Fault::Unknown { address } | Fault::Unmapped { address, .. },
            }) if at == address && at == path.registers.ip => {
                if let Some(end) = tail_called(path, at, host, state) {
                    return Some(end);
                }
            }
            Event::Stopped(stop) => return Some(End::Stopped(stop)),
        }
    }
}

/// A jump that left the code at hand is a call whose callee returns to the caller's caller.
fn tail_called(path: &mut Emulator, at: u64, host: &mut dyn Host, state: &mut Exploration) -> Option<End> {
    state.steps += 1;
    let call = Call { at, target: Some(at), return_address: path.return_address(), indirect: true };
    match host.call(path, &call) {
        CallAction::Enter => Some(End::Stopped(Stop::UnknownTarget { at })),
        action => acted(path, &call, action, state),
    }
}

fn called(path: &mut Emulator, call: &Call, host: &mut dyn Host, state: &mut Exploration) -> Option<End> {
    let action = host.call(path, call);
    acted(path, call, action, state)
}

fn acted(path: &mut Emulator, call: &Call, action: CallAction, state: &mut Exploration) -> Option<End> {
    match action {
        CallAction::Enter if call.target.is_some() => None,
        CallAction::Enter => Some(End::Stopped(Stop::UnknownTarget { at: call.at })),
        CallAction::Return { value, popped } => path.return_from_call(value, popped).err().map(End::Stopped),
        CallAction::EndPath => Some(End::Host),
        CallAction::Finish => {
            state.finished = true;
            Some(End::Host)
        }
    }
}
