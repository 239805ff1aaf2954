//! Data processing with an immediate (C4.1.92).

use super::{Handled, Step, arithmetic_right, bit_masks};
use crate::emulator::{Event, Stop};
use crate::value::{Value, mask};

impl Step<'_> {
    pub(super) fn immediate(&mut self) -> Handled {
        match self.bits(23, 3) {
            0b000 | 0b001 => self.address_of(),
            0b010 => self.add_immediate(),
            0b100 => self.logical_immediate()?,
            0b101 => self.move_wide()?,
            0b110 => self.bit_field()?,
            0b111 => self.extract()?,
            _ => return Err(self.not_known()),
        }
        Ok(Event::Ran)
    }

    fn address_of(&mut self) {
        let offset = self.signed(5, 19) << 2 | i64::from(self.bits(29, 2));
        let at = self.at();
        let value = if self.word >> 31 == 1 {
            (at & !0xfff).wrapping_add_signed(offset << 12)
        } else {
            at.wrapping_add_signed(offset)
        };
        self.set_x(self.field(0), 8, Value::known(value));
    }

    fn add_immediate(&mut self) {
        let bytes = self.width();
        let immediate = u64::from(self.bits(10, 12)) << (12 * self.bits(22, 1));
        let (subtract, flags) = (self.bits(30, 1) == 1, self.bits(29, 1) == 1);
        let source = self.x_sp(self.field(5), bytes);
        let result = self.sum(source, Value::known(immediate), subtract, Some(subtract), bytes, flags);
        if flags {
            self.set_x(self.field(0), bytes, result);
        } else {
            self.set_x_sp(self.field(0), bytes, result);
        }
    }

    fn logical_immediate(&mut self) -> Result<(), Stop> {
        let bytes = self.width();
        let n = self.bits(22, 1);
        let masks = bit_masks(n, self.bits(10, 6), self.bits(16, 6), true, bytes);
        let Some((immediate, _)) = masks.filter(|_| bytes == 8 || n == 0) else {
            return Err(Stop::Undecodable { at: self.at() });
        };
        let (source, immediate) = (self.x(self.field(5), bytes), Value::known(immediate));
        let (result, flags) = match self.bits(29, 2) {
            0 => (source & immediate, false),
            1 => (source | immediate, false),
            2 => (source ^ immediate, false),
            _ => (source & immediate, true),
        };
        if flags {
            self.set_logic_flags(result, bytes);
            self.set_x(self.field(0), bytes, result);
        } else {
            self.set_x_sp(self.field(0), bytes, result);
        }
        Ok(())
    }

    fn move_wide(&mut self) -> Result<(), Stop> {
        let bytes = self.width();
        let shift = self.bits(21, 2) * 16;
        if shift >= bytes * 8 {
            return Err(Stop::Undecodable { at: self.at() });
        }
        let immediate = u64::from(self.bits(5, 16)) << shift;
        let number = self.field(0);
        let value = match self.bits(29, 2) {
            0b00 => Value::known(!immediate),
            0b10 => Value::known(immediate),
            0b11 => self.x(number, bytes) & Value::known(!(0xffff << shift)) | Value::known(immediate),
            _ => return Err(Stop::Undecodable { at: self.at() }),
        };
        self.set_x(number, bytes, value);
        Ok(())
    }

    /// sbfm, bfm, ubfm: shifts by immediates, extensions, bit fields.
    fn bit_field(&mut self) -> Result<(), Stop> {
        let bytes = self.width();
        let (n, immr, imms) = (self.bits(22, 1), self.bits(16, 6), self.bits(10, 6));
        let masks = bit_masks(n, imms, immr, false, bytes);
        let Some((wmask, tmask)) =
            masks.filter(|_| (n == 1) == (bytes == 8) && (bytes == 8 || (immr | imms) < 32))
        else {
            return Err(Stop::Undecodable { at: self.at() });
        };
        let (wmask, tmask) = (Value::known(wmask), Value::known(tmask));
        let source = self.x(self.field(5), bytes);
        let rotated = source.rotate_left(bytes, bytes * 8 - immr);
        let old = self.x(self.field(0), bytes);
        let result = match self.bits(29, 2) {
            0b00 => {
                let bottom = rotated & wmask;
                let sign = arithmetic_right(source.shl(bytes * 8 - 1 - imms), bytes * 8 - 1, bytes);
                sign & !tmask | bottom & tmask
            }
            0b01 => {
                let bottom = old & !wmask | rotated & wmask;
                old & !tmask | bottom & tmask
            }
            0b10 => rotated & wmask & tmask,
            _ => return Err(Stop::Undecodable { at: self.at() }),
        };
        self.set_x(self.field(0), bytes, result & Value::known(mask(bytes)));
        Ok(())
    }

    fn extract(&mut self) -> Result<(), Stop> {
        let bytes = self.width();
        let low = self.bits(10, 6);
        let same_size = (self.bits(22, 1) == 1) == (bytes == 8);
        if self.bits(29, 2) != 0 || self.bits(21, 1) != 0 || !same_size || low >= bytes * 8 {
            return Err(Stop::Undecodable { at: self.at() });
        }
        let (high, lower) = (self.x(self.field(5), bytes), self.x(self.field(16), bytes));
        let result = if low == 0 { lower } else { lower.shr(low) | high.shl(bytes * 8 - low) };
        self.set_x(self.field(0), bytes, result);
        Ok(())
    }
}
