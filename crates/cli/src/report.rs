//! A crash for a person: first one plain sentence and how sure it is, then what, why, where, who,
//! the stack, and what to look at next.

use analysis_crash::{
    Analysis, Cause, Confidence, CrashTriage, ExceptionKind, ExceptionTriage, Verdict, access_words,
};
use analysis_status::StatusInfo;
use target::FrameInfo;

use crate::style::{Style, plain};
use crate::triage::{Crash, Failure, Triaged};
use crate::when::{built, time, uptime};
use crate::{image_file, next, stack};

fn cause(verdict: &Verdict) -> &'static str {
    match verdict.cause {
        Cause::Application => "application",
        Cause::Driver => "driver",
        Cause::Memory => "memory",
        Cause::Disk => "disk",
        Cause::Power => "power",
        Cause::Hang => "hang",
        Cause::CantTell if verdict.confidence == Confidence::High => "none, the dump was asked for",
        Cause::CantTell => "can't tell",
    }
}

/// How sure the cause is; nothing where there is none.
fn sureness(verdict: &Verdict) -> Option<&'static str> {
    let words = match verdict.confidence {
        Confidence::Low => "a guess",
        Confidence::Medium => "likely",
        Confidence::High => "sure",
    };
    (verdict.cause != Cause::CantTell).then_some(words)
}

fn verdict(triaged: &Triaged) -> Option<&Verdict> {
    match &triaged.crash {
        Crash::BugCheck(triage) => Some(&triage.verdict),
        Crash::Exception(triage) => Some(&triage.verdict),
        Crash::None { .. } => None,
    }
}

pub(crate) fn analysis(triaged: &Triaged) -> Option<&Analysis> {
    match &triaged.crash {
        Crash::BugCheck(triage) => Some(&triage.analysis),
        Crash::Exception(triage) => Some(&triage.analysis),
        Crash::None { .. } => None,
    }
}

/// The sentence of the verdict.
pub(crate) fn sentence(triaged: &Triaged) -> Option<String> {
    verdict(triaged).map(|verdict| verdict.sentence.clone())
}

/// The failure bucket, or what stands for it.
pub(crate) fn bucket(triaged: &Triaged) -> Option<String> {
    let own = match &triaged.crash {
        Crash::BugCheck(triage) => triage.bug_check.name.clone().or(Some(triage.bug_check.code.to_string())),
        Crash::Exception(triage) => triage.exception.name.clone().or(Some(triage.exception.code.to_string())),
        Crash::None { .. } => None,
    };
    analysis(triaged).and_then(|analysis| analysis.failure_bucket_id.clone()).or(own)
}

/// A dump that failed, in one line.
pub(crate) fn failure(failure: &Failure) -> String {
    let message = plain(&failure.message);
    // Most refusals name the file themselves.
    let name = failure.path.file_name().map(|name| plain(&name.to_string_lossy())).unwrap_or_default();
    if !name.is_empty() && message.contains(&name) {
        message
    } else {
        format!("{}: {message}", plain(&failure.path.display().to_string()))
    }
}

/// What is said of a file without a crash.
fn no_crash(triaged: &Triaged) -> String {
    match &triaged.crash {
        Crash::None { .. } if triaged.is_image() => image_file::sentence(triaged),
        Crash::None { why, .. } => {
            let told = ["no exception recorded: ", "this kernel dump is not a crash dump: "];
            let why = told.iter().find_map(|start| why.strip_prefix(start)).unwrap_or(why);
            format!("No crash is recorded in this dump: {}.", why.trim_end_matches('.'))
        }
        Crash::BugCheck(_) | Crash::Exception(_) => String::new(),
    }
}

/// A dump in a few lines, for lists.
pub(crate) fn short(triaged: &Triaged, style: Style) -> String {
    let path = style.bold(&plain(&triaged.path.display().to_string()));
    let text = match verdict(triaged) {
        Some(verdict) => {
            let sure = sureness(verdict).map(|sure| format!(" ({}, {sure})", cause(verdict)));
            format!("{}{}", plain(&verdict.sentence), sure.unwrap_or_default())
        }
        None => plain(&no_crash(triaged)),
    };
    let bucket = bucket(triaged).map(|bucket| format!("\n  {}", plain(&bucket))).unwrap_or_default();
    format!("{path}\n  {text}{bucket}")
}

