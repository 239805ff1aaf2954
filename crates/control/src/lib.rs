//! Letting a target move and stopping it again, the same on every engine: runs and steps, run-to,
//! what may be a breakpoint, and what a stop says of itself (spec 10 section 7).
//!
//! Everything is a function of a [`target::Target`] and what it can do; a target that cannot is
//! refused with what could. [`Runs`] is the one thing to keep between runs.

mod breakpoint;
mod inventory;
mod location;
mod observe;
mod output;
mod run;
mod run_to;
mod stop;
mod targets;
mod tokens;

pub use breakpoint::{Change, Wanted, set};
pub use inventory::{
    AccessName, BreakpointRecord, Cleared, Kind, NotCleared, WatchRecord, clear, clear_shown, list,
    list_shown,
};
pub use observe::Observer;
pub use run::{Control, Runs, run};
pub use run_to::{RunTo, Verdict, run_to};
pub use stop::{ExceptionPart, Reason, ReasonKind, StopRecord};
pub use targets::{breakpoints_of, run_of};
pub use tokens::{replaces_target, target_changing};
