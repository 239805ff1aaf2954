//! Epilogs: there the unwind codes no longer hold, so the rest of the epilog is carried out.
//!
//! The legal form ("x64 prolog and epilog", Microsoft): `add rsp,imm` or `lea rsp,[frame+disp]`,
//! pops, then `ret` or a jump out of the function.

use pe::FunctionEntry;
use target::{Context, MemoryExt, reg};

use super::{Lookup, find, parse, pop_return, stack_pointer, word};
use crate::source::{UnwindImage, UnwindSource};
use crate::step::StepError;

/// `add`, at most 16 pops of 2 bytes, and a jump fit.
const LONGEST: usize = 64;
const MAX_POPS: usize = 16;

pub(super) struct Epilog<'a> {
    pub(super) source: &'a dyn UnwindSource,
    pub(super) image: &'a UnwindImage,
    pub(super) entry: &'a FunctionEntry,
    pub(super) frame_register: u8,
}

/// What the epilog does before it leaves.
enum Adjust {
    None,
    Add(i64),
    Frame { register: u8, displacement: i64 },
}

impl Epilog<'_> {
    /// If the code at `ip` is the rest of an epilog, carries it out on `caller`, return address
    /// included, and says true.
    pub(super) fn simulate(
        &self,
        ip: u64,
        context: &Context,
        caller: &mut Context,
    ) -> Result<bool, StepError> {
        let bytes = self.code(ip);
        let Some((adjust, pops)) = self.recognise(ip, &bytes) else { return Ok(false) };
        match adjust {
            Adjust::None => {}
            Adjust::Add(size) => {
                let sp = stack_pointer(context)?;
                caller.set_sp(sp.wrapping_add_signed(size));
            }
            Adjust::Frame { register, displacement } => {
                let base = context
                    .get(usize::from(register))
                    .ok_or(StepError::RegisterUnknown("the frame register"))?;
                caller.set_sp(base.wrapping_add_signed(displacement));
            }
        }
        for register in pops {
            let sp = stack_pointer(caller)?;
            let value = word(self.source, sp)?;
            caller.set_sp(sp.wrapping_add(8));
            if usize::from(register) != reg::RSP {
                caller.set(usize::from(register), value);
            }
        }
        pop_return(self.source, caller)?;
        Ok(true)
    }

    fn code(&self, ip: u64) -> Vec<u8> {
        let (bytes, _) = self.source.memory().read_prefix(ip, LONGEST);
        if bytes.len() == LONGEST {
            return bytes;
        }
        let mut from_image = vec![0; LONGEST];
        let read = self.image.rva(ip).map_or(0, |rva| self.image.source.read_rva(rva, &mut from_image));
        from_image.truncate(read);
        if from_image.len() > bytes.len() { from_image } else { bytes }
    }

    fn recognise(&self, ip: u64, bytes: &[u8]) -> Option<(Adjust, Vec<u8>)> {
        let (adjust, mut at) = self.adjustment(bytes);
        let mut pops = Vec::new();
        loop {
            let rest = bytes.get(at..)?;
            match rest {
                [0x58..=0x5f, ..] => {
                    pops.push(rest[0] & 7);
                    at += 1;
                }
                [rex @ 0x40..=0x4f, second @ 0x58..=0x5f, ..] => {
                    pops.push((second & 7) | (rex & 1) << 3);
                    at += 2;
                }
                _ => break,
            }
            if pops.len() > MAX_POPS {
                return None;
            }
        }
        let leaving = bytes.get(at..)?;
        let jump = !matches!(leaving, [0xc3 | 0xc2, ..] | [0xf3, 0xc3, ..]);
        // A jump alone may as well lead to the cold part of the function (GCC gives it an entry of
        // its own); it ends an epilog only if the frame's first push was just undone.
        if jump && at == 0 && !self.frame_just_undone(ip) {
            return None;
        }
        self.leaves(ip.wrapping_add(at as u64), leaving).then_some((adjust, pops))
    }

    /// Whether the instruction before `ip` undoes what the prolog did first.
    fn frame_just_undone(&self, ip: u64) -> bool {
        let Ok(info) = parse(&*self.image.source, self.primary(*self.entry).unwind) else { return false };
        let Some(first) = info.codes.last() else { return true };
        let mut before = [0; 7];
        let Some(rva) = self.image.rva(ip).and_then(|rva| rva.checked_sub(7)) else { return false };
        let read = self.source.memory().read_exact(ip.wrapping_sub(7), &mut before).is_ok()
            || self.image.source.read_rva(rva, &mut before) == before.len();
        if !read {
            return false;
        }
        match first.operation {
            super::Operation::Push(register) if register >= 8 => {
                before.ends_with(&[0x41, 0x58 + (register & 7)])
            }
            super::Operation::Push(register) => before.ends_with(&[0x58 + register]),
            super::Operation::Allocate(size) => {
                let wide = size.to_le_bytes();
                before[3..6] == [0x48, 0x83, 0xc4] && before[6] == wide[0] && size < 0x80
                    || before[..3] == [0x48, 0x81, 0xc4] && before[3..] == wide
                    || size == 0x80 && before[3..] == [0x48, 0x83, 0xec, 0x80]
            }
            _ => false,
        }
    }

    fn adjustment(&self, bytes: &[u8]) -> (Adjust, usize) {
        let imm8 = |at: usize| bytes.get(at).map(|&b| i64::from(b as i8));
        let imm32 = |at: usize| {
            let raw = bytes.get(at..at + 4)?.try_into().ok()?;
            Some(i64::from(i32::from_le_bytes(raw)))
        };
        match *bytes {
            [0x48, 0x83, 0xc4, ..] => {
                if let Some(size) = imm8(3) {
                    return (Adjust::Add(size), 4);
                }
            }
            [0x48, 0x81, 0xc4, ..] => {
                if let Some(size) = imm32(3) {
                    return (Adjust::Add(size), 7);
                }
            }
            [rex @ (0x48 | 0x49), 0x8d, modrm, ..] if modrm & 0x38 == 0x20 && self.frame_register != 0 => {
                let register = (modrm & 7) | (rex & 1) << 3;
                // r12 as a base takes a SIB byte.
                let sib = usize::from(modrm & 7 == 4);
                let found = match modrm >> 6 {
                    0 if modrm & 7 != 5 => Some((0, 3 + sib)),
                    1 => imm8(3 + sib).map(|d| (d, 4 + sib)),
                    2 => imm32(3 + sib).map(|d| (d, 7 + sib)),
                    _ => None,
                };
                if let Some((displacement, length)) = found.filter(|_| register == self.frame_register) {
                    return (Adjust::Frame { register, displacement }, length);
                }
            }
            _ => {}
        }
        (Adjust::None, 0)
    }

    /// Whether the instruction at `at` leaves the function for good.
    fn leaves(&self, at: u64, bytes: &[u8]) -> bool {
        match *bytes {
            [0xc3 | 0xc2, ..] | [0xf3, 0xc3, ..] => true,
            [0xeb, distance, ..] => {
                self.is_tail_call(at.wrapping_add(2).wrapping_add_signed(i64::from(distance as i8)))
            }
            [0xe9, a, b, c, d, ..] => {
                let distance = i64::from(i32::from_le_bytes([a, b, c, d]));
                self.is_tail_call(at.wrapping_add(5).wrapping_add_signed(distance))
            }
            // Indirect jumps: behind an undone frame they are tail calls, not jump tables.
            [0xff, modrm, ..] | [0x3e | 0x40..=0x4f, 0xff, modrm, ..] => modrm & 0x38 == 0x20,
            _ => false,
        }
    }

    /// A jump out of the function that is not to another part of it.
    fn is_tail_call(&self, target: u64) -> bool {
        let Some(rva) = self.image.rva(target) else { return true };
        if rva == self.entry.begin {
            // A self tail call, unless this entry is the cold part of another function.
            return parse(&*self.image.source, self.entry.unwind).is_ok_and(|info| info.parent.is_none());
        }
        if rva > self.entry.begin && rva < self.entry.end {
            return false;
        }
        let Lookup::Entry(other) = find(self.image, rva) else { return true };
        self.primary(*other).begin != self.primary(*self.entry).begin
    }

    /// The entry at the end of a chain.
    fn primary(&self, mut entry: FunctionEntry) -> FunctionEntry {
        for _ in 0..super::MAX_CHAIN {
            match parse(&*self.image.source, entry.unwind) {
                Ok(super::Info { parent: Some(parent), .. }) => entry = parent,
                _ => break,
            }
        }
        entry
    }
}
