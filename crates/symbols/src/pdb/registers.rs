//! CodeView register numbers (cvconst.h `CV_HREG_e`) of x86, x64 and ARM64.

use target::{Machine, reg};

use crate::{Register, RegisterSlot};

/// `CV_ALLREG_VFRAME`: the x86 virtual frame, no register at all.
pub(super) const VIRTUAL_FRAME: u16 = 30006;

const BYTES: [&str; 8] = ["al", "cl", "dl", "bl", "ah", "ch", "dh", "bh"];
const WORDS: [&str; 8] = ["ax", "cx", "dx", "bx", "sp", "bp", "si", "di"];
const DWORDS: [&str; 8] = ["eax", "ecx", "edx", "ebx", "esp", "ebp", "esi", "edi"];
/// In CodeView's order from 328 on, with the hardware numbers.
const QWORDS: [(&str, usize); 8] =
    [("rax", 0), ("rbx", 3), ("rcx", 1), ("rdx", 2), ("rsi", 6), ("rdi", 7), ("rbp", 5), ("rsp", 4)];
const LOW_BYTES: [(&str, usize); 4] = [("sil", 6), ("dil", 7), ("bpl", 5), ("spl", 4)];
const NEW: [&str; 8] = ["r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15"];
const NEW_B: [&str; 8] = ["r8b", "r9b", "r10b", "r11b", "r12b", "r13b", "r14b", "r15b"];
const NEW_W: [&str; 8] = ["r8w", "r9w", "r10w", "r11w", "r12w", "r13w", "r14w", "r15w"];
const NEW_D: [&str; 8] = ["r8d", "r9d", "r10d", "r11d", "r12d", "r13d", "r14d", "r15d"];
const SEGMENTS: [(&str, usize); 6] =
    [("es", reg::ES), ("cs", reg::CS), ("ss", reg::SS), ("ds", reg::DS), ("fs", reg::FS), ("gs", reg::GS)];
const XMM: [&str; 16] = [
    "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11",
    "xmm12", "xmm13", "xmm14", "xmm15",
];
const ST: [&str; 8] = ["st0", "st1", "st2", "st3", "st4", "st5", "st6", "st7"];
const MM: [&str; 8] = ["mm0", "mm1", "mm2", "mm3", "mm4", "mm5", "mm6", "mm7"];
const X: [&str; 32] = [
    "x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14", "x15",
    "x16", "x17", "x18", "x19", "x20", "x21", "x22", "x23", "x24", "x25", "x26", "x27", "x28", "fp", "lr",
    "sp",
];
const W: [&str; 31] = [
    "w0", "w1", "w2", "w3", "w4", "w5", "w6", "w7", "w8", "w9", "w10", "w11", "w12", "w13", "w14", "w15",
    "w16", "w17", "w18", "w19", "w20", "w21", "w22", "w23", "w24", "w25", "w26", "w27", "w28", "w29", "w30",
];
const S: [&str; 32] = [
    "s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9", "s10", "s11", "s12", "s13", "s14", "s15",
    "s16", "s17", "s18", "s19", "s20", "s21", "s22", "s23", "s24", "s25", "s26", "s27", "s28", "s29", "s30",
    "s31",
];
const D: [&str; 32] = [
    "d0", "d1", "d2", "d3", "d4", "d5", "d6", "d7", "d8", "d9", "d10", "d11", "d12", "d13", "d14", "d15",
    "d16", "d17", "d18", "d19", "d20", "d21", "d22", "d23", "d24", "d25", "d26", "d27", "d28", "d29", "d30",
    "d31",
];
const Q: [&str; 32] = [
    "q0", "q1", "q2", "q3", "q4", "q5", "q6", "q7", "q8", "q9", "q10", "q11", "q12", "q13", "q14", "q15",
    "q16", "q17", "q18", "q19", "q20", "q21", "q22", "q23", "q24", "q25", "q26", "q27", "q28", "q29", "q30",
    "q31",
];

fn integer(name: &'static str, number: usize, shift: u8, bits: u16) -> Register {
    Register { name, slot: RegisterSlot::Integer(number), shift, bits }
}

fn vector(name: &'static str, index: usize, bits: u16) -> Register {
    Register { name, slot: RegisterSlot::Vector(index), shift: 0, bits }
}

/// The register CodeView calls `number`; one that contexts do not hold comes as
/// [`RegisterSlot::Unknown`].
pub(super) fn register(machine: Machine, number: u16) -> Register {
    let found = match machine {
        Machine::X64 => x64(usize::from(number)).or_else(|| x86(usize::from(number))),
        Machine::X86 => x86(usize::from(number)),
        Machine::Arm64 => arm64(usize::from(number)),
        Machine::Arm32 => None,
    };
    found.unwrap_or(Register { name: "?", slot: RegisterSlot::Unknown, shift: 0, bits: 0 })
}

