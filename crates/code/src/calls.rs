//! What tells stacks apart: calls before return addresses, and instructions that move rsp.

use iced_x86::{Mnemonic, OpKind, Register};
use target::{Flow, Machine};

use crate::{Arm64, decode_arm64, x86};

/// The longest call: `call qword ptr [r12+disp32]` with prefixes.
const LONGEST_CALL: usize = 8;

/// Whether `before`, the bytes that end at a presumed return address (8 are enough for x86 and x64,
/// 4 for ARM64; fewer are looked at as far as they go), ends with a call.
#[must_use]
pub fn is_call_before(machine: Machine, before: &[u8]) -> bool {
    let bits = match machine {
        Machine::X64 => 64,
        Machine::X86 => 32,
        Machine::Arm64 => {
            let word = before.len().checked_sub(4).and_then(|at| before[at..].try_into().ok());
            return word.map(u32::from_le_bytes).map(decode_arm64).is_some_and(Arm64::is_call);
        }
        Machine::Arm32 => return false,
    };
    (2..=before.len().min(LONGEST_CALL)).any(|length| {
        let bytes = &before[before.len() - length..];
        // Cheap first: every near call begins with E8 or holds FF /2 after prefixes.
        bytes.iter().take(3).any(|&b| b == 0xe8 || b == 0xff)
            && x86::raw(bits, 0, bytes).is_some_and(|instruction| {
                instruction.len() == length
                    && matches!(x86::flow(&instruction), Flow::Call | Flow::IndirectCall)
            })
    })
}

/// How an instruction moves the stack pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StackMotion {
    None,
    /// Pushes or allocates, as prologs do.
    Down,
    /// Pops or frees, as epilogs do; a `ret`'s own pop is not counted.
    Up,
}

/// How the x86 or x64 instruction at the start of `bytes` moves esp or rsp; `None` for bytes that
/// are no instruction, and on other machines.
#[must_use]
pub fn stack_motion(machine: Machine, bytes: &[u8]) -> StackMotion {
    let bits = match machine {
        Machine::X64 => 64,
        Machine::X86 => 32,
        Machine::Arm64 | Machine::Arm32 => return StackMotion::None,
    };
    let Some(instruction) = x86::raw(bits, 0, bytes) else { return StackMotion::None };
    let to_stack_pointer = instruction.op0_kind() == OpKind::Register
        && matches!(instruction.op0_register(), Register::RSP | Register::ESP);
    match instruction.mnemonic() {
        Mnemonic::Sub | Mnemonic::And if to_stack_pointer => StackMotion::Down,
        Mnemonic::Add | Mnemonic::Lea | Mnemonic::Mov if to_stack_pointer => StackMotion::Up,
        Mnemonic::Leave => StackMotion::Up,
        Mnemonic::Ret => StackMotion::None,
        _ => match instruction.stack_pointer_increment() {
            0 => StackMotion::None,
            moved if moved > 0 => StackMotion::Up,
            _ => StackMotion::Down,
        },
    }
}
