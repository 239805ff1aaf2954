//! `irp_stack`: a request and its stack locations.

use analysis_driver::{IrpStack, find_irp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::ToolError;
use crate::location::check_expression;
use crate::prose::Fragment;
use crate::routing::SessionId;
use crate::surface::Surface;
use crate::tool::{Hints, Job, Tool, WorkerTool};

pub(crate) struct IrpStackTool;

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Params {
    /// Address expression; omitted: the second argument at a dispatch routine's first instruction.
    #[serde(default)]
    irp: Option<String>,
    #[serde(default)]
    session_id: Option<SessionId>,
}

impl Tool for IrpStackTool {
    const NAME: &'static str = "irp_stack";
    const TITLE: &'static str = "Read an IRP";
    const HINTS: Hints = Hints::READ;
    const PROSE: &'static [Fragment] = &[Fragment::Fixed(
        "An IRP: status, buffers, requestor mode, and every stack location with its parameters decoded (a \
         device-control code into its fields). Without an address it is taken from the argument registers, \
         which hold it only at a dispatch routine's first instruction.",
    )];
    type Params = Params;
    type Output = IrpStack;

    fn check(params: &Params) -> Result<(), Vec<String>> {
        params.irp.as_deref().map_or(Ok(()), |text| check_expression("irp", text))
    }

    fn render(output: &IrpStack, _: &Surface) -> String {
        analysis_driver::render_irp(output)
    }
}

impl WorkerTool for IrpStackTool {
    fn run(job: &mut Job<'_>, params: Params) -> Result<IrpStack, ToolError> {
        Ok(find_irp(job.target, params.irp.as_deref(), job.halt)?)
    }
}
