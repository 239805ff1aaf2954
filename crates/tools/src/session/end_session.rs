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
    /// engine_pid of a kernel_unresolved session: end that process; detaches nothing.
    #[serde(default)]
    #[schemars(range(min = 1, max = 4_294_967_295_u32))]
    kernel_handoff_pid: Option<u32>,
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
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    recovery_required: bool,
}

/// A kernel whose controller was not let go of.
fn unresolved(output: &Output) -> String {
    let id = &output.session_id;
    if output.worker_terminated {
        return format!(
            "Session {id} was handed off: its engine process is ended and its endpoint free. Nothing was detached: the \
             target may be halted; look at it from outside before anything is attached again."
        );
    }
    format!(
        "Session {id} is preserved: its kernel was not let go of and may be halted, so its engine process is kept. Look \
         at the target from outside; then end the session again with its engine_pid as kernel_handoff_pid."
    )
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

    fn check(params: &Params) -> Result<(), Vec<String>> {
        if params.kernel_handoff_pid.is_some() && params.session_id.is_none() {
            return Err(vec![
                "kernel_handoff_pid needs session_id: what is given up is named twice".to_owned(),
            ]);
        }
        Ok(())
    }

    fn render(output: &Output, _: &Surface) -> String {
        if output.recovery_required {
            return unresolved(output);
        }
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
        let session = handle(params.session_id.as_ref());
        let ended = match (session, params.kernel_handoff_pid) {
            (Some(session), Some(pid)) => sessions.hand_off(session, pid).await?,
            (session, _) => sessions.end(session).await?,
        };
        Ok(Output {
            session_id: ended.session_id,
            ending: ended.ending,
            released: ended.released,
            worker_terminated: ended.worker_terminated,
            waited_ms: ended.waited_ms,
            target_left_running: ended.target_left_running,
            recovery_required: ended.recovery_required,
        })
    }
}
