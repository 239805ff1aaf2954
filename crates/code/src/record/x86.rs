//! Records of x86 and x64 instructions, from iced-x86's fields.

use iced_x86::{
    Code, ConditionCode, FlowControl, Instruction, InstructionInfoFactory, Mnemonic as M, OpAccess, OpKind,
    Register as Iced, RflagsBits,
};
use target::Machine;

use super::{
    BaseUpdate, Condition, Decoded, Family, Flags, MemoryReference, Mnemonic, Operand, Operation, Raw,
    Register, Transfer, privilege,
};
use crate::x86::raw;

pub(super) fn record(bits: u32, info: &mut InstructionInfoFactory, address: u64, bytes: &[u8]) -> Decoded {
    let machine = if bits == 64 { Machine::X64 } else { Machine::X86 };
    let Some(instruction) = raw(bits, address, bytes) else {
        return Decoded::nothing(machine, address, &bytes[..bytes.len().min(1)], Transfer::Undecodable);
    };
    let length = instruction.len().min(bytes.len());
    let mut out = Decoded::nothing(machine, address, &bytes[..length], transfer(&instruction));
    out.mnemonic = Mnemonic::X86(instruction.mnemonic());
    out.condition = condition(bits, &instruction);
    let encoded: Vec<Operand> = (0..instruction.op_count()).map(|i| operand(bits, &instruction, i)).collect();
    let (operation, has_destination, operands) = meaning(bits, &instruction, encoded);
    out.operation = operation;
    out.has_destination = has_destination;
    out.operands = operands;
    used(info, &instruction, &mut out);
    out.flags_read = flags(instruction.rflags_read());
    out.flags_written = flags(instruction.rflags_modified());
    out.privilege = privilege::of_x86(&instruction);
    out.repeats = instruction.is_string_instruction()
        && (instruction.has_rep_prefix() || instruction.has_repne_prefix());
    out.raw = Raw::X86(instruction);
    out
}

pub(crate) fn transfer(instruction: &Instruction) -> Transfer {
    let direct = || match instruction.op0_kind() {
        OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64 => {
            Some(instruction.near_branch_target())
        }
        _ => None,
    };
    match instruction.flow_control() {
        FlowControl::Next | FlowControl::XbeginXabortXend => Transfer::Fallthrough,
        FlowControl::UnconditionalBranch => Transfer::Jump(direct()),
        FlowControl::IndirectBranch => Transfer::Jump(None),
        FlowControl::ConditionalBranch => Transfer::Branch(direct()),
        FlowControl::Return => Transfer::Return,
        // Into the kernel or the hypervisor and back.
        FlowControl::Call if !matches!(instruction.mnemonic(), M::Call) => Transfer::Fallthrough,
        FlowControl::Call => Transfer::Call(direct()),
        FlowControl::IndirectCall => Transfer::Call(None),
        FlowControl::Interrupt if returns(instruction) => Transfer::Fallthrough,
        FlowControl::Interrupt | FlowControl::Exception => Transfer::Trap,
    }
}

/// `int 2eh` is the old system call; `int 2ch`, `2dh` are the kernel's assertion and debug service;
/// `int 29h` (fail fast) does not return, nor may `int3` in code that runs.
fn returns(instruction: &Instruction) -> bool {
    match instruction.code() {
        Code::Int_imm8 => instruction.immediate8() != 0x29 && instruction.immediate8() != 3,
        Code::Into => true,
        _ => false,
    }
}

fn condition(bits: u32, instruction: &Instruction) -> Option<Condition> {
    Some(match instruction.condition_code() {
        ConditionCode::None => return counter(bits, instruction),
        ConditionCode::o => Condition::Overflow,
        ConditionCode::no => Condition::NotOverflow,
        ConditionCode::b => Condition::Below,
        ConditionCode::ae => Condition::AboveOrEqual,
        ConditionCode::e => match instruction.mnemonic() {
            M::Loope => return counter(bits, instruction),
            _ => Condition::Equal,
        },
        ConditionCode::ne => match instruction.mnemonic() {
            M::Loopne => return counter(bits, instruction),
            _ => Condition::NotEqual,
        },
        ConditionCode::be => Condition::BelowOrEqual,
        ConditionCode::a => Condition::Above,
        ConditionCode::s => Condition::Sign,
        ConditionCode::ns => Condition::NotSign,
        ConditionCode::p => Condition::Parity,
        ConditionCode::np => Condition::NotParity,
        ConditionCode::l => Condition::Less,
        ConditionCode::ge => Condition::GreaterOrEqual,
        ConditionCode::le => Condition::LessOrEqual,
        ConditionCode::g => Condition::Greater,
    })
}

