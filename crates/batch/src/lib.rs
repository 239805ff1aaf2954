//! `debug_batch` without an engine: what a batch is, what is refused before it begins, and the
//! executor that runs it over a [`Subject`] (spec 20 section 2).
//!
//! A batch patches, arms, resumes, checks and restores as one operation, so that its cleanup runs on
//! every path on which it can still be aimed at the target it was written for. [`parse`] refuses what
//! must not begin, [`Budget::of`] splits the caller's time, [`run`] executes, [`Report`] says what
//! happened and [`render`] says it in words.

mod act;
mod budget;
mod capture;
mod changes;
mod check;
mod clip;
mod execute;
mod parse;
mod render;
mod report;
mod step;
mod subject;
mod undo;
mod validate;

pub use budget::{Budget, FLOOR_MS, TooLittle};
pub use changes::{Change, changes};
pub use execute::{NotBegun, run};
pub use parse::{Nearest, parse};
pub use render::render;
pub use report::{After, Outcome, Report, RestoreRow, Rollback, Row, StepResult, TargetState};
pub use step::{Batch, Check, CheckKind, Op, Restore, Step};
pub use subject::{Done, Failure, Identity, Probe, Subject, Unidentified};
