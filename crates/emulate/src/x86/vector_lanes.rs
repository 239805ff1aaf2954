//! SSE2 lane by lane: integer arithmetic, compares, shuffles, unpacks, shifts.

use iced_x86::Mnemonic;

use super::vector::Wide;
use super::{Handled, Step};
use crate::emulator::{Event, Stop};
use crate::value::{Value, mask};

/// Lane `index` of `bytes` bytes.
fn lane(value: Wide, bytes: u32, index: u32) -> Value {
    let bit = index * bytes * 8;
    value[(bit / 64) as usize & 1].shr(bit % 64).truncate(bytes)
}

fn set_lane(value: &mut Wide, bytes: u32, index: u32, lane: Value) {
    let bit = index * bytes * 8;
    let half = &mut value[(bit / 64) as usize & 1];
    let hole = Value::known(!(mask(bytes) << (bit % 64)));
    *half = *half & hole | lane.truncate(bytes).shl(bit % 64);
}

fn lanes(bytes: u32) -> u32 {
    16 / bytes
}

/// Lane by lane of two operands.
fn zip(a: Wide, b: Wide, bytes: u32, operation: impl Fn(Value, Value) -> Value) -> Wide {
    let mut result = [Value::ZERO; 2];
    for i in 0..lanes(bytes) {
        set_lane(&mut result, bytes, i, operation(lane(a, bytes, i), lane(b, bytes, i)));
    }
    result
}

fn ones(condition: Option<bool>) -> Value {
    match condition {
        Some(true) => Value::known(u64::MAX),
        Some(false) => Value::ZERO,
        None => Value::UNKNOWN,
    }
}

/// Lanes of the low (`high`: upper) halves, alternating.
fn unpack(a: Wide, b: Wide, bytes: u32, high: bool) -> Wide {
    let mut result = [Value::ZERO; 2];
    let first = if high { lanes(bytes) / 2 } else { 0 };
    for i in 0..lanes(bytes) / 2 {
        set_lane(&mut result, bytes, 2 * i, lane(a, bytes, first + i));
        set_lane(&mut result, bytes, 2 * i + 1, lane(b, bytes, first + i));
    }
    result
}

