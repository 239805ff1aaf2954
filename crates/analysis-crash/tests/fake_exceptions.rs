//! Exceptions on a target made of bytes: every walk of spec 60 sections 3.5 to 3.8.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod fake;

use analysis_crash::{
    AddressClass, ExceptionKind, ExceptionParams, ExceptionTriage, HeapLayout, HresultConfidence,
    HresultSource, Operation, Provenance, ThrownSearch, exception_triage, render_exception,
};
use fake::{Bytes, Fake, wide_z};
use target::{Address, Halt, Machine, Region, RegionState, TargetKind, Thread, WalkEnd, reg};

const APP: u64 = 0x1_4000_0000;
const IP: u64 = APP + 0x1234;
const SP: u64 = 0x20_0000;
const CPP: u32 = 0xe06d_7363;
const MAGIC: u64 = 0x1993_0520;

fn user() -> Fake {
    let mut fake = Fake::new(TargetKind::UserDump, Machine::X64);
    fake.module("app", "app.exe", APP);
    fake
}
fn user32() -> Fake {
    let mut fake = Fake::new(TargetKind::UserDump, Machine::X86);
    fake.module("app", "app.exe", 0x40_0000);
    fake
}
fn triage(fake: &Fake) -> ExceptionTriage {
    exception_triage(fake, &ExceptionParams::default(), &Halt::unbounded()).unwrap()
}
fn raised(fake: &mut Fake, code: u32, parameters: &[u64]) -> ExceptionTriage {
    triage(fake.raise(code, parameters, IP, SP))
}

#[test]
fn refusals() {
    let kernel = Fake::new(TargetKind::KernelDump, Machine::X64);
    let error = exception_triage(&kernel, &ExceptionParams::default(), &Halt::unbounded()).unwrap_err();
    assert_eq!(error.category(), ("unsupported", Some("wrong_target_kind")));
    assert!(error.to_string().contains("triage its bug check"));
    let error = exception_triage(&user(), &ExceptionParams::default(), &Halt::unbounded()).unwrap_err();
    assert_eq!(error.category(), ("debugger", Some("no_exception")));
    assert!(error.to_string().starts_with("no exception recorded"));
    for frames in [0, 129] {
        let params = ExceptionParams { frames, ..ExceptionParams::default() };
        assert_eq!(
            exception_triage(&user(), &params, &Halt::unbounded()).unwrap_err().category().0,
            "invalid_argument"
        );
    }
}

#[test]
fn accesses() {
    let null = raised(&mut user(), 0xc000_0005, &[1, 0x10]);
    let access = null.access.as_ref().unwrap();
    assert_eq!((access.operation, access.class), (Operation::Write, AddressClass::NullPage));
    assert_eq!(
        null.analysis.failure_bucket_id.as_deref(),
        Some("NULL_CLASS_PTR_WRITE_c0000005_app.exe!Unknown")
    );
    let wild = raised(&mut user(), 0xc000_0005, &[0, 0xdead_beef]);
    assert!(wild.analysis.failure_bucket_id.unwrap().starts_with("INVALID_POINTER_READ_c0000005_"));
    let mut jumped = user();
    jumped.stacks.insert(0x4141_4141, vec![(IP, SP + 8)]);
    let jumped = triage(jumped.raise(0xc000_0005, &[8, 0x4141_4141], 0x4141_4141, SP));
    assert_eq!(jumped.access.as_ref().unwrap().operation, Operation::Execute);
    assert_eq!(jumped.frames[0].module, None);
    assert!(!jumped.frames[0].attribution_failed);
    assert!(jumped.verdict.sentence.contains("called from app+0x1234"), "{}", jumped.verdict.sentence);
    let short = raised(&mut user(), 0xc000_0005, &[1]);
    assert_eq!((short.kind, short.access), (ExceptionKind::Other, None));
    let odd = raised(&mut user(), 0xc000_0005, &[5, 0x7ff6_0000_0000]);
    assert_eq!(odd.access.unwrap().operation, Operation::Unknown);
}

