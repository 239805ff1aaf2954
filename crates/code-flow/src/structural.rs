//! Jump tables from the code right before the jump: the target as an expression of one bounded
//! index, evaluated for every index. Every form a compiler emits is the same to it (RVA plus image
//! base, signed offsets from the table, absolute, byte map into a second table, scaled bytes).

use code::record::{Condition, Family, MemoryReference, Modifier, Operand, Operation, Transfer};
use code::{Decoded, Recorder};
use target::Machine;

use crate::image::CodeImage;
use crate::listing::{Listing, Resolution, ResolvedTable, TableResolver};

/// Instructions looked at before the jump.
pub(crate) const WINDOW: usize = 48;
/// Most slots of a table.
const MAX_ENTRIES: u64 = 4096;
/// Most nodes of an expression.
const MAX_NODES: usize = 40;

/// Resolves tables from the instructions before the jump.
pub struct Structural;

impl TableResolver for Structural {
    fn resolve(&self, image: &CodeImage<'_>, listing: &Listing, site: u64) -> Resolution {
        let Some(jump) = listing.instructions.get(&site) else {
            return Resolution::Unresolved("the jump is not in the listing");
        };
        let mut window: Vec<Decoded> = Vec::new();
        let mut at = site;
        while window.len() < WINDOW {
            let Some((_, before)) = listing.instructions.range(..at).next_back() else { break };
            if before.end() != at || !before.transfer.falls_through() {
                break;
            }
            window.push(before.clone());
            at = before.address;
        }
        window.reverse();
        let boundary = |address: u64| {
            listing.instructions.contains_key(&address)
                || listing.instructions.range(..address).next_back().is_none_or(|(_, i)| i.end() <= address)
        };
        match resolve(image, &window, jump, &boundary) {
            Ok(table) => Resolution::Resolved(table),
            Err(why) => Resolution::Unresolved(why),
        }
    }
}

/// A value in terms of what the window starts with.
#[derive(Clone, Debug, PartialEq)]
enum Value {
    Constant(u64),
    /// Something unknown: its number.
    Unknown(u32),
    /// The index, put in the place of what was compared.
    Index,
    Load {
        address: Box<Value>,
        size: u8,
        signed: bool,
        epoch: u32,
    },
    Binary(Operation, Box<Value>, Box<Value>),
    /// Cut to so many bits, zero-extended.
    Low(u8, Box<Value>),
    /// Sign-extended from so many bits.
    Signed(u8, Box<Value>),
}

impl Value {
    fn nodes(&self) -> usize {
        match self {
            Self::Constant(_) | Self::Unknown(_) | Self::Index => 1,
            Self::Load { address, .. } => 1 + address.nodes(),
            Self::Low(_, inner) | Self::Signed(_, inner) => 1 + inner.nodes(),
            Self::Binary(_, a, b) => 1 + a.nodes() + b.nodes(),
        }
    }

    fn low(bits: u16, value: Self) -> Self {
        match value {
            _ if bits >= 64 => value,
            Self::Constant(number) => Self::Constant(number & ((1 << bits) - 1)),
            Self::Low(have, inner) if u16::from(have) <= bits => Self::Low(have, inner),
            Self::Load { size, signed: false, .. } if u16::from(size) * 8 <= bits => value,
            other => Self::Low(bits as u8, Box::new(other)),
        }
    }

    fn binary(operation: Operation, a: Self, b: Self) -> Self {
        if let (Self::Constant(x), Self::Constant(y)) = (&a, &b)
            && let Some(value) = apply(operation, *x, *y)
        {
            return Self::Constant(value);
        }
        Self::Binary(operation, Box::new(a), Box::new(b))
    }

    /// `self` with every copy of `what` replaced by the index.
    fn indexed(&self, what: &Self) -> Self {
        if self == what {
            return Self::Index;
        }
        match self {
            Self::Load { address, size, signed, epoch } => Self::Load {
                address: Box::new(address.indexed(what)),
                size: *size,
                signed: *signed,
                epoch: *epoch,
            },
            Self::Binary(operation, a, b) => {
                Self::Binary(*operation, Box::new(a.indexed(what)), Box::new(b.indexed(what)))
            }
            Self::Low(bits, inner) => Self::Low(*bits, Box::new(inner.indexed(what))),
            Self::Signed(bits, inner) => Self::Signed(*bits, Box::new(inner.indexed(what))),
            other => other.clone(),
        }
    }

    fn has_index(&self) -> bool {
        match self {
            Self::Index => true,
            Self::Constant(_) | Self::Unknown(_) => false,
            Self::Load { address, .. } => address.has_index(),
            Self::Low(_, inner) | Self::Signed(_, inner) => inner.has_index(),
            Self::Binary(_, a, b) => a.has_index() || b.has_index(),
        }
    }

