//! The native engine: a [`target::Target`] over dump files and PE images, on any host.
//!
//! [`open`] takes a path. Memory of what was opened is read in one place (`core`): the dump's own
//! bytes, page tables in kernel dumps ([`paging`]), image files behind holes. Symbols load per
//! module when first asked for. Everything works without symbols, better with them.

mod bound;
mod core;
mod dynamic;
mod error;
mod images;
mod kernel;
pub mod live;
mod module_names;
mod native_target;
mod open;
pub mod paging;
mod raw;
mod shared_data;
mod symbolize;
mod user;
mod walk;

pub use error::OpenError;
pub use open::{OpenOptions, open, open_bytes, open_within};
