//! Kernel dumps whose every answer is known, because the test built them: both machines, every type.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::{Duration, Instant};

use dumpforge::{
    BuiltStack, DumpType, FrameSpec, Function, Image, ImageBuilder, KernelForge, Mapping, ProcessHandle,
    ThreadState,
};
use engine_native::{OpenOptions, open, open_bytes};
use target::{
    Context, ContextOf, ContextSource, Found, Halt, Machine, MemoryExt, Selection, Space, Target, TargetExt,
    Unreadable, View, WalkEnd, reg,
};

const DRIVER: u64 = 0xffff_f803_4000_0000;
const USER_DATA: u64 = 0x12_3450_0000;

struct Forged {
    forge: KernelForge,
    application: ProcessHandle,
    running: (u64, BuiltStack),
    waiting: (u64, BuiltStack),
}

fn halt() -> Halt {
    Halt::within(Duration::from_secs(20))
}

fn image(machine: Machine, name: &str) -> Image {
    ImageBuilder::new(machine, name).function(Function::new("Work").locals(0x40).exported()).build()
}

/// A kernel with a driver, two processors, System and one application.
fn forged(machine: Machine) -> Forged {
    let mut forge = KernelForge::new(machine);
    let driver = image(machine, "worker.sys");
    forge.add_driver(&driver, DRIVER, r"\SystemRoot\system32\drivers\worker.sys");
    forge.add_unloaded_driver("gone.sys", 0xffff_f803_5000_0000, 0xffff_f803_5000_8000);
    forge.bug_check = (0xd1, [1, 2, 3, 4]);
    let (kernel, base) = (forge.kernel.clone(), forge.kernel_base);
    let system = forge.system_process();
    let application = forge.add_process("app.exe", 0x1234);
    let program = image(machine, "app.exe");
    forge.add_user_module(application, &program, r"C:\app.exe");
    forge.write_user(application, USER_DATA, b"of the application");
    let crash = [
        FrameSpec::inside(&kernel, base, "KeBugCheckEx"),
        FrameSpec::calling(&driver, DRIVER, "Work"),
        FrameSpec::calling(&kernel, base, "IofCallDriver"),
        FrameSpec::calling(&kernel, base, "PspSystemThreadStartup"),
    ];
    let wait = [
        FrameSpec::calling(&kernel, base, "KiSwapContext"),
        FrameSpec::calling(&kernel, base, "KiSwapThread"),
        FrameSpec::calling(&kernel, base, "PspSystemThreadStartup"),
    ];
    let running = forge.add_thread(system, 0x58, ThreadState::Running { processor: 0 }, &crash);
    forge.add_thread(application, 0x1238, ThreadState::Running { processor: 1 }, &wait);
    let waiting = forge.add_thread(application, 0x123c, ThreadState::Waiting { reason: 6 }, &wait);
    Forged { forge, application, running, waiting }
}

fn opened(forge: &mut KernelForge, kind: DumpType) -> Box<dyn Target> {
    open_bytes(forge.dump(kind).unwrap(), "forged.dmp", &OpenOptions::default()).unwrap()
}

fn expect_stack(target: &dyn Target, context: &Context, expected: &BuiltStack, what: &str) {
    let stack = target.stack(context, 64, &halt()).unwrap();
    let found: Vec<(u64, u64)> = stack.frames.iter().map(|f| (f.ip, f.sp)).collect();
    let wanted: Vec<(u64, u64)> = expected.frames.iter().map(|f| (f.ip, f.sp)).collect();
    assert_eq!(found, wanted, "{what}");
    assert_eq!(stack.end, WalkEnd::Outermost, "{what}");
    for (frame, expected) in stack.frames.iter().zip(&expected.frames).skip(1) {
        assert_eq!(frame.found, Found::Unwind, "{what}");
        for &(number, value) in &expected.registers {
            let ours = frame.context.as_ref().unwrap().get(number);
            assert_eq!(ours, Some(value), "{what}: register {number} at {:x}", frame.ip);
        }
    }
}

fn everything(machine: Machine, kind: DumpType) {
    let what = format!("{machine:?} {kind:?}");
    let mut f = forged(machine);
    let target = opened(&mut f.forge, kind);
    let facts = target.facts();
    assert_eq!((facts.machine, facts.processors), (machine, Some(2)), "{what}");
    assert_eq!(target.bug_check().unwrap().unwrap().code & 0xff, 0xd1, "{what}");
    let modules = target.modules().unwrap();
    let names: Vec<&str> = modules.iter().map(|m| m.name.as_str()).collect();
    assert_eq!(names[..2], ["nt", "worker"], "{what}");
    assert_eq!(target.unloaded_modules().unwrap()[0].image_name, "gone.sys", "{what}");
    let context = target.context(ContextOf::Selected, View::Default).unwrap().unwrap();
    assert_eq!(context.ip(), f.running.1.context.ip(), "{what}");
    let thread = target.current_kernel_thread().unwrap();
    assert_eq!(thread.object, f.running.0, "{what}");
    let process = target.process(thread.process).unwrap();
    assert_eq!((process.pid, process.name.as_str()), (4, "System"), "{what}");
    assert_eq!((thread.pid, thread.tid), (Some(4), Some(0x58)), "{what}");
    assert_eq!(target::conformance::check(target.as_ref()), [], "{what}");
    if kind == DumpType::Triage {
        return;
    }
    expect_stack(target.as_ref(), &context, &f.running.1, &what);
    processes(target.as_ref(), &f, &what);
    user_half(target.as_ref(), &f, &what);
}

