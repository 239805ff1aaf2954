//! Runs of instructions.

use target::{Flow, Instruction, Machine, Memory, MemoryExt};

use crate::{MAX_INSTRUCTION, Symbolizer, decode, x86};

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
    let (start, sure) = match function_start {
        Some(start) if start <= address && address - start <= MAX_BACK => (start, true),
        Some(_) => return (Vec::new(), false),
        None => match guess_start(machine, memory, address, count) {
            Some(start) => (start, machine == Machine::Arm64),
            None => return (Vec::new(), false),
        },
    };
    let Ok(length) = usize::try_from(address - start) else { return (Vec::new(), false) };
    let (bytes, stopped) = memory.read_prefix(start, length);
    if stopped.is_some() {
        return (Vec::new(), false);
    }
    let starts = chain(machine, start, &bytes);
    let Some(starts) = starts else { return (Vec::new(), false) };
    let first = starts.len().saturating_sub(count);
    let out = starts[first..].iter().map(|&offset| {
        let rest = &bytes[offset..bytes.len().min(offset + MAX_INSTRUCTION)];
        decode(machine, start + offset as u64, rest, symbols)
    });
    (out.collect(), sure)
}

/// How far before an address its function may start.
const MAX_BACK: u64 = 0x1_0000;

/// Offsets of the instructions that fill `bytes` exactly, `None` when they do not.
fn chain(machine: Machine, address: u64, bytes: &[u8]) -> Option<Vec<usize>> {
    let mut starts = Vec::new();
    let mut offset = 0;
    while offset < bytes.len() {
        let rest = &bytes[offset..bytes.len().min(offset + MAX_INSTRUCTION)];
        let length = length_at(machine, address.wrapping_add(offset as u64), rest)?;
        starts.push(offset);
        offset += length;
    }
    (offset == bytes.len()).then_some(starts)
}

fn length_at(machine: Machine, address: u64, bytes: &[u8]) -> Option<usize> {
    match machine {
        Machine::X64 => x86::raw(64, address, bytes).map(|i| i.len()),
        Machine::X86 => x86::raw(32, address, bytes).map(|i| i.len()),
        Machine::Arm64 => (bytes.len() >= 4).then_some(4),
        Machine::Arm32 => None,
    }
}

/// A start from which decoding meets `address`: the farthest one, since x86 code falls into step
/// after a few instructions whatever byte it is started at.
fn guess_start(machine: Machine, memory: &dyn Memory, address: u64, count: usize) -> Option<u64> {
    if machine == Machine::Arm64 {
        let back = (count.min(MAX_COUNT) as u64).min(address / 4) * 4;
        return Some(address - back);
    }
    let window = (count.min(64) as u64 * 8 + 32).min(address);
    (1..=window).rev().map(|back| address - back).find(|&start| {
        let (bytes, stopped) = memory.read_prefix(start, usize::try_from(address - start).unwrap_or(0));
        stopped.is_none() && chain(machine, start, &bytes).is_some()
    })
}
