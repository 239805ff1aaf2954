//! Data processing on general registers.

use super::{Condition, Decoded, Family, NZCV, Operand, Operation, Register, Word, condition};
use crate::record::{BaseUpdate, Flags, MemoryReference, Modifier};

fn immediate_of(value: u64, width: u16) -> Operand {
    Operand::Immediate(if width == 64 { value } else { value & 0xffff_ffff })
}

fn is_zero(register: Register) -> bool {
    register.family == Family::Zero
}

/// Data processing (immediate), C4.1.92.
pub(super) fn immediate(out: &mut Decoded, word: Word) {
    match word.bits(25, 23) {
        0b000 | 0b001 => address(out, word),
        0b010 => add_immediate(out, word),
        0b100 => logical_immediate(out, word),
        0b101 => move_wide(out, word),
        0b110 => bitfield(out, word),
        0b111 => extract(out, word),
        // Tagged addition.
        _ => out.assign(
            Operation::Other,
            word.register_or_sp(0, 64),
            &[Operand::Register(word.register_or_sp(5, 64))],
        ),
    }
}

fn address(out: &mut Decoded, word: Word) {
    let offset = word.signed(23, 5) << 2 | i64::from(word.bits(30, 29));
    let target = if word.bit(31) {
        (out.address & !0xfff).wrapping_add_signed(offset << 12)
    } else {
        out.address.wrapping_add_signed(offset)
    };
    let memory = MemoryReference {
        base: None,
        index: None,
        scale: 1,
        index_extend: None,
        displacement: 0,
        size: 0,
        segment: None,
        address: Some(target),
        update: BaseUpdate::None,
    };
    out.assign(Operation::Address, word.register(0, 64), &[Operand::Memory(memory)]);
}

fn add_immediate(out: &mut Decoded, word: Word) {
    let width = word.width();
    let value = u64::from(word.bits(21, 10)) << if word.bit(22) { 12 } else { 0 };
    let (subtract, flags) = (word.bit(30), word.bit(29));
    let source = Operand::Register(word.register_or_sp(5, width));
    let immediate = immediate_of(value, width);
    if flags {
        out.flags_written = NZCV;
        let destination = word.register(0, width);
        if is_zero(destination) {
            let operation = if subtract { Operation::Compare } else { Operation::CompareNegative };
            return out.compute(operation, &[source, immediate]);
        }
        let operation = if subtract { Operation::Subtract } else { Operation::Add };
        return out.assign(operation, destination, &[source, immediate]);
    }
    let destination = word.register_or_sp(0, width);
    match (subtract, value) {
        (false, 0) => out.assign(Operation::Move, destination, &[source]),
        (false, _) => out.assign(Operation::Add, destination, &[source, immediate]),
        (true, _) => out.assign(Operation::Subtract, destination, &[source, immediate]),
    }
}

/// The bit mask of `N:immr:imms` (DecodeBitMasks, J1.3); `None` for reserved values.
fn bit_mask(n: u32, rotate: u32, size: u32, width: u16) -> Option<u64> {
    let combined = n << 6 | (!size & 0x3f);
    let length = 31u32.checked_sub(combined.leading_zeros())?;
    if length == 0 || (width == 32 && n == 1) {
        return None;
    }
    let element = 1u32 << length;
    let (ones, turn) = (size & (element - 1), rotate & (element - 1));
    if ones == element - 1 {
        return None;
    }
    let pattern = u64::MAX >> (63 - ones);
    let mask = if element == 64 { u64::MAX } else { (1 << element) - 1 };
    let turned = if turn == 0 { pattern } else { (pattern >> turn | pattern << (element - turn)) & mask };
    let mut out = 0;
    let mut at = 0;
    while at < u32::from(width) {
        out |= turned << at;
        at += element;
    }
    Some(out)
}

fn logical_immediate(out: &mut Decoded, word: Word) {
    let width = word.width();
    let Some(value) = bit_mask(word.bits(22, 22), word.bits(21, 16), word.bits(15, 10), width) else {
        return;
    };
    let source = word.register(5, width);
    let operands = [Operand::Register(source), immediate_of(value, width)];
    match word.bits(30, 29) {
        0b11 => {
            out.flags_written = NZCV;
            let destination = word.register(0, width);
            if is_zero(destination) {
                out.compute(Operation::Test, &operands);
            } else {
                out.assign(Operation::And, destination, &operands);
            }
        }
        0b01 if is_zero(source) => out.assign(Operation::Move, word.register_or_sp(0, width), &operands[1..]),
        kind => {
            let operation = [Operation::And, Operation::Or, Operation::Xor][kind as usize];
            out.assign(operation, word.register_or_sp(0, width), &operands);
        }
    }
}

