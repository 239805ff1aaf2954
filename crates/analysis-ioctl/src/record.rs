//! What the settled states of one function say, kept for the steps after the fixpoint.

use std::collections::{HashMap, HashSet};

use code::Decoded;

use crate::expr::Variable;
use crate::flow::{Dispatch, Fact, Split, TableForm, Visitor};
use crate::pass::Pass;
use crate::semantics::Callee;
use crate::set::Set;
use crate::state::State;

/// A conditional branch that says something about a variable.
pub struct Branch {
    pub site: u64,
    pub facts: Vec<Fact>,
    /// Where the taken and the other edge go.
    pub landings: [u64; 2],
    /// State on each edge.
    pub states: [Option<State>; 2],
    /// Values of the control code before it.
    pub codes: Set,
}

/// An arm of a resolved indirect jump or call.
pub struct ArmRecord {
    pub target: u64,
    pub values: Set,
    pub state: State,
}

/// A resolved indirect jump or call.
pub struct TableRecord {
    pub site: u64,
    pub is_call: bool,
    pub variable: Variable,
    pub arms: Vec<ArmRecord>,
    pub slots: Vec<u64>,
    pub form: TableForm,
}

/// A call or tail jump to code of the image.
pub struct CallRecord {
    pub site: u64,
    pub is_jump: bool,
    pub callee: u64,
    pub state: State,
}

/// Everything one function showed.
#[derive(Default)]
pub struct Record {
    pub branches: HashMap<usize, Branch>,
    pub tables: Vec<TableRecord>,
    /// Blocks that end in a resolved table.
    pub table_blocks: HashMap<usize, usize>,
    pub calls: Vec<CallRecord>,
    /// Indirect transfers that were not followed, why, and the codes that may get there.
    pub unresolved: Vec<(u64, &'static str, Set)>,
    /// Blocks that end in an indirect jump that was not followed, or make such a call of a target
    /// that depends on the code.
    pub unresolved_sites: HashSet<u64>,
    /// States kept are bounded.
    pub cap_hit: bool,
}

/// Branches, calls and tables kept of one function.
const MAX_KEPT: usize = 16_384;

/// Fills a [`Record`].
pub struct Recorder<'l> {
    pub out: Record,
    pub listing: &'l code_flow::Listing,
}

impl Recorder<'_> {
    fn full(&mut self) -> bool {
        let full = self.out.branches.len() + self.out.calls.len() + self.out.tables.len() >= MAX_KEPT;
        self.out.cap_hit |= full;
        full
    }

    fn keep_table(&mut self, pass: &mut Pass<'_>, site: &Decoded, block: Option<usize>, dispatch: &Dispatch) {
        let _ = pass;
        if self.full() {
            return;
        }
        let arms = dispatch.arms.iter().map(|arm| ArmRecord {
            target: arm.target,
            values: arm.values,
            state: arm.state.clone(),
        });
        if let Some(block) = block {
            self.out.table_blocks.insert(block, self.out.tables.len());
        }
        self.out.tables.push(TableRecord {
            site: site.address,
            is_call: block.is_none(),
            variable: dispatch.variable,
            arms: arms.collect(),
            slots: dispatch.slots.clone(),
            form: dispatch.form,
        });
    }
}

impl Visitor for Recorder<'_> {
    fn call(&mut self, pass: &mut Pass<'_>, call: &Decoded, callee: Callee, state: &State) {
        match callee {
            Callee::Local(callee) => {
                if !self.full() {
                    let state = state.clone();
                    self.out.calls.push(CallRecord { site: call.address, is_jump: false, callee, state });
                }
            }
            Callee::Indirect(target) => match Dispatch::of(pass, self.listing, call, target, state) {
                Ok(dispatch) => self.keep_table(pass, call, None, &dispatch),
                Err(why) => {
                    let codes = state.values(Variable::CODE, &mut pass.solver);
                    if pass.solver.exprs.from_code(target) {
                        self.out.unresolved_sites.insert(call.address);
                    }
                    self.out.unresolved.push((call.address, why, codes));
                }
            },
            Callee::Import(_) | Callee::Framework(_) | Callee::GuardCheck => {}
        }
    }

    fn branch(
        &mut self,
        pass: &mut Pass<'_>,
        branch: &Decoded,
        block: usize,
        split: &Split,
        landings: (u64, u64),
    ) {
        let decides = split.facts.iter().any(|fact| {
            matches!(fact.outcome, crate::solve::Outcome::Lost)
                || fact.variables().any(|variable| !variable.is_length())
        });
        if !decides || self.full() {
            return;
        }
        let mut codes = Set::EMPTY;
        for fact in &split.facts {
            codes = pass.solver.sets.or(codes, fact.before.get(Variable::CODE));
        }
        self.out.branches.insert(
            block,
            Branch {
                site: branch.address,
                facts: split.facts.clone(),
                landings: [landings.0, landings.1],
                states: [split.taken.clone(), split.other.clone()],
                codes,
            },
        );
    }

    fn table(&mut self, pass: &mut Pass<'_>, jump: &Decoded, block: usize, dispatch: &Dispatch) {
        self.keep_table(pass, jump, Some(block), dispatch);
    }

    fn unresolved(&mut self, pass: &mut Pass<'_>, jump: &Decoded, state: &State, why: &'static str) {
        let codes = state.values(Variable::CODE, &mut pass.solver);
        self.out.unresolved_sites.insert(jump.address);
        self.out.unresolved.push((jump.address, why, codes));
    }

    fn tail(&mut self, _: &mut Pass<'_>, jump: &Decoded, callee: Callee, state: &State) {
        if let Callee::Local(callee) = callee
            && !self.full()
        {
            self.out.calls.push(CallRecord {
                site: jump.address,
                is_jump: true,
                callee,
                state: state.clone(),
            });
        }
    }
}
