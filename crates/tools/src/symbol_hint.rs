//! What would name the frames that have no name (spec 00 decision 25).

use std::path::Path;

use target::{FrameInfo, SymbolState, Target, TargetExt};

/// The default store, then Microsoft's server.
const MICROSOFT: &str = "srv**https://msdl.microsoft.com/download/symbols";
/// Modules named in the sentence.
const NAMED: usize = 4;

/// One sentence naming the modules without symbols among `frames` and the path that would get them;
/// `None` when all have names, or the path in use asks a server already.
pub(crate) fn hint(target: &dyn Target, frames: &[FrameInfo]) -> Option<String> {
    if target.symbol_paths().symbols.contains("://") {
        return None;
    }
    let mut modules: Vec<&str> = Vec::new();
    for frame in frames {
        if let Some(name) = frame.module.as_deref()
            && !modules.contains(&name)
            && lacks_symbols(target, name)
        {
            modules.push(name);
        }
    }
    if modules.is_empty() {
        return None;
    }
    let more = modules.len().saturating_sub(NAMED);
    modules.truncate(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let paths = target.symbol_paths();
    let absent = match missing(&paths.symbols).join(", ") {
        list if list.is_empty() => list,
        list => format!(", of which {list} is not there"),
    };
    Some(format!(
        "no symbols for {}{more}: they are found beside the dump or on the symbol path{absent}; Microsoft's are on \
         {MICROSOFT}",
        modules.join(", ")
    ))
}

/// Plain folders and files of a symbol path that do not exist. Servers, caches and shares are not asked.
pub(crate) fn missing(path: &str) -> Vec<&str> {
    let plain = |element: &&str| {
        !element.is_empty()
            && !element.contains(['*', '"'])
            && !element.contains("://")
            && !element.starts_with(r"\\")
    };
    path.split(';').map(str::trim).filter(plain).filter(|element| !Path::new(element).exists()).collect()
}

fn lacks_symbols(target: &dyn Target, name: &str) -> bool {
    let Ok(Some(module)) = target.module_named(name) else { return false };
    target.symbol_status(module.base, false).is_ok_and(|status| {
        matches!(status.state, SymbolState::None | SymbolState::Deferred | SymbolState::Export)
    })
}
