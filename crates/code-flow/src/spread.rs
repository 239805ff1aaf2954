//! Everything a place in a routine leads to within its image, over direct edges.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use target::Halt;

use crate::blocks::Blocks;
use crate::callee::{Callee, callee_in};
use crate::descent::{function_at, listing};
use crate::image::CodeImage;
use crate::listing::{Listing, TableResolver};
use crate::vocabulary::Stopped;
use code::record::Transfer;

/// Instructions kept over all functions.
const MAX_INSTRUCTIONS: usize = 1 << 18;

/// A function on the way.
struct Node {
    enters: u64,
    depth: u32,
    /// The function before, and the call site in it.
    from: Option<(usize, u64)>,
}

/// What [`spread`] saw.
#[derive(Default)]
pub struct Spread {
    nodes: Vec<Node>,
    /// Instruction to the function that reached it first.
    reached: BTreeMap<u64, usize>,
    /// A bound ended it: more may be reached.
    pub bound_hit: bool,
    /// Indirect transfers nobody resolved.
    pub unresolved: usize,
    /// Instructions that would not read or decode.
    pub blind: usize,
    pub stopped: Option<Stopped>,
}

impl Spread {
    /// Whether control gets to `address`.
    #[must_use]
    pub fn reaches(&self, address: u64) -> bool {
        self.reached.contains_key(&address)
    }
    /// Calls between the beginning and `address`.
    #[must_use]
    pub fn depth(&self, address: u64) -> u32 {
        self.reached.get(&address).and_then(|node| self.nodes.get(*node)).map_or(0, |node| node.depth)
    }
    /// The call sites on the way to `address`, outermost first.
    #[must_use]
    pub fn path(&self, address: u64) -> Vec<u64> {
        let mut out = Vec::new();
        let mut node = self.reached.get(&address).copied();
        while let Some((before, site)) = node.and_then(|node| self.nodes.get(node)).and_then(|node| node.from)
        {
            out.push(site);
            node = Some(before);
        }
        out.reverse();
        out
    }
    /// Functions looked at.
    #[must_use]
    pub fn functions(&self) -> usize {
        self.nodes.len()
    }
}

/// Follows direct calls, tail jumps and resolved tables from `from`, which may lie inside a function:
/// then only what control reaches from there counts.
#[must_use]
pub fn spread(
    image: &CodeImage<'_>,
    from: u64,
    tables: &dyn TableResolver,
    max_depth: u32,
    max_functions: usize,
    halt: &Halt,
) -> Spread {
    let mut out = Spread::default();
    let mut seen: HashMap<u64, usize> = HashMap::from([(from, 0)]);
    let mut queue = VecDeque::from([0]);
    out.nodes.push(Node { enters: from, depth: 0, from: None });
    while let Some(number) = queue.pop_front() {
        if let Some(stop) = halt.stop() {
            out.stopped = Some(stop.into());
            break;
        }
        let (enters, depth) = (out.nodes[number].enters, out.nodes[number].depth);
        let (found, part) = function_part(image, enters, number == 0, tables, halt);
        out.stopped = out.stopped.or(found.stopped);
        out.blind += found.blind.iter().filter(|at| part.contains(at) || number > 0).count();
        if out.reached.len() + part.len() > MAX_INSTRUCTIONS {
            out.bound_hit = true;
            break;
        }
        for at in &part {
            out.reached.entry(*at).or_insert(number);
        }
        out.unresolved += indirect(image, &found, &part);
        let edges = found.external_edges.iter().filter(|edge| part.contains(&edge.site));
        for edge in edges.filter(|edge| image.contains(edge.target)) {
            if seen.contains_key(&edge.target) {
                continue;
            }
            if depth >= max_depth || out.nodes.len() >= max_functions {
                out.bound_hit = true;
                continue;
            }
            seen.insert(edge.target, out.nodes.len());
            queue.push_back(out.nodes.len());
            out.nodes.push(Node { enters: edge.target, depth: depth + 1, from: Some((number, edge.site)) });
        }
    }
    out
}

/// The function around `enters` and the part of it control reaches from there.
fn function_part(
    image: &CodeImage<'_>,
    enters: u64,
    first: bool,
    tables: &dyn TableResolver,
    halt: &Halt,
) -> (Listing, BTreeSet<u64>) {
    let entry = if first { function_at(image, enters).unwrap_or(enters) } else { enters };
    let mut found = listing(image, entry, tables, halt);
    if entry != enters && !found.instructions.contains_key(&enters) {
        found = listing(image, enters, tables, halt);
    }
    if found.entry == enters {
        let all = found.instructions.keys().copied().collect();
        return (found, all);
    }
    let blocks = Blocks::of(&found);
    let Some(start) = blocks.containing(enters) else { return (found, BTreeSet::new()) };
    let mut part: BTreeSet<u64> =
        blocks.blocks[start].instructions.iter().filter(|at| **at >= enters).copied().collect();
    for (next, _) in &blocks.blocks[start].successors {
        for block in blocks.reverse_post_order_from(*next) {
            part.extend(&blocks.blocks[block].instructions);
        }
    }
    (found, part)
}

fn indirect(image: &CodeImage<'_>, found: &Listing, part: &BTreeSet<u64>) -> usize {
    let jumps = found.unresolved.iter().filter(|(site, _)| part.contains(site)).count();
    let calls = part
        .iter()
        .filter(|at| found.instructions.get(at).is_some_and(|i| i.transfer == Transfer::Call(None)))
        .filter(|at| callee_in(image, found, **at) == Callee::Indirect)
        .count();
    jumps + calls
}
