//! Register contexts: one type for every machine, with a validity bit per register. A register that
//! was not recorded or not restored is *unavailable*, never zero.

use crate::machine::Machine;

/// Integer register numbers. x64 and x86 share the hardware encoding of the general registers.
pub mod reg {
    pub const RAX: usize = 0;
    pub const RCX: usize = 1;
    pub const RDX: usize = 2;
    pub const RBX: usize = 3;
    pub const RSP: usize = 4;
    pub const RBP: usize = 5;
    pub const RSI: usize = 6;
    pub const RDI: usize = 7;
    pub const R8: usize = 8;
    pub const R15: usize = 15;
    pub const RIP: usize = 16;
    pub const EFLAGS: usize = 17;
    pub const CS: usize = 18;
    pub const DS: usize = 19;
    pub const ES: usize = 20;
    pub const FS: usize = 21;
    pub const GS: usize = 22;
    pub const SS: usize = 23;
    pub const DR0: usize = 24;
    pub const DR6: usize = 28;
    pub const DR7: usize = 29;
    pub const FPCW: usize = 30;
    pub const FPSW: usize = 31;
    pub const FPTW: usize = 32;
    pub const MXCSR: usize = 33;
    /// ARM64: x0..x28 are 0..28.
    pub const A64_FP: usize = 29;
    pub const A64_LR: usize = 30;
    pub const A64_SP: usize = 31;
    pub const A64_PC: usize = 32;
    pub const A64_CPSR: usize = 33;
    /// One past the last number of any machine.
    pub const COUNT: usize = 34;
}

const X64_NAMES: [&str; reg::COUNT] = [
    "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14",
    "r15", "rip", "efl", "cs", "ds", "es", "fs", "gs", "ss", "dr0", "dr1", "dr2", "dr3", "dr6", "dr7",
    "fpcw", "fpsw", "fptw", "mxcsr",
];
const X86_NAMES: [&str; reg::COUNT] = [
    "eax", "ecx", "edx", "ebx", "esp", "ebp", "esi", "edi", "", "", "", "", "", "", "", "", "eip", "efl",
    "cs", "ds", "es", "fs", "gs", "ss", "dr0", "dr1", "dr2", "dr3", "dr6", "dr7", "fpcw", "fpsw", "fptw",
    "mxcsr",
];
const ARM64_NAMES: [&str; reg::COUNT] = [
    "x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14", "x15",
    "x16", "x17", "x18", "x19", "x20", "x21", "x22", "x23", "x24", "x25", "x26", "x27", "x28", "fp", "lr",
    "sp", "pc", "cpsr",
];
/// DbgEng's order of the default rows (measured, spec 10 section 6.2).
const X64_ORDER: [usize; reg::COUNT] = [
    0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28,
    29, 30, 31, 32, 33,
];
const X86_ORDER: [usize; 26] =
    [22, 21, 20, 19, 7, 6, 3, 2, 1, 0, 5, 16, 18, 17, 4, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33];

fn names(machine: Machine) -> &'static [&'static str; reg::COUNT] {
    match machine {
        Machine::X64 => &X64_NAMES,
        Machine::X86 => &X86_NAMES,
        Machine::Arm64 | Machine::Arm32 => &ARM64_NAMES,
    }
}

/// What a register of an engine's own list holds.
#[derive(Clone, Debug, PartialEq)]
pub enum RegisterValue {
    Int(u64),
    Float(f64),
    /// In memory order.
    Bytes(Vec<u8>),
    Unavailable,
}

/// A register of an engine's own list ([`crate::Target::listed_registers`]).
#[derive(Clone, Debug, PartialEq)]
pub struct ListedRegister {
    /// `rax`, `xmm0`, `xmm0/1` for a lane.
    pub name: String,
    pub value: RegisterValue,
    /// A part of another one.
    pub subregister: bool,
}

/// Where a context came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContextSource {
    Exception,
    Thread,
    Wow64CpuArea,
    Prcb,
    Header,
    ContextRecord,
    TrapFrame,
    SwitchFrame,
    Unwound,
    Live,
}

impl ContextSource {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Exception => "exception",
            Self::Thread => "thread",
            Self::Wow64CpuArea => "wow64_cpu_area",
            Self::Prcb => "prcb",
            Self::Header => "header",
            Self::ContextRecord => "context_record",
            Self::TrapFrame => "trap_frame",
            Self::SwitchFrame => "switch_frame",
            Self::Unwound => "unwound",
            Self::Live => "live",
        }
    }
}

