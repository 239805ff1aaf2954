//! x64 unwind data against the code it describes: prologs and epilogs are emulated instruction by
//! instruction, and at each boundary one step must give back what the caller had.
#![allow(clippy::unwrap_used)]

mod support;

use std::time::{Duration, Instant};

use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};
use pe::{ExceptionTable, FunctionEntry, ImageSourceExt};
use support::{OneImage, RETURN_ADDRESS, data};
use target::{Context, ContextSource, Halt, Machine, reg};
use unwind::{step, walk, x64};

const STACK: u64 = 0x50_0000_0000;
const NON_VOLATILE: [usize; 8] = [reg::RBX, reg::RBP, reg::RSI, reg::RDI, 12, 13, 14, 15];

fn start(target: &OneImage) -> Context {
    let mut context = Context::new(Machine::X64, ContextSource::Thread);
    for number in 0..16 {
        context.set(number, 0xabc0_0000_0000 + number as u64 * 0x1111);
    }
    context.set_sp(STACK);
    target.write(STACK, RETURN_ADDRESS, 8);
    context
}

fn fetch(target: &OneImage, address: u64) -> iced_x86::Instruction {
    let mut bytes = [0; 15];
    let read = pe::ImageSource::read_rva(&*target.image, (address - target.base) as u32, &mut bytes);
    Decoder::with_ip(64, &bytes[..read], address, DecoderOptions::NONE).decode()
}

/// Carries out what prologs and epilogs do; of anything else, spoils the registers it writes.
fn execute(target: &OneImage, context: &mut Context, i: &iced_x86::Instruction) {
    let number = |r: Register| r.full_register().number();
    let value = |c: &Context, r: Register| {
        if r == Register::None { 0 } else { c.get(number(r)).unwrap_or(0) }
    };
    let effective = |c: &Context| {
        value(c, i.memory_base())
            .wrapping_add(value(c, i.memory_index()).wrapping_mul(u64::from(i.memory_index_scale())))
            .wrapping_add(i.memory_displacement64())
    };
    let (k0, k1) = (i.op0_kind(), i.op1_kind());
    let gpr0 = k0 == OpKind::Register && i.op0_register().is_gpr();
    let gpr1 = k1 == OpKind::Register && i.op1_register().is_gpr();
    match i.mnemonic() {
        Mnemonic::Push if gpr0 => {
            let v = value(context, i.op0_register());
            context.set_sp(context.sp() - 8);
            target.write(context.sp(), v, 8);
        }
        Mnemonic::Pop if gpr0 => {
            let v = target.read_value(context.sp());
            context.set_sp(context.sp() + 8);
            context.set(number(i.op0_register()), v);
        }
        Mnemonic::Sub | Mnemonic::Add if i.op0_register() == Register::RSP => {
            let amount =
                if gpr1 { value(context, i.op1_register()) } else { i.try_immediate(1).unwrap_or(0) };
            let sp = context.sp();
            context.set_sp(if i.mnemonic() == Mnemonic::Sub {
                sp.wrapping_sub(amount)
            } else {
                sp.wrapping_add(amount)
            });
        }
        Mnemonic::Lea => {
            let address = effective(context);
            context.set(number(i.op0_register()), address);
        }
        Mnemonic::Mov if gpr0 && gpr1 => {
            let v = value(context, i.op1_register());
            context.set(number(i.op0_register()), v);
        }
        Mnemonic::Mov if k0 == OpKind::Memory && gpr1 => {
            let v = value(context, i.op1_register());
            target.write(effective(context), v, i.op1_register().size());
        }
        Mnemonic::Mov if gpr0 && k1 == OpKind::Memory && i.memory_base() == Register::RSP => {
            let v = target.read_value(effective(context));
            context.set(number(i.op0_register()), v);
        }
        Mnemonic::Mov if gpr0 && i.op1_kind() != OpKind::Memory && !gpr1 => {
            let v = if i.op_count() == 2 && i.op1_kind() != OpKind::Register {
                i.try_immediate(1).unwrap_or(0)
            } else {
                0
            };
            context.set(number(i.op0_register()), v);
        }
        // Only __chkstk is called in a prolog; it keeps rax.
        Mnemonic::Call => {}
        _ => {
            let mut factory = InstructionInfoFactory::new();
            for used in factory.info(i).used_registers() {
                let writes = matches!(used.access(), OpAccess::Write | OpAccess::ReadWrite);
                if writes && used.register().is_gpr() && used.register().full_register() != Register::RSP {
                    context.set(number(used.register()), 0xdead_0000_dead);
                }
            }
        }
    }
}

