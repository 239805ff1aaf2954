//! A synthetic x64 kernel that debuggers attach to: a [`Scenario`] made into a [`Machine`] (memory behind
//! real page tables, processors that execute, scripted events), served over TCP or a Unix socket by
//! [`Simulator`], with packets lost, broken or doubled on demand.
//!
//! Processors execute what the crate `emulate` knows, one instruction at a time: EFLAGS.TF, `int 3`, the debug
//! registers for code and for writes (one for any access fires on writes only). An instruction that is not
//! known raises 0xC000001D, memory that is not there 0xC0000005.
//!
//! Development only: tests drive it, and the program `kd-sim` serves one scenario.

mod assemble;
mod endpoint;
mod events;
mod faults;
mod machine;
mod memory;
mod processor;
mod record;
mod scenario;

pub use endpoint::{Listen, Report, Simulator, StartError};
pub use events::{Occurrence, Scripted};
pub use faults::{Fault, Injected};
pub use machine::Machine;
pub use record::{Direction, FrameRecord};
pub use scenario::{Code, Hex, ImageFile, ProcessorState, Scenario, ScenarioError};
