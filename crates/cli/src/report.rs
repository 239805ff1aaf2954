//! A crash for a person: first one plain sentence and how sure it is, then what, why, where, who,
//! the stack, and what to look at next.

use analysis_crash::{Analysis, Cause, Confidence, CrashTriage, ExceptionTriage, Verdict};
use analysis_status::StatusInfo;
use target::{Found, FrameInfo};

use crate::style::{Style, plain};
use crate::triage::{Crash, Failure, Triaged};

/// Frames a report shows; the rest is a tool call away.
const FRAMES: usize = 16;

fn cause(cause: Cause) -> &'static str {
    match cause {
        Cause::Application => "application",
        Cause::Driver => "driver",
        Cause::Memory => "memory",
        Cause::Disk => "disk",
        Cause::Power => "power",
        Cause::Hang => "hang",
        Cause::CantTell => "can't tell",
    }
}

fn sureness(confidence: Confidence) -> &'static str {
    match confidence {
        Confidence::Low => "a guess",
        Confidence::Medium => "likely",
        Confidence::High => "sure",
    }
}

fn verdict(triaged: &Triaged) -> Option<&Verdict> {
    match &triaged.crash {
        Crash::BugCheck(triage) => Some(&triage.verdict),
        Crash::Exception(triage) => Some(&triage.verdict),
        Crash::None { .. } => None,
    }
}

fn analysis(triaged: &Triaged) -> Option<&Analysis> {
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
    let path = failure.path.display().to_string();
    // Most refusals name the file themselves.
    let name = failure.path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    if !name.is_empty() && failure.message.contains(&name) {
        plain(&failure.message)
    } else {
        plain(&format!("{path}: {}", failure.message))
    }
}

/// A dump in two lines, for lists.
pub(crate) fn short(triaged: &Triaged, style: Style) -> String {
    let path = style.bold(&plain(&triaged.path.display().to_string()));
    let text = match verdict(triaged) {
        Some(verdict) => {
            format!(
                "{} ({}, {})",
                plain(&verdict.sentence),
                cause(verdict.cause),
                sureness(verdict.confidence)
            )
        }
        None => format!("No crash is recorded in it: {}", plain(why_none(triaged))),
    };
    let bucket =
        bucket(triaged).map(|bucket| format!("\n  {}", style.cyan(&plain(&bucket)))).unwrap_or_default();
    format!("{path}\n  {text}{bucket}")
}

/// Why a dump without a crash has none.
fn why_none(triaged: &Triaged) -> &str {
    match &triaged.crash {
        Crash::None { why, .. } => why,
        Crash::BugCheck(_) | Crash::Exception(_) => "",
    }
}

struct Report {
    style: Style,
    lines: Vec<String>,
}

impl Report {
    /// A labelled line; an empty label continues the one above.
    fn add(&mut self, label: &str, text: impl AsRef<str>) {
        let label = self.style.dim(&format!("{label:<9}"));
        self.lines.push(format!("{label}{}", plain(text.as_ref())));
    }
    fn maybe(&mut self, label: &str, text: Option<impl AsRef<str>>) {
        if let Some(text) = text {
            self.add(label, text);
        }
    }
    fn gap(&mut self) {
        self.lines.push(String::new());
    }
    fn heading(&mut self, text: &str) {
        self.gap();
        self.lines.push(self.style.bold(text));
    }
}

/// The whole report of a dump.
pub(crate) fn full(triaged: &Triaged, style: Style) -> String {
    let mut report = Report { style, lines: Vec::new() };
    opening(&mut report, triaged);
    report.gap();
    let (frames, truncated) = match &triaged.crash {
        Crash::BugCheck(triage) => {
            bug_check(&mut report, triage);
            (&triage.frames, triage.frames_truncated)
        }
        Crash::Exception(triage) => {
            exception(&mut report, triage);
            (&triage.frames, triage.frames_truncated)
        }
        Crash::None { why, frames } => {
            report.add("What", why);
            (frames, false)
        }
    };
    who(&mut report, triaged);
    system(&mut report, triaged);
    if let Some(analysis) = analysis(triaged) {
        report.maybe("Bucket", analysis.failure_bucket_id.as_ref());
        report.maybe("", analysis.failure_id_hash.as_ref().map(|hash| format!("{{{hash}}}")));
    }
    stack(&mut report, frames, truncated);
    next(&mut report, triaged);
    report.lines.push(String::new());
    report.lines.join("\n")
}

