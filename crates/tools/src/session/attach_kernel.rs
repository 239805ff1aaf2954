//! `attach_kernel`: the kernel of another machine in a session of its own, stopped while it lasts.

use std::sync::Arc;

use async_trait::async_trait;
use connection_string::Connection;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::opened::{Opened, Paths};
use crate::error::ToolError;
use crate::live_opening::KernelRequest;
use crate::opening::{EngineChoice, OpenRequest};
use crate::prose::Fragment;
use crate::sessions::Sessions;
use crate::surface::Surface;
use crate::tool::{Hints, SessionsTool, Tool};

pub(crate) struct AttachKernel;

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Params {
    /// net:port=N,key=K  com:pipe,port=\\HOST\pipe\NAME  com:port=COM1,baud=N  com:ipport=N,port=HOST  unix:path=P
    #[schemars(length(min = 1, max = 1024))]
    connection: String,
    #[serde(default)]
    engine: Option<EngineChoice>,
    #[serde(default)]
    #[schemars(length(max = 8192))]
    symbol_path: Option<String>,
    #[serde(default)]
    #[schemars(length(max = 8192))]
    image_path: Option<String>,
}

impl Tool for AttachKernel {
    const NAME: &'static str = "attach_kernel";
    const TITLE: &'static str = "Attach to a kernel";
    const HINTS: Hints = Hints::OPEN;
    const PROSE: &'static [Fragment] = &[Fragment::Fixed(
        "Attaches to the Windows kernel of another machine or VM in a new session; the whole machine stands still \
         until it is resumed. Waits until the target answers. If the call times out, never attach again: a second \
         controller makes it worse; the answer says what to do.",
    )];
    type Params = Params;
    type Output = Opened;

    fn check(params: &Params) -> Result<(), Vec<String>> {
        let mut problems = Paths::problems(params.symbol_path.as_deref(), params.image_path.as_deref());
        if let Err(error) = Connection::parse(&params.connection) {
            problems.push(error.to_string());
        }
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }

    fn next(_: &Opened) -> &'static [&'static str] {
        &["modules", "registers", "set_breakpoint", "continue_async"]
    }

    fn render(output: &Opened, _: &Surface) -> String {
        output.text()
    }
}

#[async_trait]
impl SessionsTool for AttachKernel {
    async fn run(sessions: Arc<dyn Sessions>, params: Params) -> Result<Opened, ToolError> {
        let connection =
            Connection::parse(&params.connection).map_err(|error| ToolError::invalid(error.to_string()))?;
        let paths = Paths::of(sessions.as_ref(), params.symbol_path, params.image_path).await;
        let request = OpenRequest::Kernel(KernelRequest {
            connection,
            engine: params.engine.unwrap_or_default(),
            symbol_path: paths.symbol_path,
            image_path: paths.image_path,
            network: paths.network,
        });
        let aim = request.aim();
        Ok(Opened::of(sessions.open(request).await?, aim))
    }
}
