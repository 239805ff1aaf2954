//! One sufficient path through a function, as the branches it needs.

use std::collections::VecDeque;

use code::Decoded;
use code::record::{Condition, Flags, Operand, Operation};

use crate::blocks::{Blocks, Edge};
use crate::listing::Listing;

/// Most steps of a recipe.
const MAX_STEPS: usize = 256;

/// A branch on the way, and how it must go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub site: u64,
    pub condition: Option<Condition>,
    pub taken: bool,
    /// The compare that feeds the branch, where one in the same block does.
    pub compares: Option<Compared>,
}

/// What a step's flags come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compared {
    pub at: u64,
    pub left: Operand,
    /// Of a compare with a number.
    pub value: Option<u64>,
    /// `test a, mask`.
    pub mask: bool,
}

/// The branches one path from `start` to `goal` needs, in order. Branches after which every way
/// leads on to a later block of the path are left out. `None` when the blocks do not connect, or
/// there are too many steps.
#[must_use]
pub fn recipe(listing: &Listing, blocks: &Blocks, start: u64, goal: u64) -> Option<Vec<Step>> {
    let (from, to) = (blocks.containing(start)?, blocks.containing(goal)?);
    let path = shortest(blocks, from, to)?;
    let mut steps = Vec::new();
    let mut at = 0;
    while at + 1 < path.len() {
        // The last later block of the path nothing can avoid from here.
        let certain = (at + 1..path.len()).rev().find(|later| unavoidable(blocks, path[at], path[*later]));
        if let Some(later) = certain {
            at = later;
            continue;
        }
        if steps.len() >= MAX_STEPS {
            return None;
        }
        steps.push(step(listing, blocks, path[at], path[at + 1])?);
        at += 1;
    }
    Some(steps)
}

fn shortest(blocks: &Blocks, from: usize, to: usize) -> Option<Vec<usize>> {
    let mut before: Vec<Option<usize>> = vec![None; blocks.blocks.len()];
    let mut queue = VecDeque::from([from]);
    let mut found = from == to;
    while let Some(block) = queue.pop_front() {
        if block == to {
            found = true;
            break;
        }
        for &(next, _) in &blocks.blocks[block].successors {
            if before[next].is_none() && next != from {
                before[next] = Some(block);
                queue.push_back(next);
            }
        }
    }
    if !found {
        return None;
    }
    let mut path = vec![to];
    while let Some(previous) = path.last().and_then(|block| before[*block]) {
        path.push(previous);
    }
    path.reverse();
    Some(path)
}

/// Whether every way from `from` comes through `through`: without it no end is reachable. A block
/// without successors is an end.
fn unavoidable(blocks: &Blocks, from: usize, through: usize) -> bool {
    let mut seen = vec![false; blocks.blocks.len()];
    let mut stack = vec![from];
    seen[from] = true;
    seen[through] = true;
    while let Some(block) = stack.pop() {
        let successors = &blocks.blocks[block].successors;
        if successors.is_empty() || leaves(blocks, block) {
            return false;
        }
        for &(next, _) in successors {
            if !std::mem::replace(&mut seen[next], true) {
                stack.push(next);
            }
        }
    }
    true
}

/// A branch with one successor in the function leaves it by the other.
fn leaves(blocks: &Blocks, block: usize) -> bool {
    let successors = &blocks.blocks[block].successors;
    let conditional = |edge: &Edge| matches!(edge, Edge::Taken);
    successors.len() == 1 && successors.iter().any(|(_, edge)| conditional(edge))
}

fn step(listing: &Listing, blocks: &Blocks, block: usize, next: usize) -> Option<Step> {
    let here = &blocks.blocks[block];
    let edge = here.successors.iter().find(|(to, _)| *to == next).map(|(_, edge)| *edge)?;
    let site = *here.instructions.last()?;
    let last = listing.instructions.get(&site)?;
    Some(Step {
        site,
        condition: last.condition,
        taken: edge != Edge::Fallthrough,
        compares: compared(listing, &here.instructions),
    })
}

/// The last instruction of a block that sets the flags, if it is a compare.
fn compared(listing: &Listing, instructions: &[u64]) -> Option<Compared> {
    const LOOKED_AT: Flags = Flags::ZERO.union(Flags::CARRY).union(Flags::SIGN).union(Flags::OVERFLOW);
    let setter: &Decoded = instructions
        .iter()
        .rev()
        .skip(1)
        .filter_map(|at| listing.instructions.get(at))
        .find(|instruction| instruction.flags_written.intersects(LOOKED_AT))?;
    let mask = setter.operation == Operation::Test;
    match (setter.operation, setter.operands.as_slice()) {
        (Operation::Compare | Operation::Test, [left, right]) => {
            Some(Compared { at: setter.address, left: *left, value: right.immediate(), mask })
        }
        _ => None,
    }
}
