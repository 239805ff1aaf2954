//! The instruction record analyses read: fields, never text.
//!
//! One shape for x64, x86 and ARM64. What a record says is machine-neutral where it can be
//! ([`Operation`], [`Condition`], operands with the destination first); the decoder's own value is
//! beside it in [`Raw`] for consumers that need every encoding.

mod arm64;
mod privilege;
mod register;
mod x86;

use std::fmt;

use target::Machine;

pub(crate) use arm64::transfer as arm64_transfer;
pub use privilege::Privilege;
pub(crate) use privilege::{of_arm64 as arm64_privilege, of_x86 as x86_privilege};
pub use register::{Family, Register, pointer_bits};
pub(crate) use x86::transfer as x86_transfer;

/// Where control goes after an instruction. Direct targets are addresses; `None` is indirect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    Fallthrough,
    /// Conditional: also falls through. `jcc`, `loop`, `jrcxz`, `b.cond`, `cbz`, `tbz`.
    Branch(Option<u64>),
    Jump(Option<u64>),
    Call(Option<u64>),
    Return,
    /// `int3`, `ud2`, `int 29h`, `brk`, `udf`: control does not come back.
    Trap,
    /// The bytes could not be read. Set by whoever reads, never by the decoder.
    Unreadable,
    /// The bytes are no instruction, or end inside one.
    Undecodable,
}

impl Transfer {
    /// The direct target.
    #[must_use]
    pub fn target(self) -> Option<u64> {
        match self {
            Self::Branch(target) | Self::Jump(target) | Self::Call(target) => target,
            _ => None,
        }
    }

    /// Whether the next instruction in memory may run after this one.
    #[must_use]
    pub fn falls_through(self) -> bool {
        matches!(self, Self::Fallthrough | Self::Branch(_) | Self::Call(_))
    }

    /// Whether a basic block ends here. A call does not end one.
    #[must_use]
    pub fn ends_block(self) -> bool {
        !matches!(self, Self::Fallthrough | Self::Call(_))
    }
}

/// What a conditional instruction depends on. Names are those of the comparison that set the flags
/// (`cmp a, b`: `Below` is unsigned a < b), so both machines read alike after a compare or
/// subtraction. `Below` is x86 CF=1 and ARM64 C=0: after an *addition* they differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Condition {
    Equal,
    NotEqual,
    Below,
    AboveOrEqual,
    Above,
    BelowOrEqual,
    Less,
    GreaterOrEqual,
    Greater,
    LessOrEqual,
    Sign,
    NotSign,
    Overflow,
    NotOverflow,
    Parity,
    NotParity,
    Always,
    /// `cbz`, `jrcxz`: no flags.
    Zero(Register),
    /// `cbnz`.
    NotZero(Register),
    /// `tbz`.
    BitClear(Register, u8),
    /// `tbnz`.
    BitSet(Register, u8),
    /// `loop` (register is decremented first); `Some(true)` for `loope`, `Some(false)` for `loopne`.
    Counter(Register, Option<bool>),
}

impl Condition {
    /// In words, as results carry it: `above_or_equal`, `bit_3_clear`.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Equal => "equal",
            Self::NotEqual => "not_equal",
            Self::Below => "below",
            Self::AboveOrEqual => "above_or_equal",
            Self::Above => "above",
            Self::BelowOrEqual => "below_or_equal",
            Self::Less => "less",
            Self::GreaterOrEqual => "greater_or_equal",
            Self::Greater => "greater",
            Self::LessOrEqual => "less_or_equal",
            Self::Sign => "negative",
            Self::NotSign => "not_negative",
            Self::Overflow => "overflow",
            Self::NotOverflow => "no_overflow",
            Self::Parity => "parity_even",
            Self::NotParity => "parity_odd",
            Self::Always => "always",
            Self::Zero(_) => "zero",
            Self::NotZero(_) => "not_zero",
            Self::BitClear(_, bit) => return format!("bit_{bit}_clear"),
            Self::BitSet(_, bit) => return format!("bit_{bit}_set"),
            Self::Counter(_, None) => "counter_not_zero",
            Self::Counter(_, Some(true)) => "counter_not_zero_and_equal",
            Self::Counter(_, Some(false)) => "counter_not_zero_and_not_equal",
        }
        .to_owned()
    }

    /// The condition under which the other edge is taken. `None` for `Counter`, whose complement
    /// is no single condition, and for `Always`.
    #[must_use]
    pub fn negated(self) -> Option<Self> {
        Some(match self {
            Self::Equal => Self::NotEqual,
            Self::NotEqual => Self::Equal,
            Self::Below => Self::AboveOrEqual,
            Self::AboveOrEqual => Self::Below,
            Self::Above => Self::BelowOrEqual,
            Self::BelowOrEqual => Self::Above,
            Self::Less => Self::GreaterOrEqual,
            Self::GreaterOrEqual => Self::Less,
            Self::Greater => Self::LessOrEqual,
            Self::LessOrEqual => Self::Greater,
            Self::Sign => Self::NotSign,
            Self::NotSign => Self::Sign,
            Self::Overflow => Self::NotOverflow,
            Self::NotOverflow => Self::Overflow,
            Self::Parity => Self::NotParity,
            Self::NotParity => Self::Parity,
            Self::Zero(register) => Self::NotZero(register),
            Self::NotZero(register) => Self::Zero(register),
            Self::BitClear(register, bit) => Self::BitSet(register, bit),
            Self::BitSet(register, bit) => Self::BitClear(register, bit),
            Self::Always | Self::Counter(..) => return None,
        })
    }
}

