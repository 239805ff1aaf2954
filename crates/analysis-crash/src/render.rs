//! Both reports for a person, in the order of spec 60 section 1.5.

use std::fmt::Write as _;

use analysis_status::StatusInfo;
use target::{Found, FrameInfo};

use crate::result::{
    AccessInfo, AddressClass, Analysis, Cause, Confidence, ContextOrigin, CrashTriage, ExceptionTriage,
    Provenance, Stowed, Thrown, Verdict,
};

fn sure(confidence: Confidence) -> &'static str {
    match confidence {
        Confidence::Low => "a guess",
        Confidence::Medium => "likely",
        Confidence::High => "sure",
    }
}

fn verdict(out: &mut String, verdict: &Verdict) {
    // How sure it is that nothing can be told is no news.
    let sure = match verdict.cause {
        Cause::CantTell => String::new(),
        _ => format!(" ({})", sure(verdict.confidence)),
    };
    let _ = writeln!(out, "{}{sure}\n", verdict.sentence);
}

fn row(out: &mut String, name: &str, value: &str) {
    let _ = writeln!(out, "{name:<16}{value}");
}

/// The report of a bug check.
#[must_use]
pub fn render_crash(triage: &CrashTriage) -> String {
    let mut out = String::new();
    verdict(&mut out, &triage.verdict);
    let bug = &triage.bug_check;
    let mut head = format!("{} {}", bug.code, bug.name.as_deref().unwrap_or("(a code in no table)"));
    if let Some(base) = bug.base_code {
        let _ = write!(head, " (base code {base})");
    }
    if bug.live_dump {
        head.push_str(", a live dump: the system went on running");
    }
    row(&mut out, "BUG CHECK", &head);
    for (index, parameter) in bug.parameters.iter().enumerate() {
        let note = bug.parameter_notes.as_ref().and_then(|n| n.get(index)).map_or("", String::as_str);
        let _ = writeln!(out, "  Arg{}: {parameter}  {note}", index + 1);
    }
    if let Some(driver) = &bug.driver {
        row(&mut out, "CAUSED BY", driver);
    }
    row(&mut out, "PROCESS", &process_words(triage));
    if let Some(tag) = &triage.analysis.pool_tag {
        row(&mut out, "POOL TAG", tag);
    }
    let frame = match (&triage.faulting_frame, &triage.faulting_frame_note) {
        (Some(frame), _) => format!("{} (frame {})", frame.place(), frame.index),
        (None, note) => format!("none — {}", note.as_deref().unwrap_or("no note")),
    };
    row(&mut out, "FAULTING FRAME", &frame);
    let recorded = !matches!(triage.context_source, ContextOrigin::CrashContext | ContextOrigin::Selected);
    if recorded && triage.faulting_frame.as_ref().is_some_and(|frame| frame.index == 0) {
        let _ = writeln!(
            out,
            "  The record of the fault points there; the offset is computed from the load base."
        );
    } else if triage.faulting_frame.is_some() {
        let _ = writeln!(
            out,
            "  The offset is computed from the load base; that this frame is the one is a heuristic: see the stack."
        );
    }
    analysis(&mut out, &triage.analysis);
    if let Some(ext) = &triage.ext_analysis {
        let _ = writeln!(out, "By !analyze:");
        analysis(&mut out, ext);
    }
    blame_line(&mut out, triage);
    let origin = origin_words(triage.context_source);
    let by = triage.analysis.stack_command.as_deref().filter(|command| *command != "k");
    let by = by.map(|command| format!("; by hand: {command}")).unwrap_or_default();
    stack(&mut out, &format!("STACK (from {origin}{by})"), &triage.frames, triage.frames_truncated);
    notes(&mut out, &triage.analysis, &triage.limitations);
    out
}

/// `orders.exe (pid 0x1c4), thread 0x58, CPU 0, IRQL 2`, as far as known.
fn process_words(triage: &CrashTriage) -> String {
    let mut text = triage.process_name.clone().unwrap_or_else(|| "not readable".into());
    let Some(thread) = &triage.thread else { return text };
    if let Some(pid) = thread.pid {
        let _ = write!(text, " (pid {pid:#x})");
    }
    if let Some(tid) = thread.tid {
        let _ = write!(text, ", thread {tid:#x}");
    }
    if let Some(cpu) = thread.cpu {
        let _ = write!(text, ", CPU {cpu}");
    }
    if let Some(irql) = thread.irql {
        let _ = write!(text, ", IRQL {irql}");
    }
    text
}