/// `loop` and `jcxz`, by the width of their counter.
fn counter(bits: u32, instruction: &Instruction) -> Option<Condition> {
    let width = match instruction.code() {
        Code::Jcxz_rel8_16
        | Code::Jcxz_rel8_32
        | Code::Loop_rel8_16_CX
        | Code::Loop_rel8_32_CX
        | Code::Loope_rel8_16_CX
        | Code::Loope_rel8_32_CX
        | Code::Loopne_rel8_16_CX
        | Code::Loopne_rel8_32_CX => 16,
        Code::Jrcxz_rel8_16
        | Code::Jrcxz_rel8_64
        | Code::Loop_rel8_16_RCX
        | Code::Loop_rel8_64_RCX
        | Code::Loope_rel8_16_RCX
        | Code::Loope_rel8_64_RCX
        | Code::Loopne_rel8_16_RCX
        | Code::Loopne_rel8_64_RCX => bits.min(64) as u16,
        _ => 32,
    };
    let register = Register::general(1, width);
    Some(match instruction.mnemonic() {
        M::Jcxz | M::Jecxz | M::Jrcxz => Condition::Zero(register),
        M::Loop => Condition::Counter(register, None),
        M::Loope => Condition::Counter(register, Some(true)),
        M::Loopne => Condition::Counter(register, Some(false)),
        _ => return None,
    })
}

/// An iced register as ours; `None` for none and for rip as a plain register.
pub(crate) fn register(register: Iced) -> Option<Register> {
    let number = u8::try_from(register.number()).ok()?;
    let width = u16::try_from(register.size() * 8).ok()?;
    let family = match register {
        Iced::None => return None,
        Iced::AH | Iced::CH | Iced::DH | Iced::BH => {
            let family = Family::General(number & 3);
            return Some(Register { family, width: 8, low_bit: 8 });
        }
        Iced::SPL | Iced::SP | Iced::ESP | Iced::RSP => Family::StackPointer,
        Iced::EIP | Iced::RIP => Family::InstructionPointer,
        r if r.is_gpr() => Family::General(number),
        r if r.is_vector_register() => Family::Vector(number),
        r if r.is_segment_register() => Family::Segment(number),
        r if r.is_cr() => Family::Control(number),
        r if r.is_dr() => Family::Debug(number),
        r if r.is_st() || r.is_mm() => Family::Float(number),
        r if r.is_k() => Family::Mask(number),
        _ => Family::Other(number),
    };
    Some(Register { family, width, low_bit: 0 })
}

fn operand(bits: u32, instruction: &Instruction, index: u32) -> Operand {
    match instruction.op_kind(index) {
        OpKind::Register => {
            register(instruction.op_register(index)).map_or(Operand::Opaque, Operand::Register)
        }
        OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64 => {
            Operand::Target(instruction.near_branch_target())
        }
        OpKind::Memory => Operand::Memory(memory(bits, instruction)),
        kind @ (OpKind::Immediate8
        | OpKind::Immediate8_2nd
        | OpKind::Immediate16
        | OpKind::Immediate32
        | OpKind::Immediate64
        | OpKind::Immediate8to16
        | OpKind::Immediate8to32
        | OpKind::Immediate8to64
        | OpKind::Immediate32to64) => {
            let mask = match kind {
                OpKind::Immediate8 | OpKind::Immediate8_2nd => 0xff,
                OpKind::Immediate16 | OpKind::Immediate8to16 => 0xffff,
                OpKind::Immediate32 | OpKind::Immediate8to32 => 0xffff_ffff,
                _ => u64::MAX,
            };
            Operand::Immediate(instruction.immediate(index) & mask)
        }
        _ => Operand::Opaque,
    }
}

