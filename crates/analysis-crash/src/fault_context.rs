//! The context a bug check happened in (spec 60 section 2.1): a record the parameters point at, a
//! trap frame, another thread, else the dump's own.

use target::{
    BugCheck, Context, ContextOf, ContextSource, ExceptionRecord, Frame, KernelThread, Machine,
    MemoryExt as _, Module, Target, View,
};

use crate::frames::is_kernel_half;
use crate::result::ContextOrigin;

/// Where to walk from, and what came with it.
pub(crate) struct FaultContext {
    pub(crate) context: Option<Context>,
    pub(crate) origin: ContextOrigin,
    /// Address of the record or trap frame used.
    pub(crate) at: Option<u64>,
    pub(crate) record: Option<ExceptionRecord>,
    pub(crate) note: Option<String>,
}

/// Bytes of `KTRAP_FRAME` of x64.
const TRAP_FRAME_SIZE: usize = 0x190;
/// Stack bytes searched for a trap frame at most.
const TRAP_SEARCH: usize = 0x6000;

/// Chooses the context for `base` (the code without modifier bits). `own` is the target's own context.
pub(crate) fn choose(
    target: &dyn Target,
    base: u32,
    bug: &BugCheck,
    thread: Option<&KernelThread>,
    own: Option<Context>,
) -> FaultContext {
    let origin =
        if target.facts().kind.is_live() { ContextOrigin::Selected } else { ContextOrigin::CrashContext };
    let [p1, p2, p3, p4] = bug.parameters;
    let mut fault = FaultContext { context: own, origin, at: None, record: None, note: None };
    match base {
        0x3b => use_record(target, &mut fault, p3, thread),
        0x7e => {
            fault.record = exception_record(target, p3);
            use_record(target, &mut fault, p4, thread);
        }
        0x139 => {
            fault.record = exception_record(target, p3);
            use_trap_frame(target, &mut fault, p2, thread);
        }
        0x8e | 0x1d2 => use_trap_frame(target, &mut fault, p3, thread),
        0x22 | 0x23 | 0x24 | 0x27 | 0x135 | 0x13f => {
            fault.record = exception_record(target, p2);
            // These parameters are often something else: a record that does not validate is no news.
            if let Some(context) = context_record(target, p3, thread) {
                fault.at = Some(p3);
                fault.context = Some(context);
                fault.origin = ContextOrigin::ContextRecord;
            }
        }
        0xea => use_thread(target, &mut fault, ContextOf::KernelThread(p1), "the stuck thread (parameter 1)"),
        0x9f if p1 == 4 => {
            use_thread(
                target,
                &mut fault,
                ContextOf::KernelThread(p3),
                "the thread with the PnP lock (parameter 3)",
            );
        }
        0x101 => {
            let processor = processor_of(target, p3).or(u32::try_from(p4).ok()).unwrap_or(u32::MAX);
            use_thread(
                target,
                &mut fault,
                ContextOf::Processor(processor),
                "the hung processor (parameter 3)",
            );
        }
        _ => {}
    }
    fault
}

/// `KPRCB.Number` of x64 (0x24, as the debugger data block says on every release since Vista).
fn processor_of(target: &dyn Target, prcb: u64) -> Option<u32> {
    if target.facts().machine != Machine::X64 || !is_kernel_half(Machine::X64, prcb) {
        return None;
    }
    let number = target.read_u32(prcb.checked_add(0x24)?).ok()?;
    target.facts().processors.is_none_or(|count| number < count).then_some(number)
}

fn keep(fault: &mut FaultContext, what: &str, address: u64, why: &str) {
    fault.note = Some(format!(
        "The {what} at {} {why}; the stack is from the dump's own context.",
        target::Address(address)
    ));
}

fn use_record(target: &dyn Target, fault: &mut FaultContext, address: u64, thread: Option<&KernelThread>) {
    match context_record(target, address, thread) {
        Some(context) => {
            fault.context = Some(context);
            fault.origin = ContextOrigin::ContextRecord;
            fault.at = Some(address);
        }
        None => keep(fault, "context record", address, "is not readable in full or does not validate"),
    }
}

fn use_trap_frame(
    target: &dyn Target,
    fault: &mut FaultContext,
    address: u64,
    thread: Option<&KernelThread>,
) {
    if target.facts().machine != Machine::X64 {
        return keep(fault, "trap frame", address, "is not decoded on this machine");
    }
    match trap_frame(target, address).filter(|c| validates(target, c, thread)) {
        Some(context) => {
            fault.context = Some(context);
            fault.origin = ContextOrigin::TrapFrame;
            fault.at = Some(address);
        }
        None => keep(fault, "trap frame", address, "is not readable in full or does not validate"),
    }
}

fn use_thread(target: &dyn Target, fault: &mut FaultContext, of: ContextOf, what: &str) {
    match target.context(of, View::Default) {
        Ok(Some(context)) => {
            fault.context = Some(context);
            fault.origin = ContextOrigin::Selected;
            fault.note = Some(format!("The stack is that of {what}."));
        }
        _ => fault.note = Some(format!("There is no saved context of {what}; the stack is the dump's own.")),
    }
}

fn context_record(target: &dyn Target, address: u64, thread: Option<&KernelThread>) -> Option<Context> {
    let machine = target.facts().machine;
    let mut bytes = vec![0; Context::record_size(machine)];
    target.read_exact(address, &mut bytes).ok()?;
    Context::from_bytes(machine, &bytes, ContextSource::ContextRecord)
        .filter(|c| validates(target, c, thread))
}

fn trap_frame(target: &dyn Target, address: u64) -> Option<Context> {
    let bytes: [u8; TRAP_FRAME_SIZE] = target.read_array(address).ok()?;
    Context::from_x64_trap_frame(&bytes)
}

