//! What is known at a point of the routine, and how two paths' knowledge becomes one.

use std::collections::BTreeMap;
use std::rc::Rc;

use code::record::{Family, Register};

use crate::expr::{Expr, Exprs, Variable};
use crate::set::Set;
use crate::solve::{Comparison, Solver, Truth};

/// General registers, the stack pointer, vector registers (their low 64 bits).
const REGISTERS: usize = 65;
const STACK_POINTER: usize = 32;
const FIRST_VECTOR: usize = 33;
/// Comparisons kept apart at once; more become one of which nothing is known.
const MAX_CLAIMS: usize = 16;
/// Stack slots of one state.
const MAX_SLOTS: usize = 1024;

/// The possible values of each variable; absent ones are not limited.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Values(Vec<(Variable, Set)>);

impl Values {
    #[must_use]
    pub fn get(&self, variable: Variable) -> Set {
        self.0.iter().find(|(v, _)| *v == variable).map_or(Set::ALL, |(_, set)| *set)
    }

    pub fn set(&mut self, variable: Variable, set: Set) {
        self.0.retain(|(v, _)| *v != variable);
        if set != Set::ALL {
            self.0.push((variable, set));
            self.0.sort_unstable_by_key(|(v, _)| *v);
        }
    }

    fn union(&self, other: &Self, solver: &mut Solver<'_>) -> Self {
        let mut out = Self::default();
        for &(variable, set) in &self.0 {
            let both = solver.sets.or(set, other.get(variable));
            out.set(variable, both);
        }
        out
    }

    /// Narrowed by `truths`; `None` when no value is left of one of them.
    #[must_use]
    pub fn narrowed(&self, truths: &[Truth], solver: &mut Solver<'_>) -> Option<Self> {
        let mut out = self.clone();
        for truth in truths {
            let set = solver.sets.and(out.get(truth.variable), truth.set);
            if set.is_empty() {
                return None;
            }
            out.set(truth.variable, set);
        }
        Some(out)
    }
}

/// One comparison that may have set the live flags, and what was possible on the paths that made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    pub at: u64,
    pub comparison: Comparison,
    pub values: Values,
}

/// Bytes of the stack (or of a global variable) that hold a known value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    pub size: u8,
    pub value: Expr,
}

/// Where a slot lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// Relative to the stack pointer at entry.
    Stack(i64),
    /// At an address of writable image memory.
    Global(i64),
}

impl Place {
    fn moved(self, by: i64) -> Self {
        match self {
            Self::Stack(at) => Self::Stack(at.saturating_add(by)),
            Self::Global(at) => Self::Global(at.saturating_add(by)),
        }
    }
    fn offset(self) -> i64 {
        match self {
            Self::Stack(at) | Self::Global(at) => at,
        }
    }
}

/// The state of the machine before an instruction, as far as it matters here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    registers: [Expr; REGISTERS],
    slots: Rc<BTreeMap<Place, Slot>>,
    /// Stack offsets whose address something else may hold, ascending.
    escaped: Vec<i64>,
    /// Where the frames of callers begin (their return addresses), outermost first: no object reaches
    /// across one.
    frames: Vec<i64>,
    /// Stack bytes the framework filled: an object of its own, which pointers to others do not reach.
    filled: Option<(i64, i64)>,
    /// Never empty.
    pub claims: Vec<Claim>,
    /// What was stored in `Irp->IoStatus.Status`; `None` before any store.
    pub status: Option<Expr>,
    /// The stack location's parameters, or the pointer to it, were written: reads are not the code.
    pub location_changed: bool,
}

impl State {
    /// Nothing known but an intact stack pointer.
    #[must_use]
    pub fn unknown(solver: &mut Solver<'_>) -> Self {
        let mut registers = [Expr::UNKNOWN; REGISTERS];
        registers[STACK_POINTER] = solver.exprs.stack(0);
        Self {
            registers,
            slots: Rc::default(),
            escaped: Vec::new(),
            frames: vec![0],
            filled: None,
            claims: vec![Claim { at: 0, comparison: Comparison::Nothing, values: Values::default() }],
            status: None,
            location_changed: false,
        }
    }

    fn index(family: Family) -> Option<usize> {
        match family {
            Family::General(n) if n < 32 => Some(usize::from(n)),
            Family::StackPointer => Some(STACK_POINTER),
            Family::Vector(n) if n < 32 => Some(FIRST_VECTOR + usize::from(n)),
            _ => None,
        }
    }

    /// The whole register of `family`.
    #[must_use]
    pub fn register(&self, family: Family) -> Expr {
        Self::index(family).and_then(|i| self.registers.get(i)).copied().unwrap_or(Expr::UNKNOWN)
    }

    pub fn set_register(&mut self, family: Family, value: Expr) {
        if let Some(register) = Self::index(family).and_then(|i| self.registers.get_mut(i)) {
            *register = value;
        }
    }

    pub fn stack_pointer(&self) -> Expr {
        self.register(Family::StackPointer)
    }

