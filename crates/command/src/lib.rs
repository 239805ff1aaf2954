//! The read-only WinDbg commands, served on any [`target::Target`] (spec 00 decision 27).
//!
//! A [`Session`] keeps what one command leaves for the next: the context `.cxr` set, the frame, where
//! `d` and `u` go on. Output is laid out as WinDbg lays it out, so that eyes and scripts trained on
//! it find their way. [`Session::execute`] changes nothing and refuses by name what would;
//! [`Session::drive`] also changes a live target.

mod address;
mod arithmetic;
mod calendar;
mod catalog;
mod code;
mod dump;
mod dump_text;
mod events;
mod format_value;
mod instruction;
mod kernel;
mod line;
mod live;
mod locals;
mod modules;
mod names;
mod notation;
mod operand;
mod registers;
mod run;
mod search;
mod session;
mod stack;
mod system;
mod threads;
mod types;
mod variables;

pub use live::Live;
pub use notation::{Notation, place_text};
pub use registers::{flags_text, registers_text};
pub use session::Session;
pub use stack::{Columns, stack_text};
