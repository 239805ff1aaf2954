//! What happens to a request after it landed: refused, accepted, by whom, with which lengths.

use std::collections::HashMap;

use code::Decoded;
use code::record::{Operand, Transfer};

use crate::expr::{Expr, Variable};
use crate::flow::{Flow, Split, Visitor};
use crate::names;
use crate::pass::Pass;
use crate::semantics::{Callee, argument, framework};
use crate::set::Set;
use crate::state::State;

/// Instructions of all paths from one landing.
const MAX_STEPS: usize = 512;
/// Paths from one landing.
const MAX_PATHS: usize = 64;
/// Instructions of a function that may only complete the request.
const MAX_WRAPPER: usize = 40;

/// How a request is finished, which decides where a refusal lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// In the return register or in `Irp->IoStatus.Status`.
    Irp,
    /// In the status argument of the framework's completion functions.
    Framework,
    /// The routine returns FALSE.
    FastIo,
}

/// A check of a length on the way to acceptance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evidence {
    pub field: Variable,
    pub op: &'static str,
    pub value: u32,
    pub at: u64,
    pub exact: bool,
}

/// What exploring found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fate {
    /// `None`: cannot be told.
    pub accepted: Option<bool>,
    pub status: Option<u32>,
    /// First callee in the image on an accepted path that is not benign.
    pub handler: Option<u64>,
    /// Lengths on accepted paths; `None` when no path is known to be accepted.
    pub input: Option<Set>,
    pub output: Option<Set>,
    pub evidence: Vec<Evidence>,
    /// Paths or steps ran out.
    pub cut: bool,
    /// A code-dependent decision was met: the codes that landed here do not share one fate.
    pub split: bool,
}

/// How one path ended.
#[derive(Clone, Debug)]
enum End {
    /// A call that does something, or a tail jump.
    Acts(Option<u64>),
    Returned,
}

struct Path {
    block: usize,
    state: State,
    evidence: Vec<Evidence>,
    /// The status given to the framework's completion function.
    completed: Option<Expr>,
}

struct Ended {
    end: End,
    refused: Option<bool>,
    status: Option<u32>,
    input: Set,
    output: Set,
    evidence: Vec<Evidence>,
}

/// Explores forward from block `block` with `state`.
pub fn explore(pass: &mut Pass<'_>, flow: &Flow, block: usize, state: State, refusal: Refusal) -> Fate {
    let mut fate = Fate::default();
    let mut pending = vec![Path { block, state, evidence: Vec::new(), completed: None }];
    let mut ends: Vec<Ended> = Vec::new();
    let mut steps = 0;
    while let Some(path) = pending.pop() {
        steps += flow.blocks.blocks.get(path.block).map_or(1, |b| b.instructions.len());
        if steps > MAX_STEPS || pending.len() + ends.len() >= MAX_PATHS {
            fate.cut = true;
            break;
        }
        let mut walk = Walk {
            refusal,
            ended: None,
            completed: path.completed,
            evidence: path.evidence.clone(),
            edge_evidence: HashMap::new(),
            split: false,
            unknown: false,
        };
        let edges = flow.run(pass, path.block, path.state, &mut walk);
        fate.split |= walk.split;
        if let Some(ended) = walk.ended {
            ends.push(ended);
            continue;
        }
        if edges.is_empty() {
            // A trap, a hole, an unresolved jump: nothing can be said of this path.
            fate.cut |= walk.unknown;
            continue;
        }
        for (block, state) in edges {
            let start = flow.blocks.blocks.get(block).map_or(0, |b| b.start);
            let mut evidence = walk.evidence.clone();
            evidence.extend(walk.edge_evidence.get(&start).cloned());
            pending.push(Path { block, state, evidence, completed: walk.completed });
        }
    }
    conclude(pass, fate, ends)
}

