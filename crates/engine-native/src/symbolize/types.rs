//! Types and locals.

use symbols::{LocalVar, Register, RegisterSlot, VarLocation};
use target::{Context, Frame, Local, LocalLocation, Machine, Module, Result, TargetError, TypeLayout};

use super::Symbolizer;
use super::lookup::{failed, named};

impl Symbolizer {
    /// A type by `module!name` or bare name: loaded symbols first, the kernel's, then the others.
    pub(crate) fn type_layout(&self, name: &str) -> Result<TypeLayout> {
        let (module, bare) = Self::split(name);
        let modules = self.core.modules();
        if let Some(wanted) = module {
            let module = named(&modules, wanted).ok_or_else(|| {
                TargetError::failed_because("no_such_module", format!("no module is called {wanted}"))
            })?;
            return self.layout_in(module, bare);
        }
        let mut first_error = None;
        for module in self.type_order(&modules) {
            match self.layout_in(module, bare) {
                Ok(layout) => return Ok(layout),
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        Err(first_error.unwrap_or_else(|| {
            TargetError::failed_because(
                "no_types",
                format!("no loaded symbols have types, so {bare} is not known"),
            )
        }))
    }

    /// Modules with loaded symbols, then the kernel, then the program itself.
    fn type_order<'a>(&self, modules: &'a [Module]) -> Vec<&'a Module> {
        let kernel = self.kernel.get().map(|(base, _)| base);
        let mut order: Vec<&Module> =
            modules.iter().filter(|m| self.known(m).is_some_and(|s| s.file.is_some())).collect();
        let more = modules.iter().filter(|m| Some(m.base) == kernel).chain(modules.first());
        for module in more {
            if !order.iter().any(|m| m.base == module.base) {
                order.push(module);
            }
        }
        order
    }

    fn layout_in(&self, module: &Module, name: &str) -> Result<TypeLayout> {
        let symbols = self.of(module);
        let Some(file) = symbols.as_ref().and_then(|s| s.file.as_deref()) else {
            return Err(TargetError::failed_because(
                "no_types",
                format!("{} has no symbols with types; set a symbol path that holds its PDB", module.name),
            ));
        };
        let mut layout = file.type_layout(name).map_err(|e| failed(module, &e))?;
        layout.module.clone_from(&module.name);
        Ok(layout)
    }

    pub(crate) fn find_types(&self, pattern: &str, limit: usize) -> Result<Vec<String>> {
        let (module_pattern, name) = Self::split(pattern);
        let modules = self.core.modules();
        let wanted: Vec<&Module> = match module_pattern {
            Some(pattern) => match named(&modules, pattern) {
                Some(module) => vec![module],
                None => {
                    modules.iter().filter(|m| symbols::glob::Glob::new(pattern).matches(&m.name)).collect()
                }
            },
            None => self.type_order(&modules),
        };
        let mut names = Vec::new();
        for module in wanted {
            if names.len() >= limit {
                break;
            }
            let symbols = self.of(module);
            let Some(file) = symbols.as_ref().and_then(|s| s.file.as_deref()) else { continue };
            let found = file.types_matching(name, limit - names.len()).map_err(|e| failed(module, &e))?;
            names.extend(found.into_iter().take(limit - names.len()).map(|n| format!("{}!{n}", module.name)));
        }
        Ok(names)
    }

    /// Locals in scope where `frame` is: its own instruction if it is exact, else the call before.
    pub(crate) fn locals(&self, frame: &Frame, lookup: u64) -> Result<Vec<Local>> {
        let Some(module) = self.core.module_at(lookup) else { return Ok(Vec::new()) };
        let symbols = self.of(&module);
        let Some(file) = symbols.as_ref().and_then(|s| s.file.as_deref()) else {
            return Err(TargetError::failed_because(
                "no_symbols",
                format!("{} has no symbols that list locals", module.name),
            ));
        };
        let found = file.locals_at(lookup - module.base).map_err(|e| failed(&module, &e))?;
        let context = frame.context.as_deref();
        let virtual_frame = context.and_then(|c| self.virtual_frame(c, lookup));
        Ok(found.into_iter().map(|var| place(var, &module, context, virtual_frame)).collect())
    }

    /// `$T0` of an x86 frame: what its frame program makes of ebp; plain ebp without a program.
    fn virtual_frame(&self, context: &Context, lookup: u64) -> Option<u64> {
        let program = self.with_file(lookup, |_, file, rva| file.frame_program(rva).ok()?);
        match program {
            Some(symbols::FrameProgram::Data(data)) => first_assignment(&data.program, context),
            Some(symbols::FrameProgram::Fpo(fpo)) => match fpo.frame {
                symbols::FpoFrame::NonFpo => context.fp(),
                _ => None,
            },
            None => context.fp(),
        }
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

fn place(var: LocalVar, module: &Module, context: Option<&Context>, virtual_frame: Option<u64>) -> Local {
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
        VarLocation::VirtualFrame { offset } => match virtual_frame {
            Some(base) => LocalLocation::Memory(wrap(base.wrapping_add_signed(offset))),
            None => LocalLocation::Unavailable("the frame's base is not known"),
        },
        VarLocation::Image { rva } => LocalLocation::Memory(module.base.wrapping_add(rva)),
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
