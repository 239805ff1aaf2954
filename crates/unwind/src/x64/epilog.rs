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
        let bare = at == 0;
        self.leaves(ip.wrapping_add(at as u64), bytes.get(at..)?, bare).then_some((adjust, pops))
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

    /// Whether the instruction at `at` leaves the function for good. `bare`: nothing was undone
    /// before it in what is left of the epilog.
    fn leaves(&self, at: u64, bytes: &[u8], bare: bool) -> bool {
        match *bytes {
            [0xc3 | 0xc2, ..] | [0xf3, 0xc3, ..] => true,
            [0xeb, distance, ..] => {
                self.is_tail_call(at.wrapping_add(2).wrapping_add_signed(i64::from(distance as i8)))
            }
            [0xe9, a, b, c, d, ..] => {
                let distance = i64::from(i32::from_le_bytes([a, b, c, d]));
                self.is_tail_call(at.wrapping_add(5).wrapping_add_signed(distance))
            }
            // jmp [rip+disp]: an import. With REX.W any indirect jump, which only epilogs use.
            [0xff, 0x25, ..] => true,
            [0x48..=0x4f, 0xff, modrm, ..] => modrm & 0x38 == 0x20,
            // notrack jmp rax and the dispatch forms of control flow guard.
            [0x3e, 0xff, 0xe0, ..] => !bare,
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
        self.primary(*other) != self.primary(*self.entry)
    }

    /// Begin of the entry at the end of a chain.
    fn primary(&self, mut entry: FunctionEntry) -> u32 {
        for _ in 0..super::MAX_CHAIN {
            match parse(&*self.image.source, entry.unwind) {
                Ok(super::Info { parent: Some(parent), .. }) => entry = parent,
                _ => break,
            }
        }
        entry.begin
    }
}
