//! Operands: registers, immediates, memory.

use iced_x86::{OpKind, Register};
use target::Machine;

use super::Step;
use crate::emulator::Stop;
use crate::value::Value;

/// Number among [`crate::Registers::general`], bytes, and whether it is ah, ch, dh or bh.
fn general(register: Register) -> Option<(usize, u32, bool)> {
    if !register.is_gpr() {
        return None;
    }
    let high = matches!(register, Register::AH | Register::CH | Register::DH | Register::BH);
    Some((register.full_register().number(), register.size() as u32, high))
}

impl Step<'_> {
    /// A register's value, zero-extended.
    pub(super) fn register(&self, register: Register) -> Value {
        if let Some((number, bytes, high)) = general(register) {
            let value = self.emulator.registers.general[number];
            return if high { value.shr(8).truncate(1) } else { value.truncate(bytes) };
        }
        if register.is_ip() {
            return Value::known(self.next());
        }
        if register.is_xmm() {
            return self.emulator.registers.vector[register.number()][0];
        }
        // Segment, control and debug registers read as 0, as privileged reads do.
        Value::ZERO
    }

    pub(super) fn set_register(&mut self, register: Register, value: Value) {
        let Some((number, bytes, high)) = general(register) else { return };
        let slot = &mut self.emulator.registers.general[number];
        *slot = match bytes {
            _ if high => {
                let kept = slot.with_low(2, slot.truncate(1));
                kept | value.truncate(1).shl(8)
            }
            8 => value,
            4 => value.truncate(4),
            _ => slot.with_low(bytes, value),
        };
        if (3..8).contains(&number) {
            self.emulator.written |= 1 << number;
        }
    }

    /// Bytes of operand `index`.
    pub(super) fn size(&self, index: u32) -> u32 {
        match self.instruction.op_kind(index) {
            OpKind::Register => self.instruction.op_register(index).size() as u32,
            OpKind::Memory
            | OpKind::MemoryESRDI
            | OpKind::MemoryESEDI
            | OpKind::MemoryESDI
            | OpKind::MemorySegRSI
            | OpKind::MemorySegESI
            | OpKind::MemorySegSI => self.instruction.memory_size().size() as u32,
            OpKind::Immediate8 | OpKind::Immediate8_2nd => 1,
            OpKind::Immediate16 | OpKind::Immediate8to16 => 2,
            OpKind::Immediate32 | OpKind::Immediate8to32 => 4,
            _ => 8,
        }
    }

    pub(super) fn is_memory(&self, index: u32) -> bool {
        self.instruction.op_kind(index) == OpKind::Memory
    }

    /// The effective address of the memory operand, segment base included.
    pub(super) fn address(&self) -> Value {
        let base = match self.instruction.memory_segment() {
            Register::FS => self.emulator.registers.fs_base,
            Register::GS => self.emulator.registers.gs_base,
            _ => Value::ZERO,
        };
        let address = base.add(self.offset(), Some(false));
        if self.emulator.machine == Machine::X86 { address.truncate(4) } else { address }
    }

    /// The offset alone, as `lea` gives it.
    pub(super) fn offset(&self) -> Value {
        let instruction = &self.instruction;
        let base = instruction.memory_base();
        let displacement = Value::known(instruction.memory_displacement64());
        if base.is_ip() {
            // iced has added the ip already.
            return displacement;
        }
        let mut sum = displacement;
        if base != Register::None {
            sum = sum.add(self.register(base), Some(false));
        }
        let index = instruction.memory_index();
        if index != Register::None {
            let scaled = self.register(index).mul(Value::known(u64::from(instruction.memory_index_scale())));
            sum = sum.add(scaled, Some(false));
        }
        let width = match () {
            () if base.size() == 2 || index.size() == 2 => 2,
            () if base.size() == 4 || index.size() == 4 => 4,
            () if self.emulator.machine == Machine::X86 => 4,
            () => 8,
        };
        sum.truncate(width)
    }

    /// Operand `index` of at most 8 bytes, zero-extended from its size.
    pub(super) fn read(&mut self, index: u32) -> Result<Value, Stop> {
        let kind = self.instruction.op_kind(index);
        Ok(match kind {
            OpKind::Register => self.register(self.instruction.op_register(index)),
            OpKind::Memory => {
                let bytes = self.size(index).clamp(1, 8);
                let address = self.address();
                self.emulator.load(address, bytes)?
            }
            OpKind::Immediate8
            | OpKind::Immediate8_2nd
            | OpKind::Immediate16
            | OpKind::Immediate32
            | OpKind::Immediate64
            | OpKind::Immediate8to16
            | OpKind::Immediate8to32
            | OpKind::Immediate8to64
            | OpKind::Immediate32to64 => Value::known(self.instruction.immediate(index)),
            _ => return Err(self.not_known()),
        })
    }

    /// Stores to operand `index` of at most 8 bytes.
    pub(super) fn write(&mut self, index: u32, value: Value) -> Result<(), Stop> {
        match self.instruction.op_kind(index) {
            OpKind::Register => {
                self.set_register(self.instruction.op_register(index), value);
                Ok(())
            }
            OpKind::Memory => {
                let bytes = self.size(index).clamp(1, 8);
                let address = self.address();
                self.emulator.store(address, bytes, value)
            }
            _ => Err(self.not_known()),
        }
    }

    pub(super) fn push(&mut self, value: Value, bytes: u32) -> Result<(), Stop> {
        let sp = self.stack().sub(Value::known(u64::from(bytes)), Some(false));
        let sp = sp.truncate(self.emulator.pointer());
        self.emulator.store(sp, bytes, value)?;
        self.emulator.registers.general[crate::RSP] = sp;
        Ok(())
    }

    pub(super) fn pop(&mut self, bytes: u32) -> Result<Value, Stop> {
        let sp = self.stack();
        let value = self.emulator.load(sp, bytes)?;
        self.move_stack(i64::from(bytes));
        Ok(value)
    }

    pub(super) fn stack(&self) -> Value {
        self.emulator.registers.general[crate::RSP].truncate(self.emulator.pointer())
    }

    pub(super) fn move_stack(&mut self, by: i64) {
        let sp = self.stack().add(Value::known(by as u64), Some(false));
        self.emulator.registers.general[crate::RSP] = sp.truncate(self.emulator.pointer());
    }
}
