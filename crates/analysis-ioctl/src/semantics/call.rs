//! Calls: what they go to, what survives them, what the framework's own functions give.

use code::Recorder;
use code::record::{Decoded, Family, Operand, Operation, Transfer};
use code_flow::callee::{decode_at, direct};
use target::Machine;

use crate::expr::{Expr, Node, Op, Symbol, Variable};
use crate::names;
use crate::pass::Pass;
use crate::solve::Comparison;
use crate::state::{Place, State};

/// A callee short enough to be run in place.
const TINY: usize = 40;

/// A callee with branches that is still run for each call.
const SMALL: usize = 64;

/// Return states of a callee.
struct Returns {
    states: Vec<(Decoded, State)>,
    left: bool,
}

impl crate::flow::Visitor for Returns {
    fn returns(&mut self, _: &mut Pass<'_>, ret: &Decoded, state: &State) {
        self.states.push((ret.clone(), state.clone()));
    }
    fn tail(&mut self, _: &mut Pass<'_>, _: &Decoded, _: Callee, _: &State) {
        self.left = true;
    }
    fn unresolved(&mut self, _: &mut Pass<'_>, _: &Decoded, _: &State, _: &'static str) {
        self.left = true;
    }
}

/// KMDF functions by index (wdffuncenum.h).
pub(crate) mod framework {
    pub(crate) const REQUEST_COMPLETE: u16 = 263;
    pub(crate) const REQUEST_COMPLETE_WITH_PRIORITY: u16 = 264;
    pub(crate) const REQUEST_COMPLETE_WITH_INFORMATION: u16 = 265;
    pub(crate) const REQUEST_GET_PARAMETERS: u16 = 266;
    pub(crate) const REQUEST_WDM_GET_IRP: u16 = 285;

    /// Arguments of the functions a request handler calls most, the driver's globals included
    /// (wdfrequest.h): stdcall on x86.
    pub(crate) fn arguments(index: u16) -> Option<u32> {
        Some(match index {
            // WdfRequestGetFileObject, GetRequestorMode, WdmGetIrp.
            277 | 280 | 285 => 2,
            REQUEST_COMPLETE | REQUEST_GET_PARAMETERS => 3,
            REQUEST_COMPLETE_WITH_PRIORITY | REQUEST_COMPLETE_WITH_INFORMATION => 4,
            // WdfRequestRetrieveInputMemory, OutputMemory, InputWdmMdl, OutputWdmMdl.
            267 | 268 | 271 | 272 => 3,
            // WdfRequestRetrieveInputBuffer, OutputBuffer, UnsafeUserInputBuffer, UnsafeUserOutputBuffer,
            // ProbeAndLockUserBufferForRead, ForWrite.
            269 | 270 | 273 | 274 | 278 | 279 => 5,
            _ => return None,
        })
    }
}

/// What a call hands out of the request's buffers.
enum Given {
    Result(Expr),
    /// A pointer, and perhaps its length, stored in stack slots.
    Buffer {
        at: i64,
        length_at: Option<i64>,
        value: Expr,
        length: Expr,
    },
}

/// What a call or tail jump goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Callee {
    /// Code of this image.
    Local(u64),
    /// An import, by the address of its slot.
    Import(u64),
    /// A KMDF function.
    Framework(u16),
    /// CFG's check of a target that is called later.
    GuardCheck,
    /// Through a value that is not known.
    Indirect(Expr),
}

/// Where argument `index` of a call is, seen by the caller just before it: the value.
pub fn argument(pass: &mut Pass<'_>, index: usize, state: &State) -> Expr {
    let register = match (pass.machine, index) {
        (Machine::X64, 0) => 1,
        (Machine::X64, 1) => 2,
        (Machine::X64, 2) => 8,
        (Machine::X64, 3) => 9,
        (Machine::Arm64, 0..=7) => index as u8,
        _ => {
            let slot = match pass.machine {
                Machine::Arm64 => index - 8,
                _ => index,
            };
            let offset = pass.solver.exprs.constant(slot as u64 * u64::from(pass.layout.pointer));
            let pointer = pass.pointer();
            let at = pass.solver.exprs.binary(Op::Add, pointer, state.stack_pointer(), offset);
            return pass.load_at(at, pass.layout.pointer, state);
        }
    };
    state.register(Family::General(register))
}

