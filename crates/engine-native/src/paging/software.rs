//! Windows' formats of entries the hardware does not see (`MMPTE_SOFTWARE`, `MMPTE_TRANSITION`,
//! `MMPTE_PROTOTYPE`); positions from the types of nt 19041 for x64.

/// Bit positions of an invalid entry's parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SoftwareLayout {
    pub prototype: u32,
    pub transition: u32,
    /// `SwizzleBit`: when clear, `invalid_mask` is set in the entry and must be cleared first.
    pub swizzle: Option<u32>,
    /// `MiState.Hardware.InvalidPteMask` (L1TF), 0 on machines not affected.
    pub invalid_mask: u64,
    /// (position, length).
    pub page_file_low: (u32, u32),
    pub page_file_high: (u32, u32),
    pub transition_frame: (u32, u32),
    /// Position of the sign-extended `ProtoAddress`.
    pub prototype_address: u32,
}

/// What an invalid entry means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    DemandZero,
    PagedOut {
        file: u8,
        offset: u64,
    },
    /// Physical address of the frame.
    Transition(u64),
    /// Virtual address of the prototype entry.
    Prototype(u64),
    /// The content is described by the VAD only.
    AskVad,
}

fn bits(raw: u64, (position, length): (u32, u32)) -> u64 {
    let mask = if length >= 64 { u64::MAX } else { (1 << length) - 1 };
    raw >> (position & 63) & mask
}

impl SoftwareLayout {
    #[must_use]
    pub fn x64() -> Self {
        Self {
            prototype: 10,
            transition: 11,
            swizzle: Some(4),
            invalid_mask: 0,
            page_file_low: (12, 4),
            page_file_high: (32, 32),
            transition_frame: (12, 36),
            prototype_address: 16,
        }
    }

    fn unswizzled(&self, raw: u64) -> u64 {
        match self.swizzle {
            Some(bit) if raw >> bit & 1 == 0 => raw & !self.invalid_mask,
            _ => raw,
        }
    }

    pub(super) fn classify(&self, raw: u64) -> Kind {
        if raw >> self.prototype & 1 == 1 {
            let address = (raw.cast_signed() >> self.prototype_address).cast_unsigned();
            let top_half = raw >> 32;
            return if top_half == 0xffff_ffff { Kind::AskVad } else { Kind::Prototype(address) };
        }
        let entry = self.unswizzled(raw);
        if raw >> self.transition & 1 == 1 {
            return Kind::Transition(bits(entry, self.transition_frame) << 12);
        }
        let offset = bits(entry, self.page_file_high);
        if offset == 0 {
            return Kind::DemandZero;
        }
        let file = u8::try_from(bits(entry, self.page_file_low)).unwrap_or(u8::MAX);
        Kind::PagedOut { file, offset }
    }
}
