//! Calls after which control does not come back: decoding on would run into padding or tables.

use code::record::Transfer;
use code::{Decoded, Mention, Scanned, Scanner};

use crate::callee::{Callee, direct, slot_operand};
use crate::image::CodeImage;
use crate::imports::ImportSlot;

/// Functions that do not return, wherever they are.
const NAMES: [&str; 12] = [
    "KeBugCheck",
    "KeBugCheckEx",
    "RtlRaiseStatus",
    "ExRaiseStatus",
    "ExRaiseAccessViolation",
    "RtlFailFast",
    "RtlFailFast2",
    "__fastfail",
    "__report_gsfailure",
    "_purecall",
    "ExitProcess",
    "RtlExitUserThread",
];
/// How deep a function's own no-return calls are looked at.
const MAX_DEPTH: u32 = 2;
/// Instructions looked at before a function is taken to return.
const MAX_LOOK: usize = 256;
/// Bytes of a path read at once.
const CHUNK: usize = 96;
/// Most functions remembered.
const MAX_REMEMBERED: usize = 1 << 18;

fn named(name: &str) -> bool {
    let bare = name.trim_start_matches('_').split('@').next().unwrap_or(name);
    NAMES.iter().any(|known| *known == name || known.trim_start_matches('_') == bare)
}

/// Whether some path from `entry` may come to a return: false where every path ends in a call that
/// does not come back, a trap or a loop.
#[must_use]
pub fn may_return(image: &CodeImage<'_>, entry: u64) -> bool {
    function_returns(image, entry, 0)
}

/// Whether control never comes back from this call.
pub(crate) fn never_returns(image: &CodeImage<'_>, call: &Decoded) -> bool {
    match call.transfer.target() {
        Some(target) => !target_returns(image, target),
        None => slot_operand(call).and_then(|slot| image.imports().at_slot(slot)).is_some_and(import_ends),
    }
}

/// The same of a lightly decoded call.
pub(crate) fn scanned_never_returns(image: &CodeImage<'_>, call: &Scanned) -> bool {
    ends(image, call, 0)
}

/// Whether a direct call of `target` comes back.
fn target_returns(image: &CodeImage<'_>, target: u64) -> bool {
    match direct(image, target) {
        Callee::Import(import) => !import_ends(import),
        Callee::Address(target) => function_returns(image, target, 0),
        Callee::Indirect => true,
    }
}

fn import_ends(import: &ImportSlot) -> bool {
    import.name.as_deref().is_some_and(named)
}

fn function_returns(image: &CodeImage<'_>, entry: u64, depth: u32) -> bool {
    if let Some(known) = image.returns.borrow().get(&entry) {
        return *known;
    }
    if image.names().at(entry).is_some_and(|name| named(&name)) {
        return false;
    }
    if !image.contains(entry) || depth > MAX_DEPTH {
        return true;
    }
    // A call of itself on the way says nothing: assume it returns.
    remember(image, entry, true);
    let returns = some_path_returns(image, entry, depth);
    // What was cut off by the depth is not remembered as an answer for shallower questions.
    if depth == 0 || !returns {
        remember(image, entry, returns);
    } else {
        image.returns.borrow_mut().remove(&entry);
    }
    returns
}

fn remember(image: &CodeImage<'_>, entry: u64, returns: bool) {
    let mut known = image.returns.borrow_mut();
    if known.len() >= MAX_REMEMBERED {
        known.clear();
    }
    known.insert(entry, returns);
}

/// Instructions of one path, decoded a straight run at a time.
struct Ahead<'i, 'a> {
    image: &'i CodeImage<'a>,
    run: Vec<Scanned>,
    next: usize,
}

impl Ahead<'_, '_> {
    fn at(&mut self, address: u64) -> Scanned {
        if self.run.get(self.next).is_none_or(|instruction| instruction.address != address) {
            self.read(address);
        }
        self.next += 1;
        self.run[self.next - 1]
    }

    /// Decodes from `address` to the end of the straight run, at least one instruction.
    fn read(&mut self, address: u64) {
        let mut bytes = [0; CHUNK];
        let read = self.image.read(address, &mut bytes);
        let mut scanner = Scanner::new(self.image.machine, address, &bytes[..read]);
        self.run.clear();
        self.next = 0;
        let mut offset = 0;
        loop {
            let instruction = scanner.at(offset, read);
            self.run.push(instruction);
            offset += usize::from(instruction.length);
            if !instruction.transfer.falls_through() || offset + code::MAX_INSTRUCTION > read {
                return;
            }
        }
    }
}

/// Whether some path from `entry` reaches a return, something unknown, or the end of the look.
fn some_path_returns(image: &CodeImage<'_>, entry: u64, depth: u32) -> bool {
    let mut ahead = Ahead { image, run: Vec::new(), next: 0 };
    // Few addresses: a list is faster than a set.
    let mut seen: Vec<u64> = Vec::new();
    let mut queue = vec![entry];
    while let Some(mut at) = queue.pop() {
        while !seen.contains(&at) {
            if seen.len() >= MAX_LOOK {
                return true;
            }
            seen.push(at);
            let instruction = ahead.at(at);
            match instruction.transfer {
                Transfer::Return | Transfer::Unreadable | Transfer::Undecodable => return true,
                Transfer::Trap => break,
                Transfer::Branch(Some(target)) => queue.push(target),
                Transfer::Branch(None) => return true,
                Transfer::Jump(Some(target)) if image.contains(target) => {
                    at = target;
                    continue;
                }
                Transfer::Jump(_) if ends(image, &instruction, depth) => break,
                Transfer::Jump(_) => return true,
                Transfer::Call(_) if ends(image, &instruction, depth) => break,
                Transfer::Call(_) | Transfer::Fallthrough => {}
            }
            at = instruction.end();
        }
    }
    false
}

/// Whether a call or jump goes to something that does not return.
fn ends(image: &CodeImage<'_>, transfer: &Scanned, depth: u32) -> bool {
    match transfer.transfer.target() {
        Some(target) if target == transfer.end() => false,
        Some(target) => match direct(image, target) {
            Callee::Import(import) => import_ends(import),
            Callee::Address(target) => !function_returns(image, target, depth + 1),
            Callee::Indirect => false,
        },
        None => {
            let mut slot = None;
            transfer.mentions(|address, mention| {
                if mention == Mention::Accessed {
                    slot = Some(address);
                }
            });
            slot.and_then(|slot| image.imports().at_slot(slot)).is_some_and(import_ends)
        }
    }
}
