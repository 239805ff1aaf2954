//! Driver, device and request objects, the object namespace, security descriptors, and the surface
//! a driver shows: pure functions of a [`target::Target`] (spec 40).

mod control_code;
mod device_types;

pub use control_code::{
    Buffers, CodeReading, ControlCode, DecodedCode, Method, RequiredAccess, parse_code, render_code,
};
pub use device_types::device_type_name;
