//! `breakpoints`: all there are.

use control::BreakpointRecord;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{records, refused};
use crate::error::ToolError;
use crate::prose::Fragment;
use crate::routing::SessionId;
use crate::surface::Surface;
use crate::tool::{Hints, Job, Tool, WorkerTool};

pub(crate) struct Breakpoints;

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Params {
    /// Also those of running traces.
    #[serde(default)]
    include_internal: Option<bool>,
    #[serde(default)]
    session_id: Option<SessionId>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Output {
    breakpoints: Vec<BreakpointRecord>,
    enabled: usize,
    deferred: usize,
}

impl Tool for Breakpoints {
    const NAME: &'static str = "breakpoints";
    const TITLE: &'static str = "List breakpoints";
    const HINTS: Hints = Hints::READ;
    const PROSE: &'static [Fragment] =
        &[Fragment::Fixed("All breakpoints. Look before letting a live target go.")];
    type Params = Params;
    type Output = Output;

    fn render(output: &Output, _: &Surface) -> String {
        let mut text = records::table(&output.breakpoints);
        if !output.breakpoints.is_empty() {
            text.push_str(&format!("\n{} enabled, {} deferred.", output.enabled, output.deferred));
        }
        text
    }
}

impl WorkerTool for Breakpoints {
    fn run(job: &mut Job<'_>, params: Params) -> Result<Output, ToolError> {
        let hidden = if params.include_internal == Some(true) { Vec::new() } else { job.runs.hidden() };
        let breakpoints = control::list_shown(job.target, &hidden).map_err(refused)?;
        Ok(Output {
            enabled: breakpoints.iter().filter(|record| record.enabled).count(),
            deferred: breakpoints.iter().filter(|record| record.deferred).count(),
            breakpoints,
        })
    }
}