fn move_wide(out: &mut Decoded, word: Word) {
    let width = word.width();
    let shift = word.bits(22, 21) * 16;
    let value = u64::from(word.bits(20, 5)) << shift;
    let destination = word.register(0, width);
    match word.bits(30, 29) {
        0b00 => out.assign(Operation::Move, destination, &[immediate_of(!value, width)]),
        0b10 => out.assign(Operation::Move, destination, &[immediate_of(value, width)]),
        _ => {
            let operands = [immediate_of(value, width), Operand::Immediate(u64::from(shift))];
            out.assign(Operation::MoveKeep, destination, &operands);
            out.reading(destination);
        }
    }
}

fn bitfield(out: &mut Decoded, word: Word) {
    let width = word.width();
    let (rotate, last) = (word.bits(21, 16), word.bits(15, 10));
    let size = u32::from(width);
    if rotate >= size || last >= size {
        return;
    }
    let destination = word.register(0, width);
    let source = word.register(5, width);
    let number = |value: u32| Operand::Immediate(u64::from(value));
    let plain = Operand::Register(source);
    let narrow = Operand::Register(Register { width: (last + 1) as u16, ..source });
    let signed = word.bits(30, 29) == 0;
    if word.bits(30, 29) == 1 {
        let (operation, lsb, count) = if last < rotate {
            (Operation::InsertBits, size - rotate, last + 1)
        } else {
            (Operation::InsertLowBits, rotate, last - rotate + 1)
        };
        out.assign(operation, destination, &[plain, number(lsb), number(count)]);
        return out.reading(destination);
    }
    if last == size - 1 {
        let operation = if signed { Operation::ShiftRightArithmetic } else { Operation::ShiftRight };
        out.assign(operation, destination, &[plain, number(rotate)]);
    } else if !signed && last + 1 == rotate {
        out.assign(Operation::ShiftLeft, destination, &[plain, number(size - rotate)]);
    } else if rotate == 0 && matches!(last, 7 | 15 | 31) {
        let operation = if signed { Operation::SignExtend } else { Operation::ZeroExtend };
        out.assign(operation, destination, &[narrow]);
    } else if last < rotate {
        let operation = if signed { Operation::PlaceBitsSigned } else { Operation::PlaceBits };
        out.assign(operation, destination, &[plain, number(size - rotate), number(last + 1)]);
    } else {
        let operation = if signed { Operation::ExtractBitsSigned } else { Operation::ExtractBits };
        out.assign(operation, destination, &[plain, number(rotate), number(last - rotate + 1)]);
    }
}

fn extract(out: &mut Decoded, word: Word) {
    let width = word.width();
    let (first, second) = (word.register(5, width), word.register(16, width));
    let count = Operand::Immediate(u64::from(word.bits(15, 10)));
    let destination = word.register(0, width);
    if first == second {
        out.assign(Operation::RotateRight, destination, &[Operand::Register(first), count]);
    } else {
        other(out, destination, &[Operand::Register(first), Operand::Register(second), count]);
    }
}

/// Something with registers whose meaning is not modelled.
pub(super) fn other(out: &mut Decoded, destination: Register, sources: &[Operand]) {
    out.assign(Operation::Other, destination, sources);
    out.has_destination = false;
}

/// Data processing (register), C4.1.95.
pub(super) fn register(out: &mut Decoded, word: Word) {
    match (word.bit(28), word.bits(24, 21)) {
        (false, 0b0000..=0b0111) => logical(out, word),
        (false, field) if field & 1 == 0 => add_shifted(out, word),
        (false, _) => add_extended(out, word),
        (true, 0b0000) => with_carry(out, word),
        (true, 0b0010) => conditional_compare(out, word),
        (true, 0b0100) => conditional_select(out, word),
        (true, 0b0110) if word.bit(30) => one_source(out, word),
        (true, 0b0110) => two_sources(out, word),
        (true, 0b1000..) => three_sources(out, word),
        _ => {}
    }
}

