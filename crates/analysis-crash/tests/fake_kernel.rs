//! Bug checks on a target made of bytes: the contexts, frames, leads and buckets of spec 60 section 2.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod fake;

use analysis_crash::{
    Analyzer, BucketForm, Cause, Confidence, ContextOrigin, CrashParams, CrashTriage, Owners, crash_triage,
    render_crash,
};
use fake::{Bytes, Fake, wide_z};
use target::{
    Address, Field, Found, Halt, KernelThread, Machine, Process, Rva, TargetKind, TypeKind, TypeLayout,
    TypeRef, UnloadedModule, WalkEnd,
};

const NT: u64 = 0xffff_f800_0000_0000;
const DRV: u64 = 0xffff_f801_0000_0000;
const SP: u64 = 0xffff_a000_0000_4000;
const STACK_LIMIT: u64 = 0xffff_a000_0000_0000;
const STACK_BASE: u64 = 0xffff_a000_0000_6000;
const BUG_CHECK: u64 = NT + 0x3000;
const AV: u64 = 0xffff_ffff_c000_0005;
const THREAD: u64 = 0xffff_8000_0000_1000;
const PROCESS: u64 = 0xffff_8000_0000_2000;

/// A crashed kernel whose own context is in `nt!KeBugCheckEx`.
fn kernel() -> Fake {
    let mut fake = Fake::new(TargetKind::KernelDump, Machine::X64);
    fake.module("nt", "ntoskrnl.exe", NT).module("Drv", "Drv.sys", DRV);
    fake.symbol(BUG_CHECK, "nt", "KeBugCheckEx");
    fake.selected = Some(fake.context_at(BUG_CHECK, SP));
    fake.kernel_thread = Some(KernelThread {
        object: THREAD,
        process: PROCESS,
        tid: Some(0x108),
        pid: Some(4),
        processor: Some(0),
        state: None,
        wait_reason: None,
        irql: None,
        stack_base: Some(STACK_BASE),
        stack_limit: Some(STACK_LIMIT),
        teb: None,
    });
    let process = Process {
        object: PROCESS,
        pid: 4,
        parent_pid: None,
        name: "System".into(),
        directory_table_base: 0,
        peb: None,
        wow64: false,
        exited: false,
    };
    fake.processes.insert(PROCESS, process);
    fake
}

fn triage(fake: &Fake) -> CrashTriage {
    crash_triage(fake, &CrashParams::default(), &Halt::unbounded()).unwrap()
}
/// The stack behind the bug check.
fn behind(fake: &mut Fake, ips: &[u64]) {
    fake.stacks
        .insert(BUG_CHECK, ips.iter().enumerate().map(|(i, &ip)| (ip, SP + 8 * (i as u64 + 1))).collect());
}
fn bucket(triage: &CrashTriage) -> &str {
    triage.analysis.failure_bucket_id.as_deref().unwrap()
}

#[test]
fn refusals() {
    let params = CrashParams::default();
    let user = Fake::new(TargetKind::UserDump, Machine::X64);
    let error = crash_triage(&user, &params, &Halt::unbounded()).unwrap_err();
    assert_eq!(error.category(), ("unsupported", Some("wrong_target_kind")));
    assert!(error.to_string().contains("triage its exception"));
    let mut dump = kernel();
    dump.bug(0, [0; 4]);
    let error = crash_triage(&dump, &params, &Halt::unbounded()).unwrap_err();
    assert!(error.to_string().contains("not a crash dump"), "{error}");
    dump.facts.kind = TargetKind::Kernel;
    let error = crash_triage(&dump, &params, &Halt::unbounded()).unwrap_err();
    assert!(error.to_string().contains("has not crashed"), "{error}");
    let mut crashed = kernel();
    crashed.bug(0xd1, [0; 4]);
    let ask = |analyze, analyzer| {
        let params = CrashParams { analyze, analyzer, ..CrashParams::default() };
        crash_triage(&crashed, &params, &Halt::unbounded()).map_err(|e| e.category())
    };
    assert_eq!(ask(true, Some(Analyzer::Ext)).unwrap_err(), ("unsupported", Some("no_ext")));
    assert_eq!(ask(false, Some(Analyzer::Native)).unwrap_err().0, "invalid_argument");
    assert!(ask(true, Some(Analyzer::Native)).unwrap().ext_analysis.is_none());
    for frames in [0, 129] {
        let params = CrashParams { frames, ..CrashParams::default() };
        assert_eq!(
            crash_triage(&kernel(), &params, &Halt::unbounded()).unwrap_err().category().0,
            "invalid_argument"
        );
    }
}