fn check(target: &OneImage, context: &Context, ip: u64, original: &Context, what: &str) {
    let mut here = context.clone();
    here.set_ip(ip);
    let rva = ip - target.base;
    let found = step(target, &here, 0, true).unwrap_or_else(|e| panic!("{what} at {rva:#x}: {e}"));
    assert_eq!(found.context.ip(), RETURN_ADDRESS, "{what} at {rva:#x}: return address");
    assert_eq!(found.context.sp(), STACK + 8, "{what} at {rva:#x}: rsp");
    for number in NON_VOLATILE {
        let name = Context::register_name(Machine::X64, number).unwrap();
        assert_eq!(found.context.get(number), original.get(number), "{what} at {rva:#x}: {name}");
    }
    assert_eq!(found.context.get(reg::RAX), None);
}

/// Emulates the prolog of `entry` (its parents' first), checking at each boundary of its own.
fn run_prolog(target: &OneImage, entry: &FunctionEntry, context: &mut Context, checked: Option<&mut usize>) {
    let info = x64::parse(&*target.image, entry.unwind).unwrap();
    if let Some(parent) = info.parent {
        run_prolog(target, &parent, context, None);
    }
    let original = start(target);
    let begin = target.base + u64::from(entry.begin);
    let mut ip = begin;
    let mut count = 0;
    while ip - begin < u64::from(info.prolog_size) {
        if checked.is_some() {
            check(target, context, ip, &original, "prolog");
            count += 1;
        }
        let i = fetch(target, ip);
        assert!(!i.is_invalid());
        execute(target, context, &i);
        ip = i.next_ip();
    }
    if let Some(checked) = checked {
        check(target, context, ip, &original, "end of prolog");
        *checked += count + 1;
    }
}

/// Runs of `add rsp`/`lea rsp`/`mov rsp`, pops and a return or a jump out of the function, as
/// `(start, end)`, and the starts of all other instructions behind the prolog.
fn epilogs(target: &OneImage, entry: &FunctionEntry, prolog: u8) -> (Vec<(u64, u64)>, Vec<u64>) {
    let (mut out, mut body) = (Vec::new(), Vec::new());
    let mut run: Vec<u64> = Vec::new();
    let begin = target.base + u64::from(entry.begin);
    let end = target.base + u64::from(entry.end);
    let mut ip = begin + u64::from(prolog);
    while ip < end {
        let i = fetch(target, ip);
        if i.is_invalid() {
            break;
        }
        let adjusts = matches!(i.mnemonic(), Mnemonic::Add | Mnemonic::Sub | Mnemonic::Lea | Mnemonic::Mov)
            && i.op0_kind() == OpKind::Register
            && i.op0_register() == Register::RSP;
        let leaves = i.mnemonic() == Mnemonic::Ret
            || i.mnemonic() == Mnemonic::Jmp
                && (i.op0_kind() != OpKind::NearBranch64 || !(begin..end).contains(&i.near_branch_target()));
        if leaves && (i.mnemonic() == Mnemonic::Ret || !run.is_empty()) {
            out.push((run.first().copied().unwrap_or(ip), ip));
            run.clear();
        } else if adjusts || i.mnemonic() == Mnemonic::Pop {
            run.push(ip);
        } else {
            body.append(&mut run);
            body.push(ip);
        }
        ip = i.next_ip();
    }
    (out, body)
}

