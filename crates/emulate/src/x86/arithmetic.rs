//! add, sub, logic, inc, dec, neg, cmpxchg, xadd.

use iced_x86::Mnemonic;

use super::flags::{AF, CF, OF, ZF};
use super::{Handled, Step};
use crate::emulator::{Event, Stop};
use crate::value::Value;

impl Step<'_> {
    pub(super) fn arithmetic(&mut self) -> Handled {
        match self.mnemonic() {
            Mnemonic::Add => self.sum(false, Some(false), true)?,
            Mnemonic::Adc => self.sum(false, self.flag(CF), true)?,
            Mnemonic::Sub => self.sum(true, Some(false), true)?,
            Mnemonic::Sbb => self.sum(true, self.flag(CF), true)?,
            Mnemonic::Cmp => self.sum(true, Some(false), false)?,
            Mnemonic::And => self.logic(|a, b| a & b, true)?,
            Mnemonic::Or => self.logic(|a, b| a | b, true)?,
            Mnemonic::Xor => self.logic(|a, b| a ^ b, true)?,
            Mnemonic::Test => self.logic(|a, b| a & b, false)?,
            Mnemonic::Inc => self.by_one(false)?,
            Mnemonic::Dec => self.by_one(true)?,
            Mnemonic::Neg => self.negate()?,
            Mnemonic::Not => {
                let value = !self.read(0)?;
                self.write(0, value)?;
            }
            Mnemonic::Xadd => self.exchange_add()?,
            Mnemonic::Cmpxchg => self.compare_exchange()?,
            Mnemonic::Cmpxchg8b => self.compare_exchange_wide(4)?,
            Mnemonic::Cmpxchg16b => self.compare_exchange_wide(8)?,
            _ => return Ok(None),
        }
        Ok(Some(Event::Ran))
    }

    /// Both operands are one register.
    fn same_registers(&self) -> bool {
        use iced_x86::OpKind::Register;
        self.instruction.op_kind(0) == Register
            && self.instruction.op_kind(1) == Register
            && self.instruction.op_register(0) == self.instruction.op_register(1)
    }

    fn sum(&mut self, subtract: bool, carry: Option<bool>, keep: bool) -> Result<(), Stop> {
        let bytes = self.size(0);
        let (mut a, mut b) = (self.read(0)?, self.read(1)?.truncate(bytes));
        if subtract && self.same_registers() {
            // `sub eax,eax` and `sbb eax,eax` do not depend on eax.
            (a, b) = (Value::ZERO, Value::ZERO);
        }
        let result = if subtract { a.sub(b, carry) } else { a.add(b, carry) };
        let result = result.truncate(bytes);
        self.set_sum_flags(a, b, result, bytes, subtract);
        if self.mnemonic() == Mnemonic::Sbb && self.same_registers() {
            // All ones or all zeros with the borrow.
            let spread = carry.map_or(Value::unknown(bytes), |c| Value::known(0).sub(Value::ZERO, Some(c)));
            self.set_flag(CF, carry);
            return self.write(0, spread.truncate(bytes));
        }
        if keep { self.write(0, result) } else { Ok(()) }
    }

    fn logic(&mut self, operation: fn(Value, Value) -> Value, keep: bool) -> Result<(), Stop> {
        let bytes = self.size(0);
        let (mut a, mut b) = (self.read(0)?, self.read(1)?.truncate(bytes));
        if self.mnemonic() == Mnemonic::Xor && self.same_registers() {
            (a, b) = (Value::ZERO, Value::ZERO);
        }
        let result = operation(a, b).truncate(bytes);
        self.set_logic_flags(result, bytes);
        if keep { self.write(0, result) } else { Ok(()) }
    }

    fn by_one(&mut self, subtract: bool) -> Result<(), Stop> {
        let bytes = self.size(0);
        let (value, one) = (self.read(0)?, Value::known(1));
        let result = if subtract { value.sub(one, Some(false)) } else { value.add(one, Some(false)) };
        let result = result.truncate(bytes);
        let carry = self.flag(CF);
        self.set_sum_flags(value, one, result, bytes, subtract);
        self.set_flag(CF, carry);
        self.write(0, result)
    }

    fn negate(&mut self) -> Result<(), Stop> {
        let bytes = self.size(0);
        let value = self.read(0)?;
        let result = Value::ZERO.sub(value, Some(false)).truncate(bytes);
        self.set_sum_flags(Value::ZERO, value, result, bytes, true);
        self.set_flag(CF, value.is_zero(bytes).map(|zero| !zero));
        self.write(0, result)
    }

    fn exchange_add(&mut self) -> Result<(), Stop> {
        let bytes = self.size(0);
        let (a, b) = (self.read(0)?, self.read(1)?);
        let result = a.add(b, Some(false)).truncate(bytes);
        self.set_sum_flags(a, b, result, bytes, false);
        self.write(1, a)?;
        self.write(0, result)
    }

    fn compare_exchange(&mut self) -> Result<(), Stop> {
        let bytes = self.size(0);
        let accumulator = self.emulator.registers.general[0].truncate(bytes);
        let (there, new) = (self.read(0)?, self.read(1)?);
        let difference = accumulator.sub(there, Some(false)).truncate(bytes);
        self.set_sum_flags(accumulator, there, difference, bytes, true);
        match accumulator.equals(there) {
            Some(true) => self.write(0, new),
            Some(false) => {
                self.set_accumulator(bytes, there);
                Ok(())
            }
            None => {
                let old = self.emulator.registers.general[0];
                self.set_accumulator(bytes, there);
                let loaded = self.emulator.registers.general[0];
                self.emulator.registers.general[0] = old.join(loaded);
                if self.is_memory(0) {
                    return self.write(0, there.join(new));
                }
                // Not written, all 64 bits stay; written, 32 bits clear the others.
                let number = self.instruction.op0_register().full_register().number() & 15;
                let kept = self.emulator.registers.general[number];
                self.write(0, new)?;
                let written = self.emulator.registers.general[number];
                self.emulator.registers.general[number] = kept.join(written);
                Ok(())
            }
        }
    }

    pub(super) fn set_accumulator(&mut self, bytes: u32, value: Value) {
        let slot = &mut self.emulator.registers.general[0];
        *slot = if bytes == 4 { value.truncate(4) } else { slot.with_low(bytes, value) };
    }

    /// cmpxchg8b (`half` 4) and cmpxchg16b (8): edx:eax with memory, ecx:ebx stored.
    fn compare_exchange_wide(&mut self, half: u32) -> Result<(), Stop> {
        let address = self.address();
        let upper = address.add(Value::known(u64::from(half)), Some(false));
        let low = self.emulator.load(address, half)?;
        let high = self.emulator.load(upper, half)?;
        let [rax, rcx, rdx, rbx] =
            [0, 1, 2, 3].map(|r: usize| self.emulator.registers.general[r].truncate(half));
        let same = match (rax.equals(low), rdx.equals(high)) {
            (Some(false), _) | (_, Some(false)) => Some(false),
            (Some(true), Some(true)) => Some(true),
            _ => None,
        };
        self.set_flag(ZF, same);
        let (new_low, new_high) = match same {
            Some(true) => (rbx, rcx),
            Some(false) => (low, high),
            None => (low.join(rbx), high.join(rcx)),
        };
        self.emulator.store(address, half, new_low)?;
        self.emulator.store(upper, half, new_high)?;
        if same != Some(true) {
            self.emulator.registers.general[0] = if same.is_none() { rax.join(low) } else { low };
            self.emulator.registers.general[2] = if same.is_none() { rdx.join(high) } else { high };
        }
        Ok(())
    }

    /// CF and OF alike, what the manual calls undefined unknown (mul, imul).
    pub(super) fn set_overflow(&mut self, overflow: Option<bool>) {
        self.set_flag(CF, overflow);
        self.set_flag(OF, overflow);
        self.set_flag(AF, None);
        for flag in [ZF, super::flags::SF, super::flags::PF] {
            self.set_flag(flag, None);
        }
    }
}
