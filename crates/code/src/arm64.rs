//! ARM64.

use target::Instruction;

use crate::{Symbolizer, invalid};

/// An ARM64 instruction as far as analyses and unwinders need it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arm64 {
    Other,
}

/// Decodes one word.
#[must_use]
pub fn decode(word: u32) -> Arm64 {
    let _ = word;
    Arm64::Other
}

pub(crate) fn instruction(address: u64, bytes: &[u8], symbols: Option<Symbolizer<'_>>) -> Instruction {
    let _ = symbols;
    invalid(address, bytes)
}
