//! `set_symbol_path`: where symbols and images are looked for, now and in later sessions.

use std::sync::Arc;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use target::{SymbolPaths, Target};

use crate::error::{Category, ToolError};
use crate::prose::Fragment;
use crate::routing::{SessionId, handle};
use crate::sessions::{Sessions, SymbolSettings};
use crate::surface::Surface;
use crate::symbol_hint;
use crate::tool::{Hints, Job, SessionsTool, Tool};

pub(crate) struct SetSymbolPath;

#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Params {
    /// Folders, srv*CACHE*URL, cache*DIR; `;` between. May hold ISF files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 8192))]
    symbol_path: Option<String>,
    /// Where the images (.exe, .dll, .sys) are; same form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 8192))]
    image_path: Option<String>,
    /// Add to the paths (default) or replace them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    append: Option<bool>,
    /// Whether URLs in the path may be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    network: Option<bool>,
    /// A module to load symbols of again, with /f to force: /f driver.sys
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    reload: Option<String>,
    /// true: also for sessions opened later; false: forget what was remembered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    for_new_sessions: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    session_id: Option<SessionId>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct Reload {
    requested: String,
    ok: bool,
    /// Modules that will look again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    modules: Option<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum Startup {
    Remembered,
    Cleared,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Output {
    /// A session was changed.
    applied: bool,
    /// The symbol path in effect; when nothing was applied, what later sessions start with.
    path: String,
    image_path: String,
    network: bool,
    /// Of what was given: folders and files that are not there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    missing: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reload: Option<Reload>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    startup: Option<Startup>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    session_id: Option<String>,
}

fn join(old: &str, new: Option<&str>, append: bool) -> String {
    match new {
        None => old.to_owned(),
        Some(new) if !append || old.is_empty() => new.to_owned(),
        // What was asked for last is looked at first.
        Some(new) => format!("{new};{old}"),
    }
}

/// The worker's half: sets the paths, reloads, reads back.
pub(crate) fn operation(job: &mut Job<'_>, args: Value) -> Result<Value, ToolError> {
    let params: Params = serde_json::from_value(args)
        .map_err(|error| ToolError::invalid(format!("arguments of set_symbol_path: {error}")))?;
    let target = job.target;
    let old = target.symbol_paths();
    let append = params.append.unwrap_or(true);
    target.set_symbol_paths(SymbolPaths {
        symbols: join(&old.symbols, params.symbol_path.as_deref(), append),
        images: join(&old.images, params.image_path.as_deref(), append),
        network: params.network.unwrap_or(old.network),
    })?;
    let reload = reload(target, params.reload.as_deref());
    let now = target.symbol_paths();
    Ok(json!(Output {
        applied: true,
        path: now.symbols,
        image_path: now.images,
        network: now.network,
        missing: [&params.symbol_path, &params.image_path]
            .into_iter()
            .flatten()
            .flat_map(|path| symbol_hint::missing(path))
            .map(ToOwned::to_owned)
            .collect(),
        reload: Some(reload),
        startup: None,
        session_id: None,
    }))
}

fn reload(target: &dyn Target, requested: Option<&str>) -> Reload {
    let mut force = false;
    let mut pattern = None;
    for word in requested.unwrap_or_default().split_whitespace() {
        match word {
            "/f" => force = true,
            word => pattern = Some(word),
        }
    }
    let result = target.reload(pattern, force);
    Reload {
        requested: requested.unwrap_or_default().to_owned(),
        ok: result.is_ok(),
        modules: result.as_ref().ok().map(|reloaded| reloaded.modules),
        error: result.err().map(|error| error.to_string()),
    }
}

