//! Basic blocks of a listing, and the order to look at them in.

use std::collections::{BTreeSet, HashMap};

use code::Decoded;
use code::record::Transfer;

use crate::listing::{Listing, MAX_BLOCKS};

/// How control goes from one block to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Edge {
    /// A branch's condition holds.
    Taken,
    /// It does not, or there is no branch at the block's end.
    Fallthrough,
    Jump,
    /// Through the listing's table of that index.
    Table(usize),
}

/// A basic block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    pub start: u64,
    /// Addresses of its instructions, in order; never empty.
    pub instructions: Vec<u64>,
    /// Blocks after this one, by index.
    pub successors: Vec<(usize, Edge)>,
    pub predecessors: Vec<usize>,
}

/// The control flow graph of one function.
#[derive(Clone, Debug)]
pub struct Blocks {
    /// By start address.
    pub blocks: Vec<Block>,
    by_start: HashMap<u64, usize>,
    /// Index of the block that starts at the listing's entry, if that decoded.
    pub entry: Option<usize>,
    /// The block cap ended the cutting; what is missing has no block.
    pub cap_hit: bool,
}

impl Blocks {
    #[must_use]
    pub fn of(listing: &Listing) -> Self {
        let mut leaders = leaders(listing);
        let cap_hit = leaders.len() > MAX_BLOCKS;
        if cap_hit {
            leaders = leaders.into_iter().take(MAX_BLOCKS).chain([listing.entry]).collect();
        }
        let mut blocks: Vec<Block> =
            leaders.iter().filter_map(|start| cut(listing, &leaders, *start)).collect();
        let by_start: HashMap<u64, usize> = blocks.iter().enumerate().map(|(i, b)| (b.start, i)).collect();
        connect(listing, &mut blocks, &by_start);
        let entry = by_start.get(&listing.entry).copied();
        Self { blocks, by_start, entry, cap_hit }
    }

    /// The block that starts at `address`.
    #[must_use]
    pub fn starting_at(&self, address: u64) -> Option<usize> {
        self.by_start.get(&address).copied()
    }

    /// The block that holds the instruction at `address`.
    #[must_use]
    pub fn containing(&self, address: u64) -> Option<usize> {
        self.blocks.iter().position(|block| block.instructions.contains(&address))
    }

    /// Blocks reachable from `from`, in reverse post-order.
    #[must_use]
    pub fn reverse_post_order_from(&self, from: usize) -> Vec<usize> {
        let mut seen = vec![false; self.blocks.len()];
        let mut order = Vec::with_capacity(self.blocks.len());
        // An explicit stack of (block, next successor): a compare chain is deep.
        let mut stack = vec![(from, 0)];
        if let Some(first) = seen.get_mut(from) {
            *first = true;
        } else {
            return order;
        }
        while let Some((block, next)) = stack.last_mut() {
            let successors = &self.blocks[*block].successors;
            match successors.get(*next) {
                Some(&(to, _)) => {
                    *next += 1;
                    if !std::mem::replace(&mut seen[to], true) {
                        stack.push((to, 0));
                    }
                }
                None => {
                    order.push(*block);
                    stack.pop();
                }
            }
        }
        order.reverse();
        order
    }

    /// All blocks: those reachable from the entry in reverse post-order, the others after them by
    /// address.
    #[must_use]
    pub fn reverse_post_order(&self) -> Vec<usize> {
        let mut order = self.entry.map(|entry| self.reverse_post_order_from(entry)).unwrap_or_default();
        let mut seen = vec![false; self.blocks.len()];
        for block in &order {
            seen[*block] = true;
        }
        order.extend((0..self.blocks.len()).filter(|block| !seen[*block]));
        order
    }
}

fn leaders(listing: &Listing) -> BTreeSet<u64> {
    let mut out = BTreeSet::new();
    let mut lead = |address: u64| {
        if listing.instructions.contains_key(&address) {
            out.insert(address);
        }
    };
    lead(listing.entry);
    for instruction in listing.instructions.values() {
        match instruction.transfer {
            Transfer::Branch(target) | Transfer::Jump(target) => {
                target.into_iter().for_each(&mut lead);
                lead(instruction.end());
            }
            Transfer::Return | Transfer::Trap => lead(instruction.end()),
            _ => {}
        }
    }
    for site in &listing.no_return_calls {
        if let Some(call) = listing.instructions.get(site) {
            lead(call.end());
        }
    }
    listing.tables.iter().flat_map(|table| &table.targets).for_each(|target| lead(*target));
    // What nothing above leads to (an instruction inside another) starts a block as well.
    let mut covered = BTreeSet::new();
    for instruction in listing.instructions.values() {
        if goes_on(listing, instruction) {
            covered.insert(instruction.end());
        }
    }
    for address in listing.instructions.keys() {
        if !covered.contains(address) {
            out.insert(*address);
        }
    }
    out
}

/// Whether the next instruction belongs to the same block, leaders apart.
fn goes_on(listing: &Listing, instruction: &Decoded) -> bool {
    !instruction.transfer.ends_block() && listing.no_return_calls.binary_search(&instruction.address).is_err()
}

fn cut(listing: &Listing, leaders: &BTreeSet<u64>, start: u64) -> Option<Block> {
    let mut instructions = Vec::new();
    let mut at = start;
    while let Some(instruction) = listing.instructions.get(&at) {
        instructions.push(at);
        at = instruction.end();
        if !goes_on(listing, instruction) || leaders.contains(&at) {
            break;
        }
    }
    (!instructions.is_empty()).then(|| Block {
        start,
        instructions,
        successors: Vec::new(),
        predecessors: Vec::new(),
    })
}

fn connect(listing: &Listing, blocks: &mut [Block], by_start: &HashMap<u64, usize>) {
    for index in 0..blocks.len() {
        let Some(last) = blocks[index].instructions.last().and_then(|at| listing.instructions.get(at)) else {
            continue;
        };
        let mut next: Vec<(u64, Edge)> = Vec::new();
        match last.transfer {
            Transfer::Branch(target) => {
                next.extend(target.map(|target| (target, Edge::Taken)));
                next.push((last.end(), Edge::Fallthrough));
            }
            Transfer::Jump(Some(target))
                if !listing.tables.iter().any(|table| table.site == last.address) =>
            {
                next.push((target, Edge::Jump));
            }
            Transfer::Jump(_) => {
                for (number, table) in listing.tables.iter().enumerate() {
                    if table.site == last.address {
                        next.extend(table.targets.iter().map(|target| (*target, Edge::Table(number))));
                    }
                }
            }
            _ if goes_on(listing, last) => next.push((last.end(), Edge::Fallthrough)),
            _ => {}
        }
        // A target outside the function is no successor: its edge is in `external_edges`.
        let mut successors: Vec<(usize, Edge)> = next
            .into_iter()
            .filter(|(address, _)| !leaves(listing, last.address, *address))
            .filter_map(|(address, edge)| by_start.get(&address).map(|block| (*block, edge)))
            .collect();
        let mut seen = BTreeSet::new();
        successors.retain(|edge| seen.insert(*edge));
        for (block, _) in &successors {
            if !blocks[*block].predecessors.contains(&index) {
                blocks[*block].predecessors.push(index);
            }
        }
        blocks[index].successors = successors;
    }
}

fn leaves(listing: &Listing, site: u64, target: u64) -> bool {
    let edges = &listing.external_edges;
    let at = edges.partition_point(|edge| (edge.site, edge.target) < (site, target));
    edges.get(at).is_some_and(|edge| {
        (edge.site, edge.target) == (site, target) && edge.kind == crate::listing::EdgeKind::TailJump
    })
}