/// The registers of one processor or thread at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Context {
    pub machine: Machine,
    pub source: ContextSource,
    values: [u64; reg::COUNT],
    valid: u64,
    /// xmm0..15 / v0..31 as stored, empty when not recorded.
    pub vectors: Vec<[u8; 16]>,
    /// x87 st0..7 / mm0..7 (80 bits in 16 bytes), empty when not recorded.
    pub x87: Vec<[u8; 16]>,
}

fn u16_at(bytes: &[u8], offset: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(offset..offset + 2)?.try_into().ok()?))
}
fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(offset..offset + 4)?.try_into().ok()?))
}
fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(offset..offset + 8)?.try_into().ok()?))
}
fn vectors_at(bytes: &[u8], offset: usize, count: usize) -> Vec<[u8; 16]> {
    bytes
        .get(offset..offset + 16 * count)
        .map(|area| area.chunks_exact(16).filter_map(|v| v.try_into().ok()).collect())
        .unwrap_or_default()
}

/// CONTEXT_CONTROL of the three machines (winnt.h).
const CONTEXT_CONTROL: u32 = 1;
const CONTEXT_INTEGER: u32 = 2;
const CONTEXT_SEGMENTS: u32 = 4;
const CONTEXT_X64_FLOATING_POINT: u32 = 8;
const CONTEXT_X64_DEBUG: u32 = 0x10;

impl Context {
    /// A context with nothing in it.
    #[must_use]
    pub fn new(machine: Machine, source: ContextSource) -> Self {
        Self { machine, source, values: [0; reg::COUNT], valid: 0, vectors: Vec::new(), x87: Vec::new() }
    }

    /// `CONTEXT` of amd64 (winnt.h, 0x4d0 bytes; anything behind it, XSAVE say, is ignored).
    #[must_use]
    pub fn from_x64(bytes: &[u8], source: ContextSource) -> Option<Self> {
        if bytes.len() < 0x100 {
            return None;
        }
        let flags = u32_at(bytes, 0x30)?;
        if flags & 0x0010_0000 == 0 {
            return None;
        }
        let mut c = Self::new(Machine::X64, source);
        if flags & CONTEXT_CONTROL != 0 {
            c.set(reg::CS, u64::from(u16_at(bytes, 0x38)?));
            c.set(reg::SS, u64::from(u16_at(bytes, 0x42)?));
            c.set(reg::EFLAGS, u64::from(u32_at(bytes, 0x44)?));
            c.set(reg::RSP, u64_at(bytes, 0x98)?);
            c.set(reg::RIP, u64_at(bytes, 0xf8)?);
        }
        if flags & CONTEXT_SEGMENTS != 0 {
            for (number, offset) in [(reg::DS, 0x3a), (reg::ES, 0x3c), (reg::FS, 0x3e), (reg::GS, 0x40)] {
                c.set(number, u64::from(u16_at(bytes, offset)?));
            }
        }
        if flags & CONTEXT_INTEGER != 0 {
            for number in (0..16).filter(|&n| n != reg::RSP) {
                c.set(number, u64_at(bytes, 0x78 + 8 * number)?);
            }
        }
        if flags & CONTEXT_X64_DEBUG != 0 {
            for (index, number) in (reg::DR0..=reg::DR7).enumerate() {
                c.set(number, u64_at(bytes, 0x48 + 8 * index)?);
            }
        }
        if flags & CONTEXT_X64_FLOATING_POINT != 0 && bytes.len() >= 0x2a0 {
            c.set(reg::MXCSR, u64::from(u32_at(bytes, 0x34)?));
            c.set(reg::FPCW, u64::from(u16_at(bytes, 0x100)?));
            c.set(reg::FPSW, u64::from(u16_at(bytes, 0x102)?));
            c.set(reg::FPTW, u64::from(bytes[0x104]));
            c.x87 = vectors_at(bytes, 0x120, 8);
            c.vectors = vectors_at(bytes, 0x1a0, 16);
        }
        Some(c)
    }

