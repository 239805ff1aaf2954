//! x64 code and `UNWIND_INFO` of built functions.

use target::reg;

use crate::bytes::{low32, pad_to};
use crate::image::{Function, FunctionFacts, Position};
use crate::image_layout::Code;

struct Emitter {
    code: Vec<u8>,
    /// Unwind codes, newest first.
    codes: Vec<Vec<u8>>,
    /// The frame at the next instruction.
    now: FunctionFacts,
    positions: Vec<Position>,
}

fn low8(value: usize) -> u8 {
    (value & 0xff) as u8
}

impl Emitter {
    fn new(begin: u32, machine_frame: Option<bool>) -> Self {
        let now = FunctionFacts { begin, machine_frame, ..FunctionFacts::default() };
        Self { code: Vec::new(), codes: Vec::new(), now, positions: Vec::new() }
    }

    fn here(&self) -> u32 {
        self.now.begin + low32(self.code.len())
    }

    fn emit(&mut self, bytes: &[u8]) {
        self.positions.push(Position { rva: self.here(), facts: self.now.clone() });
        self.code.extend(bytes);
    }

    /// An unwind code for the instruction just emitted.
    fn unwind(&mut self, operation: u8, info: u8, extra: Option<u16>) {
        let mut code = vec![low8(self.code.len()), operation | info << 4];
        code.extend(extra.into_iter().flat_map(u16::to_le_bytes));
        self.codes.insert(0, code);
    }

    fn push(&mut self, register: usize) {
        self.emit(&register_byte(register, 0x50));
        self.unwind(0, low8(register), None);
        self.now.grow(8);
        self.now.saved.insert(0, (register, 0));
    }

    fn pop(&mut self, register: usize) {
        self.emit(&register_byte(register, 0x58));
        self.now.saved.retain(|&(saved, _)| saved != register);
        if self.now.frame_pointer.is_some_and(|(pointer, _)| pointer == register) {
            self.now.frame_pointer = None;
        }
        self.now.shrink(8);
    }

    fn allocate(&mut self, locals: u32) {
        self.emit(&adjust(locals, 0xec));
        if locals <= 128 {
            self.unwind(2, low8((locals as usize - 8) / 8), None);
        } else {
            self.unwind(1, 0, Some(((locals / 8) & 0xffff) as u16));
        }
        self.now.grow(locals);
    }

    /// call: to the function's own start, which is as good as any.
    fn call(&mut self) -> u32 {
        let next = low32(self.code.len() + 5);
        let mut bytes = vec![0xe8];
        bytes.extend(next.wrapping_neg().to_le_bytes());
        self.emit(&bytes);
        let returns = self.here();
        self.emit(&[0x90]);
        returns
    }

    fn release(&mut self, locals: u32) {
        if let Some((_, offset)) = self.now.frame_pointer {
            let mut bytes = vec![0x48, 0x8d, 0xa5];
            bytes.extend(locals.wrapping_sub(offset).to_le_bytes());
            self.emit(&bytes);
        } else if locals > 0 {
            self.emit(&adjust(locals, 0xc4));
        }
        self.now.shrink(locals);
    }
}

fn register_byte(register: usize, opcode: u8) -> Vec<u8> {
    let short = opcode | low8(register & 7);
    if register >= 8 { vec![0x41, short] } else { vec![short] }
}

/// `sub rsp` (0xec) or `add rsp` (0xc4).
fn adjust(locals: u32, operation: u8) -> Vec<u8> {
    if locals < 0x80 {
        return vec![0x48, 0x83, operation, low8(locals as usize)];
    }
    let mut out = vec![0x48, 0x81, operation];
    out.extend(locals.to_le_bytes());
    out
}

pub(crate) fn function(function: &Function, at: u32) -> Code {
    let mut saved = function.saved.clone();
    if function.frame_pointer.is_some() && !saved.contains(&reg::RBP) {
        saved.insert(0, reg::RBP);
    }
    let locals = function.locals.next_multiple_of(8);
    let mut out = Emitter::new(at, function.machine_frame);
    if let Some(error_code) = function.machine_frame {
        out.unwind(10, error_code.into(), None);
    }
    for &register in &saved {
        out.push(register);
    }
    if locals > 0 {
        out.allocate(locals);
    }
    if let Some(offset) = function.frame_pointer {
        // lea rbp, [rsp+offset]
        out.emit(&[0x48, 0x8d, 0x6c, 0x24, offset & 0x70]);
        out.unwind(3, 0, None);
        out.now.frame_pointer = Some((reg::RBP, u32::from(offset & 0x70)));
    }
    let prolog = out.code.len();
    let mut facts = out.now.clone();
    facts.body = out.here();
    out.emit(&[0x90]);
    for _ in 0..function.calls {
        let returns = out.call();
        facts.returns.push(returns);
    }
    if function.machine_frame.is_some() {
        // A trap handler leaves by iretq from its body, without an epilog an unwinder could see.
        out.emit(&[0x48, 0xcf]);
    } else {
        out.release(locals);
        for &register in saved.iter().rev() {
            out.pop(register);
        }
        out.emit(&[0xc3]);
    }
    facts.end = out.here();
    let codes: Vec<u8> = out.codes.concat();
    let frame = facts.frame_pointer.map_or(0, |(register, offset)| low8(register) | low8(offset as usize));
    let mut unwind = vec![1, low8(prolog), low8(codes.len() / 2), frame];
    unwind.extend(codes);
    pad_to(&mut unwind, 4);
    Code { bytes: out.code, facts, unwind, positions: out.positions }
}
