//! Walking paths.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use code::Decoded;
use target::Halt;

use super::{Case, Finding, Findings, MAX_FINDINGS, MAX_FUNCTIONS, MAX_PATHS, MAX_STEPS, MAX_TOTAL_STEPS};
use crate::analysis::{Question, entry_state};
use crate::expr::{Expr, Variable};
use crate::flow::{Flow, Split, Tables, Visitor};
use crate::pass::Pass;
use crate::semantics::Callee;
use crate::solve::{Comparison, Truth};
use crate::state::State;

/// What is known on a path beside its state.
#[derive(Clone, Default)]
pub(super) struct Facts {
    /// Values of the caller with an upper bound.
    pub(super) bounded: Vec<Expr>,
    /// Pointers that were probed.
    pub(super) probed: Vec<Expr>,
    /// Addresses of user memory read, with the instruction, and whether the value was compared.
    pub(super) fetched: Vec<(Expr, u64, bool)>,
    /// Something of the output length's size was written.
    pub(super) filled_output: bool,
    /// Who may was decided.
    pub(super) checked: bool,
    pub(super) guards: Vec<(u64, &'static str)>,
}

struct Path {
    block: usize,
    state: State,
    facts: Facts,
    /// Times each block was entered.
    seen: BTreeMap<usize, u8>,
}

/// Walks the cases of one routine.
pub struct Walker<'p, 'a, 'h> {
    pub(super) pass: &'p mut Pass<'a>,
    question: &'h Question,
    halt: &'h Halt,
    pub found: Findings,
    flows: HashMap<u64, Rc<Flow>>,
    pub(super) case: Case,
    steps: usize,
    total: usize,
    paths: usize,
    /// Calls that probe, met so far.
    pub(super) probes: usize,
}

impl<'p, 'a, 'h> Walker<'p, 'a, 'h> {
    #[must_use]
    pub fn new(pass: &'p mut Pass<'a>, question: &'h Question, halt: &'h Halt) -> Self {
        let case = Case { representative: 0, codes: Default::default() };
        Self {
            pass,
            question,
            halt,
            found: Findings::default(),
            flows: HashMap::new(),
            case,
            steps: 0,
            total: 0,
            paths: 0,
            probes: 0,
        }
    }

    /// Walks one case from the routine's entry.
    pub fn case(&mut self, case: &Case) {
        self.case = case.clone();
        (self.steps, self.paths) = (0, 0);
        let mut state = entry_state(self.pass, self.question.convention);
        let set = self.pass.solver.sets.value(case.representative);
        let truth = Truth { variable: Variable::CODE, set };
        if state.assume(&[truth], &mut self.pass.solver) {
            self.function(self.question.entry, state, Facts::default(), 0, true);
        }
    }

    fn flow(&mut self, entry: u64, state: &State, first: bool) -> Option<Rc<Flow>> {
        if let Some(known) = self.flows.get(&entry) {
            return Some(Rc::clone(known));
        }
        if self.flows.len() >= MAX_FUNCTIONS {
            self.found.caps.insert("functions");
            return None;
        }
        // A switch in the routine itself is resolved for every code, once.
        let state = if first { entry_state(self.pass, self.question.convention) } else { state.clone() };
        let image = self.pass.image;
        let listing = {
            let tables = Tables::new(self.pass, state, self.halt);
            code_flow::listing(image, entry, &tables, self.halt)
        };
        let flow = Rc::new(Flow::unsolved(listing));
        self.flows.insert(entry, Rc::clone(&flow));
        self.found.functions.insert(entry);
        Some(flow)
    }

    pub(super) fn function(&mut self, entry: u64, state: State, facts: Facts, depth: usize, first: bool) {
        let Some(flow) = self.flow(entry, &state, first) else { return };
        let Some(start) = flow.blocks.starting_at(entry) else { return };
        let mut pending = vec![Path { block: start, state, facts, seen: BTreeMap::new() }];
        while let Some(mut path) = pending.pop() {
            let visits = path.seen.entry(path.block).or_insert(0);
            *visits += 1;
            // A loop's second round has seen what its first wrote; a third adds nothing.
            if *visits > 2 {
                continue;
            }
            self.steps += flow.blocks.blocks[path.block].instructions.len();
            self.total += flow.blocks.blocks[path.block].instructions.len();
            self.paths += 1;
            if self.steps > MAX_STEPS
                || self.total > MAX_TOTAL_STEPS
                || self.paths > MAX_PATHS * 8
                || self.halt.stop().is_some()
            {
                self.found.caps.insert("steps");
                return;
            }
            let mut watch = Watch {
                walker: &mut *self,
                function: entry,
                depth,
                facts: path.facts,
                edges: HashMap::new(),
            };
            let edges = watch.run(&flow, path.block, path.state);
            let Watch { facts, edges: per_edge, .. } = watch;
            for (block, state) in edges {
                let mut facts = facts.clone();
                let start = flow.blocks.blocks[block].start;
                facts.bounded.extend(per_edge.get(&start).into_iter().flatten());
                if pending.len() < MAX_PATHS {
                    pending.push(Path { block, state, facts, seen: path.seen.clone() });
                } else {
                    self.found.caps.insert("paths");
                }
            }
        }
    }

