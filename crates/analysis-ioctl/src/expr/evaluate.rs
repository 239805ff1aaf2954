//! The value of an expression for one value of its variable, and the bits of the variable it needs.

use super::{Expr, Exprs, Node, Op, Unary, ones};
use crate::set::Sets;

/// Reads constant memory: `size` bytes at an address, zero-extended; `None` when the image does not
/// hold them as constants.
pub type Constants<'a> = &'a dyn Fn(u64, u8) -> Option<u64>;

pub(super) fn unary(op: Unary, width: u8, a: u64) -> u64 {
    ones(width)
        & match op {
            Unary::Not => !a,
            Unary::Negate => a.wrapping_neg(),
            Unary::ByteSwap => a.swap_bytes() >> 64u8.saturating_sub(width).min(63),
        }
}

pub(super) fn binary(op: Op, width: u8, a: u64, b: u64) -> u64 {
    let wide = ones(width);
    let (a, b) = (a & wide, b & wide);
    let width = u32::from(width.max(1));
    // Counts are masked by whoever builds the shift; a count of width or more shifts all out.
    let count = u32::try_from(b).unwrap_or(u32::MAX);
    let turn = u32::try_from(b % u64::from(width)).unwrap_or(0);
    let rotate = |left: u32| {
        let left = left % width;
        if left == 0 { a } else { (a << left) | (a >> (width - left)) }
    };
    wide & match op {
        Op::Add => a.wrapping_add(b),
        Op::Sub => a.wrapping_sub(b),
        Op::Mul => a.wrapping_mul(b),
        Op::And => a & b,
        Op::Or => a | b,
        Op::Xor => a ^ b,
        Op::ShiftLeft => a.checked_shl(count).unwrap_or(0),
        Op::ShiftRight => a.checked_shr(count).unwrap_or(0),
        Op::ShiftRightArithmetic => {
            let up = 64 - width;
            let signed = (a << up) as i64 >> up;
            (signed >> count.min(63)) as u64
        }
        Op::RotateLeft => rotate(turn),
        Op::RotateRight => rotate(width - turn),
    }
}

impl Exprs {
    /// The value of `expr` when its variable is `value`. `None` when it depends on what is not known.
    #[must_use]
    pub fn evaluate(&self, expr: Expr, value: u32, sets: &Sets, constants: Constants<'_>) -> Option<u64> {
        let at = |e| self.evaluate(e, value, sets, constants);
        Some(match self.node(expr) {
            Node::Const(constant) => constant,
            Node::Variable(_) => u64::from(value),
            Node::Binary { op, width, a, b } => binary(op, width, at(a)?, at(b)?),
            Node::Unary { op, width, a } => unary(op, width, at(a)?),
            Node::SignExtend { from, to, a } => {
                let up = 64 - u32::from(from.clamp(1, 64));
                (((at(a)? << up) as i64) >> up) as u64 & ones(to)
            }
            Node::Load { size, a } => constants(at(a)?, size)?,
            Node::Select { set, a, b, .. } => at(if sets.contains(set, value) { a } else { b })?,
            Node::Unknown
            | Node::Lost
            | Node::Stack(_)
            | Node::Symbol(_)
            | Node::User { .. }
            | Node::Partial { .. } => {
                return None;
            }
        })
    }

    /// Bits of the variable that the bits `wanted` of the value can depend on.
    #[must_use]
    pub fn needed(&self, expr: Expr, wanted: u64, sets: &Sets) -> u32 {
        let wanted = wanted & self.may(expr);
        if wanted == 0 {
            return 0;
        }
        match self.node(expr) {
            Node::Variable(_) => wanted as u32,
            Node::Binary { op, width, a, b } => self.needed_binary(op, width, a, b, wanted, sets),
            Node::Unary { op: Unary::Not, a, .. } => self.needed(a, wanted, sets),
            Node::Unary { op: Unary::Negate, a, .. } => self.needed(a, below(wanted), sets),
            Node::Unary { op: Unary::ByteSwap, width, a } => {
                self.needed(a, unary(Unary::ByteSwap, width, wanted), sets)
            }
            Node::SignExtend { from, a, .. } => {
                let sign = if wanted & !ones(from) != 0 { 1u64 << (from.max(1) - 1) } else { 0 };
                self.needed(a, wanted & ones(from) | sign, sets)
            }
            Node::Load { a, .. } => self.needed(a, u64::MAX, sets),
            Node::Select { set, a, b, .. } => {
                sets.support(set) | self.needed(a, wanted, sets) | self.needed(b, wanted, sets)
            }
            _ => 0,
        }
    }

    fn needed_binary(&self, op: Op, width: u8, a: Expr, b: Expr, wanted: u64, sets: &Sets) -> u32 {
        let wide = ones(width);
        let both = |x, y| self.needed(a, x, sets) | self.needed(b, y, sets);
        match (op, self.constant_value(b)) {
            (Op::Add | Op::Sub | Op::Mul, _) => both(below(wanted), below(wanted)),
            (Op::And, Some(mask)) => self.needed(a, wanted & mask, sets),
            (Op::Or, Some(mask)) => self.needed(a, wanted & !mask, sets),
            (Op::And | Op::Or | Op::Xor, _) => both(wanted, wanted),
            (Op::ShiftLeft, Some(n)) => {
                self.needed(a, wanted.checked_shr(n.min(64) as u32).unwrap_or(0), sets)
            }
            (Op::ShiftRight, Some(n)) => {
                self.needed(a, wide & wanted.checked_shl(n.min(64) as u32).unwrap_or(0), sets)
            }
            (Op::RotateLeft, Some(n)) => self.needed(a, binary(Op::RotateRight, width, wanted, n), sets),
            (Op::RotateRight, Some(n)) => self.needed(a, binary(Op::RotateLeft, width, wanted, n), sets),
            _ => both(wide, u64::MAX),
        }
    }
}

/// All bits at or below the highest of `bits`.
fn below(bits: u64) -> u64 {
    ones(u8::try_from(64 - bits.leading_zeros()).unwrap_or(64))
}
