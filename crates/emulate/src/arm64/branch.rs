//! Branches, exceptions, system instructions (C4.1.93).

use super::{Handled, Step};
use crate::emulator::{Call, Event, Fork, Stop};
use crate::value::Value;

impl Step<'_> {
    pub(super) fn branch(&mut self) -> Handled {
        let word = self.word;
        if word & 0x7c00_0000 == 0x1400_0000 {
            return self.direct();
        }
        if word & 0xff00_0010 == 0x5400_0000 {
            let holds = self.condition(self.bits(0, 4));
            return Ok(self.conditional(holds, self.signed(5, 19) * 4));
        }
        if word & 0x7e00_0000 == 0x3400_0000 {
            let zero = self.x(self.field(0), self.width()).is_zero(self.width());
            let wanted = self.bits(24, 1) == 0;
            return Ok(self.conditional(zero.map(|z| z == wanted), self.signed(5, 19) * 4));
        }
        if word & 0x7e00_0000 == 0x3600_0000 {
            let bit = self.bits(31, 1) << 5 | self.bits(19, 5);
            let set = self.x(self.field(0), 8).at(bit);
            let wanted = self.bits(24, 1) == 1;
            return Ok(self.conditional(set.map(|s| s == wanted), self.signed(5, 14) * 4));
        }
        if word & 0xfe00_0000 == 0xd600_0000 {
            return self.by_register();
        }
        if word & 0xff00_0000 == 0xd400_0000 {
            return Err(Stop::Trap { at: self.at(), what: self.exception() });
        }
        self.system()
    }

    fn exception(&self) -> &'static str {
        match (self.bits(21, 3), self.bits(0, 5)) {
            (0b000, 0b00001) => "svc",
            (0b000, 0b00010) => "hvc",
            (0b001, _) => "brk",
            (0b010, _) => "hlt",
            _ => "exception",
        }
    }

    fn go(&mut self, to: u64) -> Event {
        self.emulator.registers.ip = to;
        self.placed = true;
        Event::Ran
    }

    fn direct(&mut self) -> Handled {
        let to = self.at().wrapping_add_signed(self.signed(0, 26) * 4);
        if self.bits(31, 1) == 0 { Ok(self.go(to)) } else { Ok(self.call(Some(to), false)) }
    }

    fn call(&mut self, target: Option<u64>, indirect: bool) -> Event {
        let at = self.at();
        let return_address = at.wrapping_add(4);
        self.emulator.registers.general[30] = Value::known(return_address);
        if let Some(target) = target {
            self.emulator.registers.ip = target;
        }
        Event::Called(Call { at, target, return_address, indirect })
    }

    fn conditional(&mut self, holds: Option<bool>, offset: i64) -> Event {
        let at = self.at();
        let taken = at.wrapping_add_signed(offset);
        match holds {
            Some(true) => self.go(taken),
            Some(false) => Event::Ran,
            None => Event::Fork(Fork { at, taken, fallthrough: at.wrapping_add(4) }),
        }
    }

    /// br, blr, ret and their authenticated forms, which do as if the pointer were good.
    fn by_register(&mut self) -> Handled {
        let at = self.at();
        let operation = self.bits(21, 4);
        let authenticated = self.bits(10, 6) == 0b00_0010;
        if !authenticated && self.bits(10, 6) != 0 || self.bits(16, 5) != 31 {
            return Err(self.not_known());
        }
        let source = match operation & 0b0111 {
            // retaa, retab name no register.
            0b010 if authenticated => 30,
            _ => self.field(5),
        };
        let target = self.x(source, 8).get();
        match operation & 0b0111 {
            0b001 => Ok(self.call(target, true)),
            0b000 | 0b010 => {
                let to = target.ok_or(Stop::UnknownTarget { at })?;
                Ok(self.go(to))
            }
            _ => Err(self.not_known()),
        }
    }

    /// Hints, barriers, system registers. A read gives 0 but for the flags; the rest changes nothing.
    fn system(&mut self) -> Handled {
        if self.word & 0xffc0_0000 != 0xd500_0000 {
            return Err(self.not_known());
        }
        let register = self.bits(5, 16);
        // S3_3_C4_C2_0: NZCV.
        let flags = register == 0xda10;
        let read = self.bits(21, 1) == 1;
        // Only the register space (op0 2 and 3) and sysl have a destination.
        if read {
            let value =
                if flags { self.emulator.registers.flags & Value::known(0xf000_0000) } else { Value::ZERO };
            self.set_x(self.field(0), 8, value);
        } else if flags {
            self.emulator.registers.flags = self.x(self.field(0), 8) & Value::known(0xf000_0000);
        }
        Ok(Event::Ran)
    }
}
