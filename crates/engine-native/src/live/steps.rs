//! Where the target stands, and what that means for going on: break instructions of its own, calls
//! to step over, why it stopped.

use target::{
    Flow, Machine, MemoryExt, Result, Target,
    capability::{Access, StopReason},
    reg,
};

use super::{KernelEvent, KernelStop, Live};
use crate::kernel::KernelState;
use crate::native_target::{NativeTarget, Side};

/// `STATUS_BREAKPOINT` and `STATUS_SINGLE_STEP` (ntstatus.h), and their WoW64 twins.
const BREAKPOINT: [u32; 2] = [0x8000_0003, 0x4000_001f];
const SINGLE_STEP: [u32; 2] = [0x8000_0004, 0x4000_001e];
/// What `DbgBreakPointWithStatus` was called with to stop on request (`DBG_STATUS_CONTROL_C`).
const STATUS_CONTROL_C: u64 = 1;

/// A break instruction nobody set, behind a call that is stepped over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Behind {
    pub(crate) address: u64,
    thread: u64,
    sp: u64,
}

/// What a stop is to whoever let the target move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Tell(StopReason),
    /// An arrival that counts and does not stop.
    PassBy,
}

impl KernelStop {
    pub(crate) fn code(&self) -> Option<u32> {
        match &self.event {
            KernelEvent::Exception { record, .. } => Some(record.code),
            _ => None,
        }
    }
    pub(crate) fn is_breakpoint(&self) -> bool {
        self.code().is_some_and(|code| BREAKPOINT.contains(&code))
    }
    fn is_single_step(&self) -> bool {
        self.code().is_some_and(|code| SINGLE_STEP.contains(&code))
    }
    /// Whether going on means that what it stands at was dealt with.
    pub(crate) fn is_handled(&self) -> bool {
        self.code().is_none_or(|code| BREAKPOINT.contains(&code) || SINGLE_STEP.contains(&code))
    }
}

impl NativeTarget {
    /// Bytes of the break instruction at `ip`, of the target's own.
    pub(crate) fn own_break(&self, ip: u64) -> Option<u64> {
        match self.core.machine {
            // BRK with any immediate.
            Machine::Arm64 => {
                self.core.read_u32(ip).ok().filter(|word| word & 0xffe0_001f == 0xd420_0000).map(|_| 4)
            }
            _ => self.core.read_u8(ip).ok().filter(|&byte| byte == 0xcc).map(|_| 1),
        }
    }

    /// Lets the processor go on somewhere else than where it stopped.
    pub(crate) fn set_ip(&self, live: &Live, stop: &KernelStop, ip: u64) -> Result<()> {
        let number = if self.core.machine == Machine::Arm64 { reg::A64_PC } else { reg::RIP };
        live.kernel.set_registers(stop.processor, &[(number, ip)])?;
        live.moved.set(true);
        Ok(())
    }

    /// Where a call or a repeated instruction at `ip` goes on; `None` for what is stepped as it is.
    pub(crate) fn behind(&self, stop: &KernelStop, ip: u64, sp: u64) -> Option<Behind> {
        let row = self.disassemble(ip, 1).ok()?.into_iter().next()?;
        let call = matches!(row.flow, Flow::Call | Flow::IndirectCall);
        let repeated = row.text.as_deref().is_some_and(|text| text.starts_with("rep"));
        let address = ip.checked_add(row.bytes.0.len() as u64)?;
        (call || repeated).then_some(Behind { address, thread: stop.thread, sp })
    }

