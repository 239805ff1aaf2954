//! ARM64: an own decoder for what analyses and unwinders need, text by yaxpeax-arm.
//!
//! Encodings: Arm Architecture Reference Manual, DDI 0487, chapter C4.

use target::value::backticked;
use target::{Flow, HexBytes, Instruction};
use yaxpeax_arch::{Decoder as _, U8Reader};

use crate::{Symbolizer, invalid};

/// How a register offset is widened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extend {
    Uxtw,
    Lsl,
    Sxtw,
    Sxtx,
}

impl Extend {
    pub(crate) fn apply(self, value: u64) -> u64 {
        match self {
            Self::Uxtw => value & 0xffff_ffff,
            Self::Sxtw => i64::from(value as u32 as i32) as u64,
            Self::Lsl | Self::Sxtx => value,
        }
    }
}

/// The address of a load or store. Offsets in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addressing {
    Offset(i64),
    /// The base is changed first, then used.
    PreIndex(i64),
    /// The base is used, then changed.
    PostIndex(i64),
    Register {
        index: u8,
        extend: Extend,
        shift: u8,
    },
}

/// A load or store. Register 31 as base is sp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryInstruction {
    pub load: bool,
    pub store: bool,
    /// `first` and `second` are SIMD registers.
    pub vector: bool,
    pub first: u8,
    /// Of a pair.
    pub second: Option<u8>,
    pub base: u8,
    pub addressing: Addressing,
    /// Bytes of one register's access.
    pub size: u8,
    /// Registers accessed.
    pub count: u8,
}

/// An ARM64 instruction as far as analyses and unwinders need it. Offsets are in bytes from the
/// instruction itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arm64 {
    Branch {
        offset: i64,
    },
    BranchLink {
        offset: i64,
    },
    /// `b.cond`, `cbz`, `cbnz`, `tbz`, `tbnz`.
    ConditionalBranch {
        offset: i64,
    },
    BranchRegister {
        register: u8,
        authenticated: bool,
    },
    BranchLinkRegister {
        register: u8,
        authenticated: bool,
    },
    Return {
        register: u8,
        authenticated: bool,
    },
    ExceptionReturn,
    /// `adr` (offset from the instruction) and `adrp` (pages: from its 4 KiB page).
    Adr {
        register: u8,
        offset: i64,
        page: bool,
    },
    /// `add`/`sub` immediate, `sub` with a negative `immediate`; register 31 is sp unless `flags`.
    AddImmediate {
        destination: u8,
        source: u8,
        immediate: i64,
        wide: bool,
        flags: bool,
    },
    /// `add`/`sub` of an extended register (how `sub sp, sp, x15, lsl #4` is encoded).
    AddExtended {
        destination: u8,
        source: u8,
        index: u8,
        shift: u8,
        subtract: bool,
    },
    /// `mov` of a register (`orr` with zero).
    Move {
        destination: u8,
        source: u8,
    },
    /// `movz`, `movn`: the whole value.
    MoveImmediate {
        destination: u8,
        value: u64,
    },
    /// `movk`.
    MoveKeep {
        destination: u8,
        value: u16,
        shift: u8,
    },
    LoadLiteral {
        register: u8,
        offset: i64,
        size: u8,
        vector: bool,
        prefetch: bool,
    },
    Memory(MemoryInstruction),
    /// `brk` and its 16-bit code.
    Break(u16),
    SupervisorCall(u16),
    Undefined,
    /// `hint` number: 0 nop, 25 paciasp, 27 pacibsp, 29 autiasp, 31 autibsp, 32.. bti.
    Hint(u8),
    Other,
}

impl Arm64 {
    /// `bl`, `blr` and their authenticated forms.
    #[must_use]
    pub fn is_call(self) -> bool {
        matches!(self, Self::BranchLink { .. } | Self::BranchLinkRegister { .. })
    }

