//! Which control codes can stand at an instruction of a dispatch routine.

use code_flow::{CodeImage, listing};
use target::Halt;

use crate::analysis::{Convention, entry_state};
use crate::expr::Variable;
use crate::flow::{Flow, MAX_SWEEPS, Tables};
use crate::pass::Pass;

/// The codes with which control can be at `goal`, an instruction of the routine at `entry` called as
/// `convention` says: at most `limit` of them, and how many there are. `None` where the data flow did
/// not settle, no path leads there, or nothing on the way looks at the code.
#[must_use]
pub fn codes_at(
    image: &CodeImage<'_>,
    entry: u64,
    convention: Convention,
    major: u8,
    goal: u64,
    limit: usize,
    halt: &Halt,
) -> Option<(Vec<u32>, u64)> {
    let constants = |address: u64, size: u8| image.constant(address, usize::from(size));
    let mut pass = Pass::new(image, &constants, major);
    let first = entry_state(&mut pass, convention);
    let routine = {
        let tables = Tables::new(&mut pass, first.clone(), halt);
        listing(image, entry, &tables, halt)
    };
    let flow = Flow::solve(&mut pass, routine, &first, MAX_SWEEPS, halt);
    if !flow.settled {
        return None;
    }
    let block = flow.blocks.containing(goal)?;
    let state = flow.entries.get(block)?.as_ref()?;
    let set = state.values(Variable::CODE, &mut pass.solver);
    let sets = &mut pass.solver.sets;
    let count = sets.count(set);
    if count > u64::from(u32::MAX) {
        return None;
    }
    let codes = sets.values(set, limit).unwrap_or_default();
    Some((codes, count))
}
