//! From narrowed edges to cases, patterns and the default.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::{Analysis, Default, FINITE, Recovered, Site, Table};
use crate::explore::{Fate, explore, handed_over};
use crate::expr::Variable;
use crate::flow::{Flow, Test};
use crate::record::{Branch, Record};
use crate::set::Set;
use crate::solve::{Outcome, Truth};
use crate::state::State;

/// A range that decides nothing further is a case only up to this many codes.
const MAX_RANGE: u64 = 64;
/// A code whose device type is 0 or 0xffff is some other structure's field.
const PLAUSIBLE: (u32, u32) = (0x1_0000, 0xfffe_ffff);

/// One edge that narrows a variable.
struct Edge<'r> {
    at: u64,
    lands: u64,
    values: Set,
    kind: Recovered,
    /// The side on which the test holds; a range otherwise.
    positive: bool,
    state: &'r State,
    variable: Variable,
}

pub(super) fn collect(analysis: &mut Analysis<'_, '_>, flow: &Flow, record: &Record, via: &[u64]) {
    let edges = edges(analysis, flow, record);
    let default = default_of(analysis, flow, record, &edges, via.len());
    let landing = default.as_ref().map(|d| d.lands);
    let mut fates: HashMap<(u64, Set), Fate> = HashMap::new();
    for edge in &edges {
        let count = analysis.pass.solver.sets.count(edge.values);
        let decided = !decides(analysis, flow, record, edge.lands, edge.values, edge.variable);
        let keep = match (edge.positive, count) {
            (true, 1) => true,
            (true, _) => decided && Some(edge.lands) != landing,
            // A long range is no list of cases, but what takes it in must be said.
            (false, _) => decided && Some(edge.lands) != landing,
        };
        let slot = matches!(edge.kind, Recovered::JumpTable);
        if !keep || (slot && Some(edge.lands) == landing) {
            continue;
        }
        let fate =
            fates.entry((edge.lands, edge.values)).or_insert_with(|| fate_of(analysis, flow, edge)).clone();
        let refused_range = !edge.positive && count > MAX_RANGE && fate.accepted == Some(false);
        let like_default =
            refused_range || (!edge.positive || slot || count > 1) && same_fate(&fate, default.as_ref());
        if !like_default {
            add(analysis, flow, edge, fate, via, count);
        }
    }
    tables(analysis, record, landing);
    merge_default(analysis, default);
}

/// Whether codes there are treated exactly as those of the default are.
fn same_fate(fate: &Fate, default: Option<&Default>) -> bool {
    let Some(default) = default else { return false };
    fate.accepted == Some(false) && default.fate.accepted == Some(false) && fate.status == default.fate.status
}

fn add(analysis: &mut Analysis<'_, '_>, flow: &Flow, edge: &Edge<'_>, fate: Fate, via: &[u64], count: u64) {
    let site = |values, fate| Site {
        at: edge.at,
        lands: edge.lands,
        values,
        recovered: edge.kind,
        proved: !edge.variable.is_candidate(),
        via: via.to_vec(),
        fate,
        function: flow.listing.entry,
        listed: edge.positive || count <= MAX_RANGE,
    };
    // Codes that landed together but part again are followed one by one.
    if fate.split && (2..=MAX_RANGE).contains(&count) {
        for value in analysis.pass.solver.sets.values(edge.values, MAX_RANGE as usize).unwrap_or_default() {
            let values = analysis.pass.solver.sets.value(value);
            let mut state = edge.state.clone();
            if !state.assume(&[Truth { variable: edge.variable, set: values }], &mut analysis.pass.solver) {
                continue;
            }
            let one = Edge { values, state: &state, ..*edge };
            let fate = fate_of(analysis, flow, &one);
            analysis.found.sites.push(site(values, fate));
        }
        return;
    }
    analysis.found.sites.push(site(edge.values, fate));
}

fn fate_of(analysis: &mut Analysis<'_, '_>, flow: &Flow, edge: &Edge<'_>) -> Fate {
    let refusal = analysis.question.convention.refusal();
    let mut state = edge.state.clone();
    // The edge's state is that of all comparisons that meet there; this edge is one of them.
    if !state.assume(&[Truth { variable: edge.variable, set: edge.values }], &mut analysis.pass.solver) {
        return Fate::default();
    }
    match flow.blocks.starting_at(edge.lands) {
        Some(block) if edge.kind != Recovered::PointerTable => {
            explore(analysis.pass, flow, block, state, refusal)
        }
        _ => handed_over(analysis.pass, edge.lands, &state),
    }
}