    fn flow(self) -> Flow {
        match self {
            Self::Branch { .. } => Flow::Branch,
            Self::BranchLink { .. } => Flow::Call,
            Self::ConditionalBranch { .. } => Flow::ConditionalBranch,
            Self::BranchRegister { .. } => Flow::IndirectBranch,
            Self::BranchLinkRegister { .. } => Flow::IndirectCall,
            Self::Return { .. } | Self::ExceptionReturn => Flow::Return,
            Self::Break(_) | Self::Undefined => Flow::Trap,
            _ => Flow::Next,
        }
    }
}

/// Bits `[high:low]` of `word`.
fn bits(word: u32, high: u32, low: u32) -> u32 {
    word >> low & (u32::MAX >> (31 - (high - low)))
}
/// Bits as a signed number.
fn signed(word: u32, high: u32, low: u32) -> i64 {
    let width = high - low + 1;
    i64::from((bits(word, high, low) << (32 - width)) as i32 >> (32 - width))
}
/// A five-bit register field.
fn register(word: u32, low: u32) -> u8 {
    (word >> low & 31) as u8
}

/// Decodes one word.
#[must_use]
pub fn decode(word: u32) -> Arm64 {
    match bits(word, 28, 25) {
        0b0000 if word >> 16 == 0 => Arm64::Undefined,
        0b1000 | 0b1001 => data_immediate(word),
        0b1010 | 0b1011 => branch_or_system(word),
        0b0100 | 0b0110 | 0b1100 | 0b1110 => load_store(word),
        0b0101 | 0b1101 => data_register(word),
        _ => Arm64::Other,
    }
}

fn data_immediate(word: u32) -> Arm64 {
    match bits(word, 25, 23) {
        0b000 | 0b001 => {
            let page = word >> 31 == 1;
            let offset = signed(word, 23, 5) << 2 | i64::from(bits(word, 30, 29));
            let offset = if page { offset << 12 } else { offset };
            Arm64::Adr { register: register(word, 0), offset, page }
        }
        0b010 => {
            let shift = if bits(word, 22, 22) == 1 { 12 } else { 0 };
            let magnitude = i64::from(bits(word, 21, 10)) << shift;
            Arm64::AddImmediate {
                destination: register(word, 0),
                source: register(word, 5),
                immediate: if bits(word, 30, 30) == 1 { -magnitude } else { magnitude },
                wide: word >> 31 == 1,
                flags: bits(word, 29, 29) == 1,
            }
        }
        0b101 => {
            let shift = bits(word, 22, 21) * 16;
            let value = u64::from(bits(word, 20, 5)) << shift;
            let mask = if word >> 31 == 1 { u64::MAX } else { 0xffff_ffff };
            let destination = register(word, 0);
            match bits(word, 30, 29) {
                0b00 => Arm64::MoveImmediate { destination, value: !value & mask },
                0b10 => Arm64::MoveImmediate { destination, value: value & mask },
                0b11 => Arm64::MoveKeep { destination, value: bits(word, 20, 5) as u16, shift: shift as u8 },
                _ => Arm64::Other,
            }
        }
        _ => Arm64::Other,
    }
}

fn branch_or_system(word: u32) -> Arm64 {
    if bits(word, 30, 26) == 0b00101 {
        let offset = signed(word, 25, 0) << 2;
        return if word >> 31 == 1 { Arm64::BranchLink { offset } } else { Arm64::Branch { offset } };
    }
    if bits(word, 31, 25) == 0b010_1010 || bits(word, 30, 25) == 0b01_1010 {
        return Arm64::ConditionalBranch { offset: signed(word, 23, 5) << 2 };
    }
    if bits(word, 30, 25) == 0b01_1011 {
        return Arm64::ConditionalBranch { offset: signed(word, 18, 5) << 2 };
    }
    if bits(word, 31, 24) == 0b1101_0100 {
        let code = bits(word, 20, 5) as u16;
        return match (bits(word, 23, 21), bits(word, 1, 0)) {
            (0, 1) => Arm64::SupervisorCall(code),
            (1, 0) => Arm64::Break(code),
            _ => Arm64::Other,
        };
    }
    if word & 0xffff_f01f == 0xd503_201f {
        return Arm64::Hint(bits(word, 11, 5) as u8);
    }
    if bits(word, 31, 25) == 0b110_1011 {
        return branch_register(word);
    }
    Arm64::Other
}

