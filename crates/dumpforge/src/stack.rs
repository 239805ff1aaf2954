//! Stacks whose frames are known by construction.

use target::{Context, ContextSource, Machine, reg};

use crate::bytes::put64;
use crate::image::{FunctionFacts, Image, Position};

/// A function on the stack and where in it the processor is, or will return to.
#[derive(Clone, Debug)]
pub struct FrameSpec {
    pub facts: FunctionFacts,
    pub ip: u64,
}

impl FrameSpec {
    /// Behind the prolog of a built function: for the innermost frame.
    #[must_use]
    pub fn inside(image: &Image, base: u64, function: &str) -> Self {
        let facts = image.function(function);
        let ip = base + u64::from(facts.body);
        Self { facts, ip }
    }
    /// At any instruction of a built function: for the innermost frame, or one that was interrupted.
    #[must_use]
    pub fn at(base: u64, position: &Position) -> Self {
        Self { facts: position.facts.clone(), ip: base + u64::from(position.rva) }
    }
    /// At the return address of a built function's first call: for the frames above.
    #[must_use]
    pub fn calling(image: &Image, base: u64, function: &str) -> Self {
        let facts = image.function(function);
        let ip = base + u64::from(facts.returns.first().copied().unwrap_or(facts.body));
        Self { facts, ip }
    }
}

/// What a walk must find.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpectedFrame {
    pub ip: u64,
    pub sp: u64,
    /// Non-volatile registers a correct walk knows in this frame, and their values.
    pub registers: Vec<(usize, u64)>,
}

/// A stack and the context that goes with it.
#[derive(Clone, Debug)]
pub struct BuiltStack {
    /// Lowest address of `bytes`.
    pub low: u64,
    pub bytes: Vec<u8>,
    pub context: Context,
    /// Innermost first.
    pub frames: Vec<ExpectedFrame>,
}

/// Lays frames out on a stack.
#[derive(Clone, Copy, Debug)]
pub struct StackBuilder {
    machine: Machine,
    low: u64,
    size: u32,
}

/// rip, cs, eflags, rsp, ss.
const MACHINE_FRAME: u64 = 0x28;

const X64_NONVOLATILE: [usize; 8] = [reg::RBX, reg::RBP, reg::RSI, reg::RDI, 12, 13, 14, 15];
const ARM64_NONVOLATILE: [usize; 11] = [19, 20, 21, 22, 23, 24, 25, 26, 27, 28, reg::A64_FP];

impl StackBuilder {
    /// A stack of `size` bytes from `low` up.
    #[must_use]
    pub fn new(machine: Machine, low: u64, size: u32) -> Self {
        Self { machine, low, size }
    }

    fn nonvolatile(&self) -> &'static [usize] {
        if self.machine == Machine::Arm64 { &ARM64_NONVOLATILE } else { &X64_NONVOLATILE }
    }

    /// Bytes from a frame's stack pointer to its caller's.
    fn stride(&self, facts: &FunctionFacts) -> u64 {
        let above = match (self.machine, facts.machine_frame) {
            (Machine::Arm64, _) => 0,
            (_, None) => 8,
            (_, Some(error_code)) => MACHINE_FRAME + if error_code { 8 } else { 0 },
        };
        u64::from(facts.frame_size) + above
    }

    /// `frames` innermost first; the outermost returns to `end` (0 ends a walk). The innermost
    /// frame's stack pointer is as high as the frames allow, less 64 bytes.
    #[must_use]
    pub fn build(&self, frames: &[FrameSpec], end: u64) -> BuiltStack {
        let total: u64 = frames.iter().map(|f| self.stride(&f.facts)).sum();
        let top = (self.low + u64::from(self.size) - 64) & !15;
        let start = top.saturating_sub(total).max(self.low);
        self.build_at(frames, end, start)
    }

    /// As [`Self::build`], from the innermost frame's stack pointer up.
    #[must_use]
    pub fn build_at(&self, frames: &[FrameSpec], end: u64, start: u64) -> BuiltStack {
        let mut pointers = vec![start];
        for frame in frames {
            let last = pointers.last().copied().unwrap_or(start);
            pointers.push(last + self.stride(&frame.facts));
        }
        let mut bytes = vec![0; self.size as usize];
        let mut state = [0u64; reg::COUNT];
        for &number in self.nonvolatile() {
            state[number] = 0x5a00_0000 + number as u64;
        }
        if self.machine == Machine::Arm64 {
            state[reg::A64_FP] = 0;
        }
        let mut expected = Vec::new();
        // From the outermost in, so that every frame saves what its caller had.
        for (index, frame) in frames.iter().enumerate().rev() {
            let sp = pointers[index];
            let mut slot = |offset: u64, value: u64| {
                if let Ok(at) = usize::try_from(sp + offset - self.low)
                    && at + 8 <= self.size as usize
                {
                    put64(&mut bytes, at, value);
                }
            };
            let return_address = frames.get(index + 1).map_or(end, |caller| caller.ip);
            let top = u64::from(frame.facts.frame_size);
            match (self.machine, frame.facts.machine_frame) {
                (Machine::Arm64, _) if frame.facts.saved.iter().all(|(n, _)| *n != reg::A64_LR) => {
                    state[reg::A64_LR] = return_address;
                }
                (Machine::Arm64, _) => {}
                (_, None) => slot(top, return_address),
                (_, Some(error_code)) => {
                    let at = top + if error_code { 8 } else { 0 };
                    let values = [return_address, 0x10, 0x246, pointers[index + 1], 0x18];
                    for (place, value) in values.into_iter().enumerate() {
                        slot(at + 8 * place as u64, value);
                    }
                }
            }
            for &(number, offset) in &frame.facts.saved {
                let value = if number == reg::A64_LR && self.machine == Machine::Arm64 {
                    return_address
                } else {
                    state[number]
                };
                slot(u64::from(offset), value);
                state[number] = 0x5000_0000 + ((index as u64) << 8) + number as u64;
            }
            if let Some((number, offset)) = frame.facts.frame_pointer {
                // Behind an epilog's first instruction the distance is negative.
                state[number] = sp.wrapping_add_signed(offset.cast_signed().into());
            }
            let registers = self.nonvolatile().iter().map(|&number| (number, state[number])).collect();
            expected.push(ExpectedFrame { ip: frame.ip, sp, registers });
        }
        expected.reverse();
        let ip = frames.first().map_or(end, |f| f.ip);
        BuiltStack { low: self.low, bytes, context: self.context(ip, start, &state), frames: expected }
    }

    fn context(&self, ip: u64, sp: u64, state: &[u64; reg::COUNT]) -> Context {
        let mut context = Context::new(self.machine, ContextSource::Thread);
        for number in 0..if self.machine == Machine::Arm64 { 31 } else { 16 } {
            context.set(number, 0x1000 + number as u64);
        }
        for &number in self.nonvolatile() {
            context.set(number, state[number]);
        }
        if self.machine == Machine::Arm64 {
            context.set(reg::A64_CPSR, 0x6000_0000);
            context.set(reg::A64_LR, state[reg::A64_LR]);
        } else {
            context.set(reg::EFLAGS, 0x246);
        }
        context.set_ip(ip);
        context.set_sp(sp);
        context
    }
}
