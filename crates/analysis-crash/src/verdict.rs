//! One plain sentence for a person, and how sure it is.

use analysis_status::base_code;
use target::{Found, FrameInfo};

use crate::leads::Leads;
use crate::result::{
    Cause, Confidence, ContextOrigin, CrashTriage, ExceptionKind, ExceptionTriage, Provenance, Verdict,
};

impl Verdict {
    pub(crate) fn new(cause: Cause, confidence: Confidence, sentence: String) -> Self {
        Self { cause, confidence, sentence }
    }
    pub(crate) fn unknown() -> Self {
        Self::new(Cause::CantTell, Confidence::Low, String::new())
    }
}

/// Codes a person or a tool asks for.
fn is_requested(base: u32) -> bool {
    matches!(base, 0xe2 | 0xdead_dead | 0x1c8 | 0x161)
}

/// Codes that say pool or kernel memory was overwritten: who did it is not who found it.
fn is_corruption(base: u32) -> bool {
    matches!(base, 0x19 | 0xc2 | 0xc5 | 0xc6 | 0x139 | 0x13a | 0x109 | 0xc1 | 0xf7)
}

fn is_disk_status(status: u32) -> bool {
    // Device errors as NTSTATUS: IO_DEVICE_ERROR, DEVICE_DATA_ERROR, DEVICE_NOT_CONNECTED, DATA_ERROR, CRC_ERROR, ...
    matches!(
        status,
        0xc000_0185
            | 0xc000_009c
            | 0xc000_009d
            | 0xc000_003e
            | 0xc000_003f
            | 0xc000_00a3
            | 0xc000_016a
            | 0xc000_016b
            | 0xc000_0010
            | 0xc000_000e
            | 0xc000_0032
            | 0xc000_0102
            | 0xc000_0006
    )
}

/// The verdict on a bug check.
pub(crate) fn of_crash(triage: &CrashTriage, leads: &Leads) -> Verdict {
    let base = base_code(triage.bug_check.code.0);
    let name =
        triage.bug_check.name.clone().unwrap_or_else(|| format!("bug check {}", triage.bug_check.code));
    by_code(base, triage, leads, &name).unwrap_or_else(|| by_frame(base, triage, &name))
}