fn opening(report: &mut Report, triaged: &Triaged) {
    let style = report.style;
    report.lines.push(style.dim(&plain(&triaged.path.display().to_string())));
    let Some(verdict) = verdict(triaged) else {
        let text = if triaged.opened.kind == "image" {
            "This is an image, not a dump: nothing crashed in it."
        } else {
            "No crash is recorded in this dump."
        };
        report.lines.push(style.bold(text));
        return;
    };
    let sure = match verdict.confidence {
        Confidence::High => style.green(sureness(verdict.confidence)),
        Confidence::Medium => style.yellow(sureness(verdict.confidence)),
        Confidence::Low => style.red(sureness(verdict.confidence)),
    };
    report.lines.push(style.bold(&plain(&verdict.sentence)));
    report.lines.push(format!("Cause: {} ({sure})", cause(verdict.cause)));
}

fn status(status: &StatusInfo) -> String {
    match status.best_effort.as_ref().or(status.symbolic.as_ref()) {
        Some(text) => format!("{} {text}", status.value),
        None => status.value.to_string(),
    }
}

fn bug_check(report: &mut Report, triage: &CrashTriage) {
    let check = &triage.bug_check;
    let name = check.name.as_deref().unwrap_or("(no known name)");
    report.add("What", format!("bug check {} {name}", check.code));
    for (index, parameter) in check.parameters.iter().enumerate() {
        let note =
            check.parameter_notes.as_ref().and_then(|notes| notes.get(index)).map_or("", String::as_str);
        report.add("", format!("{}. {parameter}  {note}", index + 1).trim_end());
    }
    let mut why = triage.analysis.leads.iter();
    report.maybe("Why", why.next().map(|lead| lead.text.as_str()));
    why.take(6).for_each(|lead| report.add("", &lead.text));
    match (&triage.faulting_frame, &triage.faulting_frame_note) {
        (Some(frame), _) => report.add("Where", place(frame)),
        (None, note) => {
            report.add("Where", format!("no driver frame: {}", note.as_deref().unwrap_or("none found")))
        }
    }
    report.maybe("Blamed", check.driver.as_ref().map(|driver| format!("{driver} (by Windows itself)")));
    report.maybe("Pool tag", triage.analysis.pool_tag.as_ref());
    report.maybe("Process", triage.process_name.as_ref());
}

fn exception(report: &mut Report, triage: &ExceptionTriage) {
    let record = &triage.exception;
    match &record.name {
        // The message's inserts are not filled in; the summary says it better.
        Some(name) if triage.summary.is_some() => report.add("What", format!("{} {name}", record.code)),
        _ => report.add("What", status(&record.decoded)),
    }
    report.maybe("Why", triage.summary.as_ref());
    if let Some(access) = &triage.access {
        report.add("", format!("{} of {}", access.operation.name(), access.address));
        report.maybe("", access.io_status.as_ref().map(|io| format!("the I/O failed: {}", status(io))));
    }
    if let Some(fail_fast) = &triage.fail_fast {
        let name = fail_fast.subcode_name.clone().or(fail_fast.subcode.map(|code| code.to_string()));
        report.maybe("", name.map(|name| format!("fast fail {name}")));
    }
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
    if let Some(recursion) = &triage.recursion {
        report.add("Recursion", format!("{} turns of {}", recursion.repeats, recursion.frames.join(" <- ")));
    }
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
    let thread = triage.thread_id.map(|thread| format!(", thread {thread:#x}")).unwrap_or_default();
    report.maybe("Process", triage.process_name.as_ref().map(|name| format!("{name}{thread}")));
}

fn who(report: &mut Report, triaged: &Triaged) {
    let Some(module) = &triaged.module else { return };
    let mut text = module.loaded_image_name.as_ref().unwrap_or(&module.image_name).clone();
    if let Some(version) = &module.version {
        text.push_str(&format!(", version {version}"));
    }
    let dumped = triaged.opened.summary.dump.as_ref().and_then(|dump| dump.time.as_deref());
    if let Some(built) = built(module.timestamp, dumped) {
        text.push_str(&format!(", built {built}"));
    }
    report.add("Who", text);
}

/// The day an image was built. A reproducible build has a hash where others have a time, which is
/// seldom a day between the format's beginnings and the dump.
fn built(timestamp: u32, dumped: Option<&str>) -> Option<String> {
    const YEAR_1995: u32 = 788_918_400;
    let day: String = target::value::rfc3339(i64::from(timestamp), 0)?.chars().take(10).collect();
    (timestamp >= YEAR_1995 && dumped.is_some_and(|dumped| day.as_str() <= dumped)).then_some(day)
}

