//! The verdict on a user-mode exception: one plain sentence and how sure it is.

use target::{Found, FrameInfo};

use crate::result::{Cause, Confidence, ExceptionKind, ExceptionTriage, Operation, Provenance, Verdict};

/// The verdict. `own_code`: whether the first frame is in the program's own images rather than the
/// system's.
pub(crate) fn of_exception(triage: &ExceptionTriage, own_code: Option<bool>) -> Verdict {
    use ExceptionKind as K;
    let case = Case {
        triage,
        process: triage.process_name.clone().unwrap_or_else(|| "The process".into()),
        place: triage.frames.first().map_or_else(|| triage.exception.address.to_string(), FrameInfo::place),
        name: triage.exception.name.clone().unwrap_or_else(|| triage.exception.code.to_string()),
        own_code,
    };
    match triage.kind {
        K::AccessViolation | K::GuardPage | K::InPageError | K::StackOverflow | K::HeapCorruption => {
            case.fault()
        }
        K::CppThrow | K::RustPanic | K::GccThrow | K::ClrException => case.throw(),
        K::FailFast | K::Assertion | K::VerifierStop | K::Stowed | K::DelayLoad => case.exit(),
        K::Breakpoint | K::SingleStep | K::DebugString | K::ThreadName | K::WinrtOriginate | K::Hang => {
            case.stop()
        }
        K::IllegalInstruction | K::Arithmetic | K::InvalidHandle | K::Other => case.other(),
    }
}

struct Case<'a> {
    triage: &'a ExceptionTriage,
    process: String,
    place: String,
    name: String,
    own_code: Option<bool>,
}

impl Case<'_> {
    /// In the program's own images the first frame is where the fault was made; in a system DLL it is
    /// where it was noticed.
    fn sure(&self) -> Confidence {
        if self.own_code == Some(false) { Confidence::Medium } else { Confidence::High }
    }

    fn application(&self, confidence: Confidence, sentence: String) -> Verdict {
        Verdict::new(Cause::Application, confidence, sentence)
    }

    fn fault(&self) -> Verdict {
        let (process, place) = (&self.process, &self.place);
        match self.triage.kind {
            ExceptionKind::InPageError => Verdict::new(
                Cause::Disk,
                Confidence::Medium,
                format!(
                    "{process} needed a page that could not be read from its file at {place}: suspect the disk or \
                     network drive."
                ),
            ),
            ExceptionKind::StackOverflow => {
                let again = self.triage.recursion.as_ref().and_then(|r| r.frames.first());
                let by = again.map(|f| format!(": {f} calls itself without end")).unwrap_or_default();
                self.application(Confidence::High, format!("{process} used up a thread's stack at {place}{by}."))
            }
            ExceptionKind::HeapCorruption => self.application(
                Confidence::Medium,
                format!(
                    "{process} damaged its heap; it was noticed at {place}, which need not be where it was done."
                ),
            ),
            _ => self.access(),
        }
    }

    fn access(&self) -> Verdict {
        let access = self.triage.access.as_ref();
        let how = match access.map(|a| a.operation) {
            Some(Operation::Read) => "read",
            Some(Operation::Write) => "wrote to",
            Some(Operation::Execute) => "tried to run code at",
            Some(Operation::Unknown) | None => "touched",
        };
        let what = access.map_or_else(|| "memory it must not touch".into(), crate::summary::address_words);
        // Code at a bad address has no place of its own: its caller has.
        let at = match self.triage.frames.get(1) {
            Some(caller) if self.triage.frames.first().is_some_and(|f| f.module.is_none()) => {
                format!(", called from {}", caller.place())
            }
            _ => format!(" at {}", self.place),
        };
        self.application(self.sure(), format!("{} {how} {what}{at}.", self.process))
    }

    fn throw(&self) -> Verdict {
        let process = &self.process;
        if self.triage.kind == ExceptionKind::ClrException {
            let sentence = format!("{process} threw a .NET exception at {}.", self.place);
            return self.application(Confidence::Medium, sentence);
        }
        let type_name = self.triage.thrown.as_ref().and_then(|t| t.type_name.clone());
        let what = type_name.map(|t| format!(" of type {t}")).unwrap_or_default();
        let thrower = self.triage.analysis.symbol_name.as_ref();
        let from = thrower.map(|f| format!(", from {f}")).unwrap_or_default();
        self.application(
            sure_of_throw(self.triage),
            format!("{process} threw an exception{what} that stopped it{from}."),
        )
    }

    fn exit(&self) -> Verdict {
        let process = &self.process;
        if self.triage.kind == ExceptionKind::DelayLoad {
            let sentence = format!("{process} needs a DLL or a function of one that is not there.");
            return self.application(Confidence::High, sentence);
        }
        let why = why_it_ended(self.triage, self.name.clone());
        // Whoever asked for the end, not the runtime's function that does it.
        let place = self.triage.analysis.symbol_name.as_ref().unwrap_or(&self.place);
        self.application(self.sure(), format!("{process} ended itself at {place}: {why}."))
    }

    fn stop(&self) -> Verdict {
        let (process, place) = (&self.process, &self.place);
        match self.triage.kind {
            ExceptionKind::Hang => Verdict::new(
                Cause::Hang,
                Confidence::High,
                format!("{process} stopped responding at {place}."),
            ),
            // The debugger's own breakpoints are in system DLLs; one in the program is an assertion's.
            ExceptionKind::Breakpoint
                if self.own_code == Some(true) && self.triage.exception.first_chance != Some(true) =>
            {
                let sentence = format!(
                    "{process} stopped at a breakpoint of its own at {place}: usually a failed assertion or a debug \
                     break."
                );
                self.application(Confidence::Medium, sentence)
            }
            ExceptionKind::Breakpoint | ExceptionKind::SingleStep => Verdict::new(
                Cause::CantTell,
                Confidence::Low,
                format!("{process} stopped at a breakpoint at {place}; that alone is no crash."),
            ),
            _ => Verdict::new(
                Cause::CantTell,
                Confidence::Low,
                format!("{process} raised {}, which is information for a debugger and no crash.", self.name),
            ),
        }
    }

    fn other(&self) -> Verdict {
        let sentence = format!("{} was stopped by {} at {}.", self.process, self.name, self.place);
        self.application(self.sure().min(Confidence::Medium), sentence)
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
