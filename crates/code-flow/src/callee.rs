//! What a call or jump goes to.

use code::record::{Family, Operand, Operation, Register, Transfer};
use code::{Decoded, Recorder};
use target::Machine;

use crate::image::CodeImage;
use crate::imports::ImportSlot;
use crate::listing::Listing;

/// Where a transfer leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Callee<'i> {
    /// An import: through its slot, a thunk of this image, or rewritten by the loader to a direct
    /// transfer.
    Import(&'i ImportSlot),
    /// A direct target.
    Address(u64),
    /// A register or memory that is no import slot.
    Indirect,
}

/// The instruction at `address`, decoded from the image. Short bytes before a hole that decode to
/// nothing are [`Transfer::Unreadable`], not undecodable.
#[must_use]
pub fn decode_at(image: &CodeImage<'_>, recorder: &mut Recorder, address: u64) -> Decoded {
    let mut bytes = [0; code::MAX_INSTRUCTION];
    let read = image.read(address, &mut bytes);
    if read == 0 {
        return Decoded::unreadable(image.machine, address);
    }
    let mut out = recorder.record(address, &bytes[..read]);
    if out.transfer == Transfer::Undecodable && read < bytes.len() && cut(image, address, read) {
        out.transfer = Transfer::Unreadable;
    }
    out
}

/// Whether the bytes end at a hole rather than at the end of their section or of the image.
fn cut(image: &CodeImage<'_>, address: u64, read: usize) -> bool {
    image.section_at(address.wrapping_add(read as u64)).is_some()
}

/// Where `instruction`, a call or jump, leads.
#[must_use]
pub fn callee<'i>(image: &'i CodeImage<'_>, instruction: &Decoded) -> Callee<'i> {
    match instruction.transfer {
        Transfer::Call(Some(target)) | Transfer::Jump(Some(target)) | Transfer::Branch(Some(target)) => {
            direct(image, target)
        }
        Transfer::Call(None) | Transfer::Jump(None) => {
            match slot_operand(instruction).and_then(|slot| image.imports().at_slot(slot)) {
                Some(import) => Callee::Import(import),
                None => Callee::Indirect,
            }
        }
        _ => Callee::Indirect,
    }
}

/// Where the call or jump at `site` of a listing leads: [`callee`], and through registers that
/// straight-line code loaded from an import's slot (ARM64's only way).
#[must_use]
pub fn callee_in<'i>(image: &'i CodeImage<'_>, listing: &Listing, site: u64) -> Callee<'i> {
    let Some(instruction) = listing.instructions.get(&site) else { return Callee::Indirect };
    match callee(image, instruction) {
        Callee::Indirect => {
            let Some(through @ Operand::Register(_)) = through(image, instruction) else {
                return Callee::Indirect;
            };
            let window = listing.straight_before(site, 16);
            let slot = crate::structural::loaded_from(image, &window, &through);
            match slot.and_then(|slot| image.imports().at_slot(slot)) {
                Some(import) => Callee::Import(import),
                None => Callee::Indirect,
            }
        }
        found => found,
    }
}

/// The register an indirect transfer goes through that the loader of a live kernel has made a direct
/// one: to a thunk named `..guard_retpoline_switchtable_jump_rax`, `.._indirect_rcx`, `.._import_r10`.
#[must_use]
pub fn retpoline(image: &CodeImage<'_>, target: u64) -> Option<Register> {
    if image.contains(target) {
        return None;
    }
    let (_, name) = image.names().bound(target)?;
    let (_, what) = name.split_once("guard_retpoline_")?;
    let register =
        ["switchtable_jump_", "indirect_", "import_"].iter().find_map(|kind| what.strip_prefix(kind))?;
    (0..16).map(|number| Register::general(number, 64)).find(|have| have.name(Machine::X64) == register)
}

/// The register or memory a transfer really goes through: its operand, or what a retpoline hides.
pub(crate) fn through(image: &CodeImage<'_>, transfer: &Decoded) -> Option<Operand> {
    match transfer.operands.first()? {
        Operand::Target(target) => retpoline(image, *target).map(Operand::Register),
        operand => Some(*operand),
    }
}

/// Where a direct transfer to `target` leads.
#[must_use]
pub fn direct<'i>(image: &'i CodeImage<'_>, target: u64) -> Callee<'i> {
    if !image.contains(target) {
        if retpoline(image, target).is_some() {
            return Callee::Indirect;
        }
        return match image.bound_import(target) {
            Some(import) => Callee::Import(import),
            None => Callee::Address(target),
        };
    }
    match thunk(image, target) {
        Some(import) => Callee::Import(import),
        None => Callee::Address(target),
    }
}

/// The slot an indirect transfer goes through, where its operand is an address.
#[must_use]
pub fn slot_operand(instruction: &Decoded) -> Option<u64> {
    match instruction.operands.first()? {
        Operand::Memory(memory) => memory.address,
        _ => None,
    }
}

/// The import a thunk at `address` jumps to: `jmp [slot]`, ARM64 `adrp x16; ldr x16, [x16]; br x16`.
#[must_use]
pub fn thunk<'i>(image: &'i CodeImage<'_>, address: u64) -> Option<&'i ImportSlot> {
    if image.imports().slots.is_empty() {
        return None;
    }
    if image.machine == Machine::Arm64 {
        return arm64_thunk(image, address);
    }
    // Cheap first: FF 25, with an optional REX or BND prefix.
    let mut head = [0; 3];
    let read = image.read(address, &mut head);
    if !head[..read].windows(2).any(|pair| pair == [0xff, 0x25]) {
        return None;
    }
    let instruction = decode_at(image, &mut Recorder::new(image.machine), address);
    match instruction.transfer {
        Transfer::Jump(None) => image.imports().at_slot(slot_operand(&instruction)?),
        _ => None,
    }
}

fn arm64_thunk<'i>(image: &'i CodeImage<'_>, address: u64) -> Option<&'i ImportSlot> {
    let mut recorder = Recorder::new(image.machine);
    let first = decode_at(image, &mut recorder, address);
    if first.operation != Operation::Address {
        return None;
    }
    let page = first.sources().first()?.memory()?.address?;
    let second = decode_at(image, &mut recorder, first.end());
    let load = second.sources().first()?.memory()?;
    let third = decode_at(image, &mut recorder, second.end());
    let register = |decoded: &Decoded| decoded.destination().and_then(Operand::register);
    let same = register(&first).map(|r| r.family) == load.base.map(|r| r.family)
        && register(&second).map(|r| r.family) == jump_register(&third);
    let plain = second.operation == Operation::Move && load.index.is_none();
    (same && plain).then(|| image.imports().at_slot(page.wrapping_add_signed(load.displacement))).flatten()
}

fn jump_register(instruction: &Decoded) -> Option<Family> {
    match instruction.transfer {
        Transfer::Jump(None) => instruction.operands.first()?.register().map(|register| register.family),
        _ => None,
    }
}
