//! Records of ARM64 instructions, from the encoding (Arm ARM, DDI 0487, chapter C4).

mod integer;
mod memory;
mod system;
mod vector;

use target::Machine;

use super::x86::include;
use super::{
    BaseUpdate, Condition, Decoded, Family, Flags, Mnemonic, Operand, Operation, Raw, Register, Transfer,
    privilege,
};
use crate::arm64::{Arm64, decode};

const NZCV: Flags = Flags::SIGN.union(Flags::ZERO).union(Flags::CARRY).union(Flags::OVERFLOW);

pub(super) fn record(address: u64, bytes: &[u8]) -> Decoded {
    let short = &bytes[..bytes.len().min(4)];
    let undecodable = || Decoded::nothing(Machine::Arm64, address, short, Transfer::Undecodable);
    let Ok(raw) = <[u8; 4]>::try_from(short) else { return undecodable() };
    let word = u32::from_le_bytes(raw);
    let decoded = crate::arm64::read_word(&raw);
    // Pointer authentication and branch targets are hints to older decoders, never errors.
    let Some(instruction) = decoded.or_else(|| crate::arm64::is_known(word).then(Default::default)) else {
        return undecodable();
    };
    let mut out = Decoded::nothing(Machine::Arm64, address, short, transfer(address, word));
    out.mnemonic = Mnemonic::Arm64(instruction.opcode);
    out.privilege = privilege::of_arm64(word);
    out.raw = Raw::Arm64(word, instruction);
    match Word(word).bits(28, 25) {
        0b1000 | 0b1001 => integer::immediate(&mut out, Word(word)),
        0b1010 | 0b1011 => system::branch_or_system(&mut out, Word(word)),
        0b0100 | 0b0110 | 0b1100 | 0b1110 => memory::load_store(&mut out, Word(word)),
        0b0101 | 0b1101 => integer::register(&mut out, Word(word)),
        0b0111 | 0b1111 => vector::data(&mut out, &instruction),
        _ => {}
    }
    if out.operation == Operation::Other && out.reads.is_empty() && out.writes.is_empty() {
        // Encodings the architecture reserves and yaxpeax reads.
        vector::data(&mut out, &instruction);
    }
    if out.transfer == Transfer::Trap {
        out.operation = Operation::Trap;
    }
    out
}

pub(crate) fn transfer(address: u64, word: u32) -> Transfer {
    let to = |offset: i64| Some(address.wrapping_add_signed(offset));
    match decode(word) {
        Arm64::Branch { offset } => Transfer::Jump(to(offset)),
        Arm64::BranchLink { offset } => Transfer::Call(to(offset)),
        Arm64::ConditionalBranch { offset } => Transfer::Branch(to(offset)),
        Arm64::BranchRegister { .. } => Transfer::Jump(None),
        Arm64::BranchLinkRegister { .. } => Transfer::Call(None),
        Arm64::Return { .. } | Arm64::ExceptionReturn => Transfer::Return,
        Arm64::Break(_) | Arm64::Undefined => Transfer::Trap,
        _ => Transfer::Fallthrough,
    }
}

/// An instruction word and its fields.
#[derive(Clone, Copy)]
struct Word(u32);

impl Word {
    /// Bits `[high:low]`.
    fn bits(self, high: u32, low: u32) -> u32 {
        self.0 >> low & (u32::MAX >> (31 - (high - low)))
    }
    fn bit(self, at: u32) -> bool {
        self.0 >> at & 1 == 1
    }
    /// Bits as a signed number.
    fn signed(self, high: u32, low: u32) -> i64 {
        let width = high - low + 1;
        i64::from((self.bits(high, low) << (32 - width)) as i32 >> (32 - width))
    }
    /// `sf`: 64-bit operands.
    fn width(self) -> u16 {
        if self.bit(31) { 64 } else { 32 }
    }
    /// The register field at `low`; 31 is the zero register.
    fn register(self, low: u32, width: u16) -> Register {
        general_or(Family::Zero, self.number(low), width)
    }
    /// The register field at `low`; 31 is the stack pointer.
    fn register_or_sp(self, low: u32, width: u16) -> Register {
        general_or(Family::StackPointer, self.number(low), width)
    }
    fn vector(self, low: u32, width: u16) -> Register {
        Register { family: Family::Vector(self.number(low)), width, low_bit: 0 }
    }
    fn number(self, low: u32) -> u8 {
        (self.0 >> low & 31) as u8
    }
}

fn general_or(of_31: Family, number: u8, width: u16) -> Register {
    let family = if number == 31 { of_31 } else { Family::General(number) };
    Register { family, width, low_bit: 0 }
}

/// The condition field (DDI 0487 C1.2.4).
fn condition(field: u32) -> Condition {
    match field & 15 {
        0 => Condition::Equal,
        1 => Condition::NotEqual,
        2 => Condition::AboveOrEqual,
        3 => Condition::Below,
        4 => Condition::Sign,
        5 => Condition::NotSign,
        6 => Condition::Overflow,
        7 => Condition::NotOverflow,
        8 => Condition::Above,
        9 => Condition::BelowOrEqual,
        10 => Condition::GreaterOrEqual,
        11 => Condition::Less,
        12 => Condition::Greater,
        13 => Condition::LessOrEqual,
        _ => Condition::Always,
    }
}

/// The flags a condition looks at.
fn flags_of(condition: Condition) -> Flags {
    match condition {
        Condition::Equal | Condition::NotEqual => Flags::ZERO,
        Condition::Below | Condition::AboveOrEqual => Flags::CARRY,
        Condition::Above | Condition::BelowOrEqual => Flags::CARRY.union(Flags::ZERO),
        Condition::Sign | Condition::NotSign => Flags::SIGN,
        Condition::Overflow | Condition::NotOverflow => Flags::OVERFLOW,
        Condition::Less | Condition::GreaterOrEqual => Flags::SIGN.union(Flags::OVERFLOW),
        Condition::Greater | Condition::LessOrEqual => Flags::SIGN.union(Flags::OVERFLOW).union(Flags::ZERO),
        _ => Flags::NONE,
    }
}

impl Decoded {
    /// Sets what is computed; reads and writes follow from the operands.
    fn assign(&mut self, operation: Operation, destination: Register, sources: &[Operand]) {
        self.operation = operation;
        self.has_destination = true;
        self.operands =
            std::iter::once(Operand::Register(destination)).chain(sources.iter().copied()).collect();
        self.writing(destination);
        self.reading_operands(sources);
    }

    /// The same without a destination: compares, branches.
    fn compute(&mut self, operation: Operation, sources: &[Operand]) {
        self.operation = operation;
        self.operands = sources.to_vec();
        self.reading_operands(sources);
    }

    fn reading_operands(&mut self, operands: &[Operand]) {
        for operand in operands {
            match operand {
                Operand::Register(register) | Operand::Modified(register, _) => self.reading(*register),
                Operand::Memory(memory) => {
                    for register in [memory.base, memory.index].into_iter().flatten() {
                        self.reading(register);
                    }
                    if let (Some(base), true) = (memory.base, memory.update != BaseUpdate::None) {
                        self.writing(base);
                    }
                }
                _ => {}
            }
        }
    }

    fn reading(&mut self, register: Register) {
        if register.family != Family::Zero {
            include(&mut self.reads, register);
        }
    }

    fn writing(&mut self, register: Register) {
        if register.family != Family::Zero {
            include(&mut self.writes, register);
        }
    }

    fn on(&mut self, condition: Condition) {
        self.condition = Some(condition);
        self.flags_read = self.flags_read.union(flags_of(condition));
    }
}