/// A set of flags. ARM64's N, Z, C, V are `SIGN`, `ZERO`, `CARRY`, `OVERFLOW`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub u8);

impl Flags {
    pub const NONE: Self = Self(0);
    pub const CARRY: Self = Self(1);
    pub const PARITY: Self = Self(2);
    pub const ADJUST: Self = Self(4);
    pub const ZERO: Self = Self(8);
    pub const SIGN: Self = Self(0x10);
    pub const OVERFLOW: Self = Self(0x20);
    pub const DIRECTION: Self = Self(0x40);
    /// IF, AC and others no condition reads.
    pub const SYSTEM: Self = Self(0x80);

    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
    #[must_use]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// How an operand register is changed before it is used (ARM64).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Modifier {
    ShiftLeft(u8),
    ShiftRight(u8),
    ShiftRightArithmetic(u8),
    RotateRight(u8),
    /// The low `bits` (8, 16, 32, 64), zero-extended, then shifted left.
    ZeroExtend {
        bits: u8,
        shift: u8,
    },
    /// The low `bits`, sign-extended, then shifted left.
    SignExtend {
        bits: u8,
        shift: u8,
    },
}

/// When a base register is changed by the access (ARM64).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum BaseUpdate {
    #[default]
    None,
    /// base += displacement, then the access at base.
    Before,
    /// The access at base, then base += displacement (or the index register).
    After,
}

/// A memory operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MemoryReference {
    /// Never rip: rip-relative operands have `address`.
    pub base: Option<Register>,
    pub index: Option<Register>,
    /// The index is multiplied by this: 1, 2, 4, 8 (ARM64: up to 16).
    pub scale: u8,
    /// How the index is widened first (ARM64 `uxtw`, `sxtw`); `None` uses it whole.
    pub index_extend: Option<Modifier>,
    /// Sign-extended; addresses are modulo the pointer width (x86 `[ecx*4+80401000h]`).
    pub displacement: i64,
    /// Bytes accessed, 0 when it depends on the run or nothing is accessed (`lea`).
    pub size: u16,
    /// fs or gs: what its base is, nobody knows here. Others are flat.
    pub segment: Option<Register>,
    /// The whole address where no register is needed: rip-relative, absolute, `adr`, `adrp`,
    /// literal loads. Where set it is all there is.
    pub address: Option<u64>,
    pub update: BaseUpdate,
}

/// One operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operand {
    Register(Register),
    /// A register, shifted or extended first (ARM64).
    Modified(Register, Modifier),
    /// Sign- or zero-extended as the instruction does, then cut to the operation's width.
    Immediate(u64),
    Memory(MemoryReference),
    /// A direct branch target.
    Target(u64),
    /// Something no analysis here reads: system registers, vector lanes.
    Opaque,
}

impl Operand {
    #[must_use]
    pub fn register(&self) -> Option<Register> {
        match self {
            Self::Register(register) => Some(*register),
            _ => None,
        }
    }
    #[must_use]
    pub fn memory(&self) -> Option<&MemoryReference> {
        match self {
            Self::Memory(memory) => Some(memory),
            _ => None,
        }
    }
    #[must_use]
    pub fn immediate(&self) -> Option<u64> {
        match self {
            Self::Immediate(value) => Some(*value),
            _ => None,
        }
    }
}

