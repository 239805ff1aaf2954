//! One sentence on an exception, never more than its record supports (spec 60 section 3.4).

use target::{Address, ExceptionRecord, MemoryExt as _, Target};

use crate::layout::{c_text, pointer, printable, wide_text};
use crate::result::{
    AccessInfo, AddressClass, ExceptionKind, ExceptionTriage, Operation, Provenance, ThrownSearch,
};

/// The address of an access in words: `a null pointer plus 0x10 (0x0000000000000010)`.
pub(crate) fn address_words(access: &AccessInfo) -> String {
    if let Some(effective) = access.effective_address {
        return format!("the non-canonical address {effective}");
    }
    match (access.class, access.address.0) {
        (AddressClass::NullPage, 0) => "a null pointer".into(),
        (AddressClass::NullPage, offset) => format!("a null pointer plus {offset:#x}"),
        (AddressClass::NonCanonical, _) => format!("the non-canonical address {}", access.address),
        _ => match &access.place {
            Some(place) => format!("{} ({place})", access.address),
            None => access.address.to_string(),
        },
    }
}

/// The sentence for `triage`; `None` for `other` with nothing to add.
pub(crate) fn summary(
    target: &dyn Target,
    triage: &ExceptionTriage,
    record: &ExceptionRecord,
) -> Option<String> {
    use ExceptionKind as K;
    let text = match triage.kind {
        K::AccessViolation | K::GuardPage | K::InPageError => access(triage)?,
        K::StackOverflow => stack_overflow(triage),
        K::FailFast => fail_fast(triage),
        K::HeapCorruption => heap(triage),
        K::CppThrow | K::RustPanic => thrown(triage),
        K::ClrException => clr(triage),
        K::Stowed => format!(
            "A WinRT program ended itself on {} stowed exception(s); the first one is the cause.",
            triage.stowed.len()
        ),
        K::Breakpoint => "A breakpoint instruction was executed; by itself no crash.".into(),
        K::SingleStep => "A single step or a data breakpoint; by itself no crash.".into(),
        K::IllegalInstruction => {
            "The processor met bytes that are no instruction: often a jump into data.".into()
        }
        K::Arithmetic => arithmetic(record.code).into(),
        K::InvalidHandle => "An invalid handle was used while handle checking is on.".into(),
        K::Assertion => "An assertion of the program or of a system component failed.".into(),
        K::VerifierStop => match record.parameters.first() {
            Some(stop) => format!("Application Verifier stopped the program: stop code {stop:#x}."),
            None => "Application Verifier stopped the program.".into(),
        },
        K::DelayLoad => delay_load(target, record),
        K::WinrtOriginate => originate(target, record),
        K::ThreadName => text_parameter(target, record, 1, false).map_or_else(
            || "A thread was given a name.".into(),
            |name| format!("A thread was given the name \"{name}\"."),
        ),
        K::DebugString => text_parameter(target, record, 1, record.code == 0x4001_000a).map_or_else(
            || "Text for a debugger.".into(),
            |text| format!("Text for a debugger: \"{}\".", text.trim_end()),
        ),
        K::GccThrow => match record.code {
            0x2047_4343 => "A C++ exception of a MinGW program was thrown and not caught.".into(),
            _ => "A MinGW program was unwinding its stack.".into(),
        },
        K::Hang => "The program did not respond and the hang reporter wrote this record.".into(),
        K::Other => return other(record.code).map(str::to_owned),
    };
    Some(text)
}

fn access(triage: &ExceptionTriage) -> Option<String> {
    let access = triage.access.as_ref()?;
    let verb = match access.operation {
        Operation::Read => "read",
        Operation::Write => "write to",
        Operation::Execute => "run code at",
        Operation::Unknown => "access",
    };
    let mut text = match triage.kind {
        ExceptionKind::GuardPage => format!("The program touched a guard page: {}.", address_words(access)),
        ExceptionKind::InPageError => {
            format!("A page needed to {verb} {} could not be read from its file.", address_words(access))
        }
        _ => format!("The program tried to {verb} {}.", address_words(access)),
    };
    if let Some(status) = access.io_status.as_ref().and_then(|s| s.best_effort.as_ref()) {
        text.push_str(&format!(" The I/O failed with {status}"));
    }
    Some(text)
}

