//! Calls after which control does not come back: decoding on would run into padding or tables.

use std::collections::HashSet;

use code::record::Transfer;
use code::{Decoded, Recorder};

use crate::callee::{Callee, callee, decode_at, direct};
use crate::image::CodeImage;

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
/// Most functions remembered.
const MAX_REMEMBERED: usize = 1 << 18;

fn named(name: &str) -> bool {
    let bare = name.trim_start_matches('_').split('@').next().unwrap_or(name);
    NAMES.iter().any(|known| *known == name || known.trim_start_matches('_') == bare)
}

/// Whether control never comes back from this call.
pub(crate) fn never_returns(image: &CodeImage<'_>, call: &Decoded) -> bool {
    match callee(image, call) {
        Callee::Import(import) => import.name.as_deref().is_some_and(named),
        Callee::Address(target) => !function_returns(image, target, 0),
        Callee::Indirect => false,
    }
}

fn function_returns(image: &CodeImage<'_>, entry: u64, depth: u32) -> bool {
    if image.names().at(entry).is_some_and(|name| named(&name)) {
        return false;
    }
    if !image.contains(entry) || depth > MAX_DEPTH {
        return true;
    }
    if let Some(known) = image.returns.borrow().get(&entry) {
        return *known;
    }
    // A call of itself on the way says nothing: assume it returns.
    remember(image, entry, true);
    let returns = some_path_returns(image, entry, depth);
    remember(image, entry, returns);
    returns
}

fn remember(image: &CodeImage<'_>, entry: u64, returns: bool) {
    let mut known = image.returns.borrow_mut();
    if known.len() >= MAX_REMEMBERED {
        known.clear();
    }
    known.insert(entry, returns);
}

/// Whether some path from `entry` reaches a return, something unknown, or the end of the look.
fn some_path_returns(image: &CodeImage<'_>, entry: u64, depth: u32) -> bool {
    let mut recorder = Recorder::new(image.machine);
    let mut seen = HashSet::new();
    let mut queue = vec![entry];
    while let Some(mut at) = queue.pop() {
        while seen.insert(at) {
            if seen.len() > MAX_LOOK {
                return true;
            }
            let instruction = decode_at(image, &mut recorder, at);
            match instruction.transfer {
                Transfer::Return | Transfer::Unreadable | Transfer::Undecodable => return true,
                Transfer::Trap => break,
                Transfer::Branch(Some(target)) => queue.push(target),
                Transfer::Branch(None) => return true,
                Transfer::Jump(_) => match tail(image, &instruction) {
                    Tail::Within(target) => {
                        at = target;
                        continue;
                    }
                    Tail::Ends => break,
                    Tail::Returns => return true,
                },
                Transfer::Call(_) if call_ends(image, &instruction, depth) => break,
                Transfer::Call(_) | Transfer::Fallthrough => {}
            }
            at = instruction.end();
        }
    }
    false
}

enum Tail {
    Within(u64),
    Ends,
    Returns,
}

fn tail(image: &CodeImage<'_>, jump: &Decoded) -> Tail {
    match callee(image, jump) {
        Callee::Import(import) if import.name.as_deref().is_some_and(named) => Tail::Ends,
        Callee::Address(target) if image.contains(target) => Tail::Within(target),
        _ => Tail::Returns,
    }
}

fn call_ends(image: &CodeImage<'_>, call: &Decoded, depth: u32) -> bool {
    match call.transfer.target().map(|target| direct(image, target)) {
        Some(Callee::Address(target)) => target != call.end() && !function_returns(image, target, depth + 1),
        Some(Callee::Import(import)) => import.name.as_deref().is_some_and(named),
        _ => match callee(image, call) {
            Callee::Import(import) => import.name.as_deref().is_some_and(named),
            _ => false,
        },
    }
}