fn origin_words(origin: ContextOrigin) -> &'static str {
    match origin {
        ContextOrigin::CrashContext => "the crash context",
        ContextOrigin::Selected => "the selected context",
        ContextOrigin::ContextRecord => "the context record",
        ContextOrigin::TrapFrame => "the trap frame",
        ContextOrigin::TrapFrameOnStack => "a trap frame on the stack",
    }
}

fn analysis(out: &mut String, analysis: &Analysis) {
    if let Some(bucket) = &analysis.failure_bucket_id {
        row(out, "FAILURE BUCKET", bucket);
    }
    if let Some(hash) = &analysis.failure_id_hash {
        row(out, "  HASH", hash);
    }
    if let Some(owner) = &analysis.followup {
        row(out, "FOLLOWUP", owner);
    }
}

/// Agreement is not news; a difference is, and neither side is the authority.
fn blame_line(out: &mut String, triage: &CrashTriage) {
    let frame = triage.faulting_frame.as_ref().and_then(|f| f.module.as_deref());
    // That a kernel function is followed up where no driver is on the stack is no difference.
    let kernel = triage.analysis.module_name.as_deref() == Some("nt");
    if frame.is_none() && kernel && triage.ext_analysis.is_none() {
        return;
    }
    let by_analysis = triage.ext_analysis.as_ref().and_then(|a| a.module_name.as_deref());
    if let Some(blamed) = by_analysis.or(triage.analysis.module_name.as_deref())
        && !frame.is_some_and(|f| f.eq_ignore_ascii_case(blamed))
    {
        let other = frame.map_or_else(
            || "the stack names no driver".to_owned(),
            |f| format!("the faulting frame is in {f}"),
        );
        let _ = writeln!(out, "The analysis blames {blamed}; {other}. Neither is authoritative.");
    }
}

fn stack(out: &mut String, title: &str, frames: &[FrameInfo], truncated: bool) {
    if frames.is_empty() {
        let _ = writeln!(out, "\n{title}: no frames");
        return;
    }
    let _ = writeln!(out, "\n{title}");
    let mut index = 0;
    while let Some(frame) = frames.get(index) {
        // A run of one address is one line: a recursion must not fill the page.
        let run = frames[index..].iter().take_while(|f| f.address == frame.address && !f.inline).count();
        let _ = writeln!(out, "  {:>3} {}", frame.index, frame_line(frame));
        if run > 3 {
            let _ = writeln!(out, "      ... the same {} times more", run - 1);
            index += run;
        } else {
            index += 1;
        }
    }
    if truncated {
        let _ = writeln!(out, "      ... the stack goes on");
    }
}

fn frame_line(frame: &FrameInfo) -> String {
    let mut line = frame.place();
    if frame.module.is_none() {
        line.push_str(if frame.attribution_failed { " (module unknown)" } else { " (in no loaded module)" });
    }
    if let Some(name) = &frame.unloaded_module {
        let _ = write!(line, " (once {name})");
    }
    if frame.inline {
        line.push_str(" (inline)");
    }
    if frame.found == Found::Scan {
        line.push_str(" (scan: a guess)");
    }
    if let Some(source) = &frame.source {
        let _ = write!(line, " [{} @ {}]", source.file, source.line);
    }
    line
}

fn notes(out: &mut String, analysis: &Analysis, limitations: &[String]) {
    if !analysis.leads.is_empty() {
        let _ = writeln!(out, "\nLEADS");
        for lead in &analysis.leads {
            let _ = writeln!(out, "  {}: {}", lead.kind, lead.text);
        }
    }
    let note = analysis.note.iter().chain(limitations);
    for (index, text) in note.enumerate() {
        let _ = writeln!(out, "{}NOTE: {text}", if index == 0 { "\n" } else { "" });
    }
}

