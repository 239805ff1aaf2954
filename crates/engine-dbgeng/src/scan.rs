//! Guesses beyond the walked frames: stack words that look like return addresses.

use target::{Attribution, Context, ContextSource, Found, Frame, Halt, MemoryExt, Result, TargetExt};

use crate::engine::DbgEng;

/// Bytes of stack looked at.
const STACK: usize = 64 << 10;
/// The longest call instruction.
const CALL: u64 = 8;

impl DbgEng {
    /// Words above the context's sp that point into a module, just after a call.
    pub(crate) fn scan(&self, from: &Context, limit: usize, halt: &Halt) -> Result<Vec<Frame>> {
        let width = usize::from(from.machine.pointer_size());
        let (bytes, _) = self.read_prefix(from.sp(), STACK);
        let mut frames = Vec::new();
        for (index, raw) in bytes.chunks_exact(width).enumerate() {
            if frames.len() >= limit || halt.stop().is_some() {
                break;
            }
            let mut wide = [0; 8];
            wide[..width].copy_from_slice(raw);
            let address = u64::from_le_bytes(wide);
            let attribution = self.attribute(address);
            if !matches!(attribution, Attribution::Module { .. }) {
                continue;
            }
            let (before, stopped) = self.read_prefix(address.wrapping_sub(CALL), CALL as usize);
            if stopped.is_some() || !code::is_call_before(from.machine, &before) {
                continue;
            }
            let sp = from.sp().wrapping_add(((index + 1) * width) as u64);
            let mut context = Context::new(from.machine, ContextSource::Unwound);
            context.set_ip(address);
            context.set_sp(sp);
            frames.push(Frame {
                ip: address,
                sp,
                found: Found::Scan,
                inline: false,
                symbol: self.read_symbol_at(address.wrapping_sub(1)).ok().flatten(),
                source: None,
                attribution,
                context: Some(Box::new(context)),
                return_address: 0,
            });
        }
        Ok(frames)
    }
}
