//! A conditional branch: what each edge knows more than the state before it.

use code::Decoded;
use code::record::Condition;

use crate::expr::{Expr, Node, Op, Variable};
use crate::pass::Pass;
use crate::set::Set;
use crate::solve::{Comparison, Kind, Outcome, Truth};
use crate::state::{Claim, State, Values};

/// What kind of test a branch makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Test {
    /// Equality; true when the taken edge is the equal one.
    Equality(bool),
    /// A bit; true when the taken edge is the one with the bit set.
    Bit(bool),
    /// An order.
    Order,
}

/// What one comparison says at a branch, on the paths that made it.
#[derive(Clone, Debug)]
pub struct Fact {
    /// The comparison.
    pub at: u64,
    pub test: Test,
    pub outcome: Outcome,
    /// What was possible before the branch.
    pub before: Values,
}

impl Fact {
    /// What an edge says of `variable`.
    #[must_use]
    pub fn truth(&self, taken: bool, variable: Variable) -> Option<Truth> {
        let Outcome::Splits { taken: yes, other } = &self.outcome else { return None };
        let side = if taken { yes } else { other };
        side.iter().copied().find(|truth| truth.variable == variable)
    }

    /// Variables the branch decides on.
    pub fn variables(&self) -> impl Iterator<Item = Variable> + '_ {
        let truths: &[Truth] = match &self.outcome {
            Outcome::Splits { taken, other } if !taken.is_empty() => {
                let _ = other;
                taken
            }
            Outcome::Splits { other, .. } => other,
            _ => &[],
        };
        truths.iter().map(|truth| truth.variable)
    }

    /// The values of `variable` on an edge.
    pub fn on(&self, pass: &mut Pass<'_>, taken: bool, variable: Variable) -> Set {
        let before = self.before.get(variable);
        match &self.outcome {
            Outcome::Always if !taken => Set::EMPTY,
            Outcome::Never if taken => Set::EMPTY,
            _ => match self.truth(taken, variable) {
                Some(truth) => pass.solver.sets.and(before, truth.set),
                None => before,
            },
        }
    }
}

/// Both edges of a branch; an edge no path can take is `None`.
pub struct Split {
    pub taken: Option<State>,
    pub other: Option<State>,
    pub facts: Vec<Fact>,
}

impl Split {
    /// Splits `state` at `branch`.
    #[must_use]
    pub fn of(pass: &mut Pass<'_>, branch: &Decoded, state: &State) -> Self {
        let condition = branch.condition.unwrap_or(Condition::Always);
        let mut facts = Vec::with_capacity(state.claims.len());
        let mut sides: [Vec<Claim>; 2] = [Vec::new(), Vec::new()];
        for claim in &state.claims {
            let outcome = if branch.condition.is_some() {
                pass.decide_claim(condition, claim, state)
            } else {
                Outcome::Free
            };
            let nothing: &[Truth] = &[];
            let (taken, other) = match &outcome {
                Outcome::Always => (Some(nothing), None),
                Outcome::Never => (None, Some(nothing)),
                Outcome::Splits { taken, other } => (Some(taken.as_slice()), Some(other.as_slice())),
                Outcome::Free | Outcome::Lost => (Some(nothing), Some(nothing)),
            };
            for (side, truths) in sides.iter_mut().zip([taken, other]) {
                if let Some(values) = truths.and_then(|t| claim.values.narrowed(t, &mut pass.solver)) {
                    side.push(Claim { values, ..claim.clone() });
                }
            }
            facts.push(Fact {
                at: if claim.at == 0 || by_register(condition) { branch.address } else { claim.at },
                test: test_of(pass, condition, &claim.comparison),
                outcome,
                before: claim.values.clone(),
            });
        }
        let [taken, other] = sides;
        let with = |claims: Vec<Claim>| {
            (!claims.is_empty()).then(|| {
                let mut side = state.clone();
                side.claims = claims;
                side
            })
        };
        let (mut taken, mut other) = (with(taken), with(other));
        pin(pass, condition, taken.as_mut(), other.as_mut());
        Self { taken, other, facts }
    }
}

fn by_register(condition: Condition) -> bool {
    matches!(
        condition,
        Condition::Zero(_) | Condition::NotZero(_) | Condition::BitSet(..) | Condition::BitClear(..)
    )
}

/// On the edge where a register is known to be zero, it is.
fn pin(pass: &mut Pass<'_>, condition: Condition, taken: Option<&mut State>, other: Option<&mut State>) {
    let (register, side) = match condition {
        Condition::Zero(register) => (register, taken),
        Condition::NotZero(register) => (register, other),
        _ => return,
    };
    if let Some(state) = side
        && pass.read_register(register, state) == Expr::UNKNOWN
        && u16::from(pass.pointer()) == register.width
    {
        let zero = pass.solver.exprs.constant(0);
        state.write(register, zero, &mut pass.solver.exprs);
    }
}

fn test_of(pass: &Pass<'_>, condition: Condition, comparison: &Comparison) -> Test {
    let bit = match comparison {
        Comparison::Carry { .. } => true,
        Comparison::Flags { kind: Kind::Logic, a, .. } => tests_a_bit(pass, *a),
        _ => false,
    };
    match condition {
        Condition::Zero(_) => Test::Equality(true),
        Condition::NotZero(_) => Test::Equality(false),
        Condition::BitSet(..) => Test::Bit(true),
        Condition::BitClear(..) => Test::Bit(false),
        Condition::Equal if bit => Test::Bit(false),
        Condition::NotEqual if bit => Test::Bit(true),
        Condition::Below if bit => Test::Bit(true),
        Condition::AboveOrEqual if bit => Test::Bit(false),
        Condition::Equal => Test::Equality(true),
        Condition::NotEqual => Test::Equality(false),
        _ => Test::Order,
    }
}

/// `(1 << x) & mask` and `(mask >> x) & 1`.
fn tests_a_bit(pass: &Pass<'_>, expr: Expr) -> bool {
    let exprs = &pass.solver.exprs;
    let Node::Binary { op: Op::And, a, b, .. } = exprs.node(expr) else { return false };
    [a, b].into_iter().any(|side| match exprs.node(side) {
        Node::Binary { op: Op::ShiftLeft | Op::ShiftRight, a, .. } => exprs.constant_value(a).is_some(),
        _ => false,
    })
}
