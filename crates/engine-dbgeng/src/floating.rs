//! Floating-point registers of kernel targets: `GetThreadContext` puts them 0x100 bytes too high in its
//! record there (seen with DbgEng 10.0.15063), so they are asked for by name.

use target::{Context, Machine, reg};
use windows::Win32::System::Diagnostics::Debug::Extensions::{
    DEBUG_REGSRC_DEBUGGEE, DEBUG_VALUE, DEBUG_VALUE_FLOAT80, DEBUG_VALUE_VECTOR128,
};
use windows::core::HSTRING;

use crate::engine::DbgEng;

const WORDS: [(&str, usize); 4] =
    [("fpcw", reg::FPCW), ("fpsw", reg::FPSW), ("fptw", reg::FPTW), ("mxcsr", reg::MXCSR)];

impl DbgEng {
    /// Replaces the floating-point part of an x64 context of a kernel target; what the engine does not
    /// say is unavailable.
    pub(crate) fn floating(&self, context: &mut Context) {
        if context.machine != Machine::X64 || !self.facts.kind.is_kernel() {
            return;
        }
        for (name, number) in WORDS {
            match self.register(name) {
                // SAFETY: every integer form of the value begins with its low half.
                Some(value) => context.set(number, u64::from(unsafe { value.Anonymous.I32 })),
                None => context.forget(number),
            }
        }
        context.x87 = self.wide(8, "st", DEBUG_VALUE_FLOAT80);
        context.vectors = self.wide(16, "xmm", DEBUG_VALUE_VECTOR128);
    }

    fn register(&self, name: &str) -> Option<DEBUG_VALUE> {
        let mut value = [DEBUG_VALUE::default()];
        // SAFETY: the string lives for the call.
        let index = unsafe { self.registers.GetIndexByNameWide(&HSTRING::from(name)) }.ok()?;
        // SAFETY: one index in, one value out.
        unsafe { self.registers.GetValues2(DEBUG_REGSRC_DEBUGGEE, 1, Some(&index), 0, value.as_mut_ptr()) }
            .ok()?;
        Some(value[0])
    }

    /// All registers of one kind, or none.
    fn wide(&self, count: usize, prefix: &str, kind: u32) -> Vec<[u8; 16]> {
        let read = |index: usize| {
            let value = self.register(&format!("{prefix}{index}")).filter(|value| value.Type == kind)?;
            // SAFETY: the union is read as the bytes it is made of.
            let raw: [u8; 24] = unsafe { value.Anonymous.RawBytes };
            let mut bytes = [0; 16];
            let size = if kind == DEBUG_VALUE_FLOAT80 { 10 } else { 16 };
            bytes[..size].copy_from_slice(&raw[..size]);
            Some(bytes)
        };
        (0..count).map(read).collect::<Option<Vec<_>>>().unwrap_or_default()
    }
}
