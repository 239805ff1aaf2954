//! Loads and stores.

use super::integer::other;
use super::{BaseUpdate, Decoded, Operand, Operation, Register, Word};
use crate::arm64::{Addressing, Arm64, Extend, MemoryInstruction, decode};
use crate::record::{MemoryReference, Modifier};

pub(super) fn load_store(out: &mut Decoded, word: Word) {
    if !word.bit(31) && word.bits(29, 25) == 0b00110 {
        return structures(out, word);
    }
    if word.bits(31, 24) == 0xd9 && word.bit(21) {
        return tags(out, word);
    }
    if word.bits(29, 24) == 0b011001 && !word.bit(21) && word.bits(11, 10) == 0 {
        return ordered_unscaled(out, word);
    }
    match decode(word.0) {
        Arm64::LoadLiteral { offset, size, vector, prefetch, .. } => {
            literal(out, word, offset, size, vector, prefetch);
        }
        Arm64::Memory(access) => match word.bits(29, 27) {
            0b101 => pair(out, word, &access),
            0b111 => single(out, word, &access),
            _ => exclusive(out, word, &access),
        },
        _ => {}
    }
}

fn reference(access: &MemoryInstruction, word: Word) -> MemoryReference {
    let mut out = MemoryReference {
        base: Some(word.register_or_sp(5, 64)),
        index: None,
        scale: 1,
        index_extend: None,
        displacement: 0,
        size: u16::from(access.size),
        segment: None,
        address: None,
        update: BaseUpdate::None,
    };
    match access.addressing {
        Addressing::Offset(offset) => out.displacement = offset,
        Addressing::PreIndex(offset) => {
            out.displacement = offset;
            out.update = BaseUpdate::Before;
        }
        Addressing::PostIndex(offset) => {
            out.displacement = offset;
            out.update = BaseUpdate::After;
        }
        Addressing::Register { extend, shift, .. } => {
            let width = if matches!(extend, Extend::Uxtw | Extend::Sxtw) { 32 } else { 64 };
            out.index = Some(word.register(16, width));
            out.index_extend = match extend {
                Extend::Uxtw => Some(Modifier::ZeroExtend { bits: 32, shift: 0 }),
                Extend::Sxtw => Some(Modifier::SignExtend { bits: 32, shift: 0 }),
                Extend::Lsl | Extend::Sxtx => None,
            };
            out.scale = 1 << shift.min(7);
        }
    }
    out
}

fn load(out: &mut Decoded, operation: Operation, destination: Register, memory: MemoryReference) {
    out.assign(operation, destination, &[Operand::Memory(memory)]);
    out.reads_memory = true;
}

fn store(out: &mut Decoded, source: Register, memory: MemoryReference) {
    out.operation = Operation::Move;
    out.has_destination = true;
    out.operands = vec![Operand::Memory(memory), Operand::Register(source)];
    let operands = std::mem::take(&mut out.operands);
    out.reading_operands(&operands);
    out.operands = operands;
    out.writes_memory = true;
}

fn literal(out: &mut Decoded, word: Word, offset: i64, size: u8, vector: bool, prefetch: bool) {
    let memory = MemoryReference {
        base: None,
        index: None,
        scale: 1,
        index_extend: None,
        displacement: 0,
        size: u16::from(size),
        segment: None,
        address: Some(out.address.wrapping_add_signed(offset)),
        update: BaseUpdate::None,
    };
    if prefetch {
        return out.operation = Operation::Nothing;
    }
    let width = u16::from(size) * 8;
    if vector {
        return load(out, Operation::Move, word.vector(0, width), memory);
    }
    // opc 2: ldrsw.
    match word.bits(31, 30) {
        2 => load(out, Operation::SignExtend, word.register(0, 64), memory),
        _ => load(out, Operation::Move, word.register(0, width), memory),
    }
}

fn pair(out: &mut Decoded, word: Word, access: &MemoryInstruction) {
    let memory = reference(access, word);
    let width = u16::from(access.size) * 8;
    let register = |low| if access.vector { word.vector(low, width) } else { word.register(low, width) };
    let odd = !access.vector && word.bits(31, 30) == 1; // ldpsw, stgp
    let (first, second) =
        if odd { (word.register(0, 64), word.register(10, 64)) } else { (register(0), register(10)) };
    let registers = [Operand::Register(first), Operand::Register(second)];
    out.operands = vec![registers[0], registers[1], Operand::Memory(memory)];
    out.reading_operands(&[Operand::Memory(memory)]);
    if access.load {
        out.operation = if odd { Operation::Other } else { Operation::LoadPair };
        out.writing(first);
        out.writing(second);
        out.reads_memory = true;
    } else {
        out.operation = if odd { Operation::Other } else { Operation::StorePair };
        out.reading_operands(&registers);
        out.writes_memory = true;
    }
}

