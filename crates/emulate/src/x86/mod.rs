//! x86 and x64 (Intel SDM volume 2). Privileged reads give 0; what is not listed stops the machine.

mod arithmetic;
mod control;
mod flags;
mod integer;
mod multiply;
mod operands;
mod shifts;
mod strings;
mod system;
mod vector;
mod vector_lanes;

use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic};
use target::Machine;

use crate::emulator::{Emulator, Event, Outcome, Stop};

/// The instruction being executed, with the machine.
pub(crate) struct Step<'a> {
    emulator: &'a mut Emulator,
    instruction: Instruction,
    /// ip is where it has to be: a jump was made, or a repetition goes on.
    placed: bool,
}

/// `Ok(None)`: not one of this file's instructions.
type Handled = Result<Option<Event>, Stop>;

pub(crate) fn step(emulator: &mut Emulator) -> Outcome {
    let at = emulator.registers.ip;
    let mut bytes = [0; 15];
    let count = emulator.fetch(&mut bytes)?;
    let bits = if emulator.machine == Machine::X86 { 32 } else { 64 };
    let instruction = Decoder::with_ip(bits, &bytes[..count], at, DecoderOptions::NONE).decode();
    if instruction.is_invalid() {
        return Err(Stop::Undecodable { at });
    }
    let mut step = Step { emulator, instruction, placed: false };
    let event = step.execute()?;
    if event == Event::Ran && !step.placed {
        step.emulator.registers.ip = step.next();
    }
    Ok(event)
}

impl Step<'_> {
    fn execute(&mut self) -> Outcome {
        let parts: [fn(&mut Self) -> Handled; 8] = [
            Self::move_or_stack,
            Self::arithmetic,
            Self::control,
            Self::shift_or_bit,
            Self::multiply,
            Self::vector,
            Self::string,
            Self::system,
        ];
        for part in parts {
            if let Some(event) = part(self)? {
                return Ok(event);
            }
        }
        Err(self.not_known())
    }

    fn mnemonic(&self) -> Mnemonic {
        self.instruction.mnemonic()
    }

    fn at(&self) -> u64 {
        self.emulator.registers.ip
    }

    fn next(&self) -> u64 {
        self.instruction.next_ip()
    }

    fn not_known(&self) -> Stop {
        Stop::UnknownInstruction { at: self.at(), name: format!("{:?}", self.mnemonic()).to_lowercase() }
    }
}