#[test]
fn a_page_without_execute_rights() {
    let mut fake = user();
    fake.regions.push(Region {
        base: 0x5000_0000,
        size: 0x1000,
        allocation_base: None,
        state: RegionState::Committed,
        protect: Some(4),
        usage: None,
    });
    let triage = triage(fake.raise(0xc000_0005, &[8, 0x5000_0010], 0x5000_0010, SP));
    assert_eq!(triage.analysis.problem_class.as_deref(), Some("SOFTWARE_NX_FAULT"));
}

#[test]
fn a_non_canonical_operand_is_computed() {
    let mut fake = user();
    // mov eax, dword ptr [rcx]
    fake.memory.add(IP, [0x8b, 0x01, 0xc3]);
    fake.raise(0xc000_0005, &[0, u64::MAX], IP, SP);
    let context = fake.event.as_mut().unwrap().context.as_mut().unwrap();
    context.set(reg::RCX, 0x1234_5678_9abc_def0);
    let triage = triage(&fake);
    let access = triage.access.unwrap();
    assert_eq!(access.effective_address, Some(Address(0x1234_5678_9abc_def0)));
    assert!(access.non_canonical);
    assert_eq!((access.class, access.address), (AddressClass::NonCanonical, Address(u64::MAX)));
    assert!(triage.summary.unwrap().contains("0x123456789abcdef0"));
}

#[test]
fn in_page_errors_carry_their_status() {
    let triage = raised(&mut user(), 0xc000_0006, &[0, IP, 0xc000_009c]);
    assert_eq!(triage.kind, ExceptionKind::InPageError);
    assert_eq!(
        triage.access.unwrap().io_status.unwrap().symbolic.as_deref(),
        Some("STATUS_DEVICE_DATA_ERROR")
    );
}

#[test]
fn fail_fasts() {
    let abort = raised(&mut user(), 0xc000_0409, &[7]);
    let fail_fast = abort.fail_fast.clone().unwrap();
    assert_eq!((fail_fast.subcode, fail_fast.gs_cookie), (Some(7), false));
    assert_eq!(fail_fast.subcode_name.as_deref(), Some("FATAL_APP_EXIT"));
    assert_eq!(abort.thrown_search, ThrownSearch::SearchedNone);
    assert!(abort.summary.as_ref().unwrap().contains("no buffer overrun"));
    assert!(abort.summary.unwrap().contains("no throw record"));
    for cookie in [0, 2] {
        let triage = raised(&mut user(), 0xc000_0409, &[cookie]);
        assert!(triage.fail_fast.unwrap().gs_cookie);
        assert!(triage.summary.unwrap().contains("cookie"));
        assert_eq!(triage.thrown_search, ThrownSearch::NotNeeded);
    }
    let none = raised(&mut user(), 0xc000_0409, &[]);
    assert_eq!(none.fail_fast.unwrap().subcode, None, "absent, not 0");
    assert!(none.summary.unwrap().contains("does not say why"));
    let wil = raised(&mut user(), 0xc000_0409, &[7, 0xffff_ffff_8000_ffff, 0x28f]);
    let failure = wil.failure.unwrap();
    assert_eq!((failure.hresult.value.0, failure.line), (0x8000_ffff, 655));
    assert_eq!(failure.confidence, HresultConfidence::Convention);
    assert_eq!(wil.thrown_search, ThrownSearch::NotNeeded, "only with exactly one parameter");
    for other in [&[7, 0xffff_ffff_8000_ffff][..], &[7, 0xffff_ffff_8000_ffff, 1, 2][..]] {
        assert_eq!(raised(&mut user(), 0xc000_0409, other).failure, None);
    }
    let declined = {
        let mut fake = user();
        fake.raise(0xc000_0409, &[7], IP, SP);
        let params = ExceptionParams { scan_stack: false, ..ExceptionParams::default() };
        exception_triage(&fake, &params, &Halt::unbounded()).unwrap()
    };
    assert_eq!(declined.thrown_search, ThrownSearch::Declined);
    assert!(!declined.summary.unwrap().contains("no throw record"), "nobody looked");
    let mut no_anchor = user();
    no_anchor.raise(0xc000_0409, &[7], IP, 0);
    assert_eq!(triage(&no_anchor).thrown_search, ThrownSearch::NoAnchor);
}

