//! A fixed transcript as a cast, byte for byte, and as a page.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::{Path, PathBuf};

use serde_json::Value;
use transcript::Reading;
use transcript::render::{CastOptions, cast, html};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

fn reading() -> Reading {
    Reading::of(&[data("session.jsonl")]).unwrap()
}

fn frames(cast: &str) -> Vec<(f64, String)> {
    let frame = |line: &str| {
        let frame: Value = serde_json::from_str(line).unwrap();
        assert_eq!(frame[1], "o");
        (frame[0].as_f64().unwrap(), frame[2].as_str().unwrap().to_owned())
    };
    cast.lines().skip(1).map(frame).collect()
}

#[test]
fn the_golden_cast() {
    let (text, report) = cast(&reading(), &CastOptions::default());
    let golden = data("session.cast");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&golden, &text).unwrap();
    }
    assert_eq!(text, std::fs::read_to_string(golden).unwrap(), "UPDATE_GOLDEN=1 writes it anew");
    assert_eq!(report.words(), "20 records, 20 frames, 2 runs, 1 unreadable line, 2.3 s");
}

#[test]
fn times_never_go_back_and_runs_lie_end_to_end() {
    let (text, _) = cast(&reading(), &CastOptions::default());
    let frames = frames(&text);
    assert!(frames.windows(2).all(|pair| pair[0].0 <= pair[1].0));
    // The second run's clock is before the first's: a second is what lies between them.
    assert!(frames.iter().any(|(time, _)| (*time - 2.25).abs() < 0.001), "{frames:?}");
}

#[test]
fn nothing_of_a_target_acts_on_a_terminal() {
    let (text, _) = cast(&reading(), &CastOptions { max_lines: 0, ..CastOptions::default() });
    let mut shown: String = frames(&text).into_iter().map(|(_, frame)| frame).collect();
    for own in ["\x1b[1;36m", "\x1b[2m", "\x1b[32m", "\x1b[31m", "\x1b[33m", "\x1b[1m", "\x1b[0m"] {
        shown = shown.replace(own, "");
    }
    let acting = |c: char| c.is_control() && !matches!(c, '\r' | '\n' | '\t');
    assert!(!shown.contains(acting) && !shown.contains(['\u{2028}', '\u{202e}']), "{shown:?}");
    assert!(shown.contains("^[]52;c;aGFjaw==^G not in the dump<U+2028><U+202E><b>"), "{shown}");
}

#[test]
fn what_is_cut_and_what_was_never_kept_read_differently() {
    let (text, _) = cast(&reading(), &CastOptions::default());
    assert!(text.contains("… 6 more lines in the transcript") && text.contains("… 4096 bytes not recorded"));
    assert!(text.contains("the target ended") && text.contains("no stop the target reached"));
}

#[test]
fn options_are_in_the_header() {
    let options =
        CastOptions { title: Some("a\u{1b}b".into()), width: 80, height: 24, idle_limit: 0.0, max_lines: 1 };
    let (text, _) = cast(&reading(), &options);
    let header: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    assert_eq!(header["title"], "a^[b");
    assert_eq!((header["version"].as_u64(), header["width"].as_u64()), (Some(2), Some(80)));
    assert_eq!(header.get("idle_time_limit"), None);
    assert_eq!(header["timestamp"], 1_767_225_600);
}

#[test]
fn the_page_runs_nothing_and_loads_nothing() {
    let (page, report) = html(&reading(), None);
    for word in
        ["<script", "javascript:", "http:", "https:", "src=", "href=", "<b>", "\u{1b}", "\u{202e}", "url("]
    {
        assert!(!page.contains(word), "{word} in the page");
    }
    assert!(page.contains("content=\"default-src 'none'; style-src 'sha256-"), "a strict policy");
    assert!(
        page.contains("^[]52;c;aGFjaw==^G not in the dump&lt;U+2028&gt;&lt;U+202E&gt;&lt;b&gt;&amp;amp;")
    );
    assert!(page.contains("<title>dump /dumps/a.dmp</title>"));
    assert_eq!((report.records, report.runs), (20, 2));
    let hostile = html(&reading(), Some("</title><script>alert(1)</script>")).0;
    assert!(!hostile.contains("<script"));
}

#[test]
fn rotated_parts_come_in_any_order() {
    let folder = tempfile::tempdir().unwrap();
    let whole = std::fs::read_to_string(data("session.jsonl")).unwrap();
    let lines: Vec<&str> = whole.lines().collect();
    let (old, new) = (folder.path().join("t.1"), folder.path().join("t"));
    std::fs::write(&old, lines[..6].join("\n")).unwrap();
    std::fs::write(&new, lines[6..].join("\n")).unwrap();
    let one = cast(&Reading::of(&[old.clone(), new.clone()]).unwrap(), &CastOptions::default());
    let other = cast(&Reading::of(&[new, old]).unwrap(), &CastOptions::default());
    assert_eq!(frames(&one.0).len(), frames(&other.0).len());
    let first_run =
        |text: &str| frames(text).into_iter().take(16).map(|(_, frame)| frame).collect::<Vec<_>>();
    assert_eq!(first_run(&one.0), first_run(&other.0));
}

#[test]
fn a_file_without_records_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t");
    std::fs::write(&path, "no\n\n{}\n").unwrap();
    assert!(Reading::of(&[path]).unwrap_err().to_string().contains("no records in"));
    assert!(Reading::of(&[folder.path().join("none")]).unwrap_err().to_string().contains("none: "));
}
