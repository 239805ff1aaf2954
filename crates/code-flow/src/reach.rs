//! Whether a routine can reach an address: a breadth-first search over listings. Edges are direct
//! calls, tail jumps, resolved tables, import thunks; never an indirect transfer nobody resolved.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::rc::Rc;

use code::record::Transfer;
use target::Halt;

use crate::blocks::Blocks;
use crate::callee::{Callee, callee_in};
use crate::descent::{function_at, listing};
use crate::image::CodeImage;
use crate::listing::{EdgeKind, Listing, TableResolver};
use crate::vocabulary::Stopped;

/// Unresolved transfers that are listed; they are counted beyond.
const MAX_UNRESOLVED: usize = 256;

/// How one function leads to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum HopKind {
    Call,
    TailJump,
    /// Through an import: its slot or a thunk.
    Import,
}

/// One step of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    pub site: u64,
    pub kind: HopKind,
    pub callee: u64,
}

/// What to search.
pub struct Search<'s, 'a> {
    /// Images edges may lead into; the first match by address is used.
    pub images: &'s dyn Fn(u64) -> Option<Rc<CodeImage<'a>>>,
    /// A routine, or an address inside one.
    pub from: u64,
    pub target: u64,
    /// Functions explored, 1..=4096.
    pub max_functions: usize,
    /// Calls deep, 1..=128.
    pub max_depth: usize,
    pub tables: &'s dyn TableResolver,
    pub cross_image: bool,
    pub halt: &'s Halt,
}

/// A function on the way.
pub struct Explored {
    pub listing: Listing,
    pub blocks: Blocks,
    /// Where control enters: the entry, or `from`.
    pub enters: u64,
}

/// What a search found.
#[derive(Default)]
pub struct Reached {
    pub reachable: bool,
    /// `from` lies inside a function, so the search began there.
    pub started_at: Option<u64>,
    /// `from` is no instruction boundary: the search began at the function's entry.
    pub from_not_boundary: bool,
    /// Entry of the function that holds the target, when one explored does.
    pub containing_function: Option<u64>,
    pub target_in_listing: bool,
    /// From `from` to the function of the target.
    pub path: Vec<Hop>,
    pub functions_explored: usize,
    pub deepest: usize,
    pub bound_hit: bool,
    pub blind_stops: usize,
    pub unresolved: Vec<u64>,
    pub unresolved_count: usize,
    pub stopped: Option<Stopped>,
    pub caps: Vec<&'static str>,
    /// Functions of the path, first to last.
    pub functions: Vec<Rc<Explored>>,
}

struct Node {
    /// Entering address.
    enters: u64,
    depth: usize,
    /// Index of the node before, and the hop from it.
    from: Option<(usize, Hop)>,
    explored: Option<Rc<Explored>>,
}

/// Searches. `None` when no image holds `from`.
#[must_use]
pub fn reach(search: &Search<'_, '_>) -> Option<Reached> {
    let image = (search.images)(search.from)?;
    let mut out = Reached::default();
    let mut nodes = vec![Node { enters: search.from, depth: 0, from: None, explored: None }];
    let mut seen: HashMap<u64, usize> = HashMap::from([(search.from, 0)]);
    let mut queue = VecDeque::from([0]);
    let home = image.base;
    while let Some(number) = queue.pop_front() {
        if let Some(stop) = search.halt.stop() {
            out.stopped = Some(stop.into());
            break;
        }
        if out.functions_explored >= search.max_functions {
            out.bound_hit = true;
            break;
        }
        let (enters, depth) = (nodes[number].enters, nodes[number].depth);
        let Some(image) = (search.images)(enters) else { continue };
        let explored = Rc::new(explore(search, &image, enters, number == 0, &mut out));
        nodes[number].explored = Some(Rc::clone(&explored));
        out.functions_explored += 1;
        out.deepest = out.deepest.max(depth);
        let part = reached_part(&explored);
        if let Some(hop) = meets(search, &image, &explored, &part) {
            finish(&mut out, &nodes, number, hop, search.target, explored.listing.entry);
            return Some(out);
        }
        note_unseen(&image, &explored, &part, &mut out);
        for hop in hops(&image, &explored, &part) {
            // An import's slot is data; what it is bound to is a hop of its own.
            if hop.kind == HopKind::Import && image.contains(hop.callee) {
                continue;
            }
            let outside = (search.images)(hop.callee).is_none_or(|next| next.base != home);
            if outside && !search.cross_image {
                continue;
            }
            if depth + 1 > search.max_depth {
                out.bound_hit = true;
                continue;
            }
            if (search.images)(hop.callee).is_none() || seen.contains_key(&hop.callee) {
                continue;
            }
            seen.insert(hop.callee, nodes.len());
            queue.push_back(nodes.len());
            nodes.push(Node {
                enters: hop.callee,
                depth: depth + 1,
                from: Some((number, hop)),
                explored: None,
            });
        }
    }
    Some(out)
}