fn check_image(name: &str) -> (usize, usize, usize) {
    let Some(data) = data() else { return (0, 0, 0) };
    let target = OneImage::open(&data.join(name));
    let image: &dyn pe::ImageSource = &*target.image;
    let table = ExceptionTable::new(image, Machine::X64, target.directory.0, target.directory.1).unwrap();
    let (mut prolog, mut epilog, mut bodies, mut functions) = (0, 0, 0, 0);
    for index in 0..table.len() {
        let entry = table.get(index).unwrap();
        if entry.begin == 0 {
            continue;
        }
        let info = x64::parse(image, entry.unwind).unwrap();
        if info.prolog_size == 0 && info.parent.is_none() && !info.codes.is_empty() {
            continue; // the cold part of another function: entered with its frame
        }
        functions += 1;
        target.stack.borrow_mut().clear();
        let original = start(&target);
        let mut context = original.clone();
        run_prolog(&target, &entry, &mut context, Some(&mut prolog));
        let size = x64::parse(&*target.image, entry.unwind).unwrap().prolog_size;
        let (runs, body) = epilogs(&target, &entry, size);
        for &ip in &body {
            check(&target, &context, ip, &original, "body");
        }
        bodies += body.len();
        for (at, end) in runs {
            // A function that restores with movs before its epilog: emulate those too.
            let mut state = context.clone();
            let info = x64::parse(&*target.image, entry.unwind).unwrap();
            for code in info.codes {
                if let x64::Operation::Save { register, .. } = code.operation {
                    state.set(usize::from(register), original.get(usize::from(register)).unwrap());
                }
            }
            // `mov rsp,r11`: r11 was computed in the body, to point below the pops.
            let first = fetch(&target, at);
            if first.mnemonic() == Mnemonic::Mov {
                let pops = std::iter::successors(Some(first), |i| Some(fetch(&target, i.next_ip())))
                    .skip(1)
                    .take_while(|i| i.mnemonic() == Mnemonic::Pop)
                    .count() as u64;
                state.set(first.op1_register().number(), STACK - 8 * pops);
            }
            let mut ip = at;
            loop {
                check(&target, &state, ip, &original, "epilog");
                epilog += 1;
                let i = fetch(&target, ip);
                if ip == end {
                    break;
                }
                execute(&target, &mut state, &i);
                ip = i.next_ip();
            }
        }
    }
    println!("{name}: {functions} functions, {prolog} prolog, {bodies} body and {epilog} epilog positions");
    (functions, prolog, epilog)
}

#[test]
fn acceptance_19_x64_prologs_and_epilogs_match_their_codes() {
    if data().is_none() {
        return;
    }
    for (name, at_least) in [("pe/ms_seh/x64/xcpt4.exe", 100), ("pe/ms_seh/x64/nested_collided.exe", 10)] {
        let (functions, prolog, epilog) = check_image(name);
        assert!(functions >= at_least && prolog > functions && epilog > 0, "{name}: {functions}");
    }
    check_image("user/cxx_eh_x64/CrashWithException.exe");
}

#[test]
fn acceptance_18_a_chained_loop_ends() {
    let Some(data) = data() else { return };
    let mut target = OneImage::open(&data.join("pe/cfi_chained_loop.exe"));
    // The entry covers 1000..2000, beyond the SizeOfImage the headers admit to.
    target.size = target.size.max(0x2000);
    let began = Instant::now();
    let mut damaged = 0;
    let ips = target.size as u32;
    for rva in 0..ips {
        target.stack.borrow_mut().clear();
        let mut context = start(&target);
        for index in 0..64 {
            target.write(STACK + 8 * index, target.base + u64::from(rva), 8);
        }
        context.set_ip(target.base + u64::from(rva));
        let one = Instant::now();
        let stack = walk(&target, &context, 1024, &Halt::unbounded());
        assert!(one.elapsed() < Duration::from_millis(100), "{rva:#x}");
        assert!(!stack.frames.is_empty());
        damaged += usize::from(stack.end == target::WalkEnd::Lost("damaged unwind data"));
    }
    assert!(damaged > 0, "the loop was never met");
    println!("{ips} ips in {:?}, {damaged} met the loop", began.elapsed());
    assert!(target.image.u16(0).is_some());
}
