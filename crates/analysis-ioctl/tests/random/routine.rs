//! A random dispatch routine: compare chains, ladders, search trees, tables, bit tests, masks, with
//! implicit writers, calls, partial writes, spills and shared tails between them.

use crate::assembler::{Assembler, CONDITIONS, Label};

/// xorshift: the same routine for the same seed, everywhere.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
    pub fn below(&mut self, n: usize) -> usize {
        (self.next() >> 16) as usize % n
    }
    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}

/// What the value in the current register is of the code.
#[derive(Clone, Copy)]
enum Step {
    Add(u32),
    Xor(u32),
    Rol(u32),
    Mul(u32),
    Not,
    Neg,
    Swap,
}

fn apply(steps: &[Step], code: u32) -> u32 {
    steps.iter().fold(code, |at, step| match *step {
        Step::Add(k) => at.wrapping_add(k),
        Step::Xor(k) => at ^ k,
        Step::Rol(k) => at.rotate_left(k),
        Step::Mul(k) => at.wrapping_mul(k),
        Step::Not => !at,
        Step::Neg => at.wrapping_neg(),
        Step::Swap => at.swap_bytes(),
    })
}

pub struct Routine {
    pub image: Vec<u8>,
    pub entry: u64,
    /// Codes worth trying: around everything that is compared.
    pub probes: Vec<u32>,
}

/// Status of every code that no leaf takes.
pub const DEFAULT: u32 = 0xc000_0010;

struct Generator<'r> {
    random: &'r mut Random,
    asm: Assembler,
    pool: Vec<u32>,
    probes: Vec<u32>,
    leaves: Vec<Label>,
    default: Label,
    tiny: Label,
    other: Label,
}

/// Where the code is: a register, transformed.
#[derive(Clone)]
struct Place {
    register: u8,
    steps: Vec<Step>,
}

/// A routine of `seed`.
pub fn generate(seed: u64) -> Routine {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    for _ in 0..4 {
        random.next();
    }
    let base = [0x22_2000u32, 0x9c40_2400, 0x8000_2000, 0x7ff_fff0, 0xffff_fff0][random.below(5)];
    let pool = (0..6)
        .map(|_| {
            if random.chance(80) {
                base.wrapping_add(4 * random.below(24) as u32 + random.below(4) as u32)
            } else {
                random.next() as u32
            }
        })
        .collect::<Vec<_>>();
    let mut asm = Assembler::default();
    let entry = asm.label();
    let (default, tiny, other) = (asm.label(), asm.label(), asm.label());
    let probes = pool.clone();
    let mut g =
        Generator { random: &mut random, asm, pool, probes, leaves: Vec::new(), default, tiny, other };
    g.asm.bind(entry);
    g.asm.bytes(&[0x4c, 0x8b, 0x92, 0xb8, 0, 0, 0]); // mov r10, [rdx+0B8h]
    let register = [1u8, 3, 6, 9][g.random.below(4)];
    // mov reg, [r10+18h]
    g.asm.bytes(&[0x41 | (register >> 3) << 2, 0x8b, 0x42 | (register & 7) << 3, 0x18]);
    g.tree(Place { register, steps: Vec::new() }, 4);
    g.finish();
    let Generator { mut asm, probes, .. } = g;
    let image = asm.finish();
    let entry = asm.address(entry);
    let mut all = Vec::new();
    for probe in probes {
        for near in [0, 1, u32::MAX, 4, 0x8000_0000] {
            all.push(probe.wrapping_add(near));
        }
    }
    all.sort_unstable();
    all.dedup();
    Routine { image, entry, probes: all }
}