fn explore(
    search: &Search<'_, '_>,
    image: &CodeImage<'_>,
    enters: u64,
    first: bool,
    out: &mut Reached,
) -> Explored {
    let entry = if first { function_at(image, enters).unwrap_or(enters) } else { enters };
    let found = listing(image, entry, search.tables, search.halt);
    let mut enters_at = enters;
    let mut found = found;
    if first && entry != enters {
        if found.instructions.contains_key(&enters) {
            out.started_at = Some(enters);
        } else if found.instructions.range(..enters).next_back().is_some_and(|(_, i)| i.end() > enters) {
            out.from_not_boundary = true;
            enters_at = entry;
        } else {
            // Not reached from the function's entry: a part of its own.
            found = listing(image, enters, search.tables, search.halt);
        }
    }
    out.stopped = out.stopped.or(found.stopped);
    for cap in &found.caps {
        if !out.caps.contains(cap) {
            out.caps.push(cap);
        }
    }
    let blocks = Blocks::of(&found);
    Explored { listing: found, blocks, enters: enters_at }
}

/// Instructions control can reach from where it enters.
fn reached_part(explored: &Explored) -> BTreeSet<u64> {
    if explored.enters == explored.listing.entry {
        return explored.listing.instructions.keys().copied().collect();
    }
    let blocks = &explored.blocks;
    let Some(start) = blocks.containing(explored.enters) else { return BTreeSet::new() };
    let mut out: BTreeSet<u64> =
        blocks.blocks[start].instructions.iter().filter(|at| **at >= explored.enters).copied().collect();
    for (next, _) in &blocks.blocks[start].successors {
        for block in blocks.reverse_post_order_from(*next) {
            out.extend(&blocks.blocks[block].instructions);
        }
    }
    out
}

/// Whether this function has the target: as an instruction (`Some(None)`), or by a transfer to it.
fn meets(
    search: &Search<'_, '_>,
    image: &CodeImage<'_>,
    explored: &Explored,
    part: &BTreeSet<u64>,
) -> Option<Option<Hop>> {
    if part.contains(&search.target) {
        return Some(None);
    }
    hops(image, explored, part).into_iter().find(|hop| hop.callee == search.target).map(Some)
}

/// Transfers out of the reached part, imports by their slot and by what it is bound to.
fn hops(image: &CodeImage<'_>, explored: &Explored, part: &BTreeSet<u64>) -> Vec<Hop> {
    let mut out = Vec::new();
    for edge in &explored.listing.external_edges {
        if part.contains(&edge.site) {
            let kind = match edge.kind {
                EdgeKind::Call => HopKind::Call,
                EdgeKind::TailJump => HopKind::TailJump,
            };
            out.push(Hop { site: edge.site, kind, callee: edge.target });
        }
    }
    for at in part {
        let Some(instruction) = explored.listing.instructions.get(at) else { continue };
        if !matches!(instruction.transfer, Transfer::Call(_) | Transfer::Jump(_)) {
            continue;
        }
        if let Callee::Import(import) = callee_in(image, &explored.listing, *at) {
            out.push(Hop { site: *at, kind: HopKind::Import, callee: import.slot });
            if let Some(bound) = image.value(import.slot, image.pointer_size())
                && !image.contains(bound)
            {
                out.push(Hop { site: *at, kind: HopKind::Import, callee: bound });
            }
        }
    }
    out
}

/// Counts what was not followed.
fn note_unseen(image: &CodeImage<'_>, explored: &Explored, part: &BTreeSet<u64>, out: &mut Reached) {
    out.blind_stops += explored.listing.blind.len();
    let mut unresolved: Vec<u64> = explored
        .listing
        .unresolved
        .iter()
        .map(|(site, _)| *site)
        .filter(|site| part.contains(site))
        .collect();
    for at in part {
        let Some(instruction) = explored.listing.instructions.get(at) else { continue };
        if matches!(instruction.transfer, Transfer::Call(_))
            && callee_in(image, &explored.listing, *at) == Callee::Indirect
        {
            unresolved.push(*at);
        }
    }
    out.unresolved_count += unresolved.len();
    let room = MAX_UNRESOLVED.saturating_sub(out.unresolved.len());
    out.unresolved.extend(unresolved.into_iter().take(room));
}

fn finish(out: &mut Reached, nodes: &[Node], last: usize, hop: Option<Hop>, target: u64, entry: u64) {
    out.reachable = true;
    let mut at = Some(last);
    while let Some(number) = at {
        if let Some(explored) = &nodes[number].explored {
            out.functions.push(Rc::clone(explored));
        }
        at = nodes[number].from.map(|(before, hop)| {
            out.path.push(hop);
            before
        });
    }
    out.functions.reverse();
    out.path.reverse();
    match hop {
        None => {
            out.target_in_listing = true;
            out.containing_function = Some(entry);
        }
        Some(hop) => {
            out.path.push(hop);
            out.containing_function = Some(target);
        }
    }
}
