//! `wait_for_stop`: the stop of a run that was not waited for. It is read, not taken: whoever asks
//! gets the same one.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use control::StopRecord;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::derived;
use super::stops;
use crate::error::ToolError;
use crate::prose::Fragment;
use crate::routing::{SessionId, handle};
use crate::sessions::Sessions;
use crate::surface::Surface;
use crate::tool::{Hints, SessionsTool, Tool};

pub(crate) struct WaitForStop;

/// How long is waited when the caller does not say.
const WAIT_MS: u64 = 30_000;

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Params {
    #[schemars(length(min = 1, max = 64))]
    execution: String,
    /// Default 30000; 0 only looks.
    #[serde(default)]
    timeout_ms: Option<u64>,
    #[serde(default)]
    session_id: Option<SessionId>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Output {
    session_id: String,
    execution: String,
    running_for_ms: u64,
    /// Absent while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stop: Option<StopRecord>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    breaks_in_ms: Option<u64>,
}

impl Tool for WaitForStop {
    const NAME: &'static str = "wait_for_stop";
    const TITLE: &'static str = "Wait for a stop";
    const HINTS: Hints = Hints::READ;
    const PROSE: &'static [Fragment] = &[Fragment::Fixed(
        "Waits for the stop of a run by its execution handle and answers where and why. Still running is an \
         answer without stop; the stop can be asked for again.",
    )];
    const WHILE_RUNNING: bool = true;
    type Params = Params;
    type Output = Output;

    fn render(output: &Output, _: &Surface) -> String {
        match &output.stop {
            Some(stop) => {
                format!("{} ran {} ms. {}", output.execution, output.running_for_ms, stops::text(stop))
            }
            None => {
                let bound = output.breaks_in_ms.map(|ms| format!("; it is broken in after {ms} ms more"));
                format!(
                    "{} has been running for {} ms and has not stopped{}.",
                    output.execution,
                    output.running_for_ms,
                    bound.unwrap_or_default()
                )
            }
        }
    }

    fn derived(output: &Output) -> Vec<transcript::Derived> {
        output.stop.as_ref().map(derived::stop).unwrap_or_default()
    }
}

#[async_trait]
impl SessionsTool for WaitForStop {
    async fn run(sessions: Arc<dyn Sessions>, params: Params) -> Result<Output, ToolError> {
        let timeout = Duration::from_millis(params.timeout_ms.unwrap_or(WAIT_MS));
        let session = handle(params.session_id.as_ref());
        let waited = sessions.wait_for_stop(session, &params.execution, timeout).await?;
        Ok(Output {
            session_id: waited.session_id,
            execution: waited.execution,
            running_for_ms: waited.running_for_ms,
            stop: waited.stop,
            breaks_in_ms: waited.breaks_in_ms,
        })
    }
}
