//! Records of ARM64 instructions, from the encoding (Arm ARM, DDI 0487, chapter C4).

use target::Machine;
use yaxpeax_arch::{Decoder as _, U8Reader};

use super::{Condition, Decoded, Mnemonic, Operand, Operation, Raw, Register, Transfer, privilege};
use crate::arm64::{Arm64, decode};

pub(super) fn record(address: u64, bytes: &[u8]) -> Decoded {
    let short = &bytes[..bytes.len().min(4)];
    let undecodable = || Decoded::nothing(Machine::Arm64, address, short, Transfer::Undecodable);
    let Ok(raw) = <[u8; 4]>::try_from(short) else { return undecodable() };
    let word = u32::from_le_bytes(raw);
    let decoder = yaxpeax_arm::armv8::a64::InstDecoder::default();
    let Ok(instruction) = decoder.decode(&mut U8Reader::new(&raw)) else { return undecodable() };
    let mut out = Decoded::nothing(Machine::Arm64, address, short, transfer(address, word));
    out.mnemonic = Mnemonic::Arm64(instruction.opcode);
    out.privilege = privilege::of_arm64(word);
    out.raw = Raw::Arm64(word, instruction);
    let _ = (Condition::Always, Operand::Opaque, Operation::Other, Register::general(0, 64));
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
