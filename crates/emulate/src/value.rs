//! Values of which some bits may be unknown.

use std::ops::{BitAnd, BitOr, BitXor, Not};

/// 64 bits, each known or not. Operations are exact on known bits and never turn an unknown bit into
/// a known one unless the result does not depend on it (`unknown & 0` is 0).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Hash)]
pub struct Value {
    /// Unknown bits are 0 here.
    bits: u64,
    unknown: u64,
}

/// The low `bytes` bytes; all of them from 8 on.
#[must_use]
pub const fn mask(bytes: u32) -> u64 {
    if bytes >= 8 { u64::MAX } else { (1 << (bytes * 8)) - 1 }
}

impl Value {
    pub const UNKNOWN: Self = Self { bits: 0, unknown: u64::MAX };
    pub const ZERO: Self = Self { bits: 0, unknown: 0 };

    #[must_use]
    pub const fn known(bits: u64) -> Self {
        Self { bits, unknown: 0 }
    }

    /// `bits` where `unknown` has zeros.
    #[must_use]
    pub const fn new(bits: u64, unknown: u64) -> Self {
        Self { bits: bits & !unknown, unknown }
    }

    /// Zero-extended from `bytes` bytes, none of which is known.
    #[must_use]
    pub const fn unknown(bytes: u32) -> Self {
        Self { bits: 0, unknown: mask(bytes) }
    }

    /// One bit.
    #[must_use]
    pub const fn bit(known: Option<bool>) -> Self {
        match known {
            Some(bit) => Self::known(bit as u64),
            None => Self { bits: 0, unknown: 1 },
        }
    }

    /// All 64 bits, if every one is known.
    #[must_use]
    pub const fn get(self) -> Option<u64> {
        if self.unknown == 0 { Some(self.bits) } else { None }
    }

    /// The low `bytes` bytes, if they are known.
    #[must_use]
    pub const fn low(self, bytes: u32) -> Option<u64> {
        self.truncate(bytes).get()
    }

