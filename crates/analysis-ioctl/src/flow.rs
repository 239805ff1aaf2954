//! The fixpoint: which control codes can be where, over one function.

mod split;
mod tables;

pub use split::{Fact, Split, Test};
pub use tables::{Dispatch, TableForm, Tables};

use code::Decoded;
use code::record::Transfer;
use code_flow::{Blocks, Edge, Listing, Stopped};
use target::Halt;

use crate::pass::Pass;
use crate::semantics::Callee;
use crate::state::State;

/// Most sweeps over the blocks before what was found is not believed.
pub const MAX_SWEEPS: usize = 64;

/// What happens at instructions, told to whoever looks at the settled states.
pub trait Visitor {
    /// Any instruction, before it runs.
    fn instruction(&mut self, _pass: &mut Pass<'_>, _instruction: &Decoded, _state: &State) {}
    /// A call, before it is made.
    fn call(&mut self, _pass: &mut Pass<'_>, _call: &Decoded, _callee: Callee, _state: &State) {}
    /// A conditional branch in block `block`; `landings` are where its edges go.
    fn branch(
        &mut self,
        _pass: &mut Pass<'_>,
        _branch: &Decoded,
        _block: usize,
        _split: &Split,
        _landings: (u64, u64),
    ) {
    }
    /// An indirect jump whose targets were found.
    fn table(&mut self, _pass: &mut Pass<'_>, _jump: &Decoded, _block: usize, _dispatch: &Dispatch) {}
    /// An indirect jump whose targets were not.
    fn unresolved(&mut self, _pass: &mut Pass<'_>, _jump: &Decoded, _state: &State, _why: &'static str) {}
    /// Control leaves the function for `callee` without coming back.
    fn tail(&mut self, _pass: &mut Pass<'_>, _jump: &Decoded, _callee: Callee, _state: &State) {}
    /// A return.
    fn returns(&mut self, _pass: &mut Pass<'_>, _ret: &Decoded, _state: &State) {}
}

/// Looks at nothing.
pub struct Blind;
impl Visitor for Blind {}

/// The settled states of one function.
pub struct Flow {
    pub listing: Listing,
    pub blocks: Blocks,
    /// State at the start of each block, by its index; `None` where no path leads.
    pub entries: Vec<Option<State>>,
    pub settled: bool,
    pub stopped: Option<Stopped>,
}

impl Flow {
    /// The blocks of `listing` without any state: for walking paths one by one.
    #[must_use]
    pub fn unsolved(listing: Listing) -> Self {
        let blocks = Blocks::of(&listing);
        let count = blocks.blocks.len();
        Self { listing, blocks, entries: vec![None; count], settled: true, stopped: None }
    }

    /// Propagates `entry` from the listing's entry until nothing changes, at most `sweeps` times.
    #[must_use]
    pub fn solve(pass: &mut Pass<'_>, listing: Listing, entry: &State, sweeps: usize, halt: &Halt) -> Self {
        let blocks = Blocks::of(&listing);
        let count = blocks.blocks.len();
        let mut flow = Self { listing, blocks, entries: vec![None; count], settled: false, stopped: None };
        let Some(first) = flow.blocks.entry else {
            flow.settled = true;
            return flow;
        };
        let order = flow.blocks.reverse_post_order_from(first);
        let mut exits: Vec<Vec<(usize, State)>> = vec![Vec::new(); count];
        for _ in 0..sweeps {
            let mut changed = false;
            for &block in &order {
                if let Some(stop) = halt.stop() {
                    flow.stopped = Some(stop.into());
                    return flow;
                }
                let Some(state) = flow.incoming(pass, block, (first, entry), &exits) else { continue };
                if flow.entries[block].as_ref() == Some(&state) {
                    continue;
                }
                changed = true;
                let out = flow.run(pass, block, state.clone(), &mut Blind);
                flow.entries[block] = Some(state);
                exits[block] = out;
            }
            if !changed {
                flow.settled = true;
                break;
            }
            if pass.solver.sets.overflowed() {
                break;
            }
        }
        flow
    }

    fn incoming(
        &self,
        pass: &mut Pass<'_>,
        block: usize,
        (first, entry): (usize, &State),
        exits: &[Vec<(usize, State)>],
    ) -> Option<State> {
        let mut state: Option<State> = (block == first).then(|| entry.clone());
        for &before in &self.blocks.blocks[block].predecessors {
            for (to, out) in exits.get(before).into_iter().flatten() {
                if *to != block {
                    continue;
                }
                match &mut state {
                    None => state = Some(out.clone()),
                    Some(state) => state.join(out, &mut pass.solver),
                }
            }
        }
        state
    }

    /// Tells `visitor` what happens in every reached block.
    pub fn visit(&self, pass: &mut Pass<'_>, visitor: &mut dyn Visitor) {
        for (block, state) in self.entries.iter().enumerate() {
            if let Some(state) = state {
                self.run(pass, block, state.clone(), visitor);
            }
        }
    }

    /// Runs one block; the states on its edges.
    pub fn run(
        &self,
        pass: &mut Pass<'_>,
        block: usize,
        mut state: State,
        visitor: &mut dyn Visitor,
    ) -> Vec<(usize, State)> {
        let body = &self.blocks.blocks[block];
        let Some((last, before)) = body.instructions.split_last() else { return Vec::new() };
        for at in before {
            let Some(instruction) = self.listing.instructions.get(at) else { return Vec::new() };
            self.pass_over(pass, instruction, &mut state, visitor);
        }
        let Some(instruction) = self.listing.instructions.get(last) else { return Vec::new() };
        self.leave(pass, instruction, block, state, visitor)
    }

    fn pass_over(
        &self,
        pass: &mut Pass<'_>,
        instruction: &Decoded,
        state: &mut State,
        visitor: &mut dyn Visitor,
    ) {
        visitor.instruction(pass, instruction, state);
        if let Transfer::Call(target) = instruction.transfer {
            if target == Some(instruction.end()) {
                // `call $+5`: a push.
                let next = pass.solver.exprs.constant(instruction.end());
                pass.push_value(next, state);
                return;
            }
            let callee = pass.callee(instruction, state);
            visitor.call(pass, instruction, callee, state);
            pass.return_from(instruction, callee, state);
        } else {
            pass.step(instruction, state);
        }
    }

    fn leave(
        &self,
        pass: &mut Pass<'_>,
        instruction: &Decoded,
        block: usize,
        mut state: State,
        visitor: &mut dyn Visitor,
    ) -> Vec<(usize, State)> {
        let successor = |wanted: Edge| {
            self.blocks.blocks[block].successors.iter().find(|(_, edge)| *edge == wanted).map(|(to, _)| *to)
        };
        if !matches!(instruction.transfer, Transfer::Fallthrough | Transfer::Call(_)) {
            visitor.instruction(pass, instruction, &state);
        }
        match instruction.transfer {
            Transfer::Branch(target) => {
                pass.step(instruction, &mut state);
                let split = Split::of(pass, instruction, &state);
                let landings = (target.unwrap_or(0), instruction.end());
                visitor.branch(pass, instruction, block, &split, landings);
                let mut out = Vec::new();
                for (edge, landing, side) in
                    [(Edge::Taken, landings.0, split.taken), (Edge::Fallthrough, landings.1, split.other)]
                {
                    let Some(mut side) = side else { continue };
                    match successor(edge) {
                        Some(to) => out.push((to, side)),
                        None => self.leave_for(pass, instruction, landing, &mut side, visitor),
                    }
                }
                out
            }
            Transfer::Jump(Some(target)) => match successor(Edge::Jump) {
                Some(to) => vec![(to, state)],
                None => {
                    self.leave_for(pass, instruction, target, &mut state, visitor);
                    Vec::new()
                }
            },
            Transfer::Jump(None) => self.jump(pass, instruction, block, state, visitor),
            Transfer::Return => {
                visitor.returns(pass, instruction, &state);
                Vec::new()
            }
            Transfer::Trap | Transfer::Unreadable | Transfer::Undecodable => Vec::new(),
            Transfer::Fallthrough | Transfer::Call(_) => {
                let no_return = self.listing.no_return_calls.binary_search(&instruction.address).is_ok();
                self.pass_over(pass, instruction, &mut state, visitor);
                match successor(Edge::Fallthrough) {
                    Some(to) if !no_return => vec![(to, state)],
                    None if !no_return && self.falls_out(instruction) => {
                        self.leave_for(pass, instruction, instruction.end(), &mut state, visitor);
                        Vec::new()
                    }
                    _ => Vec::new(),
                }
            }
        }
    }

    fn falls_out(&self, instruction: &Decoded) -> bool {
        self.listing
            .external_edges
            .iter()
            .any(|e| e.site == instruction.address && e.target == instruction.end())
    }

    /// Control goes to an address outside the function.
    fn leave_for(
        &self,
        pass: &mut Pass<'_>,
        instruction: &Decoded,
        target: u64,
        state: &mut State,
        visitor: &mut dyn Visitor,
    ) {
        let target = pass.solver.exprs.constant(target);
        let callee = pass.resolve(target);
        visitor.tail(pass, instruction, callee, state);
    }

    fn jump(
        &self,
        pass: &mut Pass<'_>,
        instruction: &Decoded,
        block: usize,
        mut state: State,
        visitor: &mut dyn Visitor,
    ) -> Vec<(usize, State)> {
        let callee = pass.callee(instruction, &mut state);
        let Callee::Indirect(target) = callee else {
            visitor.tail(pass, instruction, callee, &state);
            return Vec::new();
        };
        let dispatch = match Dispatch::of(pass, &self.listing, instruction, target, &state) {
            Ok(dispatch) => dispatch,
            Err(why) => {
                visitor.unresolved(pass, instruction, &state, why);
                return Vec::new();
            }
        };
        visitor.table(pass, instruction, block, &dispatch);
        let mut out = Vec::new();
        for arm in &dispatch.arms {
            match self.blocks.starting_at(arm.target) {
                Some(to) => out.push((to, arm.state.clone())),
                None => visitor.tail(pass, instruction, Callee::Local(arm.target), &arm.state),
            }
        }
        out
    }
}
