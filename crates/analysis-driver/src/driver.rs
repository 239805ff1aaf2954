//! `DRIVER_OBJECT`: dispatch table, image, devices (spec 40 section 9.2).

use std::collections::{BTreeMap, BTreeSet};

use code_flow::{CodeLocation, ImageRecord, SectionState};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use target::{Address, Code, Halt, MemoryExt as _, Result, Target, TargetExt as _};

use crate::failure::{because, unreadable};
use crate::layout::{DeviceLayout, DriverLayout, LayoutSource};
use crate::locations::Locations;
use crate::names::{
    DEVICE_CONTROL, DRVO_INITIALIZED, INTERNAL_DEVICE_CONTROL, driver_flags, major_name, printable,
    with_names,
};

/// What a dispatch entry points at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum HandlerKind {
    /// Inside the driver's own image.
    Own,
    /// The kernel's routine that refuses requests.
    KernelDefault,
    /// KMDF's dispatcher.
    Framework,
    OtherModule,
    NoModule,
    Null,
    /// Never set: what a replayed DriverEntry left alone.
    Unset,
}

/// Where the record came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum ObjectSource {
    Target,
    Replay,
}

/// One major function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DispatchEntry {
    pub index: u8,
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handler: Option<CodeLocation>,
    pub kind: HandlerKind,
}

/// Majors that share a handler.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HandlerGroup {
    pub handler: Address,
    pub majors: Vec<u8>,
    pub owned: bool,
}

/// The dispatch table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DispatchTable {
    pub status: SectionState,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    pub major_count: u64,
    pub entries: Vec<DispatchEntry>,
    pub groups: Vec<HandlerGroup>,
    /// `majority`: the kernel's default was told by how many entries share it, not by its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_control: Option<CodeLocation>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub internal_device_control: Option<CodeLocation>,
}

/// What ended a device chain before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum ChainStop {
    Deadline,
    Interrupted,
    Unreadable,
    Cycle,
    Capped,
}

/// The driver's devices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeviceChain {
    pub status: SectionState,
    pub addresses: Vec<Address>,
    /// Of devices that are reconstructed: their names where they have one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    pub device_count: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<ChainStop>,
}

/// The driver's image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DriverImage {
    pub base: Address,
    pub size: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub module: Option<String>,
}

/// A driver object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DriverObject {
    /// Absent where it is reconstructed: there is no object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<Address>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub layout_source: LayoutSource,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub layout_mismatch: Vec<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub type_field_unexpected: bool,
    pub flags: Code,
    pub flag_names: Vec<String>,
    pub image: DriverImage,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub init: Option<CodeLocation>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_io: Option<CodeLocation>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unload: Option<CodeLocation>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fast_io: Option<Address>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub add_device: Option<CodeLocation>,
    pub dispatch: DispatchTable,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub framework: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub devices: Option<DeviceChain>,
    pub source: ObjectSource,
    pub images: Vec<ImageRecord>,
}

/// `DRIVER_OBJECT.Type`.
const DRIVER_TYPE: u16 = 4;
const FRAMEWORK_IMAGE: &str = "wdf01000";

