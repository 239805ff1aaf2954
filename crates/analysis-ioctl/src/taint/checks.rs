//! What an instruction, a call or a branch means for the findings.

use code::Decoded;
use code::record::{Condition, Family, Mnemonic, Operand, Privilege};

use super::sinks::{Sink, is_sensitive, sink};
use super::walk::{Watch, seh_covered};
use super::{Class, Finding, MAX_DEPTH};
use crate::expr::{Expr, Node, Op, Symbol, Variable};
use crate::pass::Pass;
use crate::semantics::{Callee, argument};
use crate::solve::{Comparison, Kind, nzcv_holds};
use crate::state::State;

/// `IoStatus.Information`, behind the status, which is padded to a pointer.
fn information_offset(pass: &Pass<'_>) -> i64 {
    pass.layout.irp_status + i64::from(pass.layout.pointer)
}

/// The caller's numbers in a value: buffer contents and lengths.
fn leaves(pass: &Pass<'_>, expr: Expr) -> Vec<Expr> {
    let exprs = &pass.solver.exprs;
    let mut out = Vec::new();
    let mut stack = vec![expr];
    while let Some(at) = stack.pop() {
        match exprs.node(at) {
            Node::User { .. } => out.push(at),
            Node::Variable(variable) if variable.is_length() => out.push(at),
            Node::Binary { a, b, .. } | Node::Select { a, b, .. } => stack.extend([a, b]),
            Node::Unary { a, .. }
            | Node::SignExtend { a, .. }
            | Node::Load { a, .. }
            | Node::Partial { a, .. } => {
                stack.push(a);
            }
            _ => {}
        }
    }
    out
}

fn is_arithmetic(pass: &Pass<'_>, expr: Expr) -> bool {
    let exprs = &pass.solver.exprs;
    let mut stack = vec![expr];
    while let Some(at) = stack.pop() {
        match exprs.node(at) {
            Node::Binary { op: Op::Add | Op::Mul | Op::ShiftLeft, .. } => return true,
            Node::Binary { a, b, .. } | Node::Select { a, b, .. } => stack.extend([a, b]),
            Node::Unary { a, .. } | Node::SignExtend { a, .. } => stack.push(a),
            _ => {}
        }
    }
    false
}

