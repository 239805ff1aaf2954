//! The acceptance cases of spec 80 section 15 that are this engine's, by number.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[allow(unreachable_pub)]
mod shared;

use std::time::Duration;

use engine_native::{OpenOptions, open};
use shared::{Prepared, data};
use target::{
    Context, ContextOf, ContextSource, DumpFormat, FrameInfo, Halt, Machine, MemoryExt, Space, Stack,
    SymbolState, Target, TargetExt, TargetKind, Unreadable, View, reg,
};

fn halt() -> Halt {
    Halt::within(Duration::from_secs(30))
}

fn selected(target: &dyn Target) -> Context {
    target.context(ContextOf::Selected, View::Default).unwrap().expect("a selected context")
}

fn walked(target: &dyn Target, context: &Context) -> Stack {
    target.stack(context, 256, &halt()).unwrap()
}

/// `place` of every row, inline ones marked.
fn places(stack: &Stack) -> Vec<String> {
    let row = |f: &target::Frame| {
        let place = FrameInfo::new(0, f).place();
        if f.inline { format!("({place})") } else { place }
    };
    stack.frames.iter().map(row).collect()
}

#[test]
fn acceptance_01_triage_x64() {
    let Some(data) = data() else { return };
    let target = Prepared::new(&data, "kernel/triage_x64_19041_7e.dmp").open();
    let facts = target.facts();
    assert_eq!(facts.kind, TargetKind::KernelDump);
    assert_eq!(facts.dump.as_ref().unwrap().format, DumpFormat::KernelTriage);
    assert_eq!(facts.machine, Machine::X64);
    assert_eq!(facts.os.as_ref().unwrap().build, 19041);
    assert_eq!(
        facts.os.as_ref().unwrap().build_lab.as_deref(),
        Some("19041.1.amd64fre.vb_release.191206-1406")
    );
    assert_eq!(facts.processors, Some(16));
    let check = target.bug_check().unwrap().unwrap();
    assert_eq!(check.code, 0x1000_007e);
    assert_eq!(check.parameters[..2], [0xffff_ffff_c000_0005, 0xffff_f804_8b58_334c]);
    let modules = target.modules().unwrap();
    assert_eq!(modules.len(), 151);
    assert_eq!(
        (modules[0].name.as_str(), modules[0].base, modules[0].size),
        ("nt", 0xffff_f804_7ba0_0000, 0x104_6000)
    );
    assert_eq!(target.unloaded_modules().unwrap().len(), 4);
}

#[test]
fn acceptance_02_triage_x64_with_isf() {
    let Some(data) = data() else { return };
    let target = Prepared::new(&data, "kernel/triage_x64_19041_7e.dmp").and_symbols(&data.join("isf")).open();
    let context = selected(target.as_ref());
    let symbol = target.symbol_at(context.ip()).unwrap().unwrap();
    assert_eq!((symbol.qualified().as_str(), symbol.displacement), ("nt!KeBugCheckEx", 0));
    let nt = target.module_named("nt").unwrap().unwrap();
    assert_eq!(target.symbol_status(nt.base, false).unwrap().state, SymbolState::Isf);
    let list = target.resolve("nt!PsLoadedModuleList").unwrap();
    assert_eq!(list[0].address, 0xffff_f804_7c62_a390);
    let thread = target.current_kernel_thread().unwrap();
    assert_eq!(thread.object, 0xffff_c08b_de9e_1640);
    assert_eq!((thread.pid, thread.tid), (Some(4), Some(0x108)));
    let process = target.process(thread.process).unwrap();
    assert_eq!((process.object, process.name.as_str(), process.pid), (0xffff_c08b_dce9_4180, "System", 4));
    assert_eq!(process.directory_table_base, 0x1a_d000);
    let scanned = target.scan_stack(&context, 512, &halt()).unwrap();
    let names: Vec<String> = scanned.iter().map(|f| FrameInfo::new(0, f).place()).collect();
    assert!(names.iter().any(|n| n == "nt!PspSystemThreadStartup+0x55"), "{names:?}");
}

