//! Moves, extensions, the stack, flags in registers.

use iced_x86::{ConditionCode, FlowControl, Mnemonic};

use super::flags::{CF, DF};
use super::{Handled, Step};
use crate::emulator::{Event, Stop};
use crate::value::Value;

impl Step<'_> {
    pub(super) fn move_or_stack(&mut self) -> Handled {
        match self.mnemonic() {
            Mnemonic::Mov | Mnemonic::Movnti | Mnemonic::Movbe => self.plain_move()?,
            Mnemonic::Movzx => {
                let value = self.read(1)?;
                self.write(0, value)?;
            }
            Mnemonic::Movsx | Mnemonic::Movsxd => {
                let bytes = self.size(1);
                let value = self.read(1)?.sign_extend(bytes);
                let width = self.size(0);
                self.write(0, value.truncate(width))?;
            }
            Mnemonic::Lea => {
                let offset = self.offset();
                let width = self.size(0);
                self.write(0, offset.truncate(width))?;
            }
            Mnemonic::Xchg => {
                let (a, b) = (self.read(0)?, self.read(1)?);
                self.write(0, b)?;
                self.write(1, a)?;
            }
            Mnemonic::Bswap => {
                let bytes = self.size(0);
                // Of 16 bits it is undefined.
                let value = if bytes == 2 { Value::unknown(2) } else { swapped(self.read(0)?, bytes) };
                self.write(0, value)?;
            }
            Mnemonic::Cbw => self.widen(1, 2),
            Mnemonic::Cwde => self.widen(2, 4),
            Mnemonic::Cdqe => self.widen(4, 8),
            Mnemonic::Cwd => self.spread_sign(2),
            Mnemonic::Cdq => self.spread_sign(4),
            Mnemonic::Cqo => self.spread_sign(8),
            Mnemonic::Clc => self.set_flag(CF, Some(false)),
            Mnemonic::Stc => self.set_flag(CF, Some(true)),
            Mnemonic::Cmc => {
                let carry = self.flag(CF).map(|c| !c);
                self.set_flag(CF, carry);
            }
            Mnemonic::Cld => self.set_flag(DF, Some(false)),
            Mnemonic::Std => self.set_flag(DF, Some(true)),
            Mnemonic::Lahf => {
                let flags = self.emulator.registers.flags & Value::known(0xd5) | Value::known(2);
                self.set_register(iced_x86::Register::AH, flags);
            }
            Mnemonic::Sahf => {
                let low = self.register(iced_x86::Register::AH) & Value::known(0xd5) | Value::known(2);
                self.emulator.registers.flags = self.emulator.registers.flags.with_low(1, low);
            }
            _ => return self.conditional_move(),
        }
        Ok(Some(Event::Ran))
    }

    fn plain_move(&mut self) -> Result<(), Stop> {
        // Segment registers load as flat: nothing to keep.
        if self.instruction.op0_register().is_segment_register() {
            return Ok(());
        }
        let mut value = self.read(1)?;
        let bytes = self.size(0);
        if self.mnemonic() == Mnemonic::Movbe {
            value = swapped(value, bytes);
        }
        self.write(0, value.truncate(bytes))
    }

    fn conditional_move(&mut self) -> Handled {
        let code = self.instruction.condition_code();
        let branch = self.instruction.flow_control() != FlowControl::Next;
        if code == ConditionCode::None || branch || self.instruction.op0_register().is_st() {
            return self.stack_move();
        }
        if self.instruction.op_count() == 2 {
            let bytes = self.size(0);
            let (old, new) = (self.read(0)?, self.read(1)?);
            let value = match self.condition(code) {
                Some(true) => new,
                Some(false) => old,
                None => old.join(new),
            };
            // Without the move a 32-bit destination is zero-extended all the same.
            self.write(0, value.truncate(bytes))?;
        } else if self.instruction.op_count() == 1 {
            let value = Value::bit(self.condition(code));
            self.write(0, value)?;
        } else {
            return Ok(None);
        }
        Ok(Some(Event::Ran))
    }

    fn stack_move(&mut self) -> Handled {
        let pointer = self.emulator.pointer();
        match self.mnemonic() {
            Mnemonic::Push => {
                let operand = self.size(0);
                let bytes = if operand == 2 { 2 } else { pointer };
                self.count_push(bytes);
                let value = self.read(0)?;
                self.push(value.truncate(bytes), bytes)?;
            }
            Mnemonic::Pop => {
                let bytes = if self.size(0) == 2 { 2 } else { pointer };
                let value = self.pop(bytes)?;
                self.emulator.pushed = self.emulator.pushed.saturating_sub(bytes);
                self.write(0, value)?;
            }
            Mnemonic::Pushf | Mnemonic::Pushfd | Mnemonic::Pushfq => {
                // Reserved bit 1 set, IF as in any driver entry, the rest as kept.
                let flags = self.emulator.registers.flags & Value::known(0xcd5) | Value::known(0x202);
                self.push(flags, pointer)?;
            }
            Mnemonic::Popf | Mnemonic::Popfd | Mnemonic::Popfq => {
                let value = self.pop(pointer)?;
                self.emulator.registers.flags = value & Value::known(0xcd5) | Value::known(2);
            }
            Mnemonic::Pushad => {
                let all = self.emulator.registers.general;
                for value in &all[..8] {
                    self.push(*value, 4)?;
                }
            }
            Mnemonic::Popad => {
                for register in (0..8).rev() {
                    let value = self.pop(4)?;
                    if register != crate::RSP {
                        self.emulator.registers.general[register] = value;
                    }
                }
            }
            Mnemonic::Leave => {
                self.emulator.registers.general[crate::RSP] =
                    self.emulator.registers.general[5].truncate(pointer);
                let value = self.pop(pointer)?;
                self.emulator.registers.general[5] = value;
            }
            Mnemonic::Enter => {
                let frame = self.emulator.registers.general[5];
                self.push(frame, pointer)?;
                self.emulator.registers.general[5] = self.stack();
                let size = i64::from(self.instruction.immediate16());
                self.move_stack(-size);
            }
            _ => return Ok(None),
        }
        Ok(Some(Event::Ran))
    }

    /// A push of a callee-saved register not yet written saves it; other pushes may be arguments.
    fn count_push(&mut self, bytes: u32) {
        let register = self.instruction.op0_register();
        let number = register.full_register().number();
        let saved =
            register.is_gpr() && matches!(number, 3 | 5 | 6 | 7) && self.emulator.written >> number & 1 == 0;
        self.emulator.pushed = if saved { 0 } else { self.emulator.pushed.saturating_add(bytes) };
    }

    fn widen(&mut self, from: u32, to: u32) {
        let value = self.emulator.registers.general[0].truncate(from).sign_extend(from).truncate(to);
        if to == 8 {
            self.emulator.registers.general[0] = value;
        } else {
            self.set_accumulator(to, value);
        }
    }

    /// rdx gets copies of rax's sign.
    fn spread_sign(&mut self, bytes: u32) {
        let sign = self.emulator.registers.general[0].at(bytes * 8 - 1);
        let spread = match sign {
            Some(true) => Value::known(u64::MAX),
            Some(false) => Value::ZERO,
            None => Value::UNKNOWN,
        }
        .truncate(bytes);
        let slot = &mut self.emulator.registers.general[2];
        *slot = if bytes == 4 { spread } else { slot.with_low(bytes, spread) };
    }
}

/// Bytes in reverse order.
pub(super) fn swapped(value: Value, bytes: u32) -> Value {
    let shift = 64 - bytes * 8;
    Value::new(value.bits().swap_bytes() >> shift, value.unknown_bits().swap_bytes() >> shift)
}
