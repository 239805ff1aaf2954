//! Indirect jumps and calls whose target is a function of the control code.

use std::cell::RefCell;
use std::collections::BTreeMap;

use code::Decoded;
use code_flow::{CodeImage, Listing, Resolution, ResolvedTable, TableResolver};
use target::Halt;

use super::{Flow, MAX_SWEEPS};
use crate::expr::{Expr, Node, Op, Variable};
use crate::pass::Pass;
use crate::set::Set;
use crate::solve::Truth;
use crate::state::State;

/// Most distinct slots of one table.
const MAX_ENTRIES: usize = 4096;

/// One target of a table and the values that lead there.
pub struct Arm {
    pub target: u64,
    pub values: Set,
    pub state: State,
}

/// How the slots of a table say where to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableForm {
    /// Address of the first slot read.
    pub table: u64,
    /// Distinct slots read.
    pub entries: usize,
    /// Bytes of a slot of the table that holds targets.
    pub entry_size: u8,
    pub form: &'static str,
}

/// An indirect transfer, resolved.
pub struct Dispatch {
    pub variable: Variable,
    /// By target.
    pub arms: Vec<Arm>,
    /// Targets in slot order.
    pub slots: Vec<u64>,
    pub form: TableForm,
}

impl Dispatch {
    /// Where `target` can go in `state`.
    ///
    /// # Errors
    /// Why it is not resolved. One slot that cannot be read, or does not point at an instruction of
    /// this image, refuses the whole table.
    pub fn of(
        pass: &mut Pass<'_>,
        listing: &Listing,
        site: &Decoded,
        target: Expr,
        state: &State,
    ) -> Result<Self, &'static str> {
        let Some(variable) = pass.solver.exprs.variable(target) else {
            return Err(if target == Expr::LOST {
                "the target depends on the control code in a way that is not modelled"
            } else {
                "the target is not known"
            });
        };
        if variable.is_candidate() && state.values(variable, &mut pass.solver) == Set::ALL {
            return Err("the index is not bounded");
        }
        let current = state.values(variable, &mut pass.solver);
        let Some((candidates, mask)) = pass.solver.candidates(&[target], current) else {
            return Err("the index is not bounded");
        };
        let inner = loads(pass, target);
        let mut by_target: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
        let mut slots: BTreeMap<u64, u64> = BTreeMap::new();
        for candidate in candidates {
            let Some(to) = pass.solver.evaluate(target, candidate) else {
                return Err("a table slot cannot be read, or can be written");
            };
            if !is_target(pass.image, listing, to) {
                return Err("a table slot does not point at code of this image");
            }
            let slot = inner.and_then(|(address, _)| pass.solver.evaluate(address, candidate));
            slots.insert(slot.unwrap_or(u64::from(candidate)), to);
            if slots.len() > MAX_ENTRIES {
                return Err("the table has more than 4,096 slots");
            }
            by_target.entry(to).or_default().push(candidate);
        }
        let _ = site;
        let mut arms = Vec::new();
        for (to, found) in by_target {
            let matching = pass.solver.matching(&found, mask);
            let values = pass.solver.sets.and(matching, current);
            let mut state = state.clone();
            if state.assume(&[Truth { variable, set: values }], &mut pass.solver) {
                arms.push(Arm { target: to, values, state });
            }
        }
        let form = TableForm {
            table: slots.keys().next().copied().unwrap_or(0),
            entries: slots.len(),
            entry_size: inner.map_or(0, |(_, size)| size),
            form: form_of(pass, target),
        };
        Ok(Self { variable, arms, slots: slots.into_values().collect(), form })
    }
}

/// Whether a table may lead to `address`: code of this image, and no byte inside another instruction.
fn is_target(image: &CodeImage<'_>, listing: &Listing, address: u64) -> bool {
    if !image.is_executable(address) {
        return false;
    }
    match listing.instructions.range(..=address).next_back() {
        Some((&at, instruction)) => at == address || instruction.end() <= address,
        None => true,
    }
}

/// The address of the innermost load, and the size of the outermost.
fn loads(pass: &Pass<'_>, expr: Expr) -> Option<(Expr, u8)> {
    let exprs = &pass.solver.exprs;
    let mut found: Option<(Expr, u8)> = None;
    let mut stack = vec![expr];
    while let Some(at) = stack.pop() {
        match exprs.node(at) {
            Node::Load { size, a } => {
                found = Some((a, found.map_or(size, |(_, outer)| outer)));
                stack.push(a);
            }
            Node::Binary { a, b, .. } => stack.extend([a, b]),
            Node::Unary { a, .. } | Node::SignExtend { a, .. } => stack.push(a),
            _ => {}
        }
    }
    found
}