    /// The innermost value under zero-extensions.
    fn core(&self) -> &Self {
        match self {
            Self::Low(_, inner) => inner.core(),
            other => other,
        }
    }
}

fn apply(operation: Operation, a: u64, b: u64) -> Option<u64> {
    Some(match operation {
        Operation::Add => a.wrapping_add(b),
        Operation::Subtract => a.wrapping_sub(b),
        Operation::Multiply => a.wrapping_mul(b),
        Operation::And => a & b,
        Operation::Or => a | b,
        Operation::Xor => a ^ b,
        Operation::ShiftLeft => a.checked_shl(u32::try_from(b).ok()?)?,
        Operation::ShiftRight => a.checked_shr(u32::try_from(b).ok()?)?,
        _ => return None,
    })
}

/// The registers, and what was compared last.
struct Machinery {
    machine: Machine,
    registers: Vec<(Family, Value)>,
    unknowns: u32,
    epoch: u32,
    compared: Option<(Value, u64)>,
    /// What a compare and the branch after it, not taken, say of a value: it is at most this.
    bounds: Vec<(Value, u64)>,
}

impl Machinery {
    fn new(machine: Machine) -> Self {
        Self { machine, registers: Vec::new(), unknowns: 0, epoch: 0, compared: None, bounds: Vec::new() }
    }

    fn fresh(&mut self) -> Value {
        self.unknowns += 1;
        Value::Unknown(self.unknowns)
    }

    fn family(&mut self, family: Family) -> Value {
        if family == Family::Zero {
            return Value::Constant(0);
        }
        if let Some((_, value)) = self.registers.iter().find(|(have, _)| *have == family) {
            return value.clone();
        }
        let value = self.fresh();
        self.registers.push((family, value.clone()));
        value
    }

    fn set(&mut self, family: Family, value: Value) {
        let value = if value.nodes() > MAX_NODES { self.fresh() } else { value };
        match self.registers.iter_mut().find(|(have, _)| *have == family) {
            Some((_, slot)) => *slot = value,
            None => self.registers.push((family, value)),
        }
    }

    fn address(&mut self, memory: &MemoryReference) -> Option<Value> {
        if memory.segment.is_some() {
            return None;
        }
        if let Some(address) = memory.address {
            return Some(Value::Constant(address));
        }
        let mut sum = Value::Constant(memory.displacement as u64);
        if let Some(index) = memory.index {
            let value = self.family(index.family);
            let value = match memory.index_extend {
                Some(Modifier::SignExtend { bits, .. }) => Value::Signed(bits, Box::new(value)),
                Some(Modifier::ZeroExtend { bits, .. }) => Value::low(u16::from(bits), value),
                _ => Value::low(index.width, value),
            };
            let scaled = match memory.scale {
                0 | 1 => value,
                scale => Value::binary(Operation::Multiply, value, Value::Constant(u64::from(scale))),
            };
            sum = Value::binary(Operation::Add, scaled, sum);
        }
        if let Some(base) = memory.base {
            let value = self.family(base.family);
            sum = match sum {
                Value::Constant(0) => value,
                sum => Value::binary(Operation::Add, value, sum),
            };
        }
        Some(if self.machine == Machine::X86 { Value::low(32, sum) } else { sum })
    }

    fn load(&mut self, memory: &MemoryReference, signed: bool) -> Value {
        let size = memory.size as u8;
        match self.address(memory) {
            Some(address) if matches!(size, 1 | 2 | 4 | 8) => {
                Value::Load { address: Box::new(address), size, signed, epoch: self.epoch }
            }
            _ => self.fresh(),
        }
    }

    fn operand(&mut self, operand: &Operand) -> Value {
        match operand {
            Operand::Register(register) => {
                let value = self.family(register.family);
                if register.low_bit != 0 {
                    return self.fresh();
                }
                Value::low(register.width, value)
            }
            Operand::Modified(register, modifier) => {
                let value = self.family(register.family);
                let value = Value::low(register.width, value);
                modified(value, *modifier)
            }
            Operand::Immediate(value) => Value::Constant(*value),
            Operand::Memory(memory) => self.load(memory, false),
            Operand::Target(target) => Value::Constant(*target),
            Operand::Opaque => self.fresh(),
        }
    }

