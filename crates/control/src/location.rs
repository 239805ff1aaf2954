//! Where a stopped target stands.

use target::{Address, Attribution, ContextOf, Rva, SymbolState, Target, TargetExt, View};

/// Position of the selected thread or processor, each part absent when it cannot be established.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Position {
    pub(crate) ip: Option<Address>,
    pub(crate) module: Option<String>,
    pub(crate) rva: Option<Rva>,
    pub(crate) symbol: Option<String>,
    pub(crate) displacement: Option<Rva>,
    pub(crate) thread: Option<u32>,
    pub(crate) processor: Option<u32>,
}

pub(crate) fn position(target: &dyn Target) -> Position {
    let selection = target.selection();
    let kernel = target.facts().kind.is_kernel();
    let mut position = Position {
        thread: selection.thread.filter(|_| !kernel),
        processor: selection.processor.filter(|_| kernel),
        ..Position::default()
    };
    let Some((ip, _)) = pointers(target) else { return position };
    position.ip = Some(Address(ip));
    let Attribution::Module { name, base, rva } = target.attribute(ip) else { return position };
    position.module = Some(name);
    position.rva = Some(Rva(rva));
    if let Some(hit) = known_symbol(target, base, ip) {
        position.displacement = Some(Rva(hit.displacement));
        position.symbol = Some(hit.qualified());
    }
    position
}

/// The symbol at `ip` when the module's symbols are there already: a stop loads none, so that a step
/// never waits for a symbol server.
fn known_symbol(target: &dyn Target, base: u64, ip: u64) -> Option<target::SymbolHit> {
    let status = target.symbol_status(base, false).ok()?;
    if matches!(status.state, SymbolState::None | SymbolState::Deferred) {
        return None;
    }
    target.symbol_at(ip).ok().flatten()
}

/// Instruction and stack pointer of the selected thread.
pub(crate) fn pointers(target: &dyn Target) -> Option<(u64, u64)> {
    let context = target.context(ContextOf::Selected, View::Default).ok().flatten()?;
    Some((context.ip(), context.sp()))
}

/// `module` and `rva` of an address.
pub(crate) fn attributed(target: &dyn Target, address: u64) -> (Option<String>, Option<Rva>) {
    match target.attribute(address) {
        Attribution::Module { name, rva, .. } => (Some(name), Some(Rva(rva))),
        Attribution::NoModule { .. } | Attribution::LookupFailed => (None, None),
    }
}
