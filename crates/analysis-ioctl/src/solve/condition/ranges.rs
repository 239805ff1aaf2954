//! A condition after an operation with a constant, as ranges of the other operand.

use code::record::Condition;

use crate::expr::ones;
use crate::solve::Ranges;

/// The operation that set the flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// a - b.
    Subtract,
    /// `dec`: the carry flag is an older one.
    SubtractKeepingCarry,
    /// a + b.
    Add,
    /// `inc`.
    AddKeepingCarry,
    /// a & b, a | b, a ^ b: `a` is the result, `b` zero.
    Logic,
    /// Only zero and sign of `a` are known (shifts); `b` is zero.
    Result,
}

impl Kind {
    /// Whether `condition` reads a flag this operation does not define.
    pub(crate) fn lacks(self, condition: Condition) -> bool {
        use Condition as C;
        let carry = matches!(condition, C::Below | C::AboveOrEqual | C::Above | C::BelowOrEqual);
        let overflow = matches!(
            condition,
            C::Less | C::GreaterOrEqual | C::Greater | C::LessOrEqual | C::Overflow | C::NotOverflow
        );
        match self {
            Self::Subtract | Self::Add | Self::Logic => false,
            Self::SubtractKeepingCarry | Self::AddKeepingCarry => carry,
            Self::Result => carry || overflow,
        }
    }
}

/// Whether `condition` holds after `a kind b`, both `width` bits. `None` for conditions without flags.
pub fn holds(kind: Kind, condition: Condition, a: u64, b: u64, width: u8, arm: bool) -> Option<bool> {
    let mask = ones(width);
    let (a, b) = (a & mask, b & mask);
    let sign_bit = 1u64 << (width.clamp(1, 64) - 1);
    let sign = |x: u64| x & sign_bit != 0;
    let (result, carry, overflow) = match kind {
        Kind::Subtract | Kind::SubtractKeepingCarry => {
            let r = a.wrapping_sub(b) & mask;
            // ARM64 C is "no borrow".
            (r, (a < b) != arm, sign(a) != sign(b) && sign(r) != sign(a))
        }
        Kind::Add | Kind::AddKeepingCarry => {
            let r = a.wrapping_add(b) & mask;
            (r, u128::from(a) + u128::from(b) > u128::from(mask), sign(a) == sign(b) && sign(r) != sign(a))
        }
        Kind::Logic | Kind::Result => (a, false, false),
    };
    let zero = result == 0;
    let negative = sign(result);
    // "Below" is CF=1 on x86 and C=0 on ARM64.
    let below = carry != arm;
    Some(match condition {
        Condition::Equal => zero,
        Condition::NotEqual => !zero,
        Condition::Below => below,
        Condition::AboveOrEqual => !below,
        Condition::Above => !below && !zero,
        Condition::BelowOrEqual => below || zero,
        Condition::Less => negative != overflow,
        Condition::GreaterOrEqual => negative == overflow,
        Condition::Greater => !zero && negative == overflow,
        Condition::LessOrEqual => zero || negative != overflow,
        Condition::Sign => negative,
        Condition::NotSign => !negative,
        Condition::Overflow => overflow,
        Condition::NotOverflow => !overflow,
        Condition::Parity => (result as u8).count_ones() & 1 == 0,
        Condition::NotParity => (result as u8).count_ones() & 1 == 1,
        _ => return None,
    })
}

/// `x` from `from` up to `to`, through zero when `to < from`.
fn around(from: u64, to: u64, mask: u64) -> Ranges {
    let (from, to) = (from & mask, to & mask);
    if from <= to {
        vec![(from, to)]
    } else if from == to.wrapping_add(1) {
        vec![(0, mask)]
    } else {
        vec![(0, to), (from, mask)]
    }
}

/// What is not in `ranges` (sorted, disjoint), of `width` bits.
pub(super) fn complement(ranges: &Ranges, width: u8) -> Ranges {
    let mut out = Ranges::new();
    let mut next = Some(0u64);
    for &(low, high) in ranges {
        if let Some(from) = next
            && from < low
        {
            out.push((from, low - 1));
        }
        next = high.checked_add(1);
    }
    if let Some(from) = next
        && from <= ones(width)
    {
        out.push((from, ones(width)));
    }
    out
}

