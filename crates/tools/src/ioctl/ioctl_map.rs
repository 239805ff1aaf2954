//! `ioctl_map`: the control codes a dispatch routine accepts.

use analysis_driver::Locations;
use analysis_ioctl::analysis::Convention;
use analysis_ioctl::map::{IoctlMap, MapRequest, convention_named, map_entry, render};
use analysis_ioctl::pass::FrameworkTable;
use code_flow::wdf::wdf_table;
use code_flow::{CodeImage, ImageRecord};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{Category, ToolError};
use crate::ioctl::code_image;
use crate::ioctl::control_entries::{ControlEntries, discovered};
use crate::location::{check_expression, evaluate};
use crate::prose::Fragment;
use crate::routing::SessionId;
use crate::surface::Surface;
use crate::tool::{Hints, Job, Tool, WorkerTool};

pub(crate) struct IoctlMapTool;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub(crate) enum ConventionName {
    #[default]
    Auto,
    Wdm,
    FastIo,
    WdfDeviceControl,
    WdfDefault,
    WdfInCallerContext,
}

impl ConventionName {
    fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Wdm => "wdm",
            Self::FastIo => "fast_io",
            Self::WdfDeviceControl => "wdf_device_control",
            Self::WdfDefault => "wdf_default",
            Self::WdfInCallerContext => "wdf_in_caller_context",
        }
    }
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Params {
    /// The routine. Optional in a session on a driver file: then what DriverEntry installs.
    #[serde(default)]
    dispatch: Option<String>,
    /// How it is called. Default auto.
    #[serde(default)]
    convention: Option<ConventionName>,
    /// MajorFunction it is entered with. Default 0x0e.
    #[serde(default)]
    #[schemars(range(min = 0, max = 63))]
    major: Option<u8>,
    /// Follow the request into callees. Default true.
    #[serde(default)]
    descend: Option<bool>,
    /// Check each case with a second interpreter. Default true.
    #[serde(default)]
    verify: Option<bool>,
    /// Codes listed. Default 1024; counts are exact.
    #[serde(default)]
    #[schemars(range(min = 1, max = 4096))]
    max_codes: Option<u32>,
    #[serde(default)]
    session_id: Option<SessionId>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Output {
    #[serde(flatten)]
    map: IoctlMap,
    /// Maps of the driver's other entries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    maps: Vec<IoctlMap>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    note: Option<String>,
    images: Vec<ImageRecord>,
}

/// The framework's own image, whose dispatch routine serves every client.
const FRAMEWORK_IMAGE: &str = "wdf01000";

impl Tool for IoctlMapTool {
    const NAME: &'static str = "ioctl_map";
    const TITLE: &'static str = "Map a driver's control codes";
    const HINTS: Hints = Hints::READ;
    const PROSE: &'static [Fragment] = &[Fragment::Fixed(
        "The control codes a driver's dispatch routine accepts, with case, handler, status and lengths: data flow \
         over recovered code, each case checked by a second interpreter. Unless complete is true the list is a \
         lower bound, and unresolved, untracked and coverage say why.",
    )];
    type Params = Params;
    type Output = Output;

    fn check(params: &Params) -> Result<(), Vec<String>> {
        params.dispatch.as_deref().map_or(Ok(()), |text| check_expression("dispatch", text))
    }

    fn render(output: &Output, _: &Surface) -> String {
        let mut text = String::new();
        if let Some(note) = &output.note {
            text.push_str(&format!("{note}\n\n"));
        }
        text.push_str(&render(&output.map));
        for map in &output.maps {
            text.push_str(&format!("\n{}", render(map)));
        }
        text
    }
}

