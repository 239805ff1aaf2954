//! Driver, device and request objects, the object namespace, security descriptors, and the surface
//! a driver shows: pure functions of a [`target::Target`] (spec 40).

mod access;
mod ace;
mod control_code;
mod descriptor;
mod device;
mod device_types;
mod driver;
mod failure;
mod find;
mod irp;
mod join;
mod layout;
mod locations;
mod names;
mod namespace;
mod offline;
mod operand;
pub mod rights;
mod sddl;
mod security;
mod sid;
mod trace;

pub use access::{AccessModel, TokenAccess, TokenKind, Verdict, access_model, access_of};
pub use ace::{AceKind, AceRecord};
pub use control_code::{
    Buffers, CodeReading, ControlCode, DecodedCode, Method, RequiredAccess, parse_code, render_code,
};
pub use descriptor::{Acl, DaclState, Descriptor, DescriptorError, DescriptorSource, Integrity, parse_acl};
pub use device::{DeviceObject, DriverRef, Relation, StackEntry, read_device, render_device};
pub use device_types::device_type_name;
pub use driver::{
    ChainStop, DeviceChain, DispatchEntry, DispatchTable, DriverImage, DriverObject, HandlerGroup,
    HandlerKind, ObjectSource, read_driver, render_driver,
};
pub use find::{find_device, find_driver, find_irp};
pub use irp::{
    IrpStack, Parameters, RequestBuffer, RequestorMode, StackLocation, StatusValue, read_irp, render_irp,
};
pub use join::{Join, JoinBounds, JoinRow, ReachedPrivileged, ReachedSink, join};
pub use layout::{
    DeviceLayout, DriverLayout, IrpLayout, LayoutSource, NoTypeInformation, StackLocationLayout,
};
pub use locations::Locations;
pub use names::{major_name, minor_name};
pub use namespace::{Found, LinkTarget, Namespace, ObjectName, global_path, same_path};
pub use offline::{Offline, is_offline};
pub use sddl::{SddlError, parse_sddl};
pub use security::{
    AbsenceKind, DeviceLink, DeviceSecurity, LinkSearch, SecurityAbsent, SecurityRequest, device_security,
    render_security,
};
pub use sid::{Sid, integrity_name};
pub use trace::{Trace, TraceConvention, TraceOptions, TracePage, TraceRecord};
