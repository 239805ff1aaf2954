//! ARM64 unwind data against the code it describes: prologs and epilogs are emulated instruction by
//! instruction, and at each position one step must give back what the caller had.
#![allow(clippy::unwrap_used)]

mod support;

use code::{Addressing, Arm64, decode_arm64};
use pe::{ExceptionTable, ImageSourceExt};
use support::{OneImage, RETURN_ADDRESS, data};
use target::{Context, ContextSource, Machine, reg};
use unwind::{arm64, step};

const STACK: u64 = 0x50_0000_0000;

fn start() -> Context {
    let mut context = Context::new(Machine::Arm64, ContextSource::Thread);
    for number in 0..=29 {
        context.set(number, 0xabc0_0000_0000 + number as u64 * 0x1111);
    }
    context.set(reg::A64_LR, RETURN_ADDRESS);
    context.set_sp(STACK);
    context
}

/// `__security_push_cookie` and `__security_pop_cookie` move their caller's sp: what a `bl` in a
/// prolog or epilog to one of them does to it.
fn cookie_call(target: &OneImage, rva: u32) -> i64 {
    let moves = |i: Arm64| match i {
        Arm64::AddImmediate { destination: 31, source: 31, immediate, .. } => immediate,
        _ => 0,
    };
    let body: Vec<Arm64> = (0..12)
        .map(|i| decode_arm64(target.image.u32(rva + i * 4).unwrap_or(0)))
        .take_while(|i| !matches!(i, Arm64::Return { .. }))
        .collect();
    let has_frame = |i: &Arm64| match i {
        Arm64::Memory(m) => matches!(m.addressing, Addressing::PreIndex(_)),
        other => other.is_call(),
    };
    let returns = body.len() < 12;
    if !returns || body.iter().any(has_frame) { 0 } else { body.into_iter().map(moves).sum() }
}

/// Carries out one instruction as far as frames go.
fn execute(target: &OneImage, context: &mut Context, instruction: Arm64) {
    let number = |n: u8| if n == 31 { reg::A64_SP } else { usize::from(n) };
    match instruction {
        Arm64::AddImmediate { destination, source, immediate, flags: false, .. } => {
            let value = context.get(number(source)).unwrap_or(0).wrapping_add_signed(immediate);
            context.set(number(destination), value);
        }
        Arm64::AddExtended { destination, source, index, shift, subtract } => {
            let amount = context.get(usize::from(index)).unwrap_or(0) << shift;
            let value = context.get(number(source)).unwrap_or(0);
            let value = if subtract { value.wrapping_sub(amount) } else { value.wrapping_add(amount) };
            context.set(number(destination), value);
        }
        Arm64::Move { destination, source } => {
            let value = if source == 31 { 0 } else { context.get(usize::from(source)).unwrap_or(0) };
            context.set(usize::from(destination), value);
        }
        Arm64::MoveImmediate { destination, value } => context.set(usize::from(destination), value),
        Arm64::MoveKeep { destination, value, shift } => {
            let old = context.get(usize::from(destination)).unwrap_or(0);
            let new = old & !(0xffff << shift) | u64::from(value) << shift;
            context.set(usize::from(destination), new);
        }
        Arm64::Memory(m) => {
            let base = context.get(number(m.base)).unwrap_or(0);
            let (address, after) = match m.addressing {
                Addressing::Offset(o) => (base.wrapping_add_signed(o), base),
                Addressing::PreIndex(o) => (base.wrapping_add_signed(o), base.wrapping_add_signed(o)),
                Addressing::PostIndex(o) => (base, base.wrapping_add_signed(o)),
                Addressing::Register { .. } => return,
            };
            for (index, register) in [Some(m.first), m.second].into_iter().flatten().enumerate() {
                let at = address + u64::from(m.size) * index as u64;
                if m.store {
                    let value = if m.vector { 0 } else { context.get(usize::from(register)).unwrap_or(0) };
                    target.write(at, value, usize::from(m.size).min(8));
                } else if !m.vector && register != 31 && m.size == 8 {
                    context.set(usize::from(register), target.read_value(at));
                }
            }
            context.set(number(m.base), after);
        }
        Arm64::BranchLink { offset } => {
            let callee = (context.ip() - target.base).wrapping_add_signed(offset) as u32;
            context.set_sp(context.sp().wrapping_add_signed(cookie_call(target, callee)));
        }
        _ => {}
    }
}

