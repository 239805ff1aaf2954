//! One page: a summary, then a row a call, events between. No script, nothing external, and a policy
//! that would allow neither.

use std::collections::HashMap;
use std::fmt::Write as _;

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::event::{Event, Text};
use crate::reading::{Reading, Record};
use crate::render::line::{self, Mark};
use crate::render::timeline::{self, Run};
use crate::render::visible::{one_line, visible};
use crate::render::{Report, cast};

const STYLE: &str = include_str!("page.css");

/// Control characters shown, then what HTML would read as markup escaped.
fn escaped(text: &str) -> String {
    let text = visible(text);
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

/// The style's own hash: a policy with it allows this style and no other.
fn style_hash() -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for piece in Sha256::digest(STYLE.as_bytes()).chunks(3) {
        let bits =
            piece.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - piece.len()));
        for place in 0..4 {
            let digit = (bits >> (18 - 6 * place)) & 63;
            out.push(if place > piece.len() { '=' } else { char::from(DIGITS[digit as usize]) });
        }
    }
    out
}

struct Page {
    out: String,
    rows: usize,
}

impl Page {
    fn put(&mut self, arguments: std::fmt::Arguments<'_>) {
        // Writing to a String cannot fail.
        let _ = self.out.write_fmt(arguments);
    }
}

macro_rules! put {
    ($page:expr, $($argument:tt)*) => { $page.put(format_args!($($argument)*)) };
}

/// The page of a transcript; `title` is the first session's kind and target when `None`.
#[must_use]
pub fn html(reading: &Reading, title: Option<&str>) -> (String, Report) {
    let runs = timeline::runs(reading);
    let title = title.map(ToOwned::to_owned).or_else(|| cast::title(reading));
    let title = title.unwrap_or_else(|| "windbg-mcp transcript".to_owned());
    let mut page = Page { out: String::new(), rows: 0 };
    put!(
        page,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta http-equiv=\"Content-Security-Policy\" \
         content=\"default-src 'none'; style-src 'sha256-{}'; base-uri 'none'; form-action 'none'\">\n<meta \
         name=\"referrer\" content=\"no-referrer\">\n<meta name=\"viewport\" content=\"width=device-width, \
         initial-scale=1\">\n<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n<h1>{title}</h1>\n",
        style_hash(),
        title = escaped(&title),
    );
    summary(&mut page, reading, &runs);
    for (number, run) in runs.iter().enumerate() {
        if runs.len() > 1 {
            let name = run.records.first().map(|record| record.run.as_str()).unwrap_or_default();
            put!(page, "<h2>Run {} of {} ({})</h2>\n", number + 1, runs.len(), escaped(name));
        }
        story(&mut page, run);
    }
    put!(page, "</main>\n</body>\n</html>\n");
    let report = Report {
        records: reading.records.len(),
        frames: page.rows,
        runs: runs.len(),
        unreadable: reading.unreadable,
        seconds: runs.last().map_or(0.0, Run::end),
    };
    (page.out, report)
}

