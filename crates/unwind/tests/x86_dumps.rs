//! x86 walks against what DbgEng printed for the same dumps.
#![allow(clippy::unwrap_used)]

mod support;

use std::path::Path;

use pdb2::FallibleIterator;
use support::data;
use support::minidump::Dump;
use target::{Context, Found, Halt, Machine, WalkEnd};
use unwind::{FrameProgram, ProgramKind, RawStack, walk};

/// FrameData records of a PDB, RVAs in `start` and `end`.
fn frame_data(path: &Path) -> Vec<FrameProgram> {
    let mut pdb = pdb2::PDB::open(std::fs::File::open(path).unwrap()).unwrap();
    let map = pdb.address_map().unwrap();
    let strings = pdb.string_table().unwrap();
    let table = pdb.frame_table().unwrap();
    let mut out = Vec::new();
    let mut iter = table.iter();
    while let Some(f) = iter.next().unwrap() {
        let Some(rva) = f.code_start.to_rva(&map) else { continue };
        let kind = match f.program {
            Some(p) => ProgramKind::FrameData(strings.get(p).unwrap().to_string().into_owned()),
            None => ProgramKind::Fpo {
                saved_registers: (f.saved_regs_size / 4) as u8,
                uses_ebp: f.uses_base_pointer,
                frame_type: 0,
            },
        };
        out.push(FrameProgram {
            start: u64::from(rva.0),
            end: u64::from(rva.0) + u64::from(f.code_size),
            locals: f.locals_size,
            parameters: f.params_size,
            saved_registers: u32::from(f.saved_regs_size),
            prolog: u32::from(f.prolog_size),
            kind,
        });
    }
    out
}

/// The oracle's stacks of one command: `(ChildEBP, RetAddr)` of physical frames.
fn oracle(text: &str, command: &str, nth: usize) -> Vec<Vec<(u64, u64)>> {
    let mut stacks = Vec::new();
    let sections: Vec<&str> = text.split("\n---- ").filter(|s| s.lines().next() == Some(command)).collect();
    for line in sections[nth].lines() {
        if line.starts_with("ChildEBP") {
            stacks.push(Vec::new());
        }
        let mut words = line.split(' ');
        let number =
            |w: Option<&str>| w.filter(|w| w.len() == 8).and_then(|w| u64::from_str_radix(w, 16).ok());
        if let (Some(child), Some(ret), Some(stack)) =
            (number(words.next()), number(words.next()), stacks.last_mut())
        {
            stack.push((child, ret));
        }
    }
    stacks
}

fn ips(stack: &RawStack) -> Vec<u64> {
    stack.frames.iter().map(|f| f.context.ip()).collect()
}

/// Walks from `context` and wants exactly the oracle's frames.
fn same(dump: &Dump, context: &Context, expected: &[(u64, u64)], what: &str) -> RawStack {
    let stack = walk(dump, context, 1024, &Halt::unbounded());
    let mut want = vec![context.ip()];
    want.extend(expected.iter().map(|f| f.1));
    let ended = want.pop();
    assert_eq!(ended, Some(0), "{what}: the oracle's last frame");
    // Stack words that the oracle shows as frames though no module is there.
    let artefact = want.iter().skip(1).position(|&ip| unwind::UnwindSource::image_at(dump, ip).is_none());
    if let Some(artefact) = artefact {
        want.truncate(artefact + 1);
    }
    let hex = |v: &[u64]| v.iter().map(|a| format!("{a:08x}")).collect::<Vec<_>>();
    assert_eq!(hex(&ips(&stack)), hex(&want), "{what}: {:?} {:?}", stack.end, stack.limitations);
    assert_eq!(stack.end == WalkEnd::Outermost, artefact.is_none(), "{what}: {:?}", stack.limitations);
    stack
}

fn open(name: &str) -> Option<(Dump, String)> {
    let data = data()?;
    let transcript = data.join("oracle").join(format!("{}.txt", name.replace('/', "_")));
    Some((Dump::open(&data.join(name)), std::fs::read_to_string(transcript).unwrap()))
}

#[test]
fn chains_without_symbols() {
    for name in ["user/bp_exec_av_on_stack.dmp", "user/bp_null_read_av.dmp"] {
        let Some((dump, text)) = open(name) else { return };
        same(&dump, dump.exception.as_ref().unwrap(), &oracle(&text, "k", 1)[0], name);
        for ((id, context), expected) in dump.threads.iter().zip(oracle(&text, "~*k", 0)) {
            same(&dump, context.as_ref().unwrap(), &expected, &format!("{name} thread {id:x}"));
        }
    }
}

#[test]
fn a_hang_with_extended_contexts() {
    let name = "user/bp_tiny-exe-with-cet-xsave-x86.dmp";
    let Some((dump, text)) = open(name) else { return };
    for ((id, context), expected) in dump.threads.iter().zip(oracle(&text, "~*k", 0)) {
        same(&dump, context.as_ref().unwrap(), &expected, &format!("{name} thread {id:x}"));
    }
}