/// A type graph at `APP + 0x8000`: each type's name and displacement.
fn graph(fake: &mut Fake, base: u64, types: &[(&str, u32)], wide: bool) -> u64 {
    let links = if wide { 0 } else { base };
    let rva = |offset: u64| (links + offset) as u32;
    let info = 0x8000u64;
    fake.memory.add(base + info, Bytes::of(16).u32(12, rva(0x8100)).0);
    let mut array = Bytes::of(4).u32(0, types.len() as u32);
    for (index, (name, mdisp)) in types.iter().enumerate() {
        let entry = 0x8400 + 0x40 * index as u64;
        let descriptor = 0x9000 + 0x100 * index as u64;
        array = array.u32(4 + 4 * index, rva(entry));
        let catchable = Bytes::of(28).u32(4, rva(descriptor)).u32(8, *mdisp).u32(12, u32::MAX).u32(20, 16);
        fake.memory.add(base + entry, catchable.0);
        let name_at = if wide { 16 } else { 8 };
        fake.memory.add(
            base + descriptor,
            Bytes::of(name_at).put(name_at, name.as_bytes()).u8(name_at + name.len(), 0).0,
        );
    }
    fake.memory.add(base + 0x8100, array.0);
    base + info
}

const WINRT: [(&str, u32); 3] =
    [(".?AUhresult_access_denied@winrt@@", 0), (".?AUhresult_error@winrt@@", 0), (".?AUbase_error@@", 0)];

fn throw64(fake: &mut Fake, types: &[(&str, u32)], object: Vec<u8>) -> ExceptionTriage {
    let info = graph(fake, APP, types, true);
    fake.memory.add(SP + 0x100, object);
    raised(fake, CPP, &[MAGIC, SP + 0x100, info, APP])
}

#[test]
fn a_winrt_throw() {
    let mut fake = user();
    let object = Bytes::of(16).u64(0, APP + 0x100).u32(8, 0xaabb_ccdd).u32(12, 0x8007_0005).0;
    let triage = throw64(&mut fake, &WINRT, object);
    let thrown = triage.thrown.as_ref().unwrap();
    assert_eq!(thrown.type_name.as_deref(), Some("winrt::hresult_access_denied"));
    assert_eq!(thrown.mangled_name.as_deref(), Some(WINRT[0].0));
    assert_eq!(thrown.catchable_as, ["winrt::hresult_access_denied", "winrt::hresult_error", "base_error"]);
    assert_eq!(thrown.size, Some(16));
    assert_eq!(thrown.hresult.as_ref().unwrap().value.0, 0x8007_0005);
    assert_eq!(thrown.hresult_confidence, Some(HresultConfidence::Corroborated));
    assert_eq!(thrown.hresult_source, Some(HresultSource::Winrt));
    assert_eq!(thrown.provenance, Provenance::Reported);
    assert!(triage.summary.unwrap().contains("E_ACCESSDENIED"));
}

#[test]
fn reports_for_people() {
    let mut fake = user();
    fake.symbol(APP + 0x1200, "app", "Engine::Run");
    fake.symbol(APP + 0x5600, "app", "main");
    fake.stacks.insert(IP, vec![(APP + 0x5678, SP + 0x40)]);
    let object = Bytes::of(16).u64(0, APP + 0x100).u32(8, 0xaabb_ccdd).u32(12, 0x8007_0005).0;
    insta::assert_snapshot!("winrt_throw", render_exception(&throw64(&mut fake, &WINRT, object)));
    let wil = raised(&mut user(), 0xc000_0409, &[7, 0xffff_ffff_8000_ffff, 0x28f]);
    insta::assert_snapshot!("wil_fail_fast", render_exception(&wil));
    let mut deep = user();
    deep.stacks.insert(IP, (1..200).map(|i| (APP + 0x2000, SP + 0x40 * i)).collect());
    insta::assert_snapshot!(
        "stack_overflow",
        render_exception(&raised(&mut deep, 0xc000_00fd, &[1, SP - 8]))
    );
}

