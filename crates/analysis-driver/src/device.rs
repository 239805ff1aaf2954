//! `DEVICE_OBJECT` and its stack (spec 40 section 9.3).

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use target::{Address, Code, Halt, MemoryExt as _, Result, Target};

use crate::device_types::device_type_name;
use crate::failure::{because, unreadable};
use crate::layout::{DeviceLayout, DriverLayout, LayoutSource, Private};
use crate::locations::Locations;
use crate::names::{DO_EXCLUSIVE, SECURE_OPEN, characteristics, device_flags, printable, with_names};

/// Whose device it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DriverRef {
    /// Absent where it is reconstructed: there is no object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<Address>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub module: Option<String>,
}

/// Place in the stack, seen from the device asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum Relation {
    Above,
    #[serde(rename = "self")]
    Own,
    Below,
}

/// A device of the stack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StackEntry {
    pub address: Address,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver_name: Option<String>,
    pub relation: Relation,
}

/// A device object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeviceObject {
    /// Absent where it is reconstructed: there is no object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<Address>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub followed_links: Vec<String>,
    pub driver: DriverRef,
    pub device_type: Code,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_type_name: Option<String>,
    pub characteristics: Code,
    pub characteristic_names: Vec<String>,
    pub secure_open: bool,
    pub flags: Code,
    pub flag_names: Vec<String>,
    pub exclusive: bool,
    pub stack_size: u8,
    pub reference_count: u32,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub type_field_unexpected: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extension: Option<Address>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vpb: Option<Address>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_irp: Option<Address>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub security_descriptor: Option<Address>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stack: Vec<StackEntry>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stack_note: Option<String>,
    pub layout_source: LayoutSource,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub layout_mismatch: Vec<String>,
}

const DEVICE_TYPE: u16 = 3;
const MAX_STACK: usize = 32;

pub(crate) fn driver_ref(target: &dyn Target, address: u64, locations: &Locations<'_>) -> DriverRef {
    let layout = DriverLayout::of(target);
    let width = target.facts().machine.pointer_size();
    let name = target.read_unicode_string(address.wrapping_add(layout.name), width).ok();
    let start = target.read_pointer(address.wrapping_add(layout.start), width).ok();
    let module = start.and_then(|start| locations.module(start).ok().flatten().map(|m| m.name.clone()));
    DriverRef { address: Some(Address(address)), name: name.and_then(|name| printable(&name)), module }
}

/// The device object at `address`.
///
/// # Errors
/// `unreadable`, or `not_a_device_object` with what was seen there.
pub fn read_device(target: &dyn Target, address: u64, stack: bool, halt: &Halt) -> Result<DeviceObject> {
    let layout = DeviceLayout::of(target);
    let width = target.facts().machine.pointer_size();
    let lost = |error| unreadable("the device object", error);
    let word = |at: u64| target.read_u32(address.wrapping_add(at)).map_err(lost);
    let pointer = |at: u64| target.read_pointer(address.wrapping_add(at), width).map_err(lost);
    let kind = target.read_u16(address).map_err(lost)?;
    let driver = pointer(layout.driver)?;
    let locations = Locations::new(target);
    let driver = driver_ref(target, driver, &locations);
    if kind != DEVICE_TYPE && driver.module.is_none() {
        return Err(because(
            "not_a_device_object",
            format!(
                "what is at {address:#018x} is not a device object: Type {kind:#x} (not 3), and its driver {} names no loaded image",
                driver.address.unwrap_or_default()
            ),
        ));
    }
    let device_type = word(layout.device_type)?;
    let (flags, marks) = (word(layout.flags)?, word(layout.characteristics)?);
    let some = |value: u64| (value != 0).then_some(Address(value));
    let mut out = DeviceObject {
        address: Some(Address(address)),
        path: None,
        followed_links: Vec::new(),
        driver,
        device_type: Code(device_type),
        device_type_name: device_type_name(device_type).map(ToOwned::to_owned),
        characteristics: Code(marks),
        characteristic_names: characteristics(marks),
        secure_open: marks & SECURE_OPEN != 0,
        flags: Code(flags),
        flag_names: device_flags(flags),
        exclusive: flags & DO_EXCLUSIVE != 0,
        stack_size: target.read_u8(address.wrapping_add(layout.stack_size)).map_err(lost)?,
        reference_count: word(layout.reference_count)?,
        type_field_unexpected: kind != DEVICE_TYPE,
        extension: some(pointer(layout.extension)?),
        vpb: some(pointer(layout.vpb)?),
        current_irp: some(pointer(layout.current_irp)?),
        security_descriptor: some(pointer(layout.security_descriptor)?),
        stack: Vec::new(),
        stack_note: None,
        layout_source: layout.source,
        layout_mismatch: layout.mismatch.clone(),
    };
    if stack {
        walk_stack(target, address, &layout, &locations, &mut out, halt);
    }
    Ok(out)
}

