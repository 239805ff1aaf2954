//! One step from a frame to its caller, whatever the machine.

use target::{Context, ContextSource, Found, Machine, MemoryExt, reg};

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
    #[error("no unwind data covers {ip:#x}")]
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
    step_with(source, context, frame_index, exact_ip, 0).map(|(step, _)| step)
}

/// [`step`] with what x86 passes from frame to frame: bytes of parameters the callee was given,
/// which still lie on the stack under the caller's locals.
pub(crate) fn step_with(
    source: &dyn UnwindSource,
    context: &Context,
    frame_index: usize,
    exact_ip: bool,
    callee_parameters: u32,
) -> Result<(Step, u32), StepError> {
    match context.machine {
        Machine::X64 => x64::step(source, context, exact_ip).map(|s| (s, 0)),
        Machine::Arm64 => arm64::step(source, context, exact_ip).map(|s| (s, 0)),
        Machine::X86 => x86::step(source, context, frame_index, exact_ip, callee_parameters),
        Machine::Arm32 => Err(StepError::Machine("arm32")),
    }
}

/// A copy for the caller's registers: volatile ones are forgotten, and with them the vector state,
/// of which only some registers would survive a call.
pub(crate) fn caller_of(context: &Context, volatile: &[usize]) -> Context {
    let mut caller = context.clone();
    caller.source = ContextSource::Unwound;
    caller.vectors = Vec::new();
    caller.x87 = Vec::new();
    for &number in volatile {
        caller.forget(number);
    }
    for number in [reg::FPSW, reg::FPTW].into_iter().filter(|_| context.machine != Machine::Arm64) {
        caller.forget(number);
    }
    caller
}

/// Whether a call ends at `address`, `None` when the bytes before it are not readable.
pub(crate) fn call_before(source: &dyn UnwindSource, machine: Machine, address: u64) -> Option<bool> {
    let want: usize = if machine == Machine::Arm64 { 4 } else { 8 };
    for length in [want, 7, 6, 5, 2] {
        let Some(start) = address.checked_sub(length as u64) else { continue };
        let (bytes, stopped) = source.memory().read_prefix(start, length);
        if stopped.is_none() {
            return Some(code::is_call_before(machine, &bytes));
        }
        // The image file may have what memory lacks.
        if let Some(image) = source.image_at(start) {
            let mut buffer = [0; 8];
            let rva = image.rva(start);
            if rva.is_some_and(|rva| image.source.read_rva(rva, &mut buffer[..length]) == length) {
                return Some(code::is_call_before(machine, &buffer[..length]));
            }
        }
    }
    None
}

/// Refuses a return address that cannot be one. Where nothing is known of an address outside all
/// images, a call must end at it.
pub(crate) fn check_return(
    source: &dyn UnwindSource,
    machine: Machine,
    address: u64,
) -> Result<(), StepError> {
    check(source, machine, address, source.image_at(address).is_some())
}

/// As [`check_return`] for an address that unwind data led to: a module whose headers nobody has is
/// good enough.
pub(crate) fn check_unwound(
    source: &dyn UnwindSource,
    machine: Machine,
    address: u64,
) -> Result<(), StepError> {
    check(source, machine, address, source.in_module(address))
}

fn check(source: &dyn UnwindSource, machine: Machine, address: u64, known: bool) -> Result<(), StepError> {
    if address == 0 {
        return Err(StepError::Outermost);
    }
    let fine = match source.is_executable(address) {
        Some(executable) => executable,
        None => known || call_before(source, machine, address) == Some(true),
    };
    if fine { Ok(()) } else { Err(StepError::NotCode { address }) }
}

/// Whether a stack word may be a return address: in executable code, and after a call if the code
/// can be read.
pub(crate) fn plausible_return(source: &dyn UnwindSource, machine: Machine, address: u64) -> bool {
    match source.is_executable(address) {
        Some(false) => false,
        Some(true) => call_before(source, machine, address).unwrap_or(true),
        // Nothing but a module's range is known where its image is missing.
        None => call_before(source, machine, address).unwrap_or_else(|| source.image_at(address).is_some()),
    }
}