#[test]
fn the_same_throw_without_its_image() {
    let mut fake = user();
    fake.memory.add(SP + 0x100, Bytes::of(16).u32(8, 0xaabb_ccdd).u32(12, 0x8007_0005).0);
    let thrown = raised(&mut fake, CPP, &[MAGIC, SP + 0x100, APP + 0x8000, APP]).thrown.unwrap();
    assert_eq!(thrown.hresult_confidence, Some(HresultConfidence::Convention));
    assert_eq!(thrown.hresult.unwrap().value.0, 0x8007_0005);
    assert!(thrown.type_note.is_some());
    assert_eq!(thrown.type_name, None);
}

#[test]
fn a_32_bit_throw() {
    let mut fake = user32();
    let info = graph(&mut fake, 0x40_0000, &WINRT, false);
    fake.memory.add(0x10_0000, Bytes::of(12).u32(4, 0xaabb_ccdd).u32(8, 0x8007_0005).0);
    let triage = triage(fake.raise(CPP, &[MAGIC, 0x10_0000, info], 0x40_1000, 0x10_0000));
    let thrown = triage.thrown.unwrap();
    assert_eq!(thrown.type_name.as_deref(), Some("winrt::hresult_access_denied"));
    assert_eq!(thrown.hresult.unwrap().value.0, 0x8007_0005);
}

#[test]
fn what_a_standard_exception_says() {
    let types = [(".?AVruntime_error@std@@", 0), (".?AVexception@std@@", 8)];
    let mut fake = user();
    fake.memory.add(SP + 0x800, *b"disk on fire\0");
    // The exception part is 8 bytes into the object.
    let object = Bytes::of(32).u64(8, APP + 0x100).u64(16, SP + 0x800).0;
    let thrown = throw64(&mut fake, &types, object).thrown.unwrap();
    assert_eq!(thrown.what.as_deref(), Some("disk on fire"));
    assert!(thrown.type_note.unwrap().contains("None of the object's types"));
    // A null pointer: the literal that a virtual what() returns.
    let mut fake = user();
    let function = APP + 0x2000;
    fake.memory.add(function, [0x48, 0x8d, 0x05, 0xf9, 0x00, 0x00, 0x00, 0xc3]);
    fake.memory.add(function + 0x100, *b"bad allocation\0");
    fake.memory.add(APP + 0x100, Bytes::of(16).u64(8, function).0);
    let types = [(".?AVbad_alloc@std@@", 0), (".?AVexception@std@@", 0)];
    let thrown = throw64(&mut fake, &types, Bytes::of(24).u64(0, APP + 0x100).0).thrown.unwrap();
    assert_eq!(thrown.what.as_deref(), Some("bad allocation"));
}

#[test]
fn other_carriers() {
    let exception = (".?AVexception@std@@", 0);
    let com =
        throw64(&mut user(), &[(".?AV_com_error@@", 0)], Bytes::of(16).u32(8, 0x8000_4005).0).thrown.unwrap();
    assert_eq!(
        (com.hresult.unwrap().value.0, com.hresult_source),
        (0x8000_4005, Some(HresultSource::ComError))
    );
    let atl = throw64(&mut user(), &[(".?AVCAtlException@ATL@@", 0)], Bytes::of(4).u32(0, 0x8007_000e).0);
    assert_eq!(atl.thrown.unwrap().hresult_source, Some(HresultSource::Atl));
    let mut fake = user();
    fake.memory.add(SP + 0x900, *b"src\\main.cpp\0");
    let object =
        Bytes::of(24 + 72).u32(24, 1).u32(32, 0x8007_0057).u64(24 + 56, SP + 0x900).u32(24 + 64, 42).0;
    let wil = throw64(&mut fake, &[(".?AVResultException@wil@@", 0), exception], object).thrown.unwrap();
    assert_eq!((wil.hresult.unwrap().value.0, wil.hresult_source), (0x8007_0057, Some(HresultSource::Wil)));
    let origin = wil.origin.unwrap();
    assert_eq!((origin.file.as_deref(), origin.line), (Some("src\\main.cpp"), Some(42)));
    let mut fake = user();
    fake.symbol(APP + 0x3000, "app", "std::_System_error_category_instance");
    let object = Bytes::of(40).u32(24, 5).u64(32, APP + 0x3000).0;
    let system = throw64(&mut fake, &[(".?AVsystem_error@std@@", 0), exception], object).thrown.unwrap();
    assert_eq!(system.hresult.unwrap().symbolic.as_deref(), Some("ERROR_ACCESS_DENIED"));
    // A type that carries one in an object that does not agree is told, never guessed.
    let lying = throw64(&mut user(), &WINRT, vec![0; 16]).thrown.unwrap();
    assert_eq!(lying.hresult, None);
    assert!(lying.type_note.unwrap().contains("does not read"));
}

