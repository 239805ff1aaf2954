//! Where a driver's control codes arrive: what a call names, or what the driver installs.

use analysis_driver::{DriverObject, Offline, is_offline};
use analysis_ioctl::analysis::Convention;
use analysis_ioctl::discover::static_entries;
use analysis_ioctl::map::MapRequest;
use analysis_ioctl::pass::FrameworkTable;
use code_flow::CodeImage;
use driver_replay::{Bind, EntryKind, EntrySource};
use target::Halt;

use crate::error::ToolError;
use crate::tool::Job;

/// The routines to map, and what a reader must know of how they were found.
pub(crate) struct ControlEntries {
    pub(crate) requests: Vec<MapRequest>,
    pub(crate) note: Option<String>,
}

fn convention(kind: EntryKind) -> Convention {
    match kind {
        EntryKind::Wdm | EntryKind::WdfPreprocess => Convention::Wdm,
        EntryKind::FastIo => Convention::FastIo,
        EntryKind::WdfDeviceControl | EntryKind::WdfInternalDeviceControl => Convention::WdfDeviceControl,
        EntryKind::WdfDefault => Convention::WdfDefault,
        EntryKind::WdfInCallerContext => Convention::WdfInCallerContext,
    }
}

/// The framework's table as the driver binds it.
pub(crate) fn framework_table(bind: &Bind) -> FrameworkTable {
    FrameworkTable {
        table: bind.function_table.0,
        pointer: bind.table_is_pointer,
        count: bind.function_count,
    }
}

/// What DriverEntry of an image session installs: by replay, else by reading its stores.
pub(crate) fn discovered(job: &Job<'_>, image: &CodeImage<'_>) -> Result<ControlEntries, ToolError> {
    if !is_offline(job.target) {
        return Ok(ControlEntries { requests: Vec::new(), note: None });
    }
    let offline = Offline::of(job.target, job.halt)?;
    let found = driver_replay::discover(&offline.image, &offline.replay);
    let mut note = offline.caveat();
    let framework = found.bind.as_ref().map(framework_table);
    let mut requests: Vec<MapRequest> = found
        .entries
        .iter()
        .map(|entry| MapRequest {
            convention: Some(convention(entry.kind)),
            major: entry.major,
            framework,
            source: Some(if entry.source == EntrySource::Replay { "replay" } else { "static" }.to_owned()),
            also_majors: if entry.kind == EntryKind::Wdm { found.also_majors.clone() } else { Vec::new() },
            ..MapRequest::at(entry.address.0)
        })
        .collect();
    if requests.is_empty() {
        requests = read_stores(image, job.halt);
    }
    if found.manual_queue {
        let manual = "a queue is drained by hand: codes may also be compared in a worker no callback names";
        note = Some(note.map_or_else(|| manual.to_owned(), |note| format!("{note}; {manual}")));
    }
    Ok(ControlEntries { requests, note })
}

fn read_stores(image: &CodeImage<'_>, halt: &Halt) -> Vec<MapRequest> {
    static_entries(image, halt)
        .entries
        .iter()
        .map(|entry| MapRequest {
            convention: Some(entry.convention),
            major: entry.major,
            source: Some("static".to_owned()),
            ..MapRequest::at(entry.address)
        })
        .collect()
}

/// What a driver object of a target installs for device control, its own routines only.
pub(crate) fn of_driver(driver: &DriverObject) -> ControlEntries {
    let table = &driver.dispatch;
    let mut requests: Vec<MapRequest> = Vec::new();
    for (major, handler) in [(0x0e, &table.device_control), (0x0f, &table.internal_device_control)] {
        let Some(handler) = handler else { continue };
        let group = table.groups.iter().find(|group| group.handler == handler.address && group.owned);
        let Some(group) = group else { continue };
        if requests.iter().any(|request| request.entry == handler.address.0) {
            continue;
        }
        requests.push(MapRequest {
            convention: Some(Convention::Wdm),
            major,
            source: Some("dispatch_table".to_owned()),
            also_majors: group.majors.iter().copied().filter(|other| *other != major).collect(),
            ..MapRequest::at(handler.address.0)
        });
    }
    let note = requests.is_empty().then(|| match &driver.framework {
        Some(name) => format!("the dispatch table is {name}'s; the driver's own callbacks are not in it"),
        None => "no routine of the driver itself serves device control".to_owned(),
    });
    ControlEntries { requests, note }
}
