//! Unwind codes: each undoes one prolog instruction.

/// What one code undoes, innermost first. Offsets and sizes in bytes; general registers are 19..=30,
/// vector registers d8..d15 are 8..=15 (Windows saves their low halves).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Allocate(u32),
    /// Registers at `sp + offset`, then `sp += release` (a pre-indexed save allocates).
    Save {
        first: u8,
        second: Option<u8>,
        offset: u32,
        release: u32,
    },
    SaveVector {
        first: u8,
        second: Option<u8>,
        offset: u32,
        release: u32,
    },
    /// `mov x29, sp`.
    SetFrame,
    /// `add x29, sp, #n`.
    AddFrame(u32),
    /// An instruction without effect on the frame.
    Nothing,
    /// `pacibsp`: the return address is signed.
    Authenticate,
    End,
    /// Here this fragment's prolog ends; what follows describes the parent's.
    EndOfProlog,
    /// sp and pc at `sp`.
    MachineFrame,
    /// A CONTEXT record at `sp`.
    Context,
    Unsupported(&'static str),
}

const LR: u8 = 30;
const FP: u8 = 29;
/// Most codes of one record: its words are counted in 8 bits.
const MAX_CODES: usize = 1024;

fn pair(first: u8, offset: u32, release: u32) -> Operation {
    Operation::Save { first, second: Some(first + 1), offset, release }
}
fn single(first: u8, offset: u32, release: u32) -> Operation {
    Operation::Save { first, second: None, offset, release }
}
fn vector(first: u8, paired: bool, offset: u32, release: u32) -> Operation {
    Operation::SaveVector { first, second: paired.then_some(first + 1), offset, release }
}

/// One code at the start of `bytes` and its length. `None` when the bytes end inside it.
fn one(bytes: &[u8]) -> Option<(Operation, usize)> {
    let b0 = *bytes.first()?;
    let low = u32::from(b0);
    let second = || bytes.get(1).map(|&b| u32::from(b));
    let z6 = |b: u32| (b & 0x3f) * 8;
    let z5 = |b: u32| ((b & 0x1f) + 1) * 8;
    // Register index in the last two or three bits of the first byte and the first of the second.
    let x4 = |b: u32| ((low & 3) << 2 | b >> 6) as u8;
    let x3 = |b: u32| ((low & 1) << 2 | b >> 6) as u8;
    Some(match b0 {
        0x00..=0x1f => (Operation::Allocate((low & 0x1f) * 16), 1),
        0x20..=0x3f => (pair(19, 0, (low & 0x1f) * 8), 1),
        0x40..=0x7f => (pair(FP, z6(low), 0), 1),
        0x80..=0xbf => (pair(FP, 0, z6(low) + 8), 1),
        0xc0..=0xc7 => (Operation::Allocate(((low & 7) << 8 | second()?) * 16), 2),
        0xc8..=0xcb => (general(19 + x4(second()?), true, z6(second()?), 0), 2),
        0xcc..=0xcf => (general(19 + x4(second()?), true, 0, z6(second()?) + 8), 2),
        0xd0..=0xd3 => (general(19 + x4(second()?), false, z6(second()?), 0), 2),
        0xd4..=0xd5 => {
            let b = second()?;
            (general(19 + ((low & 1) << 3 | b >> 5) as u8, false, 0, z5(b)), 2)
        }
        0xd6..=0xd7 => {
            let first = 19 + 2 * x3(second()?);
            let save = Operation::Save { first, second: Some(LR), offset: z6(second()?), release: 0 };
            (if first < FP { save } else { Operation::Unsupported(BAD_REGISTER) }, 2)
        }
        0xd8..=0xd9 => (vector(8 + x3(second()?), true, z6(second()?), 0), 2),
        0xda..=0xdb => (vector(8 + x3(second()?), true, 0, z6(second()?) + 8), 2),
        0xdc..=0xdd => (vector(8 + x3(second()?), false, z6(second()?), 0), 2),
        0xde => {
            let b = second()?;
            (vector(8 + (b >> 5) as u8, false, 0, z5(b)), 2)
        }
        0xe0 => {
            let size = second()? << 16 | u32::from(*bytes.get(2)?) << 8 | u32::from(*bytes.get(3)?);
            (Operation::Allocate(size.saturating_mul(16)), 4)
        }
        0xe1 => (Operation::SetFrame, 1),
        0xe2 => (Operation::AddFrame(second()? * 8), 2),
        0xe3 => (Operation::Nothing, 1),
        0xe4 => (Operation::End, 1),
        0xe5 => (Operation::EndOfProlog, 1),
        0xe7 => (any_register(second()?, u32::from(*bytes.get(2)?)), 3),
        0xe8 => (Operation::Unsupported("it holds a trap frame, whose layout is not known"), 1),
        0xe9 => (Operation::MachineFrame, 1),
        0xea | 0xeb => (Operation::Context, 1),
        0xec => (Operation::Nothing, 1),
        0xfc => (Operation::Authenticate, 1),
        0xf8 => (Operation::Unsupported(RESERVED), 2),
        0xf9 => (Operation::Unsupported(RESERVED), 3),
        0xfa => (Operation::Unsupported(RESERVED), 4),
        0xfb => (Operation::Unsupported(RESERVED), 5),
        _ => (Operation::Unsupported(RESERVED), 1),
    })
}