fn shifted(word: Word, width: u16) -> Operand {
    let register = word.register(16, width);
    let amount = word.bits(15, 10) as u8;
    match (word.bits(23, 22), amount) {
        (_, 0) => Operand::Register(register),
        (0, _) => Operand::Modified(register, Modifier::ShiftLeft(amount)),
        (1, _) => Operand::Modified(register, Modifier::ShiftRight(amount)),
        (2, _) => Operand::Modified(register, Modifier::ShiftRightArithmetic(amount)),
        _ => Operand::Modified(register, Modifier::RotateRight(amount)),
    }
}

fn logical(out: &mut Decoded, word: Word) {
    let width = word.width();
    let (source, second) = (word.register(5, width), shifted(word, width));
    let destination = word.register(0, width);
    let first = Operand::Register(source);
    let inverted = word.bit(21);
    let kind = word.bits(30, 29);
    if kind == 3 {
        out.flags_written = NZCV;
    }
    match (kind, inverted) {
        (1, false) if is_zero(source) => out.assign(Operation::Move, destination, &[second]),
        (1, true) if is_zero(source) => out.assign(Operation::Not, destination, &[second]),
        (3, false) if is_zero(destination) => out.compute(Operation::Test, &[first, second]),
        (0 | 3, false) => out.assign(Operation::And, destination, &[first, second]),
        (0 | 3, true) => out.assign(Operation::AndNot, destination, &[first, second]),
        (1, false) => out.assign(Operation::Or, destination, &[first, second]),
        (1, true) => out.assign(Operation::OrNot, destination, &[first, second]),
        (_, false) => out.assign(Operation::Xor, destination, &[first, second]),
        (_, true) => out.assign(Operation::XorNot, destination, &[first, second]),
    }
}

fn add_shifted(out: &mut Decoded, word: Word) {
    let width = word.width();
    let source = word.register(5, width);
    add(out, word, word.register(0, width), source, shifted(word, width));
}

fn add_extended(out: &mut Decoded, word: Word) {
    let width = word.width();
    let option = word.bits(15, 13);
    let amount = word.bits(12, 10) as u8;
    // Of the 64-bit forms only uxtx and sxtx take a 64-bit register.
    let index = word.register(16, if option & 3 == 3 { 64 } else { 32 });
    let bits = 8u8 << (option & 3);
    let second = match (option, amount) {
        (3, _) if width == 64 => Operand::Modified(index, Modifier::ShiftLeft(amount)),
        (0..=3, _) => Operand::Modified(index, Modifier::ZeroExtend { bits, shift: amount }),
        _ => Operand::Modified(index, Modifier::SignExtend { bits, shift: amount }),
    };
    let second = match second {
        Operand::Modified(index, Modifier::ShiftLeft(0)) => Operand::Register(index),
        other => other,
    };
    let destination = if word.bit(29) { word.register(0, width) } else { word.register_or_sp(0, width) };
    add(out, word, destination, word.register_or_sp(5, width), second);
}

fn add(out: &mut Decoded, word: Word, destination: Register, source: Register, second: Operand) {
    let subtract = word.bit(30);
    let first = Operand::Register(source);
    if word.bit(29) {
        out.flags_written = NZCV;
        if is_zero(destination) {
            let operation = if subtract { Operation::Compare } else { Operation::CompareNegative };
            return out.compute(operation, &[first, second]);
        }
    }
    match subtract {
        true if is_zero(source) => out.assign(Operation::Negate, destination, &[second]),
        true => out.assign(Operation::Subtract, destination, &[first, second]),
        false => out.assign(Operation::Add, destination, &[first, second]),
    }
}

fn with_carry(out: &mut Decoded, word: Word) {
    let width = word.width();
    out.flags_read = Flags::CARRY;
    if word.bits(15, 10) != 0 {
        // rmif, setf8, setf16.
        out.flags_written = NZCV;
        return out.reading(word.register(5, width));
    }
    if word.bit(29) {
        out.flags_written = NZCV;
    }
    let operands = [Operand::Register(word.register(5, width)), Operand::Register(word.register(16, width))];
    let operation = if word.bit(30) { Operation::SubtractWithBorrow } else { Operation::AddWithCarry };
    out.assign(operation, word.register(0, width), &operands);
}

