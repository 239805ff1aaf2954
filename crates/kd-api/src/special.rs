//! The registers that only the kernel sees (control space 2, `KSPECIAL_REGISTERS` of x64).

use crate::DecodeError;
use crate::bytes::{Fields, Record};

/// Selectors of the control space of x64.
pub mod selector {
    /// The PCR's address.
    pub const PCR: u64 = 0;
    /// The PRCB's address.
    pub const PRCB: u64 = 1;
    /// [`SpecialRegisters`](super::SpecialRegisters).
    pub const SPECIAL_REGISTERS: u64 = 2;
    /// The current KTHREAD's address.
    pub const THREAD: u64 = 3;
}

/// `KSPECIAL_REGISTERS`. A debugger needs the GDT: without a readable descriptor of CS it does not know
/// the code's mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SpecialRegisters {
    pub cr0: u64,
    pub cr2: u64,
    pub cr3: u64,
    pub cr4: u64,
    /// DR0 to DR3.
    pub dr: [u64; 4],
    pub dr6: u64,
    pub dr7: u64,
    pub gdt_limit: u16,
    pub gdt_base: u64,
    pub idt_limit: u16,
    pub idt_base: u64,
    pub tr: u16,
    pub ldtr: u16,
    pub mxcsr: u32,
    pub debug_control: u64,
    /// Last branch to and from, last exception to and from.
    pub last_records: [u64; 4],
    pub cr8: u64,
    pub gs_base: u64,
    pub gs_swap: u64,
    pub star: u64,
    pub lstar: u64,
    pub cstar: u64,
    pub syscall_mask: u64,
    pub xcr0: u64,
}

impl SpecialRegisters {
    /// The record's bytes.
    pub const LENGTH: usize = 0xE0;

    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut r = Record::zeroed(Self::LENGTH);
        r.u64(0, self.cr0).u64(8, self.cr2).u64(0x10, self.cr3).u64(0x18, self.cr4);
        for (index, value) in self.dr.iter().enumerate() {
            r.u64(0x20 + 8 * index, *value);
        }
        r.u64(0x40, self.dr6).u64(0x48, self.dr7);
        r.u16(0x56, self.gdt_limit)
            .u64(0x58, self.gdt_base)
            .u16(0x66, self.idt_limit)
            .u64(0x68, self.idt_base);
        r.u16(0x70, self.tr).u16(0x72, self.ldtr).u32(0x74, self.mxcsr).u64(0x78, self.debug_control);
        for (index, value) in self.last_records.iter().enumerate() {
            r.u64(0x80 + 8 * index, *value);
        }
        r.u64(0xA0, self.cr8).u64(0xA8, self.gs_base).u64(0xB0, self.gs_swap).u64(0xB8, self.star);
        r.u64(0xC0, self.lstar).u64(0xC8, self.cstar).u64(0xD0, self.syscall_mask).u64(0xD8, self.xcr0);
        r.0
    }

    /// # Errors
    /// Shorter than the record.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let f = Fields::of(bytes, Self::LENGTH, "the special registers")?;
        Ok(Self {
            cr0: f.u64(0),
            cr2: f.u64(8),
            cr3: f.u64(0x10),
            cr4: f.u64(0x18),
            dr: std::array::from_fn(|index| f.u64(0x20 + 8 * index)),
            dr6: f.u64(0x40),
            dr7: f.u64(0x48),
            gdt_limit: f.u16(0x56),
            gdt_base: f.u64(0x58),
            idt_limit: f.u16(0x66),
            idt_base: f.u64(0x68),
            tr: f.u16(0x70),
            ldtr: f.u16(0x72),
            mxcsr: f.u32(0x74),
            debug_control: f.u64(0x78),
            last_records: std::array::from_fn(|index| f.u64(0x80 + 8 * index)),
            cr8: f.u64(0xA0),
            gs_base: f.u64(0xA8),
            gs_swap: f.u64(0xB0),
            star: f.u64(0xB8),
            lstar: f.u64(0xC0),
            cstar: f.u64(0xC8),
            syscall_mask: f.u64(0xD0),
            xcr0: f.u64(0xD8),
        })
    }
}
