//! Every dump of `../shared/data` triaged by the native engine, against DbgEng's facts about it.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

use analysis_crash::{
    Cause, Confidence, ContextOrigin, CrashParams, CrashTriage, ExceptionKind, ExceptionParams,
    ExceptionTriage, Provenance, crash_triage, exception_triage, render_crash, render_exception,
};
use engine_native::OpenOptions;
use target::{Halt, Target};

fn halt() -> Halt {
    Halt::within(Duration::from_secs(30))
}

/// Unpacks the `.xz` files of `folder` that end in `end` into `into`.
fn unpack(folder: &Path, end: &str, into: &Path) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if let Some(plain) = name.strip_suffix(".xz").filter(|p| p.ends_with(end)) {
            let mut bytes = Vec::new();
            let file = std::fs::File::open(entry.path()).unwrap();
            liblzma::read::XzDecoder::new(file).read_to_end(&mut bytes).unwrap();
            std::fs::write(into.join(plain), bytes).unwrap();
        }
    }
}

/// Opens a dump with the symbols of its folder; `isf` adds the kernel's types and symbols.
fn with_target<T>(name: &str, isf: bool, act: impl FnOnce(&dyn Target) -> T) -> Option<T> {
    let data = test_data::shared()?;
    let path = data.join(name);
    let folder = path.parent().unwrap();
    let unpacked = tempfile::tempdir().unwrap();
    unpack(folder, ".pdb", unpacked.path());
    if isf {
        unpack(&data.join("isf"), ".json", unpacked.path());
    }
    let symbols = format!("{};{}", folder.display(), unpacked.path().display());
    let options = OpenOptions { symbol_path: Some(symbols), ..OpenOptions::default() };
    let target = engine_native::open(&path, &options).unwrap_or_else(|e| panic!("{name}: {e}"));
    Some(act(target.as_ref()))
}

fn crash(name: &str, isf: bool) -> Option<CrashTriage> {
    with_target(name, isf, |target| crash_triage(target, &CrashParams::default(), &halt()).unwrap())
}
fn exception(name: &str) -> Option<ExceptionTriage> {
    with_target(name, false, |target| exception_triage(target, &ExceptionParams::default(), &halt()).unwrap())
}

/// What DbgEng printed after `.exr -1`: address, code, flags, parameters.
fn recorded(transcript: &str) -> (u64, u32, u32, Vec<u64>) {
    let section = transcript.split("---- .exr -1").nth(1).unwrap().split("\n=> ").next().unwrap();
    let value = |key: &str| {
        let line =
            section.lines().find_map(|l| l.trim().strip_prefix(key)).unwrap_or_else(|| panic!("{key}"));
        u64::from_str_radix(line.split_whitespace().next().unwrap(), 16).unwrap()
    };
    let count = value("NumberParameters:");
    let parameters = (0..count).map(|i| value(&format!("Parameter[{i}]:"))).collect();
    (value("ExceptionAddress:"), value("ExceptionCode:") as u32, value("ExceptionFlags:") as u32, parameters)
}

fn transcript(data: &Path, dump: &str) -> String {
    let path = data.join("oracle").join(format!("{}.txt", dump.replace('/', "_")));
    String::from_utf8_lossy(&std::fs::read(path).unwrap()).into_owned()
}