/// Lines of a report.
pub(crate) struct Report {
    pub(crate) style: Style,
    pub(crate) lines: Vec<String>,
}

/// Columns of a label and the space behind it.
const LABEL: usize = 9;

impl Report {
    /// A labelled line, wrapped where the terminal ends; an empty label continues the one above.
    pub(crate) fn add(&mut self, label: &str, text: impl AsRef<str>) {
        let mut label = self.style.dim(&format!("{label:<LABEL$}"));
        for line in self.style.wrapped(&plain(text.as_ref()), LABEL) {
            self.lines.push(format!("{label}{line}"));
            label = " ".repeat(LABEL);
        }
    }
    /// The same in one line, however long: something to be copied.
    pub(crate) fn add_whole(&mut self, label: &str, text: &str) {
        let label = self.style.dim(&format!("{label:<LABEL$}"));
        self.lines.push(format!("{label}{}", plain(text)));
    }
    pub(crate) fn maybe(&mut self, label: &str, text: Option<impl AsRef<str>>) {
        if let Some(text) = text {
            self.add(label, text);
        }
    }
    fn gap(&mut self) {
        self.lines.push(String::new());
    }
    pub(crate) fn heading(&mut self, text: &str) {
        self.gap();
        self.lines.push(self.style.bold(text));
    }
}

/// The whole report of a dump.
pub(crate) fn full(triaged: &Triaged, style: Style) -> String {
    let mut report = Report { style, lines: Vec::new() };
    opening(&mut report, triaged);
    report.gap();
    match &triaged.crash {
        Crash::BugCheck(triage) => bug_check(&mut report, triage),
        Crash::Exception(triage) => exception(&mut report, triaged, triage),
        Crash::None { .. } => {}
    }
    if triaged.is_image() {
        image_file::rows(&mut report, triaged);
    } else {
        who(&mut report, triaged);
        system(&mut report, triaged);
    }
    if let Some(analysis) = analysis(triaged) {
        report.maybe("Bucket", analysis.failure_bucket_id.as_ref());
        report.maybe("", analysis.failure_id_hash.as_ref().map(|hash| format!("{{{hash}}}")));
    }
    notes(&mut report, triaged);
    match &triaged.crash {
        Crash::BugCheck(triage) => stack::rows(&mut report, &triage.frames, triage.frames_truncated, None),
        Crash::Exception(triage) => {
            stack::rows(&mut report, &triage.frames, triage.frames_truncated, triage.recursion.as_ref());
        }
        Crash::None { frames, .. } => stack::rows(&mut report, frames, false, None),
    }
    next::rows(&mut report, triaged);
    report.lines.push(String::new());
    report.lines.join("\n")
}

fn opening(report: &mut Report, triaged: &Triaged) {
    let style = report.style;
    report.lines.push(style.dim(&plain(&triaged.path.display().to_string())));
    let sentence = sentence(triaged).unwrap_or_else(|| no_crash(triaged));
    for line in style.wrapped(&plain(&sentence), 0) {
        report.lines.push(style.bold(&line));
    }
    let Some(verdict) = verdict(triaged) else { return };
    let sure = sureness(verdict).map(|sure| match verdict.confidence {
        Confidence::High => format!(" ({})", style.green(sure)),
        Confidence::Medium | Confidence::Low => format!(" ({sure})"),
    });
    report.lines.push(format!("Cause: {}{}", cause(verdict), sure.unwrap_or_default()));
}

fn status(status: &StatusInfo) -> String {
    match status.best_effort.as_ref().or(status.symbolic.as_ref()) {
        Some(text) => format!("{} {text}", status.value),
        None => status.value.to_string(),
    }
}