const RESERVED: &str = "it has a reserved unwind code";
const BAD_REGISTER: &str = "it saves a register that does not exist";

fn general(first: u8, paired: bool, offset: u32, release: u32) -> Operation {
    match first + u8::from(paired) {
        0..=30 if paired => pair(first, offset, release),
        0..=30 => single(first, offset, release),
        _ => Operation::Unsupported(BAD_REGISTER),
    }
}

/// `save_any_reg`: `11100111'0pxrrrrr'ffoooooo`; p pair, x pre-indexed, f 0 general 1 d 2 q.
fn any_register(second: u32, third: u32) -> Operation {
    if second & 0x80 != 0 {
        return Operation::Unsupported(RESERVED);
    }
    let (paired, indexed) = (second & 0x40 != 0, second & 0x20 != 0);
    let register = (second & 0x1f) as u8;
    let kind = third >> 6;
    let scale = if kind == 2 || paired || indexed { 16 } else { 8 };
    let value = (third & 0x3f) * scale;
    let (offset, release) = if indexed { (0, value + 16) } else { (value, 0) };
    match kind {
        0 => general(register, paired, offset, release),
        1 | 2 => vector(register, paired, offset, release),
        _ => Operation::Unsupported(RESERVED),
    }
}

/// Decodes codes up to the end of `bytes`, each with its byte index. `save_next` is resolved by the
/// save it continues, which follows it.
#[must_use]
pub fn decode_codes(bytes: &[u8]) -> Vec<(usize, Operation)> {
    let mut out: Vec<(usize, Operation)> = Vec::new();
    let mut pending: Vec<usize> = Vec::new();
    let mut at = 0;
    while at < bytes.len() && out.len() < MAX_CODES {
        if bytes[at] == 0xe6 {
            pending.push(out.len());
            out.push((at, Operation::Unsupported("a save_next continues no save")));
            at += 1;
            continue;
        }
        let Some((operation, length)) = one(&bytes[at..]) else { break };
        // The save_next nearest to the save is the pair right above it.
        for (distance, &slot) in pending.iter().rev().enumerate() {
            out[slot].1 = next_pair(operation, distance as u32 + 1);
        }
        pending.clear();
        out.push((at, operation));
        at += length;
    }
    out
}

/// The pair stored `distance` pairs above `save`.
fn next_pair(save: Operation, distance: u32) -> Operation {
    let step = 2 * distance as u8;
    let bad = Operation::Unsupported("a save_next continues no save");
    match save {
        Operation::Save { first, second: Some(second), offset, .. } if second == first + 1 => {
            match first.checked_add(step) {
                Some(register) => general(register, true, offset + 16 * distance, 0),
                None => bad,
            }
        }
        Operation::SaveVector { first, second: Some(_), offset, .. } => match first.checked_add(step) {
            Some(register) if register < 31 => vector(register, true, offset + 16 * distance, 0),
            _ => bad,
        },
        _ => bad,
    }
}
