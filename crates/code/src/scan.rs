//! Decoding whole sections: only what references and control flow need, a record on demand.

use iced_x86::{Decoder, DecoderOptions, Instruction, OpKind, Register};
use target::Machine;

use crate::record::{self, Decoded, Privilege, Recorder, Transfer};

/// How an instruction names an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mention {
    /// Direct call, jump, conditional branch.
    Call,
    Jump,
    Branch,
    /// The address itself is computed: `lea`, `adr`, `mov reg, imm`, `push imm`.
    Taken,
    /// Memory at the address is read or written (rip-relative, absolute, literal).
    Accessed,
}

/// One instruction, lightly decoded.
#[derive(Clone, Copy, Debug)]
pub struct Scanned {
    pub address: u64,
    pub length: u8,
    pub transfer: Transfer,
    raw: Light,
}

#[derive(Clone, Copy, Debug)]
enum Light {
    X86(Instruction),
    Arm64(u32),
    None,
}

/// Decodes from the start of `bytes`, which lie at `address`. Give as many bytes as there are;
/// the instruction's are the first `length`.
#[must_use]
pub fn scan(machine: Machine, address: u64, bytes: &[u8]) -> Scanned {
    Scanner::new(machine, address, &bytes[..bytes.len().min(crate::MAX_INSTRUCTION)]).at(0, bytes.len())
}

/// Decodes anywhere in a run of bytes.
pub struct Scanner<'b> {
    machine: Machine,
    start: u64,
    bytes: &'b [u8],
    decoder: Option<Decoder<'b>>,
}

impl<'b> Scanner<'b> {
    /// Over `bytes`, the first of which lies at `start`.
    #[must_use]
    pub fn new(machine: Machine, start: u64, bytes: &'b [u8]) -> Self {
        let bits = match machine {
            Machine::X64 => Some(64),
            Machine::X86 => Some(32),
            Machine::Arm64 | Machine::Arm32 => None,
        };
        let decoder = bits.map(|bits| Decoder::with_ip(bits, bytes, start, DecoderOptions::NONE));
        Self { machine, start, bytes, decoder }
    }

    /// The instruction `offset` bytes in. One that reaches past `end` is undecodable.
    #[must_use]
    pub fn at(&mut self, offset: usize, end: usize) -> Scanned {
        let address = self.start.wrapping_add(offset as u64);
        let left = end.min(self.bytes.len()).saturating_sub(offset);
        let none = |length: usize| Scanned {
            address,
            length: left.min(length) as u8,
            transfer: Transfer::Undecodable,
            raw: Light::None,
        };
        let Some(decoder) = &mut self.decoder else {
            let raw = self.bytes.get(offset..).and_then(|b| b.get(..4)).and_then(|b| b.try_into().ok());
            return match (self.machine, raw.filter(|_| left >= 4)) {
                (Machine::Arm64, Some(raw)) => {
                    let word = u32::from_le_bytes(raw);
                    let transfer = record::arm64_transfer(address, word);
                    Scanned { address, length: 4, transfer, raw: Light::Arm64(word) }
                }
                (Machine::Arm64, None) => none(4),
                _ => none(2),
            };
        };
        if left == 0 || decoder.set_position(offset).is_err() {
            return none(0);
        }
        decoder.set_ip(address);
        let mut out = Scanned {
            address,
            length: 0,
            transfer: Transfer::Undecodable,
            raw: Light::X86(Instruction::default()),
        };
        let Light::X86(instruction) = &mut out.raw else { return none(1) };
        decoder.decode_out(instruction);
        if instruction.is_invalid() || instruction.len() > left {
            return none(1);
        }
        out.length = instruction.len() as u8;
        out.transfer = record::x86_transfer(instruction);
        out
    }
}

impl Scanned {
    #[must_use]
    pub fn end(&self) -> u64 {
        self.address.wrapping_add(u64::from(self.length))
    }

