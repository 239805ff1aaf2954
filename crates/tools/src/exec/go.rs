//! `go`: a blocking, bounded run.

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

pub(crate) struct Go;

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Params {
    /// Default 60000.
    #[serde(default)]
    #[schemars(range(min = 1, max = 3_600_000))]
    timeout_ms: Option<u64>,
    #[serde(default)]
    session_id: Option<SessionId>,
}

impl Tool for Go {
    const NAME: &'static str = "go";
    const TITLE: &'static str = "Run until it stops";
    const HINTS: Hints = Hints::OPEN;
    const PROSE: &'static [Fragment] = &[
        Fragment::Fixed(
            "Lets the target run until it stops, waiting at most timeout_ms; then it is broken in (timed_out).",
        ),
        Fragment::If { needs: &["continue_async"], text: "To do something else meanwhile: continue_async." },
    ];
    type Params = Params;
    type Output = StopRecord;

    fn render(stop: &StopRecord, _: &Surface) -> String {
        stops::text(stop)
    }

    fn derived(stop: &StopRecord) -> Vec<transcript::Derived> {
        derived::stop(stop)
    }
}

impl WorkerTool for Go {
    fn run(job: &mut Job<'_>, params: Params) -> Result<StopRecord, ToolError> {
        run(job, Resume::Go, params.timeout_ms)
    }
}