    /// Writes part of a register, as the machine does: 32-bit writes zero the upper half, narrower
    /// ones keep the rest.
    pub fn write(&mut self, register: Register, value: Expr, exprs: &mut Exprs) {
        let old = self.register(register.family);
        let bits = u8::try_from(register.width.min(64)).unwrap_or(64);
        let value = if register.width >= 32 {
            exprs.truncate(value, bits)
        } else {
            exprs.replace(old, value, register.low_bit, bits)
        };
        self.set_register(register.family, value);
    }

    /// The possible values of `variable` over all claims.
    pub fn values(&self, variable: Variable, solver: &mut Solver<'_>) -> Set {
        let mut all = Set::EMPTY;
        for claim in &self.claims {
            all = solver.sets.or(all, claim.values.get(variable));
        }
        all
    }

    /// Whether some register or slot holds the traced control code.
    #[must_use]
    pub fn holds_code(&self, exprs: &Exprs) -> bool {
        let code = |e: Expr| exprs.variable(e) == Some(Variable::CODE);
        self.registers.iter().any(|&e| code(e)) || self.slots.values().any(|slot| code(slot.value))
    }

    /// Flags are set anew: one claim over what all of the old ones allowed.
    pub fn compare(&mut self, at: u64, comparison: Comparison, solver: &mut Solver<'_>) {
        let mut claims = std::mem::take(&mut self.claims).into_iter();
        let mut values = claims.next().map(|c| c.values).unwrap_or_default();
        for claim in claims {
            values = values.union(&claim.values, solver);
        }
        self.claims = vec![Claim { at, comparison, values }];
    }

    /// Narrows the state to `truths`; false when nothing is left.
    pub fn assume(&mut self, truths: &[Truth], solver: &mut Solver<'_>) -> bool {
        self.claims.retain_mut(|claim| match claim.values.narrowed(truths, solver) {
            Some(values) => {
                claim.values = values;
                true
            }
            None => false,
        });
        !self.claims.is_empty()
    }

    /// A variable takes a new, unlimited value: what is known of its old one goes.
    pub fn forget(&mut self, variable: Variable, solver: &Solver<'_>) {
        let stale = |e: Expr| solver.exprs.variable(e) == Some(variable);
        for register in &mut self.registers {
            if stale(*register) {
                *register = Expr::UNKNOWN;
            }
        }
        if self.slots.values().any(|slot| stale(slot.value)) {
            Rc::make_mut(&mut self.slots).retain(|_, slot| !stale(slot.value));
        }
        for claim in &mut self.claims {
            claim.values.set(variable, Set::ALL);
            let about = match &claim.comparison {
                Comparison::Flags { a, b, .. } => stale(*a) || stale(*b),
                Comparison::Carry { bit } => stale(*bit),
                Comparison::Conditional(_) => true,
                Comparison::Nothing | Comparison::Lost => false,
            };
            if about {
                claim.comparison = Comparison::Nothing;
            }
        }
    }

    /// The value of `size` bytes at `place`.
    pub fn load(&self, place: Place, size: u8, exprs: &mut Exprs) -> Expr {
        let bits = size.saturating_mul(8);
        let Some((at, slot)) = self.covering(place) else { return Expr::UNKNOWN };
        let within = place.offset() - at.offset();
        let end = within + i64::from(size);
        if end > i64::from(slot.size) {
            // Part of it, and something else.
            return exprs.give_up(&[slot.value]);
        }
        let low = u8::try_from(within * 8).unwrap_or(0);
        exprs.part(slot.value, low, bits)
    }

    /// The slot that holds the byte at `place`.
    fn covering(&self, place: Place) -> Option<(Place, Slot)> {
        let (at, slot) = self.slots.range(..=place).next_back()?;
        let same =
            matches!((at, place), (Place::Stack(_), Place::Stack(_)) | (Place::Global(_), Place::Global(_)));
        (same && place.offset() < at.offset() + i64::from(slot.size)).then_some((*at, *slot))
    }

    /// Stores `size` bytes; what overlaps is gone.
    pub fn store(&mut self, place: Place, size: u8, value: Expr) {
        self.erase(place, i64::from(size));
        if value != Expr::UNKNOWN && size > 0 && self.slots.len() < MAX_SLOTS {
            Rc::make_mut(&mut self.slots).insert(place, Slot { size, value });
        }
    }

    /// Bytes at `place` are overwritten with something unknown.
    pub fn erase(&mut self, place: Place, size: i64) {
        let overlapping: Vec<Place> = self
            .slots
            .range(place.moved(-64)..place.moved(size))
            .filter(|(at, slot)| at.offset() + i64::from(slot.size) > place.offset())
            .map(|(at, _)| *at)
            .collect();
        if !overlapping.is_empty() {
            let slots = Rc::make_mut(&mut self.slots);
            for at in overlapping {
                slots.remove(&at);
            }
        }
    }

    /// The address of a stack slot is now known elsewhere.
    pub fn escape(&mut self, offset: i64) {
        if let Err(at) = self.escaped.binary_search(&offset)
            && self.escaped.len() < 64
        {
            self.escaped.insert(at, offset);
        }
    }

