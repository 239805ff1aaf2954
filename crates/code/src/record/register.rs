//! Registers by what they alias.

use target::Machine;

/// The family of registers that share storage. Numbers are the machine's own encoding: on x86 and
/// x64 `General(0)` is rax/eax, 1 rcx, 2 rdx, 3 rbx, 5 rbp, 6 rsi, 7 rdi, 8.. r8..; on ARM64
/// `General(n)` is Xn, 0..=30 (29 fp, 30 lr).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    General(u8),
    /// rsp, esp, ARM64 sp. Never `General`.
    StackPointer,
    /// rip, eip (as base of a memory operand).
    InstructionPointer,
    /// ARM64 xzr, wzr: reads 0, a write is lost.
    Zero,
    /// xmm/ymm/zmm n, ARM64 Vn.
    Vector(u8),
    /// AVX-512 k registers.
    Mask(u8),
    /// st(n) and mmx.
    Float(u8),
    /// es 0, cs 1, ss 2, ds 3, fs 4, gs 5.
    Segment(u8),
    Control(u8),
    Debug(u8),
    /// Test, bound and tile registers.
    Other(u8),
}

/// A register operand: the part of a family that is accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Register {
    pub family: Family,
    /// Bits accessed: `eax` 32, `ah` 8.
    pub width: u16,
    /// Lowest bit accessed: 8 for ah, ch, dh, bh, else 0.
    pub low_bit: u8,
}

impl Register {
    #[must_use]
    pub const fn general(number: u8, width: u16) -> Self {
        Self { family: Family::General(number), width, low_bit: 0 }
    }

    #[must_use]
    pub const fn stack_pointer(width: u16) -> Self {
        Self { family: Family::StackPointer, width, low_bit: 0 }
    }

    /// The widest register of the family on `machine`: `eax` to `rax` on x64, to `eax` on x86.
    #[must_use]
    pub fn full(self, machine: Machine) -> Self {
        let width = match self.family {
            Family::General(_) | Family::StackPointer | Family::InstructionPointer | Family::Zero => {
                pointer_bits(machine)
            }
            Family::Vector(_) if machine == Machine::Arm64 => 128,
            Family::Vector(_) => 512,
            _ => self.width,
        };
        Self { family: self.family, width, low_bit: 0 }
    }

    /// Whether writing this part sets the whole family register: full-width writes, and 32-bit
    /// writes on x64 and ARM64, which zero the upper half. 8- and 16-bit writes keep the rest.
    #[must_use]
    pub fn write_is_whole(self, machine: Machine) -> bool {
        self.width >= 32 || self.width >= pointer_bits(machine)
    }

    /// The debugger's name: `eax`, `r8d`, `ah`, `w0`, `x29`, `sp`, `xmm0`, `v3`.
    #[must_use]
    pub fn name(self, machine: Machine) -> String {
        match machine {
            Machine::Arm64 | Machine::Arm32 => self.arm64_name(),
            Machine::X64 | Machine::X86 => self.x86_name(),
        }
    }

    fn arm64_name(self) -> String {
        let prefix = if self.width > 32 { 'x' } else { 'w' };
        match self.family {
            Family::General(number) => format!("{prefix}{number}"),
            Family::StackPointer if self.width > 32 => "sp".to_owned(),
            Family::StackPointer => "wsp".to_owned(),
            Family::Zero => format!("{prefix}zr"),
            Family::Vector(number) => format!("v{number}"),
            other => format!("{other:?}").to_lowercase(),
        }
    }

    fn x86_name(self) -> String {
        const WIDE: [&str; 8] = ["ax", "cx", "dx", "bx", "sp", "bp", "si", "di"];
        const HIGH: [&str; 4] = ["ah", "ch", "dh", "bh"];
        const SEGMENT: [&str; 6] = ["es", "cs", "ss", "ds", "fs", "gs"];
        let number = match self.family {
            Family::General(number) => usize::from(number),
            Family::StackPointer => 4,
            Family::InstructionPointer => return if self.width > 32 { "rip" } else { "eip" }.to_owned(),
            Family::Vector(number) => {
                let prefix = match self.width {
                    0..=128 => 'x',
                    256 => 'y',
                    _ => 'z',
                };
                return format!("{prefix}mm{number}");
            }
            Family::Segment(number) => {
                return SEGMENT.get(usize::from(number)).copied().unwrap_or("?").to_owned();
            }
            Family::Control(number) => return format!("cr{number}"),
            Family::Debug(number) => return format!("dr{number}"),
            Family::Float(number) => return format!("st{number}"),
            Family::Mask(number) => return format!("k{number}"),
            other => return format!("{other:?}").to_lowercase(),
        };
        match (number, self.width) {
            (0..=3, 8) if self.low_bit == 8 => HIGH[number].to_owned(),
            (0..=3, 8) => format!("{}l", &WIDE[number][..1]),
            (4..=7, 8) => format!("{}l", WIDE[number]),
            (0..=7, 16) => WIDE[number].to_owned(),
            (0..=7, 32) => format!("e{}", WIDE[number]),
            (0..=7, _) => format!("r{}", WIDE[number]),
            (_, 8) => format!("r{number}b"),
            (_, 16) => format!("r{number}w"),
            (_, 32) => format!("r{number}d"),
            _ => format!("r{number}"),
        }
    }
}

/// Width of an address on `machine`, in bits.
#[must_use]
pub fn pointer_bits(machine: Machine) -> u16 {
    match machine {
        Machine::X64 | Machine::Arm64 => 64,
        Machine::X86 | Machine::Arm32 => 32,
    }
}
