//! Guesses: stack words that look like return addresses.

use target::{Context, ContextSource, Found, Halt, MemoryExt};

use crate::source::UnwindSource;
use crate::step::plausible_return;
use crate::walk::RawFrame;

/// Bytes of stack looked at.
const MAX_STACK: u64 = 64 << 10;
const PAGE: u64 = 0x1000;

/// Words above `context`'s sp that point into executable code just after a call. At most `limit`
/// frames and 64 KiB of stack, not past the stack's end where that is known; each has
/// `found: Scan`, and of its registers only ip and sp (behind the word) are valid.
#[must_use]
pub fn scan(source: &dyn UnwindSource, context: &Context, limit: usize, halt: &Halt) -> Vec<RawFrame> {
    let machine = context.machine;
    let size = u64::from(machine.pointer_size());
    let Some(start) = context.sp().checked_next_multiple_of(size) else { return Vec::new() };
    let mut end = start.saturating_add(MAX_STACK);
    if let Some((_, top)) = source.stack_bounds(start) {
        end = end.min(top.max(start));
    }
    let mut out = Vec::new();
    let mut at = start;
    while at < end && out.len() < limit && halt.stop().is_none() {
        let page_end = (at & !(PAGE - 1)).saturating_add(PAGE).min(end);
        let length = usize::try_from(page_end - at).unwrap_or(0);
        let (bytes, _) = source.memory().read_prefix(at, length);
        for (index, raw) in bytes.chunks_exact(usize::from(machine.pointer_size())).enumerate() {
            let mut wide = [0; 8];
            wide[..raw.len()].copy_from_slice(raw);
            let address = strip(machine, u64::from_le_bytes(wide));
            let entry = || source.function_start(address) == Some(address);
            if !plausible_return(source, machine, address) || entry() {
                continue;
            }
            let mut found = Context::new(machine, ContextSource::Unwound);
            found.set_ip(address);
            found.set_sp(at.wrapping_add((index as u64 + 1) * size));
            out.push(RawFrame { context: found, found: Found::Scan, return_address: 0, exact_ip: false });
            if out.len() == limit {
                return out;
            }
        }
        at = page_end;
    }
    out
}

fn strip(machine: target::Machine, value: u64) -> u64 {
    if machine == target::Machine::Arm64 { crate::arm64::strip_authentication(value) } else { value }
}
