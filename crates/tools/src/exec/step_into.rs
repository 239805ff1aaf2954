//! `step_into`: one instruction, into calls.

use control::StopRecord;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use target::capability::Resume;

use super::{derived, run, stops};
use crate::error::ToolError;
use crate::prose::Fragment;
use crate::routing::SessionId;
use crate::surface::Surface;
use crate::tool::{Hints, Job, Tool, WorkerTool};

pub(crate) struct StepInto;

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Params {
    /// Default 60000.
    #[serde(default)]
    #[schemars(range(min = 1, max = 3_600_000))]
    timeout_ms: Option<u64>,
    #[serde(default)]
    session_id: Option<SessionId>,
}

impl Tool for StepInto {
    const NAME: &'static str = "step_into";
    const TITLE: &'static str = "Step into";
    const HINTS: Hints = Hints::OPEN;
    const PROSE: &'static [Fragment] =
        &[Fragment::Fixed("One instruction of the current thread, into calls.")];
    type Params = Params;
    type Output = StopRecord;

    fn render(stop: &StopRecord, _: &Surface) -> String {
        stops::text(stop)
    }

    fn derived(stop: &StopRecord) -> Vec<transcript::Derived> {
        derived::stop(stop)
    }
}

impl WorkerTool for StepInto {
    fn run(job: &mut Job<'_>, params: Params) -> Result<StopRecord, ToolError> {
        run(job, Resume::StepInto, params.timeout_ms)
    }
}