    /// Adds a finding, or its codes to one that is known.
    pub(super) fn report(&mut self, mut finding: Finding) {
        finding.codes.clone_from(&self.case.codes);
        let same = |known: &&mut Finding| {
            known.class == finding.class
                && (known.at == finding.at
                    || known.base.is_some()
                        && known.base == finding.base
                        && known.function == finding.function)
        };
        if let Some(known) = self.found.findings.iter_mut().find(same) {
            known.codes.extend(&finding.codes);
            if finding.at < known.at {
                known.at = finding.at;
            }
            return;
        }
        if self.found.findings.len() >= MAX_FINDINGS {
            self.found.caps.insert("findings");
            return;
        }
        self.found.findings.push(finding);
    }
}

/// Whether an instruction is inside a `__try`; `None` where that is not known.
pub(super) fn seh_covered(pass: &Pass<'_>, at: u64) -> Option<bool> {
    if pass.machine != target::Machine::X64 {
        return None;
    }
    let rva = pass.image.rva(at)?;
    let scopes = pass.image.regions().scopes(pass.image, rva).unwrap_or_default();
    Some(scopes.iter().any(|scope| scope.begin <= rva && rva < scope.end))
}

/// What happens in one block of one path.
pub(super) struct Watch<'w, 'p, 'a, 'h> {
    pub(super) walker: &'w mut Walker<'p, 'a, 'h>,
    pub(super) function: u64,
    pub(super) depth: usize,
    pub(super) facts: Facts,
    /// Values bounded on the edge to the block at this address.
    pub(super) edges: HashMap<u64, Vec<Expr>>,
}

impl Watch<'_, '_, '_, '_> {
    fn run(&mut self, flow: &Flow, block: usize, state: State) -> Vec<(usize, State)> {
        // The pass is the walker's; a visitor gets it from the run. Calls that are entered need the
        // walker, so they are collected and walked afterwards.
        let mut events = Events { out: Vec::new() };
        let edges = flow.run(self.walker.pass, block, state, &mut events);
        for event in events.out {
            self.handle(event);
        }
        edges
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Instruction(instruction, state) => self.instruction(&instruction, &state),
            Event::Call(call, callee, state, is_jump) => self.call(&call, callee, &state, is_jump),
            Event::Branch(branch, comparisons, landings) => {
                self.branch(&branch, &comparisons, landings);
            }
        }
    }
}

enum Event {
    Instruction(Box<Decoded>, State),
    Call(Box<Decoded>, Callee, State, bool),
    Branch(Box<Decoded>, Vec<Comparison>, (u64, u64)),
}

struct Events {
    out: Vec<Event>,
}

impl Visitor for Events {
    fn instruction(&mut self, _: &mut Pass<'_>, instruction: &Decoded, state: &State) {
        let matters =
            instruction.reads_memory || instruction.writes_memory || instruction.privilege.is_some();
        if matters {
            self.out.push(Event::Instruction(Box::new(instruction.clone()), state.clone()));
        }
    }
    fn call(&mut self, _: &mut Pass<'_>, call: &Decoded, callee: Callee, state: &State) {
        self.out.push(Event::Call(Box::new(call.clone()), callee, state.clone(), false));
    }
    fn branch(&mut self, _: &mut Pass<'_>, branch: &Decoded, _: usize, split: &Split, landings: (u64, u64)) {
        let state = split.taken.as_ref().or(split.other.as_ref());
        if let Some(state) = state {
            let comparisons = state.claims.iter().map(|claim| claim.comparison.clone()).collect();
            self.out.push(Event::Branch(Box::new(branch.clone()), comparisons, landings));
        }
    }
    fn tail(&mut self, _: &mut Pass<'_>, jump: &Decoded, callee: Callee, state: &State) {
        self.out.push(Event::Call(Box::new(jump.clone()), callee, state.clone(), true));
    }
    fn unresolved(&mut self, pass: &mut Pass<'_>, jump: &Decoded, state: &State, _: &'static str) {
        let mut state = state.clone();
        let callee = pass.callee(jump, &mut state);
        self.out.push(Event::Call(Box::new(jump.clone()), callee, state, true));
    }
}