#[test]
fn acceptance_03_context_record_at_p4() {
    let Some(data) = data() else { return };
    let target = Prepared::new(&data, "kernel/triage_x64_19041_7e.dmp").open();
    let record = target.bug_check().unwrap().unwrap().parameters[3];
    let (bytes, _) = target.read_prefix(record, Context::record_size(Machine::X64));
    let context = Context::from_x64(&bytes, ContextSource::ContextRecord).unwrap();
    assert_eq!(context.ip(), 0xffff_f804_8b58_334c);
    assert_eq!(places(&walked(target.as_ref(), &context))[0], "amdppm+0x334c");
}

#[test]
fn acceptance_04_triage_arm64_in_a_cab() {
    let Some(data) = data() else { return };
    let target = Prepared::new(&data, "kernel/triage_arm64_17134_e2.cab").open();
    assert_eq!(target.facts().dump.as_ref().unwrap().container, Some("cab"));
    assert_eq!(target.facts().machine, Machine::Arm64);
    assert_eq!(target.bug_check().unwrap().unwrap().code, 0xe2);
    assert_eq!(target.modules().unwrap().len(), 228);
    let context = selected(target.as_ref());
    let nt = target.module_named("nt").unwrap().unwrap();
    assert_eq!(context.ip() - nt.base, 0x22_2de8);
    let code = target.disassemble(context.ip(), 1).unwrap();
    assert_eq!(code[0].text.as_deref(), Some("add x0, x27, #0x40"));
}

#[test]
fn acceptance_05_triage_arm32_header_facts() {
    let Some(data) = data() else { return };
    let target = Prepared::new(&data, "kernel/triage_arm32_17134.cab").open();
    assert_eq!(target.facts().machine, Machine::Arm32);
    assert_eq!(target.facts().dump.as_ref().unwrap().format, DumpFormat::KernelHeaderOnly);
    assert_eq!(target.modules().unwrap().len(), 136);
    assert!(
        target.facts().limitations.iter().any(|l| l.contains("32-bit")),
        "{:?}",
        target.facts().limitations
    );
    assert!(target.bug_check().unwrap().is_some());
}

#[test]
fn acceptance_06_truncated_full_dump() {
    let Some(data) = data() else { return };
    let target = Prepared::new(&data, "kernel/full_header_only_19045.dmp").open();
    let facts = target.facts();
    assert!(facts.dump.as_ref().unwrap().truncated);
    assert_eq!(facts.os.as_ref().unwrap().build, 19045);
    assert_eq!(facts.processors, Some(4));
    let error = target.modules().unwrap_err();
    let (category, reason) = error.category();
    assert_eq!(category, "debugger");
    assert!(matches!(reason, Some("page_table_missing" | "truncated_file")), "{error}");
}

#[test]
fn acceptance_07_one_memory_in_four_formats() {
    let Some(data) = data() else { return };
    let frames = [
        "nt!KeBugCheckEx",
        "myfault!Boom+0x29",
        "myfault!DispatchDeviceControl+0x2e",
        "nt!IofCallDriver+0x14",
        "nt!NtDeviceIoControlFile+0x17",
        "nt!KiSystemStartup+0xc",
    ];
    for name in ["syn_full_x64", "syn_bmp5_x64", "syn_bmp6_x64", "syn_rdmp8_x64"] {
        let target = Prepared::new(&data, &format!("synthetic/{name}.dmp")).open();
        assert_eq!(target.bug_check().unwrap().unwrap().code, 0xdead_beef, "{name}");
        assert_eq!(target.modules().unwrap().len(), 2, "{name}");
        let context = selected(target.as_ref());
        assert_eq!(places(&walked(target.as_ref(), &context)), frames, "{name}");
        assert_eq!(target.read_array::<16>(0xffff_a580_0010_0000).unwrap(), *b"TRANSITION PAGE!", "{name}");
        let paged = target.read_u8(0xffff_a580_0010_1000).unwrap_err();
        assert!(matches!(paged.why, Unreadable::PagedOut { offset: 0x1234, .. }), "{name}: {paged}");
        assert!(target.read_u8(0xffff_a580_0010_2000).is_err(), "{name}");
        let thread = target.current_kernel_thread().unwrap();
        let process = target.process(thread.process).unwrap();
        assert_eq!((process.name.as_str(), process.pid), ("System", 4), "{name}");
        let all = target.processes(&halt()).unwrap();
        assert_eq!(all, std::slice::from_ref(&process), "{name}");
        let threads = target.kernel_threads(process.object, &halt()).unwrap();
        assert_eq!(threads.len(), 1, "{name}");
        assert_eq!((threads[0].pid, threads[0].tid), (Some(4), Some(0x58)), "{name}");
    }
}

