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
    if let Some(error) = tools::catalogue::not_served(tool, &surface) {
        return Ok(CallResult::error(&error, &surface));
    }
    client.call(tool, Some(args), &surface, None, CancellationToken::new()).await
}

fn arguments(text: &str) -> Result<Map<String, Value>, String> {
    match serde_json::from_str(text) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(_) => Err("--json must be a JSON object, like '{\"frames\": 8}'".to_owned()),
        Err(error) => Err(format!("--json does not parse: {error}; it must be a JSON object in quotes")),
    }
}

/// Runs the subcommand.
pub(crate) async fn run(asked: &Call, supervisor: &Arc<Supervisor>) -> i32 {
    let args = match arguments(&asked.json) {
        Ok(args) => args,
        Err(problem) => {
            eprintln!("windbg-mcp: {problem}");
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
            eprintln!("windbg-mcp: {failure}; windbg-mcp tools lists them");
            USAGE
        }
        CallFailure::NoWorker(_) => {
            eprintln!("windbg-mcp: {failure}; windbg-mcp doctor says what is missing");
            FAILED
        }
    }
}

fn print(result: &CallResult, structured: bool) -> i32 {
    match (&result.structured, structured) {
        (Some(value), true) => match serde_json::to_string_pretty(value) {
            Ok(text) => output::line(&text),
            Err(error) => eprintln!("windbg-mcp: the answer did not serialise: {error}"),
        },
        _ if result.is_error => eprintln!("windbg-mcp: {}", result.text),
        _ => output::line(&result.text),
    }
    if result.is_error { FAILED } else { OK }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_must_be_an_object() {
        assert!(arguments("{}").unwrap().is_empty());
        assert!(arguments("[]").unwrap_err().contains("JSON object"));
        assert!(arguments("{frames: 8}").unwrap_err().contains("does not parse"));
    }
}
