//! asciicast v2 (docs.asciinema.org/manual/asciicast/v2): a header, then one frame a line.

use serde_json::{Value, json};

use crate::event::{Event, Text};
use crate::reading::Reading;
use crate::render::Report;
use crate::render::line::{self, Mark};
use crate::render::timeline;
use crate::render::visible::{one_line, visible};

/// Characters of a request's line.
const REQUEST: usize = 160;

// The only escape sequences a cast holds.
const PROMPT: &str = "\x1b[1;36m";
const DIM: &str = "\x1b[2m";
const GOOD: &str = "\x1b[32m";
const BAD: &str = "\x1b[31m";
const TARGET: &str = "\x1b[33m";
const BOLD: &str = "\x1b[1m";
const RESET: &str = "\x1b[0m";

/// How a cast looks.
#[derive(Clone, Debug, PartialEq)]
pub struct CastOptions {
    /// Kind and target of the first session when `None`.
    pub title: Option<String>,
    pub width: u16,
    pub height: u16,
    /// A player skips longer pauses; 0 is none.
    pub idle_limit: f64,
    /// Lines of a result that are shown; 0 is all.
    pub max_lines: usize,
}

impl Default for CastOptions {
    fn default() -> Self {
        Self { title: None, width: 120, height: 32, idle_limit: 2.0, max_lines: 24 }
    }
}

/// The first session's kind and target.
pub(super) fn title(reading: &Reading) -> Option<String> {
    reading.records.iter().find_map(|record| match &record.event {
        Event::SessionOpen { kind, target, .. } => {
            Some(format!("{kind} {}", one_line(&target.text, REQUEST)))
        }
        _ => None,
    })
}

/// The cast, every line ended.
#[must_use]
pub fn cast(reading: &Reading, options: &CastOptions) -> (String, Report) {
    let runs = timeline::runs(reading);
    let mut out = header(reading, options, &runs).to_string();
    out.push('\n');
    let mut report = Report {
        records: reading.records.len(),
        unreadable: reading.unreadable,
        runs: runs.len(),
        ..Report::default()
    };
    let mut last = 0.0_f64;
    for run in &runs {
        for record in &run.records {
            // Clocks of two processes may disagree; a cast never goes back.
            last = run.at(record).max(last);
            let frame = frame(&record.name, &record.event, options);
            // Three decimals are what the stamps have.
            let time = (last * 1000.0).round() / 1000.0;
            out.push_str(&json!([time, "o", frame.replace('\n', "\r\n")]).to_string());
            out.push('\n');
            report.frames += 1;
        }
    }
    report.seconds = last;
    (out, report)
}

fn header(reading: &Reading, options: &CastOptions, runs: &[timeline::Run<'_>]) -> Value {
    let mut header = json!({
        "version": 2,
        "width": options.width,
        "height": options.height,
        "env": { "TERM": "xterm-256color" },
    });
    let first = runs.first().and_then(|run| run.records.first());
    if let Value::Object(members) = &mut header {
        if let Some(at) = first.and_then(|record| timeline::clock(&record.at)) {
            members.insert("timestamp".into(), json!(at.floor() as i64));
        }
        if options.idle_limit > 0.0 {
            members.insert("idle_time_limit".into(), json!(options.idle_limit));
        }
        if let Some(title) = options.title.clone().or_else(|| title(reading)) {
            members.insert("title".into(), json!(one_line(&title, REQUEST)));
        }
    }
    header
}

fn frame(name: &str, event: &Event, options: &CastOptions) -> String {
    match event {
        Event::ToolRequest { tool, args, .. } => {
            let args = args.as_ref().filter(|args| args.as_object().is_none_or(|args| !args.is_empty()));
            let args = args.map(|args| format!(" {args}")).unwrap_or_default();
            let line = one_line(&format!("{tool}{args}"), REQUEST);
            let (tool, args) = line.split_at(line.find(' ').unwrap_or(line.len()));
            format!("\n{PROMPT}>{RESET} {BOLD}{tool}{RESET}{args}\n")
        }
        Event::ToolResult { verdict, elapsed_ms, category, text, .. } => {
            let colour = if verdict == "ok" { GOOD } else { BAD };
            let category = category
                .as_deref()
                .map(|category| format!(" ({})", one_line(category, 40)))
                .unwrap_or_default();
            let verdict = one_line(verdict, 20);
            format!(
                "{}{colour}[{verdict}{category} in {elapsed_ms} ms]{RESET}\n",
                clipped(text, options.max_lines)
            )
        }
        event => {
            let (mark, words) = line::words(name, event).unwrap_or((Mark::Plain, String::new()));
            let (colour, sign) = match mark {
                Mark::Plain => (DIM, "·"),
                Mark::Target => (TARGET, "●"),
                Mark::Bad => (BAD, "!"),
            };
            format!("{colour}{sign} {}{RESET}\n", one_line(&words, 400))
        }
    }
}

/// A result's text: so many lines, and what is missing behind them.
fn clipped(text: &Text, most: usize) -> String {
    let shown = visible(&text.text);
    let lines: Vec<&str> = shown.trim_end().lines().collect();
    let kept = if most == 0 { lines.len() } else { most.min(lines.len()) };
    let mut out: String = lines[..kept].iter().map(|line| format!("{line}\n")).collect();
    if kept < lines.len() {
        out.push_str(&format!("{DIM}… {} more lines in the transcript{RESET}\n", lines.len() - kept));
    }
    if let Some(dropped) = text.dropped {
        out.push_str(&format!("{DIM}… {dropped} bytes not recorded{RESET}\n"));
    }
    out
}
