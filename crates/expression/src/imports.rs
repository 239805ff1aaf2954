//! What an image says of its imports, where a name has no symbol of its own.

use pe::{ImportedDll, MappedImage, Pe};
use target::{Target, TargetExt, TargetKind};

/// The import table of the module at `base`. A recorded target only: over a wire it costs a read a name.
#[must_use]
pub fn imports(target: &dyn Target, base: u64) -> Vec<ImportedDll> {
    let recorded =
        matches!(target.facts().kind, TargetKind::UserDump | TargetKind::KernelDump | TargetKind::Image);
    if !recorded {
        return Vec::new();
    }
    let image = MappedImage::new(target, base);
    Pe::parse(&image).map(|header| header.imports(&image)).unwrap_or_default()
}

/// The import whose slot lies at `rva`, as `ntoskrnl!IofCompleteRequest`.
#[must_use]
pub fn slot_name(imports: &[ImportedDll], rva: u64) -> Option<String> {
    let (dll, import) = imports
        .iter()
        .flat_map(|dll| dll.imports.iter().map(move |import| (dll, import)))
        .find(|(_, import)| u64::from(import.slot) == rva)?;
    let stem = dll.name.rsplit_once('.').map_or(dll.name.as_str(), |(stem, _)| stem);
    let name = match (&import.name, import.ordinal) {
        (Some(name), _) => name.clone(),
        (None, Some(ordinal)) => format!("#{ordinal}"),
        (None, None) => return None,
    };
    Some(plain(&format!("{stem}!{name}")))
}

/// Names of an image are not trusted to stay on their line.
fn plain(name: &str) -> String {
    name.chars().filter(|c| !c.is_control()).take(256).collect()
}

/// Why `token` has no address, in a sentence without a stop.
#[must_use]
pub fn why_unresolved(target: &dyn Target, token: &str) -> String {
    let Some((module_name, name)) = token.split_once('!') else {
        let modules = target.modules().unwrap_or_default();
        let slot = match &*modules {
            [module] => import_slot(target, &module.name, module.base, token),
            _ => None,
        };
        return slot.unwrap_or_else(|| {
            format!("no symbol, register or number is called {token}; MODULE!NAME looks in one module")
        });
    };
    let Ok(Some(module)) = target.module_named(module_name) else {
        return format!("no loaded module is called {module_name}, so {token} has no address");
    };
    if let Some(slot) = import_slot(target, &module.name, module.base, name) {
        return slot;
    }
    let state = target.symbol_status(module.base, false).map(|status| status.state);
    match state {
        Ok(target::SymbolState::None) => {
            format!(
                "{} has no symbols, so {name} is not known; set a symbol path that holds them",
                module.name
            )
        }
        Ok(target::SymbolState::Export) => format!(
            "no symbol {name} in module {}, of which only the exports are known; a symbol path may hold more",
            module.name
        ),
        _ => format!("no symbol {name} in module {}", module.name),
    }
}

fn import_slot(target: &dyn Target, module: &str, base: u64, name: &str) -> Option<String> {
    let slot = slot_rva(target, base, name)?;
    Some(format!(
        "{name} is an import of {module} and no symbol of it; its slot is {module}+{slot:#x}: give that"
    ))
}

fn slot_rva(target: &dyn Target, base: u64, name: &str) -> Option<u32> {
    let name = name.strip_prefix("__imp_").unwrap_or(name);
    let found = imports(target, base);
    let mut all = found.iter().flat_map(|dll| &dll.imports);
    all.find(|import| import.name.as_deref() == Some(name)).map(|import| import.slot)
}

/// Where the address of the import `NAME` or `MODULE!NAME` is kept; without a module, of the only one
/// there is.
#[must_use]
pub fn import_address(target: &dyn Target, token: &str) -> Option<u64> {
    let (module, name) = match token.split_once('!') {
        Some((module, name)) => (target.module_named(module).ok()??, name),
        None => match &*target.modules().ok()? {
            [module] => (module.clone(), token),
            _ => return None,
        },
    };
    slot_rva(target, module.base, name).map(|slot| module.base.wrapping_add(u64::from(slot)))
}
