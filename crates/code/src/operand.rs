//! Memory operands with the registers of a moment: what address did this instruction touch?

use target::{Context, Machine};

/// What an instruction does with a memory operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryAccess {
    Read,
    Write,
    ReadWrite,
    /// Only computed (`lea`, `adr`) or hinted (`prefetch`): never faults.
    Address,
}

/// One memory operand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryOperand {
    pub access: MemoryAccess,
    /// Bytes touched, 0 when it depends on the run (`rep`, `xsave`).
    pub size: u32,
    /// Effective address, `None` when a register it needs is not known.
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
    let _ = (context, bytes);
    Vec::new()
}

/// Whether `address` can be translated at all. x64: bits 63..47 agree (48-bit addresses; with LA57
/// a 57-bit address would be called non-canonical here). ARM64: bits 63..48 agree, the top byte
/// ignored in the lower half (TBI). 32-bit machines: below 4 GiB.
#[must_use]
pub fn is_canonical(machine: Machine, address: u64) -> bool {
    match machine {
        Machine::X64 => (address as i64) << 16 >> 16 == address as i64,
        Machine::Arm64 => matches!(address >> 48 & 0xff, 0 | 0xff),
        Machine::X86 | Machine::Arm32 => address >> 32 == 0,
    }
}
