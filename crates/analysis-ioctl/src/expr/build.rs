//! Making expressions, folded to one form per value where that is cheap.

use super::{Expr, Exprs, Node, Op, Symbol, Unary, Variable, ones};
use crate::set::Set;

impl Exprs {
    pub fn constant(&mut self, value: u64) -> Expr {
        self.intern(Node::Const(value))
    }

    pub fn stack(&mut self, offset: i64) -> Expr {
        self.intern(Node::Stack(offset))
    }

    pub fn symbol(&mut self, symbol: Symbol) -> Expr {
        self.intern(Node::Symbol(symbol))
    }

    pub fn var(&mut self, variable: Variable) -> Expr {
        self.intern(Node::Variable(variable))
    }

    /// What an operation over `parts` gives when it cannot be expressed.
    #[must_use]
    pub fn give_up(&self, parts: &[Expr]) -> Expr {
        if parts.iter().any(|&part| self.from_code(part)) { Expr::LOST } else { Expr::UNKNOWN }
    }

    /// Whether two operands cannot be in one expression: unknown ones, or two variables.
    fn incompatible(&self, a: Expr, b: Expr) -> bool {
        let unusable = |e| matches!(self.node(e), Node::Unknown | Node::Lost | Node::Partial { .. });
        unusable(a)
            || unusable(b)
            || matches!((self.variable(a), self.variable(b)), (Some(x), Some(y)) if x != y)
    }

    /// The low `bits` bits of `a`.
    pub fn truncate(&mut self, a: Expr, bits: u8) -> Expr {
        let mask = ones(bits);
        if bits >= 64 {
            return a;
        }
        match self.node(a) {
            Node::Unknown | Node::Lost => a,
            Node::Const(value) => self.constant(value & mask),
            Node::Partial { bits: known, a: low } if known >= bits => self.truncate(low, bits),
            Node::Partial { .. } => self.give_up(&[a]),
            // An address cut below the pointer width is no address any more.
            Node::Stack(_) | Node::Symbol(_) if bits >= self.pointer => a,
            Node::Stack(_) | Node::Symbol(_) => Expr::UNKNOWN,
            _ if self.may(a) & !mask == 0 => a,
            Node::Binary {
                op: op @ (Op::Add | Op::Sub | Op::Mul | Op::And | Op::Or | Op::Xor),
                a: x,
                b: y,
                ..
            } => {
                let x = self.truncate(x, bits);
                let y = self.truncate(y, bits);
                self.binary(op, bits, x, y)
            }
            Node::Unary { op: op @ (Unary::Not | Unary::Negate), a: x, .. } => {
                let x = self.truncate(x, bits);
                self.unary(op, bits, x)
            }
            Node::SignExtend { from, a: x, .. } if from >= bits => self.truncate(x, bits),
            Node::SignExtend { from, a: x, .. } => self.sign_extend(x, from, bits),
            Node::Select { variable, set, a: x, b: y } => {
                let x = self.truncate(x, bits);
                let y = self.truncate(y, bits);
                self.select(variable, set, x, y)
            }
            _ => {
                let mask = self.constant(mask);
                self.intern(Node::Binary { op: Op::And, width: 64, a, b: mask })
            }
        }
    }

    /// `bits` bits of `a` from bit `low` up (`ah`).
    pub fn part(&mut self, a: Expr, low: u8, bits: u8) -> Expr {
        if low == 0 {
            return self.truncate(a, bits);
        }
        let count = self.constant(u64::from(low));
        let shifted = match self.node(a) {
            Node::Partial { bits: known, a: inner } if known >= low + bits => {
                self.binary(Op::ShiftRight, 64, inner, count)
            }
            _ => self.binary(Op::ShiftRight, 64, a, count),
        };
        self.truncate(shifted, bits)
    }

    /// `old` with `bits` bits from bit `low` up replaced by those of `new` (a write to `al`, `ah`).
    pub fn replace(&mut self, old: Expr, new: Expr, low: u8, bits: u8) -> Expr {
        let new = self.truncate(new, bits);
        let covered = ones(bits) << low;
        let keep = self.constant(!covered);
        let count = self.constant(u64::from(low));
        let kept = self.binary(Op::And, 64, old, keep);
        let placed = self.binary(Op::ShiftLeft, 64, new, count);
        let whole = self.binary(Op::Or, 64, kept, placed);
        if self.is_definite(whole) || low != 0 {
            return whole;
        }
        if matches!(self.node(new), Node::Unknown | Node::Lost) {
            return self.give_up(&[old, new]);
        }
        self.intern(Node::Partial { bits, a: new })
    }