/// The fate of a request that is handed to a callee right away.
#[must_use]
pub fn handed_over(pass: &mut Pass<'_>, callee: u64, state: &State) -> Fate {
    let input = state.values(Variable::INPUT_LENGTH, &mut pass.solver);
    let output = state.values(Variable::OUTPUT_LENGTH, &mut pass.solver);
    Fate {
        accepted: Some(true),
        handler: Some(callee),
        input: Some(input),
        output: Some(output),
        ..Fate::default()
    }
}

fn conclude(pass: &mut Pass<'_>, mut fate: Fate, ends: Vec<Ended>) -> Fate {
    let refusals = ends.iter().filter(|e| e.refused == Some(true)).count();
    let accepted = ends.iter().any(|e| e.refused == Some(false));
    if accepted {
        fate.accepted = Some(true);
    } else if !fate.cut && !ends.is_empty() && refusals == ends.len() {
        fate.accepted = Some(false);
    }
    let mut statuses =
        ends.iter().filter(|e| fate.accepted == Some(false) || e.refused == Some(false)).map(|e| e.status);
    fate.status = statuses.next().flatten();
    if statuses.any(|status| status != fate.status) {
        fate.status = None;
    }
    let (mut input, mut output) = (Set::EMPTY, Set::EMPTY);
    for end in ends.iter().filter(|e| e.refused != Some(true)) {
        input = pass.solver.sets.or(input, end.input);
        output = pass.solver.sets.or(output, end.output);
        if let End::Acts(Some(callee)) = end.end {
            fate.handler = fate.handler.or(Some(callee));
        }
        for evidence in &end.evidence {
            if !fate.evidence.contains(evidence) && fate.evidence.len() < 16 {
                fate.evidence.push(evidence.clone());
            }
        }
    }
    if fate.cut {
        // A path not followed may accept other lengths.
        fate.evidence.clear();
        return fate;
    }
    if !input.is_empty() {
        fate.input = Some(input);
        fate.output = Some(output);
    }
    // A check whose both sides are accepted proves nothing.
    fate.evidence.retain(|evidence| {
        let set = if evidence.field == Variable::INPUT_LENGTH { input } else { output };
        set != Set::ALL
    });
    fate
}

struct Walk {
    refusal: Refusal,
    ended: Option<Ended>,
    completed: Option<Expr>,
    evidence: Vec<Evidence>,
    /// What the edge to the block at this address says of a length.
    edge_evidence: HashMap<u64, Evidence>,
    split: bool,
    unknown: bool,
}

impl Walk {
    fn end(
        &mut self,
        pass: &mut Pass<'_>,
        end: End,
        refused: Option<bool>,
        status: Option<u32>,
        state: &State,
    ) {
        if self.ended.is_some() {
            return;
        }
        let input = state.values(Variable::INPUT_LENGTH, &mut pass.solver);
        let output = state.values(Variable::OUTPUT_LENGTH, &mut pass.solver);
        let evidence = self.evidence.clone();
        self.ended = Some(Ended { end, refused, status, input, output, evidence });
    }

    fn acts(&mut self, pass: &mut Pass<'_>, callee: Option<u64>, state: &State) {
        self.end(pass, End::Acts(callee), Some(false), None, state);
    }

    /// The routine returned, or jumped to a function that only completes the request.
    fn finished(&mut self, pass: &mut Pass<'_>, returned: Option<Expr>, state: &State) {
        let exprs = &pass.solver.exprs;
        let literal = |e: Expr| exprs.constant_value(e).map(|v| v as u32);
        let returned = returned.and_then(literal);
        let stored = match self.refusal {
            Refusal::Irp => state.status,
            Refusal::Framework => self.completed,
            Refusal::FastIo => None,
        };
        let stored_value = stored.and_then(literal);
        let is_error = |status: &u32| status >> 30 == 3;
        let (refused, status) = match self.refusal {
            Refusal::FastIo => match returned.map(|r| r & 0xff) {
                Some(0) => (Some(true), None),
                Some(_) => (Some(false), None),
                None => (None, None),
            },
            Refusal::Framework => (stored_value.map(|s| is_error(&s)), stored_value),
            Refusal::Irp => {
                let error = stored_value.filter(is_error).or(returned.filter(is_error));
                match (error, stored, stored_value.or(returned)) {
                    (Some(error), ..) => (Some(true), Some(error)),
                    // A status was stored, but which is not known.
                    (None, Some(_), _) if stored_value.is_none() => (None, None),
                    (None, _, Some(status)) => (Some(false), Some(status)),
                    (None, _, None) => (None, None),
                }
            }
        };
        self.end(pass, End::Returned, refused, status, state);
    }
}

