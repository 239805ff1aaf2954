//! A context as the machine's `CONTEXT` record again: for engines that take one, and for dumps made in
//! tests.

use crate::context::{Context, reg};
use crate::machine::Machine;

/// The x87 control word and MXCSR of a fresh thread.
const FPCW: u64 = 0x27f;
const MXCSR: u64 = 0x1f80;

fn put(bytes: &mut [u8], offset: usize, value: u64, width: usize) {
    if let Some(place) = bytes.get_mut(offset..offset + width) {
        place.copy_from_slice(&value.to_le_bytes()[..width]);
    }
}

impl Context {
    /// The whole `CONTEXT` record of this machine (winnt.h). Registers that are not known are written
    /// as zero; the floating-point area is a fresh thread's.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0u8; Self::record_size(self.machine)];
        match self.machine {
            Machine::X64 => self.put_x64(&mut bytes),
            Machine::X86 => self.put_x86(&mut bytes),
            Machine::Arm64 => self.put_arm64(&mut bytes),
            Machine::Arm32 => {}
        }
        bytes
    }

    fn or_zero(&self, number: usize) -> u64 {
        self.get(number).unwrap_or(0)
    }

    fn put_x64(&self, bytes: &mut [u8]) {
        // Control, integer, segments, floating point, debug.
        put(bytes, 0x30, 0x0010_001f, 4);
        put(bytes, 0x34, MXCSR, 4);
        for (index, number) in [reg::CS, reg::DS, reg::ES, reg::FS, reg::GS, reg::SS].into_iter().enumerate()
        {
            put(bytes, 0x38 + 2 * index, self.or_zero(number), 2);
        }
        put(bytes, 0x44, self.or_zero(reg::EFLAGS), 4);
        for (index, number) in (reg::DR0..=reg::DR7).enumerate() {
            put(bytes, 0x48 + 8 * index, self.or_zero(number), 8);
        }
        for number in 0..=reg::RIP {
            put(bytes, 0x78 + 8 * number, self.or_zero(number), 8);
        }
        put(bytes, 0x100, FPCW, 2);
        put(bytes, 0x118, MXCSR, 4);
    }

    fn put_x86(&self, bytes: &mut [u8]) {
        put(bytes, 0, 0x0001_003f, 4);
        let order = [
            reg::GS,
            reg::FS,
            reg::ES,
            reg::DS,
            reg::RDI,
            reg::RSI,
            reg::RBX,
            reg::RDX,
            reg::RCX,
            reg::RAX,
            reg::RBP,
            reg::RIP,
            reg::CS,
            reg::EFLAGS,
            reg::RSP,
            reg::SS,
        ];
        for (index, number) in order.into_iter().enumerate() {
            put(bytes, 0x8c + 4 * index, self.or_zero(number), 4);
        }
    }

    fn put_arm64(&self, bytes: &mut [u8]) {
        put(bytes, 0, 0x0040_0007, 4);
        put(bytes, 4, self.or_zero(reg::A64_CPSR), 4);
        for number in 0..=reg::A64_PC {
            put(bytes, 8 + 8 * number, self.or_zero(number), 8);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::ContextSource;

    #[test]
    fn a_record_reads_back_as_the_same_registers() {
        for machine in [Machine::X64, Machine::X86, Machine::Arm64] {
            let mut context = Context::new(machine, ContextSource::Thread);
            for number in 0..reg::COUNT {
                if Context::register_name(machine, number).is_some() {
                    context.set(number, 0x11 * (number as u64 + 1));
                }
            }
            let again = Context::from_bytes(machine, &context.to_bytes(), ContextSource::Thread).unwrap();
            assert_eq!(again.ip(), context.ip(), "{machine:?}");
            assert_eq!(again.sp(), context.sp(), "{machine:?}");
            for number in 0..=reg::RDI {
                assert_eq!(again.get(number), context.get(number), "{machine:?} {number}");
            }
        }
    }
}
