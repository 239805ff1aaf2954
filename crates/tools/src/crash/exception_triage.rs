//! `exception_triage`: a user-mode fault as fields.

use analysis_crash::{ExceptionParams, ExceptionTriage};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use target::TargetKind;

use crate::error::{Category, ToolError};
use crate::prose::Fragment;
use crate::routing::SessionId;
use crate::surface::Surface;
use crate::symbol_hint;
use crate::tool::{Hints, Job, Tool, WorkerTool};

pub(crate) struct ExceptionTriageTool;

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Params {
    /// Frames at most, default 32.
    #[serde(default)]
    #[schemars(range(min = 1, max = 128))]
    frames: Option<u32>,
    /// false: do not search the stack for an earlier C++ throw.
    #[serde(default)]
    scan_stack: Option<bool>,
    #[serde(default)]
    session_id: Option<SessionId>,
}

impl Tool for ExceptionTriageTool {
    const NAME: &'static str = "exception_triage";
    const TITLE: &'static str = "Triage a user-mode crash";
    const HINTS: Hints = Hints::READ;
    const PROSE: &'static [Fragment] = &[
        Fragment::Fixed(
            "A user-mode fault as fields: the exception decoded, what was accessed, the C++ object or HRESULT \
             thrown, stack at the fault, failure bucket, a verdict and how sure it is. Call it first on a user \
             dump.",
        ),
        Fragment::If { needs: &["crash_triage"], text: "Kernel dumps: crash_triage." },
    ];
    type Params = Params;
    type Output = ExceptionTriage;

    fn render(output: &ExceptionTriage, _: &Surface) -> String {
        analysis_crash::render_exception(output)
    }
}

impl WorkerTool for ExceptionTriageTool {
    fn run(job: &mut Job<'_>, params: Params) -> Result<ExceptionTriage, ToolError> {
        if job.target.facts().kind.is_kernel() {
            return Err(ToolError::new(
                Category::Unsupported,
                "this is a kernel target: its crash is a bug check",
            )
            .because("wrong_target_kind")
            .when_served(&["crash_triage"], "bug checks are crash_triage's")
            .then(&["crash_triage"]));
        }
        if job.target.facts().kind == TargetKind::Image {
            return Err(ToolError::new(
                Category::Unsupported,
                "this is an image file, not a process: nothing ran and nothing crashed in it",
            )
            .because("wrong_target_kind")
            .then(&["modules", "disassemble"]));
        }
        let asked = ExceptionParams {
            frames: params.frames.unwrap_or(32) as usize,
            scan_stack: params.scan_stack.unwrap_or(true),
            ..ExceptionParams::default()
        };
        let mut triage = analysis_crash::exception_triage(job.target, &asked, job.halt)?;
        triage.limitations.extend(symbol_hint::hint(job.target, &triage.frames));
        Ok(triage)
    }
}
