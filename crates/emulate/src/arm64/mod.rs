//! ARM64, executed from its encoding (Arm Architecture Reference Manual, DDI 0487, chapter C4).
//! System registers read 0 and are not kept; what is not listed stops the machine.

mod branch;
mod immediate;
mod load_store;
mod register;
mod simd;
mod simd_immediate;

use crate::emulator::{Emulator, Event, Outcome, Stop};
use crate::value::{Value, mask};

/// The instruction being executed, with the machine.
pub(crate) struct Step<'a> {
    emulator: &'a mut Emulator,
    word: u32,
    /// ip is where it has to be: a branch was taken.
    placed: bool,
}

type Handled = Result<Event, Stop>;

const N: u32 = 31;
const Z: u32 = 30;
const C: u32 = 29;
const V: u32 = 28;

pub(crate) fn step(emulator: &mut Emulator) -> Outcome {
    let at = emulator.registers.ip;
    let mut bytes = [0; 4];
    if emulator.fetch(&mut bytes)? < 4 {
        return Err(Stop::Undecodable { at });
    }
    let mut step = Step { emulator, word: u32::from_le_bytes(bytes), placed: false };
    let event = step.execute()?;
    if event == Event::Ran && !step.placed {
        step.emulator.registers.ip = at.wrapping_add(4);
    }
    Ok(event)
}

impl Step<'_> {
    fn execute(&mut self) -> Handled {
        match self.bits(25, 4) {
            0b1000 | 0b1001 => self.immediate(),
            0b1010 | 0b1011 => self.branch(),
            0b0100 | 0b0110 | 0b1100 | 0b1110 => self.load_store(),
            0b0101 | 0b1101 => self.register_operation(),
            0b0111 | 0b1111 => self.simd(),
            _ => Err(Stop::Undecodable { at: self.at() }),
        }
    }

    fn at(&self) -> u64 {
        self.emulator.registers.ip
    }

    fn not_known(&self) -> Stop {
        Stop::UnknownInstruction { at: self.at(), name: format!("{:08x}", self.word) }
    }

    /// `count` bits from bit `low` up.
    fn bits(&self, low: u32, count: u32) -> u32 {
        self.word >> low & ((1 << count) - 1)
    }

    /// The same, as a two's complement number.
    fn signed(&self, low: u32, count: u32) -> i64 {
        let shift = 32 - count;
        i64::from(((self.bits(low, count) << shift) as i32) >> shift)
    }

    fn field(&self, low: u32) -> usize {
        self.bits(low, 5) as usize
    }

    /// 8 bytes with bit 31 (`sf`), else 4.
    fn width(&self) -> u32 {
        if self.word >> 31 == 1 { 8 } else { 4 }
    }

    /// Register `number`; 31 is zero.
    fn x(&self, number: usize, bytes: u32) -> Value {
        if number == 31 { Value::ZERO } else { self.emulator.registers.general[number].truncate(bytes) }
    }

    /// Register `number`; 31 is sp.
    fn x_sp(&self, number: usize, bytes: u32) -> Value {
        self.emulator.registers.general[number].truncate(bytes)
    }

    fn set_x(&mut self, number: usize, bytes: u32, value: Value) {
        if number != 31 {
            self.emulator.registers.general[number] = value.truncate(bytes);
        }
    }

    fn set_x_sp(&mut self, number: usize, bytes: u32, value: Value) {
        self.emulator.registers.general[number] = value.truncate(bytes);
    }

    fn flag(&self, flag: u32) -> Option<bool> {
        self.emulator.registers.flags.at(flag)
    }

    fn set_flags(&mut self, n: Option<bool>, z: Option<bool>, c: Option<bool>, v: Option<bool>) {
        let flags = &mut self.emulator.registers.flags;
        *flags = flags.with_bit(N, n).with_bit(Z, z).with_bit(C, c).with_bit(V, v);
    }

    /// `a + b + carry`, or `a - b - !carry`; sets the flags if asked.
    fn sum(
        &mut self,
        a: Value,
        b: Value,
        subtract: bool,
        carry: Option<bool>,
        bytes: u32,
        flags: bool,
    ) -> Value {
        let (a, b) = (a.truncate(bytes), b.truncate(bytes));
        let result = if subtract { a.sub(b, carry.map(|c| !c)) } else { a.add(b, carry) };
        let result = result.truncate(bytes);
        if flags {
            let other = if subtract { !b & Value::known(mask(bytes)) } else { b };
            let sign = bytes * 8 - 1;
            let carries = a ^ other ^ result;
            let out = a & other | (a | other) & !result;
            let mut z = result.is_zero(bytes);
            let mut c = out.at(sign);
            let v = out.at(sign).zip(carries.at(sign)).map(|(o, i)| o != i);
            if subtract && carry == Some(true) {
                z = z.or(a.equals(b));
                c = c.or(at_least(a, b));
            }
            self.set_flags(result.at(sign), z, c, v);
        }
        result
    }

    fn set_logic_flags(&mut self, result: Value, bytes: u32) {
        self.set_flags(result.at(bytes * 8 - 1), result.is_zero(bytes), Some(false), Some(false));
    }

    /// A condition code (C1.2.4).
    fn condition(&self, code: u32) -> Option<bool> {
        let differ = |a: Option<bool>, b: Option<bool>| a.zip(b).map(|(a, b)| a != b);
        let not = |a: Option<bool>| a.map(|a| !a);
        let or = |a: Option<bool>, b: Option<bool>| match (a, b) {
            (Some(true), _) | (_, Some(true)) => Some(true),
            (Some(false), Some(false)) => Some(false),
            _ => None,
        };
        let holds = match code >> 1 {
            0 => self.flag(Z),
            1 => self.flag(C),
            2 => self.flag(N),
            3 => self.flag(V),
            4 => not(or(not(self.flag(C)), self.flag(Z))),
            5 => not(differ(self.flag(N), self.flag(V))),
            6 => not(or(self.flag(Z), differ(self.flag(N), self.flag(V)))),
            _ => return Some(true),
        };
        if code & 1 == 1 { not(holds) } else { holds }
    }
}