    /// A callee's frame begins at stack offset `at`.
    pub fn enter_frame(&mut self, at: i64) {
        if self.frames.len() < 64 {
            self.frames.push(at);
        }
    }

    /// The innermost frame is left.
    pub fn leave_frame(&mut self) {
        if self.frames.len() > 1 {
            self.frames.pop();
        }
    }

    /// The framework fills the object at `from` and keeps no pointer to it.
    pub fn fill(&mut self, from: i64, to: i64) {
        self.escaped.retain(|&e| e < from || e >= to);
        self.filled = Some((from, to));
        self.erase(Place::Stack(from), to.saturating_sub(from));
    }

    /// Something unseen may have written wherever it has an address: escaped slots and globals. What
    /// came from the code is doubtful from now on, not gone.
    pub fn disturb(&mut self, exprs: &Exprs) {
        let own = |from: i64, to: i64| self.escaped.iter().any(|&e| from <= e && e < to);
        let reachable = |place: &Place| match *place {
            Place::Global(_) => true,
            Place::Stack(at) if self.filled.is_some_and(|(from, to)| from <= at && at < to) => {
                self.filled.is_some_and(|(from, to)| own(from, to))
            }
            Place::Stack(at) => self
                .escaped
                .iter()
                .any(|&from| from <= at && !self.frames.iter().any(|&frame| from < frame && frame <= at)),
        };
        if !self.slots.keys().any(reachable) {
            return;
        }
        let mut slots = (*self.slots).clone();
        slots.retain(|place, slot| {
            if !reachable(place) {
                return true;
            }
            slot.value = exprs.give_up(&[slot.value]);
            slot.value != Expr::UNKNOWN
        });
        self.slots = Rc::new(slots);
    }

    /// A write whose place and length are not known: a string instruction's.
    pub fn disturb_all(&mut self, exprs: &Exprs) {
        // Its destination register may be any stack address that was ever taken.
        let destination = self.register(Family::General(7));
        if let crate::expr::Node::Stack(offset) = exprs.node(destination) {
            self.escape(offset);
        }
        self.disturb(exprs);
    }

    /// Everything below the stack pointer is dead.
    pub fn drop_below(&mut self, offset: i64) {
        if self.slots.range(Place::Stack(i64::MIN)..Place::Stack(offset)).next().is_some() {
            Rc::make_mut(&mut self.slots)
                .retain(|place, _| !matches!(place, Place::Stack(at) if *at < offset));
        }
    }

    /// Values that differ are unknown (or lost, if one came from the code); sets are united.
    pub fn join(&mut self, other: &Self, solver: &mut Solver<'_>) {
        for (mine, theirs) in self.registers.iter_mut().zip(&other.registers) {
            *mine = agree(*mine, *theirs, &solver.exprs);
        }
        if !Rc::ptr_eq(&self.slots, &other.slots) && self.slots != other.slots {
            self.join_slots(other, &solver.exprs);
        }
        for &offset in &other.escaped {
            self.escape(offset);
        }
        if self.filled != other.filled {
            self.filled = None;
        }
        self.status = match (self.status, other.status) {
            (Some(a), Some(b)) => Some(agree(a, b, &solver.exprs)),
            (None, None) => None,
            _ => Some(Expr::UNKNOWN),
        };
        self.location_changed |= other.location_changed;
        for claim in &other.claims {
            let same = self.claims.iter_mut().find(|c| c.at == claim.at && c.comparison == claim.comparison);
            match same {
                Some(mine) => mine.values = mine.values.union(&claim.values, solver),
                None => self.claims.push(claim.clone()),
            }
        }
        if self.claims.len() > MAX_CLAIMS {
            let lost = self.claims.iter().any(|c| c.comparison != Comparison::Nothing);
            self.compare(0, if lost { Comparison::Lost } else { Comparison::Nothing }, solver);
        }
        // A fixed order, so that equal states compare equal.
        self.claims.sort_by_key(|claim| claim.at);
    }

    fn join_slots(&mut self, other: &Self, exprs: &Exprs) {
        let mut slots = BTreeMap::new();
        let places = self.slots.keys().chain(other.slots.keys());
        for &place in places {
            let value = match (self.slots.get(&place), other.slots.get(&place)) {
                (Some(a), Some(b)) if a.size == b.size => {
                    Slot { size: a.size, value: agree(a.value, b.value, exprs) }
                }
                (Some(a), Some(b)) => {
                    Slot { size: a.size.max(b.size), value: exprs.give_up(&[a.value, b.value]) }
                }
                (Some(a), None) | (None, Some(a)) => Slot { size: a.size, value: exprs.give_up(&[a.value]) },
                (None, None) => continue,
            };
            if value.value != Expr::UNKNOWN {
                slots.insert(place, value);
            }
        }
        self.slots = Rc::new(slots);
    }
}

fn agree(a: Expr, b: Expr, exprs: &Exprs) -> Expr {
    if a == b { a } else { exprs.give_up(&[a, b]) }
}
