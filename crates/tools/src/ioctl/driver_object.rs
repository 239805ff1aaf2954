//! `driver_object`: a driver's dispatch table, image and devices.

use analysis_driver::{DriverObject, find_driver};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::ToolError;
use crate::location::check_expression;
use crate::prose::Fragment;
use crate::routing::SessionId;
use crate::surface::Surface;
use crate::tool::{Hints, Job, Tool, WorkerTool};

pub(crate) struct DriverObjectTool;

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Params {
    /// `mydriver`, `\Driver\mydriver`, or an address expression; in an image session the module.
    name: String,
    /// Walk the device chain (default true).
    #[serde(default)]
    devices: Option<bool>,
    #[serde(default)]
    #[schemars(range(min = 1, max = 1024))]
    max_devices: Option<u32>,
    #[serde(default)]
    session_id: Option<SessionId>,
}

impl Tool for DriverObjectTool {
    const NAME: &'static str = "driver_object";
    const TITLE: &'static str = "Read a driver object";
    const HINTS: Hints = Hints::READ;
    const PROSE: &'static [Fragment] = &[Fragment::Fixed(
        "A DRIVER_OBJECT: image, every major function with whose routine it is, unload, AddDevice, devices. \
         Names need the kernel's symbols and object namespace; a kernel minidump has neither, give an address. \
         In an image session it is what DriverEntry does under stubs.",
    )];
    type Params = Params;
    type Output = DriverObject;

    fn check(params: &Params) -> Result<(), Vec<String>> {
        check_expression("name", &params.name)
    }

    fn render(output: &DriverObject, _: &Surface) -> String {
        analysis_driver::render_driver(output)
    }
}

impl WorkerTool for DriverObjectTool {
    fn run(job: &mut Job<'_>, params: Params) -> Result<DriverObject, ToolError> {
        let walk = params.devices.unwrap_or(true);
        let max = walk.then(|| params.max_devices.unwrap_or(256) as usize);
        Ok(find_driver(job.target, &params.name, max, job.halt)?)
    }
}