#[test]
fn acceptance_07_without_symbols() {
    let Some(data) = data() else { return };
    let lone = tempfile::tempdir().unwrap();
    let path = lone.path().join("alone.dmp");
    std::fs::copy(data.join("synthetic/syn_full_x64.dmp"), &path).unwrap();
    let target = open(&path, &OpenOptions::default()).unwrap();
    let thread = target.current_kernel_thread().unwrap();
    let process = target.process(thread.process).unwrap();
    assert_eq!((process.name.as_str(), process.pid), ("System", 4));
    assert_eq!(walked(target.as_ref(), &selected(target.as_ref())).frames.len(), 6);
    assert_eq!(target.processes(&halt()).unwrap().len(), 1);
    assert_eq!(target.kernel_threads(process.object, &halt()).unwrap().len(), 1);
}

#[test]
fn acceptance_08_no_exception_and_large_contexts() {
    let Some(data) = data() else { return };
    let target = Prepared::new(&data, "user/bp_tiny-exe-with-cet-xsave-x86.dmp").open();
    assert_eq!(target.facts().machine, Machine::X86);
    assert_eq!(target.stored_event().unwrap(), None);
    let threads = target.threads().unwrap();
    assert_eq!(threads.len(), 3);
    for thread in threads.iter() {
        let context = target.context(ContextOf::Thread(thread.system_id), View::Default).unwrap().unwrap();
        assert_ne!(context.ip(), 0);
    }
}

#[test]
fn acceptance_09_fast_fail() {
    let Some(data) = data() else { return };
    let target = Prepared::new(&data, "user/bp_tiny-exe-fastfail.dmp").open();
    let event = target.stored_event().unwrap().unwrap();
    assert_eq!((event.record.code, event.record.parameters[0]), (0xc000_0409, 7));
    let code = target.disassemble(event.context.unwrap().ip(), 1).unwrap();
    assert_eq!(code[0].text.as_deref(), Some("int 29h"));
}

#[test]
fn acceptance_10_stack_exhaustion() {
    let Some(data) = data() else { return };
    let target = Prepared::new(&data, "user/bp_stack_exhaustion.dmp.xz").open();
    let event = target.stored_event().unwrap().unwrap();
    assert_eq!(event.record.code, 0xc000_00fd);
    let stack = target.stack(&event.context.unwrap(), 300, &halt()).unwrap();
    let same = places(&stack).iter().filter(|p| *p == "crashme+0xa6a7").count();
    assert!(same >= 200, "{same} of {}", stack.frames.len());
}

#[test]
fn acceptance_11_x86_inline_and_frame_data() {
    let Some(data) = data() else { return };
    let target = Prepared::new(&data, "user/crash_x86/crash_x86.dmp").open();
    let stack = walked(target.as_ref(), &selected(target.as_ref()));
    let expected = [
        "(crash!?A0xc3a0617d::crash)",
        "(crash!?A0xc3a0617d::start)",
        "crash!main+0x12d",
        "(crash!invoke_main+0x1c)",
        "crash!__scrt_common_main_seh+0xf9",
        "kernel32+0x162c4",
        "ntdll+0x60f79",
    ];
    let found = places(&stack);
    assert_eq!(found[..expected.len().min(found.len())], expected);
}

