//! Addresses to names and back, over all modules of a session.

use std::rc::Rc;

use symbols::{InlineFrame, Sym, SymbolFile};
use target::{Halt, Module, Result, SourceLine, SymbolHit, SymbolState, TargetError, base_name};

use super::{ModuleSymbols, Symbolizer};
use crate::core::ModuleRef;

/// A hit in `module`, seen from `address`.
pub(crate) fn hit(module: &Module, sym: Sym, address: Option<u64>) -> SymbolHit {
    let at = module.base.wrapping_add(sym.rva);
    SymbolHit {
        module: module.name.clone(),
        name: one_line(sym.name),
        raw_name: sym.raw_name,
        address: at,
        displacement: address.map_or(0, |a| a.wrapping_sub(at)),
        size: sym.size,
        kind: sym.kind,
    }
}

/// A name as text that cannot break out of its line: symbol files are not trusted.
pub(crate) fn one_line(name: String) -> String {
    if !name.contains(char::is_control) {
        return name;
    }
    let shown = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    name.chars().map(shown).collect()
}

pub(crate) fn failed(module: &Module, error: &symbols::SymbolError) -> TargetError {
    match TargetError::from(error.clone()) {
        TargetError::Failed { reason, message } => {
            TargetError::Failed { reason, message: format!("symbols of {}: {message}", module.name) }
        }
        other => other,
    }
}

impl Symbolizer {
    /// The module, its symbols and the RVA of `address`.
    fn at(&self, address: u64) -> Option<(ModuleRef, Rc<ModuleSymbols>, u64)> {
        let module = self.core.module_at(address)?;
        let (symbols, rva) = (self.of(&module)?, address - module.base);
        Some((module, symbols, rva))
    }

    pub(crate) fn symbol_at(&self, address: u64) -> Result<Option<SymbolHit>> {
        let Some((module, symbols, rva)) = self.at(address) else { return Ok(None) };
        let Some(source) = symbols.source() else { return Ok(None) };
        let found = source.symbol_at(rva).map_err(|e| failed(&module, &e))?;
        Ok(found.map(|sym| hit(&module, sym, Some(address))))
    }

    pub(crate) fn line_at(&self, address: u64) -> Result<Option<SourceLine>> {
        let Some((module, symbols, rva)) = self.at(address) else { return Ok(None) };
        let Some(source) = symbols.source() else { return Ok(None) };
        source.line_at(rva).map_err(|e| failed(&module, &e))
    }

    /// Functions inlined at `address`, innermost first, and the module's base.
    pub(crate) fn inline_chain(&self, address: u64) -> Vec<InlineFrame> {
        let Some((_, symbols, rva)) = self.at(address) else { return Vec::new() };
        let chain = symbols.source().and_then(|s| s.inline_chain(rva).ok()).unwrap_or_default();
        chain.into_iter().map(|frame| InlineFrame { name: one_line(frame.name), ..frame }).collect()
    }

    /// Asks the symbol file behind `address`.
    pub(crate) fn with_file<T>(
        &self,
        address: u64,
        ask: impl FnOnce(&Module, &dyn SymbolFile, u64) -> Option<T>,
    ) -> Option<T> {
        let (module, symbols, rva) = self.at(address)?;
        ask(&module, symbols.file.as_deref()?, rva)
    }

    pub(crate) fn function_bounds(&self, address: u64) -> Option<(u64, u64)> {
        self.with_file(address, |module, file, rva| {
            let (start, end) = file.function_bounds(rva).ok()??;
            Some((module.base.checked_add(start)?, module.base.checked_add(end)?))
        })
    }

    /// Splits `module!name`.
    pub(crate) fn split(name: &str) -> (Option<&str>, &str) {
        match name.split_once('!') {
            Some((module, rest)) => (Some(module), rest),
            None => (None, name),
        }
    }

    pub(crate) fn resolve(&self, name: &str, halt: &Halt) -> Result<Vec<SymbolHit>> {
        self.core.images.bound.during(halt, || self.resolve_under(name, halt))
    }

