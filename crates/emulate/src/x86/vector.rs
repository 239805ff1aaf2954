//! SSE and SSE2 without floating-point arithmetic: moves, logic, and what compilers copy with.

use iced_x86::{Mnemonic, OpKind, Register};

use super::{Handled, Step};
use crate::emulator::{Event, Stop};
use crate::value::Value;

/// 128 bits, low half first.
pub(super) type Wide = [Value; 2];

impl Step<'_> {
    fn is_xmm(&self, index: u32) -> bool {
        self.instruction.op_kind(index) == OpKind::Register && self.instruction.op_register(index).is_xmm()
    }

    pub(super) fn wide_register(&self, register: Register) -> Wide {
        self.emulator.registers.vector[register.number() & 31]
    }

    fn set_wide(&mut self, register: Register, value: Wide) {
        self.emulator.registers.vector[register.number() & 31] = value;
    }

    /// Operand `index` as 128 bits: narrower memory and registers are zero-extended.
    pub(super) fn read_wide(&mut self, index: u32) -> Result<Wide, Stop> {
        if self.is_xmm(index) {
            return Ok(self.wide_register(self.instruction.op_register(index)));
        }
        if !self.is_memory(index) {
            return Ok([self.read(index)?, Value::ZERO]);
        }
        let (address, bytes) = (self.address(), self.size(index));
        let low = self.emulator.load(address, bytes.clamp(1, 8))?;
        if bytes <= 8 {
            return Ok([low, Value::ZERO]);
        }
        if bytes > 16 {
            return Err(self.not_known());
        }
        Ok([low, self.emulator.load(self.above(address), 8)?])
    }

    fn above(&self, address: Value) -> Value {
        address.add(Value::known(8), Some(false)).truncate(self.emulator.pointer())
    }

    /// Stores to operand 0: all of an xmm register, or as much as the memory operand takes.
    pub(super) fn write_wide(&mut self, value: Wide) -> Result<(), Stop> {
        if self.is_xmm(0) {
            self.set_wide(self.instruction.op0_register(), value);
            return Ok(());
        }
        if !self.is_memory(0) {
            let bytes = self.size(0);
            return self.write(0, value[0].truncate(bytes));
        }
        let (address, bytes) = (self.address(), self.size(0));
        self.emulator.store(address, bytes.clamp(1, 8), value[0])?;
        if bytes > 8 {
            self.emulator.store(self.above(address), 8, value[1])?;
        }
        Ok(())
    }

    pub(super) fn vector(&mut self) -> Handled {
        // mmx registers and the wider vectors are not kept.
        let foreign = (0..self.instruction.op_count()).any(|index| {
            let register = self.instruction.op_register(index);
            self.instruction.op_kind(index) == OpKind::Register
                && (register.is_mm() || register.is_ymm() || register.is_zmm() || register.is_st())
        });
        if foreign || self.instruction.is_string_instruction() {
            return Ok(None);
        }
        match self.mnemonic() {
            Mnemonic::Movups
            | Mnemonic::Movupd
            | Mnemonic::Movaps
            | Mnemonic::Movapd
            | Mnemonic::Movdqu
            | Mnemonic::Movdqa
            | Mnemonic::Lddqu
            | Mnemonic::Movntdq
            | Mnemonic::Movntps
            | Mnemonic::Movntpd
            | Mnemonic::Movd
            | Mnemonic::Movq => {
                let mut value = self.read_wide(1)?;
                if self.mnemonic() == Mnemonic::Movq && self.is_xmm(1) {
                    value[1] = Value::ZERO;
                } else if self.mnemonic() == Mnemonic::Movd {
                    value = [value[0].truncate(4), Value::ZERO];
                }
                self.write_wide(value)?;
            }
            Mnemonic::Movss => self.move_scalar(4)?,
            Mnemonic::Movsd => self.move_scalar(8)?,
            Mnemonic::Movlps | Mnemonic::Movlpd | Mnemonic::Movhps | Mnemonic::Movhpd => self.move_half()?,
            Mnemonic::Movhlps => {
                let (a, b) = (self.read_wide(0)?, self.read_wide(1)?);
                self.write_wide([b[1], a[1]])?;
            }
            Mnemonic::Movlhps => {
                let (a, b) = (self.read_wide(0)?, self.read_wide(1)?);
                self.write_wide([a[0], b[0]])?;
            }
            Mnemonic::Movddup => {
                let value = self.read_wide(1)?;
                self.write_wide([value[0], value[0]])?;
            }
            Mnemonic::Pxor | Mnemonic::Xorps | Mnemonic::Xorpd => {
                if self.is_xmm(1) && self.instruction.op0_register() == self.instruction.op1_register() {
                    self.write_wide([Value::ZERO; 2])?;
                } else {
                    self.each_half(|a, b| a ^ b)?;
                }
            }
            Mnemonic::Por | Mnemonic::Orps | Mnemonic::Orpd => self.each_half(|a, b| a | b)?,
            Mnemonic::Pand | Mnemonic::Andps | Mnemonic::Andpd => self.each_half(|a, b| a & b)?,
            Mnemonic::Pandn | Mnemonic::Andnps | Mnemonic::Andnpd => self.each_half(|a, b| !a & b)?,
            _ => return self.vector_lanes(),
        }
        Ok(Some(Event::Ran))
    }

    fn each_half(&mut self, operation: fn(Value, Value) -> Value) -> Result<(), Stop> {
        let (a, b) = (self.read_wide(0)?, self.read_wide(1)?);
        self.write_wide([operation(a[0], b[0]), operation(a[1], b[1])])
    }

    /// movss, movsd: between registers only the low part changes; a load clears the rest.
    fn move_scalar(&mut self, bytes: u32) -> Result<(), Stop> {
        let value = self.read_wide(1)?;
        if self.is_xmm(0) && self.is_xmm(1) {
            let old = self.read_wide(0)?;
            return self.write_wide([old[0].with_low(bytes, value[0]), old[1]]);
        }
        self.write_wide([value[0].truncate(bytes), Value::ZERO])
    }

    fn move_half(&mut self) -> Result<(), Stop> {
        let high = matches!(self.mnemonic(), Mnemonic::Movhps | Mnemonic::Movhpd);
        if self.is_memory(0) {
            let value = self.read_wide(1)?;
            let address = self.address();
            return self.emulator.store(address, 8, value[usize::from(high)]);
        }
        let mut old = self.read_wide(0)?;
        let address = self.address();
        old[usize::from(high)] = self.emulator.load(address, 8)?;
        self.write_wide(old)
    }
}