    /// `CONTEXT` of x86 / `WOW64_CONTEXT` (716 bytes with ExtendedRegisters, 204 without).
    #[must_use]
    pub fn from_x86(bytes: &[u8], source: ContextSource) -> Option<Self> {
        let flags = u32_at(bytes, 0)?;
        if flags & 0x0001_0000 == 0 || bytes.len() < 204 {
            return None;
        }
        let mut c = Self::new(Machine::X86, source);
        if flags & 0x10 != 0 {
            for (index, number) in (reg::DR0..=reg::DR7).enumerate() {
                c.set(number, u64::from(u32_at(bytes, 4 + 4 * index)?));
            }
        }
        if flags & 8 != 0 {
            for (number, offset) in [(reg::FPCW, 0x1c), (reg::FPSW, 0x20), (reg::FPTW, 0x24)] {
                c.set(number, u64::from(u32_at(bytes, offset)? & 0xffff));
            }
        }
        if flags & CONTEXT_SEGMENTS != 0 {
            for (index, number) in [reg::GS, reg::FS, reg::ES, reg::DS].into_iter().enumerate() {
                c.set(number, u64::from(u32_at(bytes, 0x8c + 4 * index)?));
            }
        }
        if flags & CONTEXT_INTEGER != 0 {
            let order = [reg::RDI, reg::RSI, reg::RBX, reg::RDX, reg::RCX, reg::RAX];
            for (index, number) in order.into_iter().enumerate() {
                c.set(number, u64::from(u32_at(bytes, 0x9c + 4 * index)?));
            }
        }
        if flags & CONTEXT_CONTROL != 0 {
            let order = [reg::RBP, reg::RIP, reg::CS, reg::EFLAGS, reg::RSP, reg::SS];
            for (index, number) in order.into_iter().enumerate() {
                c.set(number, u64::from(u32_at(bytes, 0xb4 + 4 * index)?));
            }
        }
        if flags & 0x20 != 0 && bytes.len() >= 716 {
            // ExtendedRegisters is an FXSAVE image.
            c.set(reg::MXCSR, u64::from(u32_at(bytes, 0xcc + 0x18)?));
            c.vectors = vectors_at(bytes, 0xcc + 0xa0, 8);
        }
        Some(c)
    }

    /// `CONTEXT` of ARM64 (0x390 bytes).
    #[must_use]
    pub fn from_arm64(bytes: &[u8], source: ContextSource) -> Option<Self> {
        let flags = u32_at(bytes, 0)?;
        if flags & 0x0040_0000 == 0 || bytes.len() < 0x110 {
            return None;
        }
        let mut c = Self::new(Machine::Arm64, source);
        if flags & CONTEXT_INTEGER != 0 {
            for number in 0..29 {
                c.set(number, u64_at(bytes, 8 + 8 * number)?);
            }
        }
        if flags & CONTEXT_CONTROL != 0 {
            c.set(reg::A64_CPSR, u64::from(u32_at(bytes, 4)?));
            for number in reg::A64_FP..=reg::A64_PC {
                c.set(number, u64_at(bytes, 8 + 8 * number)?);
            }
        }
        if flags & 4 != 0 {
            c.vectors = vectors_at(bytes, 0x110, 32);
        }
        Some(c)
    }

    /// The context record of `machine` in `bytes`.
    #[must_use]
    pub fn from_bytes(machine: Machine, bytes: &[u8], source: ContextSource) -> Option<Self> {
        match machine {
            Machine::X64 => Self::from_x64(bytes, source),
            Machine::X86 => Self::from_x86(bytes, source),
            Machine::Arm64 => Self::from_arm64(bytes, source),
            Machine::Arm32 => None,
        }
    }

    /// Bytes of a whole `CONTEXT` record of `machine`.
    #[must_use]
    pub fn record_size(machine: Machine) -> usize {
        match machine {
            Machine::X64 => 0x4d0,
            Machine::X86 => 716,
            Machine::Arm64 => 0x390,
            Machine::Arm32 => 0x1a0,
        }
    }