fn source_name(pass: &Pass<'_>, expr: Expr) -> &'static str {
    let of = |symbol| match symbol {
        Symbol::Type3InputBuffer => "type3_input_buffer",
        Symbol::UserBuffer => "user_buffer",
        Symbol::MdlBuffer => "mdl_buffer",
        _ => "system_buffer",
    };
    if let Some(symbol) = pass.buffer_of(expr) {
        return of(symbol);
    }
    for leaf in leaves(pass, expr) {
        match pass.solver.exprs.node(leaf) {
            Node::Variable(Variable::INPUT_LENGTH) => return "input_length",
            Node::Variable(_) => return "output_length",
            Node::User { a, .. } => return pass.buffer_of(a).map_or("user_memory", of),
            _ => {}
        }
    }
    "user_memory"
}

impl Watch<'_, '_, '_, '_> {
    /// Whether the caller chooses `expr` without an upper bound on this path.
    fn unbounded(&mut self, expr: Expr, state: &State) -> bool {
        let pass = &mut *self.walker.pass;
        for leaf in leaves(pass, expr) {
            if self.facts.bounded.contains(&leaf) {
                continue;
            }
            let Node::Variable(variable) = pass.solver.exprs.node(leaf) else { return true };
            let values = state.values(variable, &mut pass.solver);
            if pass.solver.sets.max(values) == Some(u32::MAX) {
                return true;
            }
        }
        false
    }

    fn found(&mut self, class: Class, at: u64, value: Expr, sink: &str) {
        let pass = &*self.walker.pass;
        let accesses = matches!(
            class,
            Class::NeitherPointerUnprobed
                | Class::UserPointerOutsideSeh
                | Class::WriteWhatWhere
                | Class::HeaderLengthConfusion
                | Class::DoubleFetch
        );
        let finding = Finding {
            class,
            at,
            function: self.function,
            codes: Default::default(),
            source: source_name(pass, value),
            sink: sink.to_owned(),
            guards: self.facts.guards.clone(),
            seh_covered: seh_covered(pass, at),
            base: accesses.then(|| pass.solver.exprs.split(value).0),
            overflowable: is_arithmetic(pass, value),
        };
        self.walker.report(finding);
    }

    pub(super) fn instruction(&mut self, instruction: &Decoded, state: &State) {
        if let Some(kind) = instruction.privilege {
            self.privileged(instruction, kind, state);
        }
        for operand in &instruction.operands {
            let Operand::Memory(memory) = operand else { continue };
            if memory.size == 0 {
                continue;
            }
            let address = self.walker.pass.address_of(memory, state);
            let written = instruction.destination() == Some(operand) && instruction.writes_memory;
            self.access(instruction, address, i64::from(memory.size), written, state);
        }
        if instruction.repeats {
            let count = state.register(Family::General(1));
            if instruction.reads_memory && instruction.writes_memory && self.unbounded(count, state) {
                self.found(Class::CopyLengthTainted, instruction.address, count, "rep movs");
            }
            self.note_fill(count);
        }
    }

    /// A load or store through something of the caller's.
    fn access(&mut self, instruction: &Decoded, address: Expr, size: i64, written: bool, state: &State) {
        let pass = &mut *self.walker.pass;
        let (base, offset) = pass.solver.exprs.split(address);
        match pass.buffer_of(address) {
            Some(symbol @ (Symbol::Type3InputBuffer | Symbol::UserBuffer)) => {
                self.user_pointer(instruction, address, symbol, written);
            }
            Some(Symbol::SystemBuffer)
                if !written && pass.solver.exprs.node(base) == Node::Symbol(Symbol::SystemBuffer) =>
            {
                let lengths = state.values(Variable::INPUT_LENGTH, &mut pass.solver);
                let least = pass.solver.sets.min(lengths).map_or(0, i64::from);
                let neither = self.walker.case.representative & 3 == 3;
                if offset >= 0 && offset + size > least && !neither {
                    self.found(Class::HeaderLengthConfusion, instruction.address, address, "load");
                }
            }
            Some(_) => {}
            None if pass.solver.exprs.from_user(address) => {
                self.user_address(instruction, address, written, state)
            }
            None => {}
        }
        if written {
            self.stored(instruction, address, state);
        }
    }

    /// An access through Type3InputBuffer or UserBuffer.
    fn user_pointer(&mut self, instruction: &Decoded, address: Expr, symbol: Symbol, written: bool) {
        let pointer = self.walker.pass.solver.exprs.symbol(symbol);
        let probed = self.facts.probed.contains(&pointer);
        let neither = self.walker.case.representative & 3 == 3;
        let how = if written { "store" } else { "load" };
        if neither && !probed {
            self.found(Class::NeitherPointerUnprobed, instruction.address, address, how);
        }
        if seh_covered(self.walker.pass, instruction.address) == Some(false) {
            self.found(Class::UserPointerOutsideSeh, instruction.address, address, how);
        }
        if written {
            return;
        }
        let again = self
            .facts
            .fetched
            .iter()
            .any(|(known, at, compared)| *known == address && *at != instruction.address && *compared);
        if again {
            self.found(Class::DoubleFetch, instruction.address, address, how);
        }
        if !self.facts.fetched.iter().any(|(known, at, _)| *known == address && *at == instruction.address) {
            self.facts.fetched.push((address, instruction.address, false));
        }
    }

    /// An access at an address computed from the caller's numbers.
    fn user_address(&mut self, instruction: &Decoded, address: Expr, written: bool, state: &State) {
        if !self.unbounded(address, state) {
            return;
        }
        let how = if written { "store" } else { "load" };
        if written {
            let value = self.stored_value(instruction, state);
            if leaves(self.walker.pass, value).is_empty() {
                return;
            }
            return self.found(Class::WriteWhatWhere, instruction.address, address, how);
        }
        let pointer = !self.walker.pass.image.contains(self.walker.pass.solver.exprs.split(address).1 as u64);
        let neither = self.walker.case.representative & 3 == 3;
        let probed = leaves(self.walker.pass, address).iter().all(|leaf| self.facts.probed.contains(leaf));
        if pointer && neither && !probed {
            self.found(Class::NeitherPointerUnprobed, instruction.address, address, how);
        }
    }

    fn stored_value(&mut self, instruction: &Decoded, state: &State) -> Expr {
        match instruction.sources().last() {
            Some(Operand::Register(register)) => self.walker.pass.read_register(*register, state),
            _ => Expr::UNKNOWN,
        }
    }

    /// The output length said to be written.
    fn stored(&mut self, instruction: &Decoded, address: Expr, state: &State) {
        let pass = &*self.walker.pass;
        let (base, offset) = pass.solver.exprs.split(address);
        let information = offset == information_offset(pass);
        if pass.solver.exprs.node(base) != Node::Symbol(Symbol::Irp) || !information {
            return;
        }
        let value = self.stored_value(instruction, state);
        if self.walker.pass.solver.exprs.variable(value) == Some(Variable::OUTPUT_LENGTH)
            && !self.facts.filled_output
        {
            self.found(Class::OutputOverclaim, instruction.address, value, "IoStatus.Information");
        }
    }

    fn note_fill(&mut self, length: Expr) {
        let variable = self.walker.pass.solver.exprs.variable(length);
        self.facts.filled_output |= variable == Some(Variable::OUTPUT_LENGTH);
    }

    fn privileged(&mut self, instruction: &Decoded, kind: Privilege, state: &State) {
        let register = |number: u8| state.register(Family::General(number));
        let mnemonic = instruction.mnemonic.to_string();
        let class = match kind {
            Privilege::ModelSpecificRegister => Class::MsrTainted,
            Privilege::PortIo => Class::PortTainted,
            Privilege::ControlRegister => Class::CrTainted,
            _ => return,
        };
        let values: Vec<Expr> = match class {
            Class::MsrTainted if mnemonic == "wrmsr" => vec![register(1), register(0), register(2)],
            Class::MsrTainted => vec![register(1)],
            Class::PortTainted if mnemonic.starts_with("out") => vec![register(2), register(0)],
            Class::PortTainted => vec![register(2)],
            _ => instruction
                .operands
                .iter()
                .skip(1)
                .filter_map(Operand::register)
                .map(|r| state.register(r.family))
                .collect(),
        };
        let is_x86 = matches!(instruction.mnemonic, Mnemonic::X86(_));
        for value in values {
            if is_x86 && self.unbounded(value, state) {
                self.found(class, instruction.address, value, &mnemonic);
                break;
            }
        }
        self.sensitive(instruction.address, &mnemonic);
    }

    fn sensitive(&mut self, at: u64, what: &str) {
        let any = self.walker.case.representative >> 14 & 3 == 0;
        if any && !self.facts.checked {
            self.found(Class::AnyAccessSensitive, at, Expr::UNKNOWN, what);
        }
    }

    pub(super) fn call(&mut self, call: &Decoded, callee: Callee, state: &State, is_jump: bool) {
        match callee {
            Callee::Import(slot) => {
                let Some(name) = self.walker.pass.import_name(slot).map(str::to_owned) else { return };
                self.import(call, &name, state);
            }
            Callee::Indirect(target) => {
                if !leaves(self.walker.pass, target).is_empty() && self.unbounded(target, state) {
                    self.found(Class::TaintedCallTarget, call.address, target, "call");
                }
            }
            Callee::Local(entry) => self.enter(call, entry, state, is_jump),
            Callee::Framework(index) => {
                if matches!(index, 278 | 279) {
                    self.facts.guards.push((call.address, "probe"));
                    for symbol in [Symbol::Type3InputBuffer, Symbol::UserBuffer] {
                        let pointer = self.walker.pass.solver.exprs.symbol(symbol);
                        self.facts.probed.push(pointer);
                    }
                }
            }
            Callee::GuardCheck => {}
        }
    }

    fn enter(&mut self, call: &Decoded, entry: u64, state: &State, is_jump: bool) {
        if self.depth >= MAX_DEPTH {
            self.walker.found.skipped.insert(entry, "too deep");
            return;
        }
        let mut inner = state.clone();
        inner.compare(call.address, Comparison::Nothing, &mut self.walker.pass.solver);
        if !is_jump {
            self.walker.pass.enter_callee(&mut inner);
        }
        let facts = self.facts.clone();
        let before = self.walker.probes;
        self.walker.function(entry, inner, facts, self.depth + 1, false);
        if self.walker.probes == before {
            return;
        }
        // Which paths the callee probed on is not carried back; that it probes is.
        for symbol in [Symbol::Type3InputBuffer, Symbol::UserBuffer] {
            let pointer = self.walker.pass.solver.exprs.symbol(symbol);
            let given = (0..4).any(|i| argument(self.walker.pass, i, state) == pointer);
            if given && !self.facts.probed.contains(&pointer) {
                self.facts.guards.push((call.address, "callee"));
                self.facts.probed.push(pointer);
            }
        }
    }

    fn import(&mut self, call: &Decoded, name: &str, state: &State) {
        let at = call.address;
        if is_sensitive(name) {
            self.sensitive(at, name);
        }
        let Some(sink) = sink(name) else { return };
        let arg = |watch: &mut Self, index| argument(watch.walker.pass, index, state);
        match sink {
            Sink::Copy(index) => {
                let length = arg(self, index);
                self.note_fill(length);
                if !leaves(self.walker.pass, length).is_empty() && self.unbounded(length, state) {
                    self.found(Class::CopyLengthTainted, at, length, name);
                }
            }
            Sink::Fill(index) => {
                let length = arg(self, index);
                self.note_fill(length);
            }
            Sink::Allocate(index) => {
                let size = arg(self, index);
                if is_arithmetic(self.walker.pass, size) && self.unbounded(size, state) {
                    self.found(Class::AllocSizeTainted, at, size, name);
                }
            }
            Sink::Map => {
                for index in 0..3 {
                    let value = arg(self, index);
                    if self.unbounded(value, state) {
                        self.found(Class::PhysicalMapTainted, at, value, name);
                        break;
                    }
                }
            }
            Sink::Process => {
                let value = arg(self, 0);
                if self.unbounded(value, state) && !self.facts.checked {
                    self.found(Class::ProcessTargetTainted, at, value, name);
                }
            }
            Sink::Handle { mode } => {
                let (value, mode) = (arg(self, 0), arg(self, mode));
                let checks =
                    self.walker.pass.solver.exprs.constant_value(mode).is_some_and(|m| m & 0xff == 1);
                if self.unbounded(value, state) && !self.facts.checked && !checks {
                    self.found(Class::ProcessTargetTainted, at, value, name);
                }
            }
            Sink::Probe(index) => {
                let pointer = arg(self, index);
                let (base, _) = self.walker.pass.solver.exprs.split(pointer);
                self.facts.probed.extend([pointer, base]);
                if let Some(symbol) = self.walker.pass.buffer_of(pointer) {
                    let whole = self.walker.pass.solver.exprs.symbol(symbol);
                    self.facts.probed.push(whole);
                }
                let found = leaves(self.walker.pass, pointer);
                self.facts.probed.extend(found);
                self.facts.guards.push((at, "probe"));
                self.walker.probes += 1;
            }
            Sink::AccessCheck => {
                self.facts.checked = true;
                self.facts.guards.push((at, "access_check"));
            }
        }
    }

    /// Which of the caller's numbers get an upper bound on each edge.
    pub(super) fn branch(&mut self, branch: &Decoded, comparisons: &[Comparison], landings: (u64, u64)) {
        let Some(condition) = branch.condition else { return };
        for comparison in comparisons {
            self.note_compared(comparison);
            for (taken, landing) in [(true, landings.0), (false, landings.1)] {
                let numbers = self.bounds(comparison, condition, taken);
                if numbers.is_empty() {
                    continue;
                }
                self.edges.entry(landing).or_default().extend(numbers);
                if self.facts.guards.len() < 32 && !self.facts.guards.contains(&(branch.address, "bound")) {
                    self.facts.guards.push((branch.address, "bound"));
                }
            }
        }
    }

    /// User memory that was read and is compared now.
    fn note_compared(&mut self, comparison: &Comparison) {
        let Comparison::Flags { a, b, .. } = comparison else { return };
        let pass = &*self.walker.pass;
        for leaf in leaves(pass, *a).into_iter().chain(leaves(pass, *b)) {
            let Node::User { a: from, .. } = pass.solver.exprs.node(leaf) else { continue };
            for (address, _, compared) in &mut self.facts.fetched {
                *compared |= *address == from;
            }
        }
    }

    /// The numbers with an upper bound on the edge where `condition` holds (`taken`) or does not.
    fn bounds(&mut self, comparison: &Comparison, condition: Condition, taken: bool) -> Vec<Expr> {
        let (a, b) = match comparison {
            Comparison::Flags { kind: Kind::Subtract, a, b, .. } => (*a, *b),
            Comparison::Conditional(parts) if nzcv_holds(condition, parts.otherwise) != taken => {
                // This edge is only reached when the first condition held.
                let mut numbers = self.bounds(&parts.before, parts.condition, true);
                numbers.extend(self.bounds(&parts.then, condition, taken));
                return numbers;
            }
            _ => return Vec::new(),
        };
        let mut out = Vec::new();
        for (small, large, swapped) in [(a, b, false), (b, a, true)] {
            let numbers = leaves(self.walker.pass, small);
            let others = leaves(self.walker.pass, large);
            let apart = others.iter().all(|leaf| !numbers.contains(leaf));
            if apart && bounded_edge(condition, swapped) == Some(taken) {
                out.extend(numbers);
            }
        }
        out
    }
}

/// The edge on which the left side of a comparison (the right one when `swapped`) is at most the other.
fn bounded_edge(condition: Condition, swapped: bool) -> Option<bool> {
    use Condition as C;
    Some(match condition {
        C::Equal => true,
        C::NotEqual => false,
        C::Below | C::BelowOrEqual | C::Less | C::LessOrEqual => !swapped,
        C::Above | C::AboveOrEqual | C::Greater | C::GreaterOrEqual => swapped,
        _ => return None,
    })
}