fn by_code(base: u32, triage: &CrashTriage, leads: &Leads, name: &str) -> Option<Verdict> {
    let p1 = triage.bug_check.parameters[0].0;
    let verdict = |cause, confidence, sentence: String| Some(Verdict::new(cause, confidence, sentence));
    match base {
        _ if is_requested(base) => verdict(
            Cause::CantTell,
            Confidence::High,
            format!("The system did not fail by itself: the dump was asked for ({name})."),
        ),
        0x24 | 0x23 => verdict(
            Cause::Disk,
            Confidence::Medium,
            format!("The file system gave up on a volume ({name}): check the disk and its file system."),
        ),
        0x77 | 0x7a | 0x7b | 0xed => {
            let sure = if leads.io_status.is_some_and(is_disk_status) {
                Confidence::High
            } else {
                Confidence::Medium
            };
            let what = if matches!(base, 0x7b | 0xed) {
                "The boot volume could not be used"
            } else {
                "A page of memory could not be read back from the disk"
            };
            verdict(Cause::Disk, sure, format!("{what} ({name}): suspect the disk, its cable or its driver."))
        }
        0x124 if leads.whea.as_ref().is_some_and(|w| w.memory) => verdict(
            Cause::Memory,
            Confidence::High,
            "The hardware reported a fatal memory error: suspect the memory modules.".into(),
        ),
        0x124 | 0x9c => verdict(
            Cause::CantTell,
            Confidence::Medium,
            format!(
                "The hardware reported a fatal error ({name}): suspect processor, memory, power supply or cooling."
            ),
        ),
        0x1a if p1 == 0x41792 || p1 == 0x403 => verdict(
            Cause::Memory,
            Confidence::Medium,
            "A page table entry is damaged by what looks like a flipped bit: suspect the memory modules."
                .into(),
        ),
        0x1a | 0x4e | 0x12b => verdict(
            Cause::Memory,
            Confidence::Low,
            format!(
                "The memory manager's structures are damaged ({name}): bad memory modules, or a driver that overwrote them."
            ),
        ),
        0x116 | 0x117 | 0x141 => verdict(
            Cause::Driver,
            if leads.owner_module.is_some() { Confidence::High } else { Confidence::Medium },
            match &leads.owner_module {
                Some(module) => {
                    format!("The display driver {module} did not respond in time and could not be recovered.")
                }
                None => format!("The display driver did not respond in time ({name})."),
            },
        ),
        0x9f => Some(power(triage, leads)),
        0xa0 | 0x14f | 0x15f | 0x19c => verdict(
            Cause::Power,
            Confidence::Medium,
            format!("A power transition failed or took too long ({name})."),
        ),
        0xef | 0xf4 => {
            let who = leads.terminated.as_deref().unwrap_or("a process the system cannot do without");
            let disk = leads.io_status.is_some_and(is_disk_status);
            let (cause, hint) = if disk {
                (Cause::Disk, ": its memory could not be read from the disk")
            } else {
                (Cause::Application, "")
            };
            verdict(cause, Confidence::Medium, format!("The critical process {who} ended{hint} ({name})."))
        }
        0xc000_021a => verdict(
            Cause::Application,
            Confidence::Medium,
            "A process the system cannot do without (winlogon or csrss) ended.".into(),
        ),
        0x133 | 0x101 | 0x1ca | 0xea | 0x1d5 | 0x1db => Some(hang(triage, name)),
        _ => None,
    }
}

fn power(triage: &CrashTriage, leads: &Leads) -> Verdict {
    if let Some(module) = leads.blocked.as_ref().and_then(|b| b.module.as_ref().or(b.driver.as_ref())) {
        let sentence = format!("The driver {module} did not complete a power request in time.");
        return Verdict::new(Cause::Driver, Confidence::High, sentence);
    }
    let near = triage
        .faulting_frame
        .as_ref()
        .map(|f| format!("; {} is on the stack", f.place()))
        .unwrap_or_default();
    let sentence = format!("A driver did not finish a power transition in time{near}.");
    Verdict::new(Cause::Power, Confidence::Medium, sentence)
}

fn hang(triage: &CrashTriage, name: &str) -> Verdict {
    match &triage.faulting_frame {
        Some(frame) => Verdict::new(
            Cause::Hang,
            Confidence::Low,
            format!("A processor was kept busy too long ({name}); it was in {}.", frame.place()),
        ),
        None => Verdict::new(
            Cause::Hang,
            Confidence::Medium,
            format!("A processor or thread did not get on in time ({name})."),
        ),
    }
}

fn by_frame(base: u32, triage: &CrashTriage, name: &str) -> Verdict {
    let Some(frame) = &triage.faulting_frame else {
        return no_frame(base, name);
    };
    let place = frame.place();
    let Some(module) = image_or_module(triage, frame) else {
        let gone = frame.unloaded_module.as_ref().map(|m| format!(", once of {m}")).unwrap_or_default();
        return Verdict::new(
            Cause::Driver,
            Confidence::Low,
            format!("Code ran at {place}, in no loaded module{gone} ({name})."),
        );
    };
    if is_corruption(base) {
        return Verdict::new(
            Cause::Driver,
            Confidence::Low,
            format!(
                "Kernel memory was damaged ({name}); it was noticed in {place}, which need not be who did it."
            ),
        );
    }
    let recorded = frame.found == Found::Context && triage.context_source != ContextOrigin::CrashContext;
    let confidence = match (frame.found, recorded) {
        (Found::Scan, _) => Confidence::Low,
        (_, true) => Confidence::High,
        _ => Confidence::Medium,
    };
    let how = match base {
        0x0a | 0xd1 | 0x50 | 0xbe | 0xfc | 0xd5 | 0xd6 => "touched memory it must not touch",
        0xc4 | 0xc9 => "broke a rule that Driver Verifier watches",
        0x3b | 0x7e | 0x8e | 0x1e | 0x7f => "crashed",
        _ => "stopped the system",
    };
    Verdict::new(Cause::Driver, confidence, format!("The driver {module} {how} at {place} ({name})."))
}

