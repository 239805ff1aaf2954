//! mul, imul, div, idiv.

use iced_x86::Mnemonic;

use super::flags::{AF, CF, OF, PF, SF, ZF};
use super::{Handled, Step};
use crate::emulator::{Event, Stop};
use crate::value::{Value, mask};

impl Step<'_> {
    pub(super) fn multiply(&mut self) -> Handled {
        match self.mnemonic() {
            Mnemonic::Mul => self.wide_multiply(false)?,
            Mnemonic::Imul if self.instruction.op_count() == 1 => self.wide_multiply(true)?,
            Mnemonic::Imul => self.narrow_multiply()?,
            Mnemonic::Mulx => {
                let bytes = self.size(0);
                let (a, b) = (self.emulator.registers.general[2].truncate(bytes), self.read(2)?);
                let (low, high) = product(a, b, bytes, false);
                self.write(1, low)?;
                self.write(0, high)?;
            }
            Mnemonic::Div => self.divide(false)?,
            Mnemonic::Idiv => self.divide(true)?,
            _ => return Ok(None),
        }
        Ok(Some(Event::Ran))
    }

    fn wide_multiply(&mut self, signed: bool) -> Result<(), Stop> {
        let bytes = self.size(0);
        let a = self.emulator.registers.general[0].truncate(bytes);
        let b = self.read(0)?;
        let (low, high) = product(a, b, bytes, signed);
        let overflow = if signed {
            let sign = low.sign_extend(bytes).shr(63);
            let filled = sign.get().map(|s| if s == 1 { mask(bytes) } else { 0 });
            filled.and_then(|f| high.equals(Value::known(f))).map(|same| !same)
        } else {
            high.is_zero(bytes).map(|zero| !zero)
        };
        self.set_overflow(overflow);
        self.set_pair(bytes, low, high);
        Ok(())
    }

    /// ax, dx:ax, edx:eax or rdx:rax.
    fn set_pair(&mut self, bytes: u32, low: Value, high: Value) {
        if bytes == 1 {
            self.set_accumulator(2, low | high.shl(8));
            return;
        }
        self.set_accumulator(bytes, low);
        let slot = &mut self.emulator.registers.general[2];
        *slot = if bytes == 4 { high.truncate(4) } else { slot.with_low(bytes, high) };
    }

    fn narrow_multiply(&mut self) -> Result<(), Stop> {
        let bytes = self.size(0);
        let two = self.instruction.op_count() == 2;
        let a = self.read(u32::from(!two))?;
        let b = self.read(if two { 1 } else { 2 })?.truncate(bytes);
        let (low, high) = product(a, b, bytes, true);
        let overflow = low.at(bytes * 8 - 1).and_then(|negative| {
            let filled = if negative { mask(bytes) } else { 0 };
            high.equals(Value::known(filled)).map(|same| !same)
        });
        self.set_overflow(overflow);
        self.write(0, low)
    }

    fn divide(&mut self, signed: bool) -> Result<(), Stop> {
        let bytes = self.size(0);
        let divisor = self.read(0)?;
        for flag in [CF, OF, SF, ZF, AF, PF] {
            self.set_flag(flag, None);
        }
        let rax = self.emulator.registers.general[0];
        let (low, high) = if bytes == 1 {
            (rax.truncate(1), rax.shr(8).truncate(1))
        } else {
            (rax.truncate(bytes), self.emulator.registers.general[2].truncate(bytes))
        };
        let known = (low.get(), high.get(), divisor.low(bytes));
        let (quotient, remainder) = match known {
            (_, _, Some(0)) => return Err(Stop::Trap { at: self.at(), what: "division by zero" }),
            (Some(low), Some(high), Some(divisor)) => {
                let bits = bytes * 8;
                let dividend = u128::from(high) << bits | u128::from(low);
                quotient(dividend, divisor, bytes, signed)
                    .ok_or(Stop::Trap { at: self.at(), what: "division overflow" })?
            }
            _ => (Value::unknown(bytes), Value::unknown(bytes)),
        };
        self.set_pair(bytes, quotient, remainder);
        Ok(())
    }
}

/// Quotient and remainder, `None` where the quotient does not fit.
fn quotient(dividend: u128, divisor: u64, bytes: u32, signed: bool) -> Option<(Value, Value)> {
    if !signed {
        let (q, r) = (dividend / u128::from(divisor), dividend % u128::from(divisor));
        return (q <= u128::from(mask(bytes))).then_some((Value::known(q as u64), Value::known(r as u64)));
    }
    let shift = 128 - bytes * 16;
    let dividend = ((dividend << shift) as i128) >> shift;
    let divisor = i128::from(Value::known(divisor).sign_extend(bytes).bits() as i64);
    let (q, r) = (dividend.checked_div(divisor)?, dividend.checked_rem(divisor)?);
    let half = 1i128 << (bytes * 8 - 1);
    let cut = |v: i128| Value::known(v as u64).truncate(bytes);
    (-half <= q && q < half).then_some((cut(q), cut(r)))
}

/// The low and high halves of a product of values of `bytes` bytes.
fn product(a: Value, b: Value, bytes: u32, signed: bool) -> (Value, Value) {
    let (Some(x), Some(y)) = (a.low(bytes), b.low(bytes)) else {
        let zero = a.is_zero(bytes) == Some(true) || b.is_zero(bytes) == Some(true);
        let high = if zero { Value::ZERO } else { Value::unknown(bytes) };
        return (a.mul(b).truncate(bytes), high);
    };
    let wide = if signed {
        let extend = |v: u64| i128::from(Value::known(v).sign_extend(bytes).bits() as i64);
        (extend(x) * extend(y)) as u128
    } else {
        u128::from(x) * u128::from(y)
    };
    let bits = bytes * 8;
    (Value::known(wide as u64).truncate(bytes), Value::known((wide >> bits) as u64).truncate(bytes))
}
