//! x86 and x64 by iced-x86.

use target::Instruction;

use crate::{Symbolizer, invalid};

pub(crate) fn decode(bits: u32, address: u64, bytes: &[u8], symbols: Option<Symbolizer<'_>>) -> Instruction {
    let _ = (bits, symbols);
    invalid(address, bytes)
}
