//! Which values of a variable give an expression a value in a range: the inverse of evaluation.

mod condition;

pub(crate) use condition::nzcv_holds;
pub use condition::{Comparison, Conditional, Current, Kind, Outcome, Truth, holds};

use std::collections::HashMap;

use crate::expr::{Constants, Expr, Exprs, Node, Op, Unary, Variable, ones};
use crate::set::{BitSource, Quick, Set, Sets};

/// Most values a set is evaluated one by one over.
pub const MAX_EXPLICIT: usize = 65_536;
/// Most bits of the variable whose assignments are tried one by one.
const MAX_BITS: u32 = 16;
/// Evaluations one analysis may spend.
const MAX_EVALUATIONS: u64 = 24 << 20;

/// Inclusive ranges of 64-bit values, sorted and disjoint.
pub type Ranges = Vec<(u64, u64)>;

/// Expressions, sets and the constant memory they are about.
pub struct Solver<'a> {
    pub exprs: Exprs,
    pub sets: Sets,
    pub constants: Constants<'a>,
    memo: HashMap<(Expr, u64, u64), Option<Set>, Quick>,
    evaluations: u64,
}

impl<'a> Solver<'a> {
    /// A solver for a machine whose addresses have `pointer` bits.
    #[must_use]
    pub fn new(pointer: u8, constants: Constants<'a>) -> Self {
        Self {
            exprs: Exprs::new(pointer),
            sets: Sets::default(),
            constants,
            memo: HashMap::default(),
            evaluations: 0,
        }
    }

    /// Whether the budget of single evaluations is spent; enumerations fail from then on.
    #[must_use]
    pub fn exhausted(&self) -> bool {
        self.evaluations >= MAX_EVALUATIONS
    }

    /// The value of `expr` when its variable is `value`.
    #[must_use]
    pub fn evaluate(&self, expr: Expr, value: u32) -> Option<u64> {
        self.exprs.evaluate(expr, value, &self.sets, self.constants)
    }

    /// Values of `expr`'s variable that put it in `ranges`. Exact within `current`; outside it, it
    /// may be anything. `None` when no method here can tell.
    pub fn solve(&mut self, expr: Expr, ranges: &[(u64, u64)], current: Set) -> Option<Set> {
        if let &[(low, high)] = ranges {
            if let Some(&known) = self.memo.get(&(expr, low, high))
                && known.is_some()
            {
                return known;
            }
            let exact = self.invert(expr, ranges);
            self.memo.insert((expr, low, high), exact);
            if exact.is_some() {
                return exact;
            }
        } else if let Some(exact) = self.invert(expr, ranges) {
            return Some(exact);
        }
        let ranges = ranges.to_vec();
        self.enumerate(&[expr], current, &|values| {
            values.first().is_some_and(|&v| ranges.iter().any(|&(low, high)| low <= v && v <= high))
        })
    }

    /// By undoing each operation.
    fn invert(&mut self, expr: Expr, ranges: &[(u64, u64)]) -> Option<Set> {
        if self.exprs.may(expr) <= u64::from(u32::MAX) {
            let mut wanted = Set::EMPTY;
            for &(low, high) in ranges {
                let Ok(low) = u32::try_from(low) else { continue };
                let part = self.sets.interval(low, u32::try_from(high).unwrap_or(u32::MAX));
                wanted = self.sets.or(wanted, part);
            }
            return self.invert_narrow(expr, wanted);
        }
        self.invert_wide(expr, ranges)
    }

