//! `device_security`: who may open a device.

use analysis_driver::{DeviceSecurity, SecurityRequest, device_security};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::ToolError;
use crate::location::check_expression;
use crate::prose::Fragment;
use crate::routing::SessionId;
use crate::surface::Surface;
use crate::tool::{Hints, Job, Tool, WorkerTool};

pub(crate) struct DeviceSecurityTool;

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Params {
    /// `\Device\X`, `\GLOBAL??\X`, `X`, or an address expression.
    device: String,
    /// Look for symbolic links that lead to it (default true).
    #[serde(default)]
    links: Option<bool>,
    /// Where links are looked for (default `\GLOBAL??`).
    #[serde(default)]
    link_directory: Option<String>,
    /// Also every `\Sessions\*\DosDevices`.
    #[serde(default)]
    all_sessions: Option<bool>,
    /// What each kind of caller gets (default true).
    #[serde(default)]
    model: Option<bool>,
    #[serde(default)]
    session_id: Option<SessionId>,
}

impl Tool for DeviceSecurityTool {
    const NAME: &'static str = "device_security";
    const TITLE: &'static str = "Who may open a device";
    const HINTS: Hints = Hints::READ;
    const PROSE: &'static [Fragment] = &[Fragment::Fixed(
        "A device's security descriptor as principals and rights, what an anonymous, standard, admin... caller \
         gets and which control codes that delivers, and the links that lead to it. In an image session: the \
         SDDL the driver gives. 'No link' holds only under link_search complete.",
    )];
    type Params = Params;
    type Output = DeviceSecurity;

    fn check(params: &Params) -> Result<(), Vec<String>> {
        let mut problems = check_expression("device", &params.device).err().unwrap_or_default();
        if let Some(directory) = &params.link_directory {
            problems.extend(check_expression("link_directory", directory).err().unwrap_or_default());
            if !directory.starts_with('\\') {
                problems.push("link_directory starts with a backslash, as \\GLOBAL?? does".to_owned());
            }
        }
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }

    fn render(output: &DeviceSecurity, _: &Surface) -> String {
        analysis_driver::render_security(output)
    }
}

impl WorkerTool for DeviceSecurityTool {
    fn run(job: &mut Job<'_>, params: Params) -> Result<DeviceSecurity, ToolError> {
        let request = SecurityRequest {
            device: &params.device,
            links: params.links.unwrap_or(true),
            link_directory: params.link_directory.as_deref().unwrap_or("\\GLOBAL??"),
            all_sessions: params.all_sessions.unwrap_or(false),
            model: params.model.unwrap_or(true),
        };
        Ok(device_security(job.target, &request, job.halt)?)
    }
}