fn stack_overflow(triage: &ExceptionTriage) -> String {
    match &triage.recursion {
        Some(r) if r.period == 1 => format!(
            "A thread used up its stack: {} calls itself; {} turns are on the stack that was walked.",
            r.frames.first().map_or("a function", String::as_str),
            r.repeats
        ),
        Some(r) => format!(
            "A thread used up its stack: a cycle of {} calls repeats; {} turns are on the stack that was walked.",
            r.period, r.repeats
        ),
        None => {
            "A thread used up its stack; no repeating cycle was found on the stack that was walked.".into()
        }
    }
}

fn fail_fast(triage: &ExceptionTriage) -> String {
    let fail_fast = triage.fail_fast.as_ref();
    if triage.exception.code.0 == 0xc000_0602 {
        return "The program ended itself with RaiseFailFastException.".into();
    }
    if fail_fast.is_some_and(|f| f.gs_cookie) {
        return "A stack cookie check failed: something wrote past the end of a buffer on the stack.".into();
    }
    if let Some(failure) = &triage.failure {
        let name = failure.hresult.symbolic.clone().unwrap_or_else(|| failure.hresult.value.to_string());
        return format!(
            "The program ended itself on a failed HRESULT, {name}, at source line {} (by the convention of WIL's parameters).",
            failure.line
        );
    }
    let Some(subcode) = fail_fast.and_then(|f| f.subcode) else {
        return "The program ended itself with a fast-fail; the record does not say why.".into();
    };
    if subcode == 7 {
        return abort(triage);
    }
    match fail_fast.and_then(|f| f.subcode_name.as_deref()) {
        Some(name) => format!("A deliberate exit: a check failed with fast-fail code {subcode:#x} ({name})."),
        None => format!("A deliberate exit: a check failed with the unnamed fast-fail code {subcode:#x}."),
    }
}

/// `abort()`: an uncaught exception ends here, but so do a direct abort and a failed assert.
fn abort(triage: &ExceptionTriage) -> String {
    let start =
        "The C runtime ended the program (abort, fast-fail code 7), a deliberate exit and no buffer overrun";
    match (&triage.thrown, triage.thrown_search) {
        (Some(t), _) if matches!(t.provenance, Provenance::Dispatched | Provenance::Reported) => {
            let name = t.type_name.as_deref().unwrap_or("of an unreadable type");
            format!("{start}: an exception {name} was not caught.")
        }
        (Some(_), _) => format!(
            "{start}. A throw record was found on the stack by its pattern; it may be an older, handled one."
        ),
        (None, ThrownSearch::SearchedNone) => {
            format!(
                "{start}: an abort() call, a failed assert or a terminate(); no throw record is on the stack."
            )
        }
        (None, _) => {
            format!("{start}: an uncaught exception, an abort() call, a failed assert or a terminate().")
        }
    }
}

fn heap(triage: &ExceptionTriage) -> String {
    match triage.heap.as_ref().and_then(|h| h.failure_name.as_ref().map(|n| (n, h.address))) {
        Some((name, address)) => {
            format!(
                "The heap is damaged: {name}, noticed at {address}; whoever damaged it may have run long before."
            )
        }
        None => "The heap is damaged; whoever damaged it may have run long before.".into(),
    }
}

fn thrown(triage: &ExceptionTriage) -> String {
    let Some(thrown) = &triage.thrown else {
        return "A C++ exception was thrown and not caught; its record is not one of the Microsoft compiler."
            .into();
    };
    if thrown.rethrow {
        return "A C++ exception was thrown again (throw;) and not caught.".into();
    }
    let kind = if triage.kind == ExceptionKind::RustPanic { "A Rust panic" } else { "A C++ exception" };
    let mut text = match &thrown.type_name {
        Some(name) if triage.kind != ExceptionKind::RustPanic => format!("{kind} of type {name} was thrown"),
        Some(_) => format!("{kind} was raised"),
        None => format!("{kind} was thrown"),
    };
    if let Some(what) = &thrown.what {
        text.push_str(&format!(": \"{what}\""));
    }
    if let Some(hresult) = &thrown.hresult {
        let name = hresult.symbolic.clone().unwrap_or_else(|| hresult.value.to_string());
        text.push_str(&format!(", carrying {name}"));
    }
    text + "."
}

