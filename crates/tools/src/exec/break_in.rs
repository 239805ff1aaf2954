//! `break_in`: stops one run and no other.

use std::sync::Arc;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::ToolError;
use crate::prose::Fragment;
use crate::routing::{SessionId, handle};
use crate::sessions::Sessions;
use crate::surface::Surface;
use crate::tool::{Hints, SessionsTool, Tool};

pub(crate) struct BreakIn;

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Params {
    #[schemars(length(min = 1, max = 64))]
    execution: String,
    #[serde(default)]
    session_id: Option<SessionId>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Output {
    session_id: String,
    execution: String,
    /// false only when it had stopped already.
    requested: bool,
    detail: String,
}

impl Tool for BreakIn {
    const NAME: &'static str = "break_in";
    const TITLE: &'static str = "Break into a run";
    const HINTS: Hints = Hints::AGAIN;
    const PROSE: &'static [Fragment] = &[
        Fragment::Fixed("Stops the run with this execution handle."),
        Fragment::If { needs: &["wait_for_stop"], text: "wait_for_stop then says where." },
    ];
    const WHILE_RUNNING: bool = true;
    type Params = Params;
    type Output = Output;

    fn render(output: &Output, _: &Surface) -> String {
        format!("{}: {}.", output.execution, output.detail)
    }
}

#[async_trait]
impl SessionsTool for BreakIn {
    async fn run(sessions: Arc<dyn Sessions>, params: Params) -> Result<Output, ToolError> {
        let done = sessions.break_in(handle(params.session_id.as_ref()), &params.execution).await?;
        Ok(Output {
            session_id: done.session_id,
            execution: done.execution,
            requested: done.requested,
            detail: done.detail,
        })
    }
}
