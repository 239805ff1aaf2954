//! movi, mvni, orr, bic with an immediate: `AdvSIMDExpandImm`.

use super::{Handled, Step};
use crate::emulator::Event;
use crate::value::Value;

impl Step<'_> {
    /// `0Q op 0111100000 abc cmode o2 1 defgh Rd`.
    pub(super) fn modified_immediate(&mut self) -> Handled {
        let (op, mode) = (self.bits(29, 1), self.bits(12, 4));
        let byte = u64::from(self.bits(16, 3) << 5 | self.bits(5, 5));
        if self.bits(11, 1) == 1 {
            return Err(self.not_known());
        }
        let repeat32 = |v: u64| v | v << 32;
        let repeat16 = |v: u64| repeat32(v | v << 16);
        let immediate = match mode >> 1 {
            shift @ 0..=3 => repeat32(byte << (8 * shift)),
            4 => repeat16(byte),
            5 => repeat16(byte << 8),
            6 if mode & 1 == 0 => repeat32(byte << 8 | 0xff),
            6 => repeat32(byte << 16 | 0xffff),
            _ if mode & 1 == 1 => return Err(self.not_known()),
            _ if op == 0 => repeat16(byte | byte << 8),
            _ => (0..8).fold(0, |all, i| if byte >> i & 1 == 1 { all | 0xff << (8 * i) } else { all }),
        };
        let number = self.field(0);
        let old = self.emulator.registers.vector[number];
        // Odd modes below 12 change the register, the others set it.
        let changes = mode < 12 && mode & 1 == 1;
        let byte_mask = mode == 0b1110 && op == 1;
        let value = |old: Value| match (changes, op) {
            (true, 0) => old | Value::known(immediate),
            (true, _) => old & Value::known(!immediate),
            (false, 1) if !byte_mask => Value::known(!immediate),
            (false, _) => Value::known(immediate),
        };
        let upper = if self.bits(30, 1) == 1 { value(old[1]) } else { Value::ZERO };
        self.emulator.registers.vector[number] = [value(old[0]), upper];
        Ok(Event::Ran)
    }
}
