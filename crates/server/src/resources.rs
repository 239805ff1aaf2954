//! Resources: what a client can read without calling a tool (spec 00 decision 15). Read only, the
//! caller's own, never more than [`MOST`] bytes.

use std::sync::Arc;

use rmcp::ErrorData;
use rmcp::model::{ReadResourceResult, Resource, ResourceContents, ResourceTemplate};
use serde_json::{Map, Value, json};
use supervisor::Client;
use tokio_util::sync::CancellationToken;
use tools::{Category, Surface, ToolError, operations};

use crate::pages::PAGES;
use crate::uri::{self, Address};

/// Bytes of a resource at most.
const MOST: usize = 1 << 20;

const JSON: &str = "application/json";

/// The resources that have an address of their own.
pub(crate) fn rows(client: &Client) -> Vec<Resource> {
    let mut rows = vec![
        Resource::new(uri::SESSIONS, "sessions")
            .with_title("Debug sessions")
            .with_description("The sessions you have open and what each is doing.")
            .with_mime_type(JSON),
    ];
    if client.transcript().is_some() {
        rows.push(
            Resource::new(uri::TRANSCRIPT, "transcript")
                .with_title("Transcript")
                .with_description("Your calls and their answers in this run, the last 256 KiB.")
                .with_mime_type("application/jsonl"),
        );
    }
    rows.extend(PAGES.iter().map(|(name, text)| {
        Resource::new(format!("{}{name}", uri::PAGES), format!("docs/{name}"))
            .with_title(heading(text))
            .with_mime_type("text/markdown")
            .with_size(text.len() as u64)
    }));
    rows
}

/// The first heading of a page.
fn heading(text: &str) -> &str {
    text.lines().find_map(|line| line.strip_prefix("# ")).unwrap_or("Documentation")
}

/// The resources whose address has parts to fill in.
pub(crate) fn templates(surface: &Surface) -> Vec<ResourceTemplate> {
    let mut rows = Vec::new();
    if surface.serves("modules") {
        rows.push(
            ResourceTemplate::new(uri::MODULES, "modules")
                .with_title("Modules of a session")
                .with_description("As the tool of that name answers; filter is a name, * and ? are wild.")
                .with_mime_type(JSON),
        );
    }
    rows.push(
        ResourceTemplate::new(uri::SYMBOL, "symbol")
            .with_title("Where a symbol is")
            .with_description("module!name in a session: address and image coordinate of each match.")
            .with_mime_type(JSON),
    );
    rows
}

/// What `uri` names, as `client` may see it.
pub(crate) async fn read(
    client: &Arc<Client>,
    surface: &Surface,
    uri: &str,
) -> Result<ReadResourceResult, ErrorData> {
    let (text, mime) = match Address::parse(uri) {
        Some(Address::Sessions) => (tool(client, surface, "session_status", Map::new()).await?, JSON),
        Some(Address::Page(name)) => (page(&name).ok_or_else(|| unknown(uri))?, "text/markdown"),
        Some(Address::Transcript) => (client.transcript().ok_or_else(|| unknown(uri))?, "application/jsonl"),
        Some(Address::Modules { session, filter }) if surface.serves("modules") => {
            let mut args = Map::new();
            args.insert("session_id".into(), json!(session));
            args.extend(filter.map(|filter| ("filter".to_owned(), json!(filter))));
            args.insert("limit".into(), json!(2000));
            (tool(client, surface, "modules", args).await?, JSON)
        }
        Some(Address::Symbol { session, symbol }) => (place(client, surface, &session, &symbol).await?, JSON),
        _ => return Err(unknown(uri)),
    };
    if text.len() > MOST {
        let text = format!("{} bytes are more than a resource may have ({MOST})", text.len());
        let error =
            ToolError::new(Category::Debugger, text).when_served(&["modules"], "`modules` pages with filter");
        return Err(failure(client, &error, surface));
    }
    Ok(ReadResourceResult::new(vec![ResourceContents::text(text, uri).with_mime_type(mime)]))
}

fn page(name: &str) -> Option<String> {
    PAGES.iter().find(|(known, _)| *known == name).map(|(_, text)| (*text).to_owned())
}

fn unknown(uri: &str) -> ErrorData {
    let uri: String = uri.chars().take(128).collect();
    ErrorData::resource_not_found(
        format!("there is no resource {uri}; resources/list has those there are"),
        None,
    )
}

/// A failed read: a session of another client is one that never was, so both are not found alike.
fn failure(client: &Client, error: &ToolError, surface: &Surface) -> ErrorData {
    let mut told = error.clone().told(surface);
    told.message = client.redactor().text(&told.message).into_owned();
    let data = Some(told.structured(surface));
    match error.category {
        Category::StaleSession => ErrorData::resource_not_found(told.message, data),
        Category::InvalidArgument => ErrorData::invalid_params(told.message, data),
        _ => ErrorData::internal_error(told.message, data),
    }
}

/// The structured answer of a tool.
async fn tool(
    client: &Arc<Client>,
    surface: &Surface,
    name: &str,
    args: Map<String, Value>,
) -> Result<String, ErrorData> {
    let called = client.call(name, Some(args), surface, None, CancellationToken::new()).await;
    let result = called.map_err(|failure| ErrorData::internal_error(failure.to_string(), None))?;
    let answer = result.structured.unwrap_or_default();
    if !result.is_error {
        return Ok(answer.to_string());
    }
    let category = answer["error"]["category"].as_str().unwrap_or_default();
    Err(match category {
        "stale_session" => ErrorData::resource_not_found(result.text, Some(answer)),
        "invalid_argument" => ErrorData::invalid_params(result.text, Some(answer)),
        _ => ErrorData::internal_error(result.text, Some(answer)),
    })
}

async fn place(
    client: &Arc<Client>,
    surface: &Surface,
    session: &str,
    symbol: &str,
) -> Result<String, ErrorData> {
    let asked = client.sessions().operate(Some(session), operations::SYMBOL, json!({ "name": symbol })).await;
    match asked {
        Ok((_, Value::Object(answer))) => {
            let mut out = Map::new();
            out.insert("status".into(), json!("ok"));
            out.extend(answer);
            Ok(client.redacted(Value::Object(out)).to_string())
        }
        Ok(_) => Err(ErrorData::internal_error("a look-up answered no object; please report it", None)),
        Err(error) => Err(failure(client, &error, surface)),
    }
}
