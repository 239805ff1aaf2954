//! Modules of the process whose user half is shown: its loader's lists (spec 80 section 9).

use std::collections::HashSet;

use target::{MemoryExt, Module, Selection, base_name};

use super::KernelState;
use crate::core::identity_in_memory;
use crate::core::pdb_in_memory;
use crate::module_names;
use crate::symbolize::Symbolizer;

const MAX_MODULES: usize = 4096;

/// Offsets of `PEB.Ldr`, `InLoadOrderModuleList` and a loader entry's fields.
struct Loader {
    pointer: u8,
    ldr: u64,
    list: u64,
    base: u64,
    size: u64,
    full_name: u64,
    base_name: u64,
}

const LOADER_64: Loader =
    Loader { pointer: 8, ldr: 0x18, list: 0x10, base: 0x30, size: 0x40, full_name: 0x48, base_name: 0x58 };
const LOADER_32: Loader =
    Loader { pointer: 4, ldr: 0x0c, list: 0x0c, base: 0x18, size: 0x20, full_name: 0x24, base_name: 0x2c };

impl KernelState {
    /// The kernel's modules, then those of the selected process. Its user half must be mapped.
    pub(crate) fn modules_with_process(&self, selection: Selection, symbols: &Symbolizer) -> Vec<Module> {
        let process = selection
            .process
            .or_else(|| self.current_thread_of(selection.processor?).and_then(|t| self.process_of_thread(t)));
        let mut all = self.modules.borrow().clone();
        if let Some(process) = process {
            let known = self.user_modules.borrow().get(&process).cloned();
            let user = known.unwrap_or_else(|| {
                let found = self.read_user_modules(process, symbols);
                // With the kernel's types a 32-bit process shows more; ask again until they are there.
                if self.kernel_symbols_known(symbols) {
                    self.user_modules.borrow_mut().insert(process, found.clone());
                }
                found
            });
            all.extend(user);
        }
        module_names::assign(&mut all);
        all
    }

    fn read_user_modules(&self, process: u64, symbols: &Symbolizer) -> Vec<Module> {
        let offset = self.kdbg.as_ref().and_then(|k| k.offset_eprocess_peb()).filter(|&o| o != 0);
        let peb = offset.and_then(|o| self.core.read_u64(process.checked_add(u64::from(o))?).ok());
        let mut out = peb.filter(|&p| p != 0).map_or_else(Vec::new, |peb| self.read_loader(peb, &LOADER_64));
        // Only a process with a loader list can have a second, 32-bit one; its PEB is found by types.
        if !out.is_empty()
            && let Some(peb32) = self.peb32(process, symbols)
        {
            let narrow = self.read_loader(peb32, &LOADER_32);
            out.extend(narrow.into_iter().filter(|m| m.base >> 32 == 0).collect::<Vec<_>>());
        }
        let mut seen = HashSet::new();
        out.retain(|m| seen.insert(m.base));
        out
    }

    fn kernel_symbols_known(&self, symbols: &Symbolizer) -> bool {
        let modules = self.modules.borrow();
        let kernel = self.nt_base.and_then(|base| modules.iter().find(|m| m.base == base));
        kernel.is_some_and(|m| symbols.known(m).is_some())
    }

    fn peb32(&self, process: u64, symbols: &Symbolizer) -> Option<u64> {
        // Looking for symbols of the kernel just for this would slow down every open.
        if !self.kernel_symbols_known(symbols) {
            return None;
        }
        let offset = self.layout(symbols).process_wow64?;
        let wow64 = self.core.read_u64(process.checked_add(offset)?).ok().filter(|&p| p != 0)?;
        self.core.read_u64(wow64).ok().filter(|&peb| peb != 0 && peb >> 32 == 0)
    }

    fn read_loader(&self, peb: u64, layout: &Loader) -> Vec<Module> {
        let pointer =
            |address: Option<u64>| self.core.read_pointer(address?, layout.pointer).ok().filter(|&p| p != 0);
        let Some(ldr) = pointer(peb.checked_add(layout.ldr)) else { return Vec::new() };
        let Some(head) = ldr.checked_add(layout.list) else { return Vec::new() };
        let mut out = Vec::new();
        let mut seen = HashSet::from([head]);
        let mut entry = pointer(Some(head));
        while let Some(at) = entry
            && out.len() < MAX_MODULES
            && seen.insert(at)
        {
            out.extend(self.loader_entry(at, layout));
            entry = pointer(Some(at));
        }
        out
    }

    fn loader_entry(&self, entry: u64, layout: &Loader) -> Option<Module> {
        let field = |offset: u64| entry.checked_add(offset);
        let base = self.core.read_pointer(field(layout.base)?, layout.pointer).ok().filter(|&b| b != 0)?;
        let size = self.core.read_u32(field(layout.size)?).ok()?;
        let text = |offset: u64| self.core.read_unicode_string(field(offset)?, layout.pointer).ok();
        let name = text(layout.base_name).unwrap_or_default();
        let path = text(layout.full_name).filter(|p| !p.is_empty());
        let mut module = Module {
            name: String::new(),
            image_name: base_name(if name.is_empty() { path.as_deref().unwrap_or("") } else { &name })
                .to_owned(),
            image_path: path.unwrap_or(name),
            base,
            size: u64::from(size),
            timestamp: 0,
            checksum: 0,
            pdb: None,
            user_mode: Some(true),
            file_version: None,
        };
        if let Some(pe) = identity_in_memory(&self.core, base) {
            module.timestamp = pe.timestamp;
            module.checksum = pe.checksum;
            module.pdb = pdb_in_memory(&self.core, &module, &pe);
        }
        Some(module)
    }
}