/// The driver object at `address`.
///
/// # Errors
/// `unreadable`, or `not_a_driver_object` with what was seen there.
pub fn read_driver(
    target: &dyn Target,
    address: u64,
    path: Option<String>,
    max_devices: Option<usize>,
    halt: &Halt,
) -> Result<DriverObject> {
    let layout = DriverLayout::of(target);
    let width = target.facts().machine.pointer_size();
    let pointer = |at: u64| target.read_pointer(address.wrapping_add(at), width);
    let lost = |error| unreadable("the driver object", error);
    let kind = target.read_u16(address).map_err(lost)?;
    let size = u64::from(target.read_u16(address.wrapping_add(2)).map_err(lost)?);
    let start = pointer(layout.start).map_err(lost)?;
    let image_size = u64::from(target.read_u32(address.wrapping_add(layout.image_size)).map_err(lost)?);
    let mut locations = Locations::new(target);
    let module = locations.module(start).ok().flatten().filter(|m| m.base == start).cloned();
    if kind != DRIVER_TYPE && module.is_none() {
        return Err(because(
            "not_a_driver_object",
            format!(
                "what is at {address:#018x} is not a driver object: Type {kind:#x} (not 4), Size {size:#x}, DriverStart {start:#x} is no module's base"
            ),
        ));
    }
    let flags = target.read_u32(address.wrapping_add(layout.flags)).map_err(lost)?;
    let mut code = |at: u64| match pointer(at) {
        Ok(0) | Err(_) => None,
        Ok(to) => Some(locations.at(to)),
    };
    let (init, start_io, unload) = (code(layout.init), code(layout.start_io), code(layout.unload));
    let add_device = pointer(layout.extension)
        .ok()
        .filter(|extension| *extension != 0)
        .and_then(|extension| target.read_pointer(extension.wrapping_add(u64::from(width)), width).ok())
        .filter(|to| *to != 0)
        .map(|to| locations.at(to));
    let own = Extent { start, size: image_size };
    let mut dispatch = read_dispatch(target, address, &layout, size, own, &mut locations);
    if init.is_some()
        && flags & DRVO_INITIALIZED == 0
        && !dispatch.entries.iter().any(|e| e.kind == HandlerKind::Own)
    {
        dispatch.note = Some(
            "DriverEntry has not run to its end: the table still holds no routine of the driver".to_owned(),
        );
    }
    let framework = (!dispatch.entries.is_empty()
        && dispatch.entries.iter().all(|entry| entry.kind == HandlerKind::Framework))
    .then(|| "kmdf".to_owned());
    if framework.is_some() {
        dispatch.note = Some(
            "every entry is the framework's; the driver's own callbacks are not in this table".to_owned(),
        );
    }
    let devices =
        max_devices.map(|max| read_chain(target, pointer(layout.device_object).unwrap_or(0), max, halt));
    if let Some(module) = &module {
        locations.note(module);
    }
    Ok(DriverObject {
        address: Some(Address(address)),
        path,
        // The one read that may fail quietly: a name is an ornament here.
        name: target
            .read_unicode_string(address.wrapping_add(layout.name), width)
            .ok()
            .and_then(|name| printable(&name)),
        layout_source: layout.source,
        layout_mismatch: layout.mismatch.clone(),
        type_field_unexpected: kind != DRIVER_TYPE,
        flags: Code(flags),
        flag_names: driver_flags(flags),
        image: DriverImage { base: Address(start), size: image_size, module: module.map(|m| m.name) },
        init,
        start_io,
        unload,
        fast_io: pointer(layout.fast_io).ok().filter(|to| *to != 0).map(Address),
        add_device,
        dispatch,
        framework,
        devices,
        source: ObjectSource::Target,
        images: locations.images(),
    })
}

/// Where the driver's own code lies; a zero size owns nothing.
#[derive(Clone, Copy)]
struct Extent {
    start: u64,
    size: u64,
}

impl Extent {
    fn holds(self, address: u64) -> bool {
        address >= self.start && address - self.start < self.size
    }
}

/// How many majors the object has room for: derived, and held to what can be.
fn major_count(size: u64, layout: &DriverLayout, width: u64) -> u64 {
    let room = size.min(0x1000).saturating_sub(layout.major_function) / width;
    if (1..=64).contains(&room) { room } else { 28 }
}

