//! `open_dump`: a dump or an image in a session of its own.

use std::sync::Arc;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::opened::{Opened, Paths};
use crate::error::ToolError;
use crate::opening::{EngineChoice, OpenRequest};
use crate::prose::Fragment;
use crate::sessions::Sessions;
use crate::surface::Surface;
use crate::tool::{Hints, SessionsTool, Tool};

pub(crate) struct OpenDump;

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Params {
    /// Path on the debugger's host.
    #[schemars(length(min = 1, max = 4096))]
    path: String,
    #[serde(default)]
    engine: Option<EngineChoice>,
    /// Folders, srv*CACHE*URL; `;` between. The dump's own folder is always searched.
    #[serde(default)]
    #[schemars(length(max = 8192))]
    symbol_path: Option<String>,
    /// Where the images are; same form.
    #[serde(default)]
    #[schemars(length(max = 8192))]
    image_path: Option<String>,
    /// Load address of a bare PE image, 0x and hex digits.
    #[serde(default)]
    image_base: Option<String>,
}

impl Tool for OpenDump {
    const NAME: &'static str = "open_dump";
    const TITLE: &'static str = "Open a dump or image";
    const HINTS: Hints = Hints::OPEN;
    const PROSE: &'static [Fragment] = &[Fragment::Fixed(
        "Opens a user or kernel crash dump, or a bare image (.exe, .dll, .sys), plain or inside a CAB, zip, \
             xz or gz, as a new session that becomes the current one. End it with end_session.",
    )];
    type Params = Params;
    type Output = Opened;

    fn check(params: &Params) -> Result<(), Vec<String>> {
        let mut problems = Vec::new();
        if params.path.contains('\0') {
            problems.push("path must not contain NUL".to_owned());
        }
        if params.path.trim().is_empty() {
            problems.push("path must not be blank".to_owned());
        }
        problems.extend(Paths::problems(params.symbol_path.as_deref(), params.image_path.as_deref()));
        if let Some(Err(error)) = params.image_base.as_deref().map(expression::parse_address) {
            problems.push(format!("image_base: {error}"));
        }
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }

    fn next(output: &Opened) -> &'static [&'static str] {
        output.next()
    }

    fn render(output: &Opened, _: &Surface) -> String {
        output.text()
    }
}

#[async_trait]
impl SessionsTool for OpenDump {
    async fn run(sessions: Arc<dyn Sessions>, params: Params) -> Result<Opened, ToolError> {
        let paths = Paths::of(sessions.as_ref(), params.symbol_path, params.image_path).await;
        let image_base = match params.image_base.as_deref().map(expression::parse_address) {
            None => None,
            Some(Ok(base)) => Some(base),
            Some(Err(error)) => return Err(ToolError::invalid(format!("image_base: {error}"))),
        };
        let opened = sessions
            .open(OpenRequest::Dump {
                path: params.path.clone(),
                engine: params.engine.unwrap_or_default(),
                symbol_path: paths.symbol_path,
                image_path: paths.image_path,
                image_base,
                network: paths.network,
            })
            .await?;
        Ok(Opened::of(opened, params.path))
    }
}
