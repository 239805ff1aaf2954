//! `tools`: what is served.

use serde_json::{Value, json};
use tools::{Surface, ToolEntry};

use crate::arguments::Tools;
use crate::style::Style;
use crate::{FAILED, OK, USAGE, output};

fn definition(entry: &ToolEntry, surface: &Surface) -> Value {
    let mut out = json!({
        "name": entry.name,
        "title": entry.title,
        "group": entry.group.name(),
        "description": entry.description(surface),
        "inputSchema": entry.input_schema_for(surface),
        "annotations": {
            "readOnlyHint": entry.hints.read_only,
            "destructiveHint": entry.hints.destructive,
            "idempotentHint": entry.hints.idempotent,
            "openWorldHint": entry.hints.open_world,
        },
    });
    if let (Value::Object(map), Some(schema)) = (&mut out, entry.output_schema()) {
        map.insert("outputSchema".into(), schema.clone());
    }
    out
}

/// Parameters in one line: `address, size?`.
fn parameters(entry: &ToolEntry) -> String {
    let schema = entry.input_schema();
    let required: Vec<&str> = schema["required"]
        .as_array()
        .map_or_else(Vec::new, |list| list.iter().filter_map(Value::as_str).collect());
    let names = schema["properties"].as_object().map(|map| map.keys().cloned().collect::<Vec<_>>());
    let marked: Vec<String> = names
        .unwrap_or_default()
        .into_iter()
        .map(|name| if required.contains(&name.as_str()) { name } else { format!("{name}?") })
        .collect();
    marked.join(", ")
}

fn table(surface: &Surface, style: Style) -> String {
    let width = surface.entries().map(|entry| entry.name.len()).max().unwrap_or(0);
    let mut out = String::new();
    let mut group = None;
    for entry in surface.entries() {
        if group != Some(entry.group) {
            let gap = if group.is_some() { "\n" } else { "" };
            out.push_str(&format!("{gap}{}\n", style.bold(entry.group.name())));
            group = Some(entry.group);
        }
        let padding = " ".repeat(width - entry.name.len());
        out.push_str(&format!(
            "  {}{padding}  {} {}\n",
            style.cyan(entry.name),
            entry.title,
            style.dim(&format!("({})", parameters(entry)))
        ));
    }
    out
}

/// Runs the subcommand.
pub(crate) fn run(asked: &Tools) -> i32 {
    let surface = match crate::arguments::surface(asked.tools.as_deref()) {
        Ok(surface) => surface,
        Err(error) => {
            output::problem(&error.to_string());
            return USAGE;
        }
    };
    if !asked.json {
        output::print(&table(&surface, Style::of_stdout()));
        return OK;
    }
    let all: Vec<Value> = surface.entries().map(|entry| definition(entry, &surface)).collect();
    match serde_json::to_string_pretty(&all) {
        Ok(text) => {
            output::line(&text);
            OK
        }
        Err(error) => {
            output::problem(&format!("the list did not serialise: {error}"));
            FAILED
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list() {
        insta::assert_snapshot!(table(&Surface::all(), Style::PLAIN));
    }
}