#[test]
fn acceptance_12_legacy_full_dump_in_a_cab() {
    let Some(data) = data() else { return };
    let target = Prepared::new(&data, "user/kd_x64_release/targetapp_stacktest_x64_release.cab").open();
    let facts = target.facts().dump.as_ref().unwrap();
    assert_eq!(facts.format, DumpFormat::UserFullLegacy);
    // The file records neither; the page every process shares does.
    assert_eq!(facts.time.as_deref(), Some("2019-04-21T11:51:05.109Z"));
    assert_eq!(facts.uptime_ms, Some(((2 * 24 + 19) * 3600 + 2 * 60 + 7) * 1000 + 874));
    // Identities come from the headers in memory; DbgEng says `kernel32.dll version: 10.0.17134.1`.
    let kernel32 = target.module_named("KERNEL32").unwrap().unwrap();
    assert_eq!(kernel32.file_version, Some([10, 0, 17134, 1]));
    assert!(kernel32.timestamp != 0 && kernel32.pdb.is_some());
    let found = places(&walked(target.as_ref(), &selected(target.as_ref())));
    assert_eq!(
        found[..7],
        [
            "(targetapp!stackTestClass::stackMethod)",
            "(targetapp!stackTestRun2)",
            "targetapp!stackTestRun1+0x55",
            "(targetapp!stackTestRun+0x3b)",
            "targetapp!wmain+0x233",
            "(targetapp!invoke_main+0x22)",
            "targetapp!__scrt_common_main_seh+0x10c",
        ]
    );
    assert_eq!(found.len(), 9, "{found:?}");
    assert_eq!(found[7], "KERNEL32!BaseThreadInitThunk+0x14");
    for thread in target.threads().unwrap().iter().skip(1) {
        let context = target.context(ContextOf::Thread(thread.system_id), View::Default).unwrap().unwrap();
        assert_eq!(places(&walked(target.as_ref(), &context))[0], "ntdll!ZwWaitForWorkViaWorkerFactory+0x14");
    }
}

#[test]
fn acceptance_13_wow64_full() {
    let Some(data) = data() else { return };
    let target = Prepared::new(&data, "user/kd_wow64_release/wow64_release_full_mdmp.dmp.xz").open();
    assert_eq!((target.facts().machine, target.facts().wow64), (Machine::X86, true));
    let context = selected(target.as_ref());
    assert_eq!((context.machine, context.ip()), (Machine::X86, 0xa8_1c38));
    let twin = target.resolve("ntdll_771d0000!ZwWaitForWorkViaWorkerFactory").unwrap();
    assert_eq!(twin[0].address >> 16, 0x7723);
    let found = places(&walked(target.as_ref(), &context));
    assert_eq!(
        found[..4],
        [
            "(targetapp!stackTestClass::stackMethod)",
            "(targetapp!stackTestRun2)",
            "targetapp!stackTestRun1+0x78",
            "(targetapp!stackTestRun+0x24)",
        ]
    );
    let second = target.threads().unwrap()[1].system_id;
    let narrow = target.context(ContextOf::Thread(second), View::Default).unwrap().unwrap();
    assert_eq!(narrow.source, ContextSource::Wow64CpuArea);
    assert_eq!((narrow.ip(), narrow.sp()), (0x7723_c58c, 0x98_f748));
    let wide = target.context(ContextOf::Thread(second), View::Native).unwrap().unwrap();
    assert_eq!(wide.machine, Machine::X64);
    // Stored as a 64-bit context in 32-bit code; DbgEng reads its bytes as a 32-bit one.
    let stored = target.stored_event().unwrap().unwrap().context.unwrap();
    assert_eq!((stored.machine, stored.ip(), stored.sp()), (Machine::X86, 0xa8_1c38, 0x3d_fc90));
}

#[test]
fn acceptance_14_wow64_mini() {
    let Some(data) = data() else { return };
    let target = Prepared::new(&data, "user/kd_wow64_release/wow64_release_mini.dmp").open();
    assert!(
        target.facts().limitations.iter().any(|l| l.contains("32-bit context not in dump")),
        "{:?}",
        target.facts().limitations
    );
    let threads = target.threads().unwrap();
    let first = target.context(ContextOf::Thread(threads[0].system_id), View::Default).unwrap().unwrap();
    assert_eq!((first.machine, first.ip()), (Machine::X86, 0xa8_1c38));
    for thread in &threads[1..] {
        let of = ContextOf::Thread(thread.system_id);
        assert_eq!(target.context(of, View::Wow64).unwrap(), None);
        assert_eq!(target.context(of, View::Default).unwrap().unwrap().machine, Machine::X64);
    }
}