fn image_or_module(triage: &CrashTriage, frame: &FrameInfo) -> Option<String> {
    let module = frame.module.clone()?;
    let same = triage.analysis.module_name.as_ref() == Some(&module);
    Some(triage.analysis.image_name.clone().filter(|_| same).unwrap_or(module))
}

fn no_frame(base: u32, name: &str) -> Verdict {
    let sentence = if is_corruption(base) {
        format!("Kernel memory was damaged ({name}); nothing in the dump says by whom.")
    } else {
        format!("The system stopped with {name}; no driver is on the stack to blame.")
    };
    Verdict::new(Cause::CantTell, Confidence::Low, sentence)
}

/// The verdict on a user-mode exception.
pub(crate) fn of_exception(triage: &ExceptionTriage, own_code: Option<bool>) -> Verdict {
    let process = triage.process_name.clone().unwrap_or_else(|| "The process".into());
    let place = triage.frames.first().map_or_else(|| triage.exception.address.to_string(), FrameInfo::place);
    let name = triage.exception.name.clone().unwrap_or_else(|| triage.exception.code.to_string());
    // In the program's own images the first frame is where the fault was made; in a system DLL it is
    // where it was noticed.
    let sure = if own_code == Some(false) { Confidence::Medium } else { Confidence::High };
    let app = |confidence, sentence| Verdict::new(Cause::Application, confidence, sentence);
    match triage.kind {
        ExceptionKind::AccessViolation | ExceptionKind::GuardPage => {
            let how = triage.access.as_ref().map_or("touched", |a| a.operation.past());
            let what = triage
                .access
                .as_ref()
                .map_or_else(String::new, |a| format!(" {}", crate::summary::address_words(a)));
            // Code at a bad address has no place of its own: its caller has.
            let at = match triage.frames.get(1) {
                Some(caller) if triage.frames.first().is_some_and(|f| f.module.is_none()) => {
                    format!(", called from {}", caller.place())
                }
                _ => format!(" at {place}"),
            };
            app(sure, format!("{process} {how}{what}{at}."))
        }
        ExceptionKind::InPageError => Verdict::new(
            Cause::Disk,
            Confidence::Medium,
            format!(
                "{process} needed a page that could not be read from its file at {place}: suspect the disk or network drive."
            ),
        ),
        ExceptionKind::StackOverflow => {
            let again = triage.recursion.as_ref().and_then(|r| r.frames.first());
            let by = again.map(|f| format!(": {f} calls itself without end")).unwrap_or_default();
            app(Confidence::High, format!("{process} used up a thread's stack at {place}{by}."))
        }
        ExceptionKind::HeapCorruption => app(
            Confidence::Medium,
            format!(
                "{process} damaged its heap; it was noticed at {place}, which need not be where it was done."
            ),
        ),
        ExceptionKind::CppThrow | ExceptionKind::RustPanic | ExceptionKind::GccThrow => {
            let type_name = triage.thrown.as_ref().and_then(|t| t.type_name.clone());
            let what = type_name.map(|t| format!(" of type {t}")).unwrap_or_default();
            app(
                sure_of_throw(triage),
                format!("{process} threw an exception{what} that stopped it{}.", thrower(triage)),
            )
        }
        ExceptionKind::ClrException => {
            app(Confidence::Medium, format!("{process} threw a .NET exception at {place}."))
        }
        ExceptionKind::FailFast
        | ExceptionKind::Assertion
        | ExceptionKind::VerifierStop
        | ExceptionKind::Stowed => {
            app(sure, format!("{process} ended itself at {place}: {}.", why_it_ended(triage, name)))
        }
        ExceptionKind::DelayLoad => {
            app(Confidence::High, format!("{process} needs a DLL or a function of one that is not there."))
        }
        ExceptionKind::Hang => {
            Verdict::new(Cause::Hang, Confidence::High, format!("{process} stopped responding at {place}."))
        }
        // The debugger's own breakpoints are in system DLLs; one in the program is an assertion's.
        ExceptionKind::Breakpoint
            if own_code == Some(true) && triage.exception.first_chance != Some(true) =>
        {
            app(
                Confidence::Medium,
                format!(
                    "{process} stopped at a breakpoint of its own at {place}: usually a failed assertion or a debug break."
                ),
            )
        }
        ExceptionKind::Breakpoint | ExceptionKind::SingleStep => Verdict::new(
            Cause::CantTell,
            Confidence::Low,
            format!("{process} stopped at a breakpoint at {place}; that alone is no crash."),
        ),
        ExceptionKind::DebugString | ExceptionKind::ThreadName | ExceptionKind::WinrtOriginate => {
            Verdict::new(
                Cause::CantTell,
                Confidence::Low,
                format!("{process} raised {name}, which is information for a debugger and no crash."),
            )
        }
        ExceptionKind::IllegalInstruction
        | ExceptionKind::Arithmetic
        | ExceptionKind::InvalidHandle
        | ExceptionKind::Other => {
            app(sure.min(Confidence::Medium), format!("{process} was stopped by {name} at {place}."))
        }
    }
}

