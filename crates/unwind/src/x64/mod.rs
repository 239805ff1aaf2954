//! x64 frames from `UNWIND_INFO` ("x64 exception handling", Microsoft).

mod epilog;
mod info;

pub use info::{Code, Info, MAX_CHAIN, Operation, parse};

use code::StackMotion;
use pe::{ExceptionTable, FunctionEntry};
use target::{Context, Flow, Found, Machine, MemoryExt, reg};

use crate::source::{UnwindImage, UnwindSource};
use crate::step::{Step, StepError, call_before, caller_of, check_return, check_unwound};

/// rax, rcx, rdx, r8-r11 and the flags do not survive a call.
const VOLATILE: [usize; 8] = [reg::RAX, reg::RCX, reg::RDX, 8, 9, 10, 11, reg::EFLAGS];

/// What the exception directory says of an address.
pub(crate) enum Lookup {
    Entry(Box<FunctionEntry>),
    /// The directory was searched and has none: a leaf function.
    Leaf,
    /// No image, no directory, or its pages are missing.
    Unknown,
}

/// The entry that covers `rva`, indirections followed.
pub(crate) fn find(image: &UnwindImage, rva: u32) -> Lookup {
    let (directory, size) = image.exception_directory;
    let table = ExceptionTable::new(&*image.source, Machine::X64, directory, size);
    let Some(table) = table.filter(|t| !t.is_empty()) else { return Lookup::Unknown };
    match table.find(rva) {
        Err(_) => Lookup::Unknown,
        Ok(Some(mut entry)) if rva < entry.end => {
            for _ in 0..MAX_CHAIN {
                if entry.unwind & 1 == 0 {
                    return Lookup::Entry(Box::new(entry));
                }
                // It covers another address, and need not be in order as the table's own are.
                match table.at(entry.unwind & !1) {
                    Some(next) if next.begin < next.end => entry = next,
                    _ => return Lookup::Unknown,
                }
            }
            Lookup::Unknown
        }
        Ok(_) => Lookup::Leaf,
    }
}

/// Goes to the caller of `context`.
pub fn step(source: &dyn UnwindSource, context: &Context, exact_ip: bool) -> Result<Step, StepError> {
    let ip = context.ip();
    let lookup = if exact_ip { ip } else { ip.wrapping_sub(1) };
    let image = source.image_at(lookup).or_else(|| source.dynamic_image_at(lookup));
    let Some((image, rva)) = image.and_then(|image| image.rva(lookup).map(|rva| (image, rva))) else {
        return leaf(source, context, exact_ip, false);
    };
    if image.machine != Machine::X64 {
        // 32-bit code of a WoW64 process: its frames are walked as x86.
        return Err(StepError::NoUnwindData { ip });
    }
    match find(&image, rva) {
        Lookup::Leaf => leaf(source, context, exact_ip, true),
        Lookup::Unknown => leaf(source, context, exact_ip, false),
        Lookup::Entry(entry) => Frame { source, image: &image, entry: *entry, ip, exact_ip }.unwind(context),
    }
}

/// A function that moved no register and no stack pointer: the return address is on top. `sure` when
/// unwind data says so; else a call must end at the return address where that can be checked.
fn leaf(source: &dyn UnwindSource, context: &Context, exact_ip: bool, sure: bool) -> Result<Step, StepError> {
    if !exact_ip {
        return Err(StepError::NoUnwindData { ip: context.ip() });
    }
    let mut caller = caller_of(context, &VOLATILE);
    pop_return(source, &mut caller)?;
    let address = caller.ip();
    check_return(source, Machine::X64, address)?;
    let refuted =
        || call_before(source, Machine::X64, address) == Some(false) || has_frame(source, context.ip());
    if !sure && refuted() {
        return Err(StepError::NoUnwindData { ip: context.ip() });
    }
    Ok(Step { context: caller, found: Found::Leaf, bounds: None, machine_frame: false })
}

/// Whether the code from `ip` on shows that its function has a frame: it calls, or frees stack it
/// has not taken since. Without code bytes nothing is shown.
fn has_frame(source: &dyn UnwindSource, ip: u64) -> bool {
    let (bytes, _) = source.memory().read_prefix(ip, 256);
    for instruction in code::disassemble(Machine::X64, ip, &bytes, 64, None) {
        match code::stack_motion(Machine::X64, &instruction.bytes.0) {
            _ if matches!(instruction.flow, Flow::Call | Flow::IndirectCall) => return true,
            StackMotion::Up => return true,
            StackMotion::Down => return false,
            StackMotion::None => {}
        }
        if !matches!(instruction.flow, Flow::Next | Flow::ConditionalBranch) {
            return false;
        }
    }
    false
}

fn stack_pointer(context: &Context) -> Result<u64, StepError> {
    context.get(reg::RSP).ok_or(StepError::RegisterUnknown("rsp"))
}

pub(crate) fn word(source: &dyn UnwindSource, address: u64) -> Result<u64, StepError> {
    source.memory().read_u64(address).map_err(|_| StepError::StackUnreadable { address })
}

fn pop_return(source: &dyn UnwindSource, context: &mut Context) -> Result<(), StepError> {
    let sp = stack_pointer(context)?;
    context.set_ip(word(source, sp)?);
    context.set_sp(sp.wrapping_add(8));
    Ok(())
}

struct Frame<'a> {
    source: &'a dyn UnwindSource,
    image: &'a UnwindImage,
    entry: FunctionEntry,
    ip: u64,
    exact_ip: bool,
}

