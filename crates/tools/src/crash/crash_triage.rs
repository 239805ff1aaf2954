//! `crash_triage`: a kernel bug check as fields.

use analysis_crash::{CrashParams, CrashTriage};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{Category, ToolError};
use crate::prose::Fragment;
use crate::routing::SessionId;
use crate::surface::Surface;
use crate::symbol_hint;
use crate::tool::{Hints, Job, Tool, WorkerTool};

pub(crate) struct CrashTriageTool;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub(crate) enum Analyzer {
    Auto,
    Native,
    Ext,
    Both,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Params {
    /// Frames at most, default 16.
    #[serde(default)]
    #[schemars(range(min = 1, max = 128))]
    frames: Option<u32>,
    /// false: only the facts, no bucket and no leads.
    #[serde(default)]
    analyze: Option<bool>,
    /// ext: Microsoft's !analyze, where the engine has it.
    #[serde(default)]
    analyzer: Option<Analyzer>,
    #[serde(default)]
    session_id: Option<SessionId>,
}

impl Tool for CrashTriageTool {
    const NAME: &'static str = "crash_triage";
    const TITLE: &'static str = "Triage a kernel crash";
    const HINTS: Hints = Hints::READ;
    const PROSE: &'static [Fragment] = &[
        Fragment::Fixed(
            "A kernel bug check as fields: code, what its parameters mean, process, stack, the driver frame \
             blamed, failure bucket and hash, a verdict and how sure it is. Call it first on a kernel dump.",
        ),
        Fragment::If { needs: &["exception_triage"], text: "User dumps: exception_triage." },
    ];
    type Params = Params;
    type Output = CrashTriage;

    fn check(params: &Params) -> Result<(), Vec<String>> {
        if params.analyze == Some(false) && params.analyzer.is_some() {
            return Err(vec![
                "analyzer chooses the analysis that analyze: false turns off; give one".to_owned(),
            ]);
        }
        Ok(())
    }

    fn render(output: &CrashTriage, _: &Surface) -> String {
        analysis_crash::render_crash(output)
    }
}

impl WorkerTool for CrashTriageTool {
    fn run(job: &mut Job<'_>, params: Params) -> Result<CrashTriage, ToolError> {
        if !job.target.facts().kind.is_kernel() {
            return Err(ToolError::new(
                Category::Unsupported,
                "this is no kernel target, so there is no bug check",
            )
            .because("wrong_target_kind")
            .when_served(&["exception_triage"], "user-mode faults are exception_triage's")
            .then(&["exception_triage"]));
        }
        if matches!(params.analyzer, Some(Analyzer::Ext | Analyzer::Both)) {
            return Err(ToolError::new(
                Category::Unsupported,
                "Microsoft's !analyze needs the dbgeng engine and its ext.dll; analyzer native works here",
            )
            .because("no_ext"));
        }
        let asked = CrashParams {
            frames: params.frames.unwrap_or(16) as usize,
            analyze: params.analyze.unwrap_or(true),
            ..CrashParams::default()
        };
        let mut triage = analysis_crash::crash_triage(job.target, &asked, job.halt)?;
        triage.limitations.extend(symbol_hint::hint(job.target, &triage.frames));
        Ok(triage)
    }
}