    fn step(&mut self, instruction: &Decoded) {
        self.compare(instruction);
        let value = self.result(instruction);
        if instruction.writes_memory || matches!(instruction.transfer, Transfer::Call(_)) {
            self.epoch += 1;
        }
        for register in &instruction.writes {
            let unknown = self.fresh();
            self.set(register.family, unknown);
        }
        if matches!(instruction.transfer, Transfer::Call(_)) {
            self.registers.clear();
            self.compared = None;
        }
        if let (Some(value), Some(Operand::Register(register))) = (value, instruction.destination())
            && register.write_is_whole(self.machine)
            && register.low_bit == 0
        {
            self.set(register.family, Value::low(register.width, value));
        }
    }

    fn result(&mut self, instruction: &Decoded) -> Option<Value> {
        let width = instruction.destination()?.register()?.width;
        let sources = instruction.sources();
        match (instruction.operation, sources) {
            (Operation::Move | Operation::ZeroExtend, [source]) => Some(self.operand(source)),
            (Operation::SignExtend, [source]) => Some(match source {
                Operand::Memory(memory) => self.load(memory, true),
                Operand::Register(register) => {
                    let inner = self.operand(source);
                    Value::Signed(register.width as u8, Box::new(inner))
                }
                _ => return None,
            }),
            (Operation::Address, [Operand::Memory(memory)]) => self.address(memory),
            (
                operation @ (Operation::Add
                | Operation::Subtract
                | Operation::Multiply
                | Operation::And
                | Operation::Or
                | Operation::Xor
                | Operation::ShiftLeft
                | Operation::ShiftRight),
                [a, b],
            ) => {
                if operation == Operation::Xor && a == b {
                    return Some(Value::Constant(0));
                }
                let (a, b) = (self.operand(a), self.operand(b));
                Some(Value::low(width, Value::binary(operation, a, b)))
            }
            _ => None,
        }
    }

    fn compare(&mut self, instruction: &Decoded) {
        match instruction.operation {
            Operation::Compare => {
                self.compared = match instruction.operands.as_slice() {
                    [a, Operand::Immediate(limit)] => Some((self.operand(a), *limit)),
                    _ => None,
                };
            }
            // `sub ecx, K; cmp`-less ladders compare against zero: not a bound.
            _ if !instruction.flags_written.is_empty() => self.compared = None,
            _ => {}
        }
        if let (Transfer::Branch(_), Some(condition)) = (instruction.transfer, instruction.condition)
            && let Some((value, limit)) = &self.compared
        {
            // Not taken: the opposite holds.
            let most = match condition {
                Condition::Above => Some(*limit),
                Condition::AboveOrEqual => limit.checked_sub(1),
                _ => None,
            };
            if let Some(most) = most {
                self.bounds.push((value.clone(), most));
            }
        }
    }
}

fn modified(value: Value, modifier: Modifier) -> Value {
    let shift = |value, amount: u8| match amount {
        0 => value,
        amount => Value::binary(Operation::ShiftLeft, value, Value::Constant(u64::from(amount))),
    };
    match modifier {
        Modifier::ShiftLeft(amount) => shift(value, amount),
        Modifier::ShiftRight(amount) => {
            Value::binary(Operation::ShiftRight, value, Value::Constant(u64::from(amount)))
        }
        Modifier::ZeroExtend { bits, shift: amount } => shift(Value::low(u16::from(bits), value), amount),
        Modifier::SignExtend { bits, shift: amount } => {
            // A load that is cut to its own size and sign-extended is a signed load.
            shift(Value::Signed(bits, Box::new(value)), amount)
        }
        _ => Value::Unknown(0),
    }
}

/// What evaluating a target for one index met.
struct Evaluation<'i, 'a> {
    image: &'i CodeImage<'a>,
    index: u64,
    /// The innermost load that depends on the index last: the table of targets.
    table: Option<(u64, u8)>,
    loads: usize,
}

impl Evaluation<'_, '_> {
    fn value(&mut self, value: &Value) -> Option<u64> {
        match value {
            Value::Constant(number) => Some(*number),
            Value::Index => Some(self.index),
            Value::Unknown(_) => None,
            Value::Low(bits, inner) => {
                let inner = self.value(inner)?;
                Some(if *bits >= 64 { inner } else { inner & ((1 << bits) - 1) })
            }
            Value::Signed(bits, inner) => {
                let inner = self.value(inner)?;
                sign_extend(inner, *bits)
            }
            Value::Binary(operation, a, b) => {
                let (a, b) = (self.value(a)?, self.value(b)?);
                apply(*operation, a, b)
            }
            Value::Load { address, size, signed, .. } => {
                let at = self.value(address)?;
                let loaded = self.image.constant(at, usize::from(*size))?;
                if address.has_index() {
                    self.table = Some((at, *size));
                    self.loads += 1;
                }
                if *signed { sign_extend(loaded, size * 8) } else { Some(loaded) }
            }
        }
    }
}

