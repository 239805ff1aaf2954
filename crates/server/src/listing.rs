//! The tool list as the protocol carries it.

use std::sync::Arc;

use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde_json::Value;
use tools::{Surface, ToolEntry};

fn object(schema: &Value) -> Arc<JsonObject> {
    match schema {
        Value::Object(map) => Arc::new(map.clone()),
        _ => Arc::default(),
    }
}

fn row(entry: &ToolEntry, surface: &Surface) -> Tool {
    let hints = entry.hints;
    // Revisions before 2025-06-18 know a title only here.
    let annotations = ToolAnnotations::from_raw(
        Some(entry.title.to_owned()),
        Some(hints.read_only),
        Some(hints.destructive),
        Some(hints.idempotent),
        Some(hints.open_world),
    );
    let tool = Tool::new(entry.name, entry.description(surface), object(&entry.input_schema_for(surface)))
        .with_title(entry.title)
        .with_annotations(annotations);
    match entry.output_schema() {
        Some(schema) => tool.with_raw_output_schema(object(schema)),
        None => tool,
    }
}

/// The rows of `surface`, in one order always.
pub(crate) fn rows(surface: &Surface) -> Vec<Tool> {
    surface.entries().map(|entry| row(entry, surface)).collect()
}
