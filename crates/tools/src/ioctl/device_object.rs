//! `device_object`: a device, its flags and its stack.

use analysis_driver::{DeviceObject, find_device};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::ToolError;
use crate::location::check_expression;
use crate::prose::Fragment;
use crate::routing::SessionId;
use crate::surface::Surface;
use crate::tool::{Hints, Job, Tool, WorkerTool};

pub(crate) struct DeviceObjectTool;

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Params {
    /// `\Device\X`, `\GLOBAL??\X`, `X`, or an address expression.
    device: String,
    /// Devices attached above and below (default true).
    #[serde(default)]
    stack: Option<bool>,
    #[serde(default)]
    session_id: Option<SessionId>,
}

impl Tool for DeviceObjectTool {
    const NAME: &'static str = "device_object";
    const TITLE: &'static str = "Read a device object";
    const HINTS: Hints = Hints::READ;
    const PROSE: &'static [Fragment] = &[Fragment::Fixed(
        "A DEVICE_OBJECT: its driver, type, characteristics, flags, where its security descriptor is, and the \
         devices attached above and below. Names need the kernel's symbols; else give an address.",
    )];
    type Params = Params;
    type Output = DeviceObject;

    fn check(params: &Params) -> Result<(), Vec<String>> {
        check_expression("device", &params.device)
    }

    fn render(output: &DeviceObject, _: &Surface) -> String {
        analysis_driver::render_device(output)
    }
}

impl WorkerTool for DeviceObjectTool {
    fn run(job: &mut Job<'_>, params: Params) -> Result<DeviceObject, ToolError> {
        Ok(find_device(job.target, &params.device, params.stack.unwrap_or(true), job.halt)?)
    }
}
