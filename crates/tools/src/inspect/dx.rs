//! `dx`: the debugger's data model, text in, text out.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::clip::{OUTPUT_LIMIT, clip};
use crate::error::{Category, ToolError};
use crate::prose::Fragment;
use crate::routing::SessionId;
use crate::surface::Surface;
use crate::tool::{Hints, Job, Tool, WorkerTool};

pub(crate) struct Dx;

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Params {
    #[schemars(length(min = 1, max = 16_384))]
    expression: String,
    /// Levels shown below the result; default 1.
    #[serde(default)]
    #[schemars(range(max = 5))]
    recursion: Option<u32>,
    #[serde(default)]
    session_id: Option<SessionId>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Output {
    text: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    cut_short: bool,
    /// Bytes left out of the middle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    omitted: Option<usize>,
}

impl Tool for Dx {
    const NAME: &'static str = "dx";
    const TITLE: &'static str = "Evaluate in the data model";
    const HINTS: Hints = Hints::OPEN;
    const PROSE: &'static [Fragment] = &[Fragment::Fixed(
        "A data-model expression (@$cursession, @$curprocess.Threads, LINQ) as text. dbgeng engine only.",
    )];
    const RAW: bool = true;
    type Params = Params;
    type Output = Output;

    fn check(params: &Params) -> Result<(), Vec<String>> {
        let mut problems = Vec::new();
        if params.expression.trim().is_empty() {
            problems.push("expression must not be blank".to_owned());
        }
        let guard = expression::guard_data_model(&params.expression, "expression");
        problems.extend(guard.err().map(|error| error.to_string()));
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }

    fn retires_handle(params: &Params) -> bool {
        params.expression.to_ascii_lowercase().contains("executecommand")
    }

    fn render(output: &Output, _: &Surface) -> String {
        let mut text = output.text.clone();
        if text.trim().is_empty() {
            "The expression printed nothing.".clone_into(&mut text);
        }
        if output.cut_short {
            text.push_str("\n[The expression was stopped before its end; this is what it had printed.]");
        }
        text
    }
}

impl WorkerTool for Dx {
    fn run(job: &mut Job<'_>, params: Params) -> Result<Output, ToolError> {
        let Some(model) = job.target.data_model() else {
            return Err(ToolError::new(
                Category::Unsupported,
                "the native engine has no data model; open the target again with engine dbgeng",
            )
            .because("no_data_model"));
        };
        let printed = model.dx(&params.expression, params.recursion.unwrap_or(1), job.halt)?;
        let (text, omitted) = clip(printed.text, OUTPUT_LIMIT);
        Ok(Output { text, cut_short: printed.cut_short, omitted })
    }
}