fn memory(bits: u32, instruction: &Instruction) -> MemoryReference {
    let segment = instruction.segment_prefix();
    let segment = matches!(segment, Iced::FS | Iced::GS).then(|| register(segment)).flatten();
    let relative = instruction.is_ip_rel_memory_operand();
    let base = if relative { None } else { register(instruction.memory_base()) };
    let index = register(instruction.memory_index());
    let raw = instruction.memory_displacement64();
    let displacement = match bits {
        _ if relative => 0,
        64 => raw as i64,
        _ => i64::from(raw as u32 as i32),
    };
    let address = match (relative, base, index, segment) {
        (true, ..) => Some(instruction.ip_rel_memory_address()),
        (_, None, None, None) => Some(if bits == 64 { raw } else { raw & 0xffff_ffff }),
        _ => None,
    };
    MemoryReference {
        base,
        index,
        scale: u8::try_from(instruction.memory_index_scale()).unwrap_or(1),
        index_extend: None,
        displacement,
        size: u16::try_from(instruction.memory_size().size()).unwrap_or(0),
        segment,
        address: if segment.is_some() { None } else { address },
        update: BaseUpdate::None,
    }
}

/// `(operation, has a destination, operands)` of the encoded operands.
fn meaning(bits: u32, instruction: &Instruction, ops: Vec<Operand>) -> (Operation, bool, Vec<Operand>) {
    use Operation as O;
    // `op d, s`: d = d op s.
    let modifies = |operation, ops: Vec<Operand>| match ops.as_slice() {
        [d, rest @ ..] => {
            let list = [*d, *d].into_iter().chain(rest.iter().copied()).collect();
            (operation, true, list)
        }
        [] => (O::Other, false, ops),
    };
    let plain = |operation, ops: Vec<Operand>| {
        let any = !ops.is_empty();
        (if any { operation } else { O::Other }, any, ops)
    };
    match instruction.mnemonic() {
        M::Mov
        | M::Movaps
        | M::Movups
        | M::Movapd
        | M::Movupd
        | M::Movdqa
        | M::Movdqu
        | M::Lddqu
        | M::Movntdq
        | M::Movntps
        | M::Movnti => plain(O::Move, ops),
        M::Movd | M::Movq => {
            let to_vector = ops.first().and_then(Operand::register).is_some_and(|r| r.width >= 128);
            plain(if to_vector { O::ZeroExtend } else { O::Move }, ops)
        }
        M::Movzx => plain(O::ZeroExtend, ops),
        M::Movsx | M::Movsxd => plain(O::SignExtend, ops),
        M::Cwde => extend(16, 32),
        M::Cdqe => extend(32, 64),
        M::Cbw => extend(8, 16),
        M::Lea => plain(O::Address, ops),
        M::Add => modifies(O::Add, ops),
        M::Adc => modifies(O::AddWithCarry, ops),
        M::Sub => modifies(O::Subtract, ops),
        M::Sbb => modifies(O::SubtractWithBorrow, ops),
        M::And => modifies(O::And, ops),
        M::Or => modifies(O::Or, ops),
        M::Xor => modifies(O::Xor, ops),
        M::Shl | M::Sal => modifies(O::ShiftLeft, ops),
        M::Shr => modifies(O::ShiftRight, ops),
        M::Sar => modifies(O::ShiftRightArithmetic, ops),
        M::Rol => modifies(O::RotateLeft, ops),
        M::Ror => modifies(O::RotateRight, ops),
        M::Inc => modifies(O::Add, ops.into_iter().chain([Operand::Immediate(1)]).collect()),
        M::Dec => modifies(O::Subtract, ops.into_iter().chain([Operand::Immediate(1)]).collect()),
        M::Neg => modifies(O::Negate, ops),
        M::Not => modifies(O::Not, ops),
        M::Bswap => modifies(O::ByteSwap, ops),
        M::Bts => modifies(O::BitTestSet, ops),
        M::Btr => modifies(O::BitTestReset, ops),
        M::Btc => modifies(O::BitTestComplement, ops),
        M::Imul => match ops.len() {
            2 => modifies(O::Multiply, ops),
            3 => plain(O::Multiply, ops),
            _ => (O::Other, false, ops),
        },
        M::Shlx => plain(O::ShiftLeft, ops),
        M::Shrx => plain(O::ShiftRight, ops),
        M::Sarx => plain(O::ShiftRightArithmetic, ops),
        M::Rorx => plain(O::RotateRight, ops),
        M::Andn => match ops.as_slice() {
            // andn d, a, b: d = !a & b.
            [d, a, b] => (O::AndNot, true, vec![*d, *b, *a]),
            _ => (O::Other, false, ops),
        },
        M::Cmp => (O::Compare, false, ops),
        M::Test => (O::Test, false, ops),
        M::Bt => (O::BitTest, false, ops),
        M::Xchg => (O::Exchange, false, ops),
        M::Push => (O::Push, false, ops),
        M::Pop => plain(O::Pop, ops),
        M::Leave => (O::Leave, false, ops),
        M::Nop
        | M::Pause
        | M::Endbr64
        | M::Endbr32
        | M::Lfence
        | M::Mfence
        | M::Sfence
        | M::Prefetchnta
        | M::Prefetcht0
        | M::Prefetcht1
        | M::Prefetcht2
        | M::Prefetchw
        | M::Fnop => (O::Nothing, false, ops),
        _ => by_flow(bits, instruction, ops),
    }
}

