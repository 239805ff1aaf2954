//! Breakpoints in words.

use control::BreakpointRecord;

use crate::table::{fenced, quiet};

/// Where it is, or what it waits for.
fn place(record: &BreakpointRecord) -> String {
    let mut text = record.address.map(|at| at.to_string()).unwrap_or_default();
    if let (Some(module), Some(rva)) = (&record.module, record.rva) {
        text.push_str(&format!(" {module}+{rva}"));
    }
    if let Some(expression) = &record.expression {
        text.push_str(&format!("{}{expression}", if text.is_empty() { "" } else { " " }));
    }
    text
}

fn notes(record: &BreakpointRecord) -> String {
    let mut notes = Vec::new();
    if record.deferred {
        notes.push("deferred until its module loads".to_owned());
    }
    if !record.enabled {
        notes.push("disabled".to_owned());
    }
    if record.one_shot {
        notes.push("one shot".to_owned());
    }
    if record.pass_count > 1 {
        let left = record.passes_remaining.map(|left| format!(", {left} to go")).unwrap_or_default();
        notes.push(format!("arrival {}{left}", record.pass_count));
    }
    notes.extend(record.thread.map(|thread| format!("thread {thread}")));
    notes.extend(record.condition.as_ref().map(|condition| format!("if {condition}")));
    notes.extend(record.command.as_ref().map(|command| format!("runs {command}")));
    notes.extend(record.hits.map(|hits| format!("{hits} hits")));
    notes.join("; ")
}

fn kind(record: &BreakpointRecord) -> String {
    record.watch.map_or_else(|| "code".to_owned(), |watch| format!("{} {}", watch.access.word(), watch.size))
}

/// All of them as a table; a sentence when there are none.
pub(super) fn table(records: &[BreakpointRecord]) -> String {
    if records.is_empty() {
        return "There are no breakpoints.".to_owned();
    }
    let rows: Vec<[String; 4]> =
        records.iter().map(|r| [r.id.to_string(), kind(r), place(r), notes(r)]).collect();
    fenced(["id", "kind", "where", ""], &rows)
}

/// One of them in a sentence's words.
pub(super) fn words(record: &BreakpointRecord) -> String {
    let notes = notes(record);
    let notes = if notes.is_empty() { notes } else { format!(" ({notes})") };
    quiet(&format!("breakpoint {}, {}, {}{notes}", record.id, kind(record), place(record)))
}