fn summary(page: &mut Page, reading: &Reading, runs: &[Run<'_>]) {
    let events = || reading.records.iter().map(|record| &record.event);
    let first = runs.first().and_then(|run| run.records.first());
    let version = events().find_map(|event| match event {
        Event::Start { version, .. } => Some(version.as_str()),
        _ => None,
    });
    put!(
        page,
        "<p class=\"sub\">windbg-mcp {}, {}</p>\n<dl class=\"facts\">\n",
        escaped(version.unwrap_or("of an unknown version")),
        escaped(first.map_or("", |record| &record.at)),
    );
    let failed =
        events().filter(|e| matches!(e, Event::ToolResult { verdict, .. } if verdict != "ok")).count();
    let calls = events().filter(|event| matches!(event, Event::ToolRequest { .. })).count();
    let lost: u64 = events().map(|event| if let Event::Gap { lost } = event { *lost } else { 0 }).sum();
    let seconds = runs.last().map_or(0.0, Run::end);
    let mut facts = vec![
        ("Calls", calls.to_string()),
        ("Failed", failed.to_string()),
        ("Sessions", events().filter(|e| matches!(e, Event::SessionOpen { .. })).count().to_string()),
        ("Duration", duration(seconds)),
    ];
    if runs.len() > 1 {
        facts.push(("Runs", runs.len().to_string()));
    }
    if lost > 0 || reading.unreadable > 0 {
        facts.push(("Lost records", lost.to_string()));
        facts.push(("Unreadable lines", reading.unreadable.to_string()));
    }
    for (name, value) in facts {
        put!(page, "<div><dt>{name}</dt><dd>{value}</dd></div>\n");
    }
    put!(page, "</dl>\n");
    tools(page, reading);
}

/// Which tools were called, how often, and what they took.
fn tools(page: &mut Page, reading: &Reading) {
    let mut rows: Vec<(&str, usize, usize, u64, u64)> = Vec::new();
    for record in &reading.records {
        let Event::ToolResult { tool, verdict, elapsed_ms, .. } = &record.event else { continue };
        let at = rows.iter().position(|row| row.0 == tool).unwrap_or_else(|| {
            rows.push((tool, 0, 0, 0, 0));
            rows.len() - 1
        });
        let row = &mut rows[at];
        row.1 += 1;
        row.2 += usize::from(verdict != "ok");
        row.3 = row.3.saturating_add(*elapsed_ms);
        row.4 = row.4.max(*elapsed_ms);
    }
    if rows.is_empty() {
        return;
    }
    rows.sort_by_key(|row| std::cmp::Reverse(row.1));
    put!(
        page,
        "<details class=\"tools\"><summary>{} tools were called</summary>\n<table>\n<tr><th>Tool</th><th class=\"n\">Calls</th><th class=\"n\">Failed</th><th class=\"n\">Together</th><th \
         class=\"n\">Longest</th></tr>\n",
        rows.len()
    );
    for (tool, calls, failed, together, longest) in rows {
        put!(
            page,
            "<tr><td>{}</td><td class=\"n\">{calls}</td><td class=\"n\">{failed}</td><td class=\"n\">{together} ms</td><td \
             class=\"n\">{longest} ms</td></tr>\n",
            escaped(tool)
        );
    }
    put!(page, "</table></details>\n");
}

fn duration(seconds: f64) -> String {
    let whole = seconds as u64;
    match whole {
        0..60 => format!("{seconds:.1} s"),
        60..3600 => format!("{} min {} s", whole / 60, whole % 60),
        _ => format!("{} h {} min", whole / 3600, whole / 60 % 60),
    }
}

/// `12:34.567` since the run's first record.
fn stamp(seconds: f64) -> String {
    let milliseconds = (seconds * 1000.0).round() as u64;
    let (minutes, rest) = (milliseconds / 60_000, milliseconds % 60_000);
    format!("{minutes:02}:{:02}.{:03}", rest / 1000, rest % 1000)
}

fn story(page: &mut Page, run: &Run<'_>) {
    let results: HashMap<u64, &Record> = run
        .records
        .iter()
        .filter_map(|record| match &record.event {
            Event::ToolResult { request, .. } => Some((*request, *record)),
            _ => None,
        })
        .collect();
    put!(page, "<ol>\n");
    for record in &run.records {
        let at = stamp(run.at(record) - run.from);
        match &record.event {
            Event::ToolRequest { request, tool, args, session, .. } => {
                page.rows += 1;
                put!(page, "<li><time title=\"{}\">{at}</time>", escaped(&record.at));
                call(
                    page,
                    tool,
                    args.as_ref(),
                    session.as_deref(),
                    results.get(request).map(|record| &record.event),
                );
                put!(page, "</li>\n");
            }
            Event::ToolResult { .. } => {}
            event => {
                let (mark, words) = line::words(&record.name, event).unwrap_or((Mark::Plain, String::new()));
                let class = match mark {
                    Mark::Plain => "",
                    Mark::Target => " target",
                    Mark::Bad => " bad",
                };
                page.rows += 1;
                put!(
                    page,
                    "<li><time title=\"{}\">{at}</time><p class=\"event{class}\">{}</p></li>\n",
                    escaped(&record.at),
                    escaped(&one_line(&words, 2000))
                );
            }
        }
    }
    put!(page, "</ol>\n");
}

fn call(page: &mut Page, tool: &str, args: Option<&Value>, session: Option<&str>, result: Option<&Event>) {
    let (class, took, text, data, routed) = match result {
        Some(Event::ToolResult { verdict, category, elapsed_ms, text, data, session, .. }) => {
            let ok = verdict == "ok";
            let verdict = category.as_deref().unwrap_or(verdict);
            let took = format!("{} in {elapsed_ms} ms", one_line(verdict, 40));
            (if ok { "" } else { " bad" }, took, Some(text), data.as_ref(), session.as_deref())
        }
        _ => (" open", "no answer recorded".to_owned(), None, None, None),
    };
    let shown = args.filter(|args| args.as_object().is_none_or(|args| !args.is_empty()));
    let line = shown.map(|args| one_line(&args.to_string(), 300)).unwrap_or_default();
    put!(
        page,
        "<details class=\"call{class}\"><summary><div class=\"what\"><span class=\"head\"><span class=\"tool\">{}</span><span \
         class=\"args\">{}</span><span class=\"took\">{}</span></span>",
        escaped(&one_line(tool, 80)),
        escaped(&line),
        escaped(&took)
    );
    // Tables are fenced; their head is more of a gist than the fence.
    let tells = |line: &&str| !line.trim().is_empty() && !line.starts_with("```");
    if let Some(gist) = text.and_then(|text| text.text.lines().find(tells)) {
        put!(page, "<div class=\"gist\">{}</div>", escaped(&one_line(gist, 200)));
    }
    put!(page, "</div></summary><div class=\"body\">");
    if let Some(session) = routed.or(session) {
        put!(page, "<p class=\"note\">In session {}</p>", escaped(session));
    }
    if let Some(args) = shown {
        put!(page, "<h3>Arguments</h3><pre>{}</pre>", escaped(&pretty(args)));
    }
    if let Some(text) = text {
        answer(page, text);
    }
    if let Some(data) = data {
        put!(
            page,
            "<details><summary>Structured answer</summary><pre>{}</pre></details>",
            escaped(&pretty(data))
        );
    }
    put!(page, "</div></details>");
}

fn answer(page: &mut Page, text: &Text) {
    put!(page, "<h3>Answer</h3><pre>{}</pre>", escaped(text.text.trim_end()));
    if let Some(dropped) = text.dropped {
        put!(page, "<p class=\"note\">{dropped} more bytes were not recorded.</p>");
    }
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}
