//! The map as text.

use std::fmt::Write as _;

use super::{CodeRow, IoctlMap, StatusValue};

/// Renders one map; caveats come before the codes they qualify.
#[must_use]
pub fn render(map: &IoctlMap) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{} ({}, major {:#04x})", map.dispatch.describe(), map.convention, map.major);
    for caveat in caveats(map) {
        let _ = writeln!(out, "  ! {caveat}");
    }
    let plural = if map.code_count == 1 { "code" } else { "codes" };
    let _ = writeln!(out, "{} {plural}{}", map.code_count, if map.complete { ", complete" } else { "" });
    for row in &map.codes {
        let _ = writeln!(out, "  {}", code_line(row));
    }
    for pattern in &map.patterns {
        let _ = writeln!(
            out,
            "  pattern: code & {} == {} ({} codes) -> {}",
            pattern.mask, pattern.value, pattern.count, pattern.lands
        );
    }
    if let Some(default) = &map.default {
        let fate = fate(default.accepted, default.status.as_ref());
        let _ = writeln!(out, "  every other code -> {}{fate}", default.lands);
    }
    out
}

/// Why the list may be short, or not to be believed.
fn caveats(map: &IoctlMap) -> Vec<String> {
    let mut out = Vec::new();
    if map.unsettled {
        out.push("the analysis did not come to rest; nothing of it is listed".to_owned());
    }
    if let Some(stopped) = map.coverage.stopped {
        out.push(format!("stopped early ({stopped:?})").to_lowercase());
    }
    if map.never_read() {
        out.push(
            "no control code was seen being read in this routine: it treats every code alike, or it is not a \
             dispatch routine"
                .to_owned(),
        );
    } else if !map.code_proved {
        out.push("the control code was not traced from the request everywhere (unproved)".to_owned());
    }
    if map.unresolved_count > 0 {
        let first =
            map.unresolved.first().map(|row| format!("{}: {}", row.at, row.reason)).unwrap_or_default();
        out.push(format!("{} indirect transfers not followed (first {first})", map.unresolved_count));
    }
    if map.untracked_count > 0 {
        let first = map.untracked.first().map(ToString::to_string).unwrap_or_default();
        out.push(format!("{} tests of the code not understood (first {first})", map.untracked_count));
    }
    if !map.disputed.is_empty() {
        out.push(format!("{} codes disputed by the second interpreter, left out", map.disputed.len()));
    }
    if map.blind > 0 {
        out.push(format!("{} places could not be read or decoded", map.blind));
    }
    if !map.coverage.caps.is_empty() {
        out.push(format!("caps hit: {}", map.coverage.caps.join(", ")));
    }
    out
}

fn fate(accepted: Option<bool>, status: Option<&StatusValue>) -> String {
    let word = match accepted {
        Some(true) => "",
        Some(false) => " refused",
        None => " (fate unknown)",
    };
    match status {
        Some(StatusValue { name: Some(name), .. }) => format!("{word} {name}"),
        Some(status) => format!("{word} {}", status.value),
        None => word.to_owned(),
    }
}

fn code_line(row: &CodeRow) -> String {
    let mut line = format!(
        "{}  type {:#x} function {:#x} {} {}",
        row.code, row.device_type, row.function, row.method, row.required_access
    );
    let _ = match &row.handler {
        Some(handler) => write!(line, " -> {}, calls {}", row.case_rva, handler.describe()),
        None => write!(line, " -> {}", row.case_rva),
    };
    line.push_str(&fate(row.accepted, row.status.as_ref()));
    for (name, size, range) in [("in", row.in_size, row.in_range), ("out", row.out_size, row.out_range)] {
        match (size, range) {
            (Some(size), _) => {
                let _ = write!(line, " {name}={size}");
            }
            (None, Some(range)) => {
                let end = |bound: Option<u32>| bound.map(|b| b.to_string()).unwrap_or_default();
                let _ = write!(line, " {name}={}..{}", end(range.min), end(range.max));
            }
            (None, None) => {}
        }
    }
    if row.sites.iter().all(|site| !site.proved) {
        line.push_str(" unproved");
    }
    line
}
