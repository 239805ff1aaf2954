//! An event that is no call, in one line.

use crate::event::{Event, Text};

/// How an event is marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    /// The server's own story.
    Plain,
    /// The target did something, or something was done to it.
    Target,
    Bad,
}

fn text(text: &Text) -> String {
    match text.dropped {
        Some(dropped) => format!("{} [{dropped} bytes not recorded]", text.text),
        None => text.text.clone(),
    }
}

fn more(detail: Option<&Text>) -> String {
    detail.map(|detail| format!(": {}", text(detail))).unwrap_or_default()
}

/// The words of an event; `None` for calls.
pub(super) fn words(name: &str, event: &Event) -> Option<(Mark, String)> {
    let plain = |words: String| Some((Mark::Plain, words));
    let of_target = |words: String| Some((Mark::Target, words));
    let bad = |words: String| Some((Mark::Bad, words));
    match event {
        Event::ToolRequest { .. } | Event::ToolResult { .. } => None,
        Event::Start { version, pid, surface, engines, .. } => plain(format!(
            "windbg-mcp {version} started (pid {pid}; engines {}; {surface})",
            engines.join(", ")
        )),
        Event::Continued { from } => plain(format!("goes on from {from}")),
        Event::SessionOpen { session, kind, target, engine, engine_pid } => {
            plain(format!("{session} opens {kind} {} ({engine}, pid {engine_pid})", text(target)))
        }
        Event::SessionState { session, state, detail } => {
            plain(format!("{session} is {state}{}", more(detail.as_ref())))
        }
        Event::SessionEnd { session, released, worker_terminated, waited_ms } => {
            let how = match (released, worker_terminated) {
                (_, true) => "its worker was killed",
                (true, _) => "released",
                (false, _) => "nothing was left to release",
            };
            let waited = waited_ms.map(|ms| format!(" after {ms} ms")).unwrap_or_default();
            plain(format!("{session} ended: {how}{waited}"))
        }
        Event::WorkerLost { session, detail } => {
            bad(format!("the worker of {session} was lost: {}", text(detail)))
        }
        Event::CallTimeout { session, budget_ms } => {
            bad(format!("a call on {session} was given up after {budget_ms} ms; its job goes on"))
        }
        Event::Interrupt { session, delivered, detail } => {
            let how = if *delivered { "interrupted" } else { "not interrupted" };
            plain(format!("{session} {how}{}", more(detail.as_ref())))
        }
        Event::Stop { command, stopped_at, interrupted, timed_out, target_gone, .. } => {
            of_target(stop(command, stopped_at.as_deref(), *interrupted, *timed_out, *target_gone))
        }
        Event::RunTo { verdict, target, stopped_at, .. } => {
            let at = stopped_at.as_deref().map(|at| format!(", stands at {at}")).unwrap_or_default();
            of_target(format!("run to {}: {verdict}{at}", text(target)))
        }
        Event::Mutation { kind, detail, step, .. } => {
            let step = step.as_ref().map(|step| format!(" ({})", text(step))).unwrap_or_default();
            of_target(format!("changed, {kind}: {}{step}", text(detail)))
        }
        Event::Assertion { step, detail, .. } => bad(format!("unmet, {}: {}", text(step), text(detail))),
        Event::Batch {
            outcome, at_step, committed, rollback, rollback_complete, after, elapsed_ms, ..
        } => {
            let at = at_step.as_deref().map(|at| format!(" at {at}")).unwrap_or_default();
            let mark = if *committed && *rollback_complete { Mark::Target } else { Mark::Bad };
            let undone = if *rollback_complete { "" } else { ", not all of it undone" };
            Some((
                mark,
                format!("batch {outcome}{at} in {elapsed_ms} ms; cleanup {rollback}{undone}; target {after}"),
            ))
        }
        Event::LeaseExpired { sessions, client } => {
            let client = client.as_deref().map(|client| format!(" of {client}")).unwrap_or_default();
            bad(format!("a lease{client} expired; {sessions} sessions let go"))
        }
        Event::Shutdown { sessions, .. } => plain(format!("the server ends; {sessions} sessions let go")),
        Event::Gap { lost } => bad(format!("{lost} records could not be written here")),
        Event::Oversized { of, bytes } => {
            bad(format!("a {of} record of {bytes} bytes was too large to keep"))
        }
        Event::Other => plain(format!("{name} (of a later version)")),
    }
}

fn stop(command: &str, at: Option<&str>, interrupted: bool, timed_out: bool, target_gone: bool) -> String {
    let at = at.map(|at| format!(" at {at}")).unwrap_or_default();
    match (target_gone, interrupted, timed_out) {
        (true, ..) => format!("{command}: the target ended"),
        (_, true, _) => format!("{command}: broken in on request{at}; no stop the target reached"),
        (_, _, true) => {
            format!("{command}: its time passed and it was broken in{at}; no stop the target reached")
        }
        _ => format!("{command}: stopped{at}"),
    }
}
