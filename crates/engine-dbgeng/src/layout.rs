//! Type layouts: our own PDB reader on the files the engine loaded, so that both engines answer alike.

use symbols::SymbolFile;
use target::{Module, Result, SymbolState, Target, TargetError, TargetExt, TypeLayout};

use crate::engine::DbgEng;

impl DbgEng {
    /// The module named, or every one: those with loaded symbols first, then the program or kernel.
    fn searched<'a>(&self, name: &'a str) -> Result<(Vec<Module>, &'a str)> {
        let Some((module, bare)) = name.split_once('!') else {
            let modules = self.modules()?;
            let loaded = |m: &&Module| {
                self.read_symbol_status(m.base, false)
                    .is_ok_and(|s| !matches!(s.state, SymbolState::Deferred | SymbolState::None))
            };
            let mut order: Vec<Module> = modules.iter().filter(loaded).cloned().collect();
            let more = modules.iter().filter(|m| m.name == "nt").chain(modules.first());
            for module in more {
                if !order.iter().any(|m| m.base == module.base) {
                    order.push(module.clone());
                }
            }
            return Ok((order, name));
        };
        let found = self.module_named(module)?.ok_or_else(|| {
            TargetError::failed_because("no_such_module", format!("no module is called {module}"))
        })?;
        Ok((vec![found], bare))
    }

    pub(crate) fn layout(&self, name: &str) -> Result<TypeLayout> {
        let (modules, bare) = self.searched(name)?;
        let mut with_types = false;
        for module in &modules {
            let Some(pdb) = self.pdb_of(module.base) else { continue };
            with_types = true;
            if let Ok(layout) = pdb.type_layout(bare) {
                return Ok(TypeLayout { module: module.name.clone(), ..layout });
            }
        }
        Err(match (with_types, modules.as_slice()) {
            (true, _) => TargetError::failed_because(
                "no_such_type",
                format!("no loaded symbols define the type {bare}"),
            ),
            (false, [module]) => TargetError::failed_because(
                "no_types",
                format!("{} has no symbols with types; set a symbol path that holds its PDB", module.name),
            ),
            (false, _) => TargetError::failed_because(
                "no_types",
                format!("no loaded symbols have types, so {bare} is not known"),
            ),
        })
    }

    pub(crate) fn match_types(&self, pattern: &str, limit: usize) -> Result<Vec<String>> {
        let (modules, bare) = match self.searched(pattern) {
            Ok(found) => found,
            // `mod*!name`: the module part is a pattern.
            Err(error) => match pattern.split_once('!') {
                Some((module, bare)) if module.contains(['*', '?']) => {
                    let glob = symbols::glob::Glob::new(module);
                    (self.modules()?.iter().filter(|m| glob.matches(&m.name)).cloned().collect(), bare)
                }
                _ => return Err(error),
            },
        };
        let mut names = Vec::new();
        for module in modules {
            if names.len() >= limit {
                break;
            }
            let Some(pdb) = self.pdb_of(module.base) else { continue };
            let found = pdb.types_matching(bare, limit - names.len()).unwrap_or_default();
            names.extend(found.into_iter().take(limit - names.len()).map(|n| format!("{}!{n}", module.name)));
        }
        Ok(names)
    }
}