/// What an instruction computes, over [`Decoded::operands`]. `d` is the destination
/// (operand 0 when [`Decoded::has_destination`]), `a`, `b`, `c` the operands after it: a
/// two-operand x86 `add eax, ecx` lists `[eax, eax, ecx]`. Arithmetic is modulo 2^width of `d`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// d = a. Also ARM64 loads and stores, and scalar or full-vector moves.
    Move,
    /// d = a, which is narrower, extended with zeros.
    ZeroExtend,
    /// d = a, which is narrower, extended with its sign.
    SignExtend,
    /// d = the address of memory operand a (`lea`, `adr`, `adrp`).
    Address,
    Add,
    AddWithCarry,
    Subtract,
    SubtractWithBorrow,
    /// Low half of the product. A widening `mul` with implicit operands is `Other`.
    Multiply,
    /// d = a * b + c.
    MultiplyAdd,
    /// d = c - a * b (ARM64 `msub`; `mneg` with c = zr).
    MultiplySubtract,
    DivideUnsigned,
    DivideSigned,
    And,
    /// d = a & !b.
    AndNot,
    Or,
    /// d = a | !b.
    OrNot,
    Xor,
    /// d = a ^ !b.
    XorNot,
    Not,
    Negate,
    ShiftLeft,
    ShiftRight,
    ShiftRightArithmetic,
    RotateLeft,
    RotateRight,
    ByteSwap,
    /// d = bits [lsb+width-1 : lsb] of a, zero-extended; b = lsb, c = width (`ubfx`).
    ExtractBits,
    /// The same, sign-extended (`sbfx`).
    ExtractBitsSigned,
    /// d = low `c` bits of a placed at bit b, zeros elsewhere (`ubfiz`).
    PlaceBits,
    /// The same with the sign above (`sbfiz`).
    PlaceBitsSigned,
    /// d keeps its other bits: bits [b+c-1 : b] of d = low c bits of a (`bfi`).
    InsertBits,
    /// d keeps its other bits: low c bits of d = bits [b+c-1 : b] of a (`bfxil`).
    InsertLowBits,
    /// `movk`: 16 bits of d replaced by a, which is already shifted; b = the shift. Others stay.
    MoveKeep,
    /// Flags of a - b (`cmp`, `subs zr`).
    Compare,
    /// Flags of a + b (`cmn`).
    CompareNegative,
    /// Flags of a & b (`test`, `tst`).
    Test,
    /// Carry = bit b of a (`bt`).
    BitTest,
    /// `bts`: as `bt`, then bit b of d set.
    BitTestSet,
    /// `btr`.
    BitTestReset,
    /// `btc`.
    BitTestComplement,
    /// d = condition ? a : b (`cmovcc` lists d itself as b; `csel`).
    Select,
    /// d = condition ? a : b + 1 (`csinc`).
    SelectIncrement,
    /// d = condition ? a : !b (`csinv`).
    SelectInvert,
    /// d = condition ? a : -b (`csneg`).
    SelectNegate,
    /// d = condition ? 1 : 0 (`setcc`; ARM64 `cset` is `SelectIncrement` of zr).
    SetCondition,
    /// If condition: flags of a - b; else flags = immediate c (NZCV as bits 3..0) (`ccmp`).
    ConditionalCompare,
    /// The same with a + b (`ccmn`).
    ConditionalCompareNegative,
    /// Operands 0 and 1 swap (`xchg`); no destination is marked, both are written.
    Exchange,
    /// a goes to the stack; rsp moves by a's size.
    Push,
    /// d comes from the stack.
    Pop,
    /// rsp = rbp, pop rbp.
    Leave,
    /// ARM64 load or store of two registers: operands are first, second, memory.
    LoadPair,
    StorePair,
    /// Control transfers; an indirect one lists what it goes through (register or memory).
    Jump,
    Call,
    Branch,
    Return,
    Trap,
    /// No effect on registers, flags or memory: `nop`, prefetch, `endbr64`, barriers.
    Nothing,
    /// Anything else: only `reads`, `writes`, flags and the memory marks say what it does.
    /// Operands are as encoded, `has_destination` false.
    Other,
}

/// The mnemonic, of the machine's own namespace (x86 `str` is not ARM64 `str`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mnemonic {
    X86(iced_x86::Mnemonic),
    Arm64(yaxpeax_arm::armv8::a64::Opcode),
    /// No instruction.
    None,
}

impl fmt::Display for Mnemonic {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::X86(mnemonic) => out.write_str(&format!("{mnemonic:?}").to_lowercase()),
            Self::Arm64(opcode) => out.write_str(&opcode.to_string().to_lowercase()),
            Self::None => out.write_str("???"),
        }
    }
}

/// The decoder's own value.
#[derive(Clone, Copy, Debug)]
pub enum Raw {
    X86(iced_x86::Instruction),
    /// The instruction word and yaxpeax's reading of it.
    Arm64(u32, yaxpeax_arm::armv8::a64::Instruction),
    None,
}

