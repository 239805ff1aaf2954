//! A processor's registers (`CONTEXT` of x64).

use crate::DecodeError;
use crate::bytes::{Fields, Record};

/// Parts of a CONTEXT, in its flags. A target sets only the bits whose fields it filled.
pub mod flags {
    /// `CONTEXT_AMD64`.
    pub const AMD64: u32 = 0x10_0000;
    /// CS, SS, RSP, RIP, EFLAGS.
    pub const CONTROL: u32 = AMD64 | 1;
    /// The other general registers.
    pub const INTEGER: u32 = AMD64 | 2;
    /// DS, ES, FS, GS.
    pub const SEGMENTS: u32 = AMD64 | 4;
    /// XMM, x87, MXCSR.
    pub const FLOATING_POINT: u32 = AMD64 | 8;
    /// DR0 to DR3, DR6, DR7.
    pub const DEBUG_REGISTERS: u32 = AMD64 | 0x10;
}

const FLAGS: usize = 0x30;
const MXCSR: usize = 0x34;
const SEGMENTS: usize = 0x38;
const EFLAGS: usize = 0x44;
const DR: usize = 0x48;
const GENERAL: usize = 0x78;
const RIP: usize = 0xF8;
const FXSAVE: usize = 0x100;

/// A CONTEXT, kept as its bytes: what is written back is what was read, but for the fields that were
/// set.
#[derive(Clone, PartialEq, Eq)]
pub struct Context(Vec<u8>);

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Context(flags {:#x}, rip {:#x}, rsp {:#x})", self.flags(), self.rip(), self.general(4))
    }
}

impl Context {
    /// The record's bytes.
    pub const LENGTH: usize = 0x4D0;
    /// General registers in the order they are numbered: RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI, R8 to
    /// R15.
    pub const GENERAL_NAMES: [&'static str; 16] = [
        "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13",
        "r14", "r15",
    ];
    /// Segment registers in their order: CS, DS, ES, FS, GS, SS.
    pub const SEGMENT_NAMES: [&'static str; 6] = ["cs", "ds", "es", "fs", "gs", "ss"];

    /// All zero, with `flags` ([`flags`]).
    #[must_use]
    pub fn zeroed(flags: u32) -> Self {
        let mut r = Record::zeroed(Self::LENGTH);
        r.u32(FLAGS, flags);
        Self(r.0)
    }

    /// # Errors
    /// Not exactly the record's length.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        Fields::of(bytes, Self::LENGTH, "an x64 CONTEXT")?;
        if bytes.len() != Self::LENGTH {
            let told = Self::LENGTH as u64;
            return Err(DecodeError::Length { what: "an x64 CONTEXT", told, found: bytes.len() });
        }
        Ok(Self(bytes.to_vec()))
    }

    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Which fields are valid.
    #[must_use]
    pub fn flags(&self) -> u32 {
        self.fields().u32(FLAGS)
    }

    /// Whether the part `part` ([`flags`]) is valid.
    #[must_use]
    pub fn has(&self, part: u32) -> bool {
        self.flags() & part == part
    }

    /// General register `number` (0 to 15); 0 beyond.
    #[must_use]
    pub fn general(&self, number: usize) -> u64 {
        if number < 16 { self.fields().u64(GENERAL + 8 * number) } else { 0 }
    }

    pub fn set_general(&mut self, number: usize, value: u64) {
        if number < 16 {
            self.put(GENERAL + 8 * number, &value.to_le_bytes());
        }
    }

    #[must_use]
    pub fn rip(&self) -> u64 {
        self.fields().u64(RIP)
    }

    pub fn set_rip(&mut self, value: u64) {
        self.put(RIP, &value.to_le_bytes());
    }

    #[must_use]
    pub fn eflags(&self) -> u32 {
        self.fields().u32(EFLAGS)
    }

    pub fn set_eflags(&mut self, value: u32) {
        self.put(EFLAGS, &value.to_le_bytes());
    }

    /// CS, DS, ES, FS, GS, SS.
    #[must_use]
    pub fn segments(&self) -> [u16; 6] {
        std::array::from_fn(|index| self.fields().u16(SEGMENTS + 2 * index))
    }

    pub fn set_segments(&mut self, values: [u16; 6]) {
        for (index, value) in values.iter().enumerate() {
            self.put(SEGMENTS + 2 * index, &value.to_le_bytes());
        }
    }

    /// DR0 to DR3, DR6, DR7.
    #[must_use]
    pub fn debug_registers(&self) -> [u64; 6] {
        std::array::from_fn(|index| self.fields().u64(DR + 8 * index))
    }

    pub fn set_debug_registers(&mut self, values: [u64; 6]) {
        for (index, value) in values.iter().enumerate() {
            self.put(DR + 8 * index, &value.to_le_bytes());
        }
    }

    #[must_use]
    pub fn mxcsr(&self) -> u32 {
        self.fields().u32(MXCSR)
    }

    pub fn set_mxcsr(&mut self, value: u32) {
        self.put(MXCSR, &value.to_le_bytes());
    }

    /// The 512 bytes that FXSAVE stores.
    #[must_use]
    pub fn fxsave(&self) -> &[u8] {
        self.0.get(FXSAVE..FXSAVE + 512).unwrap_or_default()
    }

    /// XMM register `number` (0 to 15); 0 beyond.
    #[must_use]
    pub fn xmm(&self, number: usize) -> u128 {
        if number < 16 { u128::from_le_bytes(self.fields().array(FXSAVE + 0xA0 + 16 * number)) } else { 0 }
    }

    pub fn set_xmm(&mut self, number: usize, value: u128) {
        if number < 16 {
            self.put(FXSAVE + 0xA0 + 16 * number, &value.to_le_bytes());
        }
    }

    fn fields(&self) -> Fields<'_> {
        Fields(&self.0)
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        if let Some(place) = self.0.get_mut(at..at + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    }
}