    /// `KTRAP_FRAME` of x64 (0x190 bytes, offsets of spec 80 section 9).
    #[must_use]
    pub fn from_x64_trap_frame(bytes: &[u8]) -> Option<Self> {
        let mut c = Self::new(Machine::X64, ContextSource::TrapFrame);
        const FIELDS: [(usize, usize); 13] = [
            (reg::RAX, 0x30),
            (reg::RCX, 0x38),
            (reg::RDX, 0x40),
            (8, 0x48),
            (9, 0x50),
            (10, 0x58),
            (11, 0x60),
            (reg::RBX, 0x140),
            (reg::RDI, 0x148),
            (reg::RSI, 0x150),
            (reg::RBP, 0x158),
            (reg::RIP, 0x168),
            (reg::RSP, 0x180),
        ];
        for (number, offset) in FIELDS {
            c.set(number, u64_at(bytes, offset)?);
        }
        c.set(reg::CS, u64::from(u16_at(bytes, 0x170)?));
        c.set(reg::EFLAGS, u64::from(u32_at(bytes, 0x178)?));
        c.set(reg::SS, u64::from(u16_at(bytes, 0x188)?));
        Some(c)
    }

    /// The low halves of an x64 context that was running 32-bit code (CS 0x23).
    #[must_use]
    pub fn truncated_to_x86(&self) -> Self {
        let mut c = Self::new(Machine::X86, self.source);
        for number in (0..reg::COUNT).filter(|n| !(8..16).contains(n)) {
            if let Some(value) = self.get(number) {
                c.set(number, value & 0xffff_ffff);
            }
        }
        c.vectors = self.vectors.iter().take(8).copied().collect();
        c
    }

    #[must_use]
    pub fn get(&self, number: usize) -> Option<u64> {
        (number < reg::COUNT && self.valid >> number & 1 == 1).then(|| self.values[number])
    }
    /// Sets a register and marks it valid. Numbers past the last are ignored.
    pub fn set(&mut self, number: usize, value: u64) {
        if number < reg::COUNT {
            self.values[number] = value;
            self.valid |= 1 << number;
        }
    }
    /// Marks a register as not known.
    pub fn forget(&mut self, number: usize) {
        if number < reg::COUNT {
            self.valid &= !(1 << number);
        }
    }

    fn ip_number(&self) -> usize {
        if self.machine == Machine::Arm64 { reg::A64_PC } else { reg::RIP }
    }
    fn sp_number(&self) -> usize {
        if self.machine == Machine::Arm64 { reg::A64_SP } else { reg::RSP }
    }
    fn fp_number(&self) -> usize {
        if self.machine == Machine::Arm64 { reg::A64_FP } else { reg::RBP }
    }
    /// Instruction pointer, 0 when unknown.
    #[must_use]
    pub fn ip(&self) -> u64 {
        self.get(self.ip_number()).unwrap_or(0)
    }
    /// Stack pointer, 0 when unknown.
    #[must_use]
    pub fn sp(&self) -> u64 {
        self.get(self.sp_number()).unwrap_or(0)
    }
    /// Frame pointer (rbp, ebp, x29), if known.
    #[must_use]
    pub fn fp(&self) -> Option<u64> {
        self.get(self.fp_number())
    }
    pub fn set_ip(&mut self, value: u64) {
        self.set(self.ip_number(), value);
    }
    pub fn set_sp(&mut self, value: u64) {
        self.set(self.sp_number(), value);
    }
    pub fn set_fp(&mut self, value: u64) {
        self.set(self.fp_number(), value);
    }

