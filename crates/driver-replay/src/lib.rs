//! DriverEntry run against stubbed imports: dispatch table, devices, links, KMDF queues.
//!
//! [`replay`] runs a driver's entry in the interpreter of crate `emulate` on a private copy of the image;
//! nothing runs on the host. [`discover`] says where control codes arrive. [`framework_of`] names the
//! framework a driver is written for.

mod entries;
mod framework;
mod image;
mod over_target;
mod record;
mod replay;
mod stack_bytes;
mod wdf_names;
mod world;

pub use entries::{Entries, Entry, EntryKind, EntrySource, discover};
pub use framework::{Framework, Tell, framework_of, static_bind};
pub use image::PlacedImage;
pub use over_target::{framework_in, placed};
pub use record::{
    Bind, Callback, Device, DispatchType, DriverConfig, FastIo, FrameworkCalls, Link, Phase, Preprocess,
    Queue, Replay, ReplayStatus, Run, StoppedAt,
};
pub use replay::{replay, replay_cached};
pub use stack_bytes::stack_bytes;
pub use wdf_names::wdf_function;