impl Visitor for Walk {
    fn call(&mut self, pass: &mut Pass<'_>, _: &Decoded, callee: Callee, state: &State) {
        if self.ended.is_some() {
            return;
        }
        match callee {
            Callee::GuardCheck => {}
            Callee::Import(slot) => {
                let benign = pass.import_name(slot).is_some_and(names::is_benign);
                if !benign {
                    self.acts(pass, None, state);
                }
            }
            Callee::Framework(index) => match completion_status(index) {
                Some(_) => self.completed = Some(argument(pass, 2, state)),
                None => self.acts(pass, None, state),
            },
            Callee::Local(entry) => {
                if !pass.is_harmless(entry, state) {
                    self.acts(pass, Some(entry), state);
                } else if self.refusal == Refusal::Framework {
                    self.completed = pass.wrapped_completion(entry, state).or(self.completed);
                }
            }
            Callee::Indirect(_) => self.acts(pass, None, state),
        }
    }

    fn branch(&mut self, pass: &mut Pass<'_>, _: &Decoded, _: usize, split: &Split, landings: (u64, u64)) {
        let [fact] = split.facts.as_slice() else { return };
        for (taken, landing) in [(true, landings.0), (false, landings.1)] {
            for variable in [Variable::INPUT_LENGTH, Variable::OUTPUT_LENGTH] {
                if let Some(truth) = fact.truth(taken, variable)
                    && let Some((op, value, exact)) = relation(pass, truth.set)
                {
                    self.edge_evidence
                        .insert(landing, Evidence { field: variable, op, value, at: fact.at, exact });
                }
            }
        }
        let both = split.taken.is_some() && split.other.is_some();
        self.split |= both && fact.variables().any(|v| v == Variable::CODE);
    }

    fn table(&mut self, _: &mut Pass<'_>, _: &Decoded, _: usize, dispatch: &crate::flow::Dispatch) {
        self.split |= dispatch.arms.len() > 1 && dispatch.variable == Variable::CODE;
    }

    fn unresolved(&mut self, pass: &mut Pass<'_>, _: &Decoded, state: &State, _: &'static str) {
        // An indirect jump is a switch or a tail call: something happens.
        self.unknown = true;
        let _ = (pass, state);
    }

    fn tail(&mut self, pass: &mut Pass<'_>, _: &Decoded, callee: Callee, state: &State) {
        if self.ended.is_some() {
            return;
        }
        match callee {
            Callee::Import(slot) if pass.import_name(slot).is_some_and(names::is_benign) => {
                self.finished(pass, None, state);
            }
            Callee::Framework(index) if completion_status(index).is_some() => {
                self.completed = Some(argument(pass, 2, state));
                self.finished(pass, None, state);
            }
            Callee::Local(entry) => match pass.run_tail(entry, state) {
                Some((after, returned)) => self.finished(pass, Some(returned), &after),
                None => self.acts(pass, Some(entry), state),
            },
            _ => self.acts(pass, None, state),
        }
    }

    fn returns(&mut self, pass: &mut Pass<'_>, _: &Decoded, state: &State) {
        let returned = state.register(pass.result_register());
        self.finished(pass, Some(returned), state);
    }
}

/// What a small function is made of.
#[derive(Clone, Copy)]
struct Shape {
    calls: bool,
    branches: bool,
}