#[test]
fn hostile_type_graphs() {
    for count in [0u32, 65, u32::MAX] {
        let mut fake = user();
        let info = graph(&mut fake, APP, &WINRT, true);
        fake.memory.add(APP + 0x8100, count.to_le_bytes());
        let thrown = raised(&mut fake, CPP, &[MAGIC, SP, info, APP]).thrown.unwrap();
        assert_eq!(thrown.type_name, None, "{count}");
    }
    // The thrown type's own entry is gone: the bases do not take its place.
    let mut fake = user();
    let info = graph(&mut fake, APP, &WINRT, true);
    fake.memory.add(APP + 0x8104, 0x00ff_0000u32.to_le_bytes());
    assert_eq!(raised(&mut fake, CPP, &[MAGIC, SP, info, APP]).thrown.unwrap().type_name, None);
    // A base that cannot be read makes the answer unknown, not no.
    let mut fake = user();
    let info = graph(&mut fake, APP, &[(".?AVodd@@", 0), (".?AVgone@@", 0)], true);
    fake.memory.add(APP + 0x8108, 0x00ff_0000u32.to_le_bytes());
    let thrown = raised(&mut fake, CPP, &[MAGIC, SP, info, APP]).thrown.unwrap();
    assert!(thrown.type_note.unwrap().contains("not known"));
    let other = raised(&mut user(), CPP, &[0x1234, SP, 0, APP]);
    assert_eq!(other.thrown, None);
    let again = raised(&mut user(), CPP, &[MAGIC, 0, 0, 0]).thrown.unwrap();
    assert!(again.rethrow && again.hresult.is_none());
    for parameters in [&[][..], &[MAGIC][..], &[MAGIC, 1][..], &[MAGIC, u64::MAX, u64::MAX, u64::MAX][..]] {
        let _ = raised(&mut user(), CPP, parameters);
    }
}

/// An exception record of a C++ throw as a 64-bit target stores it.
fn record64(object: u64, info: u64) -> Vec<u8> {
    Bytes::of(152).u32(0, CPP).u32(24, 4).u64(32, MAGIC).u64(40, object).u64(48, info).u64(56, APP).0
}

#[test]
fn a_throw_found_by_its_pattern() {
    let mut fake = user();
    let info = graph(&mut fake, APP, &WINRT, true);
    fake.memory.add(SP, vec![0; 0x400]);
    fake.memory.add(SP + 0x400, record64(SP + 0x300, info));
    let found = raised(&mut fake, 0xc000_0409, &[7]);
    assert_eq!(found.thrown_search, ThrownSearch::Found);
    assert_eq!(found.thrown.unwrap().provenance, Provenance::Scanned);
    assert!(found.summary.unwrap().contains("may be an older"));
    // An object outside the stack is noise.
    let mut fake = user();
    let info = graph(&mut fake, APP, &WINRT, true);
    fake.memory.add(SP, vec![0; 0x400]);
    fake.memory.add(SP + 0x400, record64(APP + 0x1000, info));
    assert_eq!(raised(&mut fake, 0xc000_0409, &[7]).thrown_search, ThrownSearch::SearchedNone);
    // Behind a hole in the stack.
    let mut fake = user();
    let info = graph(&mut fake, APP, &WINRT, true);
    fake.memory.add(SP, vec![0; 0x100]);
    fake.memory.add(SP + 0x3000, Bytes::of(0x10).put(0x10, &record64(SP + 0x50, info)).0);
    assert_eq!(raised(&mut fake, 0xc000_0409, &[7]).thrown_search, ThrownSearch::Found);
}

