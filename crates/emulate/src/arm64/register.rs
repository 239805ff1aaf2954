//! Data processing of registers (C4.1.95).

use super::{C, Handled, Step, V, arithmetic_right};
use crate::emulator::{Event, Stop};
use crate::value::{Value, mask};

impl Step<'_> {
    pub(super) fn register_operation(&mut self) -> Handled {
        let (op1, op2) = (self.bits(28, 1), self.bits(21, 4));
        match (op1, op2) {
            (0, 0b0000..=0b0111) => self.logical()?,
            (0, _) if op2 & 1 == 0 => self.add_shifted()?,
            (0, _) => self.add_extended()?,
            (1, 0b0000) => self.add_carry()?,
            (1, 0b0010) => self.conditional_compare()?,
            (1, 0b0100) => self.conditional_select()?,
            (1, 0b0110) if self.bits(29, 2) == 0 => self.two_sources()?,
            (1, 0b0110) if self.bits(29, 2) == 2 => self.one_source()?,
            (1, 0b1000..=0b1111) if self.bits(29, 2) == 0 => self.multiply_add()?,
            _ => return Err(self.not_known()),
        }
        Ok(Event::Ran)
    }

    fn shifted(&self, value: Value, kind: u32, amount: u32, bytes: u32) -> Value {
        match kind {
            0 => value.shl(amount).truncate(bytes),
            1 => value.shr(amount),
            2 => arithmetic_right(value, amount, bytes),
            _ => value.rotate_left(bytes, bytes * 8 - amount),
        }
    }

    /// Rm shifted by an immediate.
    fn shifted_register(&self, bytes: u32) -> Result<Value, Stop> {
        let amount = self.bits(10, 6);
        if amount >= bytes * 8 {
            return Err(Stop::Undecodable { at: self.at() });
        }
        Ok(self.shifted(self.x(self.field(16), bytes), self.bits(22, 2), amount, bytes))
    }

    fn logical(&mut self) -> Result<(), Stop> {
        let bytes = self.width();
        let mut second = self.shifted_register(bytes)?;
        if self.bits(21, 1) == 1 {
            second = !second & Value::known(mask(bytes));
        }
        let first = self.x(self.field(5), bytes);
        let operation = self.bits(29, 2);
        let same = self.field(5) == self.field(16) && self.bits(10, 6) == 0 && self.bits(21, 1) == 0;
        let result = match operation {
            1 => first | second,
            2 if same => Value::ZERO,
            2 => first ^ second,
            _ => first & second,
        };
        if operation == 3 {
            self.set_logic_flags(result, bytes);
        }
        self.set_x(self.field(0), bytes, result);
        Ok(())
    }

    fn add_shifted(&mut self) -> Result<(), Stop> {
        let bytes = self.width();
        if self.bits(22, 2) == 3 {
            return Err(Stop::Undecodable { at: self.at() });
        }
        let second = self.shifted_register(bytes)?;
        let (subtract, flags) = (self.bits(30, 1) == 1, self.bits(29, 1) == 1);
        let result = self.sum(self.x(self.field(5), bytes), second, subtract, Some(subtract), bytes, flags);
        self.set_x(self.field(0), bytes, result);
        Ok(())
    }

    fn add_extended(&mut self) -> Result<(), Stop> {
        let bytes = self.width();
        let shift = self.bits(10, 3);
        if self.bits(22, 2) != 0 || shift > 4 {
            return Err(Stop::Undecodable { at: self.at() });
        }
        let second = self.extended(self.field(16), self.bits(13, 3)).shl(shift);
        let (subtract, flags) = (self.bits(30, 1) == 1, self.bits(29, 1) == 1);
        let result =
            self.sum(self.x_sp(self.field(5), bytes), second, subtract, Some(subtract), bytes, flags);
        if flags {
            self.set_x(self.field(0), bytes, result);
        } else {
            self.set_x_sp(self.field(0), bytes, result);
        }
        Ok(())
    }

    /// uxtb, uxth, uxtw, uxtx, sxtb, sxth, sxtw, sxtx.
    pub(super) fn extended(&self, number: usize, option: u32) -> Value {
        let bytes = 1 << (option & 3);
        let value = self.x(number, bytes);
        if option & 4 == 0 { value } else { value.sign_extend(bytes) }
    }

    fn add_carry(&mut self) -> Result<(), Stop> {
        if self.bits(10, 6) != 0 {
            return Err(self.not_known());
        }
        let bytes = self.width();
        let (subtract, flags) = (self.bits(30, 1) == 1, self.bits(29, 1) == 1);
        let (a, b) = (self.x(self.field(5), bytes), self.x(self.field(16), bytes));
        let carry = self.flag(C);
        let result = self.sum(a, b, subtract, carry, bytes, flags);
        self.set_x(self.field(0), bytes, result);
        Ok(())
    }

    fn conditional_compare(&mut self) -> Result<(), Stop> {
        if self.bits(29, 1) == 0 || self.bits(10, 1) != 0 || self.bits(4, 1) != 0 {
            return Err(Stop::Undecodable { at: self.at() });
        }
        let bytes = self.width();
        let holds = self.condition(self.bits(12, 4));
        let first = self.x(self.field(5), bytes);
        let second = match self.bits(11, 1) {
            1 => Value::known(u64::from(self.bits(16, 5))),
            _ => self.x(self.field(16), bytes),
        };
        let given = Value::known(u64::from(self.bits(0, 4)) << V);
        if holds == Some(false) {
            self.emulator.registers.flags = given;
            return Ok(());
        }
        let subtract = self.bits(30, 1) == 1;
        self.sum(first, second, subtract, Some(subtract), bytes, true);
        if holds.is_none() {
            self.emulator.registers.flags = self.emulator.registers.flags.join(given);
        }
        Ok(())
    }

    fn conditional_select(&mut self) -> Result<(), Stop> {
        if self.bits(29, 1) != 0 || self.bits(11, 1) != 0 {
            return Err(Stop::Undecodable { at: self.at() });
        }
        let bytes = self.width();
        let first = self.x(self.field(5), bytes);
        let second = self.x(self.field(16), bytes);
        let other = match (self.bits(30, 1), self.bits(10, 1)) {
            (0, 0) => second,
            (0, _) => second.add(Value::known(1), Some(false)),
            (_, 0) => !second,
            _ => Value::ZERO.sub(second, Some(false)),
        }
        .truncate(bytes);
        let result = match self.condition(self.bits(12, 4)) {
            Some(true) => first,
            Some(false) => other,
            None => first.join(other),
        };
        self.set_x(self.field(0), bytes, result);
        Ok(())
    }

    fn two_sources(&mut self) -> Result<(), Stop> {
        let bytes = self.width();
        let (a, b) = (self.x(self.field(5), bytes), self.x(self.field(16), bytes));
        let operation = self.bits(10, 6);
        let result = match operation {
            0b000010 | 0b000011 => divided(a, b, operation == 0b000011, bytes),
            0b001000..=0b001011 => {
                let count = (b & Value::known(u64::from(bytes) * 8 - 1)).get();
                match count {
                    Some(count) => self.shifted(a, operation & 3, count as u32, bytes),
                    None => Value::unknown(bytes),
                }
            }
            _ => return Err(self.not_known()),
        };
        self.set_x(self.field(0), bytes, result);
        Ok(())
    }

    fn one_source(&mut self) -> Result<(), Stop> {
        let bytes = self.width();
        let value = self.x(self.field(5), bytes);
        let (kind, operation) = (self.field(16), self.bits(10, 6));
        if kind == 1 {
            // Pointer authentication: signing, checking and stripping leave the pointer.
            return if bytes == 8 { Ok(()) } else { Err(self.not_known()) };
        }
        let leading = |v: u64| u64::from(v.leading_zeros() - (64 - bytes * 8));
        let count = |v: Option<u64>| v.map_or(Value::new(0, 0x7f), Value::known);
        let result = match (kind, operation) {
            (0, 0b000000) => permuted(value, bytes, |v| v.reverse_bits() >> (64 - bytes * 8)),
            (0, 0b000001) => permuted(value, bytes, |v| each(v, 16, |x| x.swap_bytes() >> 48)),
            (0, 0b000010) => permuted(value, bytes, |v| each(v, 32, |x| x.swap_bytes() >> 32)),
            (0, 0b000011) => permuted(value, bytes, u64::swap_bytes),
            (0, 0b000100) => count(value.get().map(leading)),
            (0, 0b000101) => count(value.get().map(|v| {
                let signed = Value::known(v).sign_extend(bytes).bits() as i64;
                leading((signed ^ signed >> 63) as u64 & mask(bytes)) - 1
            })),
            _ => return Err(self.not_known()),
        };
        self.set_x(self.field(0), bytes, result);
        Ok(())
    }

    fn multiply_add(&mut self) -> Result<(), Stop> {
        let bytes = self.width();
        let subtract = self.bits(15, 1) == 1;
        let (n, m) = (self.field(5), self.field(16));
        let high = |signed: bool, a: Value, b: Value| match (a.get(), b.get()) {
            (Some(a), Some(b)) if signed => {
                Value::known(((i128::from(a as i64) * i128::from(b as i64)) >> 64) as u64)
            }
            (Some(a), Some(b)) => Value::known(((u128::from(a) * u128::from(b)) >> 64) as u64),
            _ => Value::UNKNOWN,
        };
        let product = match (bytes, self.bits(21, 3)) {
            (_, 0b000) => self.x(n, bytes).mul(self.x(m, bytes)),
            (8, 0b001) => self.x(n, 4).sign_extend(4).mul(self.x(m, 4).sign_extend(4)),
            (8, 0b101) => self.x(n, 4).mul(self.x(m, 4)),
            (8, kind @ (0b010 | 0b110)) if !subtract => {
                let value = high(kind == 0b010, self.x(n, 8), self.x(m, 8));
                self.set_x(self.field(0), 8, value);
                return Ok(());
            }
            _ => return Err(Stop::Undecodable { at: self.at() }),
        };
        let base = self.x(self.field(10), bytes);
        let result = if subtract { base.sub(product, Some(false)) } else { base.add(product, Some(false)) };
        self.set_x(self.field(0), bytes, result);
        Ok(())
    }
}

/// Division by zero gives 0, and the one overflow wraps.
fn divided(a: Value, b: Value, signed: bool, bytes: u32) -> Value {
    let (Some(x), Some(y)) = (a.get(), b.get()) else { return Value::unknown(bytes) };
    if y == 0 {
        return Value::ZERO;
    }
    let extend = |v: u64| Value::known(v).sign_extend(bytes).bits() as i64;
    let result = if signed { extend(x).wrapping_div(extend(y)) as u64 } else { x / y };
    Value::known(result).truncate(bytes)
}

fn permuted(value: Value, bytes: u32, order: impl Fn(u64) -> u64) -> Value {
    Value::new(order(value.bits()), order(value.unknown_bits())).truncate(bytes)
}

/// `operation` on each part of `bits` bits.
fn each(value: u64, bits: u32, operation: impl Fn(u64) -> u64) -> u64 {
    let part = (1u64 << bits) - 1;
    (0..64 / bits).fold(0, |all, i| {
        let piece = value >> (i * bits) & part;
        all | (operation(piece) & part) << (i * bits)
    })
}
