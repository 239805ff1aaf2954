//! x86 and x64.
use crate::emulator::{Emulator, Outcome, Stop};
pub(crate) fn step(emulator: &mut Emulator) -> Outcome {
    Err(Stop::Undecodable { at: emulator.registers.ip })
}