fn x86(number: usize) -> Option<Register> {
    Some(match number {
        1..=4 => integer(BYTES[number - 1], number - 1, 0, 8),
        5..=8 => integer(BYTES[number - 1], number - 5, 8, 8),
        9..=16 => integer(WORDS[number - 9], number - 9, 0, 16),
        17..=24 => integer(DWORDS[number - 17], number - 17, 0, 32),
        25..=30 => integer(SEGMENTS[number - 25].0, SEGMENTS[number - 25].1, 0, 16),
        33 => integer("eip", reg::RIP, 0, 32),
        34 => integer("efl", reg::EFLAGS, 0, 32),
        128..=135 => {
            Register { name: ST[number - 128], slot: RegisterSlot::X87(number - 128), shift: 0, bits: 80 }
        }
        146..=153 => {
            Register { name: MM[number - 146], slot: RegisterSlot::X87(number - 146), shift: 0, bits: 64 }
        }
        154..=161 => vector(XMM[number - 154], number - 154, 128),
        // The low 64 bits, and the first 32-bit lane, of an xmm register.
        194..=201 => vector(XMM[number - 194], number - 194, 64),
        162..=193 if (number - 162).is_multiple_of(4) => {
            vector(XMM[(number - 162) / 4], (number - 162) / 4, 32)
        }
        _ => return None,
    })
}

fn x64(number: usize) -> Option<Register> {
    Some(match number {
        33 => integer("rip", reg::RIP, 0, 64),
        324..=327 => integer(LOW_BYTES[number - 324].0, LOW_BYTES[number - 324].1, 0, 8),
        328..=335 => integer(QWORDS[number - 328].0, QWORDS[number - 328].1, 0, 64),
        336..=343 => integer(NEW[number - 336], number - 336 + 8, 0, 64),
        344..=351 => integer(NEW_B[number - 344], number - 344 + 8, 0, 8),
        352..=359 => integer(NEW_W[number - 352], number - 352 + 8, 0, 16),
        360..=367 => integer(NEW_D[number - 360], number - 360 + 8, 0, 32),
        252..=259 => vector(XMM[number - 252 + 8], number - 252 + 8, 128),
        260..=291 if (number - 260).is_multiple_of(4) => {
            vector(XMM[(number - 260) / 4 + 8], (number - 260) / 4 + 8, 32)
        }
        292..=299 => vector(XMM[number - 292 + 8], number - 292 + 8, 64),
        400..=415 => vector(XMM[number - 400], number - 400, 64),
        _ => return None,
    })
}

fn arm64(number: usize) -> Option<Register> {
    Some(match number {
        10..=40 => integer(W[number - 10], number - 10, 0, 32),
        50..=81 => integer(X[number - 50], number - 50, 0, 64),
        100..=131 => vector(S[number - 100], number - 100, 32),
        140..=171 => vector(D[number - 140], number - 140, 64),
        180..=211 => vector(Q[number - 180], number - 180, 128),
        _ => return None,
    })
}

/// The frame register `S_FRAMEPROC` encodes in two bits; `Ok(None)` is the x86 virtual frame.
pub(super) fn frame_register(machine: Machine, encoded: u32) -> Option<Option<Register>> {
    match (machine, encoded) {
        (Machine::X64, 1) => Some(Some(register(machine, 335))),
        (Machine::X64, 2) => Some(Some(register(machine, 334))),
        (Machine::X64, 3) => Some(Some(register(machine, 341))),
        (Machine::X86, 1) => Some(None),
        (Machine::X86, 2) => Some(Some(register(machine, 22))),
        (Machine::X86, 3) => Some(Some(register(machine, 20))),
        (Machine::Arm64, 1) => Some(Some(register(machine, 81))),
        (Machine::Arm64, 2) => Some(Some(register(machine, 79))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::register;
    use target::{Context, ContextSource, Machine};

    /// Full-width names must be the context's own, so that a location can be read from one.
    #[test]
    fn names_agree_with_contexts() {
        for (machine, numbers) in
            [(Machine::X64, 328..=343u16), (Machine::X86, 17..=24), (Machine::Arm64, 50..=81)]
        {
            let context = Context::new(machine, ContextSource::Thread);
            for number in numbers {
                let found = register(machine, number);
                let crate::RegisterSlot::Integer(slot) = found.slot else { panic!("{found:?}") };
                assert_eq!(context.machine, machine);
                assert_eq!(Context::register_name(machine, slot), Some(found.name), "{number}");
            }
        }
        assert_eq!(register(Machine::X64, 5).shift, 8);
        assert_eq!(register(Machine::X64, 9999).slot, crate::RegisterSlot::Unknown);
    }
}
