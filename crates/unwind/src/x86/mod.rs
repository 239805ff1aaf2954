//! x86 frames: FrameData and FPO records where a PDB has them, else the ebp chain, as DbgEng does.

mod program;

pub use program::{Machine as ProgramMachine, ProgramError, evaluate};

use std::collections::{HashMap, HashSet};

use target::{Context, Found, Machine, MemoryExt, reg};

use crate::source::{FrameProgram, ProgramKind, UnwindSource};
use crate::step::{Step, StepError, caller_of, check_return, plausible_return};

/// eax, ecx, edx and the flags do not survive a call.
const VOLATILE: [usize; 4] = [reg::RAX, reg::RCX, reg::RDX, reg::EFLAGS];
const PRESERVED: [(usize, &str); 3] = [(reg::RBX, "$ebx"), (reg::RSI, "$esi"), (reg::RDI, "$edi")];
const FRAME: [(usize, &str); 3] = [(reg::RSP, "$esp"), (reg::RBP, "$ebp"), (reg::RIP, "$eip")];
/// Words looked at for a return address: arguments not yet popped lie before it.
const SEARCH_WORDS: u32 = 100;

/// Goes to the caller of `context`; with it come the bytes of parameters this function was given.
pub(crate) fn step(
    source: &dyn UnwindSource,
    context: &Context,
    frame_index: usize,
    exact_ip: bool,
    callee_parameters: u32,
) -> Result<(Step, u32), StepError> {
    let ip = context.ip();
    let lookup = if exact_ip { ip } else { ip.wrapping_sub(1) };
    if let Some(program) = source.frame_program(lookup) {
        match by_program(source, context, &program, callee_parameters) {
            Ok(step) => return Ok((step, program.parameters)),
            Err(error @ (StepError::Outermost | StepError::StackUnreadable { .. })) => return Err(error),
            // A program that led astray: the chain may still hold.
            Err(_) => {}
        }
    } else if exact_ip && let Some(step) = before_frame(source, context, lookup) {
        return step.map(|s| (s, 0));
    }
    let chained = by_chain(source, context);
    if frame_index == 0 && exact_ip && matches!(chained, Err(ref e) if *e != StepError::Outermost) {
        // No frame of its own yet, or a wild jump: the return address may be on top.
        if let Ok(step) = leaf(source, context) {
            return Ok((step, 0));
        }
    }
    chained.map(|s| (s, 0))
}

fn esp(context: &Context) -> Result<u64, StepError> {
    context.get(reg::RSP).ok_or(StepError::RegisterUnknown("esp"))
}

fn word(source: &dyn UnwindSource, address: u64) -> Result<u64, StepError> {
    let address = address & 0xffff_ffff;
    source.memory().read_u32(address).map(u64::from).map_err(|_| StepError::StackUnreadable { address })
}

fn forget_preserved(caller: &mut Context) {
    for (number, _) in PRESERVED {
        caller.forget(number);
    }
}

/// Cases without a frame where ebp is still the caller's: code outside all images (a wild jump), and
/// the first instructions of a function whose start is known.
fn before_frame(source: &dyn UnwindSource, context: &Context, ip: u64) -> Option<Result<Step, StepError>> {
    if source.image_at(ip).is_none() {
        return leaf(source, context).ok().map(Ok);
    }
    let start = source.function_start(ip)?;
    let distance = usize::try_from(ip.checked_sub(start)?).ok()?;
    let (bytes, _) = source.memory().read_prefix(start, 5);
    let push = if bytes.starts_with(&[0x8b, 0xff, 0x55]) { 2 } else { 0 };
    if bytes.get(push) != Some(&0x55) && distance != 0 {
        return None;
    }
    if distance <= push {
        return Some(leaf(source, context));
    }
    (distance == push + 1).then(|| pushed_frame(source, context))
}