/// Kind, bucket, and what the verdict says, of every user dump; the record is DbgEng's.
#[test]
fn every_user_dump() {
    use ExceptionKind as K;
    let Some(data) = test_data::shared() else { return };
    let cases = [
        (
            "user/bp_exec_av_on_stack.dmp",
            K::AccessViolation,
            "SOFTWARE_NX_FAULT_c0000005_crashme1.exe!Unknown",
            Cause::Application,
        ),
        (
            "user/bp_minidump2.dmp",
            K::AccessViolation,
            "NULL_CLASS_PTR_WRITE_c0000005_test_app.exe!Unknown",
            Cause::Application,
        ),
        (
            "user/bp_null_read_av.dmp",
            K::AccessViolation,
            "NULL_POINTER_READ_c0000005_crashme.exe!Unknown",
            Cause::Application,
        ),
        (
            "user/bp_stack_exhaustion.dmp.xz",
            K::StackOverflow,
            "STACK_OVERFLOW_c00000fd_crashme.exe!Unknown",
            Cause::Application,
        ),
        (
            "user/bp_tiny-exe-fastfail.dmp",
            K::FailFast,
            "FAIL_FAST_FATAL_APP_EXIT_c0000409_tiny.exe!Unknown",
            Cause::Application,
        ),
        (
            "user/crash_x86/crash_x86.dmp",
            K::AccessViolation,
            "NULL_CLASS_PTR_WRITE_c0000005_crash.exe!?A0xc3a0617d::crash",
            Cause::Application,
        ),
        (
            "user/cxx_eh_x64/cxx_eh_x64.dmp.xz",
            K::CppThrow,
            "CPP_EXCEPTION_e06d7363_CrashWithException.exe!crashing_function",
            Cause::Application,
        ),
        (
            "user/forged_arm64/forged_arm64.dmp",
            K::Breakpoint,
            "BREAKPOINT_80000003_xcpt4.exe!__gsfailure",
            Cause::Application,
        ),
        (
            "user/kd_allreg_amd64/targetapp_test_cv_allreg_amd64.cab",
            K::Breakpoint,
            "BREAKPOINT_80000003_targetapp.exe!test_cv_allreg_amd64",
            Cause::Application,
        ),
        (
            "user/kd_wow64_release/wow64_release_full_mdmp.dmp.xz",
            K::Breakpoint,
            "BREAKPOINT_4000001f_targetapp.exe!stackTestClass::stackMethod",
            Cause::Application,
        ),
        (
            "user/kd_wow64_release/wow64_release_mini.dmp",
            K::Breakpoint,
            "BREAKPOINT_4000001f_targetapp.exe!stackTestClass::stackMethod",
            Cause::Application,
        ),
        (
            "user/kd_x64_release/targetapp_stacktest_x64_release.cab",
            K::Breakpoint,
            "BREAKPOINT_80000003_targetapp.exe!stackTestClass::stackMethod",
            Cause::CantTell,
        ),
        (
            "user/kt2/kt2_vector_oob_debugbreak_x64.dmp",
            K::Breakpoint,
            "BREAKPOINT_80000003_CppConsoleApplication.exe!std::vector_std::shared_ptr_Item_,std::allocator_std::shared_ptr_Item_____::operator[]",
            Cause::Application,
        ),
        (
            "user/llvm_sigsegv_x64.dmp",
            K::AccessViolation,
            "NULL_POINTER_WRITE_c0000005_sigsegv.exe!Unknown",
            Cause::Application,
        ),
        (
            "user/rm_invalid_parameter_x64.dmp",
            K::Other,
            "APPLICATION_FAULT_c000000d_CrashTest.exe!Unknown",
            Cause::Application,
        ),
    ];
    for (dump, kind, bucket, cause) in cases {
        let triage = exception(dump).unwrap();
        let (address, code, flags, parameters) = recorded(&transcript(&data, dump));
        let info = &triage.exception;
        assert_eq!((info.address.0, info.code.0, info.flags.0), (address, code, flags), "{dump}");
        assert_eq!(info.parameters.iter().map(|p| p.0).collect::<Vec<_>>(), parameters, "{dump}");
        assert_eq!(triage.kind, kind, "{dump}");
        assert_eq!(triage.analysis.failure_bucket_id.as_deref(), Some(bucket), "{dump}");
        assert_eq!(triage.verdict.cause, cause, "{dump}: {}", triage.verdict.sentence);
        assert!(triage.stored_crash_context && triage.frames_from_stored_context, "{dump}");
        assert_eq!(triage.frames[0].found, target::Found::Context, "{dump}");
        // A fault's first frame is where the record says (an assertion's record has no address).
        if address != 0 {
            assert_eq!(triage.frames[0].address.0, address, "{dump}");
        }
        let json = serde_json::to_string(&triage).unwrap();
        assert!(json.len() < 8 * 1024 && !json.contains("null,"), "{dump}: {} bytes", json.len());
        assert!(render_exception(&triage).starts_with(&triage.verdict.sentence), "{dump}");
    }
}

#[test]
fn a_dump_without_an_exception_is_refused() {
    let name = "user/bp_tiny-exe-with-cet-xsave-x86.dmp";
    let refused = with_target(name, false, |t| exception_triage(t, &ExceptionParams::default(), &halt()));
    let Some(refused) = refused else { return };
    assert!(refused.unwrap_err().to_string().starts_with("no exception recorded"));
}

