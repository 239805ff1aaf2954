//! Hardware breakpoints: one plan for all processors, in their special registers and in CONTEXT.

use engine_native::live::{SLOTS, Slot};
use target::{TargetError, reg};

use crate::context::field;
use crate::kernel::State;

const DR0: usize = 0x20;
const DR7: usize = 0x48;
/// Enable bits of the four debug address registers.
const ENABLES: u64 = 0xff;

impl State {
    /// Remembers what was armed before this session came.
    pub(crate) fn remember_foreign(&mut self, processor: u32) {
        self.foreign_dr7 = self.special(processor).map_or(0, |bytes| field(&bytes, DR7, 8) & ENABLES);
    }

    pub(crate) fn taken_slots(&self) -> [bool; SLOTS] {
        std::array::from_fn(|index| self.foreign_dr7 & Slot::dr7_mask(index) != 0)
    }

    /// DR7 as the processor has it, with ours as `armed` says.
    pub(crate) fn dr7(&mut self, processor: u32, armed: &[bool; SLOTS]) -> Result<u64, TargetError> {
        let now = match &self.standing {
            Some(standing) if standing.stop.processor == processor => standing.change.control.dr7,
            _ => field(&self.special(processor)?, DR7, 8),
        };
        Ok(self.with_slots(now, armed))
    }

    fn with_slots(&self, dr7: u64, armed: &[bool; SLOTS]) -> u64 {
        let taken = self.taken_slots();
        let mut dr7 = dr7;
        for (index, slot) in self.slots.iter().enumerate() {
            if taken[index] {
                continue;
            }
            dr7 &= !Slot::dr7_mask(index);
            if let Some(slot) = slot {
                let (description, enable) = slot.dr7(index);
                dr7 |= description | if armed[index] { enable } else { 0 };
            }
        }
        dr7
    }

    /// Gives every processor the same addresses.
    pub(crate) fn set_slots(&mut self, slots: &[Option<Slot>; SLOTS]) -> Result<(), TargetError> {
        let before = self.slots;
        self.slots = *slots;
        let processors = self.standing.as_ref().map_or(0, |standing| standing.stop.processors);
        for processor in 0..processors {
            self.set_processor(processor, &before)?;
        }
        Ok(())
    }

    fn set_processor(&mut self, processor: u32, before: &[Option<Slot>; SLOTS]) -> Result<(), TargetError> {
        let (slots, taken) = (self.slots, self.taken_slots());
        let mut bytes = self.special(processor)?;
        let armed = slots.map(|slot| slot.is_some());
        let dr7 = self.with_slots(field(&bytes, DR7, 8), &armed);
        let mut values = Vec::new();
        for index in (0..SLOTS).filter(|&index| !taken[index]) {
            // One that is no longer there leaves no address behind.
            if slots[index].is_none() && before[index].is_none() {
                continue;
            }
            let address = slots[index].map_or(0, |slot| slot.address);
            if let Some(place) = bytes.get_mut(DR0 + 8 * index..DR0 + 8 * index + 8) {
                place.copy_from_slice(&address.to_le_bytes());
            }
            values.push((reg::DR0 + index, address));
        }
        if let Some(place) = bytes.get_mut(DR7..DR7 + 8) {
            place.copy_from_slice(&dr7.to_le_bytes());
        }
        self.write_special(processor, bytes)?;
        // Where CONTEXT has them too, both must say the same.
        if self.context(processor)?.get(reg::DR7).is_some() {
            values.push((reg::DR7, dr7));
            self.write_registers(processor, &values)?;
        }
        Ok(())
    }
}