fn read_dispatch(
    target: &dyn Target,
    address: u64,
    layout: &DriverLayout,
    size: u64,
    own: Extent,
    locations: &mut Locations<'_>,
) -> DispatchTable {
    let width = target.facts().machine.pointer_size();
    let count = major_count(size, layout, u64::from(width));
    let table = address.wrapping_add(layout.major_function);
    let mut handlers: Vec<(u8, u64)> = Vec::new();
    let mut unread = None;
    for index in 0..count {
        let at = table.wrapping_add(index * u64::from(width));
        match target.read_pointer(at, width) {
            Ok(handler) => handlers.push((u8::try_from(index).unwrap_or(u8::MAX), handler)),
            Err(error) => {
                unread.get_or_insert(error);
            }
        }
    }
    let (default, basis) = kernel_default(target, &handlers, own);
    let mut groups: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    let mut entries = Vec::new();
    for (index, handler) in handlers {
        let kind = classify(handler, own, default, locations);
        if handler != 0 {
            groups.entry(handler).or_default().push(index);
        }
        entries.push(DispatchEntry {
            index,
            name: major_name(index),
            handler: (handler != 0).then(|| locations.at(handler)),
            kind,
        });
    }
    let of =
        |major: u8| entries.iter().find(|entry| entry.index == major).and_then(|entry| entry.handler.clone());
    let (device_control, internal_device_control) = (of(DEVICE_CONTROL), of(INTERNAL_DEVICE_CONTROL));
    DispatchTable {
        status: match (&unread, entries.is_empty()) {
            (None, _) => SectionState::Ok,
            (Some(_), true) => SectionState::Unavailable,
            (Some(_), false) => SectionState::Partial,
        },
        note: unread.map(|error| format!("part of the table did not read: {error}")),
        major_count: count,
        entries,
        groups: groups
            .into_iter()
            .map(|(handler, majors)| HandlerGroup {
                handler: Address(handler),
                majors,
                owned: own.holds(handler),
            })
            .collect(),
        basis,
        device_control,
        internal_device_control,
    }
}

/// The kernel's refusing routine: by name, else the one address of the kernel most majors share.
fn kernel_default(target: &dyn Target, handlers: &[(u8, u64)], own: Extent) -> (Option<u64>, Option<String>) {
    if let Some(hit) =
        target.resolve("nt!IopInvalidDeviceRequest").ok().and_then(|hits| hits.first().cloned())
    {
        return (Some(hit.address), None);
    }
    let nt = target.module_named("nt").ok().flatten();
    let mut votes: BTreeMap<u64, usize> = BTreeMap::new();
    for (_, handler) in handlers {
        if !own.holds(*handler) && nt.as_ref().is_some_and(|nt| nt.contains(*handler)) {
            *votes.entry(*handler).or_default() += 1;
        }
    }
    let most = votes.values().copied().max().unwrap_or(0);
    let mut winners = votes.iter().filter(|(_, count)| **count == most);
    match (winners.next(), winners.next()) {
        (Some((address, _)), None) if most >= 2 => (Some(*address), Some("majority".to_owned())),
        _ => (None, None),
    }
}

fn classify(handler: u64, own: Extent, default: Option<u64>, locations: &Locations<'_>) -> HandlerKind {
    if handler == 0 {
        return HandlerKind::Null;
    }
    if own.holds(handler) {
        return HandlerKind::Own;
    }
    if default == Some(handler) {
        return HandlerKind::KernelDefault;
    }
    match locations.module(handler) {
        Ok(Some(module)) if module.name.eq_ignore_ascii_case(FRAMEWORK_IMAGE) => HandlerKind::Framework,
        Ok(Some(_)) => HandlerKind::OtherModule,
        _ => HandlerKind::NoModule,
    }
}