#[test]
fn the_driver_frame_at_two_load_bases() {
    for base in [DRV, DRV + 0x5000_0000] {
        let mut fake = kernel();
        fake.modules[1].base = base;
        fake.bug(0x13a, [0x12, 0, 0, 0]);
        behind(&mut fake, &[NT + 0x100, NT + 0x200, base + 0x1654]);
        let triage = triage(&fake);
        let frame = triage.faulting_frame.as_ref().unwrap();
        assert_eq!((frame.index, frame.rva), (3, Some(Rva(0x1654))));
        assert_eq!(bucket(&triage), "0x13a_12_Drv!unknown_function");
        assert_eq!(triage.verdict.confidence, Confidence::Low, "who notices damage need not have done it");
        assert_eq!(
            (triage.process_name.as_deref(), triage.thread.unwrap().tid),
            (Some("System"), Some(0x108))
        );
    }
}

#[test]
fn nobody_to_blame() {
    let mut fake = kernel();
    fake.bug(0x1234_5678, [0; 4]);
    behind(&mut fake, &[NT + 0x100]);
    let lonely = triage(&fake);
    let note = lonely.faulting_frame_note.as_deref().unwrap();
    assert!(note.contains("2 frames") && note.contains("nt!KeBugCheckEx"), "{note}");
    assert_eq!((lonely.verdict.cause, lonely.verdict.confidence), (Cause::CantTell, Confidence::Low));
    assert_eq!(lonely.bug_check.name, None, "an unknown code is a number");
    fake.bug(0x133, [1, 0, 0, 0]);
    behind(&mut fake, &[NT + 0x100; 40]);
    let watchdog = triage(&fake);
    insta::assert_snapshot!("watchdog", render_crash(&watchdog));
    let note = watchdog.faulting_frame_note.unwrap();
    assert!(note.contains("past the cap") && note.contains("not expected on this stack"), "{note}");
    assert!(watchdog.frames_truncated);
    assert_eq!(watchdog.verdict.cause, Cause::Hang);
}

/// CONTEXT of x64 with control and integer parts.
fn context_record(ip: u64, sp: u64) -> Bytes {
    Bytes::of(0x4d0).u32(0x30, 0x10_000b).u16(0x38, 0x10).u16(0x42, 0x18).u64(0x98, sp).u64(0xf8, ip)
}
fn exception_record(code: u32, parameters: &[u64]) -> Vec<u8> {
    let mut bytes = Bytes::of(152).u32(0, code).u32(24, parameters.len() as u32);
    for (index, parameter) in parameters.iter().enumerate() {
        bytes = bytes.u64(32 + 8 * index, *parameter);
    }
    bytes.0
}