fn branch_register(word: u32) -> Arm64 {
    let authenticated = bits(word, 11, 10) == 0b10;
    let target = register(word, 5);
    match bits(word, 24, 21) {
        0b0000 | 0b1000 => Arm64::BranchRegister { register: target, authenticated },
        0b0001 | 0b1001 => Arm64::BranchLinkRegister { register: target, authenticated },
        // retaa and retab name x31 and mean the link register.
        0b0010 => Arm64::Return { register: if authenticated { 30 } else { target }, authenticated },
        0b0100 => Arm64::ExceptionReturn,
        _ => Arm64::Other,
    }
}

fn data_register(word: u32) -> Arm64 {
    // mov Xd, Xm = orr Xd, xzr, Xm with no shift.
    if word & 0xffe0_ffe0 == 0xaa00_03e0 {
        return Arm64::Move { destination: register(word, 0), source: register(word, 16) };
    }
    // add/sub (extended register), 64 bits, no flags.
    if word & 0xbfe0_0000 == 0x8b20_0000 {
        return Arm64::AddExtended {
            destination: register(word, 0),
            source: register(word, 5),
            index: register(word, 16),
            shift: bits(word, 12, 10) as u8,
            subtract: bits(word, 30, 30) == 1,
        };
    }
    Arm64::Other
}

fn load_store(word: u32) -> Arm64 {
    let vector = bits(word, 26, 26) == 1;
    match bits(word, 29, 27) {
        0b011 => load_literal(word, vector),
        0b101 => load_store_pair(word, vector),
        0b111 => load_store_single(word, vector),
        0b001 if !vector => exclusive(word),
        _ => Arm64::Other,
    }
}

fn load_literal(word: u32, vector: bool) -> Arm64 {
    if bits(word, 24, 24) == 1 {
        // Unscaled release/acquire (ldapur, stlur): not decoded.
        return Arm64::Other;
    }
    let opc = bits(word, 31, 30);
    let size = match (vector, opc) {
        (_, 0) => 4,
        (_, 1) => 8,
        (true, 2) => 16,
        (false, 2) => 4,
        (false, _) => 0,
        (true, _) => return Arm64::Other,
    };
    Arm64::LoadLiteral {
        register: register(word, 0),
        offset: signed(word, 23, 5) << 2,
        size,
        vector,
        prefetch: !vector && opc == 3,
    }
}

fn load_store_pair(word: u32, vector: bool) -> Arm64 {
    let opc = bits(word, 31, 30);
    let size = match (vector, opc) {
        (false, 0 | 1) => 4,
        (false, 2) => 8,
        (true, 0) => 4,
        (true, 1) => 8,
        (true, 2) => 16,
        _ => return Arm64::Other,
    };
    let offset = signed(word, 21, 15) * i64::from(size);
    let addressing = match bits(word, 24, 23) {
        0b01 => Addressing::PostIndex(offset),
        0b11 => Addressing::PreIndex(offset),
        _ => Addressing::Offset(offset),
    };
    let load = bits(word, 22, 22) == 1;
    Arm64::Memory(MemoryInstruction {
        load,
        store: !load,
        vector,
        first: register(word, 0),
        second: Some(register(word, 10)),
        base: register(word, 5),
        addressing,
        size,
        count: 2,
    })
}

