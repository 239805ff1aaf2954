//! Hardware breakpoints of x64 as its debug registers take them (Intel SDM volume 3, section 17.2).

use target::capability::Access;

/// Debug address registers.
pub const SLOTS: usize = 4;

/// What one debug address register watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    pub address: u64,
    pub access: Access,
    /// 1, 2, 4 or 8 bytes, the address a multiple of it; 1 of code.
    pub size: u8,
}

impl Slot {
    /// The bits of DR7 that describe it in debug address register `index`, and those that arm it.
    #[must_use]
    pub fn dr7(&self, index: usize) -> (u64, u64) {
        let access = match self.access {
            Access::Execute => 0b00,
            Access::Write => 0b01,
            Access::Io => 0b10,
            // The processor has no reads alone.
            Access::Read | Access::ReadWrite => 0b11,
        };
        let size = match (self.access, self.size) {
            (Access::Execute, _) | (_, 1) => 0b00,
            (_, 2) => 0b01,
            (_, 8) => 0b10,
            _ => 0b11,
        };
        let shift = index & (SLOTS - 1);
        ((access | size << 2) << (16 + 4 * shift), 0b10 << (2 * shift))
    }

    /// All bits of DR7 that are of debug address register `index`.
    #[must_use]
    pub fn dr7_mask(index: usize) -> u64 {
        let shift = index & (SLOTS - 1);
        0xf << (16 + 4 * shift) | 0b11 << (2 * shift)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_of_the_manual() {
        let slot = |access, size| Slot { address: 0, access, size };
        // G0, write of 4 bytes: LEN0 = 11, R/W0 = 01.
        assert_eq!(slot(Access::Write, 4).dr7(0), (0xd_0000, 0x2));
        assert_eq!(slot(Access::Execute, 1).dr7(3), (0, 0x80));
        assert_eq!(slot(Access::ReadWrite, 8).dr7(2), (0xb00_0000, 0x20));
        assert_eq!(Slot::dr7_mask(1), 0xf0_000c);
    }
}
