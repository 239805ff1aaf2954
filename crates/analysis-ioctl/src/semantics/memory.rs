//! Loads and stores: the fields of the request, the stack, constants.

use code::record::{BaseUpdate, Decoded, Family, MemoryReference, Operand};

use crate::expr::{Expr, Node, Op, Symbol, Variable};
use crate::pass::Pass;
use crate::state::{Place, State};

impl Pass<'_> {
    /// The effective address.
    pub(crate) fn address_of(&mut self, memory: &MemoryReference, state: &State) -> Expr {
        if memory.segment.is_some() {
            return Expr::UNKNOWN;
        }
        if let Some(address) = memory.address {
            return self.solver.exprs.constant(address);
        }
        let bits = self.pointer();
        let mut sum = match memory.base {
            Some(base) => self.read_register(base, state),
            None => self.solver.exprs.constant(0),
        };
        if let Some(index) = memory.index {
            let mut value = self.read_register(index, state);
            if let Some(modifier) = memory.index_extend {
                value = self.modified(value, modifier, bits);
            }
            let scale = self.solver.exprs.constant(u64::from(memory.scale.max(1)));
            let scaled = self.solver.exprs.binary(Op::Mul, bits, value, scale);
            sum = self.solver.exprs.binary(Op::Add, bits, sum, scaled);
        }
        if memory.update != BaseUpdate::After {
            let displacement = self.solver.exprs.constant(memory.displacement as u64);
            sum = self.solver.exprs.binary(Op::Add, bits, sum, displacement);
        }
        sum
    }

    /// Pre- and post-indexed forms change their base.
    pub(super) fn update_base(&mut self, memory: &MemoryReference, state: &mut State) {
        let (true, Some(base)) = (memory.update != BaseUpdate::None, memory.base) else { return };
        let old = self.read_register(base, state);
        let amount = match memory.index {
            Some(index) => self.read_register(index, state),
            None => self.solver.exprs.constant(memory.displacement as u64),
        };
        let value = self.solver.exprs.binary(Op::Add, self.pointer(), old, amount);
        state.write(base, value, &mut self.solver.exprs);
    }

    /// The value of a memory operand.
    pub(super) fn load_operand(
        &mut self,
        instruction: &Decoded,
        memory: &MemoryReference,
        state: &mut State,
    ) -> Expr {
        let address = self.address_of(memory, state);
        let Some(size) = u8::try_from(memory.size).ok().filter(|&s| s > 0) else {
            return self.solver.exprs.give_up(&[address]);
        };
        if let Some(variable) = self.looks_like_code(instruction, memory, size, state) {
            state.forget(variable, &self.solver);
            return self.solver.exprs.var(variable);
        }
        let first = self.load_at(address, size.min(8), state);
        if size > 8 {
            let eight = self.solver.exprs.constant(8);
            let next = self.solver.exprs.binary(Op::Add, self.pointer(), address, eight);
            let second = self.load_at(next, 8, state);
            return self.solver.exprs.give_up(&[first, second]);
        }
        first
    }

    /// A four-byte load at the control code's offset from a register nobody knows.
    fn looks_like_code(
        &mut self,
        instruction: &Decoded,
        memory: &MemoryReference,
        size: u8,
        state: &State,
    ) -> Option<Variable> {
        if size != 4 || memory.displacement != self.layout.control_code || memory.index.is_some() {
            return None;
        }
        // A read-modify-write is no read of a request's code.
        if matches!(instruction.destination(), Some(Operand::Memory(_))) {
            return None;
        }
        let base = memory.base?;
        if memory.segment.is_some() || self.read_register(base, state) != Expr::UNKNOWN {
            return None;
        }
        self.candidate(instruction.address)
    }

    /// `size` bytes (at most 8) at `address`, zero-extended.
    pub(crate) fn load_at(&mut self, address: Expr, size: u8, state: &State) -> Expr {
        match self.solver.exprs.node(address) {
            Node::Const(at) => return self.load_constant(at, size, state),
            Node::Stack(offset) => return state.load(Place::Stack(offset), size, &mut self.solver.exprs),
            Node::Unknown | Node::Lost | Node::Partial { .. } => {
                return self.solver.exprs.give_up(&[address]);
            }
            _ => {}
        }
        if self.tainting && self.is_users(address) {
            return self.solver.exprs.user(address, size);
        }
        let (base, offset) = self.solver.exprs.split(address);
        match self.solver.exprs.node(base) {
            Node::Symbol(symbol) => self.load_field(symbol, offset, size, state),
            Node::Stack(_) => Expr::UNKNOWN,
            _ if self.solver.exprs.variable(address).is_some() => self.solver.exprs.load(address, size),
            _ => Expr::UNKNOWN,
        }
    }

    /// Whether `address` is in memory whose content the caller controls: one of the request's buffers,
    /// or behind a pointer that came from one. An index into the image's own tables is not.
    pub(crate) fn is_users(&self, address: Expr) -> bool {
        let exprs = &self.solver.exprs;
        if let Some(base) = self.buffer_of(address) {
            return base != Symbol::Irp;
        }
        let (_, offset) = exprs.split(address);
        exprs.from_user(address) && !self.image.contains(offset as u64)
    }

    /// The request's buffer that `address` points into.
    pub(crate) fn buffer_of(&self, address: Expr) -> Option<Symbol> {
        let exprs = &self.solver.exprs;
        let mut stack = vec![address];
        for _ in 0..64 {
            match exprs.node(stack.pop()?) {
                Node::Symbol(
                    symbol @ (Symbol::SystemBuffer
                    | Symbol::Type3InputBuffer
                    | Symbol::UserBuffer
                    | Symbol::MdlBuffer),
                ) => return Some(symbol),
                Node::Binary { op: Op::Add, a, b, .. } => stack.extend([a, b]),
                _ => {}
            }
        }
        None
    }

    fn load_constant(&mut self, at: u64, size: u8, state: &State) -> Expr {
        let pointer = size == self.layout.pointer;
        if let Some(framework) = self.framework {
            let offset = at.checked_sub(framework.table);
            let within = offset.filter(|o| *o < u64::from(framework.count) * u64::from(size));
            match (framework.pointer, within) {
                (true, _) if at == framework.table && pointer => {
                    return self.solver.exprs.symbol(Symbol::FrameworkTable);
                }
                (false, Some(offset)) if pointer && offset % u64::from(size) == 0 => {
                    let index = u16::try_from(offset / u64::from(size)).unwrap_or(u16::MAX);
                    return self.solver.exprs.symbol(Symbol::FrameworkFunction(index));
                }
                _ => {}
            }
        }
        if pointer && self.image.imports().at_slot(at).is_some() {
            return self.solver.exprs.symbol(Symbol::Import(at));
        }
        if let Some(value) = (self.solver.constants)(at, size) {
            return self.solver.exprs.constant(value);
        }
        match i64::try_from(at) {
            Ok(at) => state.load(Place::Global(at), size, &mut self.solver.exprs),
            Err(_) => state.load(Place::Global(at as i64), size, &mut self.solver.exprs),
        }
    }

    fn load_field(&mut self, symbol: Symbol, offset: i64, size: u8, state: &State) -> Expr {
        match symbol {
            Symbol::Irp if size == self.layout.pointer => match self.layout.irp_pointer(offset) {
                Some(Symbol::StackLocation) if state.location_changed => Expr::UNKNOWN,
                Some(field) => self.solver.exprs.symbol(field),
                None => Expr::UNKNOWN,
            },
            Symbol::StackLocation if state.location_changed => Expr::UNKNOWN,
            Symbol::StackLocation => self.load_parameter(offset, size),
            Symbol::FrameworkTable if size == self.layout.pointer && offset >= 0 => {
                let index = u16::try_from(offset / i64::from(size)).unwrap_or(u16::MAX);
                if offset % i64::from(size) == 0 {
                    self.solver.exprs.symbol(Symbol::FrameworkFunction(index))
                } else {
                    Expr::UNKNOWN
                }
            }
            _ => Expr::UNKNOWN,
        }
    }

    /// A read of the stack location: exactly a field, part of one, or nothing known.
    fn load_parameter(&mut self, offset: i64, size: u8) -> Expr {
        let layout = self.layout;
        if offset == 0 && size == 1 {
            return self.solver.exprs.constant(u64::from(self.major));
        }
        if offset == layout.type3_input && size == layout.pointer {
            return self.solver.exprs.symbol(Symbol::Type3InputBuffer);
        }
        let fields = [
            (layout.control_code, Variable::CODE),
            (layout.input_length, Variable::INPUT_LENGTH),
            (layout.output_length, Variable::OUTPUT_LENGTH),
        ];
        let end = offset.saturating_add(i64::from(size));
        for (field, variable) in fields {
            if offset >= field && end <= field + 4 {
                let whole = self.solver.exprs.var(variable);
                return self.solver.exprs.part(whole, ((offset - field) * 8) as u8, size * 8);
            }
        }
        // A wider read that takes in the code.
        let (from, to) = (layout.control_code, layout.control_code + 4);
        if offset < to && end > from { Expr::LOST } else { Expr::UNKNOWN }
    }

    pub(super) fn store_operand(&mut self, memory: &MemoryReference, value: Expr, state: &mut State) {
        // fs:[0] is the exception list: a registration is no pointer to its neighbours.
        if memory.segment.is_some() {
            return;
        }
        let address = self.address_of(memory, state);
        match u8::try_from(memory.size).ok().filter(|&s| s > 0) {
            Some(size) if size <= 8 => self.store_at(address, size, value, state),
            _ => self.store_wide(address, i64::from(memory.size), value, state),
        }
        self.update_base(memory, state);
    }

    fn store_wide(&mut self, address: Expr, size: i64, value: Expr, state: &mut State) {
        let size = if size == 0 { 64 } else { size };
        if let Node::Stack(offset) = self.solver.exprs.node(address) {
            // Zeros stay zeros; of other vectors only where the code went is kept.
            let value = match self.solver.exprs.constant_value(value) {
                Some(0) => value,
                _ => self.solver.exprs.give_up(&[value]),
            };
            state.erase(Place::Stack(offset), size);
            for at in (0..size - 7).step_by(8) {
                state.store(Place::Stack(offset + at), 8, value);
            }
            return;
        }
        self.store_at(address, 8, Expr::UNKNOWN, state);
    }

    pub(crate) fn store_at(&mut self, address: Expr, size: u8, value: Expr, state: &mut State) {
        if let Node::Stack(offset) = self.solver.exprs.node(value)
            && !self.is_frame(value, state)
        {
            state.escape(offset);
        }
        let value_kept = self.solver.exprs.truncate(value, size.saturating_mul(8));
        match self.solver.exprs.node(address) {
            Node::Stack(offset) => return state.store(Place::Stack(offset), size, value_kept),
            Node::Const(at) => return state.store(Place::Global(at as i64), size, value_kept),
            Node::Unknown | Node::Lost | Node::Partial { .. } => return state.disturb(&self.solver.exprs),
            _ => {}
        }
        let (base, offset) = self.solver.exprs.split(address);
        match self.solver.exprs.node(base) {
            Node::Symbol(Symbol::Irp) => self.store_irp(offset, size, value_kept, state),
            Node::Symbol(Symbol::StackLocation) => {
                let end = offset.saturating_add(i64::from(size));
                if offset < self.layout.type3_input + i64::from(self.layout.pointer)
                    && end > self.layout.output_length
                {
                    state.location_changed = true;
                }
            }
            Node::Symbol(Symbol::DriverObject) => {
                if let Some(value) = self.solver.exprs.constant_value(value_kept)
                    && size == self.layout.pointer
                    && self.installed.len() < 256
                    && !self.installed.contains(&(offset, value))
                {
                    self.installed.push((offset, value));
                }
            }
            Node::Symbol(_) => {}
            _ => state.disturb(&self.solver.exprs),
        }
    }

    /// The stack or frame pointer saved: it names a frame, not an object in it.
    fn is_frame(&self, value: Expr, state: &State) -> bool {
        let frame = Family::General(if self.arm() { 29 } else { 5 });
        value == state.stack_pointer() || value == state.register(frame)
    }

    fn store_irp(&mut self, offset: i64, size: u8, value: Expr, state: &mut State) {
        let end = offset.saturating_add(i64::from(size));
        let overlaps = |field: i64, bytes: i64| offset < field + bytes && end > field;
        if overlaps(self.layout.irp_status, 4) {
            let exact = offset == self.layout.irp_status && size >= 4;
            let status = if exact { self.solver.exprs.truncate(value, 32) } else { Expr::UNKNOWN };
            state.status = Some(status);
        }
        if overlaps(self.layout.irp_stack_location, i64::from(self.layout.pointer)) {
            state.location_changed = true;
        }
    }

    pub(crate) fn push_value(&mut self, value: Expr, state: &mut State) {
        self.push(value, state);
    }

    pub(super) fn push(&mut self, value: Expr, state: &mut State) {
        let pointer = self.pointer();
        let size = self.solver.exprs.constant(u64::from(self.layout.pointer));
        let top = self.solver.exprs.binary(Op::Sub, pointer, state.stack_pointer(), size);
        state.set_register(Family::StackPointer, top);
        if let Node::Stack(_) = self.solver.exprs.node(top) {
            self.store_at(top, self.layout.pointer, value, state);
        }
    }

    pub(super) fn pop(&mut self, state: &mut State) -> Expr {
        let top = state.stack_pointer();
        let value = self.load_at(top, self.layout.pointer, state);
        let size = self.solver.exprs.constant(u64::from(self.layout.pointer));
        let next = self.solver.exprs.binary(Op::Add, self.pointer(), top, size);
        state.set_register(Family::StackPointer, next);
        value
    }
}