    /// Why it stopped. `stepping`: one instruction was to run; `asked`: a break-in was sent.
    pub(crate) fn verdict(
        &self,
        live: &Live,
        stop: &KernelStop,
        stepping: bool,
        asked: bool,
        behind: Option<&Behind>,
    ) -> Verdict {
        let KernelEvent::Exception { record, first_chance } = &stop.event else {
            return Verdict::Tell(StopReason::Unknown);
        };
        let exception = || StopReason::Exception { record: record.clone(), first_chance: *first_chance };
        if stop.is_breakpoint() {
            if let Some(verdict) = self.at_own_breakpoint(live, stop, behind) {
                return verdict;
            }
            let asked_for = self.is_break_in(stop, asked);
            return Verdict::Tell(if asked_for { StopReason::BreakIn } else { exception() });
        }
        if stop.is_single_step() {
            if let Some(verdict) = hardware(live, stop) {
                return verdict;
            }
            return Verdict::Tell(if stepping { StopReason::Step } else { exception() });
        }
        Verdict::Tell(exception())
    }

    /// At a break instruction that was inserted for this run.
    fn at_own_breakpoint(&self, live: &Live, stop: &KernelStop, behind: Option<&Behind>) -> Option<Verdict> {
        let mut table = live.table.borrow_mut();
        let place = |address: Option<u64>| address == Some(stop.ip);
        let is_code = |e: &super::breakpoints::Entry| e.breakpoint.watch.is_none();
        let ours =
            table.entries.iter().any(|e| is_code(e) && e.breakpoint.enabled && place(e.breakpoint.address));
        if ours && let Some(id) = table.arrived(|e| is_code(e) && place(e.breakpoint.address)) {
            table.used(id);
            return Some(Verdict::Tell(StopReason::Breakpoint { id }));
        }
        drop(table);
        let behind = behind.filter(|behind| behind.address == stop.ip);
        if let Some(behind) = behind {
            let sp = live.kernel.context(stop.processor).map(|context| context.sp());
            let back = stop.thread == behind.thread && sp.is_ok_and(|sp| sp >= behind.sp);
            return Some(if back { Verdict::Tell(StopReason::Step) } else { Verdict::PassBy });
        }
        ours.then_some(Verdict::PassBy)
    }

    /// The kernel says where it stops on request; elsewhere only a stop that was asked for and is at
    /// no break instruction of the target's is one.
    fn is_break_in(&self, stop: &KernelStop, asked: bool) -> bool {
        let known = match &self.side {
            Side::Kernel(kernel) => kernel.break_in_address(),
            _ => None,
        };
        if known == Some(stop.ip) {
            let status = self.live.as_ref().and_then(|live| live.kernel.context(stop.processor).ok());
            let status = status.and_then(|context| context.by_name(status_register(self.core.machine)));
            return asked || status == Some(STATUS_CONTROL_C);
        }
        asked && (known.is_none() || self.own_break(stop.ip).is_none())
    }
}

fn status_register(machine: Machine) -> &'static str {
    if machine == Machine::Arm64 { "w0" } else { "ecx" }
}

/// An armed debug address register that DR6 says was hit.
fn hardware(live: &Live, stop: &KernelStop) -> Option<Verdict> {
    let hit = stop.dr6?;
    let mut table = live.table.borrow_mut();
    let is_hit = |e: &super::breakpoints::Entry| {
        e.slot.is_some_and(|slot| hit >> slot & 1 == 1)
            // DR6 names a register whose condition is met even where it is not armed.
            && (!matches!(e.breakpoint.watch, Some((Access::Execute, _))) || e.breakpoint.address == Some(stop.ip))
    };
    if !table.entries.iter().any(|e| e.breakpoint.enabled && is_hit(e)) {
        return None;
    }
    match table.arrived(is_hit) {
        Some(id) => {
            table.used(id);
            Some(Verdict::Tell(StopReason::DataBreakpoint { id }))
        }
        None => Some(Verdict::PassBy),
    }
}

impl KernelState {
    /// `KDDEBUGGER_DATA64.BreakpointWithStatus`: the break instruction a stop on request is at.
    pub(crate) fn break_in_address(&self) -> Option<u64> {
        self.kdbg.as_ref()?.breakpoint_with_status()
    }
}
