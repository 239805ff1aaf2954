//! A whole stack.

use std::collections::HashSet;

use target::{Context, Found, Halt, Machine, Stop, WalkEnd};

use crate::source::UnwindSource;
use crate::step::{Step, StepError, step_with};

/// Most frames of one walk.
const MAX_FRAMES: usize = 4096;
/// Two stack pointers farther apart than this are on different stacks.
const SAME_STACK: u64 = 1 << 20;

/// One physical frame: its registers, how it was found, and where it returns to.
#[derive(Clone, Debug, PartialEq)]
pub struct RawFrame {
    pub context: Context,
    pub found: Found,
    /// Return address of this frame's function: the next frame's ip, 0 when unknown.
    pub return_address: u64,
    /// The context's ip is the instruction about to run, not a return address: symbols are looked
    /// up at the ip itself and not at the instruction before it.
    pub exact_ip: bool,
}

/// A walked stack, innermost frame first.
#[derive(Clone, Debug, PartialEq)]
pub struct RawStack {
    pub frames: Vec<RawFrame>,
    pub end: WalkEnd,
    /// What a reader must know, in sentences.
    pub limitations: Vec<String>,
}

/// Walks from `context`, at most `limit` frames (capped at 4096). The first frame is `context`
/// itself. A walk that cannot go on ends there and says why; it never guesses (see [`crate::scan`]).
#[must_use]
pub fn walk(source: &dyn UnwindSource, context: &Context, limit: usize, halt: &Halt) -> RawStack {
    let first =
        RawFrame { context: context.clone(), found: Found::Context, return_address: 0, exact_ip: true };
    let mut stack = RawStack { frames: vec![first], end: WalkEnd::Limit, limitations: Vec::new() };
    let limit = limit.clamp(1, MAX_FRAMES);
    let mut seen = HashSet::from([(context.ip(), context.sp(), context.fp())]);
    let mut callee_parameters = 0;
    loop {
        match halt.stop() {
            Some(Stop::Deadline) => return ended(stack, WalkEnd::Deadline),
            Some(Stop::Interrupted) => return ended(stack, WalkEnd::Interrupted),
            None => {}
        }
        let index = stack.frames.len() - 1;
        let frame = &stack.frames[index];
        let next = step_with(source, &frame.context, index, frame.exact_ip, callee_parameters);
        let (next, parameters) = match next {
            Ok(next) => next,
            Err(error) => return failed(stack, source, error),
        };
        callee_parameters = parameters;
        stack.frames[index].return_address = next.context.ip();
        if stack.frames.len() == limit {
            return stack;
        }
        let key = (next.context.ip(), next.context.sp(), next.context.fp());
        if !progressed(&stack.frames[index], &next, index) || !seen.insert(key) {
            return ended(stack, WalkEnd::NoProgress);
        }
        stack.frames.push(RawFrame {
            context: next.context,
            found: next.found,
            return_address: 0,
            exact_ip: next.machine_frame,
        });
    }
}

fn ended(mut stack: RawStack, end: WalkEnd) -> RawStack {
    stack.end = end;
    stack
}

/// Whether the stack pointer moved towards the stack's base, or to another stack.
fn progressed(frame: &RawFrame, next: &Step, index: usize) -> bool {
    let (old, new) = (frame.context.sp(), next.context.sp());
    if new > old || next.machine_frame {
        return true;
    }
    // An ARM64 leaf uses no stack; frames that allocate nothing exist only at the start.
    if new == old {
        return index == 0 && frame.context.machine == Machine::Arm64;
    }
    frame.context.machine != Machine::X86 && old - new > SAME_STACK
}

fn failed(mut stack: RawStack, source: &dyn UnwindSource, error: StepError) -> RawStack {
    stack.end = match error {
        StepError::Outermost => WalkEnd::Outermost,
        StepError::NoUnwindData { .. } => WalkEnd::Lost("no unwind data"),
        StepError::Damaged { .. } => WalkEnd::Lost("damaged unwind data"),
        StepError::StackUnreadable { .. } => WalkEnd::Lost("stack memory is missing"),
        StepError::RegisterUnknown(_) => WalkEnd::Lost("a register is not known"),
        StepError::NotCode { .. } => WalkEnd::Lost("the return address is not code"),
        StepError::Machine(_) => WalkEnd::Lost("stacks of this machine are not walked"),
    };
    if error != StepError::Outermost {
        let ip = stack.frames.last().map_or(0, |f| f.context.ip());
        let image = source.image_at(ip).is_some_and(|i| i.exception_directory.1 == 0);
        let hint = match error {
            StepError::NoUnwindData { .. } | StepError::NotCode { .. } if image => {
                "; the image's own file would say more (image path)"
            }
            _ => "",
        };
        stack.limitations.push(format!("the walk ended at {ip:#x}: {error}{hint}"));
    }
    stack
}