/// `[esp]` is the return address.
fn leaf(source: &dyn UnwindSource, context: &Context) -> Result<Step, StepError> {
    let sp = esp(context)?;
    let address = word(source, sp)?;
    if !plausible_return(source, Machine::X86, address) {
        return Err(StepError::NotCode { address });
    }
    let mut caller = caller_of(context, &VOLATILE);
    caller.set_ip(address);
    caller.set_sp(sp.wrapping_add(4));
    Ok(Step { context: caller, found: Found::Leaf, bounds: None, machine_frame: false })
}

/// `push ebp` has run and nothing else.
fn pushed_frame(source: &dyn UnwindSource, context: &Context) -> Result<Step, StepError> {
    let sp = esp(context)?;
    let mut caller = caller_of(context, &VOLATILE);
    caller.set_fp(word(source, sp)?);
    caller.set_ip(word(source, sp.wrapping_add(4))?);
    caller.set_sp(sp.wrapping_add(8));
    check_return(source, Machine::X86, caller.ip())?;
    Ok(Step { context: caller, found: Found::FramePointer, bounds: None, machine_frame: false })
}

/// `[ebp]` is the caller's ebp and `[ebp+4]` the return address.
fn by_chain(source: &dyn UnwindSource, context: &Context) -> Result<Step, StepError> {
    let ebp = context.fp().ok_or(StepError::RegisterUnknown("ebp"))?;
    if ebp == 0 {
        return Err(StepError::Outermost);
    }
    let sp = esp(context)?;
    if ebp % 4 != 0 || ebp < sp {
        return Err(StepError::NoUnwindData { ip: context.ip() });
    }
    let mut caller = caller_of(context, &VOLATILE);
    forget_preserved(&mut caller);
    caller.set_ip(word(source, ebp.wrapping_add(4))?);
    caller.set_fp(word(source, ebp)?);
    caller.set_sp(ebp.wrapping_add(8) & 0xffff_ffff);
    check_return(source, Machine::X86, caller.ip())?;
    Ok(Step { context: caller, found: Found::FramePointer, bounds: None, machine_frame: false })
}

fn by_program(
    source: &dyn UnwindSource,
    context: &Context,
    program: &FrameProgram,
    callee_parameters: u32,
) -> Result<Step, StepError> {
    let frame = ProgramFrame { source, context, program, callee_parameters };
    let caller = match &program.kind {
        ProgramKind::FrameData(text) => frame.frame_data(text)?,
        ProgramKind::Fpo { saved_registers, uses_ebp, frame_type: 0 } => {
            frame.fpo(*saved_registers, *uses_ebp)?
        }
        ProgramKind::Fpo { frame_type: 3, .. } => {
            let mut step = by_chain(source, context)?;
            step.bounds = Some((program.start, program.end));
            return Ok(step);
        }
        ProgramKind::Fpo { .. } => return Err(StepError::NoUnwindData { ip: context.ip() }),
    };
    check_return(source, Machine::X86, caller.ip())?;
    let bounds = Some((program.start, program.end));
    Ok(Step { context: caller, found: Found::Fpo, bounds, machine_frame: false })
}

/// The virtual frame (`$T0`) of the function at `context`'s ip, which CodeView's VFRAME register
/// stands for in locals. `None` without a FrameData program that sets it.
#[must_use]
pub fn virtual_frame(source: &dyn UnwindSource, context: &Context, exact_ip: bool) -> Option<u64> {
    let lookup = if exact_ip { context.ip() } else { context.ip().wrapping_sub(1) };
    let program = source.frame_program(lookup)?;
    let ProgramKind::FrameData(text) = &program.kind else { return None };
    let frame = ProgramFrame { source, context, program: &program, callee_parameters: 0 };
    let (variables, assigned) = frame.run(text).ok()?;
    assigned.contains("$T0").then(|| variables.get("$T0").copied().map(u64::from)).flatten()
}

struct ProgramFrame<'a> {
    source: &'a dyn UnwindSource,
    context: &'a Context,
    program: &'a FrameProgram,
    callee_parameters: u32,
}

