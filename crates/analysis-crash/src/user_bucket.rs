//! The bucket of a user-mode exception and the frame to follow up (spec 60 section 2.5).

use analysis_status::heap_failure_bucket;
use target::{Found, FrameInfo, Module};

use crate::bucket::folded;
use crate::frames::{function_of, stem};
use crate::result::{BucketForm, ExceptionKind, ExceptionTriage, Operation};

/// System code that throws, reports or ends for somebody else. Without leading underscores, which x86
/// and the runtime's own versions add.
const MACHINERY: [&str; 47] = [
    // Raising and dispatching.
    "RaiseException",
    "RtlRaiseException",
    "RtlRaiseStatus",
    "CxxThrowException",
    "CxxFrameHandler3",
    "CxxFrameHandler4",
    "CxxCallUnwindDtor",
    "C_specific_handler",
    "GSHandlerCheck",
    "KiUserExceptionDispatch",
    "KiUserExceptionDispatcher",
    "KiRaiseUserExceptionDispatcher",
    "RtlDispatchException",
    "RtlpExecuteHandlerForException",
    "UnhandledExceptionFilter",
    "RaiseFailFastException",
    // The heap's own checks.
    "RtlReportFatalFailure",
    "RtlReportCriticalFailure",
    "RtlpReportHeapFailure",
    "RtlpHeapHandleError",
    "RtlpLogHeapFailure",
    "RtlFailFast2",
    // The C and C++ runtimes' ends.
    "abort",
    "raise",
    "terminate",
    "std_terminate",
    "std::terminate",
    "purecall",
    "wassert",
    "assert",
    "common_assert_to_stderr",
    "common_assert_to_stderr_direct",
    "common_assert_to_message_box",
    "invalid_parameter",
    "invalid_parameter_internal",
    "invalid_parameter_noinfo",
    "invalid_parameter_noinfo_noreturn",
    "invoke_watson",
    "report_gsfailure",
    "report_rangecheckfailure",
    "report_securityfailure",
    "report_securityfailureEx",
    "raise_securityfailure",
    "scrt_fastfail",
    "fastfail",
    "DebugBreak",
    "operator new",
];
/// The standard library's `std::_Xlength_error` and its kin, and the debug runtime's checks and reports.
const MACHINERY_PREFIXES: [&str; 4] = ["std::_X", "RTC_", "CrtDbgReport", "VCrtDbgReport"];
/// Modules that throw for somebody else, when there are no symbols to say more.
const RUNTIMES: [&str; 9] = [
    "ntdll",
    "kernelbase",
    "kernel32",
    "ucrtbase",
    "ucrtbased",
    "msvcrt",
    "vcruntime140",
    "vcruntime140d",
    "coreclr",
];

/// Whether an image is one of the system's or the compiler's runtimes, by its name alone.
pub(crate) fn is_runtime(image: &str) -> bool {
    RUNTIMES.contains(&stem(image).as_str())
}

fn is_machinery(frame: &FrameInfo, modules: &[Module], kind: ExceptionKind) -> bool {
    if let Some(function) = function_of(frame) {
        let bare = function.trim_start_matches('_');
        return MACHINERY.contains(&bare) || MACHINERY_PREFIXES.iter().any(|p| bare.starts_with(p));
    }
    // Where a DLL itself faulted it is the place; a throw or an exit merely passes through it.
    let passes_through = matches!(
        kind,
        ExceptionKind::CppThrow
            | ExceptionKind::ClrException
            | ExceptionKind::FailFast
            | ExceptionKind::RustPanic
            | ExceptionKind::GccThrow
            | ExceptionKind::Stowed
    );
    let module = modules.iter().find(|m| m.contains(frame.address.0));
    passes_through && module.is_some_and(|m| is_runtime(&m.image_name))
}

/// Indices of the frames that may be followed up, best first: walked before guessed, and machinery last.
pub(crate) fn follow_up_order(frames: &[FrameInfo], modules: &[Module], kind: ExceptionKind) -> Vec<usize> {
    let mut order: Vec<(u8, usize)> = frames
        .iter()
        .enumerate()
        .filter(|(_, frame)| frame.module.is_some())
        .map(|(index, frame)| {
            let machinery = is_machinery(frame, modules, kind);
            (u8::from(machinery) * 2 + u8::from(frame.found == Found::Scan), index)
        })
        .collect();
    order.sort_unstable();
    order.into_iter().map(|(_, index)| index).collect()
}

/// What the class depends on besides the triage's own fields.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ClassHints {
    /// The address is in a committed page without execute rights.
    pub(crate) no_execute: bool,
    /// The address is within one page below the stack limit.
    pub(crate) below_stack: bool,
}

