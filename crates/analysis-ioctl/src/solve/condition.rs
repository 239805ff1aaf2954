//! What the flags compare, and what a condition on them says about a variable.

mod ranges;

use std::rc::Rc;

use code::record::Condition;

use super::{Ranges, Solver};
use crate::expr::{Expr, Op, Variable};
use crate::set::Set;

pub use ranges::{Kind, holds};
use ranges::{complement, of_constant};

/// Where the live flags come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// Nothing that has to do with a tracked value.
    Nothing,
    /// The control code, in a way that is not modelled.
    Lost,
    /// `a op b`, over `width` bits.
    Flags { kind: Kind, a: Expr, b: Expr, width: u8 },
    /// The carry flag is bit 0 of `bit`; the others say nothing.
    Carry { bit: Expr },
    /// ARM64 `ccmp`.
    Conditional(Rc<Conditional>),
}

impl Comparison {
    /// How many conditional comparisons are stacked.
    #[must_use]
    pub fn depth(&self) -> usize {
        let (mut depth, mut at) = (0, self);
        while let Self::Conditional(parts) = at {
            depth += 1;
            at = &parts.before;
        }
        depth
    }
}

/// If `condition` held of `before`, the flags of `then`; else the literal `otherwise` (NZCV, bits 3..0).
#[derive(Debug, PartialEq, Eq)]
pub struct Conditional {
    pub before: Comparison,
    pub condition: Condition,
    pub then: Comparison,
    pub otherwise: u8,
}

/// `variable` is in `set`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Truth {
    pub variable: Variable,
    pub set: Set,
}

/// What a condition says on each of its two edges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Always,
    Never,
    /// Each edge's facts, all of which hold on it. An empty list says nothing.
    Splits {
        taken: Vec<Truth>,
        other: Vec<Truth>,
    },
    /// Not about any tracked variable.
    Free,
    /// About the control code, but how is not modelled.
    Lost,
}

impl Outcome {
    #[must_use]
    pub fn negated(self) -> Self {
        match self {
            Self::Always => Self::Never,
            Self::Never => Self::Always,
            Self::Splits { taken, other } => Self::Splits { taken: other, other: taken },
            same => same,
        }
    }
}

/// The possible values of each variable where a condition is asked about.
pub type Current<'c> = &'c dyn Fn(Variable) -> Set;