#[test]
fn the_context_record_of_a_system_thread() {
    let mut fake = kernel();
    let at = STACK_LIMIT + 0x100;
    fake.memory.add(at, context_record(DRV + 0x334c, SP + 0x800).0);
    fake.memory.add(STACK_LIMIT + 0x800, exception_record(0xc000_0005, &[1, 0x18]));
    fake.bug(0x1000_007e, [AV, DRV + 0x334c, STACK_LIMIT + 0x800, at]);
    let found = triage(&fake);
    assert_eq!(found.context_source, ContextOrigin::ContextRecord);
    assert_eq!(found.frames[0].rva, Some(Rva(0x334c)));
    assert_eq!(found.bug_check.base_code.unwrap().0, 0x7e);
    assert_eq!(found.bug_check.name.as_deref(), Some("SYSTEM_THREAD_EXCEPTION_NOT_HANDLED_M"));
    assert_eq!(bucket(&found), "AV_Drv!unknown_function");
    assert_eq!(found.analysis.problem_class.as_deref(), Some("AV"));
    assert_eq!(found.analysis.symbol_name.as_deref(), Some("Drv+0x334c"));
    assert_eq!(found.analysis.image_timestamp.as_deref(), Some("5f000001"));
    assert!(found.analysis.stack_command.as_deref().unwrap().starts_with(".cxr 0xffffa00000000100"));
    let lead = &found.analysis.leads[0];
    assert_eq!(lead.kind, "address_class");
    assert!(lead.text.contains("a null pointer plus 0x18"), "{}", lead.text);
    assert_eq!((found.verdict.cause, found.verdict.confidence), (Cause::Driver, Confidence::High));
    insta::assert_snapshot!("context_record", render_crash(&found));
    // A record that does not validate keeps the dump's own context and says so.
    for broken in [context_record(0x1234_5678_9abc_def0, SP), context_record(DRV, 0x1000), Bytes::of(0x20)] {
        let mut fake = kernel();
        fake.memory.add(at, broken.0);
        fake.bug(0x7e, [AV, DRV, 0, at]);
        let kept = triage(&fake);
        assert_eq!(kept.context_source, ContextOrigin::CrashContext);
        assert!(kept.analysis.note.unwrap().contains("0xffffa00000000100"));
    }
}

/// KTRAP_FRAME of x64.
fn trap_frame(ip: u64, sp: u64) -> Bytes {
    Bytes::of(0x190).u64(0x168, ip).u16(0x170, 0x10).u64(0x180, sp).u16(0x188, 0x18)
}

#[test]
fn trap_frames() {
    let mut fake = kernel();
    fake.memory.add(SP + 0x200, trap_frame(DRV + 0x40, SP + 0x900).0);
    fake.bug(0x139, [0x1d, SP + 0x200, 0, 0]);
    let told = triage(&fake);
    assert_eq!(told.context_source, ContextOrigin::TrapFrame);
    assert_eq!(bucket(&told), "0x139_1d_INVALID_BALANCED_TREE_Drv!unknown_function");
    assert!(
        told.analysis.leads.iter().any(|l| l.kind == "fast_fail" && l.text.contains("INVALID_BALANCED_TREE"))
    );
    // Looked for on the stack: no symbols, so by its shape.
    let mut fake = kernel();
    fake.memory.add(SP, Bytes::of(0x240).put(0x200, &trap_frame(DRV + 0x40, SP + 0x900).0).0);
    fake.bug(0xd1, [0x10, 2, 0, DRV + 0x40]);
    behind(&mut fake, &[NT + 0x100]);
    let found = triage(&fake);
    assert_eq!(found.context_source, ContextOrigin::TrapFrameOnStack);
    assert_eq!(found.frames[0].place(), "Drv+0x40");
    assert_eq!(bucket(&found), "AV_Drv!unknown_function");
    // Wrong selectors, an ip in no module, a stack pointer below the frame: none of them is one.
    let bad = [
        trap_frame(DRV + 0x40, SP + 0x900).u16(0x170, 0x23),
        trap_frame(0xffff_f805_0000_0000, SP + 0x900),
        trap_frame(DRV + 0x40, SP - 0x100),
    ];
    for frame in bad {
        let mut fake = kernel();
        fake.memory.add(SP, Bytes::of(0x240).put(0x200, &frame.0).0);
        fake.bug(0xd1, [0x10, 2, 0, NT + 0x77]);
        behind(&mut fake, &[NT + 0x100]);
        assert_eq!(triage(&fake).context_source, ContextOrigin::CrashContext);
    }
}

#[test]
fn code_that_was_paged_out() {
    let mut fake = kernel();
    fake.symbol(DRV + 0x100, "Drv", "AccessPageableMemory");
    fake.bug(0xd1, [DRV + 0x120, 2, 8, DRV + 0x120]);
    behind(&mut fake, &[DRV + 0x120]);
    let triage = triage(&fake);
    assert_eq!(bucket(&triage), "AV_CODE_AV_PAGED_IP_Drv!AccessPageableMemory");
    assert!(triage.analysis.leads[0].text.contains("pageable code"));
}

