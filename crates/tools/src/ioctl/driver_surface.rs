//! `driver_surface`: a driver's whole attack surface in one answer.

use analysis_driver::{
    AccessModel, DeviceSecurity, DriverObject, Join, JoinBounds, Locations, Offline, SecurityRequest,
    device_security, find_driver, is_offline, render_driver, render_security,
};
use analysis_ioctl::map::{IoctlMap, map_entry};
use code_flow::{ImageRecord, SectionState};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use target::{Module, TargetExt as _};

use crate::error::{Category, ToolError};
use crate::ioctl::control_entries::{self, ControlEntries};
use crate::ioctl::{code_image, driver_hazards};
use crate::location::check_expression;
use crate::prose::Fragment;
use crate::routing::SessionId;
use crate::surface::Surface;
use crate::tool::{Hints, Job, Tool, WorkerTool};

pub(crate) struct DriverSurface;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub(crate) enum Part {
    Dispatch,
    Devices,
    Ioctl,
    Hazards,
    Join,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Params {
    /// As driver_object's name; optional in an image session.
    #[serde(default)]
    driver: Option<String>,
    /// Default all.
    #[serde(default)]
    sections: Option<Vec<Part>>,
    /// Calls followed from a code's case, default 2.
    #[serde(default)]
    #[schemars(range(min = 1, max = 8))]
    join_depth: Option<u32>,
    /// Functions looked at for a case, default 128.
    #[serde(default)]
    #[schemars(range(min = 1, max = 1024))]
    join_functions: Option<u32>,
    /// Default 64.
    #[serde(default)]
    #[schemars(range(min = 1, max = 256))]
    max_devices: Option<u32>,
    #[serde(default)]
    session_id: Option<SessionId>,
}

/// One section's state.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
struct SectionStatus {
    status: SectionState,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

impl SectionStatus {
    fn ok() -> Self {
        Self { status: SectionState::Ok, note: None }
    }
    fn of(status: SectionState, note: impl Into<String>) -> Self {
        Self { status, note: Some(note.into()) }
    }
    fn failed(error: &ToolError) -> Self {
        let status = if error.category == Category::Unsupported {
            SectionState::Unavailable
        } else {
            SectionState::Error
        };
        Self::of(status, error.message.clone())
    }
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct Sections {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    dispatch: Option<SectionStatus>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    devices: Option<SectionStatus>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ioctl: Option<SectionStatus>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hazards: Option<SectionStatus>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    join: Option<SectionStatus>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Output {
    module: String,
    sections: Sections,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    driver: Option<DriverObject>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    devices: Option<Vec<DeviceSecurity>>,
    /// A map for each routine control codes arrive at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ioctl: Option<Vec<IoctlMap>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hazards: Option<driver_hazards::Output>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    join: Option<Join>,
    complete: bool,
    images: Vec<ImageRecord>,
}

impl Tool for DriverSurface {
    const NAME: &'static str = "driver_surface";
    const TITLE: &'static str = "A driver's attack surface";
    const HINTS: Hints = Hints::READ;
    const PROSE: &'static [Fragment] = &[Fragment::Fixed(
        "One answer about a driver: dispatch table, devices and who may open them, control codes, sensitive calls, \
         and per code what it reaches and who may send it. Start here with a .sys file. Sections fail apart; \
         evidence, not a verdict on exploitability.",
    )];
    type Params = Params;
    type Output = Output;

    fn check(params: &Params) -> Result<(), Vec<String>> {
        params.driver.as_deref().map_or(Ok(()), |text| check_expression("driver", text))
    }