#[test]
fn a_throw_at_its_dispatcher() {
    let mut fake = user();
    fake.module("ntdll", "ntdll.dll", 0x7ff8_0000_0000);
    fake.symbol(0x7ff8_0000_1000, "ntdll", "KiUserExceptionDispatcher");
    let info = graph(&mut fake, APP, &WINRT, true);
    let dispatcher_sp = SP + 0x1000;
    let thrower = APP + 0x5678;
    let mut area = Bytes::of(0x4f0).u32(0x30, 0x10_000b).u64(0x98, dispatcher_sp + 0x1000).u64(0xf8, thrower);
    area = area.put(0x4f0, &record64(SP + 0x1800, info));
    fake.memory.add(dispatcher_sp, area.0);
    fake.stacks.insert(IP, vec![(0x7ff8_0000_1020, dispatcher_sp), (thrower, dispatcher_sp + 0x1000)]);
    let triage = raised(&mut fake, 0xc000_0409, &[7]);
    assert_eq!(triage.thrown.unwrap().provenance, Provenance::Dispatched);
    assert_eq!(triage.throw_frames[0].address, Address(thrower));
    assert!(triage.summary.unwrap().contains("winrt::hresult_access_denied was not caught"));
}

#[test]
fn stowed_exceptions() {
    let mut fake = user();
    fake.memory.add(0x9000, Bytes::of(16).u64(0, 0xa000).u64(8, 0xb000).0);
    let first = Bytes::of(0x30)
        .u32(0, 0x30)
        .u32(4, 0x5345_3032)
        .u32(8, 0x8000_4005)
        .u32(12, (0x1a4 << 2) | 1)
        .u64(16, IP)
        .u32(24, 8)
        .u32(28, 2)
        .u64(32, 0xc000)
        .u32(40, u32::from_be_bytes(*b"STOW"));
    fake.memory.add(0xa000, first.0).add(0xc000, Bytes::of(16).u64(0, IP).u64(8, APP + 0x77).0);
    let second = Bytes::of(0x20).u32(4, 0x5345_3031).u32(8, 0x8007_0005).u32(12, 2).u64(16, 0xd000);
    fake.memory.add(0xb000, second.0).add(0xd000, wide_z("no such thing"));
    let triage = raised(&mut fake, 0xc000_027b, &[0x9000, 2]);
    assert_eq!(triage.stowed.len(), 2);
    assert_eq!(triage.stowed[0].nested_type.as_deref(), Some("STOW"));
    assert_eq!(triage.stowed[0].stack.len(), 2);
    assert_eq!(triage.stowed[0].stack[1].module.as_deref(), Some("app"));
    assert_eq!(triage.stowed[1].text.as_deref(), Some("no such thing"));
    assert!(raised(&mut fake, 0xc000_027b, &[0x9000, u64::MAX]).stowed.len() <= 16);
}

#[test]
fn heaps_runtimes_and_missing_dlls() {
    let mut fake = user();
    fake.memory.add(0x9000, Bytes::of(0x48).u32(8, 8).u64(0x10, 0x111).u64(0x18, 0x222).0);
    let heap = raised(&mut fake, 0xc000_0374, &[0x9000]);
    let record = heap.heap.unwrap();
    assert_eq!((record.failure_type.0, record.heap.0, record.address.0), (8, 0x111, 0x222));
    assert_eq!(record.layout, HeapLayout::Assumed);
    assert!(
        heap.analysis
            .failure_bucket_id
            .unwrap()
            .starts_with("HEAP_CORRUPTION_ACTIONABLE_BlockNotBusy_DOUBLE_FREE")
    );
    let unread = raised(&mut user(), 0xc000_0374, &[0x9000]);
    assert_eq!(unread.analysis.problem_class.as_deref(), Some("HEAP_CORRUPTION"));
    let mut fake = user();
    fake.module("coreclr", "coreclr.dll", 0x7ff9_0000_0000);
    let clr =
        raised(&mut fake, 0xe043_4352, &[0xffff_ffff_8000_4003, 0, 0, 0, 0x7ff9_0000_0000]).clr.unwrap();
    assert_eq!((clr.hresult.value.0, clr.runtime_module.as_deref()), (0x8000_4003, Some("coreclr.dll")));
    let mut fake = user();
    fake.memory.add(0x9000, Bytes::of(72).u64(24, 0x9100).u32(32, 1).u64(40, 0x9200).0);
    fake.memory.add(0x9100, *b"gone.dll\0").add(0x9200, *b"DoIt\0");
    let missing = raised(&mut fake, 0xc06d_007f, &[0x9000]);
    assert_eq!(missing.kind, ExceptionKind::DelayLoad);
    assert!(missing.summary.unwrap().contains("gone.dll!DoIt"));
}