fn walk_stack(
    target: &dyn Target,
    address: u64,
    layout: &DeviceLayout,
    locations: &Locations<'_>,
    out: &mut DeviceObject,
    halt: &Halt,
) {
    let width = target.facts().machine.pointer_size();
    let mut seen = BTreeSet::from([address]);
    let mut notes = Vec::new();
    let entry = |device: u64, relation: Relation| {
        let driver = target.read_pointer(device.wrapping_add(layout.driver), width).ok();
        StackEntry {
            address: Address(device),
            driver_name: driver.and_then(|driver| driver_ref(target, driver, locations).name),
            relation,
        }
    };
    let mut climb = |from: u64, relation: Relation, next: &dyn Fn(u64) -> Option<u64>| {
        let mut rows = Vec::new();
        let mut device = from;
        loop {
            match next(device) {
                Some(0) => break,
                None => {
                    notes.push(format!(
                        "the device {device:#x} does not read; what lies beyond it is unknown"
                    ));
                    break;
                }
                Some(_) if halt.stop().is_some() => {
                    notes.push("the walk was cut short".to_owned());
                    break;
                }
                Some(other) if rows.len() >= MAX_STACK || !seen.insert(other) => {
                    notes.push("the stack is longer than 32 devices or leads round".to_owned());
                    break;
                }
                Some(other) => {
                    rows.push(entry(other, relation));
                    device = other;
                }
            }
        }
        rows
    };
    let attached = |device: u64| target.read_pointer(device.wrapping_add(layout.attached), width).ok();
    let mut above = climb(address, Relation::Above, &attached);
    above.reverse();
    let below = match Private::of(target, "_DEVOBJ_EXTENSION")
        .and_then(|private| private.offset("AttachedTo"))
    {
        Ok(offset) => climb(address, Relation::Below, &|device| {
            let extension = target.read_pointer(device.wrapping_add(layout.object_extension), width).ok()?;
            if extension == 0 {
                return Some(0);
            }
            target.read_pointer(extension.wrapping_add(offset), width).ok()
        }),
        Err(error) => {
            notes.push(format!("devices below are unknown: {error}"));
            Vec::new()
        }
    };
    out.stack = above;
    out.stack.push(entry(address, Relation::Own));
    out.stack.extend(below);
    out.stack_note = (!notes.is_empty()).then(|| notes.join("; "));
}

/// The text half.
#[must_use]
pub fn render_device(device: &DeviceObject) -> String {
    let at = device.address.map_or_else(|| "(reconstructed)".to_owned(), |at| at.to_string());
    let mut text = format!("Device object {at}");
    if let Some(path) = &device.path {
        text.push_str(&format!(" {path}"));
    }
    for link in &device.followed_links {
        text.push_str(&format!("\nfollowed the link {link}"));
    }
    text.push_str(&format!(
        "\ndriver {} {}\ntype {:#x} {}; characteristics {}; flags {}\nstack size {}, {} references{}{}",
        device.driver.name.as_deref().or(device.driver.module.as_deref()).unwrap_or("(name unreadable)"),
        device.driver.address.map(|at| at.to_string()).unwrap_or_default(),
        device.device_type.0,
        device.device_type_name.as_deref().unwrap_or("(vendor)"),
        with_names(device.characteristics, &device.characteristic_names),
        with_names(device.flags, &device.flag_names),
        device.stack_size,
        device.reference_count,
        if device.exclusive { ", exclusive" } else { "" },
        if device.secure_open {
            ""
        } else {
            "; without FILE_DEVICE_SECURE_OPEN: its descriptor does not guard paths beneath its name"
        },
    ));
    if let Some(at) = device.security_descriptor {
        text.push_str(&format!("\nsecurity descriptor at {at}"));
    }
    for row in &device.stack {
        let place = match row.relation {
            Relation::Above => "above",
            Relation::Own => "this ",
            Relation::Below => "below",
        };
        text.push_str(&format!("\n{place} {} {}", row.address, row.driver_name.as_deref().unwrap_or("")));
    }
    if let Some(note) = &device.stack_note {
        text.push_str(&format!("\n{note}"));
    }
    text
}