#[test]
fn acceptance_15_cxx_exception() {
    let Some(data) = data() else { return };
    let mut prepared = Prepared::new(&data, "user/cxx_eh_x64/cxx_eh_x64.dmp.xz");
    let images = shared::wine_images();
    prepared.options.image_path.clone_from(&images);
    let target = prepared.open();
    let event = target.stored_event().unwrap().unwrap();
    assert_eq!(event.record.code, 0xe06d_7363);
    assert_eq!(event.record.parameters, [0x1993_0520, 0x11_fd90, 0x1_4000_3c30, 0x1_4000_0000]);
    // What the crash crate decodes from must be readable: ThrowInfo, its catchable types, a name.
    let throw_info = event.record.parameters[2];
    let array = target.read_u32(throw_info + 12).unwrap();
    let base = event.record.parameters[3];
    let first = target.read_u32(base + u64::from(array) + 4).unwrap();
    let descriptor = target.read_u32(base + u64::from(first) + 4).unwrap();
    let name = target.read_c_string(base + u64::from(descriptor) + 16, 64).unwrap();
    assert!(name.starts_with(b".PEAV"), "{:?}", String::from_utf8_lossy(&name));
    let context = event.context.unwrap();
    let found = places(&walked(target.as_ref(), &context));
    if images.is_none() {
        return;
    }
    assert_eq!(
        found[..5],
        [
            "kernelbase!RaiseException+0x4e",
            // DbgEng drops the underscore, which is part of the exported name.
            "ucrtbase!_CxxThrowException+0x47",
            "CrashWithException!crashing_function+0x2c",
            "CrashWithException!test+0x17",
            "CrashWithException!main+0x9",
        ]
    );
}

#[test]
fn acceptance_16_rich_minidump() {
    let Some(data) = data() else { return };
    let prepared = Prepared::new(&data, "user/kt2/kt2_vector_oob_debugbreak_x64.dmp");
    let target = prepared.open();
    let context = selected(target.as_ref());
    let symbol = target.symbol_at(context.ip()).unwrap().unwrap();
    assert_eq!(
        (symbol.qualified().as_str(), symbol.displacement),
        (
            "CppConsoleApplication!std::vector<std::shared_ptr<Item>,std::allocator<std::shared_ptr<Item> > >::operator[]",
            0x88
        )
    );
    let dump::DumpFile::Minidump(file) = dump::open(&prepared.path).unwrap().file else {
        panic!("a minidump")
    };
    assert!(file.stream(dump::minidump::stream::FUNCTION_TABLE).is_some());
    assert_eq!((file.handles().len(), file.thread_infos().len()), (171, 6));
    assert_eq!(file.memory_infos().unwrap().len(), 455);
    let region = target.region(context.sp()).unwrap();
    assert!(
        region.protect.is_some() && region.usage.as_deref().is_some_and(|u| u.contains("Stack")),
        "{region:?}"
    );
    assert!(target.threads().unwrap().iter().all(|t| t.start_address.is_some()));
    assert_eq!(target.threads().unwrap().len(), 6);
    // The image is nowhere; the pages of its code are in the dump's address map, those of its strings too.
    let scanned = target.scan_stack(&context, 64, &halt()).unwrap();
    let names: Vec<String> = scanned.iter().map(|f| FrameInfo::new(0, f).place()).collect();
    let callers = ["Inventory::GetItem+0x4a", "Character::UseFirstItem+0x72", "Warrior::Charge+0x5e"];
    let found: Vec<&str> = names.iter().filter_map(|n| n.strip_prefix("CppConsoleApplication!")).collect();
    let places = callers.map(|caller| found.iter().position(|name| *name == caller));
    assert!(places.is_sorted() && places[0].is_some(), "{names:#?}");
    assert!(!names.iter().any(|name| name.contains("`string'")), "{names:#?}");
}

#[test]
fn acceptance_17_refusals() {
    let Some(data) = data() else { return };
    let refuse = |name: &str| match open(&data.join("negative").join(name), &OpenOptions::default()) {
        Ok(_) => panic!("{name} opens"),
        Err(error) => (error.category, error.reason),
    };
    for name in ["foreign_linux.dmp", "foreign_macos_crashpad.dmp"] {
        assert_eq!(refuse(name), ("unsupported", Some("foreign_platform")), "{name}");
    }
    for name in ["invalid-range.dmp", "invalid-record-count.dmp", "trunc_memory64.dmp"] {
        assert_eq!(refuse(name), ("debugger", Some("malformed_file")), "{name}");
    }
}

