//! Builds user and kernel dumps for tests: what is in the file is what the test says.
//!
//! - [`ImageBuilder`] makes PE images whose functions have real prologs, epilogs and unwind data;
//!   [`Image::from_file`] takes compiled ones.
//! - [`StackBuilder`] lays out a stack from the functions' frames: the frames a walk must find are
//!   known by construction.
//! - [`KernelForge`] builds a kernel's memory (page tables, modules, processes, threads, processors,
//!   debugger data) and writes it as any kernel dump type.
//! - [`UserDump`] writes minidumps of x64, x86 and ARM64 processes.

mod bytes;
mod code_arm64;
mod code_x64;
mod debugger_data;
pub mod image;
mod image_layout;
pub mod isf;
pub mod kernel;
mod kernel_write;
pub mod layout;
pub mod paging;
pub mod stack;
mod triage;
pub mod user;

pub use image::{Function, FunctionFacts, Image, ImageBuilder, Position};
pub use kernel::{KernelForge, ProcessHandle, ThreadState};
pub use kernel_write::{DumpType, Encoding};
pub use layout::Layout;
pub use paging::{AddressSpace, Mapping, PhysicalMemory};
pub use stack::{BuiltStack, ExpectedFrame, FrameSpec, StackBuilder};
pub use user::{Content, UserDump, UserException, UserModule, UserThread};
