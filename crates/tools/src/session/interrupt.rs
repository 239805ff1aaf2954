//! `interrupt`: stops what a session is doing now, without queueing behind it.

use std::sync::Arc;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::ToolError;
use crate::prose::Fragment;
use crate::routing::{SessionId, handle};
use crate::sessions::{InterruptOutcome, Sessions};
use crate::surface::Surface;
use crate::tool::{Hints, SessionsTool, Tool};

pub(crate) struct Interrupt;

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Params {
    #[serde(default)]
    session_id: Option<SessionId>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Output {
    session_id: String,
    outcome: InterruptOutcome,
    detail: String,
    /// The tool that was running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    job: Option<String>,
}

fn detail(outcome: InterruptOutcome, job: Option<&str>) -> String {
    let job = job.unwrap_or("the running call");
    match outcome {
        InterruptOutcome::Raised => format!("{job} was asked to stop; it answers with what it has"),
        InterruptOutcome::AlreadyPending => format!("{job} was asked to stop before and has not yet"),
        InterruptOutcome::NothingRunning => "nothing was running, so nothing was sent".to_owned(),
        InterruptOutcome::Sealed => format!("{job} is undoing what it did and is left to finish"),
        InterruptOutcome::Unreachable => format!("{job} cannot be reached; end the session instead"),
        InterruptOutcome::Barred => format!("{job} was still queued and will not run"),
    }
}

impl Tool for Interrupt {
    const NAME: &'static str = "interrupt";
    const TITLE: &'static str = "Interrupt a running call";
    const HINTS: Hints = Hints::STATE;
    const PROSE: &'static [Fragment] = &[Fragment::Fixed(
        "Stops what a session is doing; that call answers with what it has. Answers at once. A repeat stops \
         whatever runs by then.",
    )];
    const WHILE_RUNNING: bool = true;
    type Params = Params;
    type Output = Output;

    fn render(output: &Output, _: &Surface) -> String {
        format!("{}: {}.", output.session_id, output.detail)
    }
}

#[async_trait]
impl SessionsTool for Interrupt {
    async fn run(sessions: Arc<dyn Sessions>, params: Params) -> Result<Output, ToolError> {
        let done = sessions.interrupt(handle(params.session_id.as_ref())).await?;
        Ok(Output {
            detail: detail(done.outcome, done.job.as_deref()),
            session_id: done.session_id,
            outcome: done.outcome,
            job: done.job,
        })
    }
}