fn bug_check(report: &mut Report, triage: &CrashTriage) {
    let check = &triage.bug_check;
    let name = check.name.as_deref().unwrap_or("(a code without a known name)");
    report.add("What", format!("bug check {} {name}", check.code));
    for (index, parameter) in check.parameters.iter().enumerate() {
        let note =
            check.parameter_notes.as_ref().and_then(|notes| notes.get(index)).map_or("", String::as_str);
        report.add("", format!("Arg{}: {parameter}  {note}", index + 1).trim_end());
    }
    // What only points at the place that is shown anyway is no news.
    let place_at = triage.faulting_frame.as_ref().map(|frame| frame.address);
    let leads =
        triage.analysis.leads.iter().filter(|lead| lead.address.is_none() || lead.address != place_at);
    for (index, lead) in leads.take(7).enumerate() {
        report.add(if index == 0 { "Why" } else { "" }, &lead.text);
    }
    match (&triage.faulting_frame, &triage.faulting_frame_note) {
        (Some(frame), _) => report.add("Where", place(frame)),
        (None, note) => report.maybe("Where", note.as_ref()),
    }
    report.maybe("Blamed", check.driver.as_ref().map(|driver| format!("{driver} (by Windows itself)")));
    report.maybe("Pool tag", triage.analysis.pool_tag.as_ref());
    let mut process = triage.process_name.clone().unwrap_or_default();
    if let Some(thread) = &triage.thread {
        process.push_str(&thread.pid.map(|pid| format!(" (pid {pid:#x})")).unwrap_or_default());
        process.push_str(&thread.tid.map(|tid| format!(", thread {tid:#x}")).unwrap_or_default());
        process.push_str(&thread.cpu.map(|cpu| format!(", CPU {cpu}")).unwrap_or_default());
        process.push_str(&thread.irql.map(|irql| format!(", IRQL {irql}")).unwrap_or_default());
    }
    let process = process.trim_start_matches([',', ' ']);
    report.maybe("Process", (!process.is_empty()).then_some(process));
}

fn exception(report: &mut Report, triaged: &Triaged, triage: &ExceptionTriage) {
    let record = &triage.exception;
    match &record.name {
        // The message's inserts are not filled in; the summary says it better.
        Some(name) if triage.summary.is_some() => report.add("What", format!("{} {name}", record.code)),
        _ => report.add("What", status(&record.decoded)),
    }
    why(report, triage);
    if let Some(thrown) = &triage.thrown {
        let name = thrown.type_name.as_ref().or(thrown.mangled_name.as_ref());
        let name = name.map_or("an object of unknown type", String::as_str);
        report.add("Thrown", name);
        report.maybe("", thrown.what.as_ref().map(|what| format!("what(): {what}")));
        report.maybe("", thrown.hresult.as_ref().map(status));
    }
    if let Some(failure) = &triage.failure {
        report.add("Failure", status(&failure.hresult));
        report.maybe("", failure.file.as_ref().map(|file| format!("{file}:{}", failure.line)));
        report.maybe("", failure.message.as_ref());
    }
    report.maybe("CLR", triage.clr.as_ref().map(|clr| status(&clr.hresult)));
    triage.stowed.iter().for_each(|stowed| report.add("Stowed", status(&stowed.hresult)));
    report.maybe("Heap", triage.heap.as_ref().and_then(|heap| heap.failure_name.as_ref()));
    let raised = record.address_symbol.clone().unwrap_or_else(|| record.address.to_string());
    let symbol = triage.analysis.symbol_name.as_ref().unwrap_or(&raised);
    // With its source line, where a frame has one.
    let frame = triage.frames.iter().chain(&triage.throw_frames).find(|frame| frame.place() == *symbol);
    report.add("Where", frame.map_or_else(|| symbol.clone(), place));
    // A throw or a fast fail is raised in a library for somebody else.
    let module = |name: &str| name.split(['!', '+']).next().unwrap_or_default().to_ascii_lowercase();
    if module(symbol) != module(&raised) && record.address.0 != 0 {
        report.add("", format!("raised at {raised}"));
    }
    let pid = triaged.opened.summary.process.as_ref().and_then(|process| process.pid);
    let pid = pid.map(|pid| format!(" (pid {pid:#x})")).unwrap_or_default();
    let thread = triage.thread_id.map(|thread| format!(", thread {thread:#x}")).unwrap_or_default();
    report.maybe("Process", triage.process_name.as_ref().map(|name| format!("{name}{pid}{thread}")));
}

