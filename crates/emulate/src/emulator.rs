//! The machine: registers, memory, one instruction at a time.

use std::ops::Range;

use target::Machine;

use crate::memory::{Access, Fault, Memory};
use crate::value::Value;

/// Registers of any machine here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registers {
    /// x86, x64: `rax rcx rdx rbx rsp rbp rsi rdi r8..r15` by their encoding. ARM64: `x0..x30`, and
    /// `sp` at [`SP_ARM64`].
    pub general: [Value; 32],
    /// xmm or v registers, low half first.
    pub vector: [[Value; 2]; 32],
    /// x86, x64: eflags as the processor has it. ARM64: NZCV in bits 31..28.
    pub flags: Value,
    pub ip: u64,
    /// Bases of fs and gs.
    pub fs_base: Value,
    pub gs_base: Value,
}

/// Index of rsp among [`Registers::general`].
pub const RSP: usize = 4;
/// Index of ARM64's sp.
pub const SP_ARM64: usize = 31;

/// Why a machine cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stop {
    #[error("the instruction at {at:#x} ({name}) is not known to the interpreter")]
    UnknownInstruction { at: u64, name: String },
    #[error("the bytes at {at:#x} are no instruction")]
    Undecodable { at: u64 },
    #[error("at {at:#x}: {fault}")]
    Fault { at: u64, fault: Fault },
    #[error("the instruction at {at:#x} uses memory at an unknown address")]
    UnknownAddress { at: u64 },
    #[error("the transfer at {at:#x} goes to an unknown address")]
    UnknownTarget { at: u64 },
    #[error("the instruction at {at:#x} depends on an unknown value ({what})")]
    UnknownValue { at: u64, what: &'static str },
    #[error("the instruction at {at:#x} traps ({what})")]
    Trap { at: u64, what: &'static str },
}

impl Stop {
    /// The instruction that stopped the machine.
    #[must_use]
    pub fn at(&self) -> u64 {
        match self {
            Self::UnknownInstruction { at, .. }
            | Self::Undecodable { at }
            | Self::Fault { at, .. }
            | Self::UnknownAddress { at }
            | Self::UnknownTarget { at }
            | Self::UnknownValue { at, .. }
            | Self::Trap { at, .. } => *at,
        }
    }
}

/// A conditional branch whose condition is not known. Nothing has changed: continue with
/// [`Emulator::take`], on a clone for the other way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fork {
    pub at: u64,
    pub taken: u64,
    pub fallthrough: u64,
}

/// A call that was made: the return address is stored, ip is at the callee.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    pub at: u64,
    /// `None`: an unknown address; only [`Emulator::return_from_call`] goes on.
    pub target: Option<u64>,
    pub return_address: u64,
    /// Through memory or a register.
    pub indirect: bool,
}

/// What a step did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Ran,
    Called(Call),
    /// ip is in a range given to [`Emulator::add_stubs`]; nothing was executed.
    Stub(u64),
    Fork(Fork),
    Stopped(Stop),
}

/// A store into a watched range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write {
    /// The instruction.
    pub at: u64,
    pub address: u64,
    /// 1 to 8 bytes; wider stores are several.
    pub bytes: u32,
    pub value: Value,
}

/// Most watched stores kept.
const MAX_WRITES: usize = 4096;

/// What loads and stores at unknown addresses do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownAddress {
    Stop,
    /// Loads are unknown, stores are dropped: they are taken not to hit what is known.
    Ignore,
}

/// See the crate. Cheap to clone: pages are shared until written.
#[derive(Clone)]
pub struct Emulator {
    pub machine: Machine,
    pub registers: Registers,
    pub memory: Memory,
    pub unknown_address: UnknownAddress,
    /// Instructions executed; each repetition of a `rep` counts.
    pub steps: u64,
    stubs: Vec<Range<u64>>,
    watched: Vec<Range<u64>>,
    writes: Vec<Write>,
    /// x86: bytes pushed, as far as they look like arguments, since the last call was made.
    pub(crate) pushed: u32,
    /// [`Self::pushed`] as it was at the last call.
    pub(crate) pushed_before_call: u32,
    /// x86, x64: a bit for each of rbx, rbp, rsi, rdi written since the last call was made.
    pub(crate) written: u8,
    /// [`Self::written`] of the caller, at the last call.
    pub(crate) written_before_call: u8,
}

pub(crate) type Outcome = Result<Event, Stop>;

