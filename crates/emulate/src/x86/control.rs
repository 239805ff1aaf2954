//! Jumps, calls, returns, traps.

use iced_x86::{FlowControl, Mnemonic, OpKind};

use super::{Handled, Step};
use crate::emulator::{Call, Event, Fork, Stop};
use crate::value::Value;

impl Step<'_> {
    pub(super) fn control(&mut self) -> Handled {
        match self.instruction.flow_control() {
            FlowControl::Next => Ok(None),
            FlowControl::ConditionalBranch => self.conditional().map(Some),
            FlowControl::UnconditionalBranch | FlowControl::IndirectBranch => self.jump().map(Some),
            FlowControl::Call if matches!(self.mnemonic(), Mnemonic::Syscall | Mnemonic::Sysenter) => {
                Err(self.not_known())
            }
            FlowControl::Call | FlowControl::IndirectCall => self.call().map(Some),
            FlowControl::Return => self.returns().map(Some),
            FlowControl::Interrupt => Err(Stop::Trap { at: self.at(), what: self.interrupt() }),
            FlowControl::Exception => Err(Stop::Trap { at: self.at(), what: "ud2" }),
            FlowControl::XbeginXabortXend => Err(self.not_known()),
        }
    }

    fn interrupt(&self) -> &'static str {
        match (self.mnemonic(), self.instruction.immediate8()) {
            (Mnemonic::Int3, _) => "int3",
            (Mnemonic::Int, 0x29) => "int 29h, fail fast",
            (Mnemonic::Int, 0x2c) => "int 2ch, assertion",
            _ => "int",
        }
    }

    fn go(&mut self, to: u64) -> Event {
        self.emulator.registers.ip = to;
        self.placed = true;
        Event::Ran
    }

    fn conditional(&mut self) -> Result<Event, Stop> {
        let taken = self.instruction.near_branch_target();
        let holds = match self.mnemonic() {
            Mnemonic::Jcxz => self.emulator.registers.general[1].is_zero(2),
            Mnemonic::Jecxz => self.emulator.registers.general[1].is_zero(4),
            Mnemonic::Jrcxz => self.emulator.registers.general[1].is_zero(8),
            Mnemonic::Loop | Mnemonic::Loope | Mnemonic::Loopne => return self.counted(taken),
            _ => self.condition(self.instruction.condition_code()),
        };
        Ok(match holds {
            Some(true) => self.go(taken),
            Some(false) => Event::Ran,
            None => Event::Fork(Fork { at: self.at(), taken, fallthrough: self.next() }),
        })
    }

    fn counted(&mut self, taken: u64) -> Result<Event, Stop> {
        let pointer = self.emulator.pointer();
        let count = self.emulator.registers.general[1].truncate(pointer).sub(Value::known(1), Some(false));
        let count = count.truncate(pointer);
        let zero_flag = self.flag(super::flags::ZF);
        let flag_allows = match self.mnemonic() {
            Mnemonic::Loope => zero_flag,
            Mnemonic::Loopne => zero_flag.map(|z| !z),
            _ => Some(true),
        };
        let Some((empty, allowed)) = count.is_zero(pointer).zip(flag_allows) else {
            return Err(Stop::UnknownValue { at: self.at(), what: "loop" });
        };
        self.emulator.registers.general[1] = count;
        Ok(if !empty && allowed { self.go(taken) } else { Event::Ran })
    }

    /// The target of a jump or call, `None` when it is unknown.
    fn target(&mut self) -> Result<Option<u64>, Stop> {
        let pointer = self.emulator.pointer();
        match self.instruction.op0_kind() {
            OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64 => {
                Ok(Some(self.instruction.near_branch_target()))
            }
            OpKind::Register | OpKind::Memory => Ok(self.read(0)?.low(pointer)),
            _ => Err(self.not_known()),
        }
    }

    fn jump(&mut self) -> Result<Event, Stop> {
        let at = self.at();
        let to = self.target()?.ok_or(Stop::UnknownTarget { at })?;
        Ok(self.go(to))
    }

    fn call(&mut self) -> Result<Event, Stop> {
        let (at, return_address) = (self.at(), self.next());
        let target = self.target()?;
        let indirect = matches!(self.instruction.op0_kind(), OpKind::Register | OpKind::Memory);
        let pointer = self.emulator.pointer();
        self.push(Value::known(return_address), pointer)?;
        let emulator = &mut *self.emulator;
        emulator.pushed_before_call = emulator.pushed;
        emulator.pushed = 0;
        emulator.written_before_call = emulator.written;
        emulator.written = 0;
        if let Some(target) = target {
            emulator.registers.ip = target;
        }
        Ok(Event::Called(Call { at, target, return_address, indirect }))
    }

    fn returns(&mut self) -> Result<Event, Stop> {
        if !matches!(self.mnemonic(), Mnemonic::Ret) {
            return Err(self.not_known());
        }
        let at = self.at();
        let pointer = self.emulator.pointer();
        let to = self.pop(pointer)?.low(pointer).ok_or(Stop::UnknownTarget { at })?;
        if self.instruction.op_count() == 1 {
            self.move_stack(i64::from(self.instruction.immediate16()));
        }
        self.emulator.pushed = 0;
        // What the caller has written of its saved registers is not remembered: all pushes count.
        self.emulator.written = u8::MAX;
        Ok(self.go(to))
    }
}
