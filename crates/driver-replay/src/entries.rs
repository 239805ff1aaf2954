//! Where control codes arrive: the entries a replay (or, failing that, the file alone) shows.

use emulate::Convention;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use target::Address;

use crate::framework;
use crate::image::PlacedImage;
use crate::record::{Bind, Replay};

/// `IRP_MJ_DEVICE_CONTROL` and `IRP_MJ_INTERNAL_DEVICE_CONTROL`.
const CONTROL_MAJORS: [u8; 2] = [0x0e, 0x0f];

/// What kind of routine gets the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EntryKind {
    /// `MajorFunction[0x0e]` or `[0x0f]`.
    Wdm,
    /// `FAST_IO_DISPATCH.FastIoDeviceControl`.
    FastIo,
    WdfDeviceControl,
    WdfInternalDeviceControl,
    /// `EvtIoDefault`.
    WdfDefault,
    WdfInCallerContext,
    /// `EvtDeviceWdmIrpPreprocess`: called like a WDM dispatch routine.
    WdfPreprocess,
}

impl EntryKind {
    /// How such a routine is called.
    #[must_use]
    pub fn convention(self) -> Convention {
        match self {
            Self::Wdm | Self::WdfPreprocess => Convention::Wdm,
            Self::FastIo => Convention::FastIo,
            Self::WdfDeviceControl | Self::WdfInternalDeviceControl => Convention::WdfDeviceControl,
            Self::WdfDefault | Self::WdfInCallerContext => Convention::WdfRequest,
        }
    }
}

/// How an entry was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EntrySource {
    Replay,
    /// From the file's code alone.
    Static,
}

/// One entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Entry {
    pub address: Address,
    pub kind: EntryKind,
    pub source: EntrySource,
    /// Major function it serves (0x0e unless it is installed for 0x0f only).
    pub major: u8,
}

/// What [`discover`] found.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Entries {
    /// In order of importance, each address and kind once.
    pub entries: Vec<Entry>,
    /// The framework binding, from the replay or from the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bind: Option<Bind>,
    /// A queue is drained by hand (`WdfIoQueueRetrieveNextRequest`): codes may be compared in a worker
    /// that no callback names.
    pub manual_queue: bool,
    /// Calls of `WdfIoQueueCreate` in the file's code (x86, x64): more of them than replayed queues means
    /// queues that are made later.
    pub queue_sites: Vec<Address>,
    /// Majors of the dispatch table that share the device-control routine.
    pub also_majors: Vec<u8>,
}

/// Every device-control entry that `replay` shows, and what the file alone shows where it shows none.
#[must_use]
pub fn discover(image: &PlacedImage, replay: &Replay) -> Entries {
    let mut found = Entries::default();
    let inside = |address: Option<Address>| address.filter(|a| image.contains(a.0));
    if let Some(dispatch) = &replay.dispatch {
        for major in CONTROL_MAJORS {
            if let Some(address) = inside(dispatch.get(usize::from(major)).copied().flatten()) {
                add(&mut found, address, EntryKind::Wdm, major, EntrySource::Replay);
            }
        }
        let control = dispatch.get(0x0e).copied().flatten();
        if control.is_some() {
            found.also_majors =
                (0u8..).zip(dispatch).filter(|&(m, a)| m != 0x0e && *a == control).map(|(m, _)| m).collect();
        }
    }
    if let Some(address) = replay.fast_io.as_ref().and_then(|f| inside(f.device_control)) {
        add(&mut found, address, EntryKind::FastIo, 0x0e, EntrySource::Replay);
    }
    let Some(calls) = &replay.framework else {
        found.bind = framework::static_bind(image);
        add_static(image, &mut found);
        return found;
    };
    found.bind = calls.bind.clone().or_else(|| framework::static_bind(image));
    for queue in &calls.queues {
        let callbacks = [
            (queue.device_control, EntryKind::WdfDeviceControl, 0x0e),
            (queue.internal_device_control, EntryKind::WdfInternalDeviceControl, 0x0f),
            (queue.io_default, EntryKind::WdfDefault, 0x0e),
        ];
        for (address, kind, major) in callbacks {
            if let Some(address) = inside(address) {
                add(&mut found, address, kind, major, EntrySource::Replay);
            }
        }
        found.manual_queue |= queue.dispatch_type == crate::record::DispatchType::Manual;
    }
    if let Some(address) = inside(calls.in_caller_context) {
        add(&mut found, address, EntryKind::WdfInCallerContext, 0x0e, EntrySource::Replay);
    }
    for preprocess in calls.preprocess.iter().filter(|p| CONTROL_MAJORS.contains(&p.major)) {
        if let Some(address) = inside(Some(preprocess.address)) {
            add(&mut found, address, EntryKind::WdfPreprocess, preprocess.major, EntrySource::Replay);
        }
    }
    add_static(image, &mut found);
    found
}

/// The file's own queue configurations: their callbacks where the replay showed no entry at all.
fn add_static(image: &PlacedImage, found: &mut Entries) {
    let Some(bind) = found.bind.clone() else { return };
    let none = found.entries.is_empty();
    for site in framework::queue_sites(image, &bind) {
        found.queue_sites.push(Address(site.at));
        found.manual_queue |= site.manual;
        for (address, kind, major) in site.callbacks {
            if none {
                add(found, address, kind, major, EntrySource::Static);
            }
        }
    }
}

fn add(found: &mut Entries, address: Address, kind: EntryKind, major: u8, source: EntrySource) {
    if !found.entries.iter().any(|e| e.address == address && e.kind == kind) {
        found.entries.push(Entry { address, kind, source, major });
    }
}