    /// Addresses the instruction names by itself, at most three. ARM64 pairs (`adrp`, `add`) are
    /// two instructions: the page of `adrp` comes with [`Scanned::page`].
    pub fn mentions(&self, mut visit: impl FnMut(u64, Mention)) {
        match self.transfer {
            Transfer::Call(Some(target)) => return visit(target, Mention::Call),
            Transfer::Jump(Some(target)) => return visit(target, Mention::Jump),
            Transfer::Branch(Some(target)) => return visit(target, Mention::Branch),
            _ => {}
        }
        match &self.raw {
            Light::X86(instruction) => x86_mentions(instruction, visit),
            Light::Arm64(word) => match crate::decode_arm64(*word) {
                crate::Arm64::Adr { offset, page: false, .. } => {
                    visit(self.address.wrapping_add_signed(offset), Mention::Taken);
                }
                crate::Arm64::LoadLiteral { offset, .. } => {
                    visit(self.address.wrapping_add_signed(offset), Mention::Accessed);
                }
                _ => {}
            },
            Light::None => {}
        }
    }

    /// ARM64: the page an `adrp` computes, and its register.
    #[must_use]
    pub fn page(&self) -> Option<(u8, u64)> {
        let Light::Arm64(word) = self.raw else { return None };
        match crate::decode_arm64(word) {
            crate::Arm64::Adr { register, offset, page: true } => {
                Some((register, (self.address & !0xfff).wrapping_add_signed(offset)))
            }
            _ => None,
        }
    }

    /// ARM64: the word.
    #[must_use]
    pub fn word(&self) -> Option<u32> {
        match self.raw {
            Light::Arm64(word) => Some(word),
            _ => None,
        }
    }

    /// iced's instruction.
    #[must_use]
    pub fn iced(&self) -> Option<&Instruction> {
        match &self.raw {
            Light::X86(instruction) => Some(instruction),
            _ => None,
        }
    }

    /// Whether ring 0 is needed, by the encoding.
    #[must_use]
    pub fn privilege(&self) -> Option<Privilege> {
        match &self.raw {
            Light::X86(instruction) => record::x86_privilege(instruction),
            Light::Arm64(word) => record::arm64_privilege(*word),
            Light::None => None,
        }
    }

    /// x86 and x64: `sgdt`, `sidt`, `sldt`, `str`, `smsw`: descriptor state without privilege.
    #[must_use]
    pub fn reads_descriptor_state(&self) -> bool {
        use iced_x86::Mnemonic as M;
        self.iced().is_some_and(|i| matches!(i.mnemonic(), M::Sgdt | M::Sidt | M::Sldt | M::Str | M::Smsw))
    }

    /// The full record; `bytes` are those the instruction was scanned from.
    #[must_use]
    pub fn record(&self, recorder: &mut Recorder, bytes: &[u8]) -> Decoded {
        recorder.record(self.address, bytes)
    }
}

fn x86_mentions(instruction: &Instruction, mut visit: impl FnMut(u64, Mention)) {
    let only_computed = instruction.mnemonic() == iced_x86::Mnemonic::Lea;
    for index in 0..instruction.op_count() {
        match instruction.op_kind(index) {
            OpKind::Memory if !matches!(instruction.segment_prefix(), Register::FS | Register::GS) => {
                let kind = if only_computed { Mention::Taken } else { Mention::Accessed };
                if instruction.is_ip_rel_memory_operand() {
                    visit(instruction.ip_rel_memory_address(), kind);
                } else if instruction.memory_base() == Register::None || instruction.memory_displ_size() >= 4
                {
                    // `[table+rcx*4]`: the displacement is an address where it lies in an image.
                    let kind = if instruction.memory_base() == Register::None
                        && instruction.memory_index() == Register::None
                    {
                        kind
                    } else {
                        Mention::Taken
                    };
                    visit(instruction.memory_displacement64(), kind);
                }
            }
            OpKind::Immediate32 | OpKind::Immediate64 | OpKind::Immediate32to64 => {
                visit(instruction.immediate(index), Mention::Taken);
            }
            _ => {}
        }
    }
}