    /// Of an expression whose value fits 32 bits: values of its variable that put it in `wanted`.
    pub fn invert_narrow(&mut self, expr: Expr, wanted: Set) -> Option<Set> {
        if self.sets.overflowed() {
            return None;
        }
        match self.exprs.node(expr) {
            Node::Variable(_) => return Some(wanted),
            Node::Const(value) => {
                let inside = u32::try_from(value).is_ok_and(|v| self.sets.contains(wanted, v));
                return Some(if inside { Set::ALL } else { Set::EMPTY });
            }
            Node::Select { set, a, b, .. } => {
                let then = self.invert_narrow(a, wanted)?;
                let otherwise = self.invert_narrow(b, wanted)?;
                return Some(self.sets.choose(set, then, otherwise));
            }
            Node::Unary { op: Unary::Negate, width, a } if width <= 32 => {
                let inner = self.before_negate(wanted, 0, width);
                return self.invert_narrow(a, inner);
            }
            Node::Binary { op, width, a, b } if width <= 32 => {
                if let Some(inner) = self.before_arithmetic(op, width, a, b, wanted) {
                    let (side, set) = inner;
                    return self.invert_narrow(side, set);
                }
            }
            _ => {}
        }
        let (inner, sources) = self.route(expr)?;
        if self.exprs.may(inner) > u64::from(u32::MAX) {
            return self.invert_routed_wide(inner, &sources, wanted);
        }
        let mut low = [BitSource::Constant(false); 32];
        low.copy_from_slice(&sources[..32]);
        let before = self.sets.before_bits(wanted, &low);
        self.invert_narrow(inner, before)
    }

    /// The operand that varies and the set it must be in, for additions, subtractions and products.
    fn before_arithmetic(&mut self, op: Op, width: u8, a: Expr, b: Expr, wanted: Set) -> Option<(Expr, Set)> {
        let (left, right) = (self.exprs.constant_value(a), self.exprs.constant_value(b));
        match (op, left, right) {
            (Op::Add, _, Some(value)) => {
                let wrapped = self.modulo(wanted, width);
                Some((a, self.sets.before_add(wrapped, value as u32)))
            }
            (Op::Sub, Some(value), _) => Some((b, self.before_negate(wanted, value as u32, width))),
            (Op::Mul, _, Some(value)) if width == 32 && value & 1 == 1 => {
                Some((a, self.before_multiply(wanted, value as u32)?))
            }
            _ => None,
        }
    }

    /// All 32-bit values whose low `width` bits are in `set`.
    fn modulo(&mut self, set: Set, width: u8) -> Set {
        if width >= 32 {
            return set;
        }
        let mut sources = [BitSource::Constant(false); 32];
        for (index, source) in (0u8..).zip(sources.iter_mut()).take(usize::from(width)) {
            *source = BitSource::Input { index, inverted: false };
        }
        self.sets.before_bits(set, &sources)
    }

    /// All `x` with `value - x` (modulo 2^width) in `wanted`.
    fn before_negate(&mut self, wanted: Set, value: u32, width: u8) -> Set {
        // value - x = !x + (value + 1).
        let wrapped = self.modulo(wanted, width);
        let shifted = self.sets.before_add(wrapped, value.wrapping_add(1));
        let mut sources = [BitSource::Constant(false); 32];
        for (index, source) in (0u8..).zip(sources.iter_mut()) {
            *source = BitSource::Input { index, inverted: true };
        }
        self.sets.before_bits(shifted, &sources)
    }

    fn before_multiply(&mut self, wanted: Set, factor: u32) -> Option<Set> {
        // Newton: each step doubles the bits that are right.
        let mut inverse = factor;
        for _ in 0..5 {
            inverse = inverse.wrapping_mul(2u32.wrapping_sub(factor.wrapping_mul(inverse)));
        }
        let (set, inverted) = if self.sets.count(wanted) <= MAX_EXPLICIT as u64 {
            (wanted, false)
        } else {
            (self.sets.not(wanted), true)
        };
        let values = self.sets.values(set, MAX_EXPLICIT)?;
        let images: Vec<u32> = values.iter().map(|v| v.wrapping_mul(inverse)).collect();
        let before = self.sets.values_of(&images);
        Some(if inverted { self.sets.not(before) } else { before })
    }