fn system(report: &mut Report, triaged: &Triaged) {
    let summary = &triaged.opened.summary;
    let dump = summary.dump.as_ref();
    if let Some(time) = dump.and_then(|dump| dump.time.as_ref()) {
        let uptime = dump.and_then(|dump| dump.uptime_ms).map(|ms| {
            let minutes = ms / 60_000;
            format!(
                ", {} d {:02}:{:02} after the system started",
                minutes / 1440,
                minutes / 60 % 24,
                minutes % 60
            )
        });
        report.add("When", format!("{time}{}", uptime.unwrap_or_default()));
    }
    let os = summary.os.as_ref().map(|os| format!("Windows {}.{} build {}", os.major, os.minor, os.build));
    let arch = summary.arch.clone().unwrap_or_default();
    report.add(
        "System",
        format!("{}{}{arch}", os.as_deref().unwrap_or(""), if os.is_some() { ", " } else { "" }),
    );
}

fn place(frame: &FrameInfo) -> String {
    let mut text = frame.place();
    if let Some(name) = &frame.unloaded_module {
        text.push_str(&format!(" (where {name} was before it was unloaded)"));
    }
    if let Some(source) = &frame.source {
        text.push_str(&format!("  [{}:{}]", source.file, source.line));
    }
    text
}

fn stack(report: &mut Report, frames: &[FrameInfo], truncated: bool) {
    if frames.is_empty() {
        return;
    }
    report.heading("Stack");
    let style = report.style;
    for frame in frames.iter().take(FRAMES) {
        let text = plain(&place(frame));
        let line = match frame.found {
            _ if frame.inline => format!("   {text} {}", style.dim("(inline)")),
            Found::Scan => format!("{} {}", style.yellow(" ?"), style.dim(&text)),
            _ => format!("{:02} {text}", frame.index),
        };
        report.lines.push(format!("  {line}"));
    }
    if frames.iter().take(FRAMES).any(|frame| frame.found == Found::Scan) {
        report.lines.push(format!(
            "  {}",
            style.dim("? marks guesses: words on the stack that look like return addresses")
        ));
    }
    if truncated || frames.len() > FRAMES {
        report.lines.push(format!("  {}", style.dim("... and more")));
    }
}

/// What to look at next: what is missing, and the calls that go on from here.
fn next(report: &mut Report, triaged: &Triaged) {
    report.heading("Look at next");
    for text in missing(triaged) {
        report.lines.push(format!("  - {}", plain(&text)));
    }
    let mut path = shell_quoted(&triaged.path.display().to_string());
    for (option, value) in [("--symbols", &triaged.symbols), ("--images", &triaged.images)] {
        if let Some(value) = value {
            path.push_str(&format!(" {option} {}", shell_quoted(value)));
        }
    }
    let command = match triaged.crash {
        _ if triaged.opened.kind == "image" => "lmv",
        Crash::BugCheck(_) => "!thread; lmv",
        Crash::Exception(_) | Crash::None { .. } => "~*k",
    };
    let mut calls =
        vec![format!("windbg-mcp call execute --dump {path} --json '{{\"command\": \"{command}\"}}'")];
    if let Some(module) = &triaged.module {
        let name: String =
            module.name.chars().filter(|c| c.is_alphanumeric() || "_-.".contains(*c)).collect();
        calls.push(format!("windbg-mcp call modules --dump {path} --json '{{\"filter\": \"{name}\"}}'"));
    }
    for call in calls {
        report.lines.push(format!("  {}", plain(&call)));
    }
}

fn missing(triaged: &Triaged) -> Vec<String> {
    let mut out = Vec::new();
    let (limitations, note) = match &triaged.crash {
        Crash::BugCheck(triage) => (triage.limitations.clone(), triage.analysis.note.clone()),
        Crash::Exception(triage) => (triage.limitations.clone(), triage.analysis.note.clone()),
        Crash::None { .. } => (Vec::new(), None),
    };
    out.extend(triaged.opened.summary.limitation.clone());
    for limitation in limitations {
        if !out.contains(&limitation) {
            out.push(limitation);
        }
    }
    out.extend(note);
    if let Some(module) = &triaged.module
        && matches!(module.symbols.as_str(), "none" | "deferred" | "export")
        && let Some(note) = &module.symbols_note
    {
        out.push(format!("{} has no symbols: {note}", module.image_name));
    }
    out
}

/// A path as a shell takes it.
fn shell_quoted(path: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '/' | '.' | '_' | '-' | '\\' | ':');
    if path.chars().all(plain) { path.to_owned() } else { format!("'{}'", path.replace('\'', "'\\''")) }
}