fn sign_extend(value: u64, bits: u8) -> Option<u64> {
    let shift = 64u32.checked_sub(u32::from(bits)).filter(|_| bits > 0)?;
    Some(((value << shift) as i64 >> shift) as u64)
}

/// The table behind `jump`, from the instructions right before it.
pub(crate) fn resolve(
    image: &CodeImage<'_>,
    window: &[Decoded],
    jump: &Decoded,
    may_start: &dyn Fn(u64) -> bool,
) -> Result<ResolvedTable, &'static str> {
    let mut machinery = Machinery::new(image.machine);
    for instruction in window {
        machinery.step(instruction);
    }
    let operand = crate::callee::through(image, jump).ok_or("a jump without operand")?;
    let target = machinery.operand(&operand);
    let target = if image.machine == Machine::X86 { Value::low(32, target) } else { target };
    let (indexed, count) =
        index(&target, &machinery.bounds).ok_or("no bounded index was found before the jump")?;
    if count > MAX_ENTRIES {
        return Err("the table has too many slots");
    }
    enumerate(image, jump.address, &indexed, count, may_start)
}

/// The address the register a call or jump goes through was loaded from, as far as `window` knows.
pub(crate) fn loaded_from(image: &CodeImage<'_>, window: &[&Decoded], through: &Operand) -> Option<u64> {
    let mut machinery = Machinery::new(image.machine);
    for instruction in window {
        machinery.step(instruction);
    }
    match machinery.operand(through) {
        Value::Load { address, size, .. } if usize::from(size) == image.pointer_size() => match *address {
            Value::Constant(address) => Some(address),
            _ => None,
        },
        _ => None,
    }
}

/// The target as an expression of the index, and how many values the index has.
fn index(target: &Value, bounds: &[(Value, u64)]) -> Option<(Value, u64)> {
    for (value, most) in bounds.iter().rev() {
        for what in [value, value.core()] {
            let indexed = target.indexed(what);
            if indexed.has_index() {
                return Some((indexed, most.checked_add(1)?));
            }
        }
    }
    masked(target).map(|(what, count)| (target.indexed(&what), count))
}

/// An `and` with 2^n - 1 is a bound of its own.
fn masked(value: &Value) -> Option<(Value, u64)> {
    match value {
        Value::Binary(Operation::And, _, b) => match **b {
            Value::Constant(mask) if mask < MAX_ENTRIES && (mask + 1).is_power_of_two() => {
                Some((value.clone(), mask + 1))
            }
            _ => None,
        },
        Value::Binary(_, a, b) => masked(a).or_else(|| masked(b)),
        Value::Load { address, .. } => masked(address),
        Value::Low(_, inner) | Value::Signed(_, inner) => masked(inner),
        _ => None,
    }
}

fn enumerate(
    image: &CodeImage<'_>,
    site: u64,
    target: &Value,
    count: u64,
    may_start: &dyn Fn(u64) -> bool,
) -> Result<ResolvedTable, &'static str> {
    let mut targets = Vec::new();
    let mut first = None;
    let mut loads = 0;
    for index in 0..count {
        let mut evaluation = Evaluation { image, index, table: None, loads: 0 };
        let address = evaluation.value(target).ok_or("a slot is not in read-only memory")?;
        let (table, size) = evaluation.table.ok_or("the target does not come from a table")?;
        let before = *first.get_or_insert((table, size));
        first = Some((before.0.min(table), before.1));
        loads = evaluation.loads;
        if !image.is_executable(address) || !may_start(address) {
            return Err("a slot does not lead to an instruction of this image");
        }
        targets.push(address);
    }
    let (table, entry_size) = first.ok_or("the table is empty")?;
    let form = match (loads, entry_size, image.machine) {
        (2.., ..) => "byte_map",
        (_, 8, _) => "pointer",
        (_, 4, Machine::X86) => "absolute32",
        (_, 4, _) => "offset32",
        (_, 2, _) => "offset16",
        _ => "offset8",
    };
    Ok(ResolvedTable { site, table, targets, entry_size, form })
}

/// Records of `scanned` instructions, decoded again from `bytes_at`.
pub(crate) fn records<'b>(
    machine: Machine,
    scanned: &[code::Scanned],
    bytes_at: impl Fn(u64) -> &'b [u8],
) -> Vec<Decoded> {
    let mut recorder = Recorder::new(machine);
    let start = scanned.iter().rposition(|i| !i.transfer.falls_through()).map_or(0, |at| at + 1);
    scanned[start..].iter().map(|i| recorder.record(i.address, bytes_at(i.address))).collect()
}
