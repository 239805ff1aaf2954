//! 32-bit processes of 64-bit systems (spec 80 section 3.2).

use target::{Context, ContextSource, Machine, MemoryExt, reg};

use crate::core::Core;

/// `TEB64.TlsSlots[1]` (`WOW64_TLS_CPURESERVED`): the 32-bit CPU's state.
const TLS_CPU_AREA: u64 = 0x1488;
/// `TEB64.WowTebOffset`: where the 32-bit TEB lies from the 64-bit one.
const WOW_TEB_OFFSET: u64 = 0x180c;
const MACHINE_X86: u16 = 0x014c;
/// Selector of 32-bit user code.
const CS_32: u64 = 0x23;

fn cpu_area(core: &Core, teb: u64) -> Option<u64> {
    let area = core.read_u64(teb.checked_add(TLS_CPU_AREA)?).ok().filter(|&a| a != 0)?;
    (core.read_u16(area.checked_add(2)?).ok()? == MACHINE_X86).then_some(area)
}

/// Whether any thread has a 32-bit CPU area.
pub(super) fn cpu_areas_exist(core: &Core, tebs: &[u64]) -> bool {
    core.machine.pointer_size() == 8 && tebs.iter().any(|&teb| cpu_area(core, teb).is_some())
}

/// The 32-bit context of a thread: the low halves when it was in 32-bit code, else what its CPU
/// area holds. `None` when the dump lacks that memory.
pub(super) fn context(core: &Core, teb: Option<u64>, native: Option<&Context>) -> Option<Context> {
    if let Some(native) = native
        && native.machine == Machine::X64
        && native.get(reg::CS) == Some(CS_32)
    {
        return Some(native.truncated_to_x86());
    }
    let area = cpu_area(core, teb?)?;
    let (bytes, _) = core.read_prefix(area.checked_add(4)?, Context::record_size(Machine::X86));
    Context::from_x86(&bytes, ContextSource::Wow64CpuArea)
}

/// A stored exception context: a 64-bit one, a 32-bit one, or nothing that can be trusted.
pub(super) fn exception_context(bytes: &[u8], machine: Machine) -> Option<Context> {
    if let Some(wide) = Context::from_bytes(machine, bytes, ContextSource::Exception)
        && matches!(wide.get(reg::CS), Some(CS_32 | 0x33))
    {
        let narrow = wide.get(reg::CS) == Some(CS_32);
        return Some(if narrow { wide.truncated_to_x86() } else { wide });
    }
    Context::from_x86(bytes, ContextSource::Exception)
}

/// The 32-bit TEB: `NT_TIB.ExceptionList` of the 64-bit one holds it on a WoW64 thread.
pub(super) fn teb32(core: &Core, teb: u64) -> Option<u64> {
    let offset = core.read_u32(teb.checked_add(WOW_TEB_OFFSET)?).ok().map(|o| i64::from(o.cast_signed()));
    if let Some(offset) = offset.filter(|&o| o != 0) {
        return teb.checked_add_signed(offset);
    }
    core.read_u64(teb).ok().filter(|&v| v != 0 && v >> 32 == 0)
}

pub(super) fn peb32(core: &Core, teb: u64) -> Option<u64> {
    let teb32 = teb32(core, teb)?;
    core.read_u32(teb32.checked_add(0x30)?).ok().map(u64::from).filter(|&peb| peb != 0)
}