    fn resolve_under(&self, name: &str, halt: &Halt) -> Result<Vec<SymbolHit>> {
        let (module, bare) = Self::split(name);
        if bare.is_empty() {
            return Ok(Vec::new());
        }
        let modules = self.core.modules();
        if let Some(wanted) = module {
            let Some(module) = named(&modules, wanted) else { return Ok(Vec::new()) };
            return self.in_module(module, bare);
        }
        // Symbols that are loaded already answer first; only then the rest is loaded, one by one.
        let (known, rest): (Vec<_>, Vec<_>) =
            modules.iter().partition(|m| self.known(m).is_some_and(|s| s.status.state != SymbolState::None));
        let mut hits = Vec::new();
        for module in known {
            hits.extend(self.in_module(module, bare).unwrap_or_default());
        }
        for module in rest {
            if !hits.is_empty() {
                break;
            }
            halt.check("resolving a symbol")?;
            hits.extend(self.in_module(module, bare).unwrap_or_default());
        }
        Ok(hits)
    }

    fn in_module(&self, module: &Module, name: &str) -> Result<Vec<SymbolHit>> {
        let Some(symbols) = self.of(module) else { return Ok(Vec::new()) };
        let Some(source) = symbols.source() else { return Ok(Vec::new()) };
        let found = source.by_name(name).map_err(|e| failed(module, &e))?;
        Ok(found.into_iter().map(|sym| hit(module, sym, None)).collect())
    }

    pub(crate) fn find(&self, pattern: &str, limit: usize, halt: &Halt) -> Result<Vec<SymbolHit>> {
        self.core.images.bound.during(halt, || self.find_under(pattern, limit, halt))
    }

    fn find_under(&self, pattern: &str, limit: usize, halt: &Halt) -> Result<Vec<SymbolHit>> {
        let (module_pattern, name) = Self::split(pattern);
        let modules = self.core.modules();
        let mut hits = Vec::new();
        for module in modules.iter() {
            let wanted = match module_pattern {
                Some(pattern) => {
                    symbols::glob::Glob::new(pattern).matches(&module.name) || answers_to(module, pattern)
                }
                // Without a module only what is loaded is searched, as `x` of a debugger does not
                // fetch the symbols of everything either.
                None => self.known(module).is_some(),
            };
            if !wanted || hits.len() >= limit {
                continue;
            }
            halt.check("searching symbols")?;
            let Some(symbols) = self.of(module) else { continue };
            let Some(source) = symbols.source() else { continue };
            let found = source.matching(name, limit - hits.len()).map_err(|e| failed(module, &e))?;
            hits.extend(found.into_iter().take(limit - hits.len()).map(|sym| hit(module, sym, None)));
        }
        Ok(hits)
    }
}

/// The module a symbol is qualified by: its name, its image's name, `name_BASE`, or another name
/// of the kernel.
pub(crate) fn named<'a>(modules: &'a [Module], name: &str) -> Option<&'a Module> {
    modules
        .iter()
        .find(|m| m.name.eq_ignore_ascii_case(name))
        .or_else(|| modules.iter().find(|m| answers_to(m, name)))
}

fn answers_to(module: &Module, name: &str) -> bool {
    let image = base_name(&module.image_name);
    let stem = image.rsplit_once('.').map_or(image, |(stem, _)| stem);
    let with_base = || {
        name.rsplit_once('_').is_some_and(|(stem_part, base)| {
            stem_part.eq_ignore_ascii_case(stem) && u64::from_str_radix(base, 16) == Ok(module.base)
        })
    };
    let kernel = module.name == "nt"
        && ["ntoskrnl", "ntkrnlmp", "ntkrnlpa", "ntkrla57"].iter().any(|k| name.eq_ignore_ascii_case(k));
    stem.eq_ignore_ascii_case(name) || image.eq_ignore_ascii_case(name) || kernel || with_base()
}

#[cfg(test)]
mod tests {
    use super::one_line;

    #[test]
    fn a_name_cannot_forge_a_line() {
        assert_eq!(one_line("f\n00 fake!frame\u{1b}[2J".to_owned()), "f\\n00 fake!frame\\u{1b}[2J");
        assert_eq!(one_line("std::vector<int>::at ä".to_owned()), "std::vector<int>::at ä");
    }
}
