//! ARM64 code and `.xdata` of built functions: `stp x29, x30, [sp, #-frame]!`, saves,
//! `mov x29, sp`, body, the same back, `ret`.

use target::reg;

use crate::bytes::{low32, pad_to};
use crate::image::{Function, FunctionFacts, Position};
use crate::image_layout::Code;

const SP: u32 = 31 << 5;
const NOP: u32 = 0xd503_201f;
const MOV_FP_SP: u32 = 0x9100_03fd;
const RET: u32 = 0xd65f_03c0;

struct Emitter {
    words: Vec<u32>,
    now: FunctionFacts,
    positions: Vec<Position>,
}

impl Emitter {
    fn here(&self) -> u32 {
        self.now.begin + 4 * low32(self.words.len())
    }
    fn emit(&mut self, word: u32) {
        self.positions.push(Position { rva: self.here(), facts: self.now.clone() });
        self.words.push(word);
    }
}

/// One or two registers and their slot (eight bytes each, from the stack pointer).
struct Save {
    first: usize,
    second: Option<usize>,
    slot: u32,
}

impl Save {
    fn instruction(&self, load: bool) -> u32 {
        let first = low32(self.first);
        match self.second {
            Some(second) => {
                let base = if load { 0xa940_0000 } else { 0xa900_0000 };
                base | (self.slot << 15) | (low32(second) << 10) | SP | first
            }
            None => (if load { 0xf940_0000 } else { 0xf900_0000 }) | (self.slot << 10) | SP | first,
        }
    }

    /// `save_regp` or `save_reg`.
    fn code(&self) -> [u8; 2] {
        let base = if self.second.is_some() { 0xc800 } else { 0xd000 };
        let code = base | (low32(self.first) - 19) << 6 | self.slot;
        [(code >> 8 & 0xff) as u8, (code & 0xff) as u8]
    }

    fn registers(&self) -> impl Iterator<Item = (usize, u32)> {
        let second = self.second.map(|register| (register, 8 * self.slot + 8));
        [(self.first, 8 * self.slot)].into_iter().chain(second)
    }
}

/// `stp x29, x30, [sp, #-frame]!` or `ldp x29, x30, [sp], #frame`.
fn frame_record(frame: u32, load: bool) -> u32 {
    let slots = if load { frame / 8 } else { (frame / 8).wrapping_neg() };
    let base = if load { 0xa8c0_0000 } else { 0xa980_0000 };
    base | ((slots & 0x7f) << 15) | (30 << 10) | SP | 29
}

fn saves(function: &Function) -> Vec<Save> {
    let registers: Vec<usize> = function.saved.iter().copied().filter(|r| (19..=28).contains(r)).collect();
    let pairs = registers.chunks(2).enumerate();
    let save = |(index, pair): (usize, &[usize])| Save {
        first: pair[0],
        second: pair.get(1).copied(),
        slot: 2 + 2 * low32(index),
    };
    pairs.map(save).collect()
}

pub(crate) fn function(function: &Function, at: u32) -> Code {
    let saves = saves(function);
    let locals = function.locals.next_multiple_of(16);
    // The pre-indexed store reaches 504 bytes down.
    let frame = (16 + 16 * low32(saves.len()) + locals).min(496);
    let now = FunctionFacts { begin: at, ..FunctionFacts::default() };
    let mut out = Emitter { words: Vec::new(), now, positions: Vec::new() };
    out.emit(frame_record(frame, false));
    out.now.frame_size = frame;
    out.now.saved = vec![(reg::A64_FP, 0), (reg::A64_LR, 8)];
    for save in &saves {
        out.emit(save.instruction(false));
        out.now.saved.extend(save.registers());
    }
    out.emit(MOV_FP_SP);
    out.now.frame_pointer = Some((reg::A64_FP, 0));
    let mut facts = out.now.clone();
    facts.body = out.here();
    out.emit(NOP);
    for _ in 0..function.calls {
        // bl to the function's own start.
        let distance = low32(out.words.len()).wrapping_neg() & 0x03ff_ffff;
        out.emit(0x9400_0000 | distance);
        facts.returns.push(out.here());
        out.emit(NOP);
    }
    for save in saves.iter().rev() {
        out.emit(save.instruction(true));
        let restored: Vec<usize> = save.registers().map(|(register, _)| register).collect();
        out.now.saved.retain(|(register, _)| !restored.contains(register));
    }
    out.emit(frame_record(frame, true));
    out.now = FunctionFacts { begin: at, ..FunctionFacts::default() };
    out.emit(RET);
    facts.end = out.here();
    let unwind = xdata(&saves, frame, out.words.len());
    Code {
        bytes: out.words.iter().flat_map(|w| w.to_le_bytes()).collect(),
        facts,
        unwind,
        positions: out.positions,
    }
}

/// `set_fp`, then the saves in reverse, which the epilog (it starts behind `set_fp`) shares; `end`.
fn xdata(saves: &[Save], frame: u32, words: usize) -> Vec<u8> {
    let mut codes = vec![0xe1];
    codes.extend(saves.iter().rev().flat_map(Save::code));
    codes.push(0x80 | ((frame / 8 - 1) & 0x3f) as u8);
    codes.push(0xe4);
    pad_to(&mut codes, 4);
    // One epilog, at the end (E), whose codes begin at index 1.
    let header = low32(words) | (1 << 21) | (1 << 22) | (low32(codes.len() / 4) << 27);
    let mut out = header.to_le_bytes().to_vec();
    out.extend(codes);
    out
}
