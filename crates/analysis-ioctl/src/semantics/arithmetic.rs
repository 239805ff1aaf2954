//! Arithmetic, and the flags it leaves.

use std::rc::Rc;

use code::record::{Condition, Decoded, Flags, Operand, Operation};

use crate::expr::{Expr, Op, Unary, ones};
use crate::pass::Pass;
use crate::solve::{Comparison, Conditional, Kind};
use crate::state::State;

impl Pass<'_> {
    pub(super) fn step_arithmetic(&mut self, instruction: &Decoded, state: &mut State) {
        let vector = instruction
            .destination()
            .is_some_and(|d| matches!(d, Operand::Register(r) if r.width > 64) || self.width_of(d).is_none());
        if vector || !instruction.has_destination {
            return self.step_vector(instruction, state);
        }
        let width = instruction.destination().and_then(|d| self.width_of(d)).unwrap_or(64);
        let count = instruction.sources().len();
        let a = self.source(instruction, 0, width, state);
        let b = if count > 1 { self.source(instruction, 1, width, state) } else { Expr::UNKNOWN };
        let c = if count > 2 { self.source(instruction, 2, width, state) } else { Expr::UNKNOWN };
        let same = instruction
            .sources()
            .get(1)
            .is_some_and(|s| matches!(s, Operand::Register(_)) && instruction.sources().first() == Some(s));
        let old = match instruction.destination() {
            Some(Operand::Register(register)) => self.read_register(*register, state),
            _ => Expr::UNKNOWN,
        };
        let value = self.compute(instruction, (a, b, c), old, width, same, state);
        let comparison = self.flags_after(instruction, a, b, value, width);
        self.write_destination(instruction, value, state);
        if let Some(comparison) = comparison {
            state.compare(instruction.address, comparison, &mut self.solver);
        }
    }

    /// Vector operations: zero from `xor x, x`, else only whether the code went in.
    fn step_vector(&mut self, instruction: &Decoded, state: &mut State) {
        let [first, second] = instruction.sources() else { return self.step_other(instruction, state) };
        let zero = matches!(instruction.operation, Operation::Xor | Operation::Subtract)
            && first == second
            && matches!(first, Operand::Register(_))
            && instruction.has_destination;
        if zero {
            let value = self.solver.exprs.constant(0);
            return self.write_destination(instruction, value, state);
        }
        self.step_other(instruction, state);
    }

    fn compute(
        &mut self,
        instruction: &Decoded,
        (a, b, c): (Expr, Expr, Expr),
        old: Expr,
        width: u8,
        same: bool,
        state: &State,
    ) -> Expr {
        use Operation as O;
        let op = match instruction.operation {
            O::Subtract | O::Xor if same => return self.solver.exprs.constant(0),
            O::And | O::Or if same => return a,
            O::Add => Op::Add,
            O::Subtract => Op::Sub,
            O::Multiply => Op::Mul,
            O::And => Op::And,
            O::Or => Op::Or,
            O::Xor => Op::Xor,
            O::ShiftLeft | O::ShiftRight | O::ShiftRightArithmetic | O::RotateLeft | O::RotateRight => {
                return self.shift(instruction.operation, width, a, b);
            }
            O::AndNot | O::OrNot | O::XorNot => {
                let inverted = self.solver.exprs.unary(Unary::Not, width, b);
                let op = match instruction.operation {
                    O::AndNot => Op::And,
                    O::OrNot => Op::Or,
                    _ => Op::Xor,
                };
                return self.solver.exprs.binary(op, width, a, inverted);
            }
            O::Not => return self.solver.exprs.unary(Unary::Not, width, a),
            O::Negate => return self.solver.exprs.unary(Unary::Negate, width, a),
            O::ByteSwap => return self.solver.exprs.unary(Unary::ByteSwap, width, a),
            O::MultiplyAdd | O::MultiplySubtract => {
                let product = self.solver.exprs.binary(Op::Mul, width, a, b);
                let op = if instruction.operation == O::MultiplyAdd { Op::Add } else { Op::Sub };
                return self.solver.exprs.binary(op, width, c, product);
            }
            O::AddWithCarry | O::SubtractWithBorrow => {
                return self.with_carry(instruction.operation, width, a, b, same, state);
            }
            O::MoveKeep => {
                let shift = self.solver.exprs.constant_value(b).unwrap_or(0);
                return self.keep(old, a, shift, 16);
            }
            O::ExtractBits | O::ExtractBitsSigned | O::PlaceBits | O::PlaceBitsSigned => {
                return self.bit_field(instruction.operation, width, a, b, c);
            }
            O::InsertBits => {
                let (Some(low), Some(count)) = self.field(b, c) else {
                    return self.solver.exprs.give_up(&[a, old]);
                };
                let shift = self.solver.exprs.constant(low);
                let placed = self.solver.exprs.truncate(a, count as u8);
                let placed = self.solver.exprs.binary(Op::ShiftLeft, width, placed, shift);
                return self.keep(old, placed, low, count);
            }
            O::InsertLowBits => {
                let (Some(low), Some(count)) = self.field(b, c) else {
                    return self.solver.exprs.give_up(&[a, old]);
                };
                let part = self.solver.exprs.part(a, low as u8, count as u8);
                return self.keep(old, part, 0, count);
            }
            _ => return self.solver.exprs.give_up(&[a, b, c, old]),
        };
        self.solver.exprs.binary(op, width, a, b)
    }

    /// `old` with `count` bits from `low` up replaced by those of `new`, which is in place.
    fn keep(&mut self, old: Expr, new: Expr, low: u64, count: u64) -> Expr {
        let field = ones(count.min(64) as u8).checked_shl(low.min(64) as u32).unwrap_or(0);
        let mask = self.solver.exprs.constant(!field);
        let kept = self.solver.exprs.binary(Op::And, 64, old, mask);
        self.solver.exprs.binary(Op::Or, 64, kept, new)
    }

    fn field(&self, low: Expr, count: Expr) -> (Option<u64>, Option<u64>) {
        let in_range = |e| self.solver.exprs.constant_value(e).filter(|&v| v <= 64);
        (in_range(low), in_range(count))
    }

    fn bit_field(&mut self, operation: Operation, width: u8, a: Expr, low: Expr, count: Expr) -> Expr {
        let (Some(low), Some(count)) = self.field(low, count) else {
            return self.solver.exprs.give_up(&[a]);
        };
        let extract = matches!(operation, Operation::ExtractBits | Operation::ExtractBitsSigned);
        let part = self.solver.exprs.part(a, if extract { low as u8 } else { 0 }, count as u8);
        let signed = matches!(operation, Operation::ExtractBitsSigned | Operation::PlaceBitsSigned);
        let part = if signed { self.solver.exprs.sign_extend(part, count as u8, width) } else { part };
        if extract {
            return part;
        }
        let shift = self.solver.exprs.constant(low);
        self.solver.exprs.binary(Op::ShiftLeft, width, part, shift)
    }

    fn shift(&mut self, operation: Operation, width: u8, a: Expr, count: Expr) -> Expr {
        let op = match operation {
            Operation::ShiftLeft => Op::ShiftLeft,
            Operation::ShiftRight => Op::ShiftRight,
            Operation::ShiftRightArithmetic => Op::ShiftRightArithmetic,
            Operation::RotateLeft => Op::RotateLeft,
            _ => Op::RotateRight,
        };
        // Both machines mask the count by the operand's width, x86 never below 31.
        let mask = self.solver.exprs.constant(if width == 64 { 63 } else { 31 });
        let count = self.solver.exprs.binary(Op::And, 64, count, mask);
        self.solver.exprs.binary(op, width, a, count)
    }

    fn with_carry(
        &mut self,
        operation: Operation,
        width: u8,
        a: Expr,
        b: Expr,
        same: bool,
        state: &State,
    ) -> Expr {
        let add = operation == Operation::AddWithCarry;
        // ARM64 borrows when carry is clear, which is what `Below` means there after a comparison.
        let condition = if add && self.arm() { Condition::AboveOrEqual } else { Condition::Below };
        let (one, zero) = (self.solver.exprs.constant(1), self.solver.exprs.constant(0));
        let carry = self.choose(condition, one, zero, state);
        let op = if add { Op::Add } else { Op::Sub };
        // `sbb eax, eax`: whatever eax was, minus the borrow.
        let plain = if same && !add { zero } else { self.solver.exprs.binary(op, width, a, b) };
        self.solver.exprs.binary(op, width, plain, carry)
    }

    /// The comparison the flags stand for after an arithmetic instruction; `None` when it leaves them.
    fn flags_after(
        &mut self,
        instruction: &Decoded,
        a: Expr,
        b: Expr,
        value: Expr,
        width: u8,
    ) -> Option<Comparison> {
        use Operation as O;
        let written = instruction.flags_written;
        if !written.intersects(Flags::ZERO.union(Flags::CARRY)) {
            return None;
        }
        let carry = written.intersects(Flags::CARRY);
        let zero = self.solver.exprs.constant(0);
        let (kind, a, b) = match instruction.operation {
            O::Subtract if carry => (Kind::Subtract, a, b),
            O::Subtract => (Kind::SubtractKeepingCarry, a, b),
            O::Negate => (Kind::Subtract, zero, a),
            O::Add if carry => (Kind::Add, a, b),
            O::Add => (Kind::AddKeepingCarry, a, b),
            O::And | O::Or | O::Xor | O::AndNot => (Kind::Logic, value, zero),
            // A count of zero leaves the flags alone.
            O::ShiftLeft | O::ShiftRight | O::ShiftRightArithmetic
                if self.solver.exprs.constant_value(b).is_some_and(|n| n & 31 != 0) =>
            {
                (Kind::Result, value, zero)
            }
            O::ShiftLeft | O::ShiftRight | O::ShiftRightArithmetic | O::RotateLeft | O::RotateRight => {
                return Some(self.doubtful(&[a, b, value]));
            }
            _ => return Some(self.doubtful(&[a, b, value])),
        };
        Some(self.flags(kind, a, b, width))
    }

    fn doubtful(&self, parts: &[Expr]) -> Comparison {
        if self.solver.exprs.give_up(parts) == Expr::LOST { Comparison::Lost } else { Comparison::Nothing }
    }

    /// Flags of `a kind b`, or nothing where neither side is known.
    fn flags(&self, kind: Kind, a: Expr, b: Expr, width: u8) -> Comparison {
        let exprs = &self.solver.exprs;
        if exprs.is_definite(a) && exprs.is_definite(b) {
            return Comparison::Flags { kind, a, b, width };
        }
        self.doubtful(&[a, b])
    }

    pub(super) fn comparison_of(&mut self, instruction: &Decoded, state: &mut State) -> Comparison {
        let operands = instruction.sources();
        let width = operands.iter().take(2).find_map(|o| self.width_of(o)).unwrap_or(64);
        let (first, second) = (operands.first().copied(), operands.get(1).copied());
        let a = self.source(instruction, 0, width, state);
        let b = self.source(instruction, 1, width, state);
        let a = self.solver.exprs.truncate(a, width);
        let b = self.solver.exprs.truncate(b, width);
        match instruction.operation {
            Operation::Compare | Operation::ConditionalCompare => self.flags(Kind::Subtract, a, b, width),
            Operation::CompareNegative | Operation::ConditionalCompareNegative => {
                self.flags(Kind::Add, a, b, width)
            }
            Operation::Test => {
                let same = first == second && matches!(first, Some(Operand::Register(_)));
                let both = if same { a } else { self.solver.exprs.binary(Op::And, width, a, b) };
                let zero = self.solver.exprs.constant(0);
                self.flags(Kind::Logic, both, zero, width)
            }
            _ => self.bit_test(first, a, b, width),
        }
    }

    fn bit_test(&mut self, first: Option<Operand>, a: Expr, b: Expr, width: u8) -> Comparison {
        // Of memory with a register index, another word is tested.
        if matches!(first, Some(Operand::Memory(_))) && self.solver.exprs.constant_value(b).is_none() {
            return self.doubtful(&[a, b]);
        }
        let mask = self.solver.exprs.constant(u64::from(width.max(1) - 1));
        let one = self.solver.exprs.constant(1);
        let index = self.solver.exprs.binary(Op::And, 64, b, mask);
        let shifted = self.solver.exprs.binary(Op::ShiftRight, width, a, index);
        let bit = self.solver.exprs.binary(Op::And, width, shifted, one);
        if self.solver.exprs.is_definite(bit) { Comparison::Carry { bit } } else { self.doubtful(&[a, b]) }
    }

    pub(super) fn step_conditional_compare(&mut self, instruction: &Decoded, state: &mut State) {
        let then = self.comparison_of(instruction, state);
        let otherwise = match instruction.sources().get(2) {
            Some(Operand::Immediate(value)) => (*value & 15) as u8,
            _ => 0,
        };
        let Some(condition) = instruction.condition else { return };
        for claim in &mut state.claims {
            claim.at = instruction.address;
            let before = std::mem::replace(&mut claim.comparison, Comparison::Nothing);
            let depth = before.depth();
            claim.comparison = if depth < 8 {
                Comparison::Conditional(Rc::new(Conditional {
                    before,
                    condition,
                    then: then.clone(),
                    otherwise,
                }))
            } else {
                Comparison::Lost
            };
        }
    }
}