    /// `expr` as a rearrangement of the bits of a simpler expression.
    fn route(&self, expr: Expr) -> Option<(Expr, [BitSource; 64])> {
        let mut sources = [BitSource::Constant(false); 64];
        for (index, source) in (0u8..).zip(sources.iter_mut()) {
            *source = BitSource::Input { index, inverted: false };
        }
        let mut at = expr;
        let mut moved = false;
        while let Some((inner, step)) = self.route_step(at) {
            for source in &mut sources {
                if let BitSource::Input { index, inverted } = *source {
                    *source = match step[usize::from(index & 63)] {
                        BitSource::Constant(bit) => BitSource::Constant(bit != inverted),
                        BitSource::Input { index, inverted: again } => {
                            BitSource::Input { index, inverted: inverted != again }
                        }
                    };
                }
            }
            at = inner;
            moved = true;
        }
        let may = self.exprs.may(at);
        for source in &mut sources {
            if let BitSource::Input { index, inverted } = *source
                && may >> (index & 63) & 1 == 0
            {
                *source = BitSource::Constant(inverted);
            }
        }
        moved.then_some((at, sources))
    }

    /// One operation undone: where each bit of `expr` comes from in its operand.
    fn route_step(&self, expr: Expr) -> Option<(Expr, [BitSource; 64])> {
        let mut out = [BitSource::Constant(false); 64];
        let from = |index: u8| BitSource::Input { index, inverted: false };
        let inner = match self.exprs.node(expr) {
            Node::Unary { op: op @ (Unary::Not | Unary::ByteSwap), width, a } => {
                for (i, bit) in (0u8..width).zip(out.iter_mut()) {
                    *bit = match op {
                        Unary::Not => BitSource::Input { index: i, inverted: true },
                        _ => from((width - 8 - (i & !7)) | (i & 7)),
                    };
                }
                a
            }
            Node::SignExtend { from: low, to, a } => {
                for (i, bit) in (0u8..to).zip(out.iter_mut()) {
                    *bit = from(i.min(low.saturating_sub(1)));
                }
                a
            }
            Node::Binary { op, width, a, b } => {
                let value = self.exprs.constant_value(b)?;
                let count = u8::try_from(value.min(255)).unwrap_or(u8::MAX);
                for (i, bit) in (0u8..width).zip(out.iter_mut()) {
                    let one = value >> i & 1 == 1;
                    *bit = match op {
                        Op::And if !one => BitSource::Constant(false),
                        Op::Or if one => BitSource::Constant(true),
                        Op::And | Op::Or => from(i),
                        Op::Xor => BitSource::Input { index: i, inverted: one },
                        Op::ShiftLeft => i.checked_sub(count).map_or(BitSource::Constant(false), from),
                        Op::ShiftRight if count >= width - i => BitSource::Constant(false),
                        Op::ShiftRight => from(i + count),
                        Op::ShiftRightArithmetic => from(i.saturating_add(count).min(width - 1)),
                        Op::RotateLeft => from((i + width - count % width) % width),
                        Op::RotateRight => from((i + count % width) % width),
                        Op::Add | Op::Sub | Op::Mul => return None,
                    };
                }
                a
            }
            _ => return None,
        };
        Some((inner, out))
    }

