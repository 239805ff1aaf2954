//! One append: a call's record with 1 KiB of text and 2 KiB of JSON, and one as large as a field may
//! be. The bar is 50 µs at the median (spec 00 decision 18).

#![allow(missing_docs, clippy::unwrap_used)]

use criterion::{Criterion, criterion_group, criterion_main};
use serde_json::{Value, json};
use transcript::{Body, Event, Recorder, Settings, Start, Text};

fn result(text: &str) -> Event {
    Event::ToolResult {
        request: 1,
        tool: "modules".into(),
        session: Some("sess-0123456789abcdef".into()),
        elapsed_ms: 3,
        verdict: "ok".into(),
        category: None,
        text: Text::new(text),
        data: None,
    }
}

fn rows(bytes: usize) -> Value {
    let row =
        json!({ "name": "ntdll", "start": "0x00007ff812340000", "image_name": "C:\\Windows\\ntdll.dll" });
    let count = bytes / row.to_string().len();
    json!({ "status": "ok", "modules": vec![row; count] })
}

fn append(criterion: &mut Criterion) {
    let folder = std::env::temp_dir().join(format!("transcript-bench-{}", std::process::id()));
    let start = Start { version: "0".into(), engines: Vec::new(), surface: String::new() };
    let recorder = Recorder::open(Settings::at(folder.join("t.jsonl")), start).unwrap();
    for (name, text, data) in [
        ("append 3 KiB", "start  end  name\n".repeat(60), rows(2048)),
        ("append 24 KiB", "start  end  name\n".repeat(720), rows(12_000)),
    ] {
        criterion.bench_function(name, |bencher| {
            bencher.iter(|| recorder.record_with(Some("stdio"), result(&text), Body::Data(&data)));
        });
    }
    std::fs::remove_dir_all(folder).unwrap();
}

criterion_group!(benches, append);
criterion_main!(benches);
