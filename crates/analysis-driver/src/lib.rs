//! Driver, device and request objects, the object namespace, security descriptors, and the surface
//! a driver shows: pure functions of a [`target::Target`] (spec 40).

mod access;
mod ace;
mod control_code;
mod descriptor;
mod device_types;
pub mod rights;
mod sddl;
mod sid;

pub use access::{AccessModel, TokenAccess, TokenKind, Verdict, access_model, access_of};
pub use ace::{AceKind, AceRecord};
pub use control_code::{
    Buffers, CodeReading, ControlCode, DecodedCode, Method, RequiredAccess, parse_code, render_code,
};
pub use descriptor::{Acl, DaclState, Descriptor, DescriptorError, DescriptorSource, Integrity, parse_acl};
pub use device_types::device_type_name;
pub use sddl::{SddlError, parse_sddl};
pub use sid::{Sid, integrity_name};