fn processes(target: &dyn Target, f: &Forged, what: &str) {
    let all = target.processes(&halt()).unwrap();
    let rows: Vec<(u64, &str)> = all.iter().map(|p| (p.pid, p.name.as_str())).collect();
    assert_eq!(rows, [(4, "System"), (0x1234, "app.exe")], "{what}");
    let application = f.forge.process_object(f.application);
    assert_eq!(all[1].object, application, "{what}");
    let threads = target.kernel_threads(application, &halt()).unwrap();
    let ids: Vec<_> = threads.iter().map(|t| (t.tid, t.state, t.processor)).collect();
    assert_eq!(ids, [(Some(0x1238), Some(2), Some(1)), (Some(0x123c), Some(5), None)], "{what}");
    let context = target.context(ContextOf::KernelThread(f.waiting.0), View::Default).unwrap();
    if f.forge.machine != Machine::X64 {
        assert_eq!(context, None, "{what}");
        return;
    }
    let context = context.unwrap();
    assert_eq!(context.source, ContextSource::SwitchFrame);
    assert_eq!(context.get(reg::RBX), None, "{what}");
    let stack = target.stack(&context, 16, &halt()).unwrap();
    let ips: Vec<u64> = stack.frames.iter().map(|f| f.ip).collect();
    let wanted: Vec<u64> = f.waiting.1.frames.iter().map(|f| f.ip).collect();
    assert_eq!(ips, wanted, "{what}: the waiting thread");
}

fn user_half(target: &dyn Target, f: &Forged, what: &str) {
    assert!(target.read_u8(USER_DATA).is_err(), "{what}: System has no user memory");
    assert!(target.module_named("app").unwrap().is_none(), "{what}");
    let before = target.selection();
    let application = f.forge.process_object(f.application);
    target.select(Selection { process: Some(application), ..before }).unwrap();
    assert_eq!(target.read_array::<18>(USER_DATA).unwrap(), *b"of the application", "{what}");
    let module = target.module_named("app").unwrap().unwrap_or_else(|| panic!("{what}: no user module"));
    assert_eq!(module.user_mode, Some(true), "{what}");
    assert!(target.read_u16(module.base).is_ok(), "{what}");
    target.select(before).unwrap();
    assert!(target.read_u8(USER_DATA).is_err(), "{what}: the selection was restored");
    // Its own thread's processor shows it too.
    target.select(Selection { processor: Some(1), ..before }).unwrap();
    assert!(target.read_u8(USER_DATA).is_ok(), "{what}");
    target.select(before).unwrap();
}

#[test]
fn every_type_of_both_machines() {
    for machine in [Machine::X64, Machine::Arm64] {
        for kind in DumpType::ALL {
            everything(machine, kind);
        }
    }
}

#[test]
fn an_encoded_debugger_block_is_read_without_symbols() {
    let mut f = forged(Machine::X64);
    f.forge.encode = Some((0x1f2e_3d4c_5b6a_7989, 0x0123_4567_89ab_cdef));
    let target = opened(&mut f.forge, DumpType::BitmapKernel);
    assert_eq!(target.processes(&halt()).unwrap().len(), 2);
    let context = target.context(ContextOf::Selected, View::Default).unwrap().unwrap();
    expect_stack(target.as_ref(), &context, &f.running.1, "encoded");
}

#[test]
fn five_level_tables_are_recognised() {
    let mut f = forged(Machine::X64);
    // A fifth level above the tables there are: both halves lead to them.
    let top = f.forge.memory.allocate() << 12;
    let below = f.forge.system.root | 0x63;
    for index in [0u64, 511] {
        f.forge.memory.write(top + 8 * index, &below.to_le_bytes());
    }
    let system = f.forge.process_object(f.forge.system_process());
    f.forge.write_u64(system + 0x28, top | 2);
    let mut bytes = f.forge.dump(DumpType::BitmapFull).unwrap();
    bytes[0x10..0x18].copy_from_slice(&(top | 2).to_le_bytes());
    let target = open_bytes(bytes, "la57.dmp", &OpenOptions::default()).unwrap();
    assert_eq!(target.modules().unwrap()[0].name, "nt");
    let context = target.context(ContextOf::Selected, View::Default).unwrap().unwrap();
    expect_stack(target.as_ref(), &context, &f.running.1, "five levels");
    let root = Space::Root(top);
    let mut byte = [0];
    assert_eq!(target.read(root, f.forge.symbol("NtBuildLab"), &mut byte).stopped, None);
    assert_eq!(&byte, b"1");
}