fn extend(from: u16, to: u16) -> (Operation, bool, Vec<Operand>) {
    let part = |width| Operand::Register(Register::general(0, width));
    (Operation::SignExtend, true, vec![part(to), part(from)])
}

fn by_flow(bits: u32, instruction: &Instruction, ops: Vec<Operand>) -> (Operation, bool, Vec<Operand>) {
    let operation = match transfer(instruction) {
        Transfer::Branch(_) => Operation::Branch,
        Transfer::Jump(_) => Operation::Jump,
        Transfer::Call(_) => Operation::Call,
        Transfer::Return => Operation::Return,
        Transfer::Trap => Operation::Trap,
        _ if condition(bits, instruction).is_some() => match ops.as_slice() {
            [d] => return (Operation::SetCondition, true, vec![*d]),
            [d, a] => return (Operation::Select, true, vec![*d, *a, *d]),
            _ => Operation::Other,
        },
        _ => Operation::Other,
    };
    (operation, false, ops)
}

/// Registers and memory used, each family once, the widest part of it.
fn used(factory: &mut InstructionInfoFactory, instruction: &Instruction, out: &mut Decoded) {
    let info = factory.info(instruction);
    for used in info.used_registers() {
        let Some(register) = register(used.register()) else { continue };
        if register.family == Family::InstructionPointer {
            continue;
        }
        let access = used.access();
        if reads(access) {
            include(&mut out.reads, register);
        }
        if writes(access) {
            include(&mut out.writes, register);
        }
    }
    for used in info.used_memory() {
        out.reads_memory |= reads(used.access());
        out.writes_memory |= writes(used.access());
    }
}

fn reads(access: OpAccess) -> bool {
    matches!(access, OpAccess::Read | OpAccess::CondRead | OpAccess::ReadWrite | OpAccess::ReadCondWrite)
}

fn writes(access: OpAccess) -> bool {
    matches!(access, OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite)
}

pub(super) fn include(list: &mut Vec<Register>, register: Register) {
    match list.iter_mut().find(|have| have.family == register.family) {
        Some(have) if have.width < register.width => *have = register,
        Some(have) if have.low_bit != register.low_bit => {
            // al and ah together: ax.
            *have = Register { family: have.family, width: have.width.max(16), low_bit: 0 };
        }
        Some(_) => {}
        None => list.push(register),
    }
}

fn flags(bits: u32) -> Flags {
    const MAP: [(u32, Flags); 7] = [
        (RflagsBits::CF, Flags::CARRY),
        (RflagsBits::PF, Flags::PARITY),
        (RflagsBits::AF, Flags::ADJUST),
        (RflagsBits::ZF, Flags::ZERO),
        (RflagsBits::SF, Flags::SIGN),
        (RflagsBits::OF, Flags::OVERFLOW),
        (RflagsBits::DF, Flags::DIRECTION),
    ];
    let mut out = Flags::NONE;
    for (bit, flag) in MAP {
        if bits & bit != 0 {
            out = out.union(flag);
        }
    }
    if bits & (RflagsBits::IF | RflagsBits::AC) != 0 {
        out = out.union(Flags::SYSTEM);
    }
    out
}
