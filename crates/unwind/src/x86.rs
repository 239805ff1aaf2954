//! x86 frames.

use target::Context;

use crate::source::UnwindSource;
use crate::step::{Step, StepError};

/// One step.
pub fn step(
    source: &dyn UnwindSource,
    context: &Context,
    frame_index: usize,
    exact_ip: bool,
) -> Result<Step, StepError> {
    let _ = (source, exact_ip, frame_index);
    Err(StepError::NoUnwindData { ip: context.ip() })
}