#[test]
fn pages_in_every_state() {
    let mut f = forged(Machine::X64);
    let at = 0xffff_a600_0000_0000u64;
    f.forge.map(at, Mapping::Transition);
    f.forge.write(at, b"transition");
    f.forge.map(at + 0x1000, Mapping::PageFile { file: 2, offset: 0x77 });
    f.forge.map(at + 0x2000, Mapping::DemandZero);
    f.forge.map(at + 0x3000, Mapping::PrototypeVad);
    f.forge.map(at + 0x4000, Mapping::Hole);
    f.forge.map(at + 0x20_0000, Mapping::Large2M);
    f.forge.write(at + 0x20_1234, b"large");
    let target = opened(&mut f.forge, DumpType::Ranges);
    let why = |address| target.read_u8(address).unwrap_err().why;
    assert_eq!(target.read_array::<10>(at).unwrap(), *b"transition");
    assert_eq!(why(at + 0x1000), Unreadable::PagedOut { file: 2, offset: 0x77 });
    assert_eq!(why(at + 0x2000), Unreadable::DemandZero);
    assert_eq!(why(at + 0x3000), Unreadable::NotPresent);
    assert_eq!(why(at + 0x4000), Unreadable::NotInDump);
    assert_eq!(target.read_array::<5>(at + 0x20_1234).unwrap(), *b"large");
    assert_eq!(why(0x8000_0000_0000), Unreadable::NonCanonical);
    let (bytes, stopped) = target.read_prefix(at, 0x2000);
    assert_eq!((bytes.len(), stopped), (0x1000, Some(Unreadable::PagedOut { file: 2, offset: 0x77 })));
}

#[test]
fn types_from_an_isf_replace_guesses() {
    let mut f = forged(Machine::X64);
    let folder = tempfile::tempdir().unwrap();
    let text = dumpforge::isf::isf(&f.forge.kernel, &f.forge.layout);
    std::fs::write(folder.path().join("ntkrnlmp.json"), text).unwrap();
    let path = folder.path().join("kernel.dmp");
    std::fs::write(&path, f.forge.dump(DumpType::Full).unwrap()).unwrap();
    let target = open(&path, &OpenOptions::default()).unwrap();
    let head = target.resolve("nt!PsActiveProcessHead").unwrap();
    assert_eq!(head[0].address, f.forge.symbol("PsActiveProcessHead"));
    let processes = target.processes(&halt()).unwrap();
    assert_eq!(processes.len(), 2);
    assert!(!processes[1].wow64 && !processes[1].exited);
    assert_eq!(processes[1].parent_pid, Some(4));
    let layout = target.type_layout("nt!_EPROCESS").unwrap();
    assert!(layout.fields.iter().any(|f| f.name == "ActiveProcessLinks" && f.offset == 0x448));
}

/// Resident memory of this process in bytes, where the system tells.
fn resident() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    text.split_whitespace().nth(1)?.parse::<u64>().ok().map(|pages| pages * 4096)
}

#[test]
fn a_large_dump_is_mapped_not_read() {
    let mut f = forged(Machine::X64);
    f.forge.zero_frames = 0x10_0000..0x20_0000;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.dmp");
    let mut file = std::fs::File::create(&path).unwrap();
    f.forge.write_dump(DumpType::BitmapFull, &mut file).unwrap();
    let before = resident();
    let start = Instant::now();
    let target = open(&path, &OpenOptions::default()).unwrap();
    assert_eq!(target.processes(&halt()).unwrap().len(), 2);
    let elapsed = start.elapsed();
    assert!(std::fs::metadata(&path).unwrap().len() > 4 << 30);
    assert!(elapsed < Duration::from_secs(2), "{elapsed:?}");
    if let (Some(before), Some(after)) = (before, resident()) {
        assert!(after.saturating_sub(before) < 100 << 20, "{} bytes more", after - before);
    }
}

#[test]
fn session_space_is_read_through_a_process_of_the_session() {
    let mut f = forged(Machine::X64);
    // A stretch of kernel addresses that only the application's tables map.
    let session = 0xffff_f900_0000_1000u64;
    let space = f.forge.process_space(f.application);
    space.write(&mut f.forge.memory, session, b"session");
    // The forge gives every process the system's kernel half when it writes the dump: put the
    // process's own root entry back into the file.
    let slot = space.root + 8 * (session >> 39 & 0x1ff);
    let entry = f.forge.memory.read(slot, 8);
    let mut bytes = f.forge.dump(DumpType::BitmapFull).unwrap();
    let root = f.forge.memory.read(space.root, 0x1000);
    let page =
        (0..bytes.len() / 0x1000).map(|n| n * 0x1000).find(|&at| bytes[at..at + 0x1000] == root[..]).unwrap();
    let at = page + usize::try_from(slot & 0xfff).unwrap();
    bytes[at..at + 8].copy_from_slice(&entry);
    let target = open_bytes(bytes, "session.dmp", &OpenOptions::default()).unwrap();
    assert_eq!(target.read_u8(session).unwrap_err().why, Unreadable::NotPresent);
    let application = f.forge.process_object(f.application);
    target.select(Selection { process: Some(application), ..target.selection() }).unwrap();
    assert_eq!(target.read_array::<7>(session).unwrap(), *b"session");
}
