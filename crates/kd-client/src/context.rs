//! A processor's registers: CONTEXT and special registers of x64, read once a stop, written back as
//! they were but for what changes.

use kd_api::{ReplyBody, Request, selector};
use target::{Context, ContextSource, Machine, TargetError, reg};

use crate::kernel::State;

/// Bytes of a CONTEXT, of the least of it that holds the general registers, and of one request.
const WHOLE: usize = 0x4d0;
const LEAST: usize = 0x100;
const PART: usize = 0x500;
const FLAGS: usize = 0x30;
/// `KSPECIAL_REGISTERS`.
pub(crate) const SPECIAL: usize = 0xe0;
const CR3: usize = 0x10;
const CR4: usize = 0x18;
/// CR4.LA57: five levels of page tables.
const LA57: u64 = 1 << 12;

/// Where a register is in CONTEXT: offset, width, and the flag of its part.
pub(crate) fn place(number: usize) -> Option<(usize, usize, u32)> {
    const CONTROL: u32 = 1;
    const INTEGER: u32 = 2;
    const SEGMENTS: u32 = 4;
    const FLOATING: u32 = 8;
    const DEBUG: u32 = 0x10;
    Some(match number {
        reg::RSP => (0x98, 8, CONTROL),
        0..=15 => (0x78 + 8 * number, 8, INTEGER),
        reg::RIP => (0xf8, 8, CONTROL),
        reg::EFLAGS => (0x44, 4, CONTROL),
        reg::CS => (0x38, 2, CONTROL),
        reg::DS => (0x3a, 2, SEGMENTS),
        reg::ES => (0x3c, 2, SEGMENTS),
        reg::FS => (0x3e, 2, SEGMENTS),
        reg::GS => (0x40, 2, SEGMENTS),
        reg::SS => (0x42, 2, CONTROL),
        reg::DR0..=reg::DR7 => (0x48 + 8 * (number - reg::DR0), 8, DEBUG),
        reg::MXCSR => (0x34, 4, FLOATING),
        reg::FPCW => (0x100, 2, FLOATING),
        reg::FPSW => (0x102, 2, FLOATING),
        reg::FPTW => (0x104, 1, FLOATING),
        _ => return None,
    })
}

fn processor_number(processor: u32) -> Result<u16, TargetError> {
    u16::try_from(processor)
        .map_err(|_| TargetError::InvalidArgument(format!("there is no processor {processor}")))
}

impl State {
    pub(crate) fn raw_context(&mut self, processor: u32) -> Result<Vec<u8>, TargetError> {
        if let Some(known) = self.contexts.get(&processor) {
            return Ok(known.clone());
        }
        let bytes = self.fetch_context(processor)?;
        if bytes.len() < LEAST || bytes.len() > 4 * WHOLE {
            return Err(TargetError::failed(format!(
                "the target's registers of processor {processor} are {} bytes, which is no CONTEXT",
                bytes.len()
            )));
        }
        self.contexts.insert(processor, bytes.clone());
        Ok(bytes)
    }

    /// Boot debuggers refuse parts of a CONTEXT.
    fn fetch_context(&mut self, processor: u32) -> Result<Vec<u8>, TargetError> {
        let number = processor_number(processor)?;
        if !self.whole_contexts {
            let count = u32::try_from(WHOLE.min(PART)).unwrap_or(0);
            match self.read(&Request::GetContextEx { processor: number, offset: 0, count }) {
                Ok(ReplyBody::Data(data)) if data.len() >= LEAST => return Ok(data),
                Ok(_) => {}
                Err(error) => {
                    self.alive()?;
                    tracing::debug!(%error, "the target sends whole contexts only");
                }
            }
            self.whole_contexts = true;
        }
        match self.read(&Request::GetContext { processor: number })? {
            ReplyBody::Data(data) => Ok(data),
            _ => Err(TargetError::failed("the target's answer holds no registers")),
        }
    }

    pub(crate) fn context(&mut self, processor: u32) -> Result<Context, TargetError> {
        let bytes = self.raw_context(processor)?;
        let context = Context::from_bytes(Machine::X64, &bytes, ContextSource::Live);
        context.ok_or_else(|| TargetError::failed("the target's registers are of no x64 processor"))
    }

    /// Writes registers and reads them back.
    pub(crate) fn write_registers(
        &mut self,
        processor: u32,
        values: &[(usize, u64)],
    ) -> Result<(), TargetError> {
        let mut bytes = self.raw_context(processor)?;
        let flags = field(&bytes, FLAGS, 4);
        for &(number, value) in values {
            let name = Context::register_name(Machine::X64, number).unwrap_or("the register");
            let (offset, width, part) = place(number).ok_or_else(|| {
                TargetError::unsupported("no_such_register", format!("{name} cannot be written over KD"))
            })?;
            if flags & u64::from(part) == 0 || bytes.len() < offset + width {
                return Err(TargetError::failed(format!(
                    "the target does not send {name}, so it is not written"
                )));
            }
            if width < 8 && value >> (8 * width) != 0 {
                return Err(TargetError::InvalidArgument(format!("{value:#x} does not fit {name}")));
            }
            if let Some(place) = bytes.get_mut(offset..offset + width) {
                place.copy_from_slice(&value.to_le_bytes()[..width]);
            }
        }
        let number = processor_number(processor)?;
        self.contexts.remove(&processor);
        self.must(&Request::SetContext { processor: number, context: bytes })?;
        let now = self.raw_context(processor)?;
        for &(number, value) in values {
            let Some((offset, width, _)) = place(number) else { continue };
            let found = field(&now, offset, width);
            if found != value {
                let name = Context::register_name(Machine::X64, number).unwrap_or("the register");
                return Err(TargetError::failed(format!(
                    "{name} was to be {value:#x} and the target says it is {found:#x}"
                )));
            }
        }
        Ok(())
    }

    pub(crate) fn special(&mut self, processor: u32) -> Result<Vec<u8>, TargetError> {
        if let Some(known) = self.specials.get(&processor) {
            return Ok(known.clone());
        }
        let count = u32::try_from(SPECIAL).unwrap_or(0);
        let request = Request::ReadControlSpace {
            processor: processor_number(processor)?,
            selector: selector::SPECIAL_REGISTERS,
            count,
        };
        let ReplyBody::Data(bytes) = self.read(&request)? else {
            return Err(TargetError::failed("the target's answer holds no special registers"));
        };
        if bytes.len() < SPECIAL {
            return Err(TargetError::failed(format!(
                "{} bytes of special registers are too few",
                bytes.len()
            )));
        }
        self.specials.insert(processor, bytes.clone());
        Ok(bytes)
    }

    pub(crate) fn write_special(&mut self, processor: u32, bytes: Vec<u8>) -> Result<(), TargetError> {
        self.specials.remove(&processor);
        let request = Request::WriteControlSpace {
            processor: processor_number(processor)?,
            selector: selector::SPECIAL_REGISTERS,
            data: bytes,
        };
        self.must(&request).map(drop)
    }

    pub(crate) fn translation_root(&mut self, processor: u32) -> Result<(u64, bool), TargetError> {
        let bytes = self.special(processor)?;
        Ok((field(&bytes, CR3, 8), field(&bytes, CR4, 8) & LA57 != 0))
    }
}

/// A little-endian number of `width` bytes; 0 where there are none.
pub(crate) fn field(bytes: &[u8], offset: usize, width: usize) -> u64 {
    let mut value = [0; 8];
    if let Some(found) = bytes.get(offset..offset + width) {
        value[..width].copy_from_slice(found);
    }
    u64::from_le_bytes(value)
}
