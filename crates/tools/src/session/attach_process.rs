//! `attach_process`: a running process in a session of its own, stopped while it lasts.

use std::sync::Arc;

use async_trait::async_trait;
use connection_string::{Connection, Transport};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::opened::{Opened, Paths};
use crate::error::{Category, ToolError};
use crate::live_opening::AttachRequest;
use crate::opening::{EngineChoice, OpenRequest};
use crate::prose::Fragment;
use crate::sessions::Sessions;
use crate::surface::Surface;
use crate::tool::{Hints, SessionsTool, Tool};

pub(crate) struct AttachProcess;

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Params {
    /// Windows pid (under Wine: Wine's). Omitted: refused with the list.
    #[serde(default)]
    #[schemars(range(min = 1, max = 4_294_967_295_u32))]
    pid: Option<u32>,
    /// gdb:HOST:PORT of a stub, instead of pid.
    #[serde(default)]
    #[schemars(length(min = 1, max = 1024))]
    connection: Option<String>,
    #[serde(default)]
    engine: Option<EngineChoice>,
    /// On Wine: the process's own; default WINEPREFIX.
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

fn no_gdb() -> ToolError {
    let message = "no engine of this server speaks GDB's remote protocol, which is what a gdb: connection needs; \
                   processes of this machine are attached to by pid";
    ToolError::new(Category::Unsupported, message).because("no_gdb_transport").with("target", "no")
}

impl Tool for AttachProcess {
    const NAME: &'static str = "attach_process";
    const TITLE: &'static str = "Attach to a process";
    const HINTS: Hints = Hints::OPEN;
    const PROSE: &'static [Fragment] = &[Fragment::Fixed(
        "Attaches to a running Windows process in a new session; it is stopped until it is let go. end_session \
         leaves it running.",
    )];
    type Params = Params;
    type Output = Opened;

    fn check(params: &Params) -> Result<(), Vec<String>> {
        let mut problems = Paths::problems(params.symbol_path.as_deref(), params.image_path.as_deref());
        if params.wine_prefix.as_ref().is_some_and(|prefix| prefix.contains('\0')) {
            problems.push("wine_prefix must not contain NUL".to_owned());
        }
        match params.connection.as_deref().map(Connection::parse) {
            Some(_) if params.pid.is_some() => problems.push("give pid or connection, not both".to_owned()),
            Some(Err(error)) => problems.push(error.to_string()),
            Some(Ok(dialled)) if !matches!(dialled.transport(), Transport::Gdb { .. }) => {
                problems.push("connection of a process is gdb:HOST:PORT".to_owned());
            }
            _ => {}
        }
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
impl SessionsTool for AttachProcess {
    async fn run(sessions: Arc<dyn Sessions>, params: Params) -> Result<Opened, ToolError> {
        if params.connection.is_some() {
            return Err(no_gdb());
        }
        let paths = Paths::of(sessions.as_ref(), params.symbol_path, params.image_path).await;
        let request = OpenRequest::Attach(AttachRequest {
            pid: params.pid,
            engine: params.engine.unwrap_or_default(),
            wine_prefix: params.wine_prefix,
            symbol_path: paths.symbol_path,
            image_path: paths.image_path,
            network: paths.network,
        });
        let aim = request.aim();
        Ok(Opened::of(sessions.open(request).await?, aim))
    }
}