#[test]
fn details_of_user_dumps() {
    let Some(overflow) = exception("user/bp_stack_exhaustion.dmp.xz") else { return };
    let recursion = overflow.recursion.unwrap();
    assert_eq!((recursion.period, recursion.frames), (1, vec!["crashme+0xa6a7".to_owned()]));
    assert!(recursion.repeats >= 200);
    let fast_fail = exception("user/bp_tiny-exe-fastfail.dmp").unwrap();
    assert_eq!(fast_fail.fail_fast.unwrap().subcode_name.as_deref(), Some("FATAL_APP_EXIT"));
    assert_eq!(fast_fail.last_error.unwrap().symbolic.as_deref(), Some("ERROR_ALREADY_EXISTS"));
    assert_eq!(fast_fail.thread_id, Some(0x5f78));
    let thrown = exception("user/cxx_eh_x64/cxx_eh_x64.dmp.xz").unwrap().thrown.unwrap();
    assert_eq!(thrown.type_name.as_deref(), Some("std::exception *"));
    assert_eq!(thrown.mangled_name.as_deref(), Some(".PEAVexception@std@@"));
    assert_eq!(thrown.provenance, Provenance::Reported);
    let inline = exception("user/crash_x86/crash_x86.dmp").unwrap();
    assert!(inline.frames[0].inline && !inline.frames[2].inline);
    assert_eq!(inline.frames[2].place(), "crash!main+0x12d");
    assert_eq!(inline.access.unwrap().address.0, 0x45);
}

/// Code and parameters are DbgEng's; the four synthetic dumps answer alike.
#[test]
fn kernel_dumps() {
    let Some(data) = test_data::shared() else { return };
    let mut answers = Vec::new();
    for dump in ["syn_full_x64", "syn_bmp5_x64", "syn_bmp6_x64", "syn_rdmp8_x64"] {
        let triage = crash(&format!("synthetic/{dump}.dmp"), false).unwrap();
        assert_eq!(triage.bug_check.code.0, 0xdead_beef);
        let parameters = triage.bug_check.parameters.map(|p| p.0);
        assert_eq!(parameters, [0x22_2003, 0xffff_b800_0000_fc80, 0x1234, 4]);
        answers.push(serde_json::to_string(&triage).unwrap());
    }
    assert!(answers.windows(2).all(|pair| pair[0] == pair[1]));
    let printed = transcript(&data, "synthetic/syn_full_x64.dmp");
    assert!(
        printed.contains(
            "Bugcheck code DEADBEEF\nArguments 00000000`00222003 ffffb800`0000fc80 00000000`00001234"
        )
    );
    let triage = crash("synthetic/syn_full_x64.dmp", false).unwrap();
    let places: Vec<String> = triage.frames.iter().map(target::FrameInfo::place).collect();
    let walked = [
        "nt!KeBugCheckEx",
        "myfault!Boom+0x29",
        "myfault!DispatchDeviceControl+0x2e",
        "nt!IofCallDriver+0x14",
        "nt!NtDeviceIoControlFile+0x17",
        "nt!KiSystemStartup+0xc",
    ];
    assert_eq!(places, walked);
    assert_eq!(triage.faulting_frame.as_ref().unwrap().index, 1);
    assert_eq!(triage.analysis.failure_bucket_id.as_deref(), Some("0xDEADBEEF_myfault!Boom"));
    assert_eq!((triage.process_name.as_deref(), triage.verdict.cause), (Some("System"), Cause::Driver));
}

/// The bluescreen: the driver comes from the context record at parameter 4.
#[test]
fn the_bluescreen() {
    for isf in [false, true] {
        let Some(triage) = crash("kernel/triage_x64_19041_7e.dmp", isf) else { return };
        assert_eq!(triage.bug_check.code.0, 0x1000_007e);
        assert_eq!(triage.bug_check.base_code.unwrap().0, 0x7e);
        assert_eq!(triage.bug_check.name.as_deref(), Some("SYSTEM_THREAD_EXCEPTION_NOT_HANDLED_M"));
        let notes = triage.bug_check.parameter_notes.as_ref().unwrap();
        assert_eq!(notes[0], "exception code: STATUS_ACCESS_VIOLATION");
        assert_eq!(triage.context_source, ContextOrigin::ContextRecord);
        let frame = triage.faulting_frame.as_ref().unwrap();
        assert_eq!((frame.index, frame.place().as_str()), (0, "amdppm+0x334c"));
        assert_eq!(frame.found, target::Found::Context);
        assert_eq!(triage.process_name.as_deref(), Some("System"));
        let thread = triage.thread.as_ref().unwrap();
        assert_eq!((thread.ethread.0, thread.tid), (0xffff_c08b_de9e_1640, Some(0x108)));
        assert_eq!(triage.analysis.failure_bucket_id.as_deref(), Some("AV_amdppm!unknown_function"));
        assert_eq!(triage.analysis.image_name.as_deref(), Some("amdppm.sys"));
        assert_eq!((triage.verdict.cause, triage.verdict.confidence), (Cause::Driver, Confidence::High));
        assert!(
            triage.verdict.sentence.contains("amdppm.sys")
                && triage.verdict.sentence.contains("amdppm+0x334c")
        );
        let named = triage.frames.iter().any(|f| f.place() == "nt!IofCallDriver+0x55");
        assert_eq!(named, isf, "with the ISF, nt frames have names");
        assert!(triage.frames[1..].iter().all(|f| f.found == target::Found::Scan));
        assert!(serde_json::to_string(&triage).unwrap().len() < 5 * 1024);
    }
}

