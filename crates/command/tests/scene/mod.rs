//! Scripted targets the layouts are shown on.

use target::scripted::ScriptedTarget;
use target::{
    Attribution, BugCheck, Context, ContextSource, ExceptionRecord, Field, Flow, Found, Frame, HexBytes,
    Instruction, KernelThread, Machine, Module, OsVersion, Process, ProcessFacts, SourceLine, StoredEvent,
    SymbolHit, SymbolKind, TargetKind, Thread, TypeKind, TypeLayout, TypeRef, UnloadedModule, reg,
};

fn context(machine: Machine, ip: u64, sp: u64) -> Context {
    let mut context = Context::new(machine, ContextSource::Thread);
    let registers = if machine == Machine::X86 { 8 } else { 16 };
    (0..registers).for_each(|n| context.set(n, 0x1000 + n as u64));
    context.set_ip(ip);
    context.set_sp(sp);
    context.set(reg::EFLAGS, 0x10246);
    for (number, value) in
        [(reg::CS, 0x33), (reg::SS, 0x2b), (reg::DS, 0x2b), (reg::ES, 0x2b), (reg::FS, 0x53), (reg::GS, 0x2b)]
    {
        context.set(number, value);
    }
    context
}

fn hit(module: &str, name: &str, address: u64) -> SymbolHit {
    SymbolHit {
        module: module.into(),
        name: name.into(),
        raw_name: None,
        address,
        displacement: 0,
        size: Some(0x20),
        kind: SymbolKind::Function,
    }
}

fn frame(ip: u64, sp: u64, return_address: u64, found: Found, symbol: Option<SymbolHit>) -> Frame {
    let attribution = match &symbol {
        Some(hit) => Attribution::Module { name: hit.module.clone(), base: 0x40_0000, rva: ip - 0x40_0000 },
        None => Attribution::NoModule { unloaded: None },
    };
    Frame { ip, sp, found, inline: false, attribution, symbol, source: None, context: None, return_address }
}

fn instruction(address: u64, bytes: &[u8], text: &str) -> Instruction {
    Instruction {
        address,
        bytes: HexBytes(bytes.to_vec()),
        text: Some(text.into()),
        target: None,
        flow: Flow::Next,
        data_address: None,
    }
}

fn base(name: &str, size: u64) -> TypeRef {
    TypeRef::Base { name: name.into(), size, signed: name.starts_with("Int"), float: false }
}

fn field(name: &str, offset: u64, ty: TypeRef) -> Field {
    Field { name: name.into(), offset, size: ty.size(), ty, bits: None, value: None, base_class: false }
}

fn layout(name: &str, kind: TypeKind, size: u64, fields: Vec<Field>) -> TypeLayout {
    TypeLayout { module: "app".into(), name: name.into(), kind, size, fields, ambiguous: 0 }
}

/// A list node with a nested structure of bit fields, an enumeration and a string.
fn types() -> [TypeLayout; 3] {
    let node = TypeRef::Named { name: "_NODE".into(), size: 0x28, kind: TypeKind::Struct };
    let flags = TypeRef::Named { name: "_FLAGS".into(), size: 4, kind: TypeKind::Struct };
    let colour = TypeRef::Named { name: "_COLOUR".into(), size: 4, kind: TypeKind::Enum };
    let text = TypeRef::Array { of: Box::new(base("UChar", 1)), count: 8, size: 8 };
    let low = Field { bits: Some((0, 4)), ..field("Low", 0, base("Uint4B", 4)) };
    let high = Field { bits: Some((4, 1)), ..field("High", 0, base("Uint4B", 4)) };
    let value = |name: &str, value| Field { value: Some(value), ..field(name, 0, base("Int4B", 4)) };
    [
        layout(
            "_NODE",
            TypeKind::Struct,
            0x28,
            vec![
                field("Next", 0, TypeRef::Pointer { to: Box::new(node), size: 8 }),
                field("Flags", 8, flags),
                field("Colour", 0xc, colour),
                field("Name", 0x10, text),
                field("Count", 0x18, base("Int4B", 4)),
                field("Far", 0x1000, base("Uint8B", 8)),
            ],
        ),
        layout("_FLAGS", TypeKind::Struct, 4, vec![low, high]),
        layout("_COLOUR", TypeKind::Enum, 4, vec![value("Red", 0), value("Green", 1)]),
    ]
}

