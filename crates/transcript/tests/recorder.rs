//! What is recorded, under threads, caps, secrets, rotation and failure.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use transcript::{Body, Event, Reading, Recorder, Settings, Start, Text, parse_line};

fn start() -> Start {
    Start { version: "0".into(), engines: vec!["native".into()], surface: "all".into() }
}

fn lines(path: &Path) -> Vec<String> {
    std::fs::read_to_string(path).unwrap().lines().map(ToOwned::to_owned).collect()
}

fn result(request: u64, text: &str) -> Event {
    Event::ToolResult {
        request,
        tool: "t".into(),
        session: None,
        elapsed_ms: 1,
        verdict: "ok".into(),
        category: None,
        text: Text::new(text),
        data: None,
    }
}

#[test]
fn threads_write_whole_lines_in_one_order() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("deep/er/t.jsonl");
    let recorder = Recorder::open(Settings::at(&path), start()).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let recorder = &recorder;
            scope.spawn(move || {
                for request in 0..500 {
                    recorder.record(Some("c"), result(thread * 1000 + request, &"x".repeat(200)));
                }
            });
        }
    });
    let records: Vec<_> = lines(&path).iter().map(|line| parse_line(line.as_bytes()).unwrap()).collect();
    assert_eq!(records.len(), 4001);
    assert!(records.iter().enumerate().all(|(index, record)| record.seq == index as u64));
    assert!(records.windows(2).all(|pair| pair[0].mono_ms <= pair[1].mono_ms && pair[0].at <= pair[1].at));
    assert!(records.iter().all(|record| record.run == recorder.run() && record.run.len() == 16));
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}

#[test]
fn fields_are_capped_and_uncapped() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t");
    let text = format!("x{}", "é".repeat(10_240));
    let data = json!({ "rows": "y".repeat(20_000) });
    let capped = Recorder::open(Settings::at(&path), start()).unwrap();
    capped.record_with(None, result(1, &text), Body::Data(&data));
    let line: Value = serde_json::from_str(&lines(&path)[1]).unwrap();
    let (kept, dropped) = (line["text"]["text"].as_str().unwrap(), line["text"]["dropped"].as_u64().unwrap());
    // 16384 would cut an é in two.
    assert_eq!((kept.len(), dropped), (16_383, 4098));
    assert_eq!(line["data"], json!({ "transcript_dropped_bytes": 20_011 }));

    let whole = folder.path().join("whole");
    let settings = Settings { max_field: 0, ..Settings::at(&whole) };
    Recorder::open(settings, start()).unwrap().record_with(None, result(1, &text), Body::Data(&data));
    let line: Value = serde_json::from_str(&lines(&whole)[1]).unwrap();
    assert_eq!(line["text"]["text"].as_str().unwrap(), text);
    assert_eq!(line["data"], data);
}

#[test]
fn a_record_over_the_ceiling_is_replaced_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t");
    let recorder = Recorder::open(Settings { max_field: 64, ..Settings::at(&path) }, start()).unwrap();
    let engines = (0..64).map(|n| format!("{n}{}", "e".repeat(400))).collect();
    let (version, surface, schema) = (String::new(), String::new(), String::new());
    recorder.record(None, Event::Start { version, pid: 1, field_limit: 64, schema, engines, surface });
    let line: Value = serde_json::from_str(&lines(&path)[1]).unwrap();
    assert_eq!((line["event"].as_str(), line["of"].as_str()), (Some("oversized"), Some("start")));
    assert!(line["bytes"].as_u64().unwrap() > 8 * 64 + 4096);
}

#[test]
fn a_secret_is_in_no_field_and_facts_survive() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t");
    let recorder = Recorder::open(Settings { max_field: 0, ..Settings::at(&path) }, start()).unwrap();
    let args = json!({ "connection": "net:port=50000,key=a1.b2.c3.d4.e5", "password": "open-sesame-1", "path": "x" });
    redaction::learn_arguments(args.as_object().unwrap());
    let request = Event::ToolRequest {
        request: 1,
        tool: "attach a1.b2.c3.d4.e5".into(),
        client: None,
        session: Some("open-sesame-1".into()),
        args: None,
    };
    recorder.record_with(None, request, Body::Args(&args));
    let data = json!({
        "error": { "message": "cannot dial a1.b2.c3.d4.e5" }, "pdb": { "key": "ntkrnlmp.pdb/1" },
        "list": ["open-sesame-1"], "a1.b2.c3.d4.e5": 1, "never seen": "password=\"unknown one\""
    });
    recorder.record_with(None, result(1, "with a1.b2.c3.d4.e5 and key=q"), Body::Data(&data));
    recorder.record(None, Event::WorkerLost { session: "s".into(), detail: Text::new("open-sesame-1") });
    let text = std::fs::read_to_string(&path).unwrap();
    for secret in ["a1.b2.c3.d4.e5", "open-sesame-1", "unknown one", "key=q"] {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
    assert!(text.contains(r#""pdb":{"key":"ntkrnlmp.pdb/1"}"#), "{text}");
    assert!(text.contains("key=<redacted>"), "{text}");
}

/// Every file of a rotated transcript, newest first.
fn parts(path: &Path) -> Vec<PathBuf> {
    let numbered = (1..100).map(|n| PathBuf::from(format!("{}.{n}", path.display())));
    std::iter::once(path.to_owned()).chain(numbered).filter(|path| path.exists()).collect()
}

#[test]
fn two_writers_rotate_one_path_and_nothing_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.jsonl");
    let settings = Settings { max_bytes: 20_000, keep: 50, ..Settings::at(&path) };
    let one = Recorder::open(settings.clone(), start()).unwrap();
    let other = Recorder::open(settings, start()).unwrap();
    std::thread::scope(|scope| {
        for recorder in [&one, &other] {
            scope.spawn(move || (0..300).for_each(|n| recorder.record(None, result(n, &"z".repeat(100)))));
        }
    });
    let parts = parts(&path);
    assert!(parts.len() > 3, "{parts:?}");
    let reading = Reading::of(&parts).unwrap();
    assert_eq!(reading.unreadable, 0);
    for recorder in [&one, &other] {
        let own = || reading.records.iter().filter(|record| record.run == recorder.run());
        let seqs: HashSet<u64> = own().map(|record| record.seq).collect();
        let continued = own().filter(|record| record.name == "continued").count();
        assert_eq!(seqs, (0..(301 + continued as u64)).collect(), "run and seq go on");
    }
    let continued: Vec<_> = reading.records.iter().filter(|record| record.name == "continued").collect();
    assert_eq!(continued.len(), parts.len() - 1);
    assert_eq!(continued[0].event, Event::Continued { from: "t.jsonl.1".into() });
}

#[test]
fn so_many_rotated_files_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t");
    let settings = Settings { max_bytes: 2000, keep: 2, ..Settings::at(&path) };
    let recorder = Recorder::open(settings, start()).unwrap();
    (0..100).for_each(|n| recorder.record(None, result(n, "r")));
    assert_eq!(parts(&path).len(), 3);
    for part in parts(&path) {
        assert!(std::fs::metadata(&part).unwrap().len() <= 2000, "{}", part.display());
    }
    let never = folder.path().join("never");
    let recorder = Recorder::open(Settings { max_bytes: 0, ..Settings::at(&never) }, start()).unwrap();
    (0..100).for_each(|n| recorder.record(None, result(n, "r")));
    assert_eq!(parts(&never).len(), 1);
}