/// Follows loads of constant addresses into registers along a straight line.
fn hold(instruction: &Decoded, held: &mut HashMap<code::record::Family, u64>) {
    for register in &instruction.writes {
        held.remove(&register.family);
    }
    if instruction.operation == code::record::Operation::Move
        && let (Some(register), Some(Operand::Memory(memory))) =
            (instruction.destination().and_then(Operand::register), instruction.sources().first())
        && let Some(slot) = memory.address
    {
        held.insert(register.family, slot);
    }
}

fn completion_status(index: u16) -> Option<usize> {
    matches!(
        index,
        framework::REQUEST_COMPLETE
            | framework::REQUEST_COMPLETE_WITH_PRIORITY
            | framework::REQUEST_COMPLETE_WITH_INFORMATION
    )
    .then_some(2)
}

/// A set as one relation to a constant.
fn relation(pass: &mut Pass<'_>, set: Set) -> Option<(&'static str, u32, bool)> {
    let sets = &mut pass.solver.sets;
    if let Some(value) = sets.single(set) {
        return Some(("eq", value, true));
    }
    let rest = sets.not(set);
    if let Some(value) = sets.single(rest) {
        return Some(if value == 0 { ("ge", 1, true) } else { ("ne", value, true) });
    }
    match sets.intervals(set, 1)?.as_slice() {
        [(0, high)] => Some(("le", *high, true)),
        [(low, u32::MAX)] => Some(("ge", *low, true)),
        _ => None,
    }
}