/// `a >= b` unsigned, if the known bits decide it.
fn at_least(a: Value, b: Value) -> Option<bool> {
    if a.bits() >= (b.bits() | b.unknown_bits()) {
        Some(true)
    } else if (a.bits() | a.unknown_bits()) < b.bits() {
        Some(false)
    } else {
        None
    }
}

/// Shifted right with copies of the sign of `bytes` bytes.
fn arithmetic_right(value: Value, count: u32, bytes: u32) -> Value {
    let wide = value.sign_extend(bytes);
    let shifted = |bits: u64| ((bits as i64) >> count.min(63)) as u64;
    Value::new(shifted(wide.bits()), shifted(wide.unknown_bits())).truncate(bytes)
}

/// `DecodeBitMasks`: the immediate of logical operations and the masks of bit fields; `None` where
/// reserved. `(wmask, tmask)`.
fn bit_masks(n: u32, imms: u32, immr: u32, immediate: bool, bytes: u32) -> Option<(u64, u64)> {
    let combined = n << 6 | !imms & 0x3f;
    if combined == 0 {
        return None;
    }
    let length = 31 - combined.leading_zeros();
    if length < 1 || bytes * 8 < 1 << length {
        return None;
    }
    let size = 1u32 << length;
    let levels = size - 1;
    if immediate && imms & levels == levels {
        return None;
    }
    let (s, r) = (imms & levels, immr & levels);
    let ones = |count: u32| if count >= 64 { u64::MAX } else { (1 << count) - 1 };
    let rotate = |element: u64| {
        if r == 0 { element } else { (element >> r | element << (size - r)) & ones(size) }
    };
    let repeat = |element: u64| (0..64 / size).fold(0, |all, i| all | element << (i * size));
    let d = s.wrapping_sub(r) & levels;
    Some((repeat(rotate(ones(s + 1))) & mask(bytes), repeat(ones(d + 1)) & mask(bytes)))
}
