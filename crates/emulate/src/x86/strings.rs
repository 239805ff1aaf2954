//! movs, stos, lods, cmps, scas and their repetitions.

use iced_x86::Mnemonic;

use super::flags::{DF, ZF};
use super::{Handled, Step};
use crate::emulator::{Event, Stop};
use crate::value::Value;

const RCX: usize = 1;
const RSI: usize = 6;
const RDI: usize = 7;

impl Step<'_> {
    pub(super) fn string(&mut self) -> Handled {
        let bytes = match self.mnemonic() {
            // `movsd` and `cmpsd` with xmm operands are other instructions of the same name.
            _ if !self.instruction.is_string_instruction() => return Ok(None),
            Mnemonic::Movsb | Mnemonic::Stosb | Mnemonic::Lodsb | Mnemonic::Cmpsb | Mnemonic::Scasb => 1,
            Mnemonic::Movsw | Mnemonic::Stosw | Mnemonic::Lodsw | Mnemonic::Cmpsw | Mnemonic::Scasw => 2,
            Mnemonic::Movsd | Mnemonic::Stosd | Mnemonic::Lodsd | Mnemonic::Cmpsd | Mnemonic::Scasd => 4,
            Mnemonic::Movsq | Mnemonic::Stosq | Mnemonic::Lodsq | Mnemonic::Cmpsq | Mnemonic::Scasq => 8,
            _ => return Ok(None),
        };
        let repeats = self.instruction.has_rep_prefix() || self.instruction.has_repne_prefix();
        let back = self.flag(DF).ok_or(Stop::UnknownValue { at: self.at(), what: "direction flag" })?;
        let step = if back { u64::from(bytes).wrapping_neg() } else { u64::from(bytes) };
        if !repeats {
            self.one(bytes, step)?;
            return Ok(Some(Event::Ran));
        }
        self.repeat(bytes, step).map(Some)
    }

    /// One repetition at a time: ip stays until the last, so a bound on steps holds inside.
    fn repeat(&mut self, bytes: u32, step: u64) -> Result<Event, Stop> {
        let pointer = self.emulator.pointer();
        let count = self.emulator.registers.general[RCX].low(pointer);
        let Some(count) = count else {
            return Err(Stop::UnknownValue { at: self.at(), what: "repeat count" });
        };
        if count == 0 {
            return Ok(Event::Ran);
        }
        self.one(bytes, step)?;
        self.emulator.registers.general[RCX] = Value::known(count - 1);
        let compares = matches!(
            self.mnemonic(),
            Mnemonic::Cmpsb
                | Mnemonic::Cmpsw
                | Mnemonic::Cmpsd
                | Mnemonic::Cmpsq
                | Mnemonic::Scasb
                | Mnemonic::Scasw
                | Mnemonic::Scasd
                | Mnemonic::Scasq
        );
        if compares {
            let equal = self.flag(ZF).ok_or(Stop::UnknownValue { at: self.at(), what: "compared bytes" })?;
            if equal == self.instruction.has_repne_prefix() {
                return Ok(Event::Ran);
            }
        }
        if count == 1 {
            return Ok(Event::Ran);
        }
        self.placed = true;
        Ok(Event::Ran)
    }

    fn one(&mut self, bytes: u32, step: u64) -> Result<(), Stop> {
        let pointer = self.emulator.pointer();
        let source = self.emulator.registers.general[RSI].truncate(pointer);
        let destination = self.emulator.registers.general[RDI].truncate(pointer);
        let (mut moves_source, mut moves_destination) = (true, true);
        match self.mnemonic() {
            Mnemonic::Movsb | Mnemonic::Movsw | Mnemonic::Movsd | Mnemonic::Movsq => {
                let value = self.emulator.load(source, bytes)?;
                self.emulator.store(destination, bytes, value)?;
            }
            Mnemonic::Stosb | Mnemonic::Stosw | Mnemonic::Stosd | Mnemonic::Stosq => {
                let value = self.emulator.registers.general[0].truncate(bytes);
                self.emulator.store(destination, bytes, value)?;
                moves_source = false;
            }
            Mnemonic::Lodsb | Mnemonic::Lodsw | Mnemonic::Lodsd | Mnemonic::Lodsq => {
                let value = self.emulator.load(source, bytes)?;
                self.set_accumulator(bytes, value);
                moves_destination = false;
            }
            Mnemonic::Cmpsb | Mnemonic::Cmpsw | Mnemonic::Cmpsd | Mnemonic::Cmpsq => {
                let (a, b) = (self.emulator.load(source, bytes)?, self.emulator.load(destination, bytes)?);
                self.set_sum_flags(a, b, a.sub(b, Some(false)).truncate(bytes), bytes, true);
            }
            _ => {
                let a = self.emulator.registers.general[0].truncate(bytes);
                let b = self.emulator.load(destination, bytes)?;
                self.set_sum_flags(a, b, a.sub(b, Some(false)).truncate(bytes), bytes, true);
                moves_source = false;
            }
        }
        for (moves, register) in [(moves_source, RSI), (moves_destination, RDI)] {
            if moves {
                let slot = &mut self.emulator.registers.general[register];
                *slot = slot.truncate(pointer).add(Value::known(step), Some(false)).truncate(pointer);
                self.emulator.written |= 1 << register;
            }
        }
        Ok(())
    }
}