    /// A narrow rearrangement of a wide value: exact when `wanted` is one value or all but one.
    fn invert_routed_wide(&mut self, inner: Expr, sources: &[BitSource; 64], wanted: Set) -> Option<Set> {
        let (set, inverted) = match self.sets.single(wanted) {
            Some(_) => (wanted, false),
            None => (self.sets.not(wanted), true),
        };
        let value = u64::from(self.sets.single(set)?);
        let (mut mask, mut bits) = (0u64, 0u64);
        for (i, source) in sources.iter().enumerate() {
            let one = value >> i & 1 == 1;
            match *source {
                BitSource::Constant(bit) if bit == one => {}
                BitSource::Constant(_) => return Some(if inverted { Set::ALL } else { Set::EMPTY }),
                BitSource::Input { index, inverted } => {
                    let bit = 1u64 << (index & 63);
                    let required = if one != inverted { bit } else { 0 };
                    if mask & bit != 0 && bits & bit != required {
                        return Some(Set::EMPTY).filter(|_| !inverted);
                    }
                    mask |= bit;
                    bits |= required;
                }
            }
        }
        // `inner & mask == bits`, as ranges when the mask is a run of high bits or all of them.
        let low = !mask;
        if low & low.wrapping_add(1) != 0 {
            return None;
        }
        let found = self.invert_wide(inner, &[(bits, bits | low)])?;
        Some(if inverted { self.sets.not(found) } else { found })
    }

    /// Of an expression with 64-bit values.
    fn invert_wide(&mut self, expr: Expr, ranges: &[(u64, u64)]) -> Option<Set> {
        if self.exprs.may(expr) <= u64::from(u32::MAX) {
            return self.invert(expr, ranges);
        }
        match self.exprs.node(expr) {
            Node::Binary { op: Op::Add, width: 64, a, b } => {
                let value = self.exprs.constant_value(b)?;
                self.invert_wide(a, &shifted(ranges, value.wrapping_neg()))
            }
            Node::Binary { op: Op::Sub, width: 64, a, b } => {
                let value = self.exprs.constant_value(a)?;
                let mirrored: Ranges = ranges.iter().rev().map(|&(low, high)| (!high, !low)).collect();
                // value - x = !x + value + 1.
                self.invert_wide(b, &shifted(&mirrored, value.wrapping_add(1)))
            }
            Node::Unary { op: Unary::Negate, width: 64, a } => {
                let mirrored: Ranges = ranges.iter().rev().map(|&(low, high)| (!high, !low)).collect();
                self.invert_wide(a, &shifted(&mirrored, 1))
            }
            Node::Unary { op: Unary::Not, width: 64, a } => {
                let mirrored: Ranges = ranges.iter().rev().map(|&(low, high)| (!high, !low)).collect();
                self.invert_wide(a, &mirrored)
            }
            Node::SignExtend { from: 32, to: 64, a } => {
                let half = 0x8000_0000u64;
                let mut narrow = Ranges::new();
                for &(low, high) in ranges {
                    narrow.extend(overlap(low, high, 0, half - 1));
                    let negative = overlap(low, high, !(half - 1), u64::MAX);
                    narrow.extend(negative.map(|(l, h)| (l & 0xffff_ffff, h & 0xffff_ffff)));
                }
                self.invert(a, &narrow)
            }
            Node::Binary { op: Op::ShiftLeft, width: 64, a, b } => {
                let count = u32::try_from(self.exprs.constant_value(b)?).ok().filter(|&n| n < 32)?;
                if self.exprs.may(a) > u64::from(u32::MAX) {
                    return None;
                }
                let step = (1u64 << count) - 1;
                let inner: Ranges = ranges
                    .iter()
                    .filter_map(|&(low, high)| {
                        let low = low.checked_add(step).map(|l| l >> count)?;
                        (low <= high >> count).then_some((low, high >> count))
                    })
                    .collect();
                self.invert(a, &inner)
            }
            Node::Select { set, a, b, .. } => {
                let then = self.invert_wide(a, ranges)?;
                let otherwise = self.invert_wide(b, ranges)?;
                Some(self.sets.choose(set, then, otherwise))
            }
            Node::Const(value) => {
                let inside = ranges.iter().any(|&(low, high)| low <= value && value <= high);
                Some(if inside { Set::ALL } else { Set::EMPTY })
            }
            _ => None,
        }
    }

