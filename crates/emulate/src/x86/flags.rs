//! eflags, each bit known or not.

use iced_x86::ConditionCode;

use super::Step;
use crate::value::Value;

pub(super) const CF: u32 = 0;
pub(super) const PF: u32 = 2;
pub(super) const AF: u32 = 4;
pub(super) const ZF: u32 = 6;
pub(super) const SF: u32 = 7;
pub(super) const DF: u32 = 10;
pub(super) const OF: u32 = 11;

fn or(a: Option<bool>, b: Option<bool>) -> Option<bool> {
    match (a, b) {
        (Some(true), _) | (_, Some(true)) => Some(true),
        (Some(false), Some(false)) => Some(false),
        _ => None,
    }
}

fn differ(a: Option<bool>, b: Option<bool>) -> Option<bool> {
    Some(a? != b?)
}

impl Step<'_> {
    pub(super) fn flag(&self, flag: u32) -> Option<bool> {
        self.emulator.registers.flags.at(flag)
    }

    pub(super) fn set_flag(&mut self, flag: u32, value: Option<bool>) {
        let flags = &mut self.emulator.registers.flags;
        *flags = flags.with_bit(flag, value);
    }

    /// ZF, SF and PF of a result of `bytes` bytes.
    pub(super) fn set_result_flags(&mut self, result: Value, bytes: u32) {
        self.set_flag(ZF, result.is_zero(bytes));
        self.set_flag(SF, result.at(bytes * 8 - 1));
        let parity = result.low(1).map(|low| low.count_ones().is_multiple_of(2));
        self.set_flag(PF, parity);
    }

    /// Flags of `a + b + carry = result` (`subtract`: `a - b - borrow`), all of `bytes` bytes.
    pub(super) fn set_sum_flags(&mut self, a: Value, b: Value, result: Value, bytes: u32, subtract: bool) {
        let sign = bytes * 8 - 1;
        // Bit i of `a ^ b ^ result` is the carry into bit i; the carry out follows from the majority.
        let carries = a ^ b ^ result;
        let out = if subtract { !a & b | (!a | b) & result } else { a & b | (a | b) & !result };
        self.set_flag(CF, out.at(sign));
        self.set_flag(OF, differ(out.at(sign), carries.at(sign)));
        self.set_flag(AF, carries.at(4));
        self.set_result_flags(result, bytes);
        if subtract {
            self.sharpen_compare(a, b, bytes);
        }
    }

    /// A comparison may be decided although not every bit is known: by the ranges of its operands.
    fn sharpen_compare(&mut self, a: Value, b: Value, bytes: u32) {
        // `sbb` is no comparison of its operands: a borrow comes in.
        if self.mnemonic() == iced_x86::Mnemonic::Sbb {
            return;
        }
        let (a, b) = (a.truncate(bytes), b.truncate(bytes));
        if self.flag(ZF).is_none() {
            self.set_flag(ZF, a.equals(b));
        }
        let (a_low, a_high) = (a.bits(), a.bits() | a.unknown_bits());
        let (b_low, b_high) = (b.bits(), b.bits() | b.unknown_bits());
        if a_high < b_low {
            self.set_flag(CF, Some(true));
        } else if a_low >= b_high {
            self.set_flag(CF, Some(false));
        }
    }

    /// Flags of and, or, xor, test.
    pub(super) fn set_logic_flags(&mut self, result: Value, bytes: u32) {
        self.set_flag(CF, Some(false));
        self.set_flag(OF, Some(false));
        self.set_flag(AF, None);
        self.set_result_flags(result, bytes);
    }

    /// Whether the condition of the instruction (jcc, setcc, cmovcc) holds.
    pub(super) fn condition(&self, code: ConditionCode) -> Option<bool> {
        let less = || differ(self.flag(SF), self.flag(OF));
        let not = |b: Option<bool>| b.map(|b| !b);
        match code {
            ConditionCode::None => None,
            ConditionCode::o => self.flag(OF),
            ConditionCode::no => not(self.flag(OF)),
            ConditionCode::b => self.flag(CF),
            ConditionCode::ae => not(self.flag(CF)),
            ConditionCode::e => self.flag(ZF),
            ConditionCode::ne => not(self.flag(ZF)),
            ConditionCode::be => or(self.flag(CF), self.flag(ZF)),
            ConditionCode::a => not(or(self.flag(CF), self.flag(ZF))),
            ConditionCode::s => self.flag(SF),
            ConditionCode::ns => not(self.flag(SF)),
            ConditionCode::p => self.flag(PF),
            ConditionCode::np => not(self.flag(PF)),
            ConditionCode::l => less(),
            ConditionCode::ge => not(less()),
            ConditionCode::le => or(self.flag(ZF), less()),
            ConditionCode::g => not(or(self.flag(ZF), less())),
        }
    }
}