/// Why, as far as the sentence at the top has not said it.
fn why(report: &mut Report, triage: &ExceptionTriage) {
    match (triage.kind, &triage.access) {
        // The sentence says what was tried; the instruction and the address are what is new.
        (ExceptionKind::AccessViolation | ExceptionKind::GuardPage, Some(access)) => {
            report.add("Why", access_words(access));
        }
        (ExceptionKind::InPageError, Some(access)) => {
            report.maybe("Why", triage.summary.as_ref());
            report.maybe("", access.io_status.as_ref().map(|io| format!("the I/O failed: {}", status(io))));
        }
        // What was thrown follows.
        (ExceptionKind::CppThrow, _) if triage.thrown.is_some() => {}
        _ => report.maybe("Why", triage.summary.as_ref()),
    }
    if let Some(recursion) = &triage.recursion {
        if recursion.period > 1 {
            report.add("", format!("the cycle: {}", recursion.frames.join(" <- ")));
        }
        report.maybe("", recursion.called_from.as_ref().map(|from| format!("first called from {from}")));
    }
    // Code 7 is what the summary explains; others have only their name.
    if let Some(fail_fast) = triage.fail_fast.as_ref().filter(|f| f.subcode.is_some_and(|code| code != 7)) {
        let name = fail_fast.subcode_name.clone().or(fail_fast.subcode.map(|code| code.to_string()));
        report.maybe("", name.map(|name| format!("fast fail {name}")));
    }
}

fn who(report: &mut Report, triaged: &Triaged) {
    let Some(module) = &triaged.module else { return };
    let mut text = module.path().to_owned();
    if let Some(version) = &module.version {
        text.push_str(&format!(", version {version}"));
    }
    if let Some(built) = built(module, &triaged.opened.summary) {
        text.push_str(&format!(", built {built}"));
    }
    report.add("Module", text);
}

fn system(report: &mut Report, triaged: &Triaged) {
    let summary = &triaged.opened.summary;
    let dump = summary.dump.as_ref();
    if let Some(at) = dump.and_then(|dump| dump.time.as_ref()) {
        let up = dump.and_then(|dump| dump.uptime_ms).map(|ms| format!(", the system was up {}", uptime(ms)));
        report.add("When", format!("{}{}", time(at), up.unwrap_or_default()));
    }
    let os = summary.os.as_ref().map(|os| format!("Windows {}.{} build {}", os.major, os.minor, os.build));
    let processors = summary.processors.filter(|count| *count > 1).map(|count| format!("{count} processors"));
    let parts: Vec<String> = os.into_iter().chain(summary.arch.clone()).chain(processors).collect();
    report.maybe("System", (!parts.is_empty()).then(|| parts.join(", ")));
}

/// What a reader must know of the dump itself and of how it was read.
fn notes(report: &mut Report, triaged: &Triaged) {
    let limitations: &[String] = match &triaged.crash {
        Crash::BugCheck(triage) => &triage.limitations,
        Crash::Exception(triage) => &triage.limitations,
        Crash::None { .. } => &[],
    };
    let own = triaged.opened.summary.limitation.iter().filter(|_| !triaged.is_image());
    let analysed = analysis(triaged).and_then(|analysis| analysis.note.as_ref());
    let mut said: Vec<&str> = Vec::new();
    for note in own.chain(limitations).chain(analysed) {
        let known = said.iter().any(|s| s.contains(note.as_str()));
        // The stack marks guesses itself; symbols and images are what to look at next.
        if !known && !next::is_covered(note) {
            report.add(if said.is_empty() { "Note" } else { "" }, note);
            said.push(note);
        }
    }
}

/// A frame's place, as reports write it.
pub(crate) fn place(frame: &FrameInfo) -> String {
    let mut text = frame.place();
    if let Some(name) = &frame.unloaded_module {
        text.push_str(&format!(" (where {name} was before it was unloaded)"));
    }
    if let Some(source) = &frame.source {
        text.push_str(&format!("  [{}:{}]", source.file, source.line));
    }
    text
}
