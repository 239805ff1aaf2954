//! Tools of group `ioctl`.

mod code_image;
mod control_entries;
mod decode_ioctl;
mod device_object;
mod device_security;
mod driver_hazards;
mod driver_object;
mod driver_surface;
mod hazard_findings;
mod ioctl_map;
mod ioctl_trace;
mod irp_stack;
mod reachable_from_dispatch;
mod xrefs_to;

use crate::tool::{Group, ToolEntry};

/// The group's tools in `tools/list` order.
pub(crate) fn tools() -> Vec<ToolEntry> {
    vec![
        ToolEntry::pure::<decode_ioctl::DecodeIoctl>(Group::Ioctl),
        ToolEntry::worker::<driver_object::DriverObjectTool>(Group::Ioctl),
        ToolEntry::worker::<device_object::DeviceObjectTool>(Group::Ioctl),
        ToolEntry::worker::<irp_stack::IrpStackTool>(Group::Ioctl),
        ToolEntry::worker::<ioctl_trace::IoctlTrace>(Group::Ioctl),
        ToolEntry::worker::<reachable_from_dispatch::ReachableFromDispatch>(Group::Ioctl),
        ToolEntry::worker::<driver_hazards::DriverHazards>(Group::Ioctl),
        ToolEntry::worker::<ioctl_map::IoctlMapTool>(Group::Ioctl),
        ToolEntry::worker::<xrefs_to::XrefsTo>(Group::Ioctl),
        ToolEntry::worker::<device_security::DeviceSecurityTool>(Group::Ioctl),
        ToolEntry::worker::<driver_surface::DriverSurface>(Group::Ioctl),
    ]
}
