//! One step from a frame to its caller, whatever the machine.

use target::{Context, Found, Machine};

use crate::source::UnwindSource;
use crate::{arm64, x64, x86};

/// The caller of a frame.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Registers in the caller at its return address; only what was restored is valid.
    pub context: Context,
    /// How the caller was found.
    pub found: Found,
    /// Start and end address of the function that was left, if its bounds are known.
    pub bounds: Option<(u64, u64)>,
    /// The frame was pushed by the processor (interrupt, exception): the context is exact, its
    /// instruction has not run yet, and the next step looks up the ip itself.
    pub machine_frame: bool,
}

/// Why there is no caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StepError {
    /// The unwind data ends here: a null return address, or the end of the ebp chain.
    #[error("this is the outermost frame")]
    Outermost,
    #[error("no unwind data for {ip:#x} and it is not the innermost frame; a stack scan may find callers")]
    NoUnwindData { ip: u64 },
    #[error("the unwind data of {ip:#x} is damaged: {what}")]
    Damaged { ip: u64, what: &'static str },
    #[error("the stack at {address:#x} is not readable")]
    StackUnreadable { address: u64 },
    #[error("register {0} is needed to go on and is not known")]
    RegisterUnknown(&'static str),
    #[error("the return address {address:#x} is not in executable memory")]
    NotCode { address: u64 },
    #[error("stacks of {0} are not walked")]
    Machine(&'static str),
}

/// Goes from `context` to its caller. `exact_ip`: the ip is the instruction about to run (frame 0,
/// or after a machine frame), not a return address; only then a function without unwind data is
/// taken for a leaf and epilogs are recognised.
pub fn step(
    source: &dyn UnwindSource,
    context: &Context,
    frame_index: usize,
    exact_ip: bool,
) -> Result<Step, StepError> {
    match context.machine {
        Machine::X64 => x64::step(source, context, exact_ip),
        Machine::Arm64 => arm64::step(source, context, exact_ip),
        Machine::X86 => x86::step(source, context, frame_index, exact_ip),
        Machine::Arm32 => Err(StepError::Machine("arm32")),
    }
}
