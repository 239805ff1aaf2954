//! Tables searched in a loop: the loop is run round by round with its counter in place, so that each
//! round compares the code with one known entry.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use code::Decoded;

use super::{Analysis, Default, FINITE, Recovered, Site, sites};
use crate::explore::explore;
use crate::expr::Variable;
use crate::flow::{Flow, Split, Test, Visitor};
use crate::pass::Pass;
use crate::record::Record;
use crate::set::Set;
use crate::solve::{Outcome, Truth};
use crate::state::State;

/// Rounds of one loop, and instructions of all of them.
const MAX_ROUNDS: usize = 4096;
const MAX_INSTRUCTIONS: usize = 131_072;
/// Loops tried in one function.
const MAX_LOOPS: usize = 8;

/// Loops that were run.
#[derive(Default)]
pub(super) struct Scanned {
    /// Branches that are understood round by round.
    pub(super) branches: HashSet<u64>,
    /// Edges only single, listed codes take: block, and address it goes to.
    edges: HashSet<(usize, u64)>,
}

impl Scanned {
    /// Whether only codes that a loop told apart get to the instruction at `site`.
    pub(super) fn guards(&self, flow: &Flow, site: u64) -> bool {
        let (Some(entry), Some(wanted)) = (flow.blocks.entry, flow.blocks.containing(site)) else {
            return false;
        };
        if self.edges.is_empty() {
            return false;
        }
        let mut seen = BTreeSet::new();
        let mut stack = vec![entry];
        while let Some(block) = stack.pop() {
            if block == wanted {
                return false;
            }
            if seen.insert(block) {
                let successors = flow.blocks.blocks[block].successors.iter();
                let open = successors
                    .filter(|(to, _)| !self.edges.contains(&(block, flow.blocks.blocks[*to].start)));
                stack.extend(open.map(|(to, _)| *to));
            }
        }
        true
    }
}

/// Runs the loops in which a test of the code is not understood; what they tell apart becomes sites.
pub(super) fn scans(analysis: &mut Analysis<'_, '_>, flow: &Flow, record: &Record, via: &[u64]) -> Scanned {
    let mut done = Scanned::default();
    let lost: BTreeMap<usize, u64> = record
        .branches
        .iter()
        .filter(|(_, branch)| branch.facts.iter().any(|fact| fact.outcome == Outcome::Lost))
        .map(|(block, branch)| (*block, branch.site))
        .collect();
    if lost.is_empty() {
        return done;
    }
    let mut tried = 0;
    for (header, body) in loops(flow) {
        let inside: Vec<u64> = lost.iter().filter(|(b, _)| body.contains(b)).map(|(_, site)| *site).collect();
        if inside.is_empty() || inside.iter().all(|site| done.branches.contains(site)) || tried >= MAX_LOOPS {
            continue;
        }
        tried += 1;
        let Some(rounds) = unroll(analysis, flow, header, &body) else { continue };
        for found in rounds.found {
            done.edges.insert((found.block, found.lands));
            add(analysis, flow, via, found);
        }
        if let Some((landing, values, state)) = rounds.rest {
            rest(analysis, flow, via.len(), landing, values, state);
        }
        done.branches.extend(inside);
    }
    done
}

/// Natural loops: header and body, small ones first.
fn loops(flow: &Flow) -> Vec<(usize, BTreeSet<usize>)> {
    let Some(entry) = flow.blocks.entry else { return Vec::new() };
    let order = flow.blocks.reverse_post_order_from(entry);
    let mut place = vec![usize::MAX; flow.blocks.blocks.len()];
    for (at, block) in order.iter().enumerate() {
        place[*block] = at;
    }
    let mut out: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    for &header in &order {
        for &tail in &flow.blocks.blocks[header].predecessors {
            if place[tail] == usize::MAX || place[tail] < place[header] {
                continue;
            }
            let body = out.entry(header).or_insert_with(|| [header].into());
            let mut stack = vec![tail];
            while let Some(block) = stack.pop() {
                if body.insert(block) {
                    stack.extend(&flow.blocks.blocks[block].predecessors);
                }
            }
        }
    }
    let mut loops: Vec<_> = out.into_iter().collect();
    loops.sort_by_key(|(header, body)| (body.len(), *header));
    loops
}

/// An edge of one round that exactly one code takes.
struct Match {
    block: usize,
    at: u64,
    lands: u64,
    values: Set,
    state: State,
}

struct Rounds {
    found: Vec<Match>,
    /// Where all other codes leave the loop.
    rest: Option<(u64, Set, State)>,
}

/// Watches the branches of a round.
struct Round {
    found: Vec<Match>,
    lost: bool,
}

