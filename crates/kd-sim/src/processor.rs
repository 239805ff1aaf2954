//! A processor: its registers, one instruction at a time, and what stops it.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use emulate::{Emulator, Event, Memory, Outside, Stop, Value};
use kd_api::{Context, SpecialRegisters, context_flags, status};

use crate::memory::Space;

pub(crate) type Shared = Arc<Mutex<Space>>;

/// EFLAGS.TF.
const TRAP: u32 = 0x100;
/// DR6: a step, and what always reads as one.
const DR6_STEP: u64 = 0x4000;
const DR6_ONES: u64 = 0xffff_0ff0;
const ILLEGAL_INSTRUCTION: u32 = 0xC000_001D;
const ACCESS_VIOLATION: u32 = 0xC000_0005;

/// What an instruction did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stepped {
    Ran,
    /// `hlt`: nothing more for now.
    Halted,
    Stopped(Exceptional),
}

/// A stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exceptional {
    pub(crate) code: u32,
    pub(crate) address: u64,
    pub(crate) parameters: [u64; 2],
    pub(crate) count: u32,
}

impl Exceptional {
    pub(crate) fn plain(code: u32, address: u64) -> Self {
        Self { code, address, parameters: [0; 2], count: 0 }
    }
}

/// A processor.
#[derive(Clone, Debug)]
pub(crate) struct Processor {
    pub(crate) context: Context,
    pub(crate) special: SpecialRegisters,
    pub(crate) pcr: u64,
    pub(crate) prcb: u64,
    pub(crate) thread: u64,
    /// Code breakpoints of the debug registers do not stop the next instruction: it stopped there.
    pub(crate) resumed: bool,
}

impl Processor {
    /// Sets or clears EFLAGS.TF.
    pub(crate) fn trace(&mut self, on: bool) {
        let flags = self.context.eflags();
        self.context.set_eflags(if on { flags | TRAP } else { flags & !TRAP });
    }

    /// The debug registers, in both records.
    pub(crate) fn set_debug(&mut self, dr: [u64; 4], dr6: u64, dr7: u64) {
        self.special.dr = dr;
        self.special.dr6 = dr6;
        self.special.dr7 = dr7;
        let [a, b, c, d] = dr;
        self.context.set_debug_registers([a, b, c, d, dr6, dr7]);
    }

    /// Takes a CONTEXT's valid parts.
    pub(crate) fn set_context(&mut self, new: Context) {
        let debug = new.debug_registers();
        let has_debug = new.has(context_flags::DEBUG_REGISTERS);
        self.context = new;
        if has_debug {
            let [a, b, c, d, dr6, dr7] = debug;
            self.set_debug([a, b, c, d], dr6, dr7);
        } else {
            self.set_debug(self.special.dr, self.special.dr6, self.special.dr7);
        }
    }

    /// Executes one instruction.
    pub(crate) fn step(&mut self, memory: &Shared) -> Stepped {
        let at = self.context.rip();
        let resumed = std::mem::take(&mut self.resumed);
        if !resumed && let Some(number) = self.watched(|kind, _| kind == 0, at, 1) {
            return self.debug_stop(1 << number);
        }
        let mut first = [0];
        let readable = memory.lock().unwrap_or_else(PoisonError::into_inner).read(at, &mut first) == 1;
        if !readable {
            let parameters = [8, at];
            return Stepped::Stopped(Exceptional {
                code: ACCESS_VIOLATION,
                address: at,
                parameters,
                count: 2,
            });
        }
        if first == [0xCC] {
            return Stepped::Stopped(Exceptional::plain(status::BREAKPOINT, at));
        }
        let trap = self.context.eflags() & TRAP != 0;
        let writes = match self.execute(memory) {
            Ok(writes) => writes,
            Err(stop) => return Stepped::Stopped(stop),
        };
        let mut hits = if trap { DR6_STEP } else { 0 };
        for (address, bytes) in writes {
            if let Some(number) = self.watched(|kind, _| kind & 1 == 1, address, bytes) {
                hits |= 1 << number;
            }
        }
        if hits != 0 {
            return self.debug_stop(hits);
        }
        if first == [0xF4] { Stepped::Halted } else { Stepped::Ran }
    }

    fn debug_stop(&mut self, hits: u64) -> Stepped {
        self.set_debug(self.special.dr, DR6_ONES | hits, self.special.dr7);
        self.trace(false);
        Stepped::Stopped(Exceptional::plain(status::SINGLE_STEP, self.context.rip()))
    }

