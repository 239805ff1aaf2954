//! Shifts, rotates, bit tests, bit counts.

use iced_x86::Mnemonic;

use super::flags::{AF, CF, OF, PF, SF, ZF};
use super::{Handled, Step};
use crate::emulator::{Event, Stop};
use crate::value::Value;

/// What shifts do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shift {
    Left,
    Right,
    Arithmetic,
    RotateLeft,
    RotateRight,
    CarryLeft,
    CarryRight,
}

/// What bit tests do to the bit.
#[derive(Clone, Copy)]
enum Change {
    Nothing,
    Set,
    Reset,
    Complement,
}

impl Step<'_> {
    pub(super) fn shift_or_bit(&mut self) -> Handled {
        match self.mnemonic() {
            Mnemonic::Shl | Mnemonic::Sal => self.shift(Shift::Left)?,
            Mnemonic::Shr => self.shift(Shift::Right)?,
            Mnemonic::Sar => self.shift(Shift::Arithmetic)?,
            Mnemonic::Rol => self.shift(Shift::RotateLeft)?,
            Mnemonic::Ror => self.shift(Shift::RotateRight)?,
            Mnemonic::Rcl => self.shift(Shift::CarryLeft)?,
            Mnemonic::Rcr => self.shift(Shift::CarryRight)?,
            Mnemonic::Shld => self.double_shift(true)?,
            Mnemonic::Shrd => self.double_shift(false)?,
            Mnemonic::Bt => self.bit_test(Change::Nothing)?,
            Mnemonic::Bts => self.bit_test(Change::Set)?,
            Mnemonic::Btr => self.bit_test(Change::Reset)?,
            Mnemonic::Btc => self.bit_test(Change::Complement)?,
            Mnemonic::Bsf => self.scan(true)?,
            Mnemonic::Bsr => self.scan(false)?,
            Mnemonic::Tzcnt => self.count(|value, bits| value.trailing_zeros().min(bits))?,
            Mnemonic::Lzcnt => self.count(|value, bits| value.leading_zeros() - (64 - bits))?,
            Mnemonic::Popcnt => self.population()?,
            Mnemonic::Shlx => self.flagless(|value, count, _| value.shl(count))?,
            Mnemonic::Shrx => self.flagless(|value, count, _| value.shr(count))?,
            Mnemonic::Sarx => self.flagless(arithmetic_right)?,
            Mnemonic::Rorx => self.flagless(|v, count, bytes| v.rotate_left(bytes, bytes * 8 - count))?,
            _ => return Ok(None),
        }
        Ok(Some(Event::Ran))
    }

    fn shift(&mut self, kind: Shift) -> Result<(), Stop> {
        let bytes = self.size(0);
        let value = self.read(0)?;
        let counted = self.read(1)?.truncate(1) & Value::known(if bytes == 8 { 0x3f } else { 0x1f });
        let Some(count) = counted.get() else {
            // Any count: the result is unknown, and so are the flags.
            for flag in [CF, OF, ZF, SF, PF, AF] {
                self.set_flag(flag, None);
            }
            return self.write(0, Value::unknown(bytes));
        };
        let count = count as u32;
        if count == 0 {
            // A 32-bit register is zero-extended even so.
            return self.write(0, value);
        }
        match kind {
            Shift::Left | Shift::Right | Shift::Arithmetic => self.plain_shift(kind, value, count, bytes),
            Shift::RotateLeft | Shift::RotateRight => self.rotate(kind, value, count, bytes),
            Shift::CarryLeft | Shift::CarryRight => self.rotate_carry(kind, value, count, bytes),
        }
    }

    fn plain_shift(&mut self, kind: Shift, value: Value, count: u32, bytes: u32) -> Result<(), Stop> {
        let bits = bytes * 8;
        let sign = value.at(bits - 1);
        let (result, carry, overflow) = match kind {
            Shift::Left => {
                let result = value.shl(count).truncate(bytes);
                let carry = if count <= bits { value.at(bits - count) } else { None };
                (result, carry, carry.zip(result.at(bits - 1)).map(|(c, s)| c != s))
            }
            Shift::Right => {
                let carry = if count <= bits { value.at(count - 1) } else { None };
                (value.shr(count), carry, sign)
            }
            _ => {
                let carry = if count <= bits { value.at(count - 1) } else { sign };
                (arithmetic_right(value, count, bytes), carry, Some(false))
            }
        };
        self.set_flag(CF, carry);
        self.set_flag(OF, if count == 1 { overflow } else { None });
        self.set_flag(AF, None);
        self.set_result_flags(result, bytes);
        self.write(0, result)
    }

    fn rotate(&mut self, kind: Shift, value: Value, count: u32, bytes: u32) -> Result<(), Stop> {
        let bits = bytes * 8;
        let turn = count % bits;
        let left = if kind == Shift::RotateLeft { turn } else { bits - turn };
        let result = value.rotate_left(bytes, left);
        let (high, next) = (result.at(bits - 1), result.at(bits - 2));
        let (carry, overflow) = if kind == Shift::RotateLeft {
            let carry = result.at(0);
            (carry, high.zip(carry).map(|(h, c)| h != c))
        } else {
            (high, high.zip(next).map(|(h, n)| h != n))
        };
        self.set_flag(CF, carry);
        self.set_flag(OF, if count == 1 { overflow } else { None });
        self.write(0, result)
    }

    fn rotate_carry(&mut self, kind: Shift, value: Value, count: u32, bytes: u32) -> Result<(), Stop> {
        let bits = bytes * 8;
        let mut value = value;
        let mut carry = self.flag(CF);
        for _ in 0..count % (bits + 1) {
            if kind == Shift::CarryLeft {
                let out = value.at(bits - 1);
                value = value.shl(1).truncate(bytes).with_bit(0, carry);
                carry = out;
            } else {
                let out = value.at(0);
                value = value.shr(1).with_bit(bits - 1, carry);
                carry = out;
            }
        }
        let (high, next) = (value.at(bits - 1), value.at(bits - 2));
        let other = if kind == Shift::CarryLeft { carry } else { next };
        self.set_flag(CF, carry);
        self.set_flag(OF, if count == 1 { high.zip(other).map(|(a, b)| a != b) } else { None });
        self.write(0, value)
    }

    fn double_shift(&mut self, left: bool) -> Result<(), Stop> {
        let bytes = self.size(0);
        let bits = bytes * 8;
        let (into, from) = (self.read(0)?, self.read(1)?);
        let counted = self.read(2)?.truncate(1) & Value::known(if bytes == 8 { 0x3f } else { 0x1f });
        let Some(count) = counted.get().map(|c| c as u32).filter(|&c| c <= bits) else {
            for flag in [CF, OF, ZF, SF, PF, AF] {
                self.set_flag(flag, None);
            }
            return self.write(0, Value::unknown(bytes));
        };
        if count == 0 {
            return self.write(0, into);
        }
        let (result, carry) = if left {
            ((into.shl(count) | from.shr(bits - count)).truncate(bytes), into.at(bits - count))
        } else {
            ((into.shr(count) | from.shl(bits - count)).truncate(bytes), into.at(count - 1))
        };
        let changed = into.at(bits - 1).zip(result.at(bits - 1)).map(|(a, b)| a != b);
        self.set_flag(CF, carry);
        self.set_flag(OF, if count == 1 { changed } else { None });
        self.set_flag(AF, None);
        self.set_result_flags(result, bytes);
        self.write(0, result)
    }

    fn bit_test(&mut self, change: Change) -> Result<(), Stop> {
        let bytes = self.size(0);
        let bits = u64::from(bytes) * 8;
        let register_index = self.instruction.op_kind(1) == iced_x86::OpKind::Register;
        let index = self.read(1)?;
        let Some(number) = index.get() else {
            for flag in [CF, OF, SF, PF, AF] {
                self.set_flag(flag, None);
            }
            return match change {
                Change::Nothing => Ok(()),
                _ if self.is_memory(0) => Err(Stop::UnknownAddress { at: self.at() }),
                _ => self.write(0, Value::unknown(bytes)),
            };
        };
        if self.is_memory(0) && register_index {
            // The index reaches beyond the operand: a bit string.
            let signed = Value::known(number).sign_extend(bytes).bits() as i64;
            let offset = signed.div_euclid(bits as i64).wrapping_mul(i64::from(bytes));
            let address = self.address().add(Value::known(offset as u64), Some(false));
            let address = address.truncate(self.emulator.pointer());
            let value = self.emulator.load(address, bytes)?;
            let result = self.changed(value, (signed.rem_euclid(bits as i64)) as u32, change);
            return match change {
                Change::Nothing => Ok(()),
                _ => self.emulator.store(address, bytes, result),
            };
        }
        let value = self.read(0)?;
        let result = self.changed(value, (number % bits) as u32, change);
        match change {
            Change::Nothing => Ok(()),
            _ => self.write(0, result),
        }
    }

    fn changed(&mut self, value: Value, bit: u32, change: Change) -> Value {
        let old = value.at(bit);
        self.set_flag(CF, old);
        for flag in [OF, SF, PF, AF] {
            self.set_flag(flag, None);
        }
        match change {
            Change::Nothing => value,
            Change::Set => value.with_bit(bit, Some(true)),
            Change::Reset => value.with_bit(bit, Some(false)),
            Change::Complement => value.with_bit(bit, old.map(|b| !b)),
        }
    }

    fn scan(&mut self, forward: bool) -> Result<(), Stop> {
        let bytes = self.size(0);
        let value = self.read(1)?;
        for flag in [CF, OF, SF, PF, AF] {
            self.set_flag(flag, None);
        }
        self.set_flag(ZF, value.is_zero(bytes));
        match value.low(bytes) {
            // The destination is undefined by one vendor, unchanged by the other.
            Some(0) => {
                self.forget_destination(bytes);
                Ok(())
            }
            Some(known) => {
                let index = if forward { known.trailing_zeros() } else { 63 - known.leading_zeros() };
                self.write(0, Value::known(u64::from(index)))
            }
            None => {
                if value.is_zero(bytes) == Some(false) {
                    return self.write(0, Value::new(0, 0x3f));
                }
                self.forget_destination(bytes);
                Ok(())
            }
        }
    }

    /// The whole register, its upper half too: it may be kept or cleared.
    fn forget_destination(&mut self, bytes: u32) {
        let number = self.instruction.op0_register().full_register().number() & 15;
        let slot = &mut self.emulator.registers.general[number];
        *slot = if bytes == 2 { slot.with_low(2, Value::UNKNOWN) } else { Value::UNKNOWN };
    }

    fn count(&mut self, of: fn(u64, u32) -> u32) -> Result<(), Stop> {
        let bytes = self.size(0);
        let value = self.read(1)?;
        let result = match value.low(bytes) {
            Some(known) => Value::known(u64::from(of(known, bytes * 8))),
            None => Value::new(0, 0x7f),
        };
        let (zero, carry) = (result.is_zero(bytes), value.is_zero(bytes));
        for flag in [OF, SF, PF, AF] {
            self.set_flag(flag, None);
        }
        self.set_flag(ZF, zero);
        self.set_flag(CF, carry);
        self.write(0, result)
    }

    fn population(&mut self) -> Result<(), Stop> {
        let bytes = self.size(0);
        let value = self.read(1)?;
        let zero = value.is_zero(bytes);
        let result =
            value.low(bytes).map_or(Value::new(0, 0x7f), |v| Value::known(u64::from(v.count_ones())));
        for flag in [OF, SF, PF, AF, CF] {
            self.set_flag(flag, Some(false));
        }
        self.set_flag(ZF, zero);
        self.write(0, result)
    }

    fn flagless(&mut self, operation: fn(Value, u32, u32) -> Value) -> Result<(), Stop> {
        let bytes = self.size(0);
        let value = self.read(1)?;
        let bits = u64::from(bytes) * 8;
        let count = self.read(2)?.truncate(1) & Value::known(bits - 1);
        let result = match count.get() {
            Some(count) => operation(value, count as u32, bytes).truncate(bytes),
            None => Value::unknown(bytes),
        };
        self.write(0, result)
    }
}

/// Shifted right with copies of the sign of `bytes` bytes.
fn arithmetic_right(value: Value, count: u32, bytes: u32) -> Value {
    let wide = value.sign_extend(bytes);
    let count = count.min(63);
    let shifted = |bits: u64| ((bits as i64) >> count) as u64;
    Value::new(shifted(wide.bits()), shifted(wide.unknown_bits())).truncate(bytes)
}