fn conditional_compare(out: &mut Decoded, word: Word) {
    let width = word.width();
    let second = if word.bit(11) {
        Operand::Immediate(u64::from(word.bits(20, 16)))
    } else {
        Operand::Register(word.register(16, width))
    };
    let operation =
        if word.bit(30) { Operation::ConditionalCompare } else { Operation::ConditionalCompareNegative };
    let otherwise = Operand::Immediate(u64::from(word.bits(3, 0)));
    out.compute(operation, &[Operand::Register(word.register(5, width)), second, otherwise]);
    out.on(condition(word.bits(15, 12)));
    out.flags_written = NZCV;
}

fn conditional_select(out: &mut Decoded, word: Word) {
    let width = word.width();
    let operation = match (word.bit(30), word.bits(11, 10)) {
        (false, 0) => Operation::Select,
        (false, 1) => Operation::SelectIncrement,
        (true, 0) => Operation::SelectInvert,
        (true, 1) => Operation::SelectNegate,
        _ => return,
    };
    let operands = [Operand::Register(word.register(5, width)), Operand::Register(word.register(16, width))];
    out.assign(operation, word.register(0, width), &operands);
    out.on(condition(word.bits(15, 12)));
}

fn one_source(out: &mut Decoded, word: Word) {
    let width = word.width();
    let destination = word.register(0, width);
    let source = Operand::Register(word.register(5, width));
    match (word.bits(20, 16), word.bits(15, 10)) {
        (0, 2) if width == 32 => out.assign(Operation::ByteSwap, destination, &[source]),
        (0, 3) if width == 64 => out.assign(Operation::ByteSwap, destination, &[source]),
        (0, _) => other(out, destination, &[source]),
        // Pointer authentication changes the destination by a modifier.
        _ => {
            other(out, destination, &[source]);
            out.reading(destination);
        }
    }
}

fn two_sources(out: &mut Decoded, word: Word) {
    let width = word.width();
    let operands = [Operand::Register(word.register(5, width)), Operand::Register(word.register(16, width))];
    let destination = word.register(0, width);
    let operation = match word.bits(15, 10) {
        0b00_0010 => Operation::DivideUnsigned,
        0b00_0011 => Operation::DivideSigned,
        0b00_1000 => Operation::ShiftLeft,
        0b00_1001 => Operation::ShiftRight,
        0b00_1010 => Operation::ShiftRightArithmetic,
        0b00_1011 => Operation::RotateRight,
        _ => return other(out, destination, &operands),
    };
    out.assign(operation, destination, &operands);
}

fn three_sources(out: &mut Decoded, word: Word) {
    let width = word.width();
    let (destination, extra) = (word.register(0, width), word.register(10, width));
    let subtract = word.bit(15);
    let kind = word.bits(23, 21);
    let factor = |low: u32| match kind {
        0b001 => Operand::Modified(word.register(low, 32), Modifier::SignExtend { bits: 32, shift: 0 }),
        0b101 => Operand::Modified(word.register(low, 32), Modifier::ZeroExtend { bits: 32, shift: 0 }),
        _ => Operand::Register(word.register(low, width)),
    };
    let (first, second) = (factor(5), factor(16));
    match kind {
        0b000 | 0b001 | 0b101 if !subtract && is_zero(extra) => {
            out.assign(Operation::Multiply, destination, &[first, second]);
        }
        0b000 | 0b001 | 0b101 => {
            let operation = if subtract { Operation::MultiplySubtract } else { Operation::MultiplyAdd };
            out.assign(operation, destination, &[first, second, Operand::Register(extra)]);
        }
        _ => other(out, destination, &[first, second]),
    }
}

/// A branch's register condition.
pub(super) fn register_condition(word: Word) -> Condition {
    let register = word.register(0, word.width());
    if word.bit(25) && word.bits(30, 25) == 0b01_1011 {
        let bit = (word.bits(31, 31) << 5 | word.bits(23, 19)) as u8;
        let register = word.register(0, 64);
        return if word.bit(24) {
            Condition::BitSet(register, bit)
        } else {
            Condition::BitClear(register, bit)
        };
    }
    if word.bit(24) { Condition::NotZero(register) } else { Condition::Zero(register) }
}