    pub fn sign_extend(&mut self, a: Expr, from: u8, to: u8) -> Expr {
        let a = self.truncate(a, from);
        match self.node(a) {
            Node::Const(value) => {
                let shift = u32::from(64u8.saturating_sub(from));
                let wide = (value.wrapping_shl(shift) as i64).wrapping_shr(shift) as u64;
                self.constant(if from == 0 { 0 } else { wide & ones(to) })
            }
            Node::Unknown | Node::Lost | Node::Partial { .. } => self.give_up(&[a]),
            Node::Stack(_) | Node::Symbol(_) => Expr::UNKNOWN,
            // The sign bit cannot be set.
            _ if from == 0 || self.may(a) & (1 << (from - 1)) == 0 => a,
            Node::Select { variable, set, a: x, b: y } => {
                let x = self.sign_extend(x, from, to);
                let y = self.sign_extend(y, from, to);
                self.select(variable, set, x, y)
            }
            _ => self.intern(Node::SignExtend { from, to, a }),
        }
    }

    /// Constant memory at `a`; reading it is the caller's, when the address is a constant.
    pub fn load(&mut self, a: Expr, size: u8) -> Expr {
        match self.node(a) {
            Node::Unknown | Node::Lost | Node::Partial { .. } => self.give_up(&[a]),
            _ => self.intern(Node::Load { size, a }),
        }
    }

    /// `size` bytes at `a` that the caller controls.
    pub fn user(&mut self, a: Expr, size: u8) -> Expr {
        match self.node(a) {
            Node::Unknown | Node::Lost | Node::Partial { .. } => Expr::UNKNOWN,
            _ => self.intern(Node::User { size, a }),
        }
    }

    pub fn select(&mut self, variable: Variable, set: Set, a: Expr, b: Expr) -> Expr {
        if (a == b && self.is_definite(a)) || set == Set::ALL {
            return a;
        }
        if set.is_empty() {
            return b;
        }
        let other = |e| self.variable(e).is_some_and(|v| v != variable);
        if self.incompatible(a, b) || other(a) || other(b) {
            return if variable == Variable::CODE { Expr::LOST } else { self.give_up(&[a, b]) };
        }
        self.intern(Node::Select { variable, set, a, b })
    }

    pub fn unary(&mut self, op: Unary, width: u8, a: Expr) -> Expr {
        let a = self.truncate(a, width);
        match self.node(a) {
            Node::Unknown | Node::Lost | Node::Partial { .. } => self.give_up(&[a]),
            Node::Stack(_) | Node::Symbol(_) => Expr::UNKNOWN,
            Node::Const(value) => self.constant(super::evaluate::unary(op, width, value)),
            Node::Unary { op: inner, width: w, a: x } if inner == op && w == width => x,
            Node::Select { variable, set, a: x, b: y } => {
                let x = self.unary(op, width, x);
                let y = self.unary(op, width, y);
                self.select(variable, set, x, y)
            }
            _ => self.intern(Node::Unary { op, width, a }),
        }
    }

    pub fn binary(&mut self, op: Op, width: u8, a: Expr, b: Expr) -> Expr {
        let a = self.truncate(a, width);
        let b = self.truncate(b, width);
        // Zero and'ed with anything is zero.
        if op == Op::And && (self.constant_value(a) == Some(0) || self.constant_value(b) == Some(0)) {
            return self.constant(0);
        }
        if let Some(low) = self.low_part(op, a, b) {
            return low;
        }
        if self.incompatible(a, b) {
            return self.give_up(&[a, b]);
        }
        match (self.constant_value(a), self.constant_value(b)) {
            (Some(x), Some(y)) => {
                let value = super::evaluate::binary(op, width, x, y);
                self.constant(value)
            }
            (Some(_), None) if matches!(op, Op::Add | Op::Mul | Op::And | Op::Or | Op::Xor) => {
                self.with_constant(op, width, b, a)
            }
            (None, Some(_)) => self.with_constant(op, width, a, b),
            _ => self.without_constant(op, width, a, b),
        }
    }

    /// `and` of a partly known value with a mask that asks only for the known part.
    fn low_part(&mut self, op: Op, a: Expr, b: Expr) -> Option<Expr> {
        if op != Op::And {
            return None;
        }
        let (partial, other) = match (self.node(a), self.node(b)) {
            (Node::Partial { .. }, _) => (a, b),
            (_, Node::Partial { .. }) => (b, a),
            _ => return None,
        };
        let Node::Partial { bits, a: low } = self.node(partial) else { return None };
        let mask = self.constant_value(other)?;
        (mask & !ones(bits) == 0).then(|| self.binary(Op::And, 64, low, other))
    }

