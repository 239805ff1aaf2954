//! The filter on a typed result of 12 KB and on 12 KB of raw text, all sets on; beside it what a
//! result costs without: parsing it off the worker's line and writing it to the client.

#![allow(missing_docs, clippy::unwrap_used)]

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use redaction::{Filter, Redactor, Shape};
use serde_json::{Value, json};

const RULES: &str = r#"builtin = ["user_paths", "tokens", "private_keys", "mail", "ipv4", "ipv6"]"#;

fn schema() -> Value {
    let text = || json!({ "type": "string" });
    let address = || json!({ "type": "string", "pattern": "^0x[0-9a-f]{16}$" });
    json!({ "type": "object", "properties": { "modules": { "type": "array", "items": {
        "type": "object",
        "properties": {
            "name": { "type": "string", "x-verbatim": true }, "image_name": text(),
            "loaded_image_name": text(), "start": address(), "end": address(), "size": { "type": "integer" },
            "symbols": { "type": "string", "enum": ["deferred"] }, "version": text(),
            "pdb": { "type": "object", "properties": { "name": text(), "key": text() } }
        }
    } } } })
}

/// A page of `modules`.
fn result() -> Value {
    let rows: Vec<Value> = (0..32)
        .map(|n| {
            json!({
                "name": format!("driver{n:02}"), "image_name": format!("driver{n:02}.sys"),
                "loaded_image_name": format!("\\SystemRoot\\System32\\drivers\\driver{n:02}.sys"),
                "start": "0xfffff8047a860000", "end": "0xfffff8047a881000", "size": 135168,
                "symbols": "deferred", "timestamp": 1583528649, "checksum": 140123, "version": "10.0.19041.1",
                "pdb": { "name": format!("driver{n:02}.pdb"), "guid": "3249D99D0C4049318610F4E4FB0B6936", "age": 1,
                         "key": format!("driver{n:02}.pdb/3249D99D0C4049318610F4E4FB0B69361") }
            })
        })
        .collect();
    json!({ "modules": rows, "loaded": 151, "matched": 32 })
}

fn filter(criterion: &mut Criterion) {
    let redactor = Redactor::with(Filter::parse(RULES).unwrap());
    let (shape, value) = (Shape::of(&schema()), result());
    let line = value.to_string();
    println!("result: {} bytes", line.len());
    criterion.bench_function("filter typed 12 KB", |bencher| {
        bencher.iter_batched_ref(
            || value.clone(),
            |value| redactor.value(value, &shape),
            BatchSize::SmallInput,
        );
    });
    criterion.bench_function("parse and write 12 KB", |bencher| {
        bencher.iter(|| serde_json::from_str::<Value>(&line).unwrap().to_string());
    });
    let text =
        "fffff804`79440000 fffff804`79446000   hal        (pdb symbols)  c:\\sym\\hal.pdb\n".repeat(150);
    criterion.bench_function("filter raw 12 KB", |bencher| bencher.iter(|| redactor.text(&text).len()));
}

criterion_group!(benches, filter);
criterion_main!(benches);