impl Frame<'_> {
    fn damaged(&self, what: &'static str) -> StepError {
        StepError::Damaged { ip: self.ip, what }
    }

    fn unwind(&self, context: &Context) -> Result<Step, StepError> {
        let info = parse(&*self.image.source, self.entry.unwind).map_err(|what| self.damaged(what))?;
        let offset = u32::try_from(self.ip.wrapping_sub(self.image.base)).unwrap_or(u32::MAX);
        let offset = offset.wrapping_sub(self.entry.begin);
        let mut caller = caller_of(context, &VOLATILE);
        let bounds = Some((
            self.image.base.wrapping_add(u64::from(self.entry.begin)),
            self.image.base.wrapping_add(u64::from(self.entry.end)),
        ));
        let in_prolog = offset < u32::from(info.prolog_size);
        if self.exact_ip && !in_prolog && info.epilog_may_cover(offset, self.entry.end - self.entry.begin) {
            let epilog = epilog::Epilog {
                source: self.source,
                image: self.image,
                entry: &self.entry,
                frame_register: info.frame_register,
            };
            if epilog.simulate(self.ip, context, &mut caller)? {
                check_unwound(self.source, Machine::X64, caller.ip())?;
                return Ok(Step { context: caller, found: Found::Unwind, bounds, machine_frame: false });
            }
        }
        let machine_frame = self.apply_chain(info, offset, context, &mut caller)?;
        if !machine_frame {
            pop_return(self.source, &mut caller)?;
        }
        check_unwound(self.source, Machine::X64, caller.ip())?;
        Ok(Step { context: caller, found: Found::Unwind, bounds, machine_frame })
    }

    /// Undoes the codes executed up to `offset` bytes into the function, then all of its parents'.
    fn apply_chain(
        &self,
        mut info: Info,
        offset: u32,
        context: &Context,
        caller: &mut Context,
    ) -> Result<bool, StepError> {
        let mut executed = Some(offset);
        let mut visited = vec![self.entry.unwind];
        loop {
            if self.apply(&info, executed, context, caller)? {
                return Ok(true);
            }
            let Some(parent) = info.parent else { return Ok(false) };
            let mut unwind = parent.unwind;
            // An indirect parent: the entry it points at.
            if unwind & 1 != 0 {
                let (rva, size) = self.image.exception_directory;
                let table = ExceptionTable::new(&*self.image.source, Machine::X64, rva, size);
                unwind = table
                    .and_then(|t| t.at(unwind & !1))
                    .ok_or_else(|| self.damaged("a chained entry is not readable"))?
                    .unwind;
            }
            if visited.contains(&unwind) || visited.len() >= MAX_CHAIN {
                return Err(self.damaged("its chained entries form a loop"));
            }
            visited.push(unwind);
            info = parse(&*self.image.source, unwind).map_err(|what| self.damaged(what))?;
            executed = None;
        }
    }

    /// Undoes the codes of one `UNWIND_INFO`; `executed` is the offset reached, `None` for all.
    /// True after a machine frame.
    fn apply(
        &self,
        info: &Info,
        executed: Option<u32>,
        original: &Context,
        caller: &mut Context,
    ) -> Result<bool, StepError> {
        let done = |code: &Code| executed.is_none_or(|offset| u32::from(code.offset) <= offset);
        let frame_set = info.codes.iter().any(|c| matches!(c.operation, Operation::SetFrame) && done(c));
        // Saves are relative to the frame register once it is set, else to rsp as it is now.
        let base = if info.frame_register != 0 && (frame_set || executed.is_none() || info.parent.is_some()) {
            let number = usize::from(info.frame_register);
            let name = Context::register_name(Machine::X64, number).unwrap_or("frame register");
            let value = original.get(number).ok_or(StepError::RegisterUnknown(name))?;
            Some(value.wrapping_sub(u64::from(info.frame_offset)))
        } else {
            None
        };
        let save_base = match base {
            Some(base) => base,
            None => stack_pointer(caller)?,
        };
        for code in info.codes.iter().filter(|c| done(c)) {
            match code.operation {
                Operation::Push(register) => {
                    let sp = stack_pointer(caller)?;
                    let value = word(self.source, sp)?;
                    caller.set_sp(sp.wrapping_add(8));
                    if usize::from(register) != reg::RSP {
                        caller.set(usize::from(register), value);
                    }
                }
                Operation::Allocate(size) => {
                    caller.set_sp(stack_pointer(caller)?.wrapping_add(u64::from(size)));
                }
                Operation::SetFrame => {
                    caller.set_sp(base.ok_or_else(|| self.damaged("it sets no frame register"))?);
                }
                Operation::Save { register, offset } => {
                    let value = word(self.source, save_base.wrapping_add(u64::from(offset)))?;
                    if usize::from(register) != reg::RSP {
                        caller.set(usize::from(register), value);
                    }
                }
                Operation::SaveVector { .. } | Operation::Epilog { .. } | Operation::Spare => {}
                Operation::MachineFrame { error_code } => {
                    self.machine_frame(caller, error_code)?;
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// What the processor pushes on an interrupt: rip, cs, eflags, rsp, ss.
    fn machine_frame(&self, caller: &mut Context, error_code: bool) -> Result<(), StepError> {
        let sp = stack_pointer(caller)?.wrapping_add(if error_code { 8 } else { 0 });
        let rip = word(self.source, sp)?;
        let rsp = word(self.source, sp.wrapping_add(0x18))?;
        for (number, offset) in [(reg::CS, 8), (reg::EFLAGS, 0x10), (reg::SS, 0x20)] {
            match word(self.source, sp.wrapping_add(offset)) {
                Ok(value) if number == reg::EFLAGS => caller.set(number, value & 0xffff_ffff),
                Ok(value) => caller.set(number, value & 0xffff),
                Err(_) => caller.forget(number),
            }
        }
        caller.set_ip(rip);
        caller.set_sp(rsp);
        Ok(())
    }
}