impl ProgramFrame<'_> {
    /// The slot of the return address, looked for from `start` up; `start` itself when nothing
    /// there looks like one.
    fn search(&self, start: u64) -> u64 {
        (0..SEARCH_WORDS)
            .map(|index| start.wrapping_add(u64::from(index) * 4) & 0xffff_ffff)
            .map_while(|slot| word(self.source, slot).ok().map(|value| (slot, value)))
            .find(|&(_, value)| plausible_return(self.source, Machine::X86, value))
            .map_or(start, |(slot, _)| slot)
    }

    fn search_start(&self) -> Result<u64, StepError> {
        let above = [self.callee_parameters, self.program.locals, self.program.saved_registers];
        let size: u64 = above.into_iter().map(u64::from).sum();
        Ok(esp(self.context)?.wrapping_add(size) & 0xffff_ffff)
    }

    fn damaged(&self, what: &'static str) -> StepError {
        StepError::Damaged { ip: self.context.ip(), what }
    }

    /// Runs the program: all variables after it, and the names it assigned.
    fn run<'t>(&self, text: &'t str) -> Result<(HashMap<String, u32>, HashSet<&'t str>), StepError> {
        let mut variables: HashMap<String, u32> = HashMap::new();
        for (number, name) in FRAME.into_iter().chain(PRESERVED) {
            if let Some(value) = self.context.get(number) {
                variables.insert(name.to_owned(), value as u32);
            }
        }
        let start = self.search_start()?;
        // The search is dear and many programs go by ebp.
        if text.contains(".raSearch") {
            variables.insert(".raSearch".to_owned(), self.search(start) as u32);
            variables.insert(".raSearchStart".to_owned(), start as u32);
        }
        for (name, value) in [
            (".cbLocals", self.program.locals),
            (".cbParams", self.program.parameters),
            (".cbSavedRegs", self.program.saved_registers),
            (".cbCalleeParams", self.callee_parameters),
        ] {
            variables.insert(name.to_owned(), value);
        }
        let read = |address: u32| self.source.memory().read_u32(u64::from(address)).ok();
        let assigned = evaluate(text, &mut variables, &read).map_err(|error| match error {
            ProgramError::Unreadable(address) => StepError::StackUnreadable { address: u64::from(address) },
            ProgramError::Undefined => self.damaged("its frame program uses a value that is not known"),
            ProgramError::Malformed => self.damaged("its frame program does not evaluate"),
        })?;
        Ok((variables, assigned))
    }

    fn frame_data(&self, text: &str) -> Result<Context, StepError> {
        let (variables, assigned) = self.run(text)?;
        if !assigned.contains("$eip") || !assigned.contains("$esp") {
            return Err(self.damaged("its frame program gives no return address"));
        }
        let mut caller = caller_of(self.context, &VOLATILE);
        for (number, name) in FRAME {
            if let Some(&value) = variables.get(name) {
                caller.set(number, u64::from(value));
            }
        }
        for (number, name) in PRESERVED {
            match variables.get(name) {
                Some(&value) if assigned.contains(name) => caller.set(number, u64::from(value)),
                // Saved somewhere the program does not say.
                _ if self.program.saved_registers > 0 => caller.forget(number),
                _ => {}
            }
        }
        Ok(caller)
    }

    fn fpo(&self, saved_registers: u8, uses_ebp: bool) -> Result<Context, StepError> {
        let slot = self.search(self.search_start()?);
        let mut caller = caller_of(self.context, &VOLATILE);
        caller.set_ip(word(self.source, slot)?);
        caller.set_sp(slot.wrapping_add(4) & 0xffff_ffff);
        if saved_registers > 0 {
            forget_preserved(&mut caller);
        }
        if uses_ebp {
            // ebp was pushed after ebx, esi, edi's predecessors: 8 below the saved area's end.
            let offset = u64::from(self.callee_parameters)
                .wrapping_add(u64::from(self.program.saved_registers))
                .wrapping_sub(8);
            caller.set_fp(word(self.source, esp(self.context)?.wrapping_add(offset))?);
        }
        Ok(caller)
    }
}
