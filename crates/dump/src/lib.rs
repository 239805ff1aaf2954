//! Crash dump formats, from bytes to facts: minidumps, legacy user dumps, kernel dumps of every
//! type, and the containers they travel in. Knows nothing of symbols or page tables.
//!
//! Everything in a dump is hostile: offsets and counts are checked against the file, a file that
//! ends early opens with `truncated` set, and no input panics or allocates beyond its own size.

pub mod container;
pub mod error;
mod fields;
mod intervals;
pub mod kdbg;
pub mod kernel;
pub mod map;
pub mod minidump;
mod mistaken;
mod open;
pub mod userdu64;

pub use container::Container;
pub use error::{DumpError, Result};
pub use kdbg::KdDebuggerData;
pub use kernel::{Kernel32, KernelDump};
pub use map::MappedFile;
pub use minidump::Minidump;
pub use open::{DumpFile, OpenedFile, Packed, from_bytes, open, open_within, unpack};
pub use userdu64::UserFull;