#[test]
fn other_kernel_dumps() {
    let Some(arm64) = crash("kernel/triage_arm64_17134_e2.cab", false) else { return };
    assert_eq!(arm64.bug_check.name.as_deref(), Some("MANUALLY_INITIATED_CRASH"));
    assert_eq!(arm64.frames[0].place(), "nt+0x222de8");
    assert_eq!(arm64.verdict.confidence, Confidence::High);
    let cut = crash("kernel/full_header_only_19045.dmp", false).unwrap();
    assert_eq!((cut.bug_check.code.0, cut.bug_check.name), (0x5454_414d, None));
    assert!(cut.frames.iter().all(|f| f.attribution_failed), "a failed lookup is no finding");
    assert_eq!((cut.verdict.cause, cut.verdict.confidence), (Cause::CantTell, Confidence::High));
    assert!(cut.verdict.sentence.contains("DumpIt"), "{}", cut.verdict.sentence);
    let refused = with_target("kernel/triage_arm32_17134.cab", false, |t| {
        crash_triage(t, &CrashParams::default(), &halt()).unwrap_err().to_string()
    });
    assert!(refused.unwrap().contains("not a crash dump"));
    let wrong = with_target("kernel/triage_x64_19041_7e.dmp", false, |t| {
        exception_triage(t, &ExceptionParams::default(), &halt()).unwrap_err().category().0
    });
    assert_eq!(wrong, Some("unsupported"));
}

/// Deterministic pseudo-random numbers (xorshift).
struct Noise(u64);
impl Noise {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// Damaged copies of small dumps: an answer or a refusal, in time.
#[test]
fn damaged_dumps_are_answered() {
    let Some(data) = test_data::shared() else { return };
    let mut noise = Noise(0x9e37_79b9_7f4a_7c15);
    for name in [
        "user/bp_tiny-exe-fastfail.dmp",
        "user/bp_null_read_av.dmp",
        "user/llvm_sigsegv_x64.dmp",
        "user/crash_x86/crash_x86.dmp",
        "synthetic/syn_full_x64.dmp",
        "kernel/triage_x64_19041_7e.dmp",
    ] {
        let sound = std::fs::read(data.join(name)).unwrap();
        for _ in 0..12 {
            let mut bytes = sound.clone();
            for _ in 0..40 {
                // Mostly the front, where the headers and directories are.
                let range =
                    if noise.next().is_multiple_of(2) { bytes.len().min(0x3000) } else { bytes.len() } as u64;
                bytes[(noise.next() % range) as usize] = noise.next() as u8;
            }
            if noise.next().is_multiple_of(4) {
                bytes.truncate((noise.next() % sound.len() as u64) as usize);
            }
            let started = std::time::Instant::now();
            let options = OpenOptions::default();
            let Ok(target) = engine_native::open_bytes(bytes, "damaged.dmp", &options) else { continue };
            let halt = Halt::within(Duration::from_secs(5));
            if let Ok(triage) = crash_triage(target.as_ref(), &CrashParams::default(), &halt) {
                assert!(render_crash(&triage).len() < 256 * 1024);
            }
            if let Ok(triage) = exception_triage(target.as_ref(), &ExceptionParams::default(), &halt) {
                assert!(render_exception(&triage).len() < 256 * 1024);
            }
            assert!(started.elapsed() < Duration::from_secs(10), "{name}");
        }
    }
}
