//! Types and locals.

use symbols::{frame_base, place_local};
use target::{Frame, Local, Module, Result, TargetError, TypeLayout, TypeRef};

use super::Symbolizer;
use super::lookup::{failed, named, one_line};

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

    /// The type of a global variable, and its module: of the one named, else the first that has it.
    pub(crate) fn variable_type(&self, name: &str) -> Result<Option<(String, TypeRef)>> {
        let (module, bare) = Self::split(name);
        let modules = self.core.modules();
        let order = match module {
            Some(wanted) => named(&modules, wanted).into_iter().collect(),
            None => self.type_order(&modules),
        };
        for module in order {
            let symbols = self.of(module);
            let Some(file) = symbols.as_ref().and_then(|s| s.file.as_deref()) else { continue };
            if let Some(ty) = file.type_of(bare).map_err(|e| failed(module, &e))? {
                return Ok(Some((module.name.clone(), ty)));
            }
        }
        Ok(None)
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
        layout.name = one_line(layout.name);
        for field in &mut layout.fields {
            field.name = one_line(std::mem::take(&mut field.name));
        }
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
            names.extend(
                found
                    .into_iter()
                    .take(limit - names.len())
                    .map(|n| format!("{}!{}", module.name, one_line(n))),
            );
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
        let program = file.frame_program(lookup - module.base).ok().flatten();
        let base = context.and_then(|c| frame_base(program.as_ref(), c));
        let placed = found.into_iter().map(|var| place_local(var, module.base, context, base));
        Ok(placed.map(|local| Local { name: one_line(local.name), ..local }).collect())
    }
}