impl Visitor for Round {
    fn branch(
        &mut self,
        pass: &mut Pass<'_>,
        _: &Decoded,
        block: usize,
        split: &Split,
        landings: (u64, u64),
    ) {
        for fact in &split.facts {
            match &fact.outcome {
                Outcome::Lost => self.lost = true,
                Outcome::Splits { .. } => {
                    let Test::Equality(on) = fact.test else { continue };
                    let values = fact.on(pass, on, Variable::CODE);
                    let (lands, state) =
                        if on { (landings.0, &split.taken) } else { (landings.1, &split.other) };
                    if pass.solver.sets.single(values).is_some()
                        && values != fact.before.get(Variable::CODE)
                        && let Some(state) = state
                    {
                        self.found.push(Match { block, at: fact.at, lands, values, state: state.clone() });
                    }
                }
                _ => {}
            }
        }
    }

    fn unresolved(&mut self, _: &mut Pass<'_>, _: &Decoded, _: &State, _: &'static str) {
        self.lost = true;
    }
}

/// Runs the loop until nothing enters it again; `None` when a round is not understood or does not end.
fn unroll(
    analysis: &mut Analysis<'_, '_>,
    flow: &Flow,
    header: usize,
    body: &BTreeSet<usize>,
) -> Option<Rounds> {
    let order: Vec<usize> =
        flow.blocks.reverse_post_order_from(header).into_iter().filter(|b| body.contains(b)).collect();
    let mut next = from_outside(analysis, flow, header, body);
    let mut out = Rounds { found: Vec::new(), rest: None };
    let mut spent = 0;
    for _ in 0..MAX_ROUNDS {
        let Some(start) = next.take() else { return (!out.found.is_empty()).then_some(out) };
        let mut states: BTreeMap<usize, State> = [(header, start.clone())].into();
        for &block in &order {
            let Some(state) = states.remove(&block) else { continue };
            spent += flow.blocks.blocks[block].instructions.len();
            if spent > MAX_INSTRUCTIONS || analysis.halt.stop().is_some() {
                return None;
            }
            let mut round = Round { found: Vec::new(), lost: false };
            for (to, state) in flow.run(analysis.pass, block, state, &mut round) {
                if to == header {
                    join(analysis.pass, &mut next, state);
                } else if body.contains(&to) {
                    match states.get_mut(&to) {
                        Some(known) => known.join(&state, &mut analysis.pass.solver),
                        None => drop(states.insert(to, state)),
                    }
                } else {
                    leaves(analysis, flow, to, state, &mut out);
                }
            }
            if round.lost {
                return None;
            }
            out.found.extend(round.found);
        }
        // A round that changes nothing goes on forever.
        if next.as_ref() == Some(&start) {
            return None;
        }
    }
    None
}

/// The state the loop is first entered with.
fn from_outside(
    analysis: &mut Analysis<'_, '_>,
    flow: &Flow,
    header: usize,
    body: &BTreeSet<usize>,
) -> Option<State> {
    let mut start = None;
    for &before in &flow.blocks.blocks[header].predecessors {
        if body.contains(&before) {
            continue;
        }
        let Some(state) = flow.entries.get(before).cloned().flatten() else { continue };
        for (to, state) in flow.run(analysis.pass, before, state, &mut crate::flow::Blind) {
            if to == header {
                join(analysis.pass, &mut start, state);
            }
        }
    }
    start
}

fn join(pass: &mut Pass<'_>, into: &mut Option<State>, state: State) {
    match into {
        Some(known) => known.join(&state, &mut pass.solver),
        None => *into = Some(state),
    }
}

/// Codes that leave the loop together.
fn leaves(analysis: &mut Analysis<'_, '_>, flow: &Flow, to: usize, state: State, out: &mut Rounds) {
    let values = state.values(Variable::CODE, &mut analysis.pass.solver);
    if analysis.pass.solver.sets.count(values) > FINITE {
        let start = flow.blocks.blocks[to].start;
        out.rest = Some((sites::settle(flow, start), values, state));
    }
}

fn add(analysis: &mut Analysis<'_, '_>, flow: &Flow, via: &[u64], found: Match) {
    let lands = sites::settle(flow, found.lands);
    let mut state = found.state;
    let truth = Truth { variable: Variable::CODE, set: found.values };
    let Some(block) = flow.blocks.starting_at(lands) else { return };
    if !state.assume(&[truth], &mut analysis.pass.solver) {
        return;
    }
    let refusal = analysis.question.convention.refusal();
    let fate = explore(analysis.pass, flow, block, state, refusal);
    analysis.found.sites.push(Site {
        at: found.at,
        lands,
        values: found.values,
        recovered: Recovered::TableScan,
        proved: true,
        via: via.to_vec(),
        fate,
        function: flow.listing.entry,
        listed: true,
    });
}

fn rest(analysis: &mut Analysis<'_, '_>, flow: &Flow, depth: usize, lands: u64, values: Set, state: State) {
    let Some(block) = flow.blocks.starting_at(lands) else { return };
    let refusal = analysis.question.convention.refusal();
    let fate = explore(analysis.pass, flow, block, state, refusal);
    sites::merge_default(analysis, Some(Default { lands, values, fate, depth }));
}