#[test]
fn endless_recursion() {
    let mut fake = user();
    let stack = (1..60).map(|i| (APP + 0x2000 + (i % 2) * 0x100, SP + 0x40 * i)).collect();
    fake.stacks.insert(IP, stack);
    let triage = raised(&mut fake, 0xc000_00fd, &[1, SP - 8]);
    let recursion = triage.recursion.unwrap();
    assert_eq!(recursion.period, 2);
    assert!(recursion.repeats >= 25);
    assert_eq!(triage.analysis.problem_class.as_deref(), Some("STACK_OVERFLOW"));
    assert!(triage.frames_truncated);
}

#[test]
fn the_threads_own_block() {
    for (mut fake, wide, teb) in [(user(), true, 0x7f_f000u64), (user32(), false, 0x7f_d000)] {
        let at = if wide { 0x1250 } else { 0xbf4 };
        let block = Bytes::of(at + 4)
            .word(if wide { 0x30 } else { 0x18 }, teb, wide)
            .u32(if wide { 0x68 } else { 0x34 }, 5)
            .u32(at, 0xc000_0022);
        fake.memory.add(teb, block.0);
        fake.threads.push(Thread { system_id: 7, teb: Some(teb), ..Thread::default() });
        let triage = raised(&mut fake, 0xc000_001d, &[]);
        assert_eq!(triage.last_error.unwrap().symbolic.as_deref(), Some("ERROR_ACCESS_DENIED"));
        assert_eq!(triage.last_status.unwrap().symbolic.as_deref(), Some("STATUS_ACCESS_DENIED"));
        assert_eq!((triage.kind, triage.thread_id), (ExceptionKind::IllegalInstruction, Some(7)));
    }
}

#[test]
fn stored_and_used_contexts() {
    let used = raised(&mut user(), 0x8000_0003, &[0]);
    assert!(used.stored_crash_context && used.frames_from_stored_context);
    let mut fake = user();
    fake.raise(0x8000_0003, &[0], IP, SP);
    let event = fake.event.as_mut().unwrap();
    (event.context, event.context_invalid) = (None, true);
    let unused = triage(&fake);
    assert!(unused.stored_crash_context && !unused.frames_from_stored_context);
    assert!(unused.limitations.iter().any(|l| l.contains("does not validate")));
    let mut lost = user();
    lost.end = WalkEnd::Lost("no unwind data");
    lost.scanned = vec![(APP + 0x99, SP + 8)];
    let lost = raised(&mut lost, 0x8000_0003, &[0]);
    assert_eq!(lost.frames[1].found, target::Found::Scan);
    assert!(lost.limitations.iter().any(|l| l.contains("guesses")));
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(256))]
    /// Whatever the record and the memory hold, the answer comes and is small.
    #[test]
    fn any_record_over_any_memory(
        code in proptest::prop_oneof![
            proptest::prelude::Just(CPP), proptest::prelude::Just(0xc000_0409u32), proptest::prelude::Just(0xc000_027b),
            proptest::prelude::Just(0xc000_0374), proptest::prelude::Just(0xc06d_007f), proptest::prelude::any::<u32>(),
        ],
        parameters in proptest::collection::vec(
            proptest::prop_oneof![
                proptest::prelude::any::<u64>(), proptest::prelude::Just(MAGIC), (0u64..0x1000).prop_map_to(SP),
            ], 0..6),
        bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..4096),
    ) {
        let mut fake = user();
        fake.memory.add(SP, bytes);
        let triage = raised(&mut fake, code, &parameters);
        proptest::prop_assert!(serde_json::to_string(&triage).unwrap().len() < 64 * 1024);
    }
}

trait MapTo: proptest::strategy::Strategy<Value = u64> + Sized {
    fn prop_map_to(self, base: u64) -> proptest::strategy::Map<Self, Box<dyn Fn(u64) -> u64>> {
        self.prop_map(Box::new(move |offset| base + offset))
    }
}
impl<S: proptest::strategy::Strategy<Value = u64>> MapTo for S {}
