//! How WinDbg spells addresses and places.

use target::{Attribution, Frame, Machine, Target, TargetExt as _};

/// Spelling by pointer size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notation {
    /// 4 or 8.
    pub pointer_size: u8,
}

impl Notation {
    #[must_use]
    pub fn of(machine: Machine) -> Self {
        Self { pointer_size: machine.pointer_size() }
    }
    #[must_use]
    pub fn is_32_bit(self) -> bool {
        self.pointer_size == 4
    }
    /// ``fffff804`7ba00000`` or `7ba00000`.
    #[must_use]
    pub fn address(self, value: u64) -> String {
        if self.is_32_bit() {
            format!("{:08x}", value & 0xffff_ffff)
        } else {
            target::value::backticked(value)
        }
    }
    /// The same without the backtick.
    #[must_use]
    pub fn digits(self, value: u64) -> String {
        if self.is_32_bit() { format!("{:08x}", value & 0xffff_ffff) } else { format!("{value:016x}") }
    }
    /// Without leading zeros, as a place in no module: ``0xffff8504`29891ee8``, `0x7e`.
    #[must_use]
    pub fn short(self, value: u64) -> String {
        match value >> 32 {
            high if high != 0 && !self.is_32_bit() => format!("0x{high:x}`{:08x}", value & 0xffff_ffff),
            _ => format!("{:#x}", value & 0xffff_ffff),
        }
    }
}

fn with_displacement(name: &str, displacement: u64) -> String {
    if displacement == 0 { name.to_owned() } else { format!("{name}+{displacement:#x}") }
}

/// `module!name+0x1c`, `module+0x334c`, `<Unloaded_x.sys>+0x12`; `None` in no module.
pub(crate) fn known_place(target: &dyn Target, address: u64) -> Option<String> {
    if let Ok(Some(hit)) = target.symbol_at(address) {
        return Some(with_displacement(&hit.qualified(), hit.displacement));
    }
    attributed(&target.attribute(address), address, target)
}

fn attributed(attribution: &Attribution, address: u64, target: &dyn Target) -> Option<String> {
    match attribution {
        Attribution::Module { name, rva, .. } => Some(with_displacement(name, *rva)),
        Attribution::NoModule { unloaded: Some(name) } => {
            let base = target.unloaded_modules().ok().and_then(|list| {
                list.iter().rev().find(|m| address >= m.base && address - m.base < m.size).map(|m| m.base)
            });
            Some(with_displacement(&format!("<Unloaded_{name}>"), address - base.unwrap_or(address)))
        }
        _ => None,
    }
}

/// The place in WinDbg's words, the bare address where there is no name.
#[must_use]
pub fn place_text(target: &dyn Target, address: u64) -> String {
    known_place(target, address).unwrap_or_else(|| Notation::of(target.facts().machine).short(address))
}

/// A frame's call site. An inline frame shares its address with the frame it is inlined in and has
/// its own symbol.
pub(crate) fn frame_place(target: &dyn Target, notation: Notation, frame: &Frame) -> String {
    match &frame.symbol {
        Some(hit) => with_displacement(&hit.qualified(), frame.ip.wrapping_sub(hit.address)),
        None => attributed(&frame.attribution, frame.ip, target).unwrap_or_else(|| notation.short(frame.ip)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings() {
        let (wide, narrow) = (Notation::of(Machine::X64), Notation::of(Machine::X86));
        assert_eq!(wide.address(0xffff_f804_7ba0_0000), "fffff804`7ba00000");
        assert_eq!(narrow.address(0x10_ff05), "0010ff05");
        assert_eq!(wide.digits(1), "0000000000000001");
        assert_eq!(wide.short(0xffff_8504_2989_1ee8), "0xffff8504`29891ee8");
        assert_eq!(wide.short(0x7e), "0x7e");
        assert_eq!(narrow.short(0x10_ff05), "0x10ff05");
    }
}