/// An exception record of the target's own width at `address`, if it reads as one.
pub(crate) fn exception_record(target: &dyn Target, address: u64) -> Option<ExceptionRecord> {
    let wide = target.facts().machine.pointer_size() == 8;
    let (size, count_at, parameters_at, step) = if wide { (152, 24, 32, 8) } else { (80, 16, 20, 4) };
    if address == 0 {
        return None;
    }
    let (bytes, _) = target.read_prefix(address, size);
    let u32_at = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let word_at = |at: usize| -> Option<u64> {
        if wide {
            Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
        } else {
            u32_at(at).map(u64::from)
        }
    };
    let code = u32_at(0)?;
    let count = usize::try_from(u32_at(count_at)?).ok()?;
    // Plausible: a warning or error, and at most EXCEPTION_MAXIMUM_PARAMETERS of them.
    if count > 15 || (code >> 30 < 2 && code & 0x2000_0000 == 0) {
        return None;
    }
    let parameters = (0..count).map(|i| word_at(parameters_at + i * step)).collect::<Option<Vec<_>>>()?;
    Some(ExceptionRecord {
        code,
        flags: u32_at(4)?,
        nested: word_at(8)?,
        address: word_at(if wide { 16 } else { 12 })?,
        parameters,
    })
}

/// Canonical ip, and a stack pointer in the thread's stack or at readable kernel memory (a DPC, ISR or
/// IST stack).
fn validates(target: &dyn Target, context: &Context, thread: Option<&KernelThread>) -> bool {
    let machine = context.machine;
    let (ip, sp) = (context.ip(), context.sp());
    if ip == 0 || !code::is_canonical(machine, ip) || !code::is_canonical(machine, sp) {
        return false;
    }
    if let Some((base, limit)) = thread.and_then(|t| t.stack_base.zip(t.stack_limit))
        && (limit..=base).contains(&sp)
    {
        return true;
    }
    is_kernel_half(machine, sp) && target.read_u64(sp).is_ok()
}

/// Codes whose trap frame is looked for on the stack.
pub(crate) fn trap_frame_is_on_stack(base: u32) -> bool {
    matches!(base, 0x0a | 0xd1 | 0x50 | 0x1e | 0xbe | 0xfc | 0xd5 | 0xcc | 0xcd | 0xd6 | 0x7f | 0x4a | 0x18b)
}

/// The instruction pointer parameter of a code, if it has one.
pub(crate) fn ip_parameter(base: u32, parameters: &[u64; 4]) -> Option<u64> {
    let ip = match base {
        0x0a | 0xd1 | 0xc5 | 0xd0 | 0xd3 | 0xd4 => parameters[3],
        0x50 | 0xcc | 0xcd | 0xce | 0xd5 | 0xd6 => parameters[2],
        0x1e | 0x7e | 0x8e | 0x3b => parameters[1],
        _ => 0,
    };
    (ip != 0).then_some(ip)
}

/// The trap frame on the walked stack: at the frame of a trap handler, else the first block of the
/// stack that validates as one.
pub(crate) fn trap_frame_on_stack(
    target: &dyn Target,
    base: u32,
    bug: &BugCheck,
    frames: &[Frame],
    own: &Context,
    thread: Option<&KernelThread>,
    modules: &[Module],
) -> Option<(u64, Context)> {
    if target.facts().machine != Machine::X64 {
        return None;
    }
    let ip = ip_parameter(base, &bug.parameters);
    let handler = frames.iter().find(|f| f.symbol.as_ref().is_some_and(|s| is_trap_handler(&s.name)));
    if let Some(frame) = handler
        && let Some(context) =
            trap_frame(target, frame.sp).filter(|c| is_trap(target, c, frame.sp, ip, thread, modules))
    {
        return Some((frame.sp, context));
    }
    let start = own.sp() & !7;
    let length = thread
        .and_then(|t| t.stack_base)
        .and_then(|stack_base| stack_base.checked_sub(start))
        .and_then(|bytes| usize::try_from(bytes).ok())
        .map_or(TRAP_SEARCH, |bytes| bytes.min(TRAP_SEARCH));
    let (bytes, _) = target.read_prefix(start, length);
    let blocks = (0..=bytes.len().saturating_sub(TRAP_FRAME_SIZE)).step_by(8);
    blocks.into_iter().find_map(|at| {
        let address = start + at as u64;
        let context = Context::from_x64_trap_frame(bytes.get(at..at + TRAP_FRAME_SIZE)?)?;
        is_trap(target, &context, address, ip, thread, modules).then_some((address, context))
    })
}

fn is_trap_handler(name: &str) -> bool {
    name == "KiPageFault"
        || name == "KiExceptionDispatch"
        || name.starts_with("KiTrap")
        || (name.starts_with("Ki") && (name.ends_with("Fault") || name.ends_with("Abort")))
}

/// The selector pair of a mode, an ip in a module (or the one the bug check names), a stack pointer
/// above the frame itself.
fn is_trap(
    target: &dyn Target,
    context: &Context,
    at: u64,
    ip: Option<u64>,
    thread: Option<&KernelThread>,
    modules: &[Module],
) -> bool {
    let selectors = (context.get(target::reg::CS), context.get(target::reg::SS));
    let kernel = selectors == (Some(0x10), Some(0x18));
    if !kernel && selectors != (Some(0x33), Some(0x2b)) {
        return false;
    }
    let known_ip = ip == Some(context.ip()) || modules.iter().any(|m| m.contains(context.ip()));
    if !known_ip || !code::is_canonical(Machine::X64, context.ip()) {
        return false;
    }
    !kernel || (context.sp() >= at && validates(target, context, thread))
}
