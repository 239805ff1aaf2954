//! Branches, exceptions, system registers.

use super::integer::register_condition;
use super::{Condition, Decoded, NZCV, Operand, Operation, Register, Transfer, Word, condition};
use crate::record::Family;

const LINK: Register = Register::general(30, 64);

pub(super) fn branch_or_system(out: &mut Decoded, word: Word) {
    let target = out.transfer.target().map(Operand::Target);
    let register = word.register(5, 64);
    match out.transfer {
        Transfer::Jump(Some(_)) => out.compute(Operation::Jump, &Vec::from_iter(target)),
        Transfer::Call(Some(_)) => {
            out.compute(Operation::Call, &Vec::from_iter(target));
            out.writing(LINK);
        }
        Transfer::Branch(_) => branch(out, word, target),
        Transfer::Jump(None) => {
            out.compute(Operation::Jump, &[Operand::Register(register)]);
            modifier(out, word);
        }
        Transfer::Call(None) => {
            out.compute(Operation::Call, &[Operand::Register(register)]);
            modifier(out, word);
            out.writing(LINK);
        }
        Transfer::Return => {
            out.operation = Operation::Return;
            // retaa and retab name x31 and mean the link register.
            out.reading(if register.family == Family::Zero { LINK } else { register });
            modifier(out, word);
        }
        Transfer::Trap => {}
        _ => system(out, word),
    }
}

/// What a pointer is authenticated with besides the key: `braa`, `blraa`, `retaasppcr` and their like
/// name it, and 31 is not a register there that a program can track (zero, or sp).
fn modifier(out: &mut Decoded, word: Word) {
    let named = word.bits(24, 24) == 1 || word.bits(11, 11) == 1 && word.bits(24, 21) == 0b0010;
    let register = word.register(0, 64);
    if named && register.family != Family::Zero {
        out.reading(register);
    }
}

fn branch(out: &mut Decoded, word: Word, target: Option<Operand>) {
    out.compute(Operation::Branch, &Vec::from_iter(target));
    if word.bits(31, 25) == 0b010_1010 {
        out.on(condition(word.bits(3, 0)));
        return;
    }
    let condition = register_condition(word);
    out.condition = Some(condition);
    if let Condition::Zero(register)
    | Condition::NotZero(register)
    | Condition::BitClear(register, _)
    | Condition::BitSet(register, _) = condition
    {
        out.reading(register);
    }
}

/// Hints, barriers, `msr`, `mrs`, `sys`.
fn system(out: &mut Decoded, word: Word) {
    if word.bits(31, 22) != 0b11_0101_0100 {
        return; // svc, hvc, smc
    }
    let register = word.register(0, 64);
    match (word.bits(21, 19), word.bits(15, 12)) {
        (0b000, 2) => hint(out, word),
        (0b000, 3) => out.operation = Operation::Nothing,
        // msr (immediate); cfinv and its like change flags.
        (0b000, 4) => out.flags_written = if word.bits(18, 16) == 0 { NZCV } else { out.flags_written },
        (0b001, _) => out.reading(register),
        (0b101, _) => out.writing(register),
        (0b010 | 0b011, _) => {
            out.reading(register);
            if is_flags(word) {
                out.flags_written = NZCV;
            }
        }
        (0b110 | 0b111, _) => {
            out.writing(register);
            if is_flags(word) {
                out.flags_read = NZCV;
            }
        }
        _ => {}
    }
}

fn is_flags(word: Word) -> bool {
    word.bits(20, 5) == 0b1101_1010_0001_0000
}

fn hint(out: &mut Decoded, word: Word) {
    match word.bits(11, 5) {
        // xpaclri, pacia*, autia* sign or strip the link register.
        7 | 24..=31 => {
            out.reading(LINK);
            out.writing(LINK);
        }
        8 | 10 | 12 | 14 => {
            out.reading(Register::general(17, 64));
            out.writing(Register::general(17, 64));
        }
        _ => out.operation = Operation::Nothing,
    }
}
