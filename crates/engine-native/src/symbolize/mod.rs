//! Symbols of modules, loaded when first needed, from whatever source there is (spec 80 section 11).

mod kernel;
mod load;
mod lookup;
mod types;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use symbols::{ExportSymbols, SymbolFile};
use target::{Module, SymbolPaths, SymbolState, SymbolStatus};

use crate::core::{Core, ModuleKey, key_of};

/// What one module has.
pub(crate) struct ModuleSymbols {
    pub(crate) status: SymbolStatus,
    /// PDB, ISF, COFF or DWARF.
    pub(crate) file: Option<Box<dyn SymbolFile>>,
    /// The fallback: names of the export table.
    pub(crate) exports: Option<ExportSymbols>,
}

impl ModuleSymbols {
    /// The source names come from.
    pub(crate) fn source(&self) -> Option<&dyn SymbolFile> {
        match (&self.file, &self.exports) {
            (Some(file), _) => Some(file.as_ref()),
            (None, Some(exports)) => Some(exports),
            _ => None,
        }
    }
}

/// Addresses the dump header states, which an ISF chosen by name must agree with.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct KernelAnchors {
    pub(crate) loaded_modules: u64,
    pub(crate) debugger_data: u64,
    pub(crate) active_processes: u64,
}

/// Symbols of all modules of a session.
pub(crate) struct Symbolizer {
    core: Rc<Core>,
    paths: RefCell<SymbolPaths>,
    /// The dump's (or image's) own folder.
    own_folder: Option<PathBuf>,
    loaded: RefCell<HashMap<ModuleKey, Rc<ModuleSymbols>>>,
    /// Modules being loaded now: loading may read memory, which must not load again.
    loading: RefCell<Vec<ModuleKey>>,
    /// Base of the kernel image and the anchors, on kernel targets.
    kernel: Cell<Option<(u64, KernelAnchors)>>,
}

/// Longest one module's look-up may take, downloads included.
const LOOKUP_BUDGET: Duration = Duration::from_secs(60);

impl Symbolizer {
    pub(crate) fn new(core: Rc<Core>, paths: SymbolPaths, own_folder: Option<PathBuf>) -> Self {
        core.images.set_paths(&paths, own_folder.as_deref());
        Self {
            core,
            paths: RefCell::new(paths),
            own_folder,
            loaded: RefCell::default(),
            loading: RefCell::default(),
            kernel: Cell::new(None),
        }
    }

    pub(crate) fn set_kernel(&self, base: u64, anchors: KernelAnchors) {
        self.kernel.set(Some((base, anchors)));
    }

    pub(crate) fn paths(&self) -> SymbolPaths {
        self.paths.borrow().clone()
    }

    /// Modules without symbols of their own look again.
    pub(crate) fn set_paths(&self, paths: SymbolPaths) {
        self.core.images.set_paths(&paths, self.own_folder.as_deref());
        self.core.retry_headers();
        *self.paths.borrow_mut() = paths;
        self.loaded.borrow_mut().retain(|_, symbols| symbols.file.is_some());
    }

    /// Forgets what the modules that `wanted` accepts have; returns how many those are.
    pub(crate) fn forget(&self, modules: &[Module], wanted: impl Fn(&Module) -> bool) -> usize {
        let mut loaded = self.loaded.borrow_mut();
        let mut count = 0;
        for module in modules.iter().filter(|m| wanted(m)) {
            loaded.remove(&key_of(module));
            count += 1;
        }
        count
    }

    /// What the module has, if that was asked before.
    pub(crate) fn known(&self, module: &Module) -> Option<Rc<ModuleSymbols>> {
        self.loaded.borrow().get(&key_of(module)).cloned()
    }

    /// What the module has, looked for once. `None` while it is being looked for.
    pub(crate) fn of(&self, module: &Module) -> Option<Rc<ModuleSymbols>> {
        if let Some(known) = self.known(module) {
            return Some(known);
        }
        let key = key_of(module);
        if self.loading.borrow().contains(&key) {
            return None;
        }
        self.loading.borrow_mut().push(key);
        let (symbols, complete) = self.load(module);
        let symbols = Rc::new(symbols);
        self.loading.borrow_mut().retain(|&other| other != key);
        if complete {
            self.loaded.borrow_mut().insert(key, Rc::clone(&symbols));
        }
        if let (Some((base, _)), Some(file)) = (self.kernel.get(), symbols.file.as_deref())
            && base == module.base
        {
            self.adapt_translator(module, file);
        }
        Some(symbols)
    }

    pub(crate) fn status(&self, module: &Module, load: bool) -> SymbolStatus {
        let symbols = if load { self.of(module) } else { self.known(module) };
        symbols.map_or_else(
            || SymbolStatus {
                state: SymbolState::Deferred,
                pdb: module.pdb.clone(),
                file: None,
                unmatched: false,
                note: None,
            },
            |s| s.status.clone(),
        )
    }
}
