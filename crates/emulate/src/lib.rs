//! A concrete interpreter over decoded instructions: x64, x86, ARM64; unknown values stay unknown.
//!
//! [`Emulator`] is a machine: registers, [`Memory`], one [`step`](Emulator::step) at a time. Every bit
//! of a [`Value`] is known or not; what an instruction cannot decide ([`Fork`], [`Call`], [`Stop`]) comes
//! back as an [`Event`] and the caller decides. [`explore`] walks all ways of a routine; [`reaches`]
//! asks whether a control code arrives at an address. Nothing of a data-flow analysis is shared but
//! the x86 decoder; A64 is executed from its encoding.

mod arm64;
mod emulator;
mod explore;
mod memory;
pub mod stack_bytes;
mod value;
mod verify;
mod x86;

pub use emulator::{Call, Emulator, Event, Fork, RSP, Registers, SP_ARM64, Stop, UnknownAddress, Write};
pub use explore::{CallAction, End, Exploration, Host, Limits, RETURN, Visit, explore, return_address};
pub use memory::{Access, Backing, Fault, Memory, Outside, PAGE};
pub use value::{Value, mask};
pub use verify::{Convention, Places, Request, Routine, Verdict, Verification, WdfTable, enter, reaches};
