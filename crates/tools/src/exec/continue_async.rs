//! `continue_async`: lets the target run and answers once it moves.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::DEFAULT_MS;
use crate::error::ToolError;
use crate::prose::Fragment;
use crate::routing::{SessionId, handle};
use crate::sessions::Sessions;
use crate::surface::Surface;
use crate::tool::{Hints, SessionsTool, Tool};

pub(crate) struct ContinueAsync;

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Params {
    /// Broken in after this; default 60000.
    #[serde(default)]
    #[schemars(range(min = 1, max = 3_600_000))]
    max_run_ms: Option<u64>,
    #[serde(default)]
    session_id: Option<SessionId>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Output {
    session_id: String,
    execution: String,
    command: String,
    running: bool,
    /// The target was set going.
    moved: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    breaks_in_ms: Option<u64>,
}

impl Tool for ContinueAsync {
    const NAME: &'static str = "continue_async";
    const TITLE: &'static str = "Run without waiting";
    const HINTS: Hints = Hints::OPEN;
    const PROSE: &'static [Fragment] = &[
        Fragment::Fixed(
            "Lets the target run and answers at once with an execution handle. Until it stops, other calls on the \
             session are refused (target_running).",
        ),
        Fragment::If {
            needs: &["wait_for_stop", "break_in"],
            text: "wait_for_stop collects the stop, break_in forces it.",
        },
    ];
    type Params = Params;
    type Output = Output;

    fn render(output: &Output, _: &Surface) -> String {
        let Output { session_id, execution, .. } = output;
        match (output.running, output.moved) {
            (true, _) => {
                let bound = output.breaks_in_ms.map(|ms| format!("; it is broken in after {ms} ms"));
                format!("{session_id} runs as {execution}{}.", bound.unwrap_or_default())
            }
            (false, true) => format!("{session_id} ran as {execution} and has stopped already."),
            (false, false) => format!("{session_id}: {execution} ended without setting the target going."),
        }
    }
}

#[async_trait]
impl SessionsTool for ContinueAsync {
    async fn run(sessions: Arc<dyn Sessions>, params: Params) -> Result<Output, ToolError> {
        let bound = Duration::from_millis(params.max_run_ms.unwrap_or(DEFAULT_MS));
        let started = sessions.continue_async(handle(params.session_id.as_ref()), bound).await?;
        Ok(Output {
            session_id: started.session_id,
            execution: started.execution,
            command: started.command,
            running: started.running,
            moved: started.moved,
            breaks_in_ms: started.breaks_in_ms,
        })
    }
}
