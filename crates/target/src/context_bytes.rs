//! A context as the machine's `CONTEXT` record again, for engines that take one.

use crate::context::{Context, reg};
use crate::machine::Machine;

fn put(bytes: &mut [u8], offset: usize, value: u64, width: usize) {
    if let Some(place) = bytes.get_mut(offset..offset + width) {
        place.copy_from_slice(&value.to_le_bytes()[..width]);
    }
}

impl Context {
    /// The `CONTEXT` record of this machine (winnt.h); registers that are not known are zero, and the
    /// flags claim control, integer and segment parts.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0u8; Self::record_size(self.machine)];
        let value = |number: usize| self.get(number).unwrap_or(0);
        match self.machine {
            Machine::X64 => {
                put(&mut bytes, 0x30, 0x0010_0007, 4);
                for (number, offset) in [
                    (reg::CS, 0x38),
                    (reg::DS, 0x3a),
                    (reg::ES, 0x3c),
                    (reg::FS, 0x3e),
                    (reg::GS, 0x40),
                    (reg::SS, 0x42),
                ] {
                    put(&mut bytes, offset, value(number), 2);
                }
                put(&mut bytes, 0x44, value(reg::EFLAGS), 4);
                for number in 0..=reg::RIP {
                    put(&mut bytes, 0x78 + 8 * number, value(number), 8);
                }
            }
            Machine::X86 => {
                put(&mut bytes, 0, 0x0001_0007, 4);
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
                    put(&mut bytes, 0x8c + 4 * index, value(number), 4);
                }
            }
            Machine::Arm64 => {
                put(&mut bytes, 0, 0x0040_0003, 4);
                put(&mut bytes, 4, value(reg::A64_CPSR), 4);
                for number in 0..=reg::A64_PC {
                    put(&mut bytes, 8 + 8 * number, value(number), 8);
                }
            }
            Machine::Arm32 => {}
        }
        bytes
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