/// Every edge that narrows the code, or a candidate while the code is undecided.
fn edges<'r>(analysis: &mut Analysis<'_, '_>, flow: &Flow, record: &'r Record) -> Vec<Edge<'r>> {
    let mut out = Vec::new();
    let mut branches: Vec<&Branch> = record.branches.values().collect();
    branches.sort_by_key(|branch| branch.site);
    for branch in branches {
        for fact in &branch.facts {
            if !matches!(fact.outcome, Outcome::Splits { .. }) {
                continue;
            }
            let mut variables: Vec<Variable> = fact.variables().filter(|v| !v.is_length()).collect();
            variables.dedup();
            for variable in variables {
                if variable.is_candidate() && !undecided(analysis, fact.before.get(Variable::CODE)) {
                    continue;
                }
                for (side, taken) in [(0, true), (1, false)] {
                    let values = fact.on(analysis.pass, taken, variable);
                    let values = if variable.is_candidate() { plausible(analysis, values) } else { values };
                    let narrowed = values != fact.before.get(variable) && !values.is_empty();
                    let Some(state) = branch.states[side].as_ref().filter(|_| narrowed) else { continue };
                    let (kind, positive) = match fact.test {
                        Test::Equality(on) => (Recovered::Compare, on == taken),
                        Test::Bit(on) => (Recovered::BitTest, on == taken),
                        Test::Order => (Recovered::Range, false),
                    };
                    // A test of several codes at once: either side may be the one meant.
                    let several = fact.test != Test::Order && finite(analysis, fact, variable);
                    let (kind, positive) = match (positive, several) {
                        (_, true) if analysis.pass.solver.sets.count(values) > 1 => {
                            (Recovered::BitTest, true)
                        }
                        (true, _) => (kind, true),
                        (false, _) => (Recovered::Range, false),
                    };
                    out.push(Edge {
                        at: fact.at,
                        lands: settle(flow, branch.landings[side]),
                        values,
                        kind,
                        positive,
                        state,
                        variable,
                    });
                }
            }
        }
    }
    for table in &record.tables {
        if table.variable.is_length() {
            continue;
        }
        let kind = if table.is_call { Recovered::PointerTable } else { Recovered::JumpTable };
        for arm in &table.arms {
            out.push(Edge {
                at: table.site,
                lands: if table.is_call { arm.target } else { settle(flow, arm.target) },
                values: arm.values,
                kind,
                positive: true,
                state: &arm.state,
                variable: table.variable,
            });
        }
    }
    out
}

/// Whether both sides of a test are several codes, and not many.
fn finite(analysis: &mut Analysis<'_, '_>, fact: &crate::flow::Fact, variable: Variable) -> bool {
    let yes = fact.on(analysis.pass, true, variable);
    let no = fact.on(analysis.pass, false, variable);
    let sets = &mut analysis.pass.solver.sets;
    (2..=FINITE).contains(&sets.count(yes)) && (2..=FINITE).contains(&sets.count(no))
}

/// Where control is after blocks that only jump on.
pub(super) fn settle(flow: &Flow, lands: u64) -> u64 {
    let mut at = lands;
    for _ in 0..8 {
        let Some(block) = flow.blocks.starting_at(at).map(|b| &flow.blocks.blocks[b]) else { return at };
        match (block.instructions.as_slice(), block.successors.as_slice()) {
            (&[_], &[(next, code_flow::Edge::Jump)]) => at = flow.blocks.blocks[next].start,
            _ => return at,
        }
    }
    at
}

fn undecided(analysis: &mut Analysis<'_, '_>, codes: Set) -> bool {
    analysis.pass.solver.sets.count(codes) > FINITE
}

fn plausible(analysis: &mut Analysis<'_, '_>, values: Set) -> Set {
    let sets = &mut analysis.pass.solver.sets;
    let range = sets.interval(PLAUSIBLE.0, PLAUSIBLE.1);
    sets.and(values, range)
}

