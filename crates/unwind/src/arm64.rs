//! arm64 frames.

use target::Context;

use crate::source::UnwindSource;
use crate::step::{Step, StepError};

/// One step.
pub fn step(source: &dyn UnwindSource, context: &Context, exact_ip: bool) -> Result<Step, StepError> {
    let _ = (source, exact_ip);
    Err(StepError::NoUnwindData { ip: context.ip() })
}
