//! Loaded and unloaded drivers.

use std::collections::HashSet;

use dump::{KdDebuggerData, KernelDump};
use target::{MemoryExt, Module, ReadError, Result, TargetError, UnloadedModule, Unreadable, base_name};

use super::{kernel_dump, known, live_pages};
use crate::core::{Core, identity_in_memory, pdb_in_memory};
use crate::module_names;

/// Entries of `PsLoadedModuleList` looked at.
const MAX_MODULES: usize = 4096;
/// Slots of `MmUnloadedDrivers`.
const UNLOADED_SLOTS: u64 = 50;
const UNLOADED_SIZE: u64 = 0x28;

/// The loaded modules, names not yet made.
pub(super) fn loaded(
    core: &Core,
    kdbg: Option<&KdDebuggerData>,
    limitations: &mut Vec<String>,
) -> Result<Vec<Module>> {
    if kernel_dump(core).is_none() && live_pages(core).is_none() {
        return Err(TargetError::failed("this is no kernel"));
    }
    if let Some(triage) = kernel_dump(core).and_then(KernelDump::triage) {
        return Ok(triage.drivers.iter().filter(|d| d.base != 0).map(from_triage).collect());
    }
    let head = known(core)
        .loaded_modules
        .or_else(|| kdbg.and_then(KdDebuggerData::ps_loaded_module_list))
        .ok_or_else(|| {
            TargetError::failed_because("no_module_list", "the target does not say where the module list is")
        })?;
    walk(core, head, limitations)
}

fn from_triage(driver: &dump::kernel::TriageDriver) -> Module {
    Module {
        name: String::new(),
        image_name: base_name(&driver.name).to_owned(),
        image_path: driver.name.clone(),
        base: driver.base,
        size: u64::from(driver.size),
        timestamp: driver.timestamp,
        checksum: driver.checksum,
        pdb: None,
        user_mode: Some(false),
        file_version: None,
    }
}

fn walk(core: &Core, head: u64, limitations: &mut Vec<String>) -> Result<Vec<Module>> {
    let mut modules = Vec::new();
    let mut seen = HashSet::from([head]);
    let mut before = head;
    let mut entry = core.read_u64(head)?;
    while entry != head && modules.len() < MAX_MODULES {
        if !seen.insert(entry) {
            limitations
                .push("the list of loaded modules runs in a circle; what came before is kept".to_owned());
            break;
        }
        match read_entry(core, entry) {
            Ok((module, next, back)) => {
                if back != before {
                    limitations.push(format!("the module list's entry at {entry:#x} does not link back"));
                }
                modules.extend(module);
                before = entry;
                entry = next;
            }
            Err(error) if modules.is_empty() => return Err(error.into()),
            Err(error) => {
                limitations.push(format!("the list of loaded modules ends early: {error}"));
                break;
            }
        }
    }
    if modules.is_empty() {
        return Err(ReadError { address: head, why: Unreadable::Refused }.into());
    }
    Ok(modules)
}

/// One `KLDR_DATA_TABLE_ENTRY`: the module (`None` for an empty entry), its Flink and Blink.
fn read_entry(core: &Core, entry: u64) -> Result<(Option<Module>, u64, u64), ReadError> {
    let field = |offset: u64| entry.wrapping_add(offset);
    let (next, back) = (core.read_u64(field(0))?, core.read_u64(field(8))?);
    let base = core.read_u64(field(0x30))?;
    let size = u64::from(core.read_u32(field(0x40))?);
    if base == 0 {
        return Ok((None, next, back));
    }
    let name = core.read_unicode_string(field(0x58), 8).unwrap_or_default();
    let path = core.read_unicode_string(field(0x48), 8).ok().filter(|p| !p.is_empty());
    let module = Module {
        name: String::new(),
        image_name: base_name(if name.is_empty() { path.as_deref().unwrap_or("") } else { &name }).to_owned(),
        image_path: path.unwrap_or(name),
        base,
        size,
        timestamp: core.read_u32(field(0x9c)).unwrap_or(0),
        checksum: core.read_u32(field(0x78)).unwrap_or(0),
        pdb: None,
        user_mode: Some(false),
        file_version: None,
    };
    Ok((Some(module), next, back))
}

/// Identities from headers in memory, and names: the kernel is always `nt`, the second entry `hal`.
/// What is in `before` already is not read again.
pub(super) fn named(
    core: &Core,
    mut modules: Vec<Module>,
    nt_base: Option<u64>,
    before: &[Module],
) -> Vec<Module> {
    for (index, module) in modules.iter_mut().enumerate() {
        let same = |old: &&Module| old.base == module.base && old.image_path == module.image_path;
        if let Some(old) = before.iter().find(same).filter(|old| old.size == module.size || module.size == 0)
        {
            *module = Module { name: String::new(), ..old.clone() };
        } else if let Some(pe) = identity_in_memory(core, module.base) {
            module.timestamp = pe.timestamp;
            module.pdb = pdb_in_memory(core, module, &pe);
            if module.size == 0 {
                module.size = u64::from(pe.size_of_image);
            }
            if module.checksum == 0 {
                module.checksum = pe.checksum;
            }
        }
        if Some(module.base) == nt_base {
            module.name = "nt".to_owned();
        } else if index == 1 && module.image_name.to_ascii_lowercase().starts_with("hal") {
            module.name = "hal".to_owned();
        }
    }
    module_names::assign(&mut modules);
    modules
}

/// Unloaded drivers, newest last.
pub(super) fn unloaded(core: &Core, kdbg: Option<&KdDebuggerData>) -> Vec<UnloadedModule> {
    if let Some(triage) = kernel_dump(core).and_then(KernelDump::triage) {
        let rows = triage.unloaded.iter().map(|d| row(d.name.clone(), d.start, d.end));
        return rows.collect();
    }
    let read = || {
        let array = core.read_u64(kdbg?.mm_unloaded_drivers()?).ok().filter(|&a| a != 0)?;
        let last = u64::from(core.read_u32(kdbg?.mm_last_unloaded_driver()?).ok()?);
        Some((array, last))
    };
    let Some((array, last)) = read() else { return Vec::new() };
    (0..UNLOADED_SLOTS)
        .filter_map(|n| {
            // A ring: the slot to be written next holds the oldest.
            let slot = array.checked_add((last + n) % UNLOADED_SLOTS * UNLOADED_SIZE)?;
            let name = core.read_unicode_string(slot, 8).ok().filter(|n| !n.is_empty())?;
            Some(row(name, core.read_u64(slot + 0x10).ok()?, core.read_u64(slot + 0x18).ok()?))
        })
        .collect()
}

fn row(name: String, start: u64, end: u64) -> UnloadedModule {
    UnloadedModule {
        image_name: name,
        base: start,
        size: end.saturating_sub(start),
        timestamp: 0,
        checksum: 0,
    }
}