/// The landing most codes reach without being told apart any further.
fn default_of(
    analysis: &mut Analysis<'_, '_>,
    flow: &Flow,
    record: &Record,
    edges: &[Edge<'_>],
    depth: usize,
) -> Option<Default> {
    let mut by_landing: BTreeMap<u64, (Set, usize)> = BTreeMap::new();
    for (index, edge) in edges.iter().enumerate() {
        let count = analysis.pass.solver.sets.count(edge.values);
        if edge.variable != Variable::CODE
            || count <= FINITE
            || decides(analysis, flow, record, edge.lands, edge.values, edge.variable)
        {
            continue;
        }
        let entry = by_landing.entry(edge.lands).or_insert((Set::EMPTY, index));
        entry.0 = analysis.pass.solver.sets.or(entry.0, edge.values);
    }
    let mut best: Option<(u64, Set, usize, u64)> = None;
    for (landing, (values, index)) in by_landing {
        let count = analysis.pass.solver.sets.count(values);
        if best.is_none_or(|(.., most)| count > most) {
            best = Some((landing, values, index, count));
        }
    }
    let (lands, values, index, count) = best?;
    // A mask can send millions of codes to a handler; most of all codes are still elsewhere.
    if count < 1 << 31 {
        return None;
    }
    let fate = fate_of(analysis, flow, &edges[index]);
    Some(Default { lands, values, fate, depth })
}

/// Whether code from `lands` on tells members of `values` apart.
fn decides(
    analysis: &mut Analysis<'_, '_>,
    flow: &Flow,
    record: &Record,
    lands: u64,
    values: Set,
    variable: Variable,
) -> bool {
    let Some(first) = flow.blocks.starting_at(lands) else { return false };
    let mut seen = HashSet::new();
    let mut stack = vec![first];
    while let Some(block) = stack.pop() {
        if !seen.insert(block) || seen.len() > 4096 {
            continue;
        }
        if let Some(&table) = record.table_blocks.get(&block) {
            let table = &record.tables[table];
            if table.variable == variable && splits(analysis, table.arms.iter().map(|a| a.values), values) {
                return true;
            }
        }
        let body = &flow.blocks.blocks[block].instructions;
        if !record.unresolved_sites.is_empty() && body.iter().any(|at| record.unresolved_sites.contains(at)) {
            return true;
        }
        if record
            .tables
            .iter()
            .any(|t| t.is_call && t.variable == variable && flow.blocks.containing(t.site) == Some(block))
        {
            return true;
        }
        let mut follow = [true, true];
        if let Some(branch) = record.branches.get(&block) {
            match sides(analysis, branch, values, variable) {
                None => return true,
                Some(sides) => follow = sides,
            }
        }
        for (to, edge) in &flow.blocks.blocks[block].successors {
            let wanted = match edge {
                code_flow::Edge::Taken => follow[0],
                code_flow::Edge::Fallthrough if record.branches.contains_key(&block) => follow[1],
                _ => true,
            };
            if wanted {
                stack.push(*to);
            }
        }
    }
    false
}

/// Whether more than one of `arms` has members of `values`.
fn splits(analysis: &mut Analysis<'_, '_>, arms: impl Iterator<Item = Set>, values: Set) -> bool {
    let mut hit = 0;
    for arm in arms {
        if !analysis.pass.solver.sets.and(arm, values).is_empty() {
            hit += 1;
        }
    }
    hit > 1
}

/// Which edges of a branch members of `values` take; `None` when they part there.
fn sides(
    analysis: &mut Analysis<'_, '_>,
    branch: &Branch,
    values: Set,
    variable: Variable,
) -> Option<[bool; 2]> {
    let mut follow = [false, false];
    for fact in &branch.facts {
        let (yes, no) = (fact.truth(true, variable), fact.truth(false, variable));
        match (&fact.outcome, yes, no) {
            (Outcome::Splits { .. }, Some(yes), Some(no)) => {
                let here = analysis.pass.solver.sets.and(values, fact.before.get(variable));
                let taken = analysis.pass.solver.sets.and(here, yes.set);
                let other = analysis.pass.solver.sets.and(here, no.set);
                if !taken.is_empty() && !other.is_empty() {
                    return None;
                }
                follow[0] |= !taken.is_empty();
                follow[1] |= !other.is_empty();
            }
            (Outcome::Splits { .. }, Some(truth), None) | (Outcome::Splits { .. }, None, Some(truth)) => {
                let here = analysis.pass.solver.sets.and(values, fact.before.get(variable));
                let inside = analysis.pass.solver.sets.and(here, truth.set);
                if !inside.is_empty() && inside != here {
                    return None;
                }
                follow = [true, true];
            }
            // A decision, but which is not known.
            (Outcome::Lost, ..) if variable == Variable::CODE => return None,
            (Outcome::Always, ..) => follow[0] = true,
            (Outcome::Never, ..) => follow[1] = true,
            _ => follow = [true, true],
        }
    }
    Some(follow)
}

fn tables(analysis: &mut Analysis<'_, '_>, record: &Record, default: Option<u64>) {
    for table in &record.tables {
        if analysis.found.tables.iter().any(|t| t.at == table.site) {
            continue;
        }
        let followed = table.slots.iter().filter(|to| Some(**to) != default).count();
        analysis.found.tables.push(Table { at: table.site, form: table.form, followed });
    }
}

/// A callee's default is the truer one: the caller's is the call.
pub(super) fn merge_default(analysis: &mut Analysis<'_, '_>, default: Option<Default>) {
    let Some(new) = default else { return };
    let replace = analysis.found.default.as_ref().is_none_or(|old| new.depth > old.depth);
    if replace {
        analysis.found.default = Some(new);
    }
}