fn form_of(pass: &Pass<'_>, target: Expr) -> &'static str {
    let exprs = &pass.solver.exprs;
    let levels = {
        let mut count = 0;
        let mut stack = vec![target];
        while let Some(at) = stack.pop() {
            match exprs.node(at) {
                Node::Load { a, .. } => {
                    count += 1;
                    stack.push(a);
                }
                Node::Binary { a, b, .. } => stack.extend([a, b]),
                Node::Unary { a, .. } | Node::SignExtend { a, .. } => stack.push(a),
                _ => {}
            }
        }
        count
    };
    if levels >= 2 {
        return "byte_map";
    }
    match exprs.node(target) {
        Node::Load { size: 8, .. } => "pointer",
        Node::Load { .. } => "absolute32",
        Node::Binary { op: Op::Add, a, .. } => match exprs.node(a) {
            Node::SignExtend { .. } => "relative32",
            Node::Load { size: 4, .. } => "rva32",
            _ => "offset",
        },
        _ => "computed",
    }
}

/// Resolves jump tables while a listing is made, by running the fixpoint over what there is of it.
pub struct Tables<'p, 'a> {
    pass: RefCell<&'p mut Pass<'a>>,
    entry: State,
    halt: &'p Halt,
    last: RefCell<Option<(usize, Flow)>>,
    rounds: RefCell<usize>,
}

/// Fixpoints one listing may ask for.
const MAX_ROUNDS: usize = 64;

impl<'p, 'a> Tables<'p, 'a> {
    /// For a function entered with `entry`.
    #[must_use]
    pub fn new(pass: &'p mut Pass<'a>, entry: State, halt: &'p Halt) -> Self {
        Self { pass: RefCell::new(pass), entry, halt, last: RefCell::default(), rounds: RefCell::new(0) }
    }

    fn dispatch(&self, pass: &mut Pass<'a>, flow: &Flow, site: u64) -> Result<ResolvedTable, &'static str> {
        let Some(block) = flow.blocks.containing(site) else { return Err("the jump is not reached") };
        let Some(state) = flow.entries.get(block).cloned().flatten() else {
            return Err("the jump is not reached");
        };
        let mut found = Found { site, result: Err("the jump is not reached") };
        flow.run(pass, block, state, &mut found);
        found.result
    }
}

/// Keeps what is said of one jump.
struct Found {
    site: u64,
    result: Result<ResolvedTable, &'static str>,
}

impl super::Visitor for Found {
    fn table(&mut self, _: &mut Pass<'_>, jump: &Decoded, _: usize, dispatch: &Dispatch) {
        if jump.address == self.site {
            self.result = Ok(ResolvedTable {
                site: self.site,
                table: dispatch.form.table,
                targets: dispatch.slots.clone(),
                entry_size: dispatch.form.entry_size,
                form: dispatch.form.form,
            });
        }
    }
    fn unresolved(&mut self, _: &mut Pass<'_>, jump: &Decoded, _: &State, why: &'static str) {
        if jump.address == self.site {
            self.result = Err(why);
        }
    }
}

impl TableResolver for Tables<'_, '_> {
    fn resolve(&self, _: &CodeImage<'_>, listing: &Listing, site: u64) -> Resolution {
        let mut pass = self.pass.borrow_mut();
        let size = listing.instructions.len();
        if let Some((known, flow)) = self.last.borrow().as_ref()
            && flow.blocks.containing(site).is_some()
        {
            match self.dispatch(&mut pass, flow, site) {
                Ok(table) => return Resolution::Resolved(table),
                Err(why) if *known == size => return Resolution::Unresolved(why),
                Err(_) => {}
            }
        }
        let mut rounds = self.rounds.borrow_mut();
        *rounds += 1;
        if *rounds > MAX_ROUNDS {
            return Resolution::Unresolved("too many tables in one function");
        }
        let flow = Flow::solve(&mut pass, listing.clone(), &self.entry, MAX_SWEEPS, self.halt);
        if !flow.settled {
            return Resolution::Unresolved("the data flow did not settle");
        }
        let result = self.dispatch(&mut pass, &flow, site);
        *self.last.borrow_mut() = Some((size, flow));
        match result {
            Ok(table) => Resolution::Resolved(table),
            Err(why) => Resolution::Unresolved(why),
        }
    }
}