/// Device, driver and name of one layer of a device stack.
fn device(fake: &mut Fake, at: u64, name: &str, module_base: u64, attached: u64) {
    let text = wide_z(&format!("\\Driver\\{name}"));
    let length = text.len() as u16 - 2;
    fake.memory.add(at, Bytes::of(0x140).u64(8, at + 0x1000).u64(0x18, attached).0);
    let driver =
        Bytes::of(0x50).u64(0x18, module_base).u16(0x38, length).u16(0x3a, length).u64(0x40, at + 0x2000);
    fake.memory.add(at + 0x1000, driver.0).add(at + 0x2000, text);
}

#[test]
fn a_blocked_power_irp() {
    let mut fake = kernel();
    const PCI: u64 = 0xffff_f802_0000_0000;
    const NVX: u64 = 0xffff_f803_0000_0000;
    fake.module("pci", "pci.sys", PCI).module("nvx", "nvx.sys", NVX);
    let (pdo, filter, function, irp) =
        (0xffff_8001_0000_0000, 0xffff_8001_0001_0000, 0xffff_8001_0002_0000, 0xffff_8001_0003_0000u64);
    device(&mut fake, pdo, "pci", PCI, filter);
    device(&mut fake, filter, "ACPI", NT, function);
    device(&mut fake, function, "nvx", NVX, 0);
    fake.memory.add(irp, Bytes::of(0xd0).u16(0, 6).u64(0xb8, irp + 0x1000).0);
    fake.memory.add(irp + 0x1000, Bytes::of(0x48).u8(0, 0x16).u8(1, 2).u64(0x28, function).0);
    fake.bug(0x9f, [3, pdo, 0, irp]);
    behind(&mut fake, &[NT + 0x100]);
    let triage = triage(&fake);
    assert_eq!(bucket(&triage), "0x9F_3_nvx_IMAGE_pci.sys");
    let lead = triage.analysis.leads.iter().find(|l| l.kind == "blocked_irp_driver").unwrap();
    assert_eq!(lead.module.as_deref(), Some("nvx"));
    assert!(lead.text.contains("IRP_MN_SET_POWER"));
    let stack = triage.analysis.leads.iter().find(|l| l.kind == "device_stack").unwrap();
    assert!(stack.text.ends_with("pci, ACPI, nvx."), "{}", stack.text);
    assert_eq!(triage.analysis.image_name.as_deref(), Some("nvx.sys"));
    assert_eq!((triage.verdict.cause, triage.verdict.confidence), (Cause::Driver, Confidence::High));
    insta::assert_snapshot!("blocked_power_irp", render_crash(&triage));
    // A device stack that loops ends.
    device(&mut fake, function, "nvx", NVX, pdo);
    let stack = self::triage(&fake).analysis.leads.into_iter().find(|l| l.kind == "device_stack").unwrap();
    assert!(stack.text.matches("pci").count() < 17);
}

#[test]
fn another_threads_stack() {
    let mut fake = kernel();
    let holder = 0xffff_8000_0000_9000;
    let context = fake.context_at(NT + 0x900, SP);
    fake.parked.insert(holder, context);
    fake.stacks.insert(NT + 0x900, vec![(DRV + 0x30, SP + 8)]);
    fake.bug(0x9f, [4, 300, holder, 0]);
    let lock = triage(&fake);
    assert_eq!(lock.context_source, ContextOrigin::Selected);
    let lead = lock.analysis.leads.iter().find(|l| l.kind == "pnp_lock_holder").unwrap();
    assert_eq!((lead.module.as_deref(), bucket(&lock)), (Some("Drv"), "0x9F_4_IMAGE_Drv.sys"));
    fake.bug(0x9f, [4, 300, 0x1234, 0]);
    let unknown = triage(&fake);
    assert!(unknown.analysis.note.unwrap().contains("no saved context"));
    assert!(unknown.frames[0].place().contains("KeBugCheckEx"));
}

