//! The thread's own block: stack bounds, last error, last status.

use target::{MemoryExt as _, Target};

/// What the TEB says; parts that cannot be read are absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Teb {
    pub(crate) stack_base: Option<u64>,
    pub(crate) stack_limit: Option<u64>,
    pub(crate) last_error: Option<u32>,
    pub(crate) last_status: Option<u32>,
}

/// The 32-bit TEB of a WoW64 thread lies two pages above its 64-bit one.
const WOW64_TEB: u64 = 0x2000;

/// Reads the TEB of the target's own width at `teb` (as the target lists it).
pub(crate) fn read(target: &dyn Target, teb: u64) -> Teb {
    let wide = target.facts().machine.pointer_size() == 8;
    let Some(at) = own_teb(target, teb, wide) else { return Teb::default() };
    let (base_at, limit_at, error_at, status_at, width) =
        if wide { (8, 0x10, 0x68, 0x1250, 8) } else { (4, 8, 0x34, 0xbf4, 4) };
    let pointer = |offset: u64| at.checked_add(offset).and_then(|a| target.read_pointer(a, width).ok());
    let word = |offset: u64| at.checked_add(offset).and_then(|a| target.read_u32(a).ok());
    Teb {
        stack_base: pointer(base_at),
        stack_limit: pointer(limit_at),
        last_error: word(error_at),
        last_status: word(status_at),
    }
}

/// `NT_TIB.Self` must point at the block itself.
fn own_teb(target: &dyn Target, teb: u64, wide: bool) -> Option<u64> {
    if wide {
        return (target.read_u64(teb.checked_add(0x30)?).ok()? == teb).then_some(teb);
    }
    [teb, teb.checked_add(WOW64_TEB)?].into_iter().find(|&at| {
        at.checked_add(0x18).and_then(|a| target.read_u32(a).ok()).is_some_and(|own| u64::from(own) == at)
    })
}