#[test]
fn a_stack_overflow_is_walked_to_its_end() {
    let name = "user/bp_stack_exhaustion.dmp.xz";
    let Some((dump, text)) = open(name) else { return };
    let expected = &oracle(&text, "k", 1)[0];
    let stack = walk(&dump, dump.exception.as_ref().unwrap(), 4096, &Halt::unbounded());
    let want: Vec<u64> = expected.iter().map(|f| f.1).collect();
    // The oracle stops at its own limit; as far as it goes it agrees.
    let got = &ips(&stack)[1..];
    let shared = want.len().min(got.len());
    assert!(shared >= 200, "{shared}");
    assert_eq!(got[..shared], want[..shared]);
    assert!(got.iter().filter(|&&ip| ip == 0x00de_a6a7).count() >= 200);
}

#[test]
fn an_old_dump_without_code_bytes() {
    let name = "user/bp_minidump2.dmp";
    let Some((dump, text)) = open(name) else { return };
    let (_, context) = &dump.threads[0];
    same(&dump, context.as_ref().unwrap(), &oracle(&text, "~*k", 0)[0], name);
    // The oracle gives up at the faulting frame; its ebp does lead on.
    let stack = walk(&dump, dump.exception.as_ref().unwrap(), 64, &Halt::unbounded());
    assert_eq!(stack.frames[0].context.ip(), 0x40429e);
    println!("{:x?} {:?}", ips(&stack), stack.end);
}

#[test]
fn frame_data_then_the_chain() {
    let Some((mut dump, text)) = open("user/crash_x86/crash_x86.dmp") else { return };
    let folder = data().unwrap().join("user/crash_x86");
    dump.add_image("crash.exe", &folder.join("crash.exe"));
    let base = dump.module("crash.exe");
    dump.programs.push((base, frame_data(&folder.join("crash.pdb"))));
    let stack = same(&dump, dump.exception.as_ref().unwrap(), &oracle(&text, "k", 1)[0], ".ecxr");
    // ChildEBP of the oracle is one word below the return address, which is VFRAME here.
    let frame = unwind::x86::virtual_frame(&dump, dump.exception.as_ref().unwrap(), true);
    assert_eq!(frame, Some(0x010f_f73c));
    let found: Vec<Found> = stack.frames.iter().map(|f| f.found).collect();
    assert_eq!(found[..3], [Found::Context, Found::Fpo, Found::Fpo]);
    assert!(found[3..].iter().all(|f| *f == Found::FramePointer));
    let threads = oracle(&text, "~*k", 0);
    for ((id, context), expected) in dump.threads.iter().zip(threads).skip(1).take(2) {
        same(&dump, context.as_ref().unwrap(), &expected, &format!("thread {id:x}"));
    }
    // In thread 3 ebp is no frame pointer. The oracle stops; on top of the stack of a system call
    // stub (`ret 8`) is the return address, so there is one frame more.
    let stack = walk(&dump, dump.threads[3].1.as_ref().unwrap(), 64, &Halt::unbounded());
    assert_eq!(ips(&stack), [0x771df3dc, 0x76e75dc0]);
    assert_eq!(stack.frames[1].found, Found::Leaf);
    // Thread 0 ran into the handler: where the oracle takes a stack address for a return address
    // and shows a frame at 10ff054, the search goes on to the call in the handler.
    let stack = walk(&dump, dump.threads[0].1.as_ref().unwrap(), 64, &Halt::unbounded());
    println!("{:x?} {:?} {:?}", ips(&stack), stack.end, stack.limitations);
    let got = ips(&stack);
    assert_eq!(got[..3], [0x771de59c, 0x76e7aeb2, 0x002a20c7]);
    assert!(!got.contains(&0x010ff054));
    for shared in [0x76f0d492, 0x7720dff0, 0x771d0f44] {
        assert!(got.contains(&shared), "{shared:x}");
    }
}

#[test]
fn a_wow64_process_by_frame_data() {
    let Some((mut dump, text)) = open("user/kd_wow64_release/wow64_release_full_mdmp.dmp.xz") else { return };
    let folder = data().unwrap().join("user/kd_wow64_release");
    let base = dump.module("targetapp.exe");
    dump.programs.push((base, frame_data(&folder.join("targetapp.pdb"))));
    let expected = oracle(&text, "~*k", 0);
    let context = dump.threads[0].1.as_ref().unwrap().truncated_to_x86();
    assert_eq!(context.machine, Machine::X86);
    let stack = same(&dump, &context, &expected[0], "thread 0");
    assert_eq!(stack.frames[1].found, Found::Fpo);
    // The WoW64 CPU area of thread 1 (spec 80 section 15, case 13).
    let mut context = Context::new(Machine::X86, target::ContextSource::Wow64CpuArea);
    context.set_ip(0x7723_c58c);
    context.set_sp(0x98_f748);
    context.set_fp(0x98_f900);
    same(&dump, &context, &expected[1], "thread 1");
    let guesses = unwind::scan(&dump, &context, 64, &Halt::unbounded());
    assert!(guesses.iter().all(|f| f.found == Found::Scan && f.context.fp().is_none()));
    let found: Vec<u64> = guesses.iter().map(|f| f.context.ip()).collect();
    // The scan meets the callers that the chain found, and the one it stepped over.
    assert!(found.contains(&0x740a_8484) && found.contains(&0x7723_3ab8), "{found:x?}");
    assert!(found[0] != 0x740a_8484, "{found:x?}");
}
