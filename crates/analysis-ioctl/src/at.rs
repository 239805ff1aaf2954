//! What stands at an instruction of a dispatch routine: the control codes that can get there, and what
//! the compares on the way look at.

use std::collections::{BTreeMap, BTreeSet};

use code::Decoded;
use code_flow::{CodeImage, listing};
use target::Halt;

use crate::analysis::{Convention, entry_state};
use crate::expr::Variable;
use crate::flow::{Flow, MAX_SWEEPS, Tables, Visitor};
use crate::pass::Pass;
use crate::state::State;

/// A dispatch routine and how it is called.
#[derive(Clone, Copy, Debug)]
pub struct Routine {
    pub entry: u64,
    pub convention: Convention,
    pub major: u8,
}

/// What a compare looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compared {
    Code,
    InputLength,
    OutputLength,
}

/// What stands at an instruction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gates {
    /// The codes with which control can be there, and how many; empty beyond the limit. `None` where
    /// nothing on the way looks at the code.
    pub codes: Option<(Vec<u32>, u64)>,
    /// By address of the compare.
    pub fields: BTreeMap<u64, Compared>,
}

/// What stands at `goal`, an instruction of `routine`, and at the compares in `compares`. `None` where
/// the data flow did not settle or no path leads to the goal.
#[must_use]
pub fn gates(
    image: &CodeImage<'_>,
    routine: Routine,
    goal: u64,
    compares: &[u64],
    limit: usize,
    halt: &Halt,
) -> Option<Gates> {
    let constants = |address: u64, size: u8| image.constant(address, usize::from(size));
    let mut pass = Pass::new(image, &constants, routine.major);
    let first = entry_state(&mut pass, routine.convention);
    let found = {
        let tables = Tables::new(&mut pass, first.clone(), halt);
        listing(image, routine.entry, &tables, halt)
    };
    let flow = Flow::solve(&mut pass, found, &first, MAX_SWEEPS, halt);
    if !flow.settled {
        return None;
    }
    let block = flow.blocks.containing(goal)?;
    let state = flow.entries.get(block)?.as_ref()?;
    let set = state.values(Variable::CODE, &mut pass.solver);
    let count = pass.solver.sets.count(set);
    let codes = (count <= u64::from(u32::MAX))
        .then(|| (pass.solver.sets.values(set, limit).unwrap_or_default(), count));
    let mut look = Look { wanted: compares.iter().copied().collect(), fields: BTreeMap::new() };
    flow.visit(&mut pass, &mut look);
    Some(Gates { codes, fields: look.fields })
}

struct Look {
    wanted: BTreeSet<u64>,
    fields: BTreeMap<u64, Compared>,
}

impl Visitor for Look {
    fn instruction(&mut self, pass: &mut Pass<'_>, instruction: &Decoded, state: &State) {
        if !self.wanted.contains(&instruction.address) {
            return;
        }
        let value = pass.source(instruction, 0, 32, &mut state.clone());
        let field = match pass.solver.exprs.variable(value) {
            Some(Variable::CODE) => Compared::Code,
            Some(Variable::INPUT_LENGTH) => Compared::InputLength,
            Some(Variable::OUTPUT_LENGTH) => Compared::OutputLength,
            _ => return,
        };
        self.fields.insert(instruction.address, field);
    }
}