    /// The known bits; unknown ones read 0.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.bits
    }

    /// A one for each unknown bit.
    #[must_use]
    pub const fn unknown_bits(self) -> u64 {
        self.unknown
    }

    /// Bit `index` (0 to 63).
    #[must_use]
    pub const fn at(self, index: u32) -> Option<bool> {
        if self.unknown >> (index & 63) & 1 == 1 { None } else { Some(self.bits >> (index & 63) & 1 == 1) }
    }

    #[must_use]
    pub const fn truncate(self, bytes: u32) -> Self {
        Self { bits: self.bits & mask(bytes), unknown: self.unknown & mask(bytes) }
    }

    /// Sign-extended from `bytes` bytes to 64 bits.
    #[must_use]
    pub const fn sign_extend(self, bytes: u32) -> Self {
        let shift = 64 - 8 * (if bytes >= 8 { 8 } else { bytes });
        if shift >= 64 {
            return Self::ZERO;
        }
        Self {
            bits: (((self.bits << shift) as i64) >> shift) as u64,
            unknown: (((self.unknown << shift) as i64) >> shift) as u64,
        }
    }

    /// The low `bytes` bytes of `low`, the others of `self`.
    #[must_use]
    pub const fn with_low(self, bytes: u32, low: Self) -> Self {
        let keep = !mask(bytes);
        Self { bits: self.bits & keep | low.bits & !keep, unknown: self.unknown & keep | low.unknown & !keep }
    }

    #[must_use]
    pub const fn with_bit(self, index: u32, bit: Option<bool>) -> Self {
        let one = 1 << (index & 63);
        let cleared = Self { bits: self.bits & !one, unknown: self.unknown & !one };
        match bit {
            Some(true) => Self { bits: cleared.bits | one, ..cleared },
            Some(false) => cleared,
            None => Self { unknown: cleared.unknown | one, ..cleared },
        }
    }

    /// Shifted left by a known count; 64 and more give 0.
    #[must_use]
    pub const fn shl(self, count: u32) -> Self {
        if count >= 64 {
            return Self::ZERO;
        }
        Self { bits: self.bits << count, unknown: self.unknown << count }
    }

    /// Shifted right by a known count, zeros coming in.
    #[must_use]
    pub const fn shr(self, count: u32) -> Self {
        if count >= 64 {
            return Self::ZERO;
        }
        Self { bits: self.bits >> count, unknown: self.unknown >> count }
    }

    /// Rotated left within `bytes` bytes.
    #[must_use]
    pub const fn rotate_left(self, bytes: u32, count: u32) -> Self {
        let width = bytes * 8;
        let value = self.truncate(bytes);
        let count = count % width;
        if count == 0 {
            return value;
        }
        let left = value.shl(count);
        let right = value.shr(width - count);
        Self { bits: left.bits | right.bits, unknown: left.unknown | right.unknown }.truncate(bytes)
    }

    /// `self + other + carry` of 64 bits: the bits below the lowest unknown one are known.
    #[must_use]
    pub const fn add(self, other: Self, carry: Option<bool>) -> Self {
        let carry_in = matches!(carry, Some(true)) as u64;
        let bits = self.bits.wrapping_add(other.bits).wrapping_add(carry_in);
        let doubt = self.unknown | other.unknown | carry.is_none() as u64;
        Self::new(bits, above(doubt))
    }

    /// `self - other - borrow` of 64 bits.
    #[must_use]
    pub const fn sub(self, other: Self, borrow: Option<bool>) -> Self {
        let borrow_in = matches!(borrow, Some(true)) as u64;
        let bits = self.bits.wrapping_sub(other.bits).wrapping_sub(borrow_in);
        let doubt = self.unknown | other.unknown | borrow.is_none() as u64;
        Self::new(bits, above(doubt))
    }

    /// `self * other`, the low 64 bits.
    #[must_use]
    pub const fn mul(self, other: Self) -> Self {
        let bits = self.bits.wrapping_mul(other.bits);
        if self.unknown | other.unknown == 0 {
            return Self::known(bits);
        }
        if self.unknown == 0 && self.bits == 0 || other.unknown == 0 && other.bits == 0 {
            return Self::ZERO;
        }
        Self::new(bits, above(self.unknown | other.unknown))
    }

    /// What is true of both: bits that differ are unknown.
    #[must_use]
    pub const fn join(self, other: Self) -> Self {
        let unknown = self.unknown | other.unknown | (self.bits ^ other.bits);
        Self::new(self.bits, unknown)
    }

    /// `self == other`; known as soon as one known bit differs.
    #[must_use]
    pub const fn equals(self, other: Self) -> Option<bool> {
        let doubt = self.unknown | other.unknown;
        if (self.bits ^ other.bits) & !doubt != 0 {
            Some(false)
        } else if doubt == 0 {
            Some(true)
        } else {
            None
        }
    }

    /// Whether the low `bytes` bytes are zero.
    #[must_use]
    pub const fn is_zero(self, bytes: u32) -> Option<bool> {
        self.truncate(bytes).equals(Self::ZERO)
    }
}

/// Every bit from the lowest one of `doubt` on: how far a carry can go.
const fn above(doubt: u64) -> u64 {
    doubt | doubt.wrapping_neg()
}

impl From<u64> for Value {
    fn from(bits: u64) -> Self {
        Self::known(bits)
    }
}

impl BitAnd for Value {
    type Output = Self;
    fn bitand(self, other: Self) -> Self {
        let zero = !self.bits & !self.unknown | !other.bits & !other.unknown;
        Self::new(self.bits & other.bits, (self.unknown | other.unknown) & !zero)
    }
}

impl BitOr for Value {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        let one = self.bits | other.bits;
        Self { bits: one, unknown: (self.unknown | other.unknown) & !one }
    }
}

impl BitXor for Value {
    type Output = Self;
    fn bitxor(self, other: Self) -> Self {
        Self::new(self.bits ^ other.bits, self.unknown | other.unknown)
    }
}

impl Not for Value {
    type Output = Self;
    fn not(self) -> Self {
        Self::new(!self.bits, self.unknown)
    }
}