/// Follows `NextDevice`. A driver can write the chain, so visits are remembered and counted; an
/// unreadable device is listed, then ends the walk.
pub(crate) fn read_chain(target: &dyn Target, first: u64, max: usize, halt: &Halt) -> DeviceChain {
    let layout = DeviceLayout::of(target);
    let width = target.facts().machine.pointer_size();
    let (mut addresses, mut seen, mut stopped) = (Vec::new(), BTreeSet::new(), None);
    let mut device = first;
    while device != 0 {
        if let Some(stop) = halt.stop() {
            stopped = Some(match stop {
                target::halt::Stop::Deadline => ChainStop::Deadline,
                target::halt::Stop::Interrupted => ChainStop::Interrupted,
            });
            break;
        }
        if !seen.insert(device) {
            stopped = Some(ChainStop::Cycle);
            break;
        }
        if addresses.len() >= max {
            stopped = Some(ChainStop::Capped);
            break;
        }
        addresses.push(Address(device));
        match target.read_pointer(device.wrapping_add(layout.next), width) {
            Ok(next) => device = next,
            Err(_) => {
                stopped = Some(ChainStop::Unreadable);
                break;
            }
        }
    }
    DeviceChain {
        status: if stopped.is_some() { SectionState::Partial } else { SectionState::Ok },
        device_count: addresses.len() as u64,
        addresses,
        names: Vec::new(),
        stopped,
    }
}

/// The text half.
#[must_use]
pub fn render_driver(driver: &DriverObject) -> String {
    let mut text = format!("Driver object {}", driver.address.unwrap_or_default());
    let name = driver.name.as_ref().filter(|name| driver.path.as_ref() != Some(name));
    for part in [driver.path.as_ref(), name].into_iter().flatten() {
        text.push_str(&format!(" {part}"));
    }
    if driver.source == ObjectSource::Replay {
        text = format!(
            "Driver object, reconstructed: what DriverEntry of {} does under stubs",
            driver.image.module.as_deref().unwrap_or("the image")
        );
    }
    text.push_str(&format!(
        "\nimage {} at {}, {:#x} bytes; flags {}",
        driver.image.module.as_deref().unwrap_or("(no known module)"),
        driver.image.base,
        driver.image.size,
        with_names(driver.flags, &driver.flag_names)
    ));
    if driver.type_field_unexpected {
        text.push_str("\nThe type field is not that of a driver object; the image it names is loaded.");
    }
    for mismatch in &driver.layout_mismatch {
        text.push_str(&format!("\nlayout: {mismatch}"));
    }
    for (label, at) in [
        ("init", &driver.init),
        ("start_io", &driver.start_io),
        ("unload", &driver.unload),
        ("add_device", &driver.add_device),
    ] {
        if let Some(at) = at {
            text.push_str(&format!("\n{label}: {}", at.describe()));
        }
    }
    if let Some(fast_io) = driver.fast_io {
        text.push_str(&format!("\nfast I/O dispatch at {fast_io}"));
    }
    if let Some(note) = &driver.dispatch.note {
        text.push_str(&format!("\n{note}"));
    }
    for group in &driver.dispatch.groups {
        let entry = driver
            .dispatch
            .entries
            .iter()
            .find(|e| e.handler.as_ref().is_some_and(|h| h.address == group.handler));
        let (at, kind) = entry.map_or((group.handler.to_string(), HandlerKind::NoModule), |entry| {
            (entry.handler.as_ref().map(CodeLocation::describe).unwrap_or_default(), entry.kind)
        });
        let majors: Vec<String> =
            group.majors.iter().map(|major| major_name(*major).replace("IRP_MJ_", "")).collect();
        text.push_str(&format!("\n{at} ({}): {}", kind_word(kind), majors.join(" ")));
    }
    if let Some(devices) = &driver.devices {
        let list: Vec<String> =
            devices.addresses.iter().map(ToString::to_string).chain(devices.names.iter().cloned()).collect();
        text.push_str(&format!("\n{} devices: {}", devices.device_count, list.join(" ")));
        if let Some(stopped) = devices.stopped {
            text.push_str(&format!(" (the walk ended early: {stopped:?})").to_lowercase());
        }
    }
    text
}

fn kind_word(kind: HandlerKind) -> &'static str {
    match kind {
        HandlerKind::Own => "own",
        HandlerKind::KernelDefault => "kernel default",
        HandlerKind::Framework => "framework",
        HandlerKind::OtherModule => "other module",
        HandlerKind::NoModule => "no module",
        HandlerKind::Null => "null",
        HandlerKind::Unset => "unset",
    }
}
