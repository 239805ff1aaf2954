//! Microsoft's DbgEng as a `target::Target`. Windows only; the same code serves Linux under Wine.
//!
//! The engine is loaded by full path, created and used on one thread, and asked through its numeric
//! interfaces: operand text never becomes a command. `open_dump`, `launch` and `attach` give a
//! `DbgEng`; a `Breaker` of it breaks in from other threads, as does the flag of a `Halt`.
#![cfg(windows)]

mod break_in;
#[cfg(windows)]
mod breakpoints;
mod callbacks;
mod command;
mod cut_step;
mod engine;
mod execution;
mod exit_code;
mod facts;
mod floating;
mod identity;
mod inject;
mod kernel;
mod kernel_link;
mod layout;
mod library;
mod locals;
mod modules;
mod names;
mod open;
mod output;
mod registers;
mod release;
mod run;
mod scan;
mod stack;
mod symbol;
mod target_impl;
mod watchdog;
pub mod wine;
mod write;

pub use engine::{DbgEng, OpenError};
pub use kernel_link::{KernelLink, attach_kernel};
pub use library::load;
pub use open::{InitialBreak, LaunchOptions, Milestone, OpenOptions, attach, launch, open_dump, processes};
pub use watchdog::Breaker;