/// The report of an exception.
#[must_use]
pub fn render_exception(triage: &ExceptionTriage) -> String {
    let mut out = String::new();
    verdict(&mut out, &triage.verdict);
    let exception = &triage.exception;
    let chance = match exception.first_chance {
        Some(true) => ", first chance",
        Some(false) => ", second chance",
        None => "",
    };
    let name = exception.name.as_deref().unwrap_or("(a code in no table)");
    row(&mut out, "EXCEPTION", &format!("{} {name}{chance}", exception.code));
    let at = exception.address_symbol.as_ref().map(|s| format!(" {s}")).unwrap_or_default();
    row(&mut out, "  AT", &format!("{}{at}", exception.address));
    for (index, parameter) in exception.parameters.iter().enumerate() {
        let _ = writeln!(out, "  Parameter[{index}]: {parameter}");
    }
    if let Some(summary) = &triage.summary {
        row(&mut out, "SUMMARY", summary);
    }
    if let Some(access) = &triage.access {
        row(&mut out, "ACCESS", &access_words(access));
    }
    if let Some(thrown) = &triage.thrown {
        thrown_rows(&mut out, thrown);
    }
    if let Some(failure) = &triage.failure {
        row(&mut out, "FAILURE", &format!("{} at line {}", status(&failure.hresult), failure.line));
    }
    if let Some(clr) = &triage.clr {
        let module = clr.runtime_module.as_ref().map(|m| format!(", runtime {m}")).unwrap_or_default();
        row(&mut out, "CLR", &format!("{}{module}", status(&clr.hresult)));
    }
    if let Some(heap) = &triage.heap {
        let name = heap.failure_name.as_deref().unwrap_or("unnamed");
        row(
            &mut out,
            "HEAP",
            &format!("type {} ({name}), heap {}, block {}", heap.failure_type, heap.heap, heap.address),
        );
    }
    for item in &triage.stowed {
        stowed_rows(&mut out, item);
    }
    context_rows(&mut out, triage);
    analysis(&mut out, &triage.analysis);
    let origin =
        if triage.frames_from_stored_context { "the stored crash context" } else { "the thread's context" };
    stack(&mut out, &format!("STACK (from {origin})"), &triage.frames, triage.frames_truncated);
    if !triage.throw_frames.is_empty() {
        stack(&mut out, "STACK OF THE THROW", &triage.throw_frames, false);
    }
    notes(&mut out, &triage.analysis, &triage.limitations);
    out
}

fn context_rows(out: &mut String, triage: &ExceptionTriage) {
    if let Some(recursion) = &triage.recursion {
        let cycle = recursion.frames.join(" <- ");
        let from = recursion.called_from.as_ref().map(|f| format!(", called from {f}")).unwrap_or_default();
        row(out, "RECURSION", &format!("{} turns of {}: {cycle}{from}", recursion.repeats, recursion.period));
    }
    if let Some(process) = &triage.process_name {
        row(out, "PROCESS", process);
    }
    if let Some(thread) = triage.thread_id {
        row(out, "THREAD", &format!("{thread:#x}"));
    }
    for (name, info) in [("LAST ERROR", &triage.last_error), ("LAST STATUS", &triage.last_status)] {
        if let Some(info) = info.as_ref().filter(|i| i.value.0 != 0) {
            row(out, name, &status(info));
        }
    }
}

fn status(info: &StatusInfo) -> String {
    match &info.best_effort {
        Some(text) => format!("{} {text}", info.value),
        None => info.value.to_string(),
    }
}

/// What was accessed, and by what: `write of 0x0000000000000000, a null pointer, by mov qword ptr [rax],r8`.
#[must_use]
pub fn access_words(access: &AccessInfo) -> String {
    let mut text = format!("{} of {}", access.operation.name(), access.address);
    if let Some(effective) = access.effective_address {
        let _ = write!(text, ", really {effective} (not canonical)");
    }
    match &access.place {
        Some(place) => {
            let _ = write!(text, ", {place}");
        }
        None if access.class == AddressClass::NullPage => {
            let _ = write!(text, ", {}", crate::summary::address_words(access));
        }
        None => {}
    }
    if let Some(instruction) = &access.instruction {
        let _ = write!(text, ", by {instruction}");
    }
    text
}

fn thrown_rows(out: &mut String, thrown: &Thrown) {
    let name = thrown.type_name.as_deref().unwrap_or(if thrown.rethrow {
        "(rethrown)"
    } else {
        "(type not readable)"
    });
    let provenance = match thrown.provenance {
        Provenance::Reported => "",
        Provenance::Dispatched => " (dispatched on this stack)",
        Provenance::Scanned => " (found by pattern: it may predate this fault)",
    };
    row(out, "THROWN", &format!("{name} at {}{provenance}", thrown.object));
    if thrown.catchable_as.len() > 1 {
        row(out, "  CATCHABLE AS", &thrown.catchable_as.join(", "));
    }
    if let Some(what) = &thrown.what {
        row(out, "  WHAT", what);
    }
    if let Some(hresult) = &thrown.hresult {
        row(out, "  HRESULT", &status(hresult));
    }
    if let Some(note) = &thrown.type_note {
        row(out, "  NOTE", note);
    }
}

fn stowed_rows(out: &mut String, item: &Stowed) {
    row(out, "STOWED", &status(&item.hresult));
    if let Some(text) = &item.text {
        row(out, "  TEXT", text);
    }
    for frame in &item.stack {
        let _ = writeln!(out, "  {:>3} {}", frame.index, frame_line(frame));
    }
}