/// The class in front of the exception code.
pub(crate) fn class(triage: &ExceptionTriage, hints: ClassHints) -> String {
    let text = match triage.kind {
        ExceptionKind::AccessViolation | ExceptionKind::GuardPage if hints.below_stack => "STACK_OVERFLOW",
        ExceptionKind::AccessViolation => return access_class(triage, hints),
        ExceptionKind::StackOverflow => "STACK_OVERFLOW",
        ExceptionKind::HeapCorruption => return heap_class(triage),
        ExceptionKind::FailFast => return fail_fast_class(triage),
        ExceptionKind::CppThrow | ExceptionKind::RustPanic => "CPP_EXCEPTION",
        ExceptionKind::ClrException => "CLR_EXCEPTION",
        ExceptionKind::Stowed => "STOWED_EXCEPTION",
        ExceptionKind::Breakpoint => "BREAKPOINT",
        ExceptionKind::IllegalInstruction => "ILLEGAL_INSTRUCTION",
        ExceptionKind::InPageError => "IN_PAGE_ERROR",
        ExceptionKind::Arithmetic if triage.exception.code.0 == 0xc000_0094 => "INTEGER_DIVIDE_BY_ZERO",
        ExceptionKind::Other if triage.exception.code.0 == 0xc000_0096 => "PRIVILEGED_INSTRUCTION",
        _ => "APPLICATION_FAULT",
    };
    text.to_owned()
}

fn access_class(triage: &ExceptionTriage, hints: ClassHints) -> String {
    let Some(access) = &triage.access else { return "APPLICATION_FAULT".into() };
    let how = match access.operation {
        Operation::Read | Operation::Unknown => "READ",
        Operation::Write => "WRITE",
        Operation::Execute => "EXECUTE",
    };
    match access.address.0 {
        0 => format!("NULL_POINTER_{how}"),
        address if address < 0x10000 => format!("NULL_CLASS_PTR_{how}"),
        _ if access.operation == Operation::Execute && hints.no_execute => "SOFTWARE_NX_FAULT".into(),
        _ => format!("INVALID_POINTER_{how}"),
    }
}

fn heap_class(triage: &ExceptionTriage) -> String {
    let kind = triage.heap.as_ref().and_then(|h| heap_failure_bucket(h.failure_type.0));
    kind.map_or_else(|| "HEAP_CORRUPTION".into(), |kind| format!("HEAP_CORRUPTION_ACTIONABLE_{kind}"))
}

fn fail_fast_class(triage: &ExceptionTriage) -> String {
    let fail_fast = triage.fail_fast.as_ref();
    match (fail_fast.and_then(|f| f.subcode), fail_fast.and_then(|f| f.subcode_name.as_deref())) {
        (Some(2), _) => "FAIL_FAST_STACK_BUFFER_OVERRUN_STACK_COOKIE_CHECK_FAILURE".into(),
        (_, Some(name)) => format!("FAIL_FAST_{name}"),
        _ => "FAIL_FAST_EXCEPTION".into(),
    }
}

/// `CLASS_code_image!Function`.
pub(crate) fn bucket(
    class: &str,
    code: u32,
    image: Option<&str>,
    function: Option<&str>,
) -> (String, BucketForm) {
    let symbol = match (image, function) {
        (Some(image), Some(function)) => format!("{image}!{}", folded(function)),
        (Some(image), None) => format!("{image}!Unknown"),
        (None, _) => crate::bucket::INCONCLUSIVE.to_owned(),
    };
    let form = if class == "APPLICATION_FAULT" || image.is_none() {
        BucketForm::Approximate
    } else {
        BucketForm::Documented
    };
    (format!("{class}_{code:08x}_{symbol}"), form)
}

#[cfg(test)]
mod tests {
    use super::*;
    use target::{Address, Rva};

    fn frame(symbol: &str) -> FrameInfo {
        FrameInfo {
            index: 0,
            address: Address(0x1000),
            sp: None,
            module: symbol.split_once('!').map(|(module, _)| module.to_owned()),
            rva: Some(Rva(0x10)),
            symbol: Some(symbol.to_owned()),
            displacement: None,
            source: None,
            inline: false,
            found: Found::Unwind,
            attribution_failed: false,
            unloaded_module: None,
        }
    }

    /// Spec 60 section 2.5: whoever called abort is followed up, not the runtime's plumbing.
    #[test]
    fn the_runtimes_plumbing_is_passed() {
        for plumbing in [
            "ucrtbase!abort",
            "ucrtbase!_invoke_watson",
            "app!__report_gsfailure",
            "app!_invalid_parameter_noinfo_noreturn",
            "MSVCP140!std::_Xlength_error",
            "app!_RTC_CheckStackVars",
            "VCRUNTIME140!_CxxThrowException",
        ] {
            let frames = [frame(plumbing), frame("app!Order::Ship"), frame("app!main")];
            let order = follow_up_order(&frames, &[], ExceptionKind::FailFast);
            assert_eq!(order, [1, 2, 0], "{plumbing}");
        }
        let own = [frame("app!abort_order"), frame("app!main")];
        assert_eq!(follow_up_order(&own, &[], ExceptionKind::FailFast), [0, 1]);
    }
}
