//! Stack frames from unwind data, FPO programs, frame pointers and scans; each frame says how it
//! was found, and a scanned one is never mixed with walked ones.
//!
//! An engine implements [`UnwindSource`] and calls [`walk`] (all frames), [`step`] (one caller) or
//! [`scan`] (guesses). Restored registers are valid in a frame's [`Context`](target::Context); registers the caller's
//! value of which is not known are forgotten, never carried over.

pub mod arm64;
mod scan;
pub mod source;
mod step;
mod walk;
pub mod x64;
pub mod x86;

pub use scan::scan;
pub use source::{FrameProgram, ProgramKind, UnwindImage, UnwindSource};
pub use step::{Step, StepError, step};
pub use walk::{RawFrame, RawStack, walk};
