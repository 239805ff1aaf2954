//! How many bytes of arguments a callee takes off an x86 stack.

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Mnemonic, OpKind, Register};
use target::Machine;

use crate::emulator::{Call, Emulator};

/// Most instructions of a callee looked at.
const MAX_LOOK: usize = 2048;

/// The best guess for a callee nobody knows: the `ret n` of its code if that reads; 0 where the caller
/// takes off what it pushed itself right after; else what the caller pushed since the last call. 0 on other machines.
#[must_use]
pub fn inferred(emulator: &mut Emulator, call: &Call) -> u32 {
    if emulator.machine != Machine::X86 {
        return 0;
    }
    if let Some(bytes) = call.target.and_then(|target| of_callee(emulator, target)) {
        return bytes;
    }
    match after_call(emulator, call.return_address) {
        Some(bytes) => bytes,
        None => emulator.pushed_before_call,
    }
}

/// The operand of the first `ret` met from `target` on, unconditional jumps followed.
fn of_callee(emulator: &mut Emulator, target: u64) -> Option<u32> {
    let mut at = target;
    for _ in 0..MAX_LOOK {
        let mut bytes = [0; 15];
        let count = emulator.memory.fetch(at, &mut bytes).ok()?;
        let instruction = Decoder::with_ip(32, &bytes[..count], at, DecoderOptions::NONE).decode();
        match instruction.flow_control() {
            _ if instruction.is_invalid() => return None,
            FlowControl::Return => {
                let pops = matches!(instruction.code(), Code::Retnd_imm16);
                return Some(if pops { u32::from(instruction.immediate16()) } else { 0 });
            }
            FlowControl::UnconditionalBranch => at = instruction.near_branch_target(),
            FlowControl::IndirectBranch | FlowControl::Interrupt | FlowControl::Exception => return None,
            _ => at = instruction.next_ip(),
        }
    }
    None
}

/// `add esp, n` after the call, n being what was pushed: the caller cleans up. `sub esp, n`: the callee did, and the caller
/// restores its area (gcc).
fn after_call(emulator: &mut Emulator, return_address: u64) -> Option<u32> {
    let mut bytes = [0; 15];
    let count = emulator.memory.fetch(return_address, &mut bytes).ok()?;
    let next = Decoder::with_ip(32, &bytes[..count], return_address, DecoderOptions::NONE).decode();
    let moves_esp = next.op0_kind() == OpKind::Register && next.op0_register() == Register::ESP;
    let immediate = matches!(next.op1_kind(), OpKind::Immediate32 | OpKind::Immediate8to32);
    if !moves_esp || !immediate {
        return None;
    }
    match next.mnemonic() {
        // Of another size it is an epilog's.
        Mnemonic::Add if next.immediate(1) == u64::from(emulator.pushed_before_call) => Some(0),
        Mnemonic::Sub => u32::try_from(next.immediate(1)).ok().filter(|&n| n <= 0x100),
        _ => None,
    }
}
