//! SIMD without floating-point arithmetic (C4.1.96): moves, dup, logic, integer lanes.

use super::{Handled, Step};
use crate::emulator::{Event, Stop};
use crate::value::{Value, mask};

type Wide = [Value; 2];

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

impl Step<'_> {
    fn v(&self, number: usize) -> Wide {
        self.emulator.registers.vector[number]
    }

    /// Stores 16 bytes, or 8 and zeros without the `Q` bit.
    fn set_v(&mut self, number: usize, value: Wide) {
        let upper = if self.bits(30, 1) == 1 { value[1] } else { Value::ZERO };
        self.emulator.registers.vector[number] = [value[0], upper];
    }

    pub(super) fn simd(&mut self) -> Handled {
        let word = self.word;
        if word & 0x9ff8_0400 == 0x0f00_0400 {
            return self.modified_immediate();
        }
        if word & 0x9fe0_8400 == 0x0e00_0400 {
            return self.copy();
        }
        if word & 0x9f20_0400 == 0x0e20_0400 {
            return self.three_same();
        }
        if word & 0xbf20_8c00 == 0x0e00_0800 {
            return self.permute();
        }
        if word & 0xbfe0_8400 == 0x2e00_0000 {
            return self.extract_vector();
        }
        if word & 0x7f20_fc00 == 0x1e20_0000 {
            return self.move_general();
        }
        if word & 0xff3f_fc00 == 0x1e20_4000 {
            // fmov between s or d registers.
            let bytes = if self.bits(22, 2) == 1 { 8 } else { 4 };
            let value = self.v(self.field(5))[0].truncate(bytes);
            self.emulator.registers.vector[self.field(0)] = [value, Value::ZERO];
            return Ok(Event::Ran);
        }
        if word & 0x9f80_0400 == 0x0f00_0400 {
            return self.shift_immediate();
        }
        if word & 0xffe0_fc00 == 0x5e00_0400 {
            // mov of a lane to a scalar.
            let (bytes, index) = self.lane_index()?;
            let value = lane(self.v(self.field(5)), bytes, index);
            self.emulator.registers.vector[self.field(0)] = [value, Value::ZERO];
            return Ok(Event::Ran);
        }
        Err(self.not_known())
    }

    /// `imm5`: the lowest one says the size, what is above it the lane.
    fn lane_index(&self) -> Result<(u32, u32), Stop> {
        let immediate = self.bits(16, 5);
        let size = immediate.trailing_zeros();
        if size > 3 {
            return Err(Stop::Undecodable { at: self.at() });
        }
        Ok((1 << size, immediate >> (size + 1)))
    }

    /// Encodings that name one 64-bit lane of a 64-bit register are reserved.
    fn whole_lanes(&self, bytes: u32) -> Result<(), Stop> {
        if bytes == 8 && self.bits(30, 1) == 0 { Err(Stop::Undecodable { at: self.at() }) } else { Ok(()) }
    }

    /// dup, ins, umov, smov.
    fn copy(&mut self) -> Handled {
        let (bytes, index) = self.lane_index()?;
        let (d, n) = (self.field(0), self.field(5));
        let wide = self.bits(30, 1) == 1;
        let reserved = Err(Stop::Undecodable { at: self.at() });
        if self.bits(29, 1) == 1 {
            if !wide {
                return reserved;
            }
            let source = self.bits(11, 4) >> bytes.trailing_zeros();
            let mut value = self.v(d);
            set_lane(&mut value, bytes, index, lane(self.v(n), bytes, source));
            self.emulator.registers.vector[d] = value;
            return Ok(Event::Ran);
        }
        let all = |element: Value| {
            let mut value = [Value::ZERO; 2];
            (0..16 / bytes).for_each(|i| set_lane(&mut value, bytes, i, element));
            value
        };
        match self.bits(11, 4) {
            0b0000 | 0b0001 if bytes == 8 && !wide => return reserved,
            0b0011 if !wide => return reserved,
            0b0101 if bytes == 8 || bytes == 4 && !wide => return reserved,
            0b0111 if (bytes == 8) != wide => return reserved,
            0b0000 => self.set_v(d, all(lane(self.v(n), bytes, index))),
            0b0001 => self.set_v(d, all(self.x(n, bytes))),
            0b0011 => {
                let mut value = self.v(d);
                set_lane(&mut value, bytes, index, self.x(n, bytes));
                self.emulator.registers.vector[d] = value;
            }
            0b0101 => {
                let to = if wide { 8 } else { 4 };
                self.set_x(d, to, lane(self.v(n), bytes, index).sign_extend(bytes));
            }
            0b0111 => self.set_x(d, 8, lane(self.v(n), bytes, index)),
            _ => return Err(self.not_known()),
        }
        Ok(Event::Ran)
    }

    fn three_same(&mut self) -> Handled {
        let (unsigned, size, operation) = (self.bits(29, 1), self.bits(22, 2), self.bits(11, 5));
        let (a, b, d) = (self.v(self.field(5)), self.v(self.field(16)), self.field(0));
        let bytes = 1 << size;
        if operation != 0b00011 {
            self.whole_lanes(bytes)?;
        }
        let zip = |of: &dyn Fn(Value, Value) -> Value| {
            let mut value = [Value::ZERO; 2];
            for i in 0..16 / bytes {
                set_lane(&mut value, bytes, i, of(lane(a, bytes, i), lane(b, bytes, i)));
            }
            value
        };
        let ones = |condition: Option<bool>| match condition {
            Some(true) => Value::known(u64::MAX),
            Some(false) => Value::ZERO,
            None => Value::UNKNOWN,
        };
        let value = match (unsigned, operation) {
            (_, 0b00011) => self.logic(a, b),
            (0, 0b10000) => zip(&|a, b| a.add(b, Some(false))),
            (1, 0b10000) => zip(&|a, b| a.sub(b, Some(false))),
            (0, 0b10011) if size < 3 => zip(&Value::mul),
            (1, 0b10001) => zip(&|a, b| ones(a.equals(b))),
            (1, 0b00110) => zip(&|a, b| ones(super::at_least(b, a).map(|less| !less))),
            (1, 0b00111) => zip(&|a, b| ones(super::at_least(a, b))),
            _ => return Err(self.not_known()),
        };
        self.set_v(d, value);
        Ok(Event::Ran)
    }

    /// and, bic, orr, orn, eor, bsl, bit, bif.
    fn logic(&self, a: Wide, b: Wide) -> Wide {
        let d = self.v(self.field(0));
        let kind = self.bits(29, 1) << 2 | self.bits(22, 2);
        let same = self.field(5) == self.field(16);
        let of = |a: Value, b: Value, d: Value| match kind {
            0 => a & b,
            1 => a & !b,
            2 => a | b,
            3 => a | !b,
            4 if same => Value::ZERO,
            4 => a ^ b,
            5 => d & a | !d & b,
            6 => a & b | d & !b,
            _ => a & !b | d & b,
        };
        [of(a[0], b[0], d[0]), of(a[1], b[1], d[1])]
    }

    /// uzp1, trn1, zip1, uzp2, trn2, zip2.
    fn permute(&mut self) -> Handled {
        let bytes = 1u32 << self.bits(22, 2);
        self.whole_lanes(bytes)?;
        let count = (if self.bits(30, 1) == 1 { 16 } else { 8 }) / bytes;
        let (a, b) = (self.v(self.field(5)), self.v(self.field(16)));
        let second = u32::from(self.bits(14, 1) == 1);
        let pick = |from_b: bool, i: u32| lane(if from_b { b } else { a }, bytes, i);
        let mut value = [Value::ZERO; 2];
        for i in 0..count {
            let element = match self.bits(12, 2) {
                0b01 => {
                    let at = 2 * i + second;
                    pick(at >= count, at % count)
                }
                0b10 => pick(i & 1 == 1, (i & !1) + second),
                0b11 => pick(i & 1 == 1, i / 2 + second * count / 2),
                _ => return Err(self.not_known()),
            };
            set_lane(&mut value, bytes, i, element);
        }
        self.set_v(self.field(0), value);
        Ok(Event::Ran)
    }

    fn extract_vector(&mut self) -> Handled {
        let count = if self.bits(30, 1) == 1 { 16 } else { 8 };
        let start = self.bits(11, 4);
        if start >= count {
            return Err(Stop::Undecodable { at: self.at() });
        }
        let (a, b) = (self.v(self.field(5)), self.v(self.field(16)));
        let mut value = [Value::ZERO; 2];
        for i in 0..count {
            let at = start + i;
            let source = if at < count { lane(a, 1, at) } else { lane(b, 1, (at - count) & 15) };
            set_lane(&mut value, 1, i, source);
        }
        self.set_v(self.field(0), value);
        Ok(Event::Ran)
    }

    /// fmov between general and vector registers.
    fn move_general(&mut self) -> Handled {
        let (d, n) = (self.field(0), self.field(5));
        let kind = (self.bits(31, 1), self.bits(22, 2), self.bits(16, 5));
        match kind {
            (0, 0, 0b00110) => self.set_x(d, 4, self.v(n)[0]),
            (0, 0, 0b00111) => self.emulator.registers.vector[d] = [self.x(n, 4), Value::ZERO],
            (1, 1, 0b00110) => self.set_x(d, 8, self.v(n)[0]),
            (1, 1, 0b00111) => self.emulator.registers.vector[d] = [self.x(n, 8), Value::ZERO],
            (1, 2, 0b01110) => self.set_x(d, 8, self.v(n)[1]),
            (1, 2, 0b01111) => self.emulator.registers.vector[d][1] = self.x(n, 8),
            _ => return Err(self.not_known()),
        }
        Ok(Event::Ran)
    }

    /// shl, ushr.
    fn shift_immediate(&mut self) -> Handled {
        let immediate = self.bits(16, 7);
        let high = immediate >> 3;
        if high == 0 {
            return Err(self.not_known());
        }
        let bytes = 1u32 << (31 - high.leading_zeros());
        self.whole_lanes(bytes)?;
        let bits = bytes * 8;
        let source = self.v(self.field(5));
        let mut value = [Value::ZERO; 2];
        for i in 0..16 / bytes {
            let element = lane(source, bytes, i);
            let shifted = match (self.bits(29, 1), self.bits(11, 5)) {
                (0, 0b01010) => element.shl(immediate - bits),
                (1, 0b00000) => element.shr(2 * bits - immediate),
                (0, 0b00000) => super::arithmetic_right(element, 2 * bits - immediate, bytes),
                _ => return Err(self.not_known()),
            };
            set_lane(&mut value, bytes, i, shifted);
        }
        self.set_v(self.field(0), value);
        Ok(Event::Ran)
    }
}
