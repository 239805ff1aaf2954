//! Microsoft's DbgEng as a [`target::Target`]. Windows only; the same code serves Linux under Wine.
//!
//! The engine is loaded by full path, created and used on one thread, and asked through its numeric
//! interfaces: operand text never becomes a command.
#![cfg(windows)]

mod engine;
mod execution;
mod layout;
mod library;
mod names;
mod output;
mod stack;
mod symbol;
mod target_impl;

pub use engine::{DbgEng, OpenError, OpenOptions, open_dump};