/// `(bytes, load)` of the size and opc fields; `None` for a prefetch.
fn single_kind(word: u32, vector: bool) -> Option<(u8, bool)> {
    let (size, opc) = (bits(word, 31, 30), bits(word, 23, 22));
    if vector {
        return Some(if opc >= 2 { (16, opc == 3) } else { (1 << size, opc == 1) });
    }
    if size == 3 && opc == 2 { None } else { Some((1 << size, opc != 0)) }
}

fn load_store_single(word: u32, vector: bool) -> Arm64 {
    let kind = single_kind(word, vector);
    let size = kind.map_or(0, |k| k.0);
    let (mut load, mut store) = kind.map_or((false, false), |k| (k.1, !k.1));
    let imm9 = signed(word, 20, 12);
    let addressing = if bits(word, 24, 24) == 1 {
        Addressing::Offset(i64::from(bits(word, 21, 10)) * i64::from(size.max(1)))
    } else {
        match (bits(word, 21, 21), bits(word, 11, 10)) {
            (0, 0b00 | 0b10) => Addressing::Offset(imm9),
            (0, 0b01) => Addressing::PostIndex(imm9),
            (0, _) => Addressing::PreIndex(imm9),
            (_, 0b10) => register_offset(word, size),
            // Atomics (ldadd, swp, cas-less): read and write at [base].
            (_, 0b00) => {
                (load, store) = (true, true);
                Addressing::Offset(0)
            }
            // Authenticated loads (ldraa, ldrab): 10-bit signed offset of 8 bytes.
            _ => {
                let offset = (i64::from(bits(word, 20, 12)) | (-(i64::from(bits(word, 22, 22))) << 9)) * 8;
                (load, store) = (true, false);
                if bits(word, 11, 11) == 1 {
                    Addressing::PreIndex(offset)
                } else {
                    Addressing::Offset(offset)
                }
            }
        }
    };
    Arm64::Memory(MemoryInstruction {
        load,
        store,
        vector,
        first: register(word, 0),
        second: None,
        base: register(word, 5),
        addressing,
        size,
        count: 1,
    })
}

fn register_offset(word: u32, size: u8) -> Addressing {
    let extend = match bits(word, 15, 13) {
        0b010 => Extend::Uxtw,
        0b110 => Extend::Sxtw,
        0b111 => Extend::Sxtx,
        _ => Extend::Lsl,
    };
    let shift = if bits(word, 12, 12) == 1 { size.max(1).trailing_zeros() as u8 } else { 0 };
    Addressing::Register { index: register(word, 16), extend, shift }
}

/// Exclusive, ordered (`ldar`, `stlr`) and compare-and-swap accesses: `[base]`, no offset.
fn exclusive(word: u32) -> Arm64 {
    if bits(word, 24, 24) == 1 {
        return Arm64::Other;
    }
    let load = bits(word, 22, 22) == 1;
    let ordered = bits(word, 23, 23) == 1;
    let o1 = bits(word, 21, 21) == 1;
    let compare_and_swap = ordered && o1;
    let pair = !ordered && o1;
    Arm64::Memory(MemoryInstruction {
        load: load || compare_and_swap,
        store: !load || compare_and_swap,
        vector: false,
        first: register(word, 0),
        second: pair.then(|| register(word, 10)),
        base: register(word, 5),
        addressing: Addressing::Offset(0),
        size: 1 << bits(word, 31, 30),
        count: if pair { 2 } else { 1 },
    })
}

/// Address `offset` bytes from the instruction, or from its page.
fn relative(address: u64, offset: i64, page: bool) -> u64 {
    let from = if page { address & !0xfff } else { address };
    from.wrapping_add_signed(offset)
}