/// Everything a dump answers, as text.
fn fingerprint(target: &dyn Target) -> String {
    let mut out = format!("{:?}{:?}{:?}", target.facts(), target.modules(), target.threads());
    out.push_str(&format!("{:?}{:?}", target.stored_event(), target.bug_check()));
    if let Ok(Some(context)) = target.context(ContextOf::Selected, View::Default) {
        out.push_str(&format!("{:?}", target.stack(&context, 64, &halt())));
        out.push_str(&format!("{:?}", target.scan_stack(&context, 32, &halt())));
    }
    out
}

#[test]
fn acceptance_22_two_runs_agree() {
    let Some(data) = data() else { return };
    for dump in shared::dumps(&data) {
        let prepared = Prepared::new(&data, &dump);
        let Ok(first) = open(&prepared.path, &prepared.options) else { continue };
        let second = prepared.open();
        assert_eq!(fingerprint(first.as_ref()), fingerprint(second.as_ref()), "{dump}");
    }
}

#[test]
fn acceptance_23_forged_arm64() {
    let Some(data) = data() else { return };
    let target = Prepared::new(&data, "user/forged_arm64/forged_arm64.dmp").open();
    let stack = walked(target.as_ref(), &selected(target.as_ref()));
    assert_eq!(places(&stack), ["xcpt4!__gsfailure+0x28", "xcpt4!_vfprintf_l+0x28", "xcpt4!printf+0x30"]);
    let sps: Vec<u64> = stack.frames.iter().map(|f| f.sp).collect();
    assert_eq!(sps, [0x200_0800, 0x200_0820, 0x200_0850]);
    let last = stack.frames[2].context.as_ref().unwrap();
    assert_eq!([19, 20, 21].map(|n| last.get(n)), [Some(0x1919), Some(0x2020), Some(0x2121)]);
}

/// The synthetic dump's only thread, made a waiting one: off the processor, its kernel stack
/// pointing at a switch frame.
#[test]
fn acceptance_24_waiting_thread() {
    let Some(data) = data() else { return };
    let target = Prepared::new(&data, "synthetic/syn_full_x64.dmp").open();
    let thread = target.current_kernel_thread().unwrap().object;
    let frame_of = |address: u64| target.physical().unwrap().translate(address).unwrap();
    // Physical to file offset: the dump has its pages in run order from 0x2000; found by content.
    let mut bytes = std::fs::read(data.join("synthetic/syn_full_x64.dmp")).unwrap();
    let offset_of = |bytes: &[u8], address: u64| {
        let mut page = vec![0; 0x1000];
        target.read(Space::Physical, frame_of(address) & !0xfff, &mut page);
        let at =
            (0x2000..bytes.len()).step_by(0x1000).find(|&at| bytes[at..at + 0x1000] == page[..]).unwrap();
        at + usize::try_from(address & 0xfff).unwrap()
    };
    let stack = target.read_u64(thread + 0x58).unwrap();
    let prcb = target.read_u64(target.resolve("nt!KiProcessorBlock").unwrap()[0].address).unwrap();
    let ip = target.resolve("nt!IofCallDriver").unwrap()[0].address + 0x14;
    let places: Vec<(usize, u64)> =
        [(thread + 0x184, 5), (prcb + 8, 0), (stack + 0x30, 0x7777), (stack + 0x38, ip)]
            .iter()
            .map(|&(address, value)| (offset_of(&bytes, address), value))
            .collect();
    for (at, value) in places {
        bytes[at..at + 8].copy_from_slice(&u64::to_le_bytes(value));
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("waiting.dmp");
    std::fs::write(&path, bytes).unwrap();
    let options = OpenOptions {
        symbol_path: Some(data.join("synthetic").display().to_string()),
        ..OpenOptions::default()
    };
    let waiting = open(&path, &options).unwrap();
    let context = waiting.context(ContextOf::KernelThread(thread), View::Default).unwrap().unwrap();
    assert_eq!(context.source, ContextSource::SwitchFrame);
    assert_eq!((context.ip(), context.sp(), context.fp()), (ip, stack + 0x40, Some(0x7777)));
    for number in [reg::RAX, reg::RBX, reg::RDI, reg::EFLAGS, reg::CS] {
        assert_eq!(context.get(number), None);
    }
}
