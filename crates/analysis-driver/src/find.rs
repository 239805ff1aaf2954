//! From what a caller names to the object: the entry points of the tools.

use target::{
    Context, ContextOf, Halt, Machine, MemoryExt as _, Result, Target, TargetError, TargetExt as _,
    TargetKind, View,
};

use crate::device::{DeviceObject, read_device};
use crate::driver::{DriverObject, read_driver};
use crate::failure::because;
use crate::irp::{IrpStack, read_irp};
use crate::offline::{Offline, is_offline};
use crate::operand;

/// The driver object an operand means, on a target with one.
///
/// # Errors
/// As [`read_driver`], and what the namespace says of a name.
pub fn find_driver(
    target: &dyn Target,
    text: &str,
    max_devices: Option<usize>,
    halt: &Halt,
) -> Result<DriverObject> {
    if is_offline(target) {
        let offline = Offline::of(target, halt)?;
        offline.must_be(text)?;
        return Ok(offline.driver(target, max_devices.is_some()));
    }
    let (address, found) = operand::resolve(target, text, &["\\Driver", "\\FileSystem"], halt)?;
    read_driver(target, address, found.map(|found| found.path), max_devices, halt)
}

/// The device object an operand means.
///
/// # Errors
/// As [`read_device`], and what the namespace says of a path.
pub fn find_device(target: &dyn Target, text: &str, stack: bool, halt: &Halt) -> Result<DeviceObject> {
    if is_offline(target) {
        return Offline::of(target, halt)?.describe_device(text);
    }
    let (address, found) = operand::resolve(target, text, &["\\Device", "\\GLOBAL??"], halt)?;
    let mut device = read_device(target, address, stack, halt)?;
    if let Some(found) = found {
        device.path = Some(found.path);
        device.followed_links = found.followed;
    }
    Ok(device)
}

/// The request at an address, or the one the selected context's argument registers hold.
///
/// # Errors
/// As [`read_irp`]; `wrong_target_kind` where there are no registers.
pub fn find_irp(target: &dyn Target, text: Option<&str>, halt: &Halt) -> Result<IrpStack> {
    if target.facts().kind == TargetKind::Image {
        return Err(TargetError::unsupported(
            "unsupported_target",
            "an image has no requests: they are in a dump or a stopped target",
        ));
    }
    if let Some(text) = text {
        return read_irp(target, target.evaluate(text, halt)?);
    }
    let context = target.context(ContextOf::Selected, View::Default)?.ok_or_else(|| {
        TargetError::failed_because(
            "no_context",
            "the target has no registers to take the IRP from; give its address",
        )
    })?;
    let (address, from) = second_argument(target, &context)?;
    let mut out = read_irp(target, address).map_err(|error| {
        let place = target.describe(context.ip());
        because(
            "not_an_irp",
            format!(
                "{error}; the address was taken from {from} at {place}, which holds an IRP only at a dispatch \
                 routine's first instruction: give irp"
            ),
        )
    })?;
    out.assumed_from = Some(from.to_owned());
    let entry = target.function_bounds(context.ip()).ok().flatten().map(|(start, _)| start);
    let named = target.symbol_at(context.ip()).ok().flatten().is_some_and(|hit| hit.displacement == 0);
    if entry != Some(context.ip()) && !named {
        out.warning = Some(format!(
            "not_at_entry: {:#018x} is not the start of a function, and {from} holds the IRP only there",
            context.ip()
        ));
    }
    Ok(out)
}

fn second_argument(target: &dyn Target, context: &Context) -> Result<(u64, &'static str)> {
    let register = |name: &'static str| {
        context.by_name(name).map(|value| (value, name)).ok_or_else(|| {
            TargetError::failed_because(
                "no_context",
                format!("{name} is not known here; give the IRP's address"),
            )
        })
    };
    match target.facts().machine {
        Machine::X64 => register("rdx"),
        Machine::Arm64 => register("x1"),
        _ => Ok((u64::from(target.read_u32(context.sp().wrapping_add(8))?), "[esp+8]")),
    }
}