pub(crate) fn instruction(address: u64, bytes: &[u8], symbols: Option<Symbolizer<'_>>) -> Instruction {
    let Some(raw) = bytes.get(..4).and_then(|b| <[u8; 4]>::try_from(b).ok()) else {
        return invalid(address, &bytes[..bytes.len().min(4)]);
    };
    let word = u32::from_le_bytes(raw);
    let decoded = decode(word);
    let target = match decoded {
        Arm64::Branch { offset } | Arm64::BranchLink { offset } | Arm64::ConditionalBranch { offset } => {
            Some(relative(address, offset, false))
        }
        _ => None,
    };
    let data_address = match decoded {
        Arm64::Adr { offset, page, .. } => Some(relative(address, offset, page)),
        Arm64::LoadLiteral { offset, .. } => Some(relative(address, offset, false)),
        _ => None,
    };
    let text = text(word, &raw, target.or(data_address), symbols);
    let flow = if text.is_none() { Flow::Invalid } else { decoded.flow() };
    Instruction { address, bytes: HexBytes(raw.to_vec()), text, target, flow, data_address }
}

fn text(word: u32, raw: &[u8; 4], operand: Option<u64>, symbols: Option<Symbolizer<'_>>) -> Option<String> {
    if let Some(text) = own_text(word) {
        return Some(text);
    }
    let text = debugger_names(&read_word(raw)?.to_string());
    let Some(address) = operand else { return Some(text) };
    // yaxpeax writes pc-relative operands as `$+0x40`.
    let Some(at) = text.find('$') else { return Some(text) };
    let end = text[at..].find([',', ' ', ']']).map_or(text.len(), |e| at + e);
    let number = backticked(address);
    let operand = match symbols.and_then(|name| name(address)) {
        Some(name) => format!("{name} ({number})"),
        None => number,
    };
    Some(format!("{}{operand}{}", &text[..at], &text[end..]))
}

/// x29 and x30 are fp and lr to the debugger.
fn debugger_names(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("x29").into_iter().chain(rest.find("x30")).min() {
        let digit_before = rest[..at].ends_with(|c: char| c.is_ascii_alphanumeric());
        let digit_after = rest[at + 3..].starts_with(|c: char| c.is_ascii_alphanumeric());
        out.push_str(&rest[..at]);
        let name = &rest[at..at + 3];
        out.push_str(match name {
            _ if digit_before || digit_after => name,
            "x29" => "fp",
            _ => "lr",
        });
        rest = &rest[at + 3..];
    }
    out.push_str(rest);
    out
}

/// yaxpeax's reading. Some reserved encodings it reads as an instruction called `invalid`.
pub(crate) fn read_word(raw: &[u8; 4]) -> Option<yaxpeax_arm::armv8::a64::Instruction> {
    use yaxpeax_arm::armv8::a64::{InstDecoder, Opcode, Operand, SizeCode};
    let mut instruction = InstDecoder::default().decode(&mut U8Reader::new(raw)).ok()?;
    // yaxpeax 0.5 takes four bits for the register of `msr`.
    if instruction.opcode == Opcode::MSR
        && let Some(register @ Operand::Register(..)) = instruction.operands.get_mut(1)
    {
        *register = Operand::Register(SizeCode::X, u16::from(raw[0] & 0x1f));
    }
    (instruction.opcode != Opcode::Invalid).then_some(instruction)
}

/// Whether a word yaxpeax may not know is an instruction.
pub(crate) fn is_known(word: u32) -> bool {
    own_text(word).is_some()
}

/// What yaxpeax does not know or spells oddly.
fn own_text(word: u32) -> Option<String> {
    let fixed = match word {
        0xd65f_0bff => "retaa",
        0xd65f_0fff => "retab",
        0xd503_233f => "paciasp",
        0xd503_237f => "pacibsp",
        0xd503_23bf => "autiasp",
        0xd503_23ff => "autibsp",
        0xd503_20ff => "xpaclri",
        0xd503_241f => "bti",
        0xd503_245f => "bti c",
        0xd503_249f => "bti j",
        0xd503_24df => "bti jc",
        0xd503_201f => "nop",
        _ => return None,
    };
    Some(fixed.to_owned())
}
