//! `clear_breakpoints`: removes some or all.

use control::Cleared;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{derived, records, refused};
use crate::error::{Category, ToolError};
use crate::prose::Fragment;
use crate::routing::SessionId;
use crate::surface::Surface;
use crate::tool::{Hints, Job, Tool, WorkerTool};

pub(crate) struct ClearBreakpoints;

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Params {
    #[serde(default)]
    #[schemars(length(min = 1, max = 256))]
    ids: Option<Vec<u32>>,
    /// true: every one; instead of ids.
    #[serde(default)]
    all: Option<bool>,
    #[serde(default)]
    session_id: Option<SessionId>,
}

fn ids(ids: &[u32]) -> String {
    ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

impl Tool for ClearBreakpoints {
    const NAME: &'static str = "clear_breakpoints";
    const TITLE: &'static str = "Clear breakpoints";
    const HINTS: Hints = Hints::END;
    const PROSE: &'static [Fragment] =
        &[Fragment::Fixed("Removes breakpoints by id, or all. An id that is not there is no error.")];
    type Params = Params;
    type Output = Cleared;

    fn check(params: &Params) -> Result<(), Vec<String>> {
        let mut problems = Vec::new();
        match (&params.ids, params.all) {
            (Some(ids), None) => {
                let mut sorted = ids.clone();
                sorted.sort_unstable();
                sorted.dedup();
                if sorted.len() < ids.len() {
                    problems.push("ids must be distinct".to_owned());
                }
            }
            (None, Some(true)) => {}
            (None, Some(false)) => {
                problems.push("all: false clears nothing; give ids or all: true".to_owned())
            }
            _ => problems.push("give exactly one of ids and all".to_owned()),
        }
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }

    fn render(output: &Cleared, _: &Surface) -> String {
        let mut text = if output.removed.is_empty() {
            "Nothing was removed.".to_owned()
        } else {
            format!("Removed {}.", ids(&output.removed))
        };
        if !output.missing.is_empty() {
            text.push_str(&format!(" Not there: {}.", ids(&output.missing)));
        }
        text.push_str(&format!("\n{}", records::table(&output.remaining)));
        text
    }

    fn derived(output: &Cleared) -> Vec<transcript::Derived> {
        derived::cleared(output)
    }
}

impl WorkerTool for ClearBreakpoints {
    fn run(job: &mut Job<'_>, params: Params) -> Result<Cleared, ToolError> {
        let cleared =
            control::clear_shown(job.target, params.ids.as_deref(), &job.runs.hidden()).map_err(refused)?;
        if cleared.failed.is_empty() {
            return Ok(cleared);
        }
        let failed: Vec<String> = cleared.failed.iter().map(|f| format!("{} ({})", f.id, f.error)).collect();
        let message = format!(
            "could not remove {}; removed: {}",
            failed.join(", "),
            if cleared.removed.is_empty() { "none".to_owned() } else { ids(&cleared.removed) }
        );
        Err(ToolError::new(Category::Debugger, message)
            .with("removed", json!(cleared.removed))
            .with("missing", json!(cleared.missing))
            .with("failed", json!(cleared.failed))
            .with("remaining", json!(cleared.remaining)))
    }
}