#[test]
fn leads_of_other_codes() {
    let mut fake = kernel();
    let block = 0xffff_8002_0000_0010u64;
    fake.memory.add(block - 0x10, Bytes::of(16).put(4, b"Ab\x01d").0);
    fake.bug(0x13a, [8, 0, block, 0]);
    let heap = triage(&fake);
    assert_eq!(heap.analysis.pool_tag.as_deref(), Some("Ab.d"));
    assert!(heap.analysis.leads.iter().any(|l| l.kind == "heap_failure"));
    fake.bug(0xc2, [0xa, block, u64::from(u32::from_le_bytes(*b"Tag1")), 0]);
    assert_eq!(triage(&fake).analysis.pool_tag.as_deref(), Some("Tag1"));
    fake.bug(0x7a, [1, 0xffff_ffff_c000_009c, 0, 0]);
    let disk = triage(&fake);
    assert!(disk.analysis.leads.iter().any(|l| l.text.contains("STATUS_DEVICE_DATA_ERROR")));
    assert_eq!((disk.verdict.cause, disk.verdict.confidence), (Cause::Disk, Confidence::High));
    fake.bug(0x116, [0, DRV + 0x5555, 0, 0]);
    let display = triage(&fake);
    assert_eq!(bucket(&display), "0x116_IMAGE_Drv.sys");
    assert_eq!(display.verdict.cause, Cause::Driver);
    let record = 0xffff_8003_0000_0000u64;
    let memory =
        [0x14, 0x11, 0xbc, 0xa5, 0x64, 0x6f, 0xde, 0x4e, 0xb8, 0x63, 0x3e, 0x83, 0xed, 0x7c, 0x83, 0xb1];
    fake.memory
        .add(record, Bytes::of(128 + 72).put(0, b"CPER").u16(10, 1).u32(12, 1).put(128 + 16, &memory).0);
    fake.bug(0x124, [0, record, 0xfe00_0000, 0x135]);
    let hardware = triage(&fake);
    assert!(hardware.analysis.leads.iter().any(|l| l.text.contains("fatal; sections: memory")));
    assert_eq!(hardware.verdict.cause, Cause::Memory);
    fake.bug(0xef, [PROCESS, 0, 0, 0]);
    let ended = triage(&fake);
    assert!(ended.analysis.leads.iter().any(|l| l.kind == "terminated_process" && l.text.contains("System")));
    assert_eq!(ended.process_name.as_deref(), Some("System"));
    fake.unloaded.push(UnloadedModule {
        image_name: "gone.sys".into(),
        base: 0xffff_f805_0000_0000,
        size: 0x1000,
        timestamp: 0,
        checksum: 0,
    });
    fake.bug(0xce, [0xffff_f805_0000_0010, 8, 0xffff_f805_0000_0010, 0]);
    let gone = triage(&fake);
    assert!(gone.analysis.leads.iter().any(|l| l.module.as_deref() == Some("gone.sys")));
    fake.bug(0xe2, [0; 4]);
    assert_eq!(triage(&fake).verdict.confidence, Confidence::High, "asked for by a person");
}

#[test]
fn the_full_process_name() {
    let mut fake = kernel();
    let field = |name: &str, offset| Field {
        name: name.into(),
        offset,
        size: 8,
        ty: TypeRef::Unknown,
        bits: None,
        value: None,
        base_class: false,
    };
    let layout = TypeLayout {
        module: "nt".into(),
        name: "_EPROCESS".into(),
        kind: TypeKind::Struct,
        size: 0x100,
        fields: vec![field("SeAuditProcessCreationInfo", 0x80)],
        ambiguous: 0,
    };
    fake.types.insert("nt!_EPROCESS".into(), layout);
    let path = wide_z("\\Device\\HarddiskVolume1\\apps\\long_program_v5.exe");
    let length = path.len() as u16 - 2;
    fake.memory.add(PROCESS + 0x80, Bytes::of(8).u64(0, 0xffff_8004_0000_0000).0);
    fake.memory.add(
        0xffff_8004_0000_0000,
        Bytes::of(16).u16(0, length).u16(2, length).u64(8, 0xffff_8004_0000_0010).0,
    );
    fake.memory.add(0xffff_8004_0000_0010, path);
    fake.bug(0xd1, [0; 4]);
    assert_eq!(triage(&fake).process_name.as_deref(), Some("long_program_v5.exe"));
    // Only the 15-byte field: said to be possibly cut.
    let mut fake = kernel();
    fake.processes.get_mut(&PROCESS).unwrap().name = "long_program_v".into();
    fake.bug(0xd1, [0; 4]);
    let cut = triage(&fake);
    assert!(cut.analysis.leads.iter().any(|l| l.kind == "name_truncated"));
}