#[test]
fn a_file_that_was_taken_away_is_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t");
    let recorder = Recorder::open(Settings::at(&path), start()).unwrap();
    std::fs::rename(&path, folder.path().join("elsewhere")).unwrap();
    recorder.record(None, result(1, "r"));
    assert_eq!(lines(&path).len(), 1);
}

#[test]
fn what_took_its_place_and_cannot_be_written_is_a_gap() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("deep/t");
    let recorder = Recorder::open(Settings::at(&path), start()).unwrap();
    std::fs::remove_dir_all(folder.path().join("deep")).unwrap();
    std::fs::write(folder.path().join("deep"), "a file where the folder was").unwrap();
    recorder.record(None, result(1, "lost"));
    recorder.record(None, result(2, "lost"));
    std::fs::remove_file(folder.path().join("deep")).unwrap();
    recorder.record(None, result(3, "kept"));
    let reading = Reading::of(&[path]).unwrap();
    let seqs: Vec<u64> = reading.records.iter().map(|record| record.seq).collect();
    assert_eq!((&reading.records[0].event, seqs), (&Event::Gap { lost: 2 }, vec![3, 4]));
}

#[cfg(target_os = "linux")]
#[test]
fn what_cannot_be_written_costs_the_caller_nothing() {
    let recorder = Recorder::open(Settings::at("/dev/full"), start()).unwrap();
    recorder.record(Some("c"), result(1, "r"));
    assert_eq!(recorder.recent("c"), "", "what was not written was not kept either");
    assert!(Recorder::open(Settings::at("/proc/nonesuch/t"), start()).is_err());
    let folder = tempfile::tempdir().unwrap();
    assert!(Recorder::open(Settings::at(folder.path()), start()).is_err(), "a folder is no file");
}

#[test]
fn a_client_sees_its_own_records() {
    let folder = tempfile::tempdir().unwrap();
    let recorder = Recorder::open(Settings::at(folder.path().join("t")), start()).unwrap();
    recorder.record(Some("a"), result(1, "mine"));
    recorder.record(Some("b"), result(2, "theirs"));
    let recent = recorder.recent("a");
    let records: Vec<_> = recent.lines().map(|line| parse_line(line.as_bytes()).unwrap()).collect();
    assert_eq!(records.iter().map(|r| r.name.as_str()).collect::<Vec<_>>(), ["start", "tool_result"]);
    assert!(recent.contains("mine") && !recent.contains("theirs"));
}

proptest::proptest! {
    #[test]
    fn any_line_is_read_or_counted(line in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200)) {
        let mut reading = Reading::default();
        reading.line(&line);
        proptest::prop_assert!(reading.records.len() + reading.unreadable <= 1);
    }

    #[test]
    fn a_damaged_transcript_still_renders(cut in 0_usize..4000, flip in 0_usize..4000, byte in proptest::prelude::any::<u8>()) {
        let mut bytes = include_bytes!("data/session.jsonl").to_vec();
        let length = bytes.len();
        bytes[flip % length] = byte;
        bytes.truncate(cut.max(1) * 7 % length);
        let mut reading = Reading::default();
        bytes.split(|b| *b == b'\n').for_each(|line| reading.line(line));
        let (cast, _) = transcript::render::cast(&reading, &Default::default());
        let mut last = 0.0;
        for line in cast.lines().skip(1) {
            let frame: Value = serde_json::from_str(line).unwrap();
            proptest::prop_assert!(frame[0].as_f64().unwrap() >= last);
            last = frame[0].as_f64().unwrap();
        }
        let _ = transcript::render::html(&reading, None);
    }
}