impl WorkerTool for IoctlMapTool {
    fn run(job: &mut Job<'_>, params: Params) -> Result<Output, ToolError> {
        let given = match params.dispatch.as_deref() {
            Some(text) => Some(evaluate(job.target, text, job.halt)?),
            None => None,
        };
        let module = match given {
            Some(address) => code_image::module_of(job.target, address)?,
            None => code_image::module(job, None)?,
        };
        let image = code_image::open(job, &module)?;
        let found = discovered(job, &image)?;
        let fast_io =
            found.requests.iter().find(|r| r.convention == Some(Convention::FastIo)).map(|r| r.entry);
        let ControlEntries { requests, mut note } = match given {
            Some(address) => at(&image, address, found)?,
            None => found,
        };
        if requests.is_empty() && given.is_none() && image.pe.entry_point == 0 {
            return Err(ToolError::new(
                Category::Debugger,
                "the image has no entry point, so no routine is known",
            )
            .because("not_found"));
        }
        if module.name.eq_ignore_ascii_case(FRAMEWORK_IMAGE) {
            note = Some(
                "this is the framework's own routine; its clients' codes are in their callbacks".to_owned(),
            );
        }
        let mut maps = Vec::new();
        for request in requests {
            maps.push(map_entry(&image, &with(&params, request), job.halt).map);
        }
        // Codes arrive at a fast-I/O entry too: a map without it is not the driver's.
        if let Some(entry) = fast_io.filter(|entry| !maps.iter().any(|map| map.dispatch.address.0 == *entry))
        {
            note.get_or_insert_with(|| format!("the fast-I/O routine at {entry:#018x} is not in this map"));
            for map in &mut maps {
                map.complete = false;
                map.coverage.cap("fast_io_not_mapped");
            }
        }
        let mut maps = maps.into_iter();
        let map = match maps.next() {
            Some(map) => map,
            None => nothing(&image, &mut note),
        };
        let mut locations = Locations::new(job.target);
        locations.note(&module);
        Ok(Output { map, maps: maps.collect(), note, images: code_image::images(locations, &image) })
    }
}

/// What the caller asked for over what was discovered.
fn with(params: &Params, mut request: MapRequest) -> MapRequest {
    if let Some(convention) = params.convention.and_then(|c| convention_named(c.name())) {
        request.convention = Some(convention);
    }
    request.major = params.major.unwrap_or(request.major);
    request.descend = params.descend.unwrap_or(true);
    request.verify = params.verify.unwrap_or(true);
    request.max_codes = params.max_codes.map_or(request.max_codes, |max| max as usize);
    request
}

/// The routine named: as it was discovered, or plainly.
fn at(image: &CodeImage<'_>, address: u64, found: ControlEntries) -> Result<ControlEntries, ToolError> {
    if !image.is_executable(address) {
        return Err(ToolError::new(
            Category::Debugger,
            format!("{address:#018x} is in no executable section of {}", image.record.module),
        )
        .because("not_code"));
    }
    if let Some(request) = found.requests.iter().find(|request| request.entry == address) {
        return Ok(ControlEntries { requests: vec![request.clone()], note: found.note });
    }
    let bound = found.requests.iter().find_map(|request| request.framework);
    let framework = bound.or_else(|| {
        wdf_table(image).map(|table| FrameworkTable {
            table: table.table,
            pointer: false,
            count: u32::try_from(table.count).unwrap_or(0),
        })
    });
    let request = MapRequest { framework, source: Some("given".to_owned()), ..MapRequest::at(address) };
    Ok(ControlEntries { requests: vec![request], note: None })
}

/// No routine of the driver gets control codes.
fn nothing(image: &CodeImage<'_>, note: &mut Option<String>) -> IoctlMap {
    let entry = image.base.wrapping_add(u64::from(image.pe.entry_point));
    let never = !code_flow::may_return(image, entry);
    let complete = never || note.is_none();
    if never {
        *note = Some("DriverEntry never returns: the driver gets no request".to_owned());
    } else if complete {
        *note = Some("DriverEntry installs no routine for control codes".to_owned());
    }
    IoctlMap::without_routine(analysis_ioctl::map::location(image, entry), complete)
}
