//! Runs our own test drivers in this process and tries control codes on them: the exact oracle of
//! `ioctl_map`. Development only; x86-64 Unix hosts only, since the drivers' code is executed as it is.

#[cfg(all(unix, target_arch = "x86_64"))]
mod driver;
#[cfg(all(unix, target_arch = "x86_64"))]
pub mod image;
#[cfg(all(unix, target_arch = "x86_64"))]
mod kernel;

#[cfg(all(unix, target_arch = "x86_64"))]
pub use driver::{Driver, Lengths};