fn single(out: &mut Decoded, word: Word, access: &MemoryInstruction) {
    let memory = reference(access, word);
    let (size, kind) = (word.bits(31, 30), word.bits(23, 22));
    if access.vector {
        let register = word.vector(0, u16::from(access.size) * 8);
        return if access.load {
            load(out, Operation::Move, register, memory)
        } else {
            store(out, register, memory)
        };
    }
    if !word.bit(24) && word.bit(21) && word.bits(11, 10) != 0b10 {
        return atomic(out, word, memory);
    }
    let bits = 8u16 << size;
    match (size, kind) {
        (3, 2) => out.operation = Operation::Nothing, // prefetch
        (_, 0) => store(out, Register { width: bits, ..word.register(0, 64) }, memory),
        (2 | 3, 1) => load(out, Operation::Move, word.register(0, bits), memory),
        (_, 1) => load(out, Operation::ZeroExtend, word.register(0, 32), memory),
        (_, 2) => load(out, Operation::SignExtend, word.register(0, 64), memory),
        _ => load(out, Operation::SignExtend, word.register(0, 32), memory),
    }
}

/// `ldadd`, `swp` and their like; `ldapr` is a plain load, `ldraa` one with an authenticated base.
fn atomic(out: &mut Decoded, word: Word, memory: MemoryReference) {
    let width = if word.bits(31, 30) == 3 { 64 } else { 32 };
    if word.bits(11, 10) != 0 {
        return load(out, Operation::Move, word.register(0, 64), memory);
    }
    if word.bits(15, 12) == 0b1100 {
        let operation = if word.bits(31, 30) < 2 { Operation::ZeroExtend } else { Operation::Move };
        return load(out, operation, word.register(0, width), memory);
    }
    other(
        out,
        word.register(0, width),
        &[Operand::Register(word.register(16, width)), Operand::Memory(memory)],
    );
    out.reads_memory = true;
    out.writes_memory = true;
}

fn exclusive(out: &mut Decoded, word: Word, access: &MemoryInstruction) {
    let memory = reference(access, word);
    let width = if word.bits(31, 30) == 3 { 64 } else { 32 };
    let narrow = Register { width: u16::from(access.size) * 8, ..word.register(0, 64) };
    let (ordered, is_load, pair) = (word.bit(23), word.bit(22), word.bit(21));
    match (pair, is_load, ordered) {
        (false, true, _) => {
            let operation = if access.size < 4 { Operation::ZeroExtend } else { Operation::Move };
            load(out, operation, word.register(0, width), memory);
        }
        (false, false, true) => store(out, narrow, memory),
        // stxr: the status register is written.
        (false, false, false) => {
            other(out, word.register(16, 32), &[Operand::Register(narrow), Operand::Memory(memory)]);
            out.writes_memory = true;
        }
        // cas, and the pair forms.
        _ => {
            let registers = [word.register(0, width), word.register(10, width), word.register(16, width)];
            other(out, registers[2], &registers.map(Operand::Register));
            out.reading_operands(&[Operand::Memory(memory)]);
            for register in registers {
                out.writing(register);
            }
            out.operands.push(Operand::Memory(memory));
            out.reads_memory = true;
            out.writes_memory = true;
        }
    }
}

/// `ldapur*`, `stlur*`: unscaled offset, ordered.
fn ordered_unscaled(out: &mut Decoded, word: Word) {
    let size = word.bits(31, 30);
    let memory = MemoryReference {
        base: Some(word.register_or_sp(5, 64)),
        index: None,
        scale: 1,
        index_extend: None,
        displacement: word.signed(20, 12),
        size: 1 << size,
        segment: None,
        address: None,
        update: BaseUpdate::None,
    };
    let bits = 8u16 << size;
    match (size, word.bits(23, 22)) {
        (_, 0) => store(out, Register { width: bits, ..word.register(0, 64) }, memory),
        (2 | 3, 1) => load(out, Operation::Move, word.register(0, bits), memory),
        (_, 1) => load(out, Operation::ZeroExtend, word.register(0, 32), memory),
        (_, 2) => load(out, Operation::SignExtend, word.register(0, 64), memory),
        _ => load(out, Operation::SignExtend, word.register(0, 32), memory),
    }
}

/// `ld1`..`ld4`, `st1`..`st4`: up to four vector registers from `Vt` on.
fn structures(out: &mut Decoded, word: Word) {
    let count = if word.bit(24) {
        1 + (word.bits(13, 13) << 1 | word.bits(21, 21))
    } else {
        match word.bits(15, 12) {
            0b0000 | 0b0010 => 4,
            0b0100 | 0b0110 => 3,
            0b1000 | 0b1010 => 2,
            _ => 1,
        }
    };
    let base = word.register_or_sp(5, 64);
    out.reading(base);
    if word.bit(23) {
        out.writing(base);
        out.reading(word.register(16, 64));
    }
    for index in 0..count {
        let number = (word.number(0) + index as u8) & 31;
        let register = Register { family: crate::record::Family::Vector(number), width: 128, low_bit: 0 };
        // One lane keeps the others.
        if !word.bit(22) || word.bit(24) {
            out.reading(register);
        }
        if word.bit(22) {
            out.writing(register);
        }
    }
    out.reads_memory = word.bit(22);
    out.writes_memory = !word.bit(22);
}

/// `stg`, `ldg` and their like: allocation tags of memory.
fn tags(out: &mut Decoded, word: Word) {
    let base = word.register_or_sp(5, 64);
    let register = word.register(0, 64);
    out.reading(base);
    out.reading(register);
    if matches!(word.bits(11, 10), 0b01 | 0b11) {
        out.writing(base);
    }
    let load = word.bits(11, 10) == 0 && word.bits(23, 22) != 0;
    if load {
        out.writing(register);
    }
    out.reads_memory = load;
    out.writes_memory = !load;
}
