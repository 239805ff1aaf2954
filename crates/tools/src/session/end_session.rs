//! `end_session`: lets go of a target and its worker process.

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

pub(crate) struct EndSession;

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Params {
    #[serde(default)]
    session_id: Option<SessionId>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Output {
    session_id: String,
    ending: String,
    released: bool,
    worker_terminated: bool,
    /// How long the worker was waited for before it was killed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    waited_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    target_left_running: Option<bool>,
}

impl Tool for EndSession {
    const NAME: &'static str = "end_session";
    const TITLE: &'static str = "End a session";
    const HINTS: Hints = Hints::END;
    const PROSE: &'static [Fragment] =
        &[Fragment::Fixed("Closes a session and frees its slot; a call still running gets 20 s to finish.")];
    const WHILE_RUNNING: bool = true;
    type Params = Params;
    type Output = Output;

    fn render(output: &Output, _: &Surface) -> String {
        let mut text = format!("Session {} ended: {}", output.session_id, output.ending);
        if output.worker_terminated {
            text.push_str("; its worker did not let go and was killed");
        }
        if let Some(waited) = output.waited_ms {
            text.push_str(&format!(" after {waited} ms"));
        }
        match output.target_left_running {
            Some(true) => text.push_str("; the target was left running"),
            Some(false) => text.push_str("; the target was not left running"),
            None => {}
        }
        text.push('.');
        text
    }
}

#[async_trait]
impl SessionsTool for EndSession {
    async fn run(sessions: Arc<dyn Sessions>, params: Params) -> Result<Output, ToolError> {
        let ended = sessions.end(handle(params.session_id.as_ref())).await?;
        Ok(Output {
            session_id: ended.session_id,
            ending: ended.ending,
            released: ended.released,
            worker_terminated: ended.worker_terminated,
            waited_ms: ended.waited_ms,
            target_left_running: ended.target_left_running,
        })
    }
}