/// The reason of a deliberate exit, in words where the record has one.
fn why_it_ended(triage: &ExceptionTriage, name: String) -> String {
    let symbolic =
        |info: &analysis_status::StatusInfo| info.symbolic.clone().unwrap_or_else(|| info.value.to_string());
    if let Some(failure) = &triage.failure {
        return format!("an operation failed with {}", symbolic(&failure.hresult));
    }
    if let Some(first) = triage.stowed.first() {
        return format!("a WinRT operation failed with {}", symbolic(&first.hresult));
    }
    let reported = triage.thrown.as_ref().filter(|t| t.provenance != Provenance::Scanned);
    match triage.fail_fast.as_ref().and_then(|f| f.subcode) {
        Some(7) if reported.is_some() => {
            let kind = reported.and_then(|t| t.type_name.as_deref()).unwrap_or("of unknown type");
            format!("an exception {kind} was not caught")
        }
        Some(7) => "abort() was called, or an exception was not caught".into(),
        Some(0 | 2) => "a buffer on the stack was overrun".into(),
        Some(3) => "a linked list is damaged".into(),
        Some(5) => "an invalid argument was passed".into(),
        Some(10) => "an indirect call went to a wrong place (control flow guard)".into(),
        Some(50) => "the heap is damaged".into(),
        _ => triage.fail_fast.as_ref().and_then(|f| f.subcode_name.clone()).unwrap_or(name),
    }
}

fn sure_of_throw(triage: &ExceptionTriage) -> Confidence {
    let known = triage.thrown.as_ref().is_some_and(|t| t.type_name.is_some());
    // The thrower is a guess where its frame is.
    let guessed = triage.frames.iter().any(|f| f.found == Found::Scan);
    if known && !guessed { Confidence::High } else { Confidence::Medium }
}

/// The first frame that is not the throw machinery.
fn thrower(triage: &ExceptionTriage) -> String {
    let frame = triage.analysis.symbol_name.as_ref();
    frame.map(|f| format!(", from {f}")).unwrap_or_default()
}

impl crate::result::Operation {
    fn past(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "wrote to",
            Self::Execute => "tried to run code at",
            Self::Unknown => "touched",
        }
    }
}