#[test]
fn owners_analysis_off_and_interrupts() {
    let mut fake = kernel();
    fake.module("Next", "Next.sys", 0xffff_f806_0000_0000);
    fake.bug(0xd1, [0; 4]);
    behind(&mut fake, &[DRV + 1, 0xffff_f806_0000_0001]);
    let owners = Owners::parse("drv=ignore\nnext=Some One\n");
    let params = CrashParams { owners, ..CrashParams::default() };
    let owned = crash_triage(&fake, &params, &Halt::unbounded()).unwrap();
    assert_eq!(owned.analysis.followup.as_deref(), Some("SomeOne"));
    assert_eq!(owned.analysis.module_name.as_deref(), Some("Next"));
    assert_eq!(owned.faulting_frame.unwrap().module.as_deref(), Some("Drv"));
    let plain = CrashParams { analyze: false, ..CrashParams::default() };
    let plain = crash_triage(&fake, &plain, &Halt::unbounded()).unwrap();
    assert!(!plain.analysis.ran && plain.analysis.note.unwrap().contains("analyze: false"));
    assert!(plain.faulting_frame.is_some());
    let halt = Halt::unbounded();
    halt.flag().store(true, std::sync::atomic::Ordering::Relaxed);
    let cut = crash_triage(&fake, &CrashParams::default(), &halt).unwrap();
    assert!(cut.analysis.truncated && cut.frames.is_empty());
    assert!(
        cut.analysis.note.unwrap().contains("nothing here is a finding") || cut.faulting_frame_note.is_some()
    );
}

#[test]
fn guesses_only_where_nothing_was_walked() {
    let mut fake = kernel();
    fake.end = WalkEnd::Lost("no unwind data");
    fake.scanned = vec![(NT + 0x500, SP + 0x10), (DRV + 0x20, SP + 0x20)];
    fake.bug(0x1234, [0; 4]);
    let guessed = triage(&fake);
    let frame = guessed.faulting_frame.as_ref().unwrap();
    assert_eq!((frame.found, frame.place().as_str()), (Found::Scan, "Drv+0x20"));
    assert_eq!(guessed.verdict.confidence, Confidence::Low);
    assert_eq!(guessed.analysis.bucket_form, Some(BucketForm::Approximate));
    behind(&mut fake, &[NT + 0x100, NT + 0x200, NT + 0x300]);
    assert!(triage(&fake).frames.iter().all(|f| f.found != Found::Scan));
    assert_eq!(guessed.frames[0].address, Address(BUG_CHECK));
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(256))]
    #[test]
    fn any_bug_check_over_any_memory(
        code in proptest::prop_oneof![
            proptest::sample::select(vec![
                0x9fu32, 0x124, 0x7e, 0x139, 0x3b, 0xd1, 0xc2, 0x19, 0xef, 0xf4, 0x116, 0x24, 0x1e, 0x8e, 0xc4, 0x101,
            ]),
            proptest::prelude::any::<u32>(),
        ],
        picks in proptest::array::uniform4(0usize..8),
        bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..4096),
    ) {
        let values = [0, 3, SP, SP + 8, u64::MAX, DRV, AV, 0x20000];
        let mut fake = kernel();
        fake.memory.add(SP, bytes);
        fake.bug(code.max(1), picks.map(|i| values[i]));
        let triage = crash_triage(&fake, &CrashParams::default(), &Halt::unbounded()).unwrap();
        proptest::prop_assert!(serde_json::to_string(&triage).unwrap().len() < 64 * 1024);
        let _ = render_crash(&triage);
    }
}