/// One decoded instruction.
#[derive(Clone, Debug)]
pub struct Decoded {
    pub address: u64,
    pub machine: Machine,
    /// Bytes to step over: the instruction's length, or 1 (ARM64: up to 4) when undecodable.
    pub length: u8,
    bytes: [u8; crate::MAX_INSTRUCTION],
    pub mnemonic: Mnemonic,
    pub operation: Operation,
    /// Destination first where there is one, then the sources: see [`Operation`].
    pub operands: Vec<Operand>,
    pub has_destination: bool,
    pub transfer: Transfer,
    /// Of branches and conditional instructions.
    pub condition: Option<Condition>,
    /// Registers read and written, implicit operands included (`mul`, `cmpxchg`, `rep movs`,
    /// `cpuid`; a call's own push, not what the callee does). No register twice in a set.
    pub reads: Vec<Register>,
    pub writes: Vec<Register>,
    pub flags_read: Flags,
    /// Written, cleared, set or left undefined.
    pub flags_written: Flags,
    pub reads_memory: bool,
    pub writes_memory: bool,
    /// Needs CPL 0 (or I/O privilege), by its encoding.
    pub privilege: Option<Privilege>,
    /// `rep`, `repne` prefix on a string instruction.
    pub repeats: bool,
    pub raw: Raw,
}

impl Decoded {
    /// The instruction's bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length).min(self.bytes.len())]
    }

    /// Address of the next instruction in memory.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.address.wrapping_add(u64::from(self.length))
    }

    #[must_use]
    pub fn destination(&self) -> Option<&Operand> {
        if self.has_destination { self.operands.first() } else { None }
    }

    /// Operands after the destination.
    #[must_use]
    pub fn sources(&self) -> &[Operand] {
        self.operands.get(usize::from(self.has_destination)..).unwrap_or_default()
    }

    /// The memory operand, of instructions that have one.
    #[must_use]
    pub fn memory(&self) -> Option<&MemoryReference> {
        self.operands.iter().find_map(Operand::memory)
    }

    /// Whether some part of `family` is written.
    #[must_use]
    pub fn writes_family(&self, family: Family) -> bool {
        self.writes.iter().any(|register| register.family == family)
    }

    /// Whether some part of `family` is read.
    #[must_use]
    pub fn reads_family(&self, family: Family) -> bool {
        self.reads.iter().any(|register| register.family == family)
    }

    /// iced's instruction, on x86 and x64.
    #[must_use]
    pub fn iced(&self) -> Option<&iced_x86::Instruction> {
        match &self.raw {
            Raw::X86(instruction) => Some(instruction),
            _ => None,
        }
    }

    /// `mov eax, ecx`-like text for people and explanations; analyses read the fields.
    #[must_use]
    pub fn text(&self) -> String {
        crate::decode(self.machine, self.address, self.bytes(), None)
            .text
            .unwrap_or_else(|| self.mnemonic.to_string())
    }

    /// A record of no instruction, `length` bytes long.
    fn nothing(machine: Machine, address: u64, bytes: &[u8], transfer: Transfer) -> Self {
        let mut stored = [0; crate::MAX_INSTRUCTION];
        let length = bytes.len().min(stored.len());
        stored[..length].copy_from_slice(&bytes[..length]);
        Self {
            address,
            machine,
            length: length as u8,
            bytes: stored,
            mnemonic: Mnemonic::None,
            operation: Operation::Other,
            operands: Vec::new(),
            has_destination: false,
            transfer,
            condition: None,
            reads: Vec::new(),
            writes: Vec::new(),
            flags_read: Flags::NONE,
            flags_written: Flags::NONE,
            reads_memory: false,
            writes_memory: false,
            privilege: None,
            repeats: false,
            raw: Raw::None,
        }
    }

    /// What stands for an instruction whose bytes would not read.
    #[must_use]
    pub fn unreadable(machine: Machine, address: u64) -> Self {
        Self::nothing(machine, address, &[], Transfer::Unreadable)
    }
}

/// Makes records; keeps the decoder's tables between calls.
#[derive(Debug)]
pub struct Recorder {
    machine: Machine,
    info: iced_x86::InstructionInfoFactory,
}

impl Recorder {
    #[must_use]
    pub fn new(machine: Machine) -> Self {
        Self { machine, info: iced_x86::InstructionInfoFactory::new() }
    }

    #[must_use]
    pub fn machine(&self) -> Machine {
        self.machine
    }

    /// The instruction at `address` from the start of `bytes` (give [`crate::MAX_INSTRUCTION`]
    /// where there are as many). Never fails: other bytes give [`Transfer::Undecodable`].
    #[must_use]
    pub fn record(&mut self, address: u64, bytes: &[u8]) -> Decoded {
        match self.machine {
            Machine::X64 => x86::record(64, &mut self.info, address, bytes),
            Machine::X86 => x86::record(32, &mut self.info, address, bytes),
            Machine::Arm64 => arm64::record(address, bytes),
            Machine::Arm32 => {
                let bytes = &bytes[..bytes.len().min(2)];
                Decoded::nothing(self.machine, address, bytes, Transfer::Undecodable)
            }
        }
    }
}

/// One record; [`Recorder`] is cheaper for many.
#[must_use]
pub fn record(machine: Machine, address: u64, bytes: &[u8]) -> Decoded {
    Recorder::new(machine).record(address, bytes)
}