impl Solver<'_> {
    /// What `condition` says after `comparison`. `arm` selects the meaning of carry. Conditions on
    /// registers are the caller's: see [`Self::within`].
    pub fn decide(
        &mut self,
        condition: Condition,
        comparison: &Comparison,
        arm: bool,
        current: Current<'_>,
    ) -> Outcome {
        match comparison {
            Comparison::Nothing => Outcome::Free,
            Comparison::Lost => Outcome::Lost,
            Comparison::Carry { bit } => match condition {
                Condition::Below => self.within(*bit, &vec![(1, u64::MAX)], current),
                Condition::AboveOrEqual => self.within(*bit, &vec![(0, 0)], current),
                _ => self.give_up(&[*bit]),
            },
            Comparison::Flags { kind, a, b, width } => {
                self.decide_flags(condition, *kind, (*a, *b), *width, arm, current)
            }
            Comparison::Conditional(parts) => self.decide_conditional(condition, parts, arm, current),
        }
    }

    fn give_up(&self, exprs: &[Expr]) -> Outcome {
        if self.exprs.give_up(exprs) == Expr::LOST { Outcome::Lost } else { Outcome::Free }
    }

    /// Whether `expr` is in `ranges`.
    pub fn within(&mut self, expr: Expr, ranges: &Ranges, current: Current<'_>) -> Outcome {
        if let Some(value) = self.exprs.constant_value(expr) {
            let inside = ranges.iter().any(|&(low, high)| low <= value && value <= high);
            return if inside { Outcome::Always } else { Outcome::Never };
        }
        // Bits that cannot be set decide some tests whatever the rest is.
        let most = self.exprs.may(expr);
        if self.exprs.is_definite(expr) && ranges.iter().all(|&(low, _)| low > most) {
            return Outcome::Never;
        }
        let Some(variable) = self.exprs.variable(expr) else { return self.give_up(&[expr]) };
        if !self.exprs.is_definite(expr) {
            return self.give_up(&[expr]);
        }
        match self.solve(expr, ranges, current(variable)) {
            Some(set) => self.split(variable, set),
            None => self.give_up(&[expr]),
        }
    }

    fn split(&mut self, variable: Variable, set: Set) -> Outcome {
        let rest = self.sets.not(set);
        Outcome::Splits { taken: vec![Truth { variable, set }], other: vec![Truth { variable, set: rest }] }
    }

    fn decide_flags(
        &mut self,
        condition: Condition,
        kind: Kind,
        (a, b): (Expr, Expr),
        width: u8,
        arm: bool,
        current: Current<'_>,
    ) -> Outcome {
        if kind.lacks(condition) {
            return self.give_up(&[a, b]);
        }
        match (self.exprs.constant_value(a), self.exprs.constant_value(b)) {
            (Some(x), Some(y)) => match holds(kind, condition, x, y, width, arm) {
                Some(true) => return Outcome::Always,
                Some(false) => return Outcome::Never,
                None => return Outcome::Free,
            },
            (None, Some(value)) => {
                if let Some(ranges) = of_constant(kind, condition, value, width, arm) {
                    return self.within(a, &ranges, current);
                }
            }
            (Some(value), None) => {
                if let Some(ranges) = mirrored(kind, condition)
                    .and_then(|condition| of_constant(kind, condition, value, width, arm))
                {
                    return self.within(b, &ranges, current);
                }
            }
            (None, None) => {}
        }
        if let Some(outcome) = self.decide_equality(condition, kind, a, b, width, current) {
            return outcome;
        }
        let definite = self.exprs.is_definite(a) && self.exprs.is_definite(b);
        let Some(variable) = self.exprs_variable(a, b).filter(|_| definite) else {
            return self.give_up(&[a, b]);
        };
        let found = self.enumerate(&[a, b], current(variable), &|values| match *values {
            [x, y] => holds(kind, condition, x, y, width, arm) == Some(true),
            _ => false,
        });
        match found {
            Some(set) => self.split(variable, set),
            None => self.give_up(&[a, b]),
        }
    }

    fn exprs_variable(&self, a: Expr, b: Expr) -> Option<Variable> {
        self.common_variable(&[a, b])
    }

    /// Equality of two sides that both vary: their difference against zero.
    fn decide_equality(
        &mut self,
        condition: Condition,
        kind: Kind,
        a: Expr,
        b: Expr,
        width: u8,
        current: Current<'_>,
    ) -> Option<Outcome> {
        if !matches!(kind, Kind::Subtract | Kind::SubtractKeepingCarry) {
            return None;
        }
        let ranges = match condition {
            Condition::Equal => vec![(0, 0)],
            Condition::NotEqual => complement(&vec![(0, 0)], width),
            _ => return None,
        };
        if a == b && self.exprs.is_definite(a) {
            return Some(if condition == Condition::Equal { Outcome::Always } else { Outcome::Never });
        }
        self.common_variable(&[a, b])?;
        let difference = self.exprs.binary(Op::Sub, width, a, b);
        match self.within(difference, &ranges, current) {
            Outcome::Lost | Outcome::Free => None,
            known => Some(known),
        }
    }

    fn decide_conditional(
        &mut self,
        condition: Condition,
        parts: &Conditional,
        arm: bool,
        current: Current<'_>,
    ) -> Outcome {
        let literal = nzcv_holds(condition, parts.otherwise);
        let first = self.decide(parts.condition, &parts.before, arm, current);
        if first == Outcome::Never {
            return if literal { Outcome::Always } else { Outcome::Never };
        }
        let second = self.decide(condition, &parts.then, arm, current);
        if first == Outcome::Always {
            return second;
        }
        // taken = first && second, or !first when the literal holds: then not taken is
        // first && !second.
        let second = if literal { second.negated() } else { second };
        let both = self.conjunction(first, second);
        if literal { both.negated() } else { both }
    }

    /// `first && second`; the complement of one fact is exact, of two it says nothing.
    fn conjunction(&mut self, first: Outcome, second: Outcome) -> Outcome {
        match (first, second) {
            (Outcome::Never, _) | (_, Outcome::Never) => Outcome::Never,
            (Outcome::Always, same) | (same, Outcome::Always) => same,
            (Outcome::Lost, _) | (_, Outcome::Lost) => Outcome::Lost,
            (Outcome::Splits { taken: a, other: not_a }, Outcome::Splits { taken: b, other: not_b }) => {
                let other = match (not_a.as_slice(), not_b.as_slice()) {
                    ([x], [y]) if x.variable == y.variable => {
                        let set = self.sets.or(x.set, y.set);
                        vec![Truth { variable: x.variable, set }]
                    }
                    _ => Vec::new(),
                };
                Outcome::Splits { taken: a.into_iter().chain(b).collect(), other }
            }
            (Outcome::Splits { taken, .. }, Outcome::Free)
            | (Outcome::Free, Outcome::Splits { taken, .. }) => Outcome::Splits { taken, other: Vec::new() },
            (Outcome::Free, Outcome::Free) => Outcome::Free,
        }
    }
}

/// The condition with the sides of the comparison swapped. Only relations can be.
fn mirrored(kind: Kind, condition: Condition) -> Option<Condition> {
    if matches!(kind, Kind::Add | Kind::AddKeepingCarry | Kind::Logic) {
        return Some(condition);
    }
    Some(match condition {
        Condition::Equal | Condition::NotEqual => condition,
        Condition::Below => Condition::Above,
        Condition::Above => Condition::Below,
        Condition::BelowOrEqual => Condition::AboveOrEqual,
        Condition::AboveOrEqual => Condition::BelowOrEqual,
        Condition::Less => Condition::Greater,
        Condition::Greater => Condition::Less,
        Condition::LessOrEqual => Condition::GreaterOrEqual,
        Condition::GreaterOrEqual => Condition::LessOrEqual,
        _ => return None,
    })
}

/// Whether an ARM64 condition holds of literal flags: N 8, Z 4, C 2, V 1.
pub(crate) fn nzcv_holds(condition: Condition, nzcv: u8) -> bool {
    let (n, z, c, v) = (nzcv & 8 != 0, nzcv & 4 != 0, nzcv & 2 != 0, nzcv & 1 != 0);
    match condition {
        Condition::Equal => z,
        Condition::NotEqual => !z,
        Condition::AboveOrEqual => c,
        Condition::Below => !c,
        Condition::Above => c && !z,
        Condition::BelowOrEqual => !c || z,
        Condition::Sign => n,
        Condition::NotSign => !n,
        Condition::Overflow => v,
        Condition::NotOverflow => !v,
        Condition::GreaterOrEqual => n == v,
        Condition::Less => n != v,
        Condition::Greater => !z && n == v,
        Condition::LessOrEqual => z || n != v,
        _ => true,
    }
}
