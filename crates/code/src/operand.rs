//! Memory operands with the registers of a moment: what address did this instruction touch?

use iced_x86::{Instruction as Iced, InstructionInfoFactory, OpAccess, OpKind, Register, UsedMemory};
use target::{Context, Machine, reg};

use crate::arm64::{Addressing, Arm64};
use crate::x86;

/// What an instruction does with a memory operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryAccess {
    Read,
    Write,
    ReadWrite,
    /// Only computed (`lea`) or hinted (`prefetch`): never faults.
    Address,
}

/// One memory operand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryOperand {
    pub access: MemoryAccess,
    /// Bytes touched, 0 when it depends on the run (`rep`, `xsave`).
    pub size: u32,
    /// Effective address, `None` when a register it needs (or the base of fs, gs) is not known.
    pub address: Option<u64>,
    /// Lower-case names of the registers the address is made of (`rax`, `x19`), base first.
    pub registers: Vec<&'static str>,
    /// Displacement as encoded.
    pub displacement: i64,
    /// Implicit stack access of a push, pop, call or ret.
    pub implicit: bool,
    /// `address` is known and is not canonical on this machine (a #GP on x64 carries no address).
    pub non_canonical: bool,
}

/// Memory operands of the instruction in `bytes` at `context`'s ip, explicit ones first.
#[must_use]
pub fn memory_operands(context: &Context, bytes: &[u8]) -> Vec<MemoryOperand> {
    let bits = match context.machine {
        Machine::X64 => 64,
        Machine::X86 => 32,
        Machine::Arm64 => {
            let word = bytes.get(..4).and_then(|b| b.try_into().ok()).map(u32::from_le_bytes);
            return word.and_then(|w| arm64_operand(context, crate::decode_arm64(w))).into_iter().collect();
        }
        Machine::Arm32 => return Vec::new(),
    };
    let Some(instruction) = x86::raw(bits, context.ip(), bytes) else { return Vec::new() };
    let mut factory = InstructionInfoFactory::new();
    let used = factory.info(&instruction).used_memory().to_vec();
    let mut out: Vec<MemoryOperand> =
        used.iter().map(|memory| x86_operand(context, &instruction, memory)).collect();
    out.sort_by_key(|operand| operand.implicit);
    out
}

fn x86_operand(context: &Context, instruction: &Iced, memory: &UsedMemory) -> MemoryOperand {
    let access = match memory.access() {
        OpAccess::Read | OpAccess::CondRead => MemoryAccess::Read,
        OpAccess::Write | OpAccess::CondWrite => MemoryAccess::Write,
        OpAccess::ReadWrite | OpAccess::ReadCondWrite => MemoryAccess::ReadWrite,
        OpAccess::None | OpAccess::NoMemAccess => MemoryAccess::Address,
    };
    let address = memory
        .virtual_address(0, |register, _, _| register_value(context, register))
        .map(|a| if context.machine == Machine::X86 { a & 0xffff_ffff } else { a });
    let explicit = (0..instruction.op_count()).any(|i| {
        instruction.op_kind(i) == OpKind::Memory
            && instruction.memory_base() == memory.base()
            && instruction.memory_index() == memory.index()
            && instruction.memory_displacement64() == memory.displacement()
    });
    let stack = matches!(memory.base(), Register::RSP | Register::ESP | Register::SP);
    let displacement = if context.machine == Machine::X86 {
        i64::from(memory.displacement() as u32 as i32)
    } else {
        memory.displacement() as i64
    };
    MemoryOperand {
        access,
        size: u32::try_from(memory.memory_size().size()).unwrap_or(0),
        non_canonical: address.is_some_and(|a| !is_canonical(context.machine, a)),
        address,
        registers: [memory.base(), memory.index()]
            .into_iter()
            .filter_map(|r| Context::register_name(context.machine, register_number(r)?))
            .collect(),
        displacement,
        implicit: stack && !explicit && instruction.is_stack_instruction(),
    }
}

fn register_number(register: Register) -> Option<usize> {
    if register.is_ip() {
        return Some(reg::RIP);
    }
    register.is_gpr().then(|| register.full_register().number())
}

fn register_value(context: &Context, register: Register) -> Option<u64> {
    match register {
        // Flat segments.
        Register::CS | Register::DS | Register::ES | Register::SS => Some(0),
        Register::FS | Register::GS => None,
        _ => {
            let value = context.get(register_number(register)?)?;
            Some(match register.size() {
                4 => value & 0xffff_ffff,
                2 => value & 0xffff,
                _ => value,
            })
        }
    }
}

fn arm64_operand(context: &Context, instruction: Arm64) -> Option<MemoryOperand> {
    let number = |n: u8| if n == 31 { reg::A64_SP } else { usize::from(n) };
    let name = |n: usize| Context::register_name(Machine::Arm64, n);
    let (access, size, address, registers, displacement) = match instruction {
        Arm64::LoadLiteral { offset, size, prefetch, .. } => {
            let access = if prefetch { MemoryAccess::Address } else { MemoryAccess::Read };
            (access, u32::from(size), Some(context.ip().wrapping_add_signed(offset)), vec!["pc"], offset)
        }
        Arm64::Memory(memory) => {
            let base = context.get(number(memory.base));
            let mut registers: Vec<_> = name(number(memory.base)).into_iter().collect();
            let (address, displacement) = match memory.addressing {
                Addressing::Offset(offset) | Addressing::PreIndex(offset) => {
                    (base.map(|b| b.wrapping_add_signed(offset)), offset)
                }
                Addressing::PostIndex(offset) => (base, offset),
                Addressing::Register { index, extend, shift } => {
                    let value = if index == 31 { Some(0) } else { context.get(usize::from(index)) };
                    registers.extend(name(usize::from(index)).filter(|_| index != 31));
                    let scaled = value.map(|v| extend.apply(v).wrapping_shl(u32::from(shift)));
                    (base.zip(scaled).map(|(b, i)| b.wrapping_add(i)), 0)
                }
            };
            let access = match (memory.load, memory.store) {
                (true, true) => MemoryAccess::ReadWrite,
                (false, true) => MemoryAccess::Write,
                (true, false) => MemoryAccess::Read,
                (false, false) => MemoryAccess::Address,
            };
            (access, u32::from(memory.size) * u32::from(memory.count), address, registers, displacement)
        }
        _ => return None,
    };
    Some(MemoryOperand {
        access,
        size,
        non_canonical: address.is_some_and(|a| !is_canonical(Machine::Arm64, a)),
        address,
        registers,
        displacement,
        implicit: false,
    })
}

/// Whether `address` can be translated at all. x64: bits 63..47 agree (48-bit addresses; with LA57
/// a 57-bit address would be called non-canonical here). ARM64: bits 55..48 agree, the top byte
/// being ignored (TBI). 32-bit machines: below 4 GiB.
#[must_use]
pub fn is_canonical(machine: Machine, address: u64) -> bool {
    match machine {
        Machine::X64 => ((address << 16) as i64 >> 16) as u64 == address,
        Machine::Arm64 => matches!(address >> 48 & 0xff, 0 | 0xff),
        Machine::X86 | Machine::Arm32 => address >> 32 == 0,
    }
}