impl Pass<'_> {
    /// Whether a callee only completes the request, traces or releases locks, or is a short straight
    /// line that touches nothing but the request and its own stack.
    pub fn is_harmless(&mut self, entry: u64, state: &State) -> bool {
        match self.calls_only_benign(entry) {
            Some(Shape { calls: true, .. }) => true,
            Some(Shape { branches: false, .. }) => self.stays_inside(entry, state),
            _ => false,
        }
    }

    /// What a function of at most 40 instructions is made of, if all it calls is benign.
    fn calls_only_benign(&mut self, entry: u64) -> Option<Shape> {
        let mut recorder = code::Recorder::new(self.machine);
        let mut seen = std::collections::HashSet::new();
        let mut queue = vec![entry];
        let mut shape = Shape { calls: false, branches: false };
        while let Some(mut at) = queue.pop() {
            // Registers that hold an import slot's value, on this path.
            let mut held: HashMap<code::record::Family, u64> = HashMap::new();
            while seen.insert(at) {
                if seen.len() > MAX_WRAPPER {
                    return None;
                }
                let instruction = code_flow::decode_at(self.image, &mut recorder, at);
                match instruction.transfer {
                    Transfer::Fallthrough => hold(&instruction, &mut held),
                    Transfer::Branch(Some(target)) => {
                        shape.branches = true;
                        queue.push(target);
                    }
                    Transfer::Return => break,
                    Transfer::Call(_) | Transfer::Jump(_) => {
                        let is_jump = matches!(instruction.transfer, Transfer::Jump(_));
                        match instruction.transfer.target().map(|t| code_flow::callee::direct(self.image, t))
                        {
                            Some(code_flow::Callee::Address(target))
                                if is_jump && self.image.contains(target) =>
                            {
                                shape.branches = true;
                                at = target;
                                continue;
                            }
                            _ if self.goes_to_benign(&instruction, &held) => shape.calls = true,
                            _ => return None,
                        }
                        if is_jump {
                            break;
                        }
                    }
                    _ => return None,
                }
                at = instruction.end();
            }
        }
        Some(shape)
    }

    fn goes_to_benign(&mut self, transfer: &Decoded, held: &HashMap<code::record::Family, u64>) -> bool {
        let import = match code_flow::callee(self.image, transfer) {
            code_flow::Callee::Import(import) => Some(import),
            code_flow::Callee::Address(_) => None,
            code_flow::Callee::Indirect => transfer
                .operands
                .first()
                .and_then(Operand::register)
                .and_then(|register| held.get(&register.family))
                .and_then(|slot| self.image.imports().at_slot(*slot)),
        };
        match import {
            Some(import) => import.name.as_deref().is_some_and(names::is_benign),
            None => self.is_completion(transfer),
        }
    }

    /// Whether a call goes to one of the framework's completion functions.
    fn is_completion(&mut self, call: &Decoded) -> bool {
        let Some(framework) = self.framework.filter(|f| !f.pointer) else { return false };
        let Some(Operand::Memory(memory)) = call.operands.first() else { return false };
        let pointer = u64::from(self.layout.pointer);
        memory
            .address
            .and_then(|slot| slot.checked_sub(framework.table))
            .and_then(|offset| u16::try_from(offset / pointer).ok())
            .is_some_and(|index| completion_status(index).is_some())
    }

    /// A straight line without calls whose stores go to its stack or the IRP.
    fn stays_inside(&mut self, entry: u64, state: &State) -> bool {
        let mut inner = state.clone();
        let mut recorder = code::Recorder::new(self.machine);
        self.enter_callee(&mut inner);
        let mut at = entry;
        for _ in 0..MAX_WRAPPER {
            let instruction = code_flow::decode_at(self.image, &mut recorder, at);
            match instruction.transfer {
                Transfer::Return => return true,
                Transfer::Fallthrough if instruction.privilege.is_none() => {}
                _ => return false,
            }
            if instruction.writes_memory && !self.stores_privately(&instruction, &inner) {
                return false;
            }
            self.step(&instruction, &mut inner);
            at = instruction.end();
        }
        false
    }

    fn stores_privately(&mut self, instruction: &Decoded, state: &State) -> bool {
        use crate::expr::{Node, Symbol};
        if matches!(instruction.operation, code::record::Operation::Push) {
            return true;
        }
        let Some(memory) = instruction.memory().copied() else { return false };
        let address = self.address_of(&memory, state);
        let (base, _) = self.solver.exprs.split(address);
        matches!(self.solver.exprs.node(base), Node::Stack(_) | Node::Symbol(Symbol::Irp))
    }

    /// The state and the result after a tail jump to a harmless callee.
    fn run_tail(&mut self, entry: u64, state: &State) -> Option<(State, Expr)> {
        if !self.is_harmless(entry, state) {
            return None;
        }
        let mut inner = state.clone();
        self.run_line(entry, &mut inner);
        let returned = inner.register(self.result_register());
        Some((inner, returned))
    }

    /// The status a wrapper passes on to the framework's completion function.
    fn wrapped_completion(&mut self, entry: u64, state: &State) -> Option<Expr> {
        let mut inner = state.clone();
        self.enter_callee(&mut inner);
        self.run_line(entry, &mut inner)
    }

    /// Runs a straight line up to its end or to something it cannot run; the status handed to a
    /// completion function on the way.
    fn run_line(&mut self, entry: u64, state: &mut State) -> Option<Expr> {
        let mut recorder = code::Recorder::new(self.machine);
        let mut at = entry;
        let mut completed = None;
        for _ in 0..MAX_WRAPPER {
            let instruction = code_flow::decode_at(self.image, &mut recorder, at);
            match instruction.transfer {
                Transfer::Fallthrough => self.step(&instruction, state),
                Transfer::Call(_) => {
                    let callee = self.callee(&instruction, state);
                    if let Callee::Framework(index) = callee
                        && completion_status(index).is_some()
                    {
                        completed = Some(argument(self, 2, state));
                    }
                    self.return_from(&instruction, callee, state);
                }
                Transfer::Return => return completed,
                Transfer::Jump(_) => {
                    let callee = self.callee(&instruction, state);
                    if let Callee::Framework(index) = callee
                        && completion_status(index).is_some()
                    {
                        completed = Some(argument(self, 2, state));
                    }
                    state.set_register(self.result_register(), Expr::UNKNOWN);
                    return completed;
                }
                _ => {
                    state.set_register(self.result_register(), Expr::UNKNOWN);
                    state.status = state.status.map(|_| Expr::UNKNOWN);
                    return None;
                }
            }
            at = instruction.end();
        }
        completed
    }
}