impl Tool for SetSymbolPath {
    const NAME: &'static str = "set_symbol_path";
    const TITLE: &'static str = "Set symbol path";
    const HINTS: Hints = Hints::STATE;
    const PROSE: &'static [Fragment] = &[Fragment::Fixed(
        "Where symbols and images are looked for, on the debugger's host. Modules without symbols look again. \
         Microsoft's server: srv*CACHE*https://msdl.microsoft.com/download/symbols",
    )];
    type Params = Params;
    type Output = Output;

    /// `path` is what debuggers' own tools call it.
    fn loosen(args: &mut Map<String, Value>) {
        if !args.contains_key("symbol_path")
            && let Some(path) = args.remove("path")
        {
            args.insert("symbol_path".to_owned(), path);
        }
    }

    fn check(params: &Params) -> Result<(), Vec<String>> {
        let mut problems = Vec::new();
        for (field, path) in [("symbol_path", &params.symbol_path), ("image_path", &params.image_path)] {
            if let Some(path) = path {
                problems.extend(expression::guard_path(path, field).err().map(|error| error.to_string()));
                if path.trim().is_empty() {
                    problems.push(format!("{field} must not be blank"));
                }
            }
        }
        if let Some(reload) = &params.reload {
            problems.extend(expression::guard_reload(reload, "reload").err().map(|error| error.to_string()));
        }
        let nothing = params.symbol_path.is_none()
            && params.image_path.is_none()
            && params.network.is_none()
            && params.reload.is_none()
            && params.for_new_sessions != Some(false);
        if nothing {
            problems.push("nothing to set: give symbol_path, image_path, network or reload".to_owned());
        }
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }

    fn render(output: &Output, _: &Surface) -> String {
        let shown = |path: &str| if path.is_empty() { "(none)".to_owned() } else { path.to_owned() };
        let mut text = format!(
            "Symbol path: {}\nImage path: {}\nNetwork: {}",
            shown(&output.path),
            shown(&output.image_path),
            if output.network { "allowed" } else { "not allowed" }
        );
        if !output.missing.is_empty() {
            text.push_str(&format!("\nNot there: {}", output.missing.join(", ")));
        }
        match &output.reload {
            Some(Reload { ok: false, error, .. }) => {
                text.push_str(&format!(
                    "\nThe reload failed: {}",
                    error.as_deref().unwrap_or("no reason given")
                ));
            }
            Some(Reload { modules: Some(modules), .. }) => {
                let s = if *modules == 1 { "" } else { "s" };
                text.push_str(&format!("\n{modules} module{s} will look for symbols again."));
            }
            _ => {}
        }
        match output.startup {
            Some(Startup::Remembered) => text.push_str("\nSessions opened later start with this."),
            Some(Startup::Cleared) => text.push_str("\nSessions opened later start without it."),
            None => {}
        }
        if !output.applied {
            text.push_str("\nNo session is open, so nothing was changed now.");
        }
        text
    }
}

#[async_trait]
impl SessionsTool for SetSymbolPath {
    async fn run(sessions: Arc<dyn Sessions>, params: Params) -> Result<Output, ToolError> {
        let session = handle(params.session_id.as_ref());
        let answer = sessions.operate(session, Self::NAME, json!(params)).await;
        let mut output = match answer {
            Ok((session, value)) => {
                let mut output: Output = serde_json::from_value(value).map_err(|error| {
                    ToolError::new(Category::Internal, format!("set_symbol_path: {error}"))
                })?;
                output.session_id = Some(session);
                output
            }
            // Without a session the setting can still be kept for the next one.
            Err(error)
                if error.category == Category::StaleSession
                    && session.is_none()
                    && params.for_new_sessions.is_some() =>
            {
                alone(&sessions, &params).await
            }
            Err(error) => return Err(error),
        };
        output.startup = match params.for_new_sessions {
            None => None,
            Some(true) => {
                let settings = SymbolSettings {
                    symbol_path: (!output.path.is_empty()).then(|| output.path.clone()),
                    image_path: (!output.image_path.is_empty()).then(|| output.image_path.clone()),
                    network: output.network,
                };
                sessions.remember_symbols(Some(settings)).await;
                Some(Startup::Remembered)
            }
            Some(false) => {
                sessions.remember_symbols(None).await;
                Some(Startup::Cleared)
            }
        };
        Ok(output)
    }
}

/// The answer when no session is open.
async fn alone(sessions: &Arc<dyn Sessions>, params: &Params) -> Output {
    let old = sessions.remembered_symbols().await.unwrap_or_default();
    let append = params.append.unwrap_or(true);
    let forget = params.for_new_sessions == Some(false);
    let path = |old: &Option<String>, new: &Option<String>| {
        if forget { String::new() } else { join(old.as_deref().unwrap_or_default(), new.as_deref(), append) }
    };
    Output {
        applied: false,
        path: path(&old.symbol_path, &params.symbol_path),
        image_path: path(&old.image_path, &params.image_path),
        network: params.network.unwrap_or(true),
        missing: Vec::new(),
        reload: None,
        startup: None,
        session_id: None,
    }
}