fn check(target: &OneImage, context: &Context, rva: u32, what: &str) {
    let mut here = context.clone();
    here.set_ip(target.base + u64::from(rva));
    let found = step(target, &here, 0, true).unwrap_or_else(|e| panic!("{what} at {rva:#x}: {e}"));
    assert_eq!(found.context.ip(), RETURN_ADDRESS, "{what} at {rva:#x}: return address");
    assert_eq!(found.context.sp(), STACK, "{what} at {rva:#x}: sp");
    let original = start();
    for number in 19..=29 {
        assert_eq!(found.context.get(number), original.get(number), "{what} at {rva:#x}: x{number}");
    }
    assert_eq!(found.context.get(0), None);
}

struct Counts {
    functions: usize,
    fragments: usize,
    prolog: usize,
    body: usize,
    epilog: usize,
}

fn check_image(target: &OneImage) -> Counts {
    let image: &dyn pe::ImageSource = &*target.image;
    let (rva, size) = target.directory;
    let table = ExceptionTable::new(image, Machine::Arm64, rva, size).unwrap();
    let mut counts = Counts { functions: 0, fragments: 0, prolog: 0, body: 0, epilog: 0 };
    for index in 0..table.len() {
        let entry = table.get(index).unwrap();
        if entry.begin == 0 {
            continue;
        }
        let record = arm64::record(image, &entry).unwrap_or_else(|e| panic!("{:#x}: {e}", entry.begin));
        let fragment = record.prolog_length as usize != record.operations.len() || entry.unwind & 3 == 2;
        if fragment {
            // Its prolog is another entry's; nothing to run it from.
            counts.fragments += 1;
            continue;
        }
        let moves_callers_sp = record.prolog_length < 3 && cookie_call(target, entry.begin) != 0;
        if moves_callers_sp {
            continue;
        }
        counts.functions += 1;
        target.stack.borrow_mut().clear();
        let word = |position: u32| decode_arm64(image.u32(entry.begin + position * 4).unwrap());
        let mut context = start();
        for position in 0..record.prolog_length {
            check(target, &context, entry.begin + position * 4, "prolog");
            context.set_ip(target.base + u64::from(entry.begin + position * 4));
            execute(target, &mut context, word(position));
            counts.prolog += 1;
        }
        let mut position = record.prolog_length;
        let length = record.length / 4;
        while position < length {
            let rva = entry.begin + position * 4;
            let epilog = record.epilogs.iter().find(|e| e.start == position);
            let Some(epilog) = epilog else {
                check(target, &context, rva, "body");
                counts.body += 1;
                // Behind `mov fp, sp` a body may still move sp.
                if let moves @ (Arm64::BranchLink { .. }
                | Arm64::AddImmediate { destination: 31, source: 31, .. }) = word(position)
                {
                    context.set_ip(target.base + u64::from(rva));
                    execute(target, &mut context, moves);
                }
                position += 1;
                continue;
            };
            let mut state = context.clone();
            for step in 0..=epilog.operations.len() as u32 {
                check(target, &state, rva + step * 4, "epilog");
                state.set_ip(target.base + u64::from(rva + step * 4));
                execute(target, &mut state, word(position + step));
                counts.epilog += 1;
            }
            position += epilog.operations.len() as u32 + 1;
        }
    }
    counts
}

#[test]
fn acceptance_19_arm64_prologs_and_epilogs_match_their_codes() {
    let Some(data) = data() else { return };
    for (name, at_least) in [
        ("pe/ms_seh/ARM64/xcpt4.exe", 150),
        ("pe/ms_seh/ARM64/nested_collided.exe", 20),
        ("pe/arm64test.exe", 300),
    ] {
        let target = OneImage::open(&data.join(name));
        let counts = check_image(&target);
        println!(
            "{name}: {} functions ({} fragments apart), {} prolog, {} body and {} epilog positions",
            counts.functions, counts.fragments, counts.prolog, counts.body, counts.epilog
        );
        assert!(counts.functions >= at_least && counts.prolog > 0 && counts.epilog > 0);
    }
}