/// Values `x` of `width` bits for which `condition` holds after `x kind value`.
pub(super) fn of_constant(
    kind: Kind,
    condition: Condition,
    value: u64,
    width: u8,
    arm: bool,
) -> Option<Ranges> {
    use Condition as C;
    let positive = match condition {
        C::NotEqual => C::Equal,
        C::AboveOrEqual => C::Below,
        C::Above => C::BelowOrEqual,
        C::GreaterOrEqual => C::Less,
        C::Greater => C::LessOrEqual,
        C::NotSign => C::Sign,
        C::NotOverflow => C::Overflow,
        same => same,
    };
    let mask = ones(width);
    let value = value & mask;
    let half = 1u64 << (width.clamp(1, 64) - 1);
    let ranges = match kind {
        Kind::Subtract | Kind::SubtractKeepingCarry => subtract(positive, value, mask, half)?,
        Kind::Add | Kind::AddKeepingCarry => add(positive, value, mask, half, arm)?,
        // C is clear: unsigned "below" always, for ARM64.
        Kind::Logic if arm && matches!(positive, C::Below | C::BelowOrEqual) => vec![(0, mask)],
        Kind::Logic | Kind::Result => subtract(positive, 0, mask, half)?,
    };
    Some(if positive == condition { ranges } else { complement(&ranges, width) })
}

fn subtract(condition: Condition, k: u64, mask: u64, half: u64) -> Option<Ranges> {
    Some(match condition {
        Condition::Equal => vec![(k, k)],
        Condition::Below if k == 0 => Vec::new(),
        Condition::Below => vec![(0, k - 1)],
        Condition::BelowOrEqual => vec![(0, k)],
        Condition::Less if k == half => Vec::new(),
        Condition::Less => around(half, k.wrapping_sub(1), mask),
        Condition::LessOrEqual => around(half, k, mask),
        Condition::Sign => around(k.wrapping_add(half), k.wrapping_sub(1), mask),
        Condition::Overflow if k == 0 => Vec::new(),
        Condition::Overflow if k < half => around(half, half.wrapping_add(k).wrapping_sub(1), mask),
        Condition::Overflow => around(half.wrapping_add(k), half.wrapping_sub(1), mask),
        _ => return None,
    })
}

fn add(condition: Condition, k: u64, mask: u64, half: u64, arm: bool) -> Option<Ranges> {
    let zero = k.wrapping_neg() & mask;
    let carry: Ranges = if k == 0 { Vec::new() } else { vec![(zero, mask)] };
    Some(match condition {
        Condition::Equal => vec![(zero, zero)],
        Condition::Below if arm => inverse(&carry, mask),
        Condition::Below => carry,
        // Zero comes with carry, unless nothing was added.
        Condition::BelowOrEqual if arm => {
            let mut ranges = inverse(&carry, mask);
            match ranges.last_mut() {
                Some(last) if k != 0 => last.1 = zero,
                _ => {}
            }
            if k == 0 { vec![(0, mask)] } else { ranges }
        }
        Condition::BelowOrEqual if k == 0 => vec![(0, 0)],
        Condition::BelowOrEqual => carry,
        Condition::Less => around(half, zero.wrapping_sub(1), mask),
        Condition::LessOrEqual if k == half => vec![(0, mask)],
        Condition::LessOrEqual => around(half, zero, mask),
        Condition::Sign => around(half.wrapping_sub(k), zero.wrapping_sub(1), mask),
        Condition::Overflow if k == 0 => Vec::new(),
        Condition::Overflow if k < half => around(half - k, half - 1, mask),
        Condition::Overflow => around(half, half.wrapping_add(zero).wrapping_sub(1), mask),
        _ => return None,
    })
}

fn inverse(ranges: &Ranges, mask: u64) -> Ranges {
    let mut out = Ranges::new();
    let mut next = Some(0u64);
    for &(low, high) in ranges {
        if let Some(from) = next
            && from < low
        {
            out.push((from, low - 1));
        }
        next = high.checked_add(1);
    }
    if let Some(from) = next
        && from <= mask
    {
        out.push((from, mask));
    }
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    const ALL: [Condition; 14] = [
        Condition::Equal,
        Condition::NotEqual,
        Condition::Below,
        Condition::AboveOrEqual,
        Condition::Above,
        Condition::BelowOrEqual,
        Condition::Less,
        Condition::GreaterOrEqual,
        Condition::Greater,
        Condition::LessOrEqual,
        Condition::Sign,
        Condition::NotSign,
        Condition::Overflow,
        Condition::NotOverflow,
    ];

    /// Every condition, operation, constant and operand of 8 bits.
    #[test]
    fn ranges_are_what_the_flags_say() {
        let kinds = [Kind::Subtract, Kind::Add, Kind::Logic, Kind::Result, Kind::AddKeepingCarry];
        for arm in [false, true] {
            for kind in kinds {
                for condition in ALL.into_iter().filter(|&c| !kind.lacks(c)) {
                    for k in 0..=255u64 {
                        let Some(ranges) = of_constant(kind, condition, k, 8, arm) else {
                            panic!("{kind:?} {condition:?} has no ranges")
                        };
                        for x in 0..=255u64 {
                            let inside = ranges.iter().any(|&(l, h)| l <= x && x <= h);
                            assert_eq!(
                                Some(inside),
                                holds(kind, condition, x, k, 8, arm),
                                "{kind:?} {condition:?} {x:#x} {k:#x} arm {arm}: {ranges:x?}"
                            );
                        }
                    }
                }
            }
        }
    }
}