fn clr(triage: &ExceptionTriage) -> String {
    match &triage.clr {
        Some(clr) => format!(
            "A .NET exception was thrown: {}.",
            clr.hresult
                .best_effort
                .as_deref()
                .map_or_else(|| clr.hresult.value.to_string(), |t| t.trim_end_matches('.').to_owned())
        ),
        None => "A .NET exception was thrown.".into(),
    }
}

fn arithmetic(code: u32) -> &'static str {
    match code {
        0xc000_0094 => "An integer was divided by zero.",
        0xc000_0095 => "An integer operation overflowed.",
        0xc000_008e => "A floating-point number was divided by zero.",
        _ => "A floating-point operation failed and its exception was not masked.",
    }
}

fn other(code: u32) -> Option<&'static str> {
    match code {
        0xc000_0096 => {
            Some("An instruction that only the kernel may execute was met: often a jump into data.")
        }
        0xc000_0005 => Some("An access violation whose record does not say what was accessed."),
        _ => None,
    }
}

/// `DelayLoadInfo` of delayimp.h.
fn delay_load(target: &dyn Target, record: &ExceptionRecord) -> String {
    let what = if record.code == 0xc06d_007e {
        "A DLL loaded on first use"
    } else {
        "A function of a DLL loaded on first use"
    };
    let info = record.parameters.first().copied().unwrap_or(0);
    let wide = target.facts().machine.pointer_size() == 8;
    let (dll_at, named_at, name_at) = if wide { (24, 32, 40) } else { (12, 16, 20) };
    let field = |offset: u64| info.checked_add(offset).filter(|_| info != 0);
    let dll = field(dll_at).and_then(|at| pointer(target, at)).and_then(|p| c_text(target, p, 260));
    let Some(dll) = dll else { return format!("{what} is missing.") };
    let by_name = field(named_at).and_then(|at| target.read_u32(at).ok()).unwrap_or(0) != 0;
    let procedure = field(name_at).and_then(|at| pointer(target, at)).and_then(|p| match by_name {
        true => c_text(target, p, 512),
        false => Some(format!("ordinal {}", p & 0xffff)),
    });
    match (record.code, procedure) {
        (0xc06d_007f, Some(name)) => format!("{what} is missing: {dll}!{name}."),
        _ => format!("{what} is missing: {dll}."),
    }
}

fn originate(target: &dyn Target, record: &ExceptionRecord) -> String {
    // 01: HRESULT, length, text. 02: old, new, length, text.
    let text_at = if record.code == 0x4008_0201 { 2 } else { 3 };
    let hresult = record.parameters.get(text_at - 2).map_or(0, |p| (*p & 0xffff_ffff) as u32);
    let text =
        text_parameter(target, record, text_at, true).map(|t| format!(": \"{t}\"")).unwrap_or_default();
    format!("A WinRT error was reported to debuggers: {}{text}.", target::Code(hresult))
}

fn text_parameter(target: &dyn Target, record: &ExceptionRecord, index: usize, wide: bool) -> Option<String> {
    let at = *record.parameters.get(index)?;
    if wide {
        return wide_text(target, at, 2048);
    }
    printable(&target.read_c_string(at, 1024)?)
}

/// Where an address lies, for `access.place`.
pub(crate) fn place_words(class: AddressClass, words: &str) -> Option<String> {
    (!matches!(class, AddressClass::NullPage | AddressClass::NonCanonical)).then(|| words.to_owned())
}

/// `module!symbol+0x..` of an exception address.
pub(crate) fn symbol_of(target: &dyn Target, address: u64) -> Option<String> {
    use target::TargetExt as _;
    let text = target.describe(address);
    (text != Address(address).to_string()).then_some(text)
}
