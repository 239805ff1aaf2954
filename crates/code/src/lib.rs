//! Bytes to instructions: x64, x86 and ARM64, decoded fields and text.
//!
//! Text is what a WinDbg user knows, with one space after the mnemonic:
//! `mov qword ptr [rsp+8],rbx`, `int 29h`, `add x0, x27, #0x40`.

mod arm64;
mod calls;
mod disassemble;
mod operand;
pub mod record;
mod scan;
mod x86;

pub use arm64::{Addressing, Arm64, Extend, MemoryInstruction, decode as decode_arm64};
pub use calls::{StackMotion, is_call_before, stack_motion};
pub use disassemble::{disassemble, disassemble_before, disassemble_memory};
pub use operand::{MemoryAccess, MemoryOperand, is_canonical, memory_operands};
pub use record::{Decoded, Recorder, record};
pub use scan::{Mention, Scanned, Scanner, scan};

use target::{Instruction, Machine};

/// Names an address for operands: `nt!KeBugCheckEx`, `myfault!Boom+0x29`. `None` leaves the number.
pub type Symbolizer<'a> = &'a dyn Fn(u64) -> Option<String>;

/// The longest instruction of any machine here, in bytes.
pub const MAX_INSTRUCTION: usize = 15;

/// Decodes the instruction at `address` from the start of `bytes` (give [`MAX_INSTRUCTION`] where
/// there are as many). Never fails: bytes that decode to nothing give `Flow::Invalid`, no text, and
/// one byte (ARM64: the word) to step over. Empty `bytes` give an instruction without bytes.
#[must_use]
pub fn decode(machine: Machine, address: u64, bytes: &[u8], symbols: Option<Symbolizer<'_>>) -> Instruction {
    match machine {
        Machine::X64 => x86::decode(64, address, bytes, symbols),
        Machine::X86 => x86::decode(32, address, bytes, symbols),
        Machine::Arm64 => arm64::instruction(address, bytes, symbols),
        Machine::Arm32 => invalid(address, &bytes[..bytes.len().min(2)]),
    }
}

fn invalid(address: u64, bytes: &[u8]) -> Instruction {
    Instruction {
        address,
        bytes: target::HexBytes(bytes.to_vec()),
        text: None,
        target: None,
        flow: target::Flow::Invalid,
        data_address: None,
    }
}
