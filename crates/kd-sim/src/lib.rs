//! A synthetic x64 kernel that debuggers attach to: a [`Scenario`] made into a [`Machine`] (memory behind
//! real page tables, processors that execute, scripted events), served over TCP or a Unix socket by
//! [`Simulator`], with packets lost, broken or doubled on demand.
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