impl Pass<'_> {
    /// The register a function returns its result in.
    #[must_use]
    pub fn result_register(&self) -> Family {
        Family::General(0)
    }

    /// What the call or jump `instruction` goes to.
    pub fn callee(&mut self, instruction: &Decoded, state: &mut State) -> Callee {
        if let Some(Operand::Memory(memory)) = instruction.operands.first()
            && let Some(slot) = memory.address
        {
            if self.guard.dispatch == Some(slot) {
                let target = state.register(Family::General(0));
                return self.resolve(target);
            }
            if self.guard.check == Some(slot) {
                return Callee::GuardCheck;
            }
        }
        let target = self.target_of(instruction, state);
        self.resolve(target)
    }

    /// What a transfer to `target` is.
    pub fn resolve(&mut self, target: Expr) -> Callee {
        match self.solver.exprs.node(target) {
            Node::Const(address) => match direct(self.image, address) {
                code_flow::Callee::Import(import) => Callee::Import(import.slot),
                code_flow::Callee::Address(address) if self.image.is_executable(address) => {
                    Callee::Local(address)
                }
                _ => Callee::Indirect(Expr::UNKNOWN),
            },
            Node::Symbol(Symbol::Import(slot)) => Callee::Import(slot),
            Node::Symbol(Symbol::FrameworkFunction(index)) => Callee::Framework(index),
            _ => Callee::Indirect(target),
        }
    }

    /// The name of the import at `slot`.
    #[must_use]
    pub fn import_name(&self, slot: u64) -> Option<&str> {
        self.image.imports().at_slot(slot).and_then(|import| import.name.as_deref())
    }

    /// The state after a call of `callee` came back.
    pub fn return_from(&mut self, instruction: &Decoded, callee: Callee, state: &mut State) {
        if callee == Callee::GuardCheck {
            return;
        }
        if let Callee::Local(entry) = callee
            && (self.run_in_place(entry, state) || self.run_small(entry, state))
        {
            return;
        }
        let given = if self.tainting { self.gives(callee, state) } else { None };
        let parameters = match callee {
            Callee::Framework(framework::REQUEST_GET_PARAMETERS) => Some(argument(self, 2, state)),
            _ => None,
        };
        if parameters.is_none() {
            self.let_escape(state);
            state.disturb(&self.solver.exprs);
        }
        self.clobber(state);
        state.compare(instruction.address, Comparison::Nothing, &mut self.solver);
        if let Some(address) = parameters {
            self.define_parameters(address, state);
        }
        if callee == Callee::Framework(framework::REQUEST_WDM_GET_IRP) {
            let irp = self.solver.exprs.symbol(Symbol::Irp);
            state.set_register(self.result_register(), irp);
        }
        if self.machine == Machine::X86 {
            self.pop_arguments(callee, state);
        }
        match given {
            Some(Given::Result(value)) => state.set_register(self.result_register(), value),
            Some(Given::Buffer { at, length_at, value, length }) => {
                let pointer = self.layout.pointer;
                state.store(Place::Stack(at), pointer, value);
                if let Some(length_at) = length_at {
                    state.store(Place::Stack(length_at), pointer, length);
                }
            }
            None => {}
        }
    }

    /// What a call hands out of the request's buffers.
    fn gives(&mut self, callee: Callee, state: &State) -> Option<Given> {
        let index = match callee {
            Callee::Import(slot) => {
                let name = self.import_name(slot)?;
                let maps = matches!(name, "MmMapLockedPagesSpecifyCache" | "MmMapLockedPages");
                let mdl = self.solver.exprs.symbol(Symbol::Mdl);
                if !maps || argument(self, 0, state) != mdl {
                    return None;
                }
                return Some(Given::Result(self.solver.exprs.symbol(Symbol::MdlBuffer)));
            }
            Callee::Framework(index) => index,
            _ => return None,
        };
        // With a minimum the framework itself has checked the length; an output buffer's is its own.
        let least = argument(self, 2, state);
        let checked = self.solver.exprs.constant_value(least).is_some_and(|least| least > 0);
        let (buffer, length) = match index {
            269 if checked => (Symbol::MdlBuffer, Variable::INPUT_LENGTH),
            269 => (Symbol::SystemBuffer, Variable::INPUT_LENGTH),
            270 => (Symbol::MdlBuffer, Variable::OUTPUT_LENGTH),
            273 => (Symbol::Type3InputBuffer, Variable::INPUT_LENGTH),
            274 => (Symbol::UserBuffer, Variable::OUTPUT_LENGTH),
            _ => return None,
        };
        let (out, out_length) = (argument(self, 3, state), argument(self, 4, state));
        let at = |pass: &Self, e| match pass.solver.exprs.node(e) {
            Node::Stack(offset) => Some(offset),
            _ => None,
        };
        Some(Given::Buffer {
            at: at(self, out)?,
            length_at: at(self, out_length),
            value: self.solver.exprs.symbol(buffer),
            length: self.solver.exprs.var(length),
        })
    }

    /// Stack addresses the callee can see: in argument registers and stored in outgoing slots.
    fn let_escape(&mut self, state: &mut State) {
        let registers: &[u8] = match self.machine {
            Machine::X64 => &[1, 2, 8, 9],
            Machine::Arm64 => &[0, 1, 2, 3, 4, 5, 6, 7],
            _ => &[1, 2],
        };
        for &register in registers {
            let value = state.register(Family::General(register));
            if let Node::Stack(offset) = self.solver.exprs.node(value) {
                state.escape(offset);
            }
        }
        // Stack arguments that are addresses escaped when they were stored.
    }

    /// Volatile registers and the home area are the callee's.
    fn clobber(&mut self, state: &mut State) {
        let (general, vectors): (&[u8], std::ops::Range<u8>) = match self.machine {
            Machine::X64 => (&[0, 1, 2, 8, 9, 10, 11], 0..6),
            Machine::Arm64 => (&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 30], 0..32),
            _ => (&[0, 1, 2], 0..8),
        };
        for &register in general {
            state.set_register(Family::General(register), Expr::UNKNOWN);
        }
        for register in vectors {
            state.set_register(Family::Vector(register), Expr::UNKNOWN);
        }
        if self.machine == Machine::X64
            && let Node::Stack(top) = self.solver.exprs.node(state.stack_pointer())
        {
            state.erase(Place::Stack(top), 32);
        }
        if let Node::Stack(top) = self.solver.exprs.node(state.stack_pointer()) {
            state.drop_below(top);
        }
    }

    /// `WdfRequestGetParameters` filled the structure at `address`.
    fn define_parameters(&mut self, address: Expr, state: &mut State) {
        let layout = self.layout;
        let Node::Stack(at) = self.solver.exprs.node(address) else {
            return state.disturb(&self.solver.exprs);
        };
        state.fill(at, at.saturating_add(layout.params_size));
        let code = self.solver.exprs.var(Variable::CODE);
        let input = self.solver.exprs.var(Variable::INPUT_LENGTH);
        let output = self.solver.exprs.var(Variable::OUTPUT_LENGTH);
        let type3 = self.solver.exprs.symbol(Symbol::Type3InputBuffer);
        let kind = self.solver.exprs.constant(u64::from(self.major));
        let pointer = layout.pointer;
        state.store(Place::Stack(at + 4), 4, kind);
        state.store(Place::Stack(at + layout.params_output), pointer, output);
        state.store(Place::Stack(at + layout.params_input), pointer, input);
        state.store(Place::Stack(at + layout.params_code), 4, code);
        state.store(Place::Stack(at + layout.params_type3), pointer, type3);
    }

    /// x86: what the callee took off the stack.
    fn pop_arguments(&mut self, callee: Callee, state: &mut State) {
        let bytes = match callee {
            Callee::Local(entry) => self.pops(entry),
            Callee::Import(slot) => self.import_name(slot).and_then(names::popped),
            Callee::Framework(index) => framework::arguments(index).map(|count| count * 4),
            Callee::Indirect(_) | Callee::GuardCheck => None,
        };
        let top = match bytes {
            Some(bytes) => {
                let amount = self.solver.exprs.constant(u64::from(bytes));
                self.solver.exprs.binary(Op::Add, 32, state.stack_pointer(), amount)
            }
            None => Expr::UNKNOWN,
        };
        state.set_register(Family::StackPointer, top);
    }

    /// The `n` of the first `ret n` that decoding from `entry` meets.
    fn pops(&mut self, entry: u64) -> Option<u32> {
        let mut recorder = Recorder::new(self.machine);
        let mut seen = std::collections::HashSet::new();
        let mut queue = vec![entry];
        while let Some(mut at) = queue.pop() {
            while seen.len() < 1024 && seen.insert(at) {
                let instruction = decode_at(self.image, &mut recorder, at);
                match instruction.transfer {
                    Transfer::Return => {
                        let bytes = instruction.operands.first().and_then(Operand::immediate);
                        return u32::try_from(bytes.unwrap_or(0)).ok();
                    }
                    Transfer::Branch(Some(target)) => queue.push(target),
                    Transfer::Jump(Some(target)) => {
                        at = target;
                        continue;
                    }
                    Transfer::Fallthrough | Transfer::Call(_) => {}
                    _ => break,
                }
                at = instruction.end();
            }
        }
        None
    }

    /// Runs a callee that is a short straight line; false (and `state` untouched) when it is not.
    fn run_in_place(&mut self, entry: u64, state: &mut State) -> bool {
        let mut inner = state.clone();
        let back = self.enter_callee(&mut inner);
        let mut recorder = Recorder::new(self.machine);
        let mut at = entry;
        for _ in 0..TINY {
            let instruction = decode_at(self.image, &mut recorder, at);
            match instruction.transfer {
                Transfer::Fallthrough if instruction.privilege.is_none() => {}
                Transfer::Call(_) => {
                    let callee = self.callee(&instruction, &mut inner);
                    if !self.is_plain(callee) {
                        return false;
                    }
                    self.return_from(&instruction, callee, &mut inner);
                    at = instruction.end();
                    continue;
                }
                Transfer::Return => return self.finish_in_place(&instruction, inner, back, state),
                _ => return false,
            }
            if instruction.repeats || instruction.operation == Operation::Other && instruction.writes_memory {
                return false;
            }
            self.step(&instruction, &mut inner);
            at = instruction.end();
        }
        false
    }

    /// Runs a small callee that branches but calls nothing; false (and `state` untouched) when it is
    /// not one. What its returns agree on is kept.
    fn run_small(&mut self, entry: u64, state: &mut State) -> bool {
        let Some(listing) = self.small(entry) else { return false };
        let mut inner = state.clone();
        let back = self.enter_callee(&mut inner);
        let flow = crate::flow::Flow::solve(self, (*listing).clone(), &inner, 8, &target::Halt::unbounded());
        if !flow.settled {
            return false;
        }
        let mut returns = Returns { states: Vec::new(), left: false };
        flow.visit(self, &mut returns);
        let mut states = returns.states.into_iter();
        let Some((ret, mut all)) = states.next().filter(|_| !returns.left) else { return false };
        for (_, other) in states {
            all.join(&other, &mut self.solver);
        }
        // The callee's own comparisons are no claims about the caller's branches.
        all.compare(entry, Comparison::Nothing, &mut self.solver);
        self.finish_in_place(&ret, all, back, state)
    }

    /// The listing of a callee small enough for [`Self::run_small`].
    fn small(&mut self, entry: u64) -> Option<std::rc::Rc<code_flow::Listing>> {
        if let Some(known) = self.small_callees.get(&entry) {
            return known.clone();
        }
        let listing = code_flow::listing(self.image, entry, &code_flow::NoTables, &target::Halt::unbounded());
        let simple = listing.instructions.len() <= SMALL
            && listing.unresolved.is_empty()
            && listing.blind.is_empty()
            && listing.external_edges.is_empty()
            && listing.instructions.values().all(|i| {
                let opaque_write = i.operation == Operation::Other && i.writes_memory;
                let calls = matches!(i.transfer, Transfer::Call(_));
                !(calls || i.repeats || i.privilege.is_some() || opaque_write)
            });
        let kept = simple.then(|| std::rc::Rc::new(listing));
        if self.small_callees.len() < 4096 {
            self.small_callees.insert(entry, kept.clone());
        }
        kept
    }

    /// Whether a callee may be called by a function that is run in place.
    fn is_plain(&self, callee: Callee) -> bool {
        match callee {
            Callee::Import(slot) => self.import_name(slot).is_some_and(names::is_benign),
            Callee::Framework(index) => {
                (framework::REQUEST_COMPLETE..=framework::REQUEST_COMPLETE_WITH_INFORMATION).contains(&index)
            }
            Callee::GuardCheck => true,
            Callee::Local(_) | Callee::Indirect(_) => false,
        }
    }

    /// Takes over a callee's state if it returned to where it was called from.
    fn finish_in_place(&mut self, ret: &Decoded, mut inner: State, back: Expr, state: &mut State) -> bool {
        if self.machine == Machine::Arm64 {
            if inner.register(Family::General(30)) != back || inner.stack_pointer() != state.stack_pointer() {
                return false;
            }
        } else {
            let returned = self.pop(&mut inner);
            if returned != back {
                return false;
            }
            let bytes = ret.operands.first().and_then(Operand::immediate).unwrap_or(0);
            let amount = self.solver.exprs.constant(bytes);
            let pointer = self.pointer();
            let top = self.solver.exprs.binary(Op::Add, pointer, inner.stack_pointer(), amount);
            inner.set_register(Family::StackPointer, top);
            let plain = self.machine == Machine::X86 || top == state.stack_pointer();
            if !plain {
                return false;
            }
        }
        if let Node::Stack(top) = self.solver.exprs.node(inner.stack_pointer()) {
            inner.drop_below(top);
        }
        inner.leave_frame();
        *state = inner;
        true
    }

    /// Makes `state` that of a callee's first instruction; the return address it was given.
    pub(crate) fn enter_callee(&mut self, state: &mut State) -> Expr {
        let back = self.solver.exprs.symbol(Symbol::ReturnAddress);
        if self.machine == Machine::Arm64 {
            state.set_register(Family::General(30), back);
        } else {
            self.push(back, state);
        }
        if let Node::Stack(top) = self.solver.exprs.node(state.stack_pointer()) {
            state.enter_frame(top);
        }
        back
    }
}