    fn render(output: &Output, surface: &Surface) -> String {
        render(output, surface)
    }
}

fn render(output: &Output, surface: &Surface) -> String {
    let mut text = format!("Surface of {}", output.module);
    let sections = &output.sections;
    for (name, section) in [
        ("dispatch", &sections.dispatch),
        ("devices", &sections.devices),
        ("ioctl", &sections.ioctl),
        ("hazards", &sections.hazards),
        ("join", &sections.join),
    ] {
        if let Some(SectionStatus { note: Some(note), .. }) = section {
            text.push_str(&format!("\n{name}: {note}"));
        }
    }
    if let Some(driver) = &output.driver {
        text.push_str(&format!("\n\n{}", render_driver(driver)));
    }
    for device in output.devices.iter().flatten() {
        text.push_str(&format!("\n\n{}", render_security(device)));
    }
    for map in output.ioctl.iter().flatten() {
        text.push_str(&format!("\n\n{}", analysis_ioctl::map::render(map)));
    }
    if let Some(join) = &output.join {
        text.push_str("\n\nPer code:");
        for row in &join.codes {
            text.push_str(&format!("\n{}", render_row(row)));
        }
        if join.refused > 0 {
            text.push_str(&format!("\n{} codes are refused on every path.", join.refused));
        }
    }
    if let Some(hazards) = &output.hazards {
        text.push_str(&format!("\n\n{}", driver_hazards::DriverHazards::render(hazards, surface)));
    }
    text
}

fn render_row(row: &analysis_driver::JoinRow) -> String {
    let sinks: Vec<String> =
        row.reaches.iter().map(|sink| format!("{} (depth {})", sink.sink, sink.depth)).collect();
    let mut text = format!("{}: ", row.code);
    text.push_str(&if sinks.is_empty() { "no sensitive call found".to_owned() } else { sinks.join(", ") });
    for privileged in &row.privileged {
        text.push_str(&format!(", {} at {}", privileged.kind, privileged.at));
    }
    if !row.findings.is_empty() {
        text.push_str(&format!("; findings: {}", row.findings.join(", ")));
    }
    match &row.deliverable_to {
        None => text.push_str("; who may send it is unknown"),
        Some(tokens) => {
            let names: Vec<&str> = tokens.iter().map(|token| token.name()).collect();
            text.push_str(&format!(
                "; sent by: {}",
                if names.is_empty() { "nobody".to_owned() } else { names.join(" ") }
            ));
        }
    }
    if row.bound_hit {
        text.push_str("; more may be reached (bounds)");
    }
    text
}

/// The driver, its object if it was found, and its image.
struct Subject {
    module: Module,
    driver: Result<DriverObject, ToolError>,
}

fn subject(job: &Job<'_>, params: &Params) -> Result<Subject, ToolError> {
    let max = params.max_devices.unwrap_or(64) as usize;
    let name = match &params.driver {
        Some(name) => name.as_str(),
        None if is_offline(job.target) => "",
        None => return Err(ToolError::invalid("name the driver; only an image session has just one")),
    };
    let driver = find_driver(job.target, name, Some(max), job.halt).map_err(ToolError::from);
    let module = match &driver {
        Ok(driver) => job.target.module_at(driver.image.base.0)?,
        Err(_) => None,
    };
    // Without an object the image alone still has a surface.
    let module = match module {
        Some(module) => module,
        None => code_image::module(job, params.driver.as_deref()).map_err(|_| match &driver {
            Err(error) => error.clone(),
            Ok(_) => ToolError::new(Category::Debugger, "the driver's image is in no loaded module")
                .because("not_found"),
        })?,
    };
    Ok(Subject { module, driver })
}

fn devices(job: &Job<'_>, driver: Option<&DriverObject>) -> Result<Vec<DeviceSecurity>, ToolError> {
    if is_offline(job.target) {
        return Ok(Offline::of(job.target, job.halt)?.gates(true));
    }
    let chain = driver.and_then(|driver| driver.devices.as_ref());
    let addresses = chain.map(|chain| chain.addresses.clone()).unwrap_or_default();
    let mut out = Vec::new();
    for address in addresses {
        let device = address.to_string();
        // Links are one directory listing a device: left to device_security.
        let request = SecurityRequest {
            device: &device,
            links: false,
            link_directory: "",
            all_sessions: false,
            model: true,
        };
        out.push(device_security(job.target, &request, job.halt)?);
    }
    Ok(out)
}

impl WorkerTool for DriverSurface {
    fn run(job: &mut Job<'_>, params: Params) -> Result<Output, ToolError> {
        let wants = |part| params.sections.as_ref().is_none_or(|parts| parts.contains(&part));
        let Subject { module, driver } = subject(job, &params)?;
        let mut locations = Locations::new(job.target);
        locations.note(&module);
        let mut out = Output {
            module: module.name.clone(),
            sections: Sections { dispatch: None, devices: None, ioctl: None, hazards: None, join: None },
            driver: None,
            devices: None,
            ioctl: None,
            hazards: None,
            join: None,
            complete: false,
            images: Vec::new(),
        };
        let object = driver.as_ref().ok();
        if wants(Part::Dispatch) {
            out.sections.dispatch = Some(match &driver {
                Ok(driver) => {
                    SectionStatus { status: driver.dispatch.status, note: driver.dispatch.note.clone() }
                }
                Err(error) => SectionStatus::failed(error),
            });
        }
        if wants(Part::Devices) || wants(Part::Join) {
            let read = devices(job, object);
            out.sections.devices = Some(match &read {
                Ok(_) if object.is_none() => {
                    SectionStatus::of(SectionState::Unavailable, "no driver object was read")
                }
                Ok(_) => SectionStatus::ok(),
                Err(error) => SectionStatus::failed(error),
            });
            out.devices = read.ok();
        }
        analyse_code(job, &params, &module, object, &mut out);
        out.driver = driver.ok().filter(|_| wants(Part::Dispatch));
        if !wants(Part::Devices) {
            (out.devices, out.sections.devices) = (None, None);
        }
        let states = [
            &out.sections.dispatch,
            &out.sections.devices,
            &out.sections.ioctl,
            &out.sections.hazards,
            &out.sections.join,
        ];
        out.complete = states.into_iter().flatten().all(|section| section.status == SectionState::Ok);
        out.images = locations.images();
        Ok(out)
    }
}

/// The sections that read the driver's code.
fn analyse_code(
    job: &mut Job<'_>,
    params: &Params,
    module: &Module,
    object: Option<&DriverObject>,
    out: &mut Output,
) {
    let wants = |part| params.sections.as_ref().is_none_or(|parts| parts.contains(&part));
    let image = match code_image::open(job, module) {
        Ok(image) => image,
        Err(error) => {
            let failed = |wanted: bool| wanted.then(|| SectionStatus::failed(&error));
            out.sections.ioctl = failed(wants(Part::Ioctl));
            out.sections.hazards = failed(wants(Part::Hazards));
            out.sections.join = failed(wants(Part::Join));
            return;
        }
    };
    if wants(Part::Ioctl) || wants(Part::Join) {
        let found = if is_offline(job.target) {
            control_entries::discovered(job, &image)
        } else {
            Ok(object.map_or(ControlEntries { requests: Vec::new(), note: None }, control_entries::of_driver))
        };
        match found {
            Err(error) => out.sections.ioctl = Some(SectionStatus::failed(&error)),
            Ok(found) => {
                let maps: Vec<IoctlMap> =
                    found.requests.iter().map(|request| map_entry(&image, request, job.halt).map).collect();
                out.sections.ioctl = Some(ioctl_status(&maps, found.note));
                out.ioctl = Some(maps);
            }
        }
    }
    if wants(Part::Hazards) {
        // A live driver's table says where its codes arrive; an image's entries are found again.
        let dispatch = object
            .filter(|_| !is_offline(job.target))
            .map(control_entries::of_driver)
            .and_then(|found| found.requests.first().map(|request| request.entry));
        match driver_hazards::of(job, &module.name, dispatch) {
            Ok(hazards) => {
                out.sections.hazards = Some(if hazards.is_complete() {
                    SectionStatus::ok()
                } else {
                    SectionStatus::of(SectionState::Partial, "the list of hazards is not whole")
                });
                out.hazards = Some(hazards);
            }
            Err(error) => out.sections.hazards = Some(SectionStatus::failed(&error)),
        }
    }
    if wants(Part::Join) {
        let index = job.kept.indexes.index(job.target, &image, job.halt);
        let gates: Vec<&AccessModel> =
            out.devices.iter().flatten().filter_map(|device| device.access_model.as_ref()).collect();
        let bounds = JoinBounds {
            depth: params.join_depth.unwrap_or(2),
            functions: params.join_functions.unwrap_or(128) as usize,
        };
        let maps = out.ioctl.as_deref().unwrap_or_default();
        let classes = |code| out.hazards.as_ref().map(|hazards| hazards.classes_of(code)).unwrap_or_default();
        let join = analysis_driver::join(&image, &index, maps, &gates, &classes, bounds, job.halt);
        out.sections.join = Some(match (&out.ioctl, join.stopped) {
            (None, _) => SectionStatus::of(SectionState::Unavailable, "there are no control codes to join"),
            (_, Some(_)) => SectionStatus::of(SectionState::Partial, "the join was cut short"),
            _ => SectionStatus::ok(),
        });
        out.join = Some(join);
        if !wants(Part::Ioctl) {
            (out.ioctl, out.sections.ioctl) = (None, None);
        }
    }
}

fn ioctl_status(maps: &[IoctlMap], note: Option<String>) -> SectionStatus {
    if maps.is_empty() {
        let note = note.unwrap_or_else(|| "no routine was found that control codes arrive at".to_owned());
        return SectionStatus::of(SectionState::Unavailable, note);
    }
    let status = if maps.iter().all(|map| map.complete) { SectionState::Ok } else { SectionState::Partial };
    let incomplete = (status == SectionState::Partial).then(|| "a map is not complete".to_owned());
    SectionStatus { status, note: note.or(incomplete) }
}
