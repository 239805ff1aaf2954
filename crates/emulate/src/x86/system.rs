//! What only the kernel may do, hints, cpuid. Reads give 0, writes change nothing.

use iced_x86::{Mnemonic, OpKind};

use super::{Handled, Step};
use crate::emulator::Event;
use crate::value::Value;

impl Step<'_> {
    pub(super) fn system(&mut self) -> Handled {
        match self.mnemonic() {
            Mnemonic::Nop
            | Mnemonic::Fnop
            | Mnemonic::Pause
            | Mnemonic::Lfence
            | Mnemonic::Mfence
            | Mnemonic::Sfence
            | Mnemonic::Prefetchnta
            | Mnemonic::Prefetcht0
            | Mnemonic::Prefetcht1
            | Mnemonic::Prefetcht2
            | Mnemonic::Prefetchw
            | Mnemonic::Prefetch
            | Mnemonic::Endbr64
            | Mnemonic::Endbr32
            | Mnemonic::Cli
            | Mnemonic::Sti
            | Mnemonic::Clac
            | Mnemonic::Stac
            | Mnemonic::Clflush
            | Mnemonic::Clflushopt
            | Mnemonic::Emms
            | Mnemonic::Out
            | Mnemonic::Outsb
            | Mnemonic::Outsw
            | Mnemonic::Outsd
            | Mnemonic::Wrmsr
            | Mnemonic::Xsetbv
            | Mnemonic::Wbinvd
            | Mnemonic::Invd
            | Mnemonic::Invlpg
            | Mnemonic::Invpcid
            | Mnemonic::Lgdt
            | Mnemonic::Lidt
            | Mnemonic::Lldt
            | Mnemonic::Ltr
            | Mnemonic::Lmsw
            | Mnemonic::Clts
            | Mnemonic::Swapgs
            | Mnemonic::Ldmxcsr
            | Mnemonic::Fxsave
            | Mnemonic::Fxrstor
            | Mnemonic::Wait
            | Mnemonic::Fninit
            | Mnemonic::Hlt => {}
            Mnemonic::In => {
                let bytes = self.size(0);
                self.set_accumulator(bytes, Value::ZERO);
            }
            Mnemonic::Rdmsr | Mnemonic::Rdtsc | Mnemonic::Rdpmc | Mnemonic::Xgetbv => self.pair_of_zeros(),
            Mnemonic::Rdtscp => {
                self.pair_of_zeros();
                self.emulator.registers.general[1] = Value::ZERO;
            }
            Mnemonic::Cpuid => self.identify(),
            Mnemonic::Sgdt | Mnemonic::Sidt => self.table_register()?,
            Mnemonic::Sldt | Mnemonic::Str | Mnemonic::Smsw => self.write(0, Value::ZERO)?,
            Mnemonic::Stmxcsr => self.write(0, Value::known(0x1f80))?,
            Mnemonic::Rdrand | Mnemonic::Rdseed => {
                // Zero as other privileged reads, and said to have succeeded.
                self.write(0, Value::ZERO)?;
                self.set_logic_flags(Value::known(1), 8);
                self.set_flag(super::flags::CF, Some(true));
            }
            Mnemonic::Rdfsbase | Mnemonic::Rdgsbase => self.write(0, Value::ZERO)?,
            _ => return Ok(None),
        }
        Ok(Some(Event::Ran))
    }

    fn pair_of_zeros(&mut self) {
        self.emulator.registers.general[0] = Value::ZERO;
        self.emulator.registers.general[2] = Value::ZERO;
    }

    /// A processor of the x64 baseline: SSE2, no extension.
    fn identify(&mut self) {
        let leaf = self.emulator.registers.general[0].low(4);
        let ascii = |text: &[u8; 4]| u64::from(u32::from_le_bytes(*text));
        let [eax, ebx, ecx, edx] = match leaf {
            Some(0) => [1, ascii(b"Genu"), ascii(b"ntel"), ascii(b"ineI")],
            // Family 6; fpu, tsc, msr, cx8, sep, cmov, mmx, fxsr, sse, sse2; cx16.
            Some(1) => [0x0006_00f0, 0, 1 << 13, 0x0780_8931],
            Some(0x8000_0000) => [0x8000_0001, 0, 0, 0],
            // syscall, nx, long mode.
            Some(0x8000_0001) => [0, 0, 1, 0x2010_0800],
            _ => [0; 4],
        };
        for (register, value) in [(0, eax), (3, ebx), (1, ecx), (2, edx)] {
            self.emulator.registers.general[register] = Value::known(value);
        }
    }

    /// A limit and a base of 0.
    fn table_register(&mut self) -> Result<(), crate::Stop> {
        if self.instruction.op0_kind() != OpKind::Memory {
            return Err(self.not_known());
        }
        let address = self.address();
        let pointer = self.emulator.pointer();
        self.emulator.store(address, 2, Value::ZERO)?;
        let base = address.add(Value::known(2), Some(false));
        self.emulator.store(base, pointer, Value::ZERO)
    }
}