fn memory() -> Vec<u8> {
    let mut bytes = b"A needle in 0123456789 haystack\0".to_vec();
    bytes.resize(0x100, 0);
    "wide text\0".encode_utf16().for_each(|u| bytes.extend(u.to_le_bytes()));
    bytes.resize(0x200, 0);
    bytes.extend(0x2200u64.to_le_bytes());
    bytes.extend(0x15u32.to_le_bytes());
    bytes.extend(1u32.to_le_bytes());
    bytes.extend(b"node\0\0\0\0");
    bytes.extend(0xffff_fffeu32.to_le_bytes());
    bytes.resize(0x300, 0);
    bytes
}

fn context_record() -> Vec<u8> {
    let mut bytes = vec![0; 0x4d0];
    bytes[0x30..0x34].copy_from_slice(&0x0010_0007u32.to_le_bytes());
    bytes[0x78..0x80].copy_from_slice(&0x1234u64.to_le_bytes());
    bytes[0x98..0xa0].copy_from_slice(&0x3000u64.to_le_bytes());
    bytes[0xf8..0x100].copy_from_slice(&0x40_1004u64.to_le_bytes());
    bytes
}

fn module(name: &str, base: u64) -> Module {
    Module {
        name: name.into(),
        image_name: format!("{name}.exe"),
        image_path: format!("C:\\bin\\{name}.exe"),
        base,
        size: 0x5000,
        timestamp: 0x5ab3_8077,
        checksum: 0x1234,
        pdb: None,
        user_mode: None,
        file_version: Some([10, 0, 17134, 1]),
    }
}

fn code() -> [Instruction; 4] {
    let mut call = instruction(0x40_1004, &[0xe8, 0x17, 0, 0, 0], "call 0000000000401020");
    call.flow = Flow::Call;
    call.target = Some(0x40_1020);
    let mut load =
        instruction(0x40_1009, &[0x48, 0x8b, 5, 0, 0, 0, 0], "mov rax,qword ptr [0000000000401020]");
    load.data_address = Some(0x40_1020);
    [
        instruction(0x40_1000, &[0x48, 0x83, 0xec, 0x28], "sub rsp,28h"),
        call,
        load,
        instruction(0x40_1010, &[0x48, 0x89, 0x4c, 0x24, 8], "mov qword ptr [rsp+8],rcx"),
    ]
}

