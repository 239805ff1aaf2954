//! The one place a message leaves the supervisor: everything passes the redactor here, a typed value
//! before text is made of it, so that both halves agree (spec 00 decision 16).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};

use async_trait::async_trait;
use redaction::{Counts, Redactor, Shape};
use serde_json::{Map, Value, json};
use tools::{ToolEntry, ToolError};

use crate::lock;
use crate::progress::ProgressSink;

/// What a tool's result is made of, found out once.
fn shape(tool: &ToolEntry) -> Arc<Shape> {
    static SHAPES: OnceLock<Mutex<HashMap<&'static str, Arc<Shape>>>> = OnceLock::new();
    let mut shapes = lock(SHAPES.get_or_init(Mutex::default));
    Arc::clone(shapes.entry(tool.name).or_insert_with(|| Arc::new(Shape::of(tool.typed_schema()))))
}

/// A tool's value, filtered by its type.
pub(crate) fn value(redactor: &Redactor, tool: &ToolEntry, value: &mut Value) -> Counts {
    if redactor.acts() { redactor.value(value, &shape(tool)) } else { Counts::default() }
}

/// An error, filtered: its message is text, its other fields are known by their names.
pub(crate) fn error(redactor: &Redactor, mut error: ToolError) -> (ToolError, Counts) {
    let mut counts = Counts::default();
    error.message = redactor.counted(&error.message, &mut counts).into_owned();
    error.message = redaction::mask_pairs(&error.message).into_owned();
    if redactor.acts() && !error.extra.is_empty() {
        let mut extra = Value::Object(std::mem::take(&mut error.extra));
        let more = redactor.value(&mut extra, &Shape::untyped());
        for (name, count) in more.redactions {
            *counts.redactions.entry(name).or_default() += count;
        }
        counts.secrets += more.secrets;
        if let Value::Object(extra) = extra {
            error.extra = extra;
        }
    }
    (error, counts)
}

/// Says in the structured half what was taken out.
pub(crate) fn report(answer: &mut Map<String, Value>, counts: &Counts) {
    if !counts.redactions.is_empty() {
        answer.insert("redactions".to_owned(), json!(counts.redactions));
    }
    if counts.secrets > 0 {
        answer.insert("secrets_masked".to_owned(), json!(counts.secrets));
    }
}

/// The same for the text half, as a line of its own; empty when nothing was.
pub(crate) fn footer(counts: &Counts) -> String {
    if counts.is_empty() { String::new() } else { format!("\n[redacted: {}]", counts.words()) }
}

/// Progress on its way to a listener.
pub(crate) struct Filtered {
    pub(crate) redactor: Redactor,
    pub(crate) sink: Arc<dyn ProgressSink>,
}

#[async_trait]
impl ProgressSink for Filtered {
    async fn progress(&self, elapsed: f64, message: &str) {
        self.sink.progress(elapsed, &self.redactor.text(message)).await;
    }
}
