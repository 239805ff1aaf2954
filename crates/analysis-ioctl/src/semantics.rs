//! What one instruction does to a [`State`].
//!
//! Everything not modelled clears what it may change: to unknown, or to [`Expr::LOST`] where the
//! control code went into it, so that nobody takes silence for knowledge.

mod arithmetic;
mod call;
mod memory;

pub(crate) use call::framework;
pub use call::{Callee, argument};

use code::record::{Condition, Decoded, Family, Flags, Modifier, Operand, Operation, Register, Transfer};

use crate::expr::{Expr, Op, Unary};
use crate::pass::Pass;
use crate::solve::{Comparison, Outcome};
use crate::state::{Claim, State};

impl Pass<'_> {
    /// Runs one instruction other than the transfer of control it may make. Of a call, only what
    /// happens before control leaves.
    pub fn step(&mut self, instruction: &Decoded, state: &mut State) {
        use Operation as O;
        match instruction.operation {
            O::Nothing | O::Jump | O::Branch | O::Trap | O::Return | O::Call => {
                if let Some(Condition::Counter(register, _)) = instruction.condition {
                    let old = self.read_register(register, state);
                    let one = self.solver.exprs.constant(1);
                    let bits = u8::try_from(register.width).unwrap_or(64);
                    let value = self.solver.exprs.binary(Op::Sub, bits, old, one);
                    state.write(register, value, &mut self.solver.exprs);
                }
            }
            O::Move | O::ZeroExtend | O::SignExtend => self.step_move(instruction, state),
            O::Address => {
                let value = match instruction.sources().first() {
                    Some(Operand::Memory(memory)) => self.address_of(memory, state),
                    Some(Operand::Immediate(value)) => self.solver.exprs.constant(*value),
                    _ => Expr::UNKNOWN,
                };
                self.write_destination(instruction, value, state);
            }
            O::Push => {
                let value = self.source(instruction, 0, self.pointer(), state);
                self.push(value, state);
            }
            O::Pop => {
                let value = self.pop(state);
                self.write_destination(instruction, value, state);
            }
            O::Leave => {
                let frame = state.register(Family::General(5));
                state.set_register(Family::StackPointer, frame);
                let value = self.pop(state);
                state.set_register(Family::General(5), value);
            }
            O::Exchange => self.step_exchange(instruction, state),
            O::LoadPair | O::StorePair => self.step_pair(instruction, state),
            O::Compare | O::CompareNegative | O::Test | O::BitTest => {
                let comparison = self.comparison_of(instruction, state);
                state.compare(instruction.address, comparison, &mut self.solver);
            }
            O::ConditionalCompare | O::ConditionalCompareNegative => {
                self.step_conditional_compare(instruction, state);
            }
            O::Select | O::SelectIncrement | O::SelectInvert | O::SelectNegate | O::SetCondition => {
                self.step_select(instruction, state);
            }
            O::Other => self.step_other(instruction, state),
            _ => self.step_arithmetic(instruction, state),
        }
    }

    pub(crate) fn read_register(&mut self, register: Register, state: &State) -> Expr {
        if register.family == Family::Zero {
            return self.solver.exprs.constant(0);
        }
        let whole = state.register(register.family);
        let bits = u8::try_from(register.width.min(64)).unwrap_or(64);
        self.solver.exprs.part(whole, register.low_bit, bits)
    }

    /// Bits of an operand: 64 for vectors, whose low half is what is tracked.
    fn width_of(&self, operand: &Operand) -> Option<u8> {
        match operand {
            Operand::Register(register) | Operand::Modified(register, _) => {
                u8::try_from(register.width.min(64)).ok()
            }
            Operand::Memory(memory) => {
                u8::try_from(memory.size.saturating_mul(8).min(64)).ok().filter(|&b| b > 0)
            }
            _ => None,
        }
    }

    /// Source number `index`, `width` bits of it.
    pub(crate) fn source(
        &mut self,
        instruction: &Decoded,
        index: usize,
        width: u8,
        state: &mut State,
    ) -> Expr {
        match instruction.sources().get(index) {
            Some(operand) => self.read(instruction, operand, width, state),
            None => Expr::UNKNOWN,
        }
    }

    fn read(&mut self, instruction: &Decoded, operand: &Operand, width: u8, state: &mut State) -> Expr {
        match operand {
            Operand::Register(register) => self.read_register(*register, state),
            Operand::Modified(register, modifier) => {
                let value = self.read_register(*register, state);
                self.modified(value, *modifier, width)
            }
            Operand::Immediate(value) => self.solver.exprs.constant(*value & crate::expr::ones(width)),
            Operand::Memory(memory) => self.load_operand(instruction, memory, state),
            Operand::Target(value) => self.solver.exprs.constant(*value),
            Operand::Opaque => Expr::UNKNOWN,
        }
    }

    fn modified(&mut self, value: Expr, modifier: Modifier, width: u8) -> Expr {
        let exprs = &mut self.solver.exprs;
        let (op, count) = match modifier {
            Modifier::ShiftLeft(count) => (Op::ShiftLeft, count),
            Modifier::ShiftRight(count) => (Op::ShiftRight, count),
            Modifier::ShiftRightArithmetic(count) => (Op::ShiftRightArithmetic, count),
            Modifier::RotateRight(count) => (Op::RotateRight, count),
            Modifier::ZeroExtend { bits, shift } => {
                let narrow = exprs.truncate(value, bits);
                let count = exprs.constant(u64::from(shift));
                return exprs.binary(Op::ShiftLeft, width, narrow, count);
            }
            Modifier::SignExtend { bits, shift } => {
                let narrow = exprs.sign_extend(value, bits, width);
                let count = exprs.constant(u64::from(shift));
                return exprs.binary(Op::ShiftLeft, width, narrow, count);
            }
        };
        let count = exprs.constant(u64::from(count));
        exprs.binary(op, width, value, count)
    }

    fn write_destination(&mut self, instruction: &Decoded, value: Expr, state: &mut State) {
        match instruction.destination() {
            Some(Operand::Register(register)) => state.write(*register, value, &mut self.solver.exprs),
            Some(Operand::Memory(memory)) => self.store_operand(memory, value, state),
            _ => {}
        }
    }

    fn step_move(&mut self, instruction: &Decoded, state: &mut State) {
        let Some(destination) = instruction.destination() else { return };
        let to = self.width_of(destination).unwrap_or(64);
        let source = instruction.sources().first();
        let from = source.and_then(|s| self.width_of(s)).unwrap_or(to);
        let value = self.source(instruction, 0, to, state);
        // What an extension or a move keeps.
        let value = match instruction.operation {
            Operation::SignExtend => self.solver.exprs.sign_extend(value, from, to),
            _ => self.solver.exprs.truncate(value, from.min(to)),
        };
        self.write_destination(instruction, value, state);
        if let Some(Operand::Memory(memory)) = source {
            self.update_base(memory, state);
        }
    }

    fn step_exchange(&mut self, instruction: &Decoded, state: &mut State) {
        let [first, second] = instruction.operands.as_slice() else {
            return self.step_other(instruction, state);
        };
        let (first, second) = (*first, *second);
        let width = self.width_of(&first).unwrap_or(64);
        let a = self.read(instruction, &first, width, state);
        let b = self.read(instruction, &second, width, state);
        for (operand, value) in [(first, b), (second, a)] {
            match operand {
                Operand::Register(register) => state.write(register, value, &mut self.solver.exprs),
                Operand::Memory(memory) => self.store_operand(&memory, value, state),
                _ => {}
            }
        }
    }

    fn step_pair(&mut self, instruction: &Decoded, state: &mut State) {
        let [first, second, Operand::Memory(memory)] = instruction.operands.as_slice() else {
            return self.step_other(instruction, state);
        };
        let memory = *memory;
        let base = self.address_of(&memory, state);
        let step = self.solver.exprs.constant(u64::from(memory.size));
        let next = self.solver.exprs.binary(Op::Add, self.pointer(), base, step);
        let size = u8::try_from(memory.size).unwrap_or(0);
        for (operand, address) in [(*first, base), (*second, next)] {
            let Operand::Register(register) = operand else { continue };
            if instruction.operation == Operation::LoadPair {
                let value = self.load_at(address, size, state);
                state.write(register, value, &mut self.solver.exprs);
            } else {
                let value = self.read_register(register, state);
                self.store_at(address, size, value, state);
            }
        }
        self.update_base(&memory, state);
    }

    fn step_other(&mut self, instruction: &Decoded, state: &mut State) {
        let mut inputs = Vec::new();
        for register in &instruction.reads {
            inputs.push(state.register(register.family));
        }
        for operand in &instruction.operands {
            if let Operand::Memory(memory) = operand
                && instruction.reads_memory
            {
                inputs.push(self.load_operand(instruction, memory, state));
            }
        }
        let result = self.solver.exprs.give_up(&inputs);
        for register in &instruction.writes {
            // A partial write leaves a mixture, which is no more known than this.
            let old = state.register(register.family);
            let result = self.solver.exprs.give_up(&[result, old]);
            let result = if register.width >= 32 { self.solver.exprs.give_up(&inputs) } else { result };
            state.set_register(register.family, result);
        }
        if instruction.writes_memory {
            let memory = instruction.memory().copied();
            match memory {
                Some(memory) if memory.size > 0 && !instruction.repeats => {
                    self.store_operand(&memory, result, state);
                }
                _ => state.disturb_all(&self.solver.exprs),
            }
        }
        if let Some(memory) = instruction.memory().copied() {
            self.update_base(&memory, state);
        }
        self.lose_flags(instruction, &inputs, state);
    }

    /// Flags written by something that is not modelled.
    fn lose_flags(&mut self, instruction: &Decoded, inputs: &[Expr], state: &mut State) {
        const LIVE: Flags =
            Flags::CARRY.union(Flags::ZERO).union(Flags::SIGN).union(Flags::OVERFLOW).union(Flags::PARITY);
        if instruction.flags_written.intersects(LIVE) {
            let lost = self.solver.exprs.give_up(inputs) == Expr::LOST;
            let comparison = if lost { Comparison::Lost } else { Comparison::Nothing };
            state.compare(instruction.address, comparison, &mut self.solver);
        }
    }

    /// What `condition` says for one claim.
    pub fn decide_claim(&mut self, condition: Condition, claim: &Claim, state: &State) -> Outcome {
        let values = claim.values.clone();
        let current = move |variable| values.get(variable);
        let (register, ranges) = match condition {
            Condition::Always => return Outcome::Always,
            Condition::Zero(register) => (register, vec![(0, 0)]),
            Condition::NotZero(register) => (register, vec![(1, u64::MAX)]),
            Condition::BitSet(register, bit) | Condition::BitClear(register, bit) => {
                let whole = self.read_register(register, state);
                let tested = self.solver.exprs.part(whole, bit.min(63), 1);
                let wanted = u64::from(matches!(condition, Condition::BitSet(..)));
                return self.solver.within(tested, &vec![(wanted, wanted)], &current);
            }
            Condition::Counter(register, None) => (register, vec![(1, u64::MAX)]),
            Condition::Counter(register, Some(_)) => {
                let value = self.read_register(register, state);
                return if self.solver.exprs.from_code(value) { Outcome::Lost } else { Outcome::Free };
            }
            flags => return self.solver.decide(flags, &claim.comparison, self.arm(), &current),
        };
        let value = self.read_register(register, state);
        self.solver.within(value, &ranges, &current)
    }

    /// `condition ? a : b`.
    fn choose(&mut self, condition: Condition, a: Expr, b: Expr, state: &State) -> Expr {
        if a == b && self.solver.exprs.is_definite(a) {
            return a;
        }
        let mut result: Option<Expr> = None;
        for claim in &state.claims {
            let value = match self.decide_claim(condition, claim, state) {
                Outcome::Always => a,
                Outcome::Never => b,
                Outcome::Splits { taken, other } => match (taken.as_slice(), other.as_slice()) {
                    ([truth], [_]) => self.solver.exprs.select(truth.variable, truth.set, a, b),
                    _ if taken.iter().any(|t| t.variable == crate::expr::Variable::CODE) => Expr::LOST,
                    _ => self.solver.exprs.give_up(&[a, b]),
                },
                Outcome::Free => self.solver.exprs.give_up(&[a, b]),
                Outcome::Lost => Expr::LOST,
            };
            result = Some(match result {
                None => value,
                Some(before) if before == value => value,
                Some(before) => {
                    let code = self.solver.exprs.from_code(before) || self.solver.exprs.from_code(value);
                    if code { Expr::LOST } else { Expr::UNKNOWN }
                }
            });
        }
        result.unwrap_or(Expr::UNKNOWN)
    }

    fn step_select(&mut self, instruction: &Decoded, state: &mut State) {
        let width = instruction.destination().and_then(|d| self.width_of(d)).unwrap_or(64);
        let Some(condition) = instruction.condition else {
            return self.write_destination(instruction, Expr::UNKNOWN, state);
        };
        let (a, b) = if instruction.operation == Operation::SetCondition {
            (self.solver.exprs.constant(1), self.solver.exprs.constant(0))
        } else {
            (self.source(instruction, 0, width, state), self.source(instruction, 1, width, state))
        };
        let exprs = &mut self.solver.exprs;
        let b = match instruction.operation {
            Operation::SelectIncrement => {
                let one = exprs.constant(1);
                exprs.binary(Op::Add, width, b, one)
            }
            Operation::SelectInvert => exprs.unary(Unary::Not, width, b),
            Operation::SelectNegate => exprs.unary(Unary::Negate, width, b),
            _ => b,
        };
        let value = self.choose(condition, a, b, state);
        self.write_destination(instruction, value, state);
    }

    /// The target of an indirect jump or call.
    pub fn target_of(&mut self, instruction: &Decoded, state: &mut State) -> Expr {
        match instruction.transfer {
            Transfer::Jump(Some(target)) | Transfer::Call(Some(target)) | Transfer::Branch(Some(target)) => {
                self.solver.exprs.constant(target)
            }
            _ => match instruction.operands.first().copied() {
                Some(operand @ (Operand::Register(_) | Operand::Memory(_))) => {
                    self.read(instruction, &operand, self.pointer(), state)
                }
                _ => Expr::UNKNOWN,
            },
        }
    }
}