impl Emulator {
    /// A machine whose registers are all unknown but the direction flag, which is clear as every ABI
    /// has it. `machine`: x64, x86 or ARM64 (32-bit ARM decodes to nothing here).
    #[must_use]
    pub fn new(machine: Machine, memory: Memory) -> Self {
        let flags = match machine {
            Machine::X64 | Machine::X86 => Value::UNKNOWN.with_bit(10, Some(false)),
            _ => Value::UNKNOWN,
        };
        Self {
            machine,
            registers: Registers {
                general: [Value::UNKNOWN; 32],
                vector: [[Value::UNKNOWN; 2]; 32],
                flags,
                ip: 0,
                fs_base: Value::UNKNOWN,
                gs_base: Value::UNKNOWN,
            },
            memory,
            unknown_address: UnknownAddress::Stop,
            steps: 0,
            stubs: Vec::new(),
            watched: Vec::new(),
            writes: Vec::new(),
            pushed: 0,
            pushed_before_call: 0,
            written: 0,
            written_before_call: 0,
        }
    }

    /// Bytes of a pointer: 4 or 8.
    #[must_use]
    pub fn pointer(&self) -> u32 {
        if self.machine == Machine::X86 { 4 } else { 8 }
    }

    /// Reaching `range` gives [`Event::Stub`] instead of executing what is there.
    pub fn add_stubs(&mut self, range: Range<u64>) {
        self.stubs.push(range);
    }

    /// Stores into `range` are kept in [`Self::writes`] (at most 4,096).
    pub fn watch(&mut self, range: Range<u64>) {
        self.watched.push(range);
    }

    /// Watched stores in order.
    #[must_use]
    pub fn writes(&self) -> &[Write] {
        &self.writes
    }

    /// Executes one instruction.
    pub fn step(&mut self) -> Event {
        let ip = self.registers.ip;
        if self.stubs.iter().any(|range| range.contains(&ip)) {
            return Event::Stub(ip);
        }
        self.steps += 1;
        let outcome = match self.machine {
            Machine::X64 | Machine::X86 => crate::x86::step(self),
            Machine::Arm64 => crate::arm64::step(self),
            Machine::Arm32 => Err(Stop::Undecodable { at: ip }),
        };
        outcome.unwrap_or_else(Event::Stopped)
    }

    /// Executes until something other than [`Event::Ran`] happens, at most `steps` instructions:
    /// then the answer is [`Event::Ran`].
    pub fn run(&mut self, steps: u64) -> Event {
        let end = self.steps.saturating_add(steps);
        while self.steps < end {
            match self.step() {
                Event::Ran => {}
                event => return event,
            }
        }
        Event::Ran
    }

    /// Goes one way at a fork.
    pub fn take(&mut self, fork: &Fork, taken: bool) {
        self.registers.ip = if taken { fork.taken } else { fork.fallthrough };
    }

    /// The stack pointer.
    #[must_use]
    pub fn stack_pointer(&self) -> Value {
        self.registers.general[if self.machine == Machine::Arm64 { SP_ARM64 } else { RSP }]
    }

    /// The argument `index` (from 0) of the call just made: at the callee's first instruction, or at
    /// a stub. The Microsoft conventions: x64 rcx, rdx, r8, r9, stack; x86 stack (stdcall, cdecl);
    /// ARM64 x0 to x7, stack. Unknown where the stack cannot be read.
    pub fn argument(&mut self, index: u32) -> Value {
        match self.argument_place(index) {
            Ok(register) => self.registers.general[register],
            Err(Some(address)) => self.memory.read(address, self.pointer()).unwrap_or(Value::UNKNOWN),
            Err(None) => Value::UNKNOWN,
        }
    }

    /// Sets an argument, see [`Self::argument`].
    pub fn set_argument(&mut self, index: u32, value: Value) -> Result<(), Fault> {
        match self.argument_place(index) {
            Ok(register) => self.registers.general[register] = value,
            Err(Some(address)) => self.memory.write(address, self.pointer(), value)?,
            Err(None) => {}
        }
        Ok(())
    }