pub(crate) fn user() -> ScriptedTarget {
    let thread = |index, system_id| Thread {
        index,
        system_id,
        process_id: Some(0x788),
        teb: Some(0x7_0000 + u64::from(index) * 0x1000),
        suspend_count: Some(1),
        start_address: Some(0x40_1000),
        priority: Some(8),
        event: index == 0,
        name: (index == 1).then(|| "helper".to_owned()),
        ..Thread::default()
    };
    let here = context(Machine::X64, 0x40_1010, 0x3000);
    let mut inline = frame(0x40_1010, 0x3000, 0, Found::Context, Some(hit("app", "Inlined", 0x40_100c)));
    inline.inline = true;
    let mut main = frame(0x40_1010, 0x3000, 0x40_1025, Found::Context, Some(hit("app", "main", 0x40_1000)));
    main.source = Some(SourceLine { file: "c:\\src\\main.cpp".into(), line: 42, displacement: 0 });
    main.context = Some(Box::new(here.clone()));
    let start = frame(0x40_1025, 0x3010, 0, Found::Unwind, Some(hit("app", "start", 0x40_1020)));
    let mut stack = 0x40_1025u64.to_le_bytes().to_vec();
    stack.extend([0x2000u64, 0x40_1000, 5, 6, 7].iter().flat_map(|w| w.to_le_bytes()));
    let record = ExceptionRecord {
        code: 0xc000_0005,
        address: 0x40_1010,
        parameters: vec![1, 0x45],
        ..ExceptionRecord::default()
    };
    let event = StoredEvent {
        thread: Some(0x100),
        record,
        first_chance: Some(false),
        context: Some(here.clone()),
        context_invalid: false,
    };
    let mut target = ScriptedTarget::new(Machine::X64)
        .with_facts(|facts| {
            facts.os = Some(OsVersion {
                major: 10,
                build: 17134,
                product: Some("server"),
                build_lab: Some("17134.1.amd64fre.rs4_release".into()),
                service_pack: Some("Service Pack 9".into()),
                ..OsVersion::default()
            });
            facts.processors = Some(4);
            facts.process = Some(ProcessFacts {
                pid: Some(0x788),
                name: Some("app.exe".into()),
                created: Some(1_613_871_500),
                peb: Some(0x6_0000),
            });
            if let Some(dump) = &mut facts.dump {
                dump.time = Some("2021-02-21T01:38:22.987Z".into());
                dump.uptime_ms = Some(90_061_001);
            }
        })
        .with_module_record(module("kernel32", 0x7f_0000_0000))
        .with_module_record(module("app", 0x40_0000))
        .with_unloaded(UnloadedModule {
            image_name: "gone.dll".into(),
            base: 0x50_0000,
            size: 0x1000,
            timestamp: 0,
            checksum: 0,
        })
        .with_symbol("app", "main", 0x40_1000)
        .with_symbol("app", "start", 0x40_1020)
        .with_thread(thread(0, 0x100), Some(here))
        .with_thread(thread(1, 0x200), Some(context(Machine::X64, 0x50_0010, 0x3000)))
        .with_memory(0x2000, memory())
        .with_memory(0x3000, stack)
        .with_memory(0x4000, context_record())
        .with_frames(vec![inline, main, start])
        .with_event(event);
    for layout in types() {
        target = target.with_type(layout);
    }
    for instruction in code() {
        target = target.with_instruction(instruction);
    }
    target
}

pub(crate) fn kernel() -> ScriptedTarget {
    let process = |object, pid, name: &str| Process {
        object,
        pid,
        parent_pid: Some(0),
        name: name.into(),
        directory_table_base: 0x1a_d000,
        peb: (pid != 4).then_some(0x6_0000),
        wow64: pid != 4,
        exited: false,
    };
    let thread = KernelThread {
        object: 0xffff_8000_0000_3000,
        process: 0xffff_8000_0000_1000,
        tid: Some(0x58),
        pid: Some(4),
        processor: Some(0),
        state: Some(2),
        wait_reason: None,
        irql: Some(2),
        stack_base: Some(0xffff_8000_0001_0000),
        stack_limit: Some(0xffff_8000_0000_a000),
        teb: None,
    };
    let waiting = KernelThread {
        object: 0xffff_8000_0000_4000,
        tid: Some(0x5c),
        state: Some(5),
        wait_reason: Some(15),
        ..thread.clone()
    };
    ScriptedTarget::new(Machine::X64)
        .with_facts(|facts| {
            facts.kind = TargetKind::KernelDump;
            facts.os = Some(OsVersion {
                major: 10,
                build: 19041,
                product: Some("workstation"),
                build_lab: Some("19041.1.amd64fre.vb_release.191206-1406".into()),
                ..OsVersion::default()
            });
            facts.processors = Some(1);
        })
        .with_module("nt", 0x40_0000, 0x10_0000)
        .with_symbol("nt", "KeBugCheckEx", 0x40_1000)
        .with_symbol("nt", "PsLoadedModuleList", 0x40_5000)
        .with_thread(
            Thread { thread_object: Some(thread.object), ..Thread::default() },
            Some(context(Machine::X64, 0x40_1000, 0x3000)),
        )
        .with_kernel_thread(thread)
        .with_kernel_thread(waiting)
        .with_process(process(0xffff_8000_0000_1000, 4, "System"))
        .with_process(process(0xffff_8000_0000_2000, 0x1f4, "app.exe"))
        .with_memory(0x3000, [0; 0x40])
        .with_frames(vec![frame(
            0x40_1000,
            0x3000,
            0,
            Found::Context,
            Some(hit("nt", "KeBugCheckEx", 0x40_1000)),
        )])
        .with_bug_check(BugCheck {
            code: 0x1000_007e,
            parameters: [0xffff_ffff_c000_0005, 1, 2, 3],
            driver: None,
        })
}