    /// By trying: every value of a small `current`, or every assignment of the few bits that matter.
    /// All of `exprs` are of one variable.
    pub fn enumerate(&mut self, exprs: &[Expr], current: Set, holds: &dyn Fn(&[u64]) -> bool) -> Option<Set> {
        let (candidates, mask) = self.candidates(exprs, current)?;
        let mut found = Vec::new();
        let mut values = Vec::with_capacity(exprs.len());
        for candidate in candidates {
            values.clear();
            for &expr in exprs {
                values.push(self.evaluate(expr, candidate)?);
            }
            if holds(&values) {
                found.push(candidate);
            }
        }
        Some(self.matching(&found, mask))
    }

    /// Values that stand for all of `current`, and the bits of them that count.
    pub fn candidates(&mut self, exprs: &[Expr], current: Set) -> Option<(Vec<u32>, u32)> {
        if self.exhausted() || self.sets.overflowed() {
            return None;
        }
        if exprs.iter().any(|&e| matches!(self.exprs.node(e), Node::Unknown | Node::Lost)) {
            return None;
        }
        let needed = exprs.iter().fold(0, |all, &e| all | self.exprs.needed(e, u64::MAX, &self.sets));
        let (fixed, value) = self.sets.fixed_bits(current);
        let free = needed & !fixed;
        let count = self.sets.count(current);
        let by_bits = free.count_ones() <= MAX_BITS && (1u64 << free.count_ones()) < count;
        let (candidates, mask) = if by_bits {
            let base = value & needed;
            // Only assignments that some member has.
            let possible = self.sets.project(current, needed);
            let all = (0..1u32 << free.count_ones()).map(|n| base | deposit(n, free));
            (all.filter(|&v| self.sets.contains(possible, v)).collect(), needed)
        } else {
            (self.sets.values(current, MAX_EXPLICIT)?, u32::MAX)
        };
        let candidates: Vec<u32> = candidates;
        self.evaluations += candidates.len() as u64;
        Some((candidates, mask))
    }

    /// All values that agree with one of `found` in the bits of `mask`.
    pub fn matching(&mut self, found: &[u32], mask: u32) -> Set {
        let exact = self.sets.values_of(found);
        if mask == u32::MAX {
            return exact;
        }
        let mut sources = [BitSource::Constant(false); 32];
        for (index, source) in (0u8..).zip(sources.iter_mut()) {
            if mask >> index & 1 == 1 {
                *source = BitSource::Input { index, inverted: false };
            }
        }
        self.sets.before_bits(exact, &sources)
    }

    /// The variable that all of `exprs` are functions of, if they are of one.
    #[must_use]
    pub fn common_variable(&self, exprs: &[Expr]) -> Option<Variable> {
        let mut found = None;
        for &expr in exprs {
            match (found, self.exprs.variable(expr)) {
                (Some(a), Some(b)) if a != b => return None,
                (None, some) => found = some,
                _ => {}
            }
        }
        found
    }
}

/// The low bits of `number` spread over the set bits of `mask`.
fn deposit(number: u32, mask: u32) -> u32 {
    let mut out = 0;
    let mut next = 0;
    for bit in 0..32 {
        if mask >> bit & 1 == 1 {
            out |= (number >> next & 1) << bit;
            next += 1;
        }
    }
    out
}

/// `ranges` moved up by `amount`, modulo 2^64.
fn shifted(ranges: &[(u64, u64)], amount: u64) -> Ranges {
    let mut out = Ranges::new();
    for &(low, high) in ranges {
        let (from, to) = (low.wrapping_add(amount), high.wrapping_add(amount));
        if from <= to {
            out.push((from, to));
        } else {
            out.push((0, to));
            out.push((from, u64::MAX));
        }
    }
    out
}

fn overlap(low: u64, high: u64, from: u64, to: u64) -> Option<(u64, u64)> {
    let (low, high) = (low.max(from), high.min(to));
    (low <= high).then_some((low, high))
}

/// All values of `width` bits.
#[must_use]
pub fn everything(width: u8) -> Ranges {
    vec![(0, ones(width))]
}
