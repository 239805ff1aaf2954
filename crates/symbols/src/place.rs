//! Locals of a symbol file placed in one frame.

use target::{Context, Local, LocalLocation, Machine};

use crate::{FpoFrame, FrameProgram, LocalVar, Register, RegisterSlot, VarLocation};

/// `$T0` of an x86 frame: what its frame program makes of ebp; plain ebp without a program.
#[must_use]
pub fn frame_base(program: Option<&FrameProgram>, context: &Context) -> Option<u64> {
    match program {
        Some(FrameProgram::Data(data)) => first_assignment(&data.program, context),
        Some(FrameProgram::Fpo(fpo)) => match fpo.frame {
            FpoFrame::NonFpo => context.fp(),
            _ => None,
        },
        None => context.fp(),
    }
}

/// The value a frame program gives `$T0` first, when registers and numbers make it:
/// `$T0 $ebp 204 + = ...`. A search of the stack (`.raSearch`) is the walker's to do.
fn first_assignment(program: &str, context: &Context) -> Option<u64> {
    let spaced = program.replace('=', " = ");
    let mut tokens = spaced.split_whitespace();
    if tokens.next()? != "$T0" {
        return None;
    }
    let mut stack: Vec<u64> = Vec::new();
    for token in tokens {
        let value = match token {
            "=" => return stack.pop().filter(|_| stack.is_empty()),
            "+" | "-" => {
                let (right, left) = (stack.pop()?, stack.pop()?);
                let sum = if token == "+" { left.wrapping_add(right) } else { left.wrapping_sub(right) };
                sum & 0xffff_ffff
            }
            _ => match token.strip_prefix('$') {
                Some(register) => context.by_name(register)?,
                None => token.parse().ok()?,
            },
        };
        stack.push(value);
    }
    None
}

const NOT_RESTORED: &str = "its register is not known in this frame";

/// Where `var` of the image at `base` lives in a frame with these registers. `frame_base` is
/// [`frame_base`]'s answer, for x86.
#[must_use]
pub fn place_local(var: LocalVar, base: u64, context: Option<&Context>, frame_base: Option<u64>) -> Local {
    let wrap = |value: u64| {
        let narrow = context.is_some_and(|c| c.machine.pointer_size() == 4);
        if narrow { value & 0xffff_ffff } else { value }
    };
    let location = match var.location {
        VarLocation::Register(register) => match context.and_then(|c| register_value(c, &register)) {
            Some(value) => LocalLocation::Register { name: register.name, value },
            None => LocalLocation::Unavailable(NOT_RESTORED),
        },
        VarLocation::RegisterRelative { register, offset } => {
            match context.and_then(|c| register_value(c, &register)) {
                Some(value) => LocalLocation::Memory(wrap(value.wrapping_add_signed(offset))),
                None => LocalLocation::Unavailable(NOT_RESTORED),
            }
        }
        VarLocation::VirtualFrame { offset } => match frame_base {
            Some(frame) => LocalLocation::Memory(wrap(frame.wrapping_add_signed(offset))),
            None => LocalLocation::Unavailable("the frame's base is not known"),
        },
        VarLocation::Image { rva } => LocalLocation::Memory(base.wrapping_add(rva)),
        VarLocation::Constant(value) => LocalLocation::Constant(value),
        VarLocation::Pieces(_) => LocalLocation::Unavailable("it is split over several places"),
        VarLocation::Unavailable(why) => LocalLocation::Unavailable(why),
    };
    Local { name: var.name, parameter: var.parameter, ty: var.ty, location }
}

fn register_value(context: &Context, register: &Register) -> Option<u64> {
    let value = match register.slot {
        RegisterSlot::Integer(number) => context.get(number)?,
        RegisterSlot::Vector(index) => low_half(context.vectors.get(index)?),
        RegisterSlot::X87(index) => low_half(context.x87.get(index)?),
        RegisterSlot::Unknown => return None,
    };
    let value = value.checked_shr(u32::from(register.shift)).unwrap_or(0);
    let bits = if context.machine == Machine::X86 { register.bits.min(32) } else { register.bits };
    Some(if bits >= 64 || bits == 0 { value } else { value & ((1u64 << bits) - 1) })
}

fn low_half(bytes: &[u8; 16]) -> u64 {
    let mut low = [0; 8];
    low.copy_from_slice(&bytes[..8]);
    u64::from_le_bytes(low)
}

#[cfg(test)]
mod tests {
    use target::{ContextSource, reg};

    use super::*;

    #[test]
    fn the_frame_base_of_a_program() {
        let mut context = Context::new(Machine::X86, ContextSource::Thread);
        context.set(reg::RBP, 0x10_f670);
        let base = |program: &str| first_assignment(program, &context);
        assert_eq!(base("$T0 $ebp = $eip $T0 4 + ^ ="), Some(0x10_f670));
        assert_eq!(base("$T0 $ebp 204 + =$eip $T0 4 + ^ ="), Some(0x10_f73c));
        assert_eq!(base("$T0 .raSearch = $eip $T0 ^ ="), None);
        assert_eq!(base("$T0 $esp ="), None);
        assert_eq!(base("$T0 + ="), None);
        assert_eq!(base(""), None);
    }
}
