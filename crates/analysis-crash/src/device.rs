//! A blocked power IRP and the device stack it waits in (0x9F). Offsets are those of the WDK's public
//! structures on 64-bit Windows, which have not moved since Vista.

use target::{Attribution, Halt, MemoryExt as _, Target, TargetExt as _, base_name};

use crate::layout::offset;
use crate::leads::kernel_pointer;

/// What a blocked IRP says.
#[derive(Clone, Debug, Default)]
pub(crate) struct BlockedIrp {
    pub(crate) major: u8,
    pub(crate) minor: u8,
    /// `\Driver\RtsPer` without the folder.
    pub(crate) driver: Option<String>,
    /// The driver's module.
    pub(crate) module: Option<String>,
    /// Image of the PDO's driver (`pci.sys`).
    pub(crate) pdo_image: Option<String>,
    /// Driver names from the PDO upwards.
    pub(crate) stack: Vec<String>,
    pub(crate) instance_path: Option<String>,
}

const IRP_TYPE: u16 = 6;
const IRP_CURRENT_STACK_LOCATION: u64 = 0xb8;
const STACK_LOCATION_DEVICE: u64 = 0x28;
const DEVICE_DRIVER: u64 = 8;
const DEVICE_ATTACHED: u64 = 0x18;
const DEVICE_EXTENSION: u64 = 0x138;
const EXTENSION_NODE: u64 = 0x28;
const DRIVER_START: u64 = 0x18;
const DRIVER_NAME: u64 = 0x38;
/// Devices in one stack at most.
const STACK_LIMIT: usize = 16;

impl BlockedIrp {
    /// `IRP_MJ_POWER/IRP_MN_SET_POWER`.
    pub(crate) fn function(&self) -> String {
        match (self.major, self.minor) {
            (0x16, 0) => "IRP_MJ_POWER/IRP_MN_WAIT_WAKE".into(),
            (0x16, 1) => "IRP_MJ_POWER/IRP_MN_POWER_SEQUENCE".into(),
            (0x16, 2) => "IRP_MJ_POWER/IRP_MN_SET_POWER".into(),
            (0x16, 3) => "IRP_MJ_POWER/IRP_MN_QUERY_POWER".into(),
            (0x1b, minor) => format!("IRP_MJ_PNP/{minor:#x}"),
            (major, minor) => format!("major {major:#x}, minor {minor:#x}"),
        }
    }
}

/// Follows `irp` to the driver it waits in, and `pdo` up its device stack.
pub(crate) fn blocked_irp(target: &dyn Target, irp: u64, pdo: u64, halt: &Halt) -> Option<BlockedIrp> {
    if target.facts().machine.pointer_size() != 8 || target.read_u16(irp).ok()? != IRP_TYPE {
        return None;
    }
    let location = kernel_pointer(target, irp.checked_add(IRP_CURRENT_STACK_LOCATION)?)?;
    let mut out = BlockedIrp {
        major: target.read_u8(location).ok()?,
        minor: target.read_u8(location.checked_add(1)?).ok()?,
        ..BlockedIrp::default()
    };
    if let Some(device) = kernel_pointer(target, location.checked_add(STACK_LOCATION_DEVICE)?) {
        (out.driver, out.module) = driver_of(target, device);
    }
    let mut device = Some(pdo);
    while let Some(at) = device
        && out.stack.len() < STACK_LIMIT
        && halt.stop().is_none()
    {
        let (name, module) = driver_of(target, at);
        if out.stack.is_empty() {
            out.pdo_image = module.as_deref().and_then(|m| image_of(target, m));
        }
        let Some(label) = name.or(module) else { break };
        out.stack.push(label);
        device = at.checked_add(DEVICE_ATTACHED).and_then(|a| kernel_pointer(target, a));
    }
    out.instance_path = instance_path(target, pdo);
    Some(out)
}

fn driver_of(target: &dyn Target, device: u64) -> (Option<String>, Option<String>) {
    let Some(driver) = device.checked_add(DEVICE_DRIVER).and_then(|a| kernel_pointer(target, a)) else {
        return (None, None);
    };
    let name = driver.checked_add(DRIVER_NAME).and_then(|a| target.read_unicode_string(a, 8).ok());
    let name = name.map(|n| base_name(&n).to_owned()).filter(|n| !n.is_empty());
    let start = driver.checked_add(DRIVER_START).and_then(|a| kernel_pointer(target, a));
    let module = start.and_then(|start| match target.attribute(start) {
        Attribution::Module { name, .. } => Some(name),
        _ => None,
    });
    (name, module)
}

fn image_of(target: &dyn Target, module: &str) -> Option<String> {
    target.module_named(module).ok()?.map(|m| m.image_name)
}

fn instance_path(target: &dyn Target, pdo: u64) -> Option<String> {
    let at = offset(target, "_DEVICE_NODE", "InstancePath")?;
    let extension = kernel_pointer(target, pdo.checked_add(DEVICE_EXTENSION)?)?;
    let node = kernel_pointer(target, extension.checked_add(EXTENSION_NODE)?)?;
    target.read_unicode_string(node.checked_add(at)?, 8).ok().filter(|p| !p.is_empty())
}
