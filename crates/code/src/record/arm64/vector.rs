//! SIMD and floating point: which registers, not what is computed.

use yaxpeax_arm::armv8::a64::{Instruction, Opcode, Operand as Yaxpeax, SIMDSizeCode, SizeCode};

use super::{Decoded, Family, NZCV, Register, general_or};

/// The first operand is written (and, as lanes may stay, read); the rest is read.
pub(super) fn data(out: &mut Decoded, instruction: &Instruction) {
    let compares =
        matches!(instruction.opcode, Opcode::FCMP | Opcode::FCMPE | Opcode::FCCMP | Opcode::FCCMPE);
    if compares {
        out.flags_written = NZCV;
    }
    if matches!(instruction.opcode, Opcode::FCCMP | Opcode::FCCMPE | Opcode::FCSEL) {
        out.flags_read = NZCV;
    }
    for (index, operand) in instruction.operands.iter().enumerate() {
        for register in registers(operand) {
            if index == 0 && !compares {
                out.writing(register);
                if !matches!(register.family, Family::Vector(_)) {
                    continue;
                }
            }
            out.reading(register);
        }
    }
}

fn registers(operand: &Yaxpeax) -> Vec<Register> {
    let vector =
        |number: u16, width: u16| Register { family: Family::Vector((number & 31) as u8), width, low_bit: 0 };
    match *operand {
        Yaxpeax::Register(size, number) => vec![general_or(Family::Zero, number as u8 & 31, bits(size))],
        Yaxpeax::RegisterOrSP(size, number) => {
            vec![general_or(Family::StackPointer, number as u8 & 31, bits(size))]
        }
        Yaxpeax::SIMDRegister(size, number) => vec![vector(number, vector_bits(size))],
        Yaxpeax::SIMDRegisterElements(_, number, _)
        | Yaxpeax::SIMDRegisterElementsLane(_, number, _, _)
        | Yaxpeax::SIMDRegisterElementsMultipleLane(_, number, _, _, _) => vec![vector(number, 128)],
        Yaxpeax::SIMDRegisterGroup(_, number, _, count) => {
            (0..u16::from(count.min(4))).map(|i| vector(number + i, 128)).collect()
        }
        _ => Vec::new(),
    }
}

fn bits(size: SizeCode) -> u16 {
    match size {
        SizeCode::X => 64,
        SizeCode::W => 32,
    }
}

fn vector_bits(size: SIMDSizeCode) -> u16 {
    match size {
        SIMDSizeCode::B => 8,
        SIMDSizeCode::H => 16,
        SIMDSizeCode::S => 32,
        SIMDSizeCode::D => 64,
        SIMDSizeCode::Q => 128,
    }
}
