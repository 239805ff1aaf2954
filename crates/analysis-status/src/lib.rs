//! Status codes, bug checks and fast-fail codes: names, meanings and their many readings.
//!
//! A bare 32-bit status is ambiguous: the same number is a failed HRESULT and an NTSTATUS warning.
//! [`decode`] reports every reading and lets the caller choose; nothing here needs a target.

mod bug_check;
mod decode;
mod fast_fail;
mod heap_failure;
mod messages;
mod parameter_notes;
mod parse;
mod render;
mod tables;

pub use bug_check::{base_code, bug_check_name, is_live_dump};
pub use decode::{
    MessageProvenance, Severity, StatusInfo, StatusNames, StatusSpace, Wraps, decode, exception_name,
};
pub use fast_fail::fast_fail_name;
pub use heap_failure::{heap_failure_bucket, heap_failure_name};
pub use parameter_notes::parameter_notes;
pub use parse::{CodeError, parse_code, parse_integer};
pub use render::render_status;
pub use tables::{Table, code_of_name, names_of, table_len};