impl Step<'_> {
    pub(super) fn vector_lanes(&mut self) -> Handled {
        let add = |a: Value, b: Value| a.add(b, Some(false));
        let sub = |a: Value, b: Value| a.sub(b, Some(false));
        match self.mnemonic() {
            Mnemonic::Paddb => self.lane_wise(1, add)?,
            Mnemonic::Paddw => self.lane_wise(2, add)?,
            Mnemonic::Paddd => self.lane_wise(4, add)?,
            Mnemonic::Paddq => self.lane_wise(8, add)?,
            Mnemonic::Psubb => self.lane_wise(1, sub)?,
            Mnemonic::Psubw => self.lane_wise(2, sub)?,
            Mnemonic::Psubd => self.lane_wise(4, sub)?,
            Mnemonic::Psubq => self.lane_wise(8, sub)?,
            Mnemonic::Pmullw => self.lane_wise(2, Value::mul)?,
            Mnemonic::Pmulld => self.lane_wise(4, Value::mul)?,
            Mnemonic::Pmuludq => self.lane_wise(8, |a, b| a.truncate(4).mul(b.truncate(4)))?,
            Mnemonic::Pcmpeqb => self.equal(1)?,
            Mnemonic::Pcmpeqw => self.equal(2)?,
            Mnemonic::Pcmpeqd => self.equal(4)?,
            Mnemonic::Pcmpgtb => self.greater(1)?,
            Mnemonic::Pcmpgtw => self.greater(2)?,
            Mnemonic::Pcmpgtd => self.greater(4)?,
            Mnemonic::Punpcklbw => self.unpacked(1, false)?,
            Mnemonic::Punpcklwd => self.unpacked(2, false)?,
            Mnemonic::Punpckldq | Mnemonic::Unpcklps => self.unpacked(4, false)?,
            Mnemonic::Punpcklqdq | Mnemonic::Unpcklpd => self.unpacked(8, false)?,
            Mnemonic::Punpckhbw => self.unpacked(1, true)?,
            Mnemonic::Punpckhwd => self.unpacked(2, true)?,
            Mnemonic::Punpckhdq | Mnemonic::Unpckhps => self.unpacked(4, true)?,
            Mnemonic::Punpckhqdq | Mnemonic::Unpckhpd => self.unpacked(8, true)?,
            Mnemonic::Pmovmskb => {
                let value = self.read_wide(1)?;
                let bits = (0..16).fold(Value::ZERO, |bits, i| bits.with_bit(i, lane(value, 1, i).at(7)));
                self.write(0, bits)?;
            }
            Mnemonic::Movmskps => self.signs(4)?,
            Mnemonic::Movmskpd => self.signs(8)?,
            _ => return self.shuffled(),
        }
        Ok(Some(Event::Ran))
    }

    fn lane_wise(&mut self, bytes: u32, operation: impl Fn(Value, Value) -> Value) -> Result<(), Stop> {
        let (a, b) = (self.read_wide(0)?, self.read_wide(1)?);
        self.write_wide(zip(a, b, bytes, operation))
    }

    fn equal(&mut self, bytes: u32) -> Result<(), Stop> {
        let same = self.instruction.op0_register() == self.instruction.op1_register();
        self.lane_wise(bytes, |a, b| ones(if same { Some(true) } else { a.equals(b) }))
    }

    fn greater(&mut self, bytes: u32) -> Result<(), Stop> {
        self.lane_wise(bytes, |a, b| {
            let signed = |v: Value| v.sign_extend(bytes).get().map(|v| v as i64);
            ones(signed(a).zip(signed(b)).map(|(a, b)| a > b))
        })
    }

    fn unpacked(&mut self, bytes: u32, high: bool) -> Result<(), Stop> {
        let (a, b) = (self.read_wide(0)?, self.read_wide(1)?);
        self.write_wide(unpack(a, b, bytes, high))
    }

    fn signs(&mut self, bytes: u32) -> Result<(), Stop> {
        let value = self.read_wide(1)?;
        let sign = |i| lane(value, bytes, i).at(bytes * 8 - 1);
        let bits = (0..lanes(bytes)).fold(Value::ZERO, |bits, i| bits.with_bit(i, sign(i)));
        self.write(0, bits)
    }

    fn shuffled(&mut self) -> Handled {
        match self.mnemonic() {
            Mnemonic::Pshufd => {
                let (value, order) = (self.read_wide(1)?, self.immediate(2));
                self.write_wide(picked(value, value, 4, 0, order))?;
            }
            Mnemonic::Pshuflw | Mnemonic::Pshufhw => {
                let (mut value, order) = (self.read_wide(1)?, self.immediate(2));
                let half = usize::from(self.mnemonic() == Mnemonic::Pshufhw);
                let from = [value[half], Value::ZERO];
                let mut to = [Value::ZERO; 2];
                for i in 0..4 {
                    set_lane(&mut to, 2, i, lane(from, 2, order >> (2 * i) & 3));
                }
                value[half] = to[0];
                self.write_wide(value)?;
            }
            Mnemonic::Shufps => {
                let (a, b, order) = (self.read_wide(0)?, self.read_wide(1)?, self.immediate(2));
                self.write_wide(picked(a, b, 4, 2, order))?;
            }
            Mnemonic::Shufpd => {
                let (a, b, order) = (self.read_wide(0)?, self.read_wide(1)?, self.immediate(2));
                self.write_wide([a[(order & 1) as usize], b[(order >> 1 & 1) as usize]])?;
            }
            Mnemonic::Pinsrb => self.insert(1)?,
            Mnemonic::Pinsrw => self.insert(2)?,
            Mnemonic::Pinsrd => self.insert(4)?,
            Mnemonic::Pinsrq => self.insert(8)?,
            Mnemonic::Pextrb => self.extract(1)?,
            Mnemonic::Pextrw => self.extract(2)?,
            Mnemonic::Pextrd => self.extract(4)?,
            Mnemonic::Pextrq => self.extract(8)?,
            Mnemonic::Psllw => self.lane_shift(2, Value::shl)?,
            Mnemonic::Pslld => self.lane_shift(4, Value::shl)?,
            Mnemonic::Psllq => self.lane_shift(8, Value::shl)?,
            Mnemonic::Psrlw => self.lane_shift(2, Value::shr)?,
            Mnemonic::Psrld => self.lane_shift(4, Value::shr)?,
            Mnemonic::Psrlq => self.lane_shift(8, Value::shr)?,
            Mnemonic::Psraw => self.lane_shift(2, |lane, count| lane.sign_extend(2).shr(count))?,
            Mnemonic::Psrad => self.lane_shift(4, |lane, count| lane.sign_extend(4).shr(count))?,
            Mnemonic::Pslldq => {
                let (value, count) = (self.read_wide(0)?, self.immediate(1).min(16) * 8);
                self.write_wide(shift_left(value, count))?;
            }
            Mnemonic::Psrldq => {
                let (value, count) = (self.read_wide(0)?, self.immediate(1).min(16) * 8);
                self.write_wide(shift_right(value, count))?;
            }
            _ => return Ok(None),
        }
        Ok(Some(Event::Ran))
    }

    fn immediate(&self, index: u32) -> u32 {
        self.instruction.immediate(index) as u32 & 0xff
    }

    fn insert(&mut self, bytes: u32) -> Result<(), Stop> {
        let (mut value, from, index) = (self.read_wide(0)?, self.read(1)?, self.immediate(2));
        set_lane(&mut value, bytes, index % lanes(bytes), from);
        self.write_wide(value)
    }

    fn extract(&mut self, bytes: u32) -> Result<(), Stop> {
        let (value, index) = (self.read_wide(1)?, self.immediate(2));
        self.write(0, lane(value, bytes, index % lanes(bytes)))
    }

    fn lane_shift(&mut self, bytes: u32, shift: fn(Value, u32) -> Value) -> Result<(), Stop> {
        let value = self.read_wide(0)?;
        let count = if self.instruction.op_kind(1) == iced_x86::OpKind::Immediate8 {
            Some(u64::from(self.immediate(1)))
        } else {
            self.read_wide(1)?[0].get()
        };
        let arithmetic = matches!(self.mnemonic(), Mnemonic::Psraw | Mnemonic::Psrad);
        let shifted = |lane: Value| match count {
            None => Value::unknown(bytes),
            // Copies of the sign: at most 16 or 32 of them are kept.
            Some(count) if arithmetic => shift(lane, count.min(u64::from(bytes) * 8) as u32),
            Some(count) if count >= u64::from(bytes) * 8 => Value::ZERO,
            Some(count) => shift(lane, count as u32),
        };
        self.write_wide(zip(value, value, bytes, |lane, _| shifted(lane)))
    }
}

/// Four lanes by two bits of `order` each: the first `from_a` of `a` (0: all), the rest of `b`.
fn picked(a: Wide, b: Wide, bytes: u32, from_a: u32, order: u32) -> Wide {
    let mut result = [Value::ZERO; 2];
    for i in 0..4 {
        let source = if i < from_a { a } else { b };
        set_lane(&mut result, bytes, i, lane(source, bytes, order >> (2 * i) & 3));
    }
    result
}

fn shift_left(value: Wide, count: u32) -> Wide {
    match count {
        0 => value,
        1..64 => [value[0].shl(count), value[1].shl(count) | value[0].shr(64 - count)],
        _ => [Value::ZERO, value[0].shl(count - 64)],
    }
}

fn shift_right(value: Wide, count: u32) -> Wide {
    match count {
        0 => value,
        1..64 => [value[0].shr(count) | value[1].shl(64 - count), value[1].shr(count)],
        _ => [value[1].shr(count - 64), Value::ZERO],
    }
}