    /// The debugger's name of a register, `None` where the machine has none of that number.
    #[must_use]
    pub fn register_name(machine: Machine, number: usize) -> Option<&'static str> {
        names(machine).get(number).copied().filter(|name| !name.is_empty())
    }

    /// Register numbers of `machine` in the debugger's display order.
    #[must_use]
    pub fn display_order(machine: Machine) -> &'static [usize] {
        if machine == Machine::X86 { &X86_ORDER } else { &X64_ORDER }
    }

    /// A register by the debugger's name, sub-registers (`eax`, `ax`, `al`, `ah`, `r8d`, `w0`) and
    /// aliases (`$ip`, `$csp`, `x29`) included, any case, with or without `@`.
    #[must_use]
    pub fn by_name(&self, name: &str) -> Option<u64> {
        let (number, shift, bits) = Self::locate(self.machine, name)?;
        let value = self.get(number)? >> shift;
        Some(if bits >= 64 { value } else { value & ((1 << bits) - 1) })
    }

    /// Whether `machine` has a register of this name at all.
    #[must_use]
    pub fn is_register(machine: Machine, name: &str) -> bool {
        Self::locate(machine, name).is_some()
    }

    /// Where a register or a part of one is, by any name [`Self::by_name`] knows: the register's number,
    /// the part's lowest bit, and its width in bits.
    #[must_use]
    pub fn locate(machine: Machine, name: &str) -> Option<(usize, u32, u32)> {
        let lower = name.trim_start_matches('@').to_ascii_lowercase();
        let name = lower.as_str();
        let full = if machine == Machine::X86 { 32 } else { 64 };
        let probe = Self::new(machine, ContextSource::Live);
        match name {
            "$ip" => return Some((probe.ip_number(), 0, full)),
            "$csp" => return Some((probe.sp_number(), 0, full)),
            "$retreg" => return Some((0, 0, full)),
            _ => {}
        }
        if let Some(number) = names(machine).iter().position(|n| !n.is_empty() && *n == name) {
            return Some((number, 0, full));
        }
        match machine {
            Machine::X64 | Machine::X86 => locate_x86_part(machine, name),
            Machine::Arm64 => {
                if let Some(number) = name.strip_prefix('w').and_then(|n| n.parse::<usize>().ok()) {
                    return (number <= 30).then_some((number, 0, 32));
                }
                match name {
                    "x29" => Some((reg::A64_FP, 0, 64)),
                    "x30" => Some((reg::A64_LR, 0, 64)),
                    _ => None,
                }
            }
            Machine::Arm32 => None,
        }
    }
}

fn locate_x86_part(machine: Machine, name: &str) -> Option<(usize, u32, u32)> {
    const WIDE: [&str; 8] = ["ax", "cx", "dx", "bx", "sp", "bp", "si", "di"];
    const LOW: [&str; 8] = ["al", "cl", "dl", "bl", "spl", "bpl", "sil", "dil"];
    const HIGH: [&str; 4] = ["ah", "ch", "dh", "bh"];
    if name == "eflags" || name == "rflags" {
        return Some((reg::EFLAGS, 0, 32));
    }
    if machine == Machine::X64 {
        if name == "eip" {
            return Some((reg::RIP, 0, 32));
        }
        if let Some(index) = name.strip_prefix('e').and_then(|n| WIDE.iter().position(|w| *w == n)) {
            return Some((index, 0, 32));
        }
        if let Some(rest) = name.strip_prefix('r') {
            let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
            if let Ok(number @ 8..=15) = digits.parse::<usize>() {
                let bits = match &rest[digits.len()..] {
                    "d" => 32,
                    "w" => 16,
                    "b" => 8,
                    _ => return None,
                };
                return Some((number, 0, bits));
            }
        }
    }
    WIDE.iter()
        .position(|n| *n == name)
        .map(|index| (index, 0, 16))
        .or_else(|| LOW.iter().position(|n| *n == name).map(|index| (index, 0, 8)))
        .or_else(|| HIGH.iter().position(|n| *n == name).map(|index| (index, 8, 8)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_parts_a_record_declares_are_valid() {
        let mut bytes = vec![0u8; 0x4d0];
        bytes[0x30..0x34].copy_from_slice(&0x0010_0001u32.to_le_bytes());
        bytes[0xf8..0x100].copy_from_slice(&0x1234u64.to_le_bytes());
        let c = Context::from_x64(&bytes, ContextSource::Thread).unwrap();
        assert_eq!(c.ip(), 0x1234);
        assert_eq!(c.get(reg::RAX), None);
        assert!(Context::from_x64(&[0; 0x4d0], ContextSource::Thread).is_none());
        assert!(Context::from_x86(&[0; 3], ContextSource::Thread).is_none());
    }

    #[test]
    fn names_reach_parts() {
        let mut c = Context::new(Machine::X64, ContextSource::Thread);
        c.set(reg::RAX, 0x1122_3344_5566_7788);
        c.set(9, 0xffff_ffff_0000_0001);
        assert_eq!(c.by_name("@eax"), Some(0x5566_7788));
        assert_eq!(c.by_name("AH"), Some(0x77));
        assert_eq!(c.by_name("r9d"), Some(1));
        assert_eq!(c.by_name("rbx"), None);
        assert!(Context::is_register(Machine::X64, "rbx"));
        assert!(!Context::is_register(Machine::X86, "rbx"));
    }
}