pub(crate) fn narrow() -> ScriptedTarget {
    let mut here = context(Machine::X86, 0x40_1000, 0x12_f000);
    here.set(reg::RBP, 0x12_f008);
    let words: Vec<u8> =
        [0x40_1020u32, 1, 0x12_f020, 0x40_1020, 7, 8, 9].iter().flat_map(|w| w.to_le_bytes()).collect();
    let mut first = frame(0x40_1000, 0x12_f000, 0x40_1020, Found::Context, None);
    first.attribution = Attribution::Module { name: "app".into(), base: 0x40_0000, rva: 0x1000 };
    first.context = Some(Box::new(here.clone()));
    let second = frame(0x40_1020, 0x12_f010, 0, Found::FramePointer, Some(hit("app", "start", 0x40_1020)));
    ScriptedTarget::new(Machine::X86)
        .with_module("app", 0x40_0000, 0x5000)
        .with_symbol("app", "start", 0x40_1020)
        .with_thread(Thread { system_id: 0x100, teb: Some(0x7_0000), ..Thread::default() }, Some(here))
        .with_memory(0x12_f000, words)
        .with_frames(vec![first, second])
}

pub(crate) fn recursion() -> ScriptedTarget {
    let recurse = |n: u64| {
        frame(0x40_1010, 0x3000 + n * 0x10, 0x40_1010, Found::Unwind, Some(hit("app", "main", 0x40_1000)))
    };
    let pair = |n: u64| {
        let symbol =
            if n.is_multiple_of(2) { hit("app", "even", 0x40_1000) } else { hit("app", "odd", 0x40_1000) };
        frame(0x40_1010, 0x8000 + n * 0x10, 0x40_1010, Found::Unwind, Some(symbol))
    };
    let mut frames: Vec<Frame> = (0..200).map(recurse).collect();
    frames.extend((0..100).map(pair));
    frames.push(frame(0x40_1025, 0x9000, 0x40_1025, Found::Unwind, Some(hit("app", "start", 0x40_1020))));
    frames.push(frame(0x40_1025, 0x9010, 0, Found::Unwind, Some(hit("app", "last", 0x40_1020))));
    let thread = Thread { system_id: 0x100, ..Thread::default() };
    ScriptedTarget::new(Machine::X64)
        .with_module("app", 0x40_0000, 0x5000)
        .with_thread(thread, Some(context(Machine::X64, 0x40_1010, 0x3000)))
        .with_frames(frames)
}

pub(crate) fn scanned() -> ScriptedTarget {
    let thread = Thread { system_id: 0x100, ..Thread::default() };
    ScriptedTarget::new(Machine::X64)
        .with_module("app", 0x40_0000, 0x5000)
        .with_thread(thread, Some(context(Machine::X64, 0x40_1010, 0x3000)))
        .with_frames(vec![
            frame(0x40_1010, 0x3000, 0x40_1025, Found::Context, Some(hit("app", "main", 0x40_1000))),
            frame(0x40_1025, 0x3018, 0, Found::Scan, Some(hit("app", "start", 0x40_1020))),
        ])
}
