//! Loads and stores (C4.1.94).

use super::{Handled, Step};
use crate::emulator::{Event, Stop};
use crate::value::Value;

/// What a load puts where.
#[derive(Clone, Copy)]
struct Access {
    /// Bytes in memory.
    bytes: u32,
    load: bool,
    vector: bool,
    /// Sign-extended to this many bytes.
    signed: Option<u32>,
}

impl Step<'_> {
    pub(super) fn load_store(&mut self) -> Handled {
        let vector = self.bits(26, 1) == 1;
        match self.bits(28, 2) {
            0b00 if !vector && self.bits(24, 1) == 0 => self.exclusive()?,
            0b00 if vector => self.structures()?,
            0b01 if self.bits(24, 1) == 0 => self.literal()?,
            0b01 if !vector && self.bits(21, 1) == 0 && self.bits(10, 2) == 0 => self.ordered_unscaled()?,
            0b10 => self.pair()?,
            0b11 if self.bits(24, 1) == 1 => {
                let access = self.access()?;
                let offset = u64::from(self.bits(10, 12)) * u64::from(access.map_or(8, |a| a.bytes));
                let base = self.x_sp(self.field(5), 8);
                self.transfer(access, base.add(Value::known(offset), Some(false)))?;
            }
            0b11 if self.bits(21, 1) == 0 => self.unscaled()?,
            0b11 if self.bits(10, 2) == 0b10 => self.register_offset()?,
            0b11 if self.bits(10, 2) == 0b00 && !vector => self.atomic()?,
            _ => return Err(self.not_known()),
        }
        Ok(Event::Ran)
    }

    /// Size and direction of the register forms; `None` for a prefetch.
    fn access(&self) -> Result<Option<Access>, Stop> {
        let (size, opc) = (self.bits(30, 2), self.bits(22, 2));
        if self.bits(26, 1) == 1 {
            let wide = opc >> 1 == 1;
            if wide && size != 0 {
                return Err(Stop::Undecodable { at: self.at() });
            }
            let bytes = if wide { 16 } else { 1 << size };
            return Ok(Some(Access { bytes, load: opc & 1 == 1, vector: true, signed: None }));
        }
        let access = |load, signed| Access { bytes: 1 << size, load, vector: false, signed };
        match opc {
            0 => Ok(Some(access(false, None))),
            1 => Ok(Some(access(true, None))),
            2 if size == 3 => Ok(None),
            2 => Ok(Some(access(true, Some(8)))),
            _ if size >= 2 => Err(Stop::Undecodable { at: self.at() }),
            _ => Ok(Some(access(true, Some(4)))),
        }
    }

    /// Moves one register, Rt.
    fn transfer(&mut self, access: Option<Access>, address: Value) -> Result<(), Stop> {
        let Some(access) = access else { return Ok(()) };
        self.transfer_register(access, address, self.field(0))
    }

    fn transfer_register(&mut self, access: Access, address: Value, number: usize) -> Result<(), Stop> {
        if access.vector {
            return self.transfer_vector(access, address, number);
        }
        if !access.load {
            let value = self.x(number, access.bytes);
            return self.emulator.store(address, access.bytes, value);
        }
        let value = self.emulator.load(address, access.bytes)?;
        match access.signed {
            Some(to) => self.set_x(number, to, value.sign_extend(access.bytes)),
            None => self.set_x(number, 8, value),
        }
        Ok(())
    }

    fn transfer_vector(&mut self, access: Access, address: Value, number: usize) -> Result<(), Stop> {
        let low_bytes = access.bytes.min(8);
        let above = address.add(Value::known(8), Some(false));
        if !access.load {
            let value = self.emulator.registers.vector[number];
            self.emulator.store(address, low_bytes, value[0])?;
            return if access.bytes > 8 { self.emulator.store(above, 8, value[1]) } else { Ok(()) };
        }
        let low = self.emulator.load(address, low_bytes)?;
        let high = if access.bytes > 8 { self.emulator.load(above, 8)? } else { Value::ZERO };
        self.emulator.registers.vector[number] = [low, high];
        Ok(())
    }

    fn literal(&mut self) -> Result<(), Stop> {
        let address = Value::known(self.at().wrapping_add_signed(self.signed(5, 19) * 4));
        let access = match (self.bits(26, 1), self.bits(30, 2)) {
            (0, 3) => None,
            (0, 2) => Some(Access { bytes: 4, load: true, vector: false, signed: Some(8) }),
            (1, 3) => return Err(Stop::Undecodable { at: self.at() }),
            (vector, size) => {
                Some(Access { bytes: 4 << size, load: true, vector: vector == 1, signed: None })
            }
        };
        self.transfer(access, address)
    }

    /// imm9: unscaled, post-indexed, unprivileged, pre-indexed.
    fn unscaled(&mut self) -> Result<(), Stop> {
        let access = self.access()?;
        let base = self.field(5);
        let start = self.x_sp(base, 8);
        let moved = start.add(Value::known(self.signed(12, 9) as u64), Some(false));
        match self.bits(10, 2) {
            // Unprivileged: general registers only, no prefetch.
            0b10 if access.is_none_or(|a| a.vector) => return Err(Stop::Undecodable { at: self.at() }),
            0b01 | 0b11 if access.is_none() => return Err(Stop::Undecodable { at: self.at() }),
            0b01 | 0b11 if self.writes_back_over(access) => {
                return Err(Stop::Undecodable { at: self.at() });
            }
            0b01 => {
                self.transfer(access, start)?;
                self.set_x_sp(base, 8, moved);
            }
            0b11 => {
                self.transfer(access, moved)?;
                self.set_x_sp(base, 8, moved);
            }
            _ => self.transfer(access, moved)?,
        }
        Ok(())
    }

    /// The moved base would be the transferred register: unpredictable.
    fn writes_back_over(&self, access: Option<Access>) -> bool {
        access.is_some_and(|a| !a.vector) && self.field(0) == self.field(5) && self.field(5) != 31
    }

    fn register_offset(&mut self) -> Result<(), Stop> {
        let access = self.access()?;
        let option = self.bits(13, 3);
        if option & 2 == 0 {
            return Err(Stop::Undecodable { at: self.at() });
        }
        let scale = access.map_or(3, |a| a.bytes.trailing_zeros());
        let shift = if self.bits(12, 1) == 1 { scale } else { 0 };
        let offset = self.extended(self.field(16), option).shl(shift);
        let base = self.x_sp(self.field(5), 8);
        self.transfer(access, base.add(offset, Some(false)))
    }

    fn pair(&mut self) -> Result<(), Stop> {
        let (opc, vector, load) = (self.bits(30, 2), self.bits(26, 1) == 1, self.bits(22, 1) == 1);
        let (bytes, signed) = match (vector, opc) {
            (true, 3) | (false, 3) => return Err(Stop::Undecodable { at: self.at() }),
            (true, _) => (4 << opc, None),
            (false, 0) => (4, None),
            (false, 1) if load => (4, Some(8)),
            (false, 1) => return Err(self.not_known()),
            (false, _) => (8, None),
        };
        let access = Access { bytes, load, vector, signed };
        let base = self.field(5);
        let start = self.x_sp(base, 8);
        let offset = self.signed(15, 7) * i64::from(bytes);
        let moved = start.add(Value::known(offset as u64), Some(false));
        let mode = self.bits(23, 2);
        let (first, other) = (self.field(0), self.field(10));
        let written_back = mode & 1 == 1 && !vector && base != 31 && (first == base || other == base);
        if load && first == other || written_back {
            // Unpredictable: no compiler makes it.
            return Err(Stop::Undecodable { at: self.at() });
        }
        let address = if mode == 0b01 { start } else { moved };
        let second = address.add(Value::known(u64::from(bytes)), Some(false));
        self.transfer_register(access, address, self.field(0))?;
        self.transfer_register(access, second, self.field(10))?;
        if mode & 1 == 1 {
            self.set_x_sp(base, 8, moved);
        }
        Ok(())
    }

    /// ldxr, stxr (which succeeds), ldar, stlr, ldxp, stxp, cas.
    fn exclusive(&mut self) -> Result<(), Stop> {
        let bytes = 1u32 << self.bits(30, 2);
        let (ordered, load, two) = (self.bits(23, 1) == 1, self.bits(22, 1) == 1, self.bits(21, 1) == 1);
        let address = self.x_sp(self.field(5), 8);
        if ordered && two {
            return self.compare_and_swap(bytes, address);
        }
        if two && bytes < 4 {
            return Err(self.not_known());
        }
        let access = Access { bytes, load, vector: false, signed: None };
        self.transfer_register(access, address, self.field(0))?;
        if two {
            let second = address.add(Value::known(u64::from(bytes)), Some(false));
            self.transfer_register(access, second, self.field(10))?;
        }
        if !load && !ordered {
            self.set_x(self.field(16), 4, Value::ZERO);
        }
        Ok(())
    }

    fn compare_and_swap(&mut self, bytes: u32, address: Value) -> Result<(), Stop> {
        let (compared, new) = (self.x(self.field(16), bytes), self.x(self.field(0), bytes));
        let there = self.emulator.load(address, bytes)?;
        match there.equals(compared) {
            Some(true) => self.emulator.store(address, bytes, new)?,
            Some(false) => {}
            None => self.emulator.store(address, bytes, there.join(new))?,
        }
        self.set_x(self.field(16), bytes, there);
        Ok(())
    }

    /// ldadd, ldclr, ldeor, ldset, swp and the forms without a result.
    fn atomic(&mut self) -> Result<(), Stop> {
        let bytes = 1u32 << self.bits(30, 2);
        let address = self.x_sp(self.field(5), 8);
        let operand = self.x(self.field(16), bytes);
        let there = self.emulator.load(address, bytes)?;
        let result = match self.bits(12, 4) {
            0b0000 => there.add(operand, Some(false)),
            0b0001 => there & !operand,
            0b0010 => there ^ operand,
            0b0011 => there | operand,
            0b1000 => operand,
            // ldapr
            0b1100 => {
                self.set_x(self.field(0), 8, there);
                return Ok(());
            }
            _ => return Err(self.not_known()),
        };
        self.emulator.store(address, bytes, result.truncate(bytes))?;
        self.set_x(self.field(0), 8, there);
        Ok(())
    }

    /// stlur, ldapur and their signed forms.
    fn ordered_unscaled(&mut self) -> Result<(), Stop> {
        let access = self.access()?;
        let base = self.x_sp(self.field(5), 8);
        let address = base.add(Value::known(self.signed(12, 9) as u64), Some(false));
        self.transfer(access, address)
    }

    /// ld1 and st1 of one to four whole registers.
    fn structures(&mut self) -> Result<(), Stop> {
        let post = self.bits(23, 1) == 1;
        if self.bits(24, 1) == 1 || self.bits(31, 1) == 1 || self.bits(21, 1) == 1 {
            return Err(self.not_known());
        }
        let registers = match self.bits(12, 4) {
            0b0111 => 1,
            0b1010 => 2,
            0b0110 => 3,
            0b0010 => 4,
            _ => return Err(self.not_known()),
        };
        let bytes = if self.bits(30, 1) == 1 { 16 } else { 8 };
        let access = Access { bytes, load: self.bits(22, 1) == 1, vector: true, signed: None };
        let base = self.field(5);
        let start = self.x_sp(base, 8);
        for i in 0..registers {
            let address = start.add(Value::known(u64::from(i * bytes)), Some(false));
            self.transfer_register(access, address, (self.field(0) + i as usize) & 31)?;
        }
        if post {
            let step = match self.field(16) {
                31 => Value::known(u64::from(registers * bytes)),
                index => self.x(index, 8),
            };
            self.set_x_sp(base, 8, start.add(step, Some(false)));
        }
        Ok(())
    }
}