    /// The register, or the stack address if that is known.
    fn argument_place(&self, index: u32) -> Result<usize, Option<u64>> {
        const X64: [usize; 4] = [1, 2, 8, 9];
        let offset = match self.machine {
            Machine::X64 => match X64.get(index as usize) {
                Some(&register) => return Ok(register),
                None => 8 + 8 * u64::from(index),
            },
            Machine::X86 => 4 + 4 * u64::from(index),
            _ if index < 8 => return Ok(index as usize),
            _ => 8 * u64::from(index - 8),
        };
        Err(self.stack_pointer().get().map(|sp| sp.wrapping_add(offset)))
    }

    /// Where the call just made returns to; 0 where that is not known.
    pub(crate) fn return_address(&mut self) -> u64 {
        if self.machine == Machine::Arm64 {
            return self.registers.general[30].bits();
        }
        let width = self.pointer();
        let at = self.stack_pointer().get();
        at.and_then(|sp| self.memory.read(sp, width).ok()).map_or(0, |value| value.bits())
    }

    /// Ends the call just made as if the callee had run: volatile registers and flags become unknown,
    /// the return register (for x86 also what a wide result needs) gets `value`, the return address is
    /// taken and on x86 `popped` bytes of arguments with it (0 for cdecl; other machines ignore it).
    pub fn return_from_call(&mut self, value: Value, popped: u32) -> Result<(), Stop> {
        let at = self.registers.ip;
        let volatile: &[usize] = match self.machine {
            Machine::X64 => &[0, 1, 2, 8, 9, 10, 11],
            Machine::X86 => &[0, 1, 2],
            _ => &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17],
        };
        let direction = self.registers.flags.at(10);
        for &register in volatile {
            self.registers.general[register] = Value::UNKNOWN.truncate(self.pointer());
        }
        self.registers.flags = Value::UNKNOWN;
        if self.machine == Machine::Arm64 {
            for vector in (0..8).chain(16..32) {
                self.registers.vector[vector] = [Value::UNKNOWN; 2];
            }
            self.registers.general[0] = value;
            self.registers.ip = self.registers.general[30].get().ok_or(Stop::UnknownTarget { at })?;
            return Ok(());
        }
        self.registers.flags = self.registers.flags.with_bit(10, direction);
        self.registers.vector[..6].fill([Value::UNKNOWN; 2]);
        self.written = self.written_before_call;
        self.registers.general[0] = value.truncate(self.pointer());
        let sp = self.stack_pointer().get().ok_or(Stop::UnknownAddress { at })?;
        let width = self.pointer();
        let to = self.memory.read(sp, width).map_err(|fault| Stop::Fault { at, fault })?;
        let popped = if self.machine == Machine::X86 { popped } else { 0 };
        let after = sp.wrapping_add(u64::from(width + popped));
        self.registers.general[RSP] = Value::known(after).truncate(width);
        self.registers.ip = to.get().ok_or(Stop::UnknownTarget { at })?;
        Ok(())
    }

    /// A load of 1 to 8 bytes by the instruction at ip.
    pub(crate) fn load(&mut self, address: Value, bytes: u32) -> Result<Value, Stop> {
        let at = self.registers.ip;
        match address.get() {
            Some(address) => self.memory.read(address, bytes).map_err(|fault| Stop::Fault { at, fault }),
            None if self.unknown_address == UnknownAddress::Ignore => Ok(Value::unknown(bytes)),
            None => Err(Stop::UnknownAddress { at }),
        }
    }

    /// A store of 1 to 8 bytes by the instruction at ip.
    pub(crate) fn store(&mut self, address: Value, bytes: u32, value: Value) -> Result<(), Stop> {
        let at = self.registers.ip;
        let Some(address) = address.get() else {
            return match self.unknown_address {
                UnknownAddress::Ignore => Ok(()),
                UnknownAddress::Stop => Err(Stop::UnknownAddress { at }),
            };
        };
        self.memory.write(address, bytes, value).map_err(|fault| Stop::Fault { at, fault })?;
        if self.writes.len() < MAX_WRITES && self.watched.iter().any(|range| range.contains(&address)) {
            self.writes.push(Write { at, address, bytes, value: value.truncate(bytes) });
        }
        Ok(())
    }

    /// The bytes at ip.
    pub(crate) fn fetch(&mut self, buffer: &mut [u8]) -> Result<usize, Stop> {
        let at = self.registers.ip;
        self.memory.fetch(at, buffer).map_err(|fault| match fault {
            Fault::Unmapped { address, .. } => {
                Stop::Fault { at, fault: Fault::Unmapped { address, access: Access::Execute } }
            }
            fault => Stop::Fault { at, fault },
        })
    }
}
