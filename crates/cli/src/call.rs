//! `call`: one tool, as an MCP client would call it.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use supervisor::{CallFailure, CallResult, Client, Supervisor};
use tokio_util::sync::CancellationToken;
use tools::Surface;

use crate::arguments::{Call, Paths};
use crate::{FAILED, OK, USAGE, output};

/// Arguments of `open_dump` for a path on this machine.
pub(crate) fn opening(path: &Path, search: &Paths) -> Map<String, Value> {
    // A worker may run elsewhere; the file is found from here.
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut args = Map::new();
    args.insert("path".into(), json!(absolute.to_string_lossy()));
    if let Some(symbols) = &search.symbols {
        args.insert("symbol_path".into(), json!(symbols));
    }
    if let Some(images) = &search.images {
        args.insert("image_path".into(), json!(images));
    }
    args
}

/// Calls a tool without progress or cancellation.
pub(crate) async fn call(
    client: &Arc<Client>,
    tool: &str,
    args: Map<String, Value>,
) -> Result<CallResult, CallFailure> {
    let surface = Surface::all();
    client.call(tool, Some(args), &surface, None, CancellationToken::new()).await
}

fn arguments(text: &str) -> Result<Map<String, Value>, String> {
    match serde_json::from_str(text) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(_) => Err("--json must be a JSON object, like '{\"frames\": 8}'".to_owned()),
        Err(error) => Err(format!("--json does not parse: {error}; it must be a JSON object in quotes")),
    }
}

/// Whether the tool takes text as its argument `name`.
fn takes_text(tool: &str, name: &str) -> bool {
    let surface = Surface::all();
    let Some(entry) = surface.entries().find(|entry| entry.name == tool) else { return true };
    let kind = &entry.input_schema()["properties"][name]["type"];
    kind == "string" || kind.as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind == "string"))
}

/// Adds `name=value` arguments to those of `--json`.
fn add_named(args: &mut Map<String, Value>, tool: &str, named: &[String]) -> Result<(), String> {
    for text in named {
        let Some((name, value)) = text.split_once('=') else {
            return Err(format!("{text} is not NAME=VALUE; for example command=k"));
        };
        let value = match serde_json::from_str(value) {
            Ok(parsed) if !takes_text(tool, name) => parsed,
            _ => json!(value),
        };
        if args.insert(name.to_owned(), value).is_some() {
            return Err(format!("the argument {name} is given twice"));
        }
    }
    Ok(())
}

/// Runs the subcommand.
pub(crate) async fn run(asked: &Call, supervisor: &Arc<Supervisor>) -> i32 {
    let args = arguments(&asked.json)
        .and_then(|mut args| add_named(&mut args, &asked.tool, &asked.named).map(|()| args));
    let args = match args {
        Ok(args) => args,
        Err(problem) => {
            output::problem(&problem);
            return USAGE;
        }
    };
    let client = supervisor.client("cli");
    if let Some(dump) = &asked.dump {
        match call(&client, "open_dump", opening(dump, &asked.search)).await {
            Ok(opened) if !opened.is_error => {}
            Ok(refused) => return print(&refused, asked.structured),
            Err(failure) => return protocol(&failure),
        }
    }
    match call(&client, &asked.tool, args).await {
        Ok(result) => print(&result, asked.structured),
        Err(failure) => protocol(&failure),
    }
}

fn protocol(failure: &CallFailure) -> i32 {
    match failure {
        CallFailure::UnknownTool { .. } => {
            output::problem(&format!("{failure}; windbg-mcp tools lists them"));
            USAGE
        }
        CallFailure::NoWorker(_) => {
            output::problem(&format!("{failure}; windbg-mcp doctor says what is missing"));
            FAILED
        }
    }
}

fn print(result: &CallResult, structured: bool) -> i32 {
    match (&result.structured, structured) {
        (Some(value), true) => match serde_json::to_string_pretty(value) {
            Ok(text) => output::line(&text),
            Err(error) => output::problem(&format!("the answer did not serialise: {error}")),
        },
        _ if result.is_error => output::failed(&result.text),
        _ => output::line(&result.text),
    }
    if result.is_error { FAILED } else { OK }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_arguments_have_the_tools_types() {
        let named = |tool: &str, texts: &[&str]| {
            let texts: Vec<String> = texts.iter().map(ToString::to_string).collect();
            let mut args = Map::new();
            add_named(&mut args, tool, &texts).map(|()| Value::Object(args))
        };
        assert_eq!(named("execute", &["command=? 1=1"]).unwrap(), json!({ "command": "? 1=1" }));
        assert_eq!(named("execute", &["command=5"]).unwrap(), json!({ "command": "5" }));
        assert_eq!(named("backtrace", &["frames=8"]).unwrap(), json!({ "frames": 8 }));
        assert_eq!(named("registers", &["all=true"]).unwrap(), json!({ "all": true }));
        assert!(named("execute", &["k"]).unwrap_err().contains("command=k"));
        assert!(named("execute", &["command=k", "command=r"]).unwrap_err().contains("twice"));
    }

    #[test]
    fn arguments_must_be_an_object() {
        assert!(arguments("{}").unwrap().is_empty());
        assert!(arguments("[]").unwrap_err().contains("JSON object"));
        assert!(arguments("{frames: 8}").unwrap_err().contains("does not parse"));
    }
}