    /// `a op constant`.
    fn with_constant(&mut self, op: Op, width: u8, a: Expr, b: Expr) -> Expr {
        let Some(value) = self.constant_value(b) else { return self.without_constant(op, width, a, b) };
        let wide = ones(width);
        if let Node::Select { variable, set, a: x, b: y } = self.node(a) {
            let x = self.binary(op, width, x, b);
            let y = self.binary(op, width, y, b);
            return self.select(variable, set, x, y);
        }
        match op {
            Op::Sub => {
                let negated = self.constant(value.wrapping_neg() & wide);
                self.add_constant(width, a, negated)
            }
            Op::Add => self.add_constant(width, a, b),
            Op::Or
            | Op::Xor
            | Op::ShiftLeft
            | Op::ShiftRight
            | Op::ShiftRightArithmetic
            | Op::RotateLeft
            | Op::RotateRight
                if value == 0 =>
            {
                a
            }
            Op::And if self.may(a) & !value == 0 && self.plain(a) => a,
            Op::And => match self.node(a) {
                Node::Binary { op: Op::And, a: x, b: y, .. } if self.constant_value(y).is_some() => {
                    let both = self.constant(value & self.constant_value(y).unwrap_or(0));
                    self.binary(Op::And, 64, x, both)
                }
                _ => self.raw(op, width, a, b),
            },
            Op::Mul => self.multiply(width, a, value),
            Op::ShiftLeft | Op::ShiftRight if value >= u64::from(width) => self.constant(0),
            _ => self.raw(op, width, a, b),
        }
    }

    /// Symbols and stack addresses have no bits to speak of.
    fn plain(&self, a: Expr) -> bool {
        !matches!(self.node(a), Node::Stack(_) | Node::Symbol(_))
    }

    fn add_constant(&mut self, width: u8, a: Expr, b: Expr) -> Expr {
        let value = self.constant_value(b).unwrap_or(0);
        if value == 0 {
            return a;
        }
        match self.node(a) {
            Node::Stack(offset) => {
                let added = if width == 32 { i64::from(value as u32 as i32) } else { value as i64 };
                match offset.checked_add(added) {
                    Some(sum) if width >= self.pointer => self.stack(sum),
                    _ => Expr::UNKNOWN,
                }
            }
            Node::Symbol(_) if width < self.pointer => Expr::UNKNOWN,
            Node::Binary { op: Op::Add, width: w, a: x, b: y }
                if w == width && self.constant_value(y).is_some() =>
            {
                let sum = self.constant_value(y).unwrap_or(0).wrapping_add(value) & ones(width);
                let sum = self.constant(sum);
                self.add_constant(width, x, sum)
            }
            _ => self.intern(Node::Binary { op: Op::Add, width, a, b }),
        }
    }

    fn multiply(&mut self, width: u8, a: Expr, value: u64) -> Expr {
        if value == 0 {
            return self.constant(0);
        }
        let shift = value.trailing_zeros();
        let odd = value >> shift;
        let product = if odd == 1 {
            a
        } else {
            let odd = self.constant(odd);
            self.raw(Op::Mul, width, a, odd)
        };
        let count = self.constant(u64::from(shift));
        self.binary(Op::ShiftLeft, width, product, count)
    }

    fn without_constant(&mut self, op: Op, width: u8, a: Expr, b: Expr) -> Expr {
        match (op, self.node(a), self.node(b)) {
            (Op::Sub, Node::Stack(x), Node::Stack(y)) => {
                return self.constant(x.wrapping_sub(y) as u64 & ones(width));
            }
            (Op::Xor | Op::Sub, ..) if a == b => return self.constant(0),
            (Op::And | Op::Or, ..) if a == b => return a,
            (Op::Add, ..) if a == b => {
                let one = self.constant(1);
                return self.binary(Op::ShiftLeft, width, a, one);
            }
            _ => {}
        }
        // K - (x + c) keeps its own form: see `solve`.
        self.raw(op, width, a, b)
    }

    fn raw(&mut self, op: Op, width: u8, a: Expr, b: Expr) -> Expr {
        let address = |e| matches!(self.node(e), Node::Stack(_) | Node::Symbol(_));
        let based = |e| address(self.split(e).0);
        if (based(a) || based(b)) && op != Op::Add {
            return self.give_up(&[a, b]);
        }
        self.intern(Node::Binary { op, width, a, b })
    }
}