    /// The debug register that is enabled, of a kind (0 execute, 1 write, 3 access) that `wanted` picks,
    /// and touches `bytes` at `address`.
    fn watched(&self, wanted: impl Fn(u64, u64) -> bool, address: u64, bytes: u64) -> Option<u32> {
        let dr7 = self.special.dr7;
        (0..4u32).zip(self.special.dr).find_map(|(number, base)| {
            let control = dr7 >> (16 + 4 * number) & 15;
            let (kind, length) = (control & 3, [1, 2, 8, 4][(control >> 2) as usize]);
            let enabled = dr7 >> (2 * number) & 3 != 0;
            let base = base & !(length - 1);
            let touches = address < base.saturating_add(length) && base < address.saturating_add(bytes);
            (enabled && wanted(kind, length) && touches).then_some(number)
        })
    }

    /// Executes the instruction at RIP; where it wrote.
    fn execute(&mut self, memory: &Shared) -> Result<Vec<(u64, u64)>, Exceptional> {
        let at = self.context.rip();
        let source = Arc::clone(memory);
        let mut emulated = Memory::new(Outside::Stop);
        let missing = Rc::new(Cell::new(None));
        let missed = Rc::clone(&missing);
        let backing = move |address: u64, buffer: &mut [u8]| {
            let read = source.lock().unwrap_or_else(PoisonError::into_inner).read(address, buffer);
            if read == 0 && missed.get().is_none() {
                missed.set(Some(address));
            }
            read
        };
        emulated.map_backed(0, u64::MAX, Rc::new(backing));
        let mut emulator = Emulator::new(target::Machine::X64, emulated);
        for number in 0..16 {
            emulator.registers.general[number] = Value::known(self.context.general(number));
            let vector = self.context.xmm(number);
            let (low, high) = (vector as u64, (vector >> 64) as u64);
            emulator.registers.vector[number] = [Value::known(low), Value::known(high)];
        }
        emulator.registers.flags = Value::known(self.context.eflags().into());
        emulator.registers.ip = at;
        emulator.registers.gs_base = Value::known(self.special.gs_base);
        emulator.registers.fs_base = Value::ZERO;
        emulator.watch(0..u64::MAX);
        let event = emulator.step();
        if let Some(page) = missing.get() {
            let parameters = [u64::from(!emulator.writes().is_empty()), page];
            return Err(Exceptional { code: ACCESS_VIOLATION, address: at, parameters, count: 2 });
        }
        match event {
            Event::Ran | Event::Called(_) => {}
            Event::Stopped(Stop::Fault { fault, .. }) => return Err(violation(at, &fault)),
            Event::Stopped(_) | Event::Fork(_) | Event::Stub(_) => {
                return Err(Exceptional::plain(ILLEGAL_INSTRUCTION, at));
            }
        }
        let mut touched = Vec::new();
        let mut space = memory.lock().unwrap_or_else(PoisonError::into_inner);
        for write in emulator.writes() {
            let bytes = write.value.bits().to_le_bytes();
            let data = bytes.get(..write.bytes as usize).unwrap_or(&bytes);
            if space.write(write.address, data) != data.len() {
                let parameters = [1, write.address];
                return Err(Exceptional { code: ACCESS_VIOLATION, address: at, parameters, count: 2 });
            }
            touched.push((write.address, u64::from(write.bytes)));
        }
        drop(space);
        for number in 0..16 {
            self.context.set_general(number, emulator.registers.general[number].bits());
            let [low, high] = emulator.registers.vector[number].map(Value::bits);
            self.context.set_xmm(number, u128::from(high) << 64 | u128::from(low));
        }
        let flags = emulator.registers.flags.bits() as u32;
        self.context.set_eflags(flags | 2);
        self.context.set_rip(emulator.registers.ip);
        Ok(touched)
    }
}

fn violation(at: u64, fault: &emulate::Fault) -> Exceptional {
    let (kind, address) = match fault {
        emulate::Fault::Unmapped { address, access } => {
            (u64::from(*access == emulate::Access::Write), *address)
        }
        emulate::Fault::TooManyPages { address } | emulate::Fault::Unknown { address } => (0, *address),
    };
    Exceptional { code: ACCESS_VIOLATION, address: at, parameters: [kind, address], count: 2 }
}