impl Generator<'_> {
    fn code(&mut self) -> u32 {
        let at = self.random.below(self.pool.len());
        let code = self.pool[at].wrapping_add([0, 0, 0, 4, 1][self.random.below(5)]);
        self.probes.push(code);
        code
    }

    fn leaf(&mut self) -> Label {
        if self.random.chance(15) {
            return self.default;
        }
        if self.random.chance(25) && !self.leaves.is_empty() {
            let at = self.random.below(self.leaves.len());
            return self.leaves[at];
        }
        let label = self.asm.label();
        self.leaves.push(label);
        label
    }

    /// Decides on the code in `at` and ends every path.
    fn tree(&mut self, mut at: Place, depth: usize) {
        self.noise(&mut at);
        if depth == 0 {
            let leaf = if self.random.chance(70) { self.default } else { self.leaf() };
            return self.asm.jmp(leaf);
        }
        match self.random.below(12) {
            0..=2 => self.equal(at, depth),
            3 | 4 => self.order(at, depth),
            5 => self.triple(at, depth),
            6 => self.ladder(at, depth),
            7 => self.table(at),
            8 => self.bits(at),
            9 => self.mask(at, depth),
            10 => self.flag(at, depth),
            _ => self.transform(at, depth),
        }
    }

    /// Things compilers put between decisions.
    fn noise(&mut self, at: &mut Place) {
        let spare = if at.register == 9 { 8 } else { 9 };
        match self.random.below(14) {
            0 => {
                self.asm.stack(0x89, at.register, 8);
                self.asm.mov_immediate(at.register, 0x22_2004);
                self.asm.stack(0x8b, at.register, 8);
            }
            1 => {
                self.asm.rr(&[0x87], at.register, spare); // xchg
                at.register = spare;
            }
            // mul r11d writes edx and eax.
            2 => self.asm.bytes(&[0x41, 0xf7, 0xe3]),
            3 => {
                // The code survives a call in rbx or rsi only, or in its home slot.
                self.asm.stack(0x89, at.register, 0x10);
                let callee = if self.random.chance(50) { self.tiny } else { self.other };
                self.asm.bytes(&[0x48, 0x83, 0xec, 0x28]); // sub rsp, 28h
                self.asm.call(callee);
                self.asm.bytes(&[0x48, 0x83, 0xc4, 0x28]);
                self.asm.stack(0x8b, at.register, 0x10);
            }
            4 => self.asm.bytes(&[0xb0, 5]), // mov al, 5
            // cmpxchg [rsp+18h], r11d: writes eax.
            5 => self.asm.bytes(&[0x44, 0x0f, 0xb1, 0x5c, 0x24, 0x18]),
            _ => {}
        }
    }

    fn setup(&mut self) {
        // Flag-neutral case setup between a comparison and its branch.
        match self.random.below(4) {
            0 => self.asm.mov_immediate(11, 0xc000_0010),
            1 => self.asm.bytes(&[0x4d, 0x8d, 0x5b, 0x04]), // lea r11, [r11+4]
            _ => {}
        }
    }

    fn compare(&mut self, at: &Place, code: u32) {
        let value = apply(&at.steps, code);
        if self.random.chance(25) {
            self.asm.mov_immediate(0, value);
            self.asm.rr(&[0x39], at.register, 0); // cmp reg, eax
        } else {
            self.asm.immediate(7, at.register, value);
        }
    }

    fn equal(&mut self, at: Place, depth: usize) {
        let code = self.code();
        self.compare(&at, code);
        self.setup();
        let leaf = self.leaf();
        if self.random.chance(50) {
            self.asm.jcc(4, leaf);
        } else {
            let next = self.asm.label();
            self.asm.jcc(5, next);
            self.asm.jmp(leaf);
            self.asm.bind(next);
        }
        self.tree(at, depth - 1);
    }

    fn order(&mut self, at: Place, depth: usize) {
        let code = self.code();
        self.compare(&at, code);
        self.setup();
        let (condition, _) = CONDITIONS[self.random.below(CONDITIONS.len())];
        let side = self.asm.label();
        self.asm.jcc(condition, side);
        self.tree(at.clone(), depth - 1);
        self.asm.bind(side);
        self.tree(at, depth - 1);
    }

    fn triple(&mut self, at: Place, depth: usize) {
        let code = self.code();
        self.compare(&at, code);
        let (above, leaf) = (self.asm.label(), self.leaf());
        self.asm.jcc(7, above);
        if self.random.chance(30) {
            // Through a jmp, in another block.
            let hop = self.asm.label();
            self.asm.jmp(hop);
            self.asm.bind(hop);
        }
        self.setup();
        self.asm.jcc(4, leaf);
        self.tree(at.clone(), depth - 1);
        self.asm.bind(above);
        self.tree(at, depth - 1);
    }

    fn ladder(&mut self, mut at: Place, depth: usize) {
        for _ in 0..1 + self.random.below(4) {
            let code = self.code();
            let value = apply(&at.steps, code);
            if self.random.chance(30) {
                self.asm.mov_immediate(0, value);
                self.asm.rr(&[0x29], at.register, 0); // sub reg, eax
            } else if self.random.chance(30) {
                self.asm.immediate(0, at.register, value.wrapping_neg());
            } else {
                self.asm.immediate(5, at.register, value);
            }
            at.steps.push(Step::Add(value.wrapping_neg()));
            self.setup();
            let leaf = self.leaf();
            self.asm.jcc(4, leaf);
        }
        self.tree(at, depth - 1);
    }

    fn transform(&mut self, mut at: Place, depth: usize) {
        let register = at.register;
        let value = self.random.next() as u32;
        let step = match self.random.below(7) {
            0 => Step::Add(value),
            1 => Step::Xor(value),
            2 => Step::Rol(1 + value % 31),
            3 => Step::Mul(value | 1),
            4 => Step::Not,
            5 => Step::Neg,
            _ => Step::Swap,
        };
        match step {
            Step::Add(k) => self.asm.immediate(0, register, k),
            Step::Xor(k) => self.asm.immediate(6, register, k),
            Step::Rol(k) => self.asm.shift(0, register, k as u8),
            Step::Mul(k) => {
                self.asm.rr(&[0x69], register, register);
                self.asm.bytes(&k.to_le_bytes());
            }
            Step::Not => self.asm.rr(&[0xf7], register, 2),
            Step::Neg => self.asm.rr(&[0xf7], register, 3),
            Step::Swap => {
                self.asm.bytes(if register > 7 { &[0x41, 0x0f] } else { &[0x0f] });
                self.asm.bytes(&[0xc8 | register & 7]);
            }
        }
        at.steps.push(step);
        self.tree(at, depth - 1);
    }

    /// Brings codes from the pool's base on into 0..n, checked.
    fn index(&mut self, at: &Place, count: u32) -> u32 {
        let first = self.code();
        let value = apply(&at.steps, first);
        self.asm.mov(0, at.register);
        self.asm.immediate(5, 0, value);
        if self.random.chance(40) {
            self.asm.shift(1, 0, 2); // ror eax, 2: strides of four
        }
        self.asm.immediate(7, 0, count - 1);
        let out = self.default;
        self.asm.jcc(7, out);
        first
    }

    fn table(&mut self, at: Place) {
        let count = 2 + self.random.below(6) as u32;
        let first = self.index(&at, count);
        self.probes.extend((0..count).flat_map(|i| [first.wrapping_add(i), first.wrapping_add(i * 4)]));
        let table = self.asm.label();
        self.asm.lea(8, table);
        self.asm.bytes(&[0x4d, 0x63, 0x1c, 0x80]); // movsxd r11, [r8+rax*4]
        self.asm.bytes(&[0x4d, 0x01, 0xc3]); // add r11, r8
        self.asm.bytes(&[0x41, 0xff, 0xe3]); // jmp r11
        self.asm.bind(table);
        for _ in 0..count {
            let leaf = self.leaf();
            self.asm.entry(leaf, table);
        }
    }

    fn bits(&mut self, at: Place) {
        let first = self.index(&at, 8);
        self.probes.extend((0..8).flat_map(|i| [first.wrapping_add(i), first.wrapping_add(i * 4)]));
        let mask = self.random.next() as u32 & 0xff;
        self.asm.mov_immediate(8, mask);
        let (yes, no) = (self.leaf(), self.leaf());
        if self.random.chance(50) {
            self.asm.bytes(&[0x41, 0x0f, 0xa3, 0xc0]); // bt r8d, eax
            self.asm.jcc(2, yes);
        } else {
            self.asm.mov(1, 0);
            self.asm.mov_immediate(0, 1);
            self.asm.bytes(&[0xd3, 0xe0]); // shl eax, cl
            self.asm.rr(&[0x85], 0, 8); // test eax, r8d
            self.asm.jcc(5, yes);
        }
        self.asm.jmp(no);
    }

    fn mask(&mut self, at: Place, depth: usize) {
        let code = self.code();
        let value = apply(&at.steps, code);
        let leaf = self.leaf();
        match self.random.below(3) {
            0 => {
                let mask = [0xffff_0000u32, 0xffff_fffc, 0x3ffc, 3][self.random.below(4)];
                self.asm.mov(8, at.register);
                self.asm.immediate(4, 8, mask);
                self.asm.immediate(7, 8, value & mask);
                self.asm.jcc(4, leaf);
            }
            1 => {
                self.asm.mov(8, at.register);
                self.asm.shift(5, 8, 2);
                self.asm.immediate(7, 8, value >> 2);
                self.asm.jcc(4, leaf);
            }
            _ => {
                // cmp r16, imm16
                self.asm.bytes(&[0x66]);
                self.asm.rr(&[0x81], at.register, 7);
                self.asm.bytes(&(value as u16).to_le_bytes());
                self.asm.jcc(4, leaf);
            }
        }
        self.tree(at, depth - 1);
    }

    fn flag(&mut self, at: Place, depth: usize) {
        let code = self.code();
        self.compare(&at, code);
        let leaf = self.leaf();
        if self.random.chance(50) {
            self.asm.bytes(&[0x0f, 0x94, 0xc0]); // sete al
            self.asm.bytes(&[0x84, 0xc0]); // test al, al
            self.asm.jcc(5, leaf);
        } else {
            self.asm.bytes(&[0x19, 0xc0]); // sbb eax, eax
            self.asm.bytes(&[0x85, 0xc0]); // test eax, eax
            self.asm.jcc(5, leaf);
        }
        self.tree(at, depth - 1);
    }

    fn finish(&mut self) {
        self.asm.bind(self.default);
        self.asm.mov_immediate(0, DEFAULT);
        self.asm.bytes(&[0xc3]);
        for (index, leaf) in std::mem::take(&mut self.leaves).into_iter().enumerate() {
            self.asm.bind(leaf);
            self.asm.mov_immediate(0, index as u32);
            self.asm.bytes(&[0xc3]);
        }
        self.asm.bind(self.tiny);
        self.asm.mov_immediate(0, 0x22_2000);
        self.asm.mov_immediate(1, 0x22_2004);
        self.asm.bytes(&[0xc3]);
        self.asm.bind(self.other);
        // A loop: not run in place.
        let again = self.asm.label();
        self.asm.bind(again);
        self.asm.bytes(&[0x83, 0xe9, 0x01]); // sub ecx, 1
        self.asm.jcc(5, again);
        self.asm.bytes(&[0xc3]);
    }
}
