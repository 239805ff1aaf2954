//! `launch`: a program in a session of its own, stopped before it runs.

use std::sync::Arc;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::opened::{Opened, Paths};
use crate::error::ToolError;
use crate::live_opening::{InitialBreak, LaunchRequest};
use crate::opening::{EngineChoice, OpenRequest};
use crate::prose::Fragment;
use crate::sessions::Sessions;
use crate::surface::Surface;
use crate::tool::{Hints, SessionsTool, Tool};

pub(crate) struct Launch;

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Params {
    /// Program and arguments, as Windows takes them.
    #[schemars(length(min = 1, max = 32_767))]
    command_line: String,
    #[serde(default)]
    engine: Option<EngineChoice>,
    /// Working directory.
    #[serde(default)]
    #[schemars(length(min = 1, max = 4096))]
    directory: Option<String>,
    /// NAME=VALUE each, beside the inherited ones.
    #[serde(default)]
    #[schemars(length(max = 256))]
    environment: Option<Vec<String>>,
    /// Debug its child processes too.
    #[serde(default)]
    children: Option<bool>,
    /// none: run to its first own event.
    #[serde(default)]
    initial_break: Option<InitialBreak>,
    /// On Wine; default WINEPREFIX.
    #[serde(default)]
    #[schemars(length(min = 1, max = 4096))]
    wine_prefix: Option<String>,
    #[serde(default)]
    #[schemars(length(max = 8192))]
    symbol_path: Option<String>,
    #[serde(default)]
    #[schemars(length(max = 8192))]
    image_path: Option<String>,
}

fn variable(text: &str) -> Option<(String, String)> {
    let (name, value) = text.split_once('=')?;
    (!name.is_empty()).then(|| (name.to_owned(), value.to_owned()))
}

impl Tool for Launch {
    const NAME: &'static str = "launch";
    const TITLE: &'static str = "Launch a program";
    const HINTS: Hints = Hints::OPEN;
    const PROSE: &'static [Fragment] = &[Fragment::Fixed(
        "Starts a Windows program in a new session, stopped before its own code. It ends with the session. Its \
             console is its own and not seen.",
    )];
    type Params = Params;
    type Output = Opened;

    fn check(params: &Params) -> Result<(), Vec<String>> {
        let mut problems = Vec::new();
        if params.command_line.trim().is_empty() {
            problems.push("command_line must not be blank".to_owned());
        }
        let strings = [
            ("command_line", Some(&params.command_line)),
            ("directory", params.directory.as_ref()),
            ("wine_prefix", params.wine_prefix.as_ref()),
        ];
        let nul = |text: Option<&String>| text.is_some_and(|text| text.contains('\0'));
        problems.extend(
            strings.iter().filter(|(_, text)| nul(*text)).map(|(f, _)| format!("{f} must not contain NUL")),
        );
        for text in params.environment.iter().flatten() {
            if variable(text).is_none() || text.contains('\0') {
                let shown: String = text.chars().take(32).collect();
                problems.push(format!("environment: {shown:?} is not NAME=VALUE"));
            }
        }
        problems.extend(Paths::problems(params.symbol_path.as_deref(), params.image_path.as_deref()));
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }

    fn next(_: &Opened) -> &'static [&'static str] {
        &["set_breakpoint", "go", "continue_async"]
    }

    fn render(output: &Opened, _: &Surface) -> String {
        output.text()
    }
}

#[async_trait]
impl SessionsTool for Launch {
    async fn run(sessions: Arc<dyn Sessions>, params: Params) -> Result<Opened, ToolError> {
        let paths = Paths::of(sessions.as_ref(), params.symbol_path, params.image_path).await;
        let request = LaunchRequest {
            command_line: params.command_line.clone(),
            engine: params.engine.unwrap_or_default(),
            directory: params.directory,
            environment: params.environment.iter().flatten().filter_map(|text| variable(text)).collect(),
            children: params.children.unwrap_or(false),
            initial_break: params.initial_break.unwrap_or_default(),
            wine_prefix: params.wine_prefix,
            symbol_path: paths.symbol_path,
            image_path: paths.image_path,
            network: paths.network,
        };
        let opened = sessions.open(OpenRequest::Launch(request)).await?;
        Ok(Opened::of(opened, params.command_line))
    }
}
