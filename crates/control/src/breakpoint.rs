//! What may be a breakpoint. Engines accept what they cannot insert and then fail every later run
//! with an error that blames the run, or keep what never fires; neither is let in (spec 10 section
//! 7.3's table).

use target::capability::{Access, Breakpoint};
use target::{Halt, Machine, MemoryExt, Result, SymbolState, Target, TargetError, TargetExt};

use crate::inventory::{BreakpointRecord, list, record};
use crate::targets::breakpoints_of;
use crate::tokens::target_changing;

/// Debug registers of x86 and x64.
const HARDWARE_SLOTS: usize = 4;

/// A breakpoint to be set. Texts passed the operand guard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Already resolved, from a coordinate; else `expression` says where.
    pub address: Option<u64>,
    pub expression: Option<String>,
    /// Access and bytes; a code breakpoint when absent.
    pub watch: Option<(Access, u8)>,
    pub command: Option<String>,
    pub condition: Option<String>,
    pub one_shot: bool,
    /// 1 for the first arrival.
    pub pass_count: u32,
    /// System thread id.
    pub thread: Option<u32>,
}

impl Wanted {
    /// What is wrong with it whatever the target; all problems at once.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        match self.watch {
            Some((Access::Execute, size)) if size != 1 => {
                problems.push("watch.size must be 1 for access execute".to_owned());
            }
            Some((_, size)) if !matches!(size, 1 | 2 | 4 | 8) => {
                problems.push("watch.size must be 1, 2, 4 or 8".to_owned());
            }
            _ => {}
        }
        if let Some(token) = self.command.as_deref().and_then(target_changing) {
            problems.push(format!(
                "command: {token} changes which target the session has, and a breakpoint runs it when nobody \
                 can notice; leave it out"
            ));
        }
        if self.one_shot && self.condition.is_some() {
            problems.push(
                "one_shot with a condition would be used up by the first arrival, met or not: leave one_shot \
                 out and clear it after the stop"
                    .to_owned(),
            );
        }
        problems
    }
}

/// What setting a breakpoint changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub breakpoint: BreakpointRecord,
    /// Ids of those that stood there and were removed for it.
    pub replaced: Vec<u32>,
    /// All there are now; absent when they could not be read.
    pub breakpoints: Option<Vec<BreakpointRecord>>,
    /// The time ran out or a break came once it was being set: it is set, but what was to be looked up
    /// for it may be missing.
    pub cut_short: bool,
}

/// Sets a breakpoint, or refuses and leaves the inventory as it was.
///
/// # Errors
/// `InvalidArgument` for what can be no breakpoint, `Failed` for what would be a poisonous or a dead
/// one here, `Deadline`/`Interrupted` when looking the place up was cut short: nothing is set then.
pub fn set(target: &dyn Target, wanted: &Wanted, halt: &Halt) -> Result<Change> {
    let breakpoints = breakpoints_of(target)?;
    if let Some(problem) = wanted.problems().into_iter().next() {
        return Err(TargetError::InvalidArgument(problem));
    }
    fits(target, wanted)?;
    let address = match (wanted.address, &wanted.expression) {
        (Some(address), _) => Some(address),
        (None, Some(expression)) => resolve(target, expression, halt)?,
        (None, None) => return Err(TargetError::InvalidArgument("no place was given".to_owned())),
    };
    place(target, wanted, address)?;
    let before = breakpoints.list()?;
    let replaced: Vec<u32> = before.iter().filter(|b| same_place(b, wanted, address)).map(|b| b.id).collect();
    slots(target, wanted, &before, &replaced)?;
    // With every slot taken there is no room for both.
    let room = wanted.watch.is_none() || data(&before).count() < HARDWARE_SLOTS;
    if !room {
        drop_old(target, &replaced)?;
    }
    let set = match add(target, wanted, address, &before) {
        Ok(set) => set,
        Err(error) => {
            if !room {
                restore(target, &before, &replaced);
            }
            return Err(error);
        }
    };
    if room && let Err(error) = drop_old(target, &replaced) {
        undo(target, set.id);
        return Err(error);
    }
    let cut_short = halt.stop().is_some();
    Ok(Change { breakpoint: record(target, &set), replaced, breakpoints: list(target).ok(), cut_short })
}

fn data(all: &[Breakpoint]) -> impl Iterator<Item = &Breakpoint> {
    all.iter().filter(|b| b.enabled && b.watch.is_some())
}

fn drop_old(target: &dyn Target, replaced: &[u32]) -> Result<()> {
    let breakpoints = breakpoints_of(target)?;
    for id in replaced {
        breakpoints.remove(*id).map_err(|error| {
            TargetError::failed(format!(
                "breakpoint {id} stands there already and could not be replaced: {error}; nothing was changed"
            ))
        })?;
    }
    Ok(())
}

/// Sets again what made room for one that was then refused; its id is another one now.
fn restore(target: &dyn Target, before: &[Breakpoint], replaced: &[u32]) {
    for old in before.iter().filter(|b| replaced.contains(&b.id)) {
        if let Some(Err(error)) = target.breakpoints().map(|all| all.add(old)) {
            tracing::warn!(id = old.id, %error, "a replaced breakpoint could not be set again");
        }
    }
}

/// Adds it and reads it back; whatever goes wrong, no object remains.
fn add(
    target: &dyn Target,
    wanted: &Wanted,
    address: Option<u64>,
    before: &[Breakpoint],
) -> Result<Breakpoint> {
    let breakpoints = breakpoints_of(target)?;
    let asked = Breakpoint {
        id: 0,
        address,
        expression: wanted.expression.clone(),
        watch: wanted.watch,
        command: wanted.command.clone(),
        condition: wanted.condition.clone(),
        thread: wanted.thread,
        enabled: true,
        one_shot: wanted.one_shot,
        pass_count: wanted.pass_count.max(1),
        passes_remaining: None,
        hits: None,
    };
    let set = match breakpoints.add(&asked) {
        Ok(set) => set,
        Err(error) => {
            // Some engines leave half an object behind.
            let now = breakpoints.list().unwrap_or_default();
            for left in now.iter().filter(|b| before.iter().all(|old| old.id != b.id)) {
                undo(target, left.id);
            }
            return Err(error);
        }
    };
    if address.is_some() && (set.address != address || set.watch != wanted.watch) {
        undo(target, set.id);
        return Err(TargetError::failed(format!(
            "the engine set it as {:x?} {:?} instead; it was removed again",
            set.address, set.watch
        )));
    }
    Ok(set)
}

fn undo(target: &dyn Target, id: u32) {
    if let Some(Err(error)) = target.breakpoints().map(|all| all.remove(id)) {
        tracing::warn!(id, %error, "a refused breakpoint could not be removed");
    }
}

/// Whether this kind of target and processor has such breakpoints.
fn fits(target: &dyn Target, wanted: &Wanted) -> Result<()> {
    let facts = target.facts();
    let invalid = |text: String| Err(TargetError::InvalidArgument(text));
    match wanted.watch {
        Some((Access::Io, _)) if !facts.kind.is_kernel() || !is_x86(facts.machine) => {
            return invalid("watch.access io needs an x86 or x64 kernel".to_owned());
        }
        Some((_, 8)) if facts.machine.pointer_size() < 8 => {
            return invalid(format!(
                "watch.size 8 needs a 64-bit target; this one is {}",
                facts.machine.name()
            ));
        }
        _ => {}
    }
    let Some(thread) = wanted.thread else { return Ok(()) };
    if facts.kind.is_kernel() {
        return invalid("thread is for user-mode targets only".to_owned());
    }
    let threads = target.threads()?;
    if threads.iter().any(|known| known.system_id == thread) {
        return Ok(());
    }
    let ids: Vec<String> = threads.iter().take(16).map(|t| t.system_id.to_string()).collect();
    let message = format!("there is no thread {thread}; the target has {}", ids.join(", "));
    Err(TargetError::failed_because("no_such_thread", message))
}

fn is_x86(machine: Machine) -> bool {
    matches!(machine, Machine::X86 | Machine::X64)
}

/// The address of `expression`; `None` when its module is not loaded yet and it can wait for it.
fn resolve(target: &dyn Target, expression: &str, halt: &Halt) -> Result<Option<u64>> {
    let error = match target.evaluate(expression, halt) {
        Ok(address) => return Ok(Some(address)),
        Err(error @ TargetError::Failed { .. }) => error,
        Err(error) => return Err(error),
    };
    let Some(module) = module_of(expression) else {
        if is_name(expression.trim()) {
            let message = format!(
                "nothing loaded is called {expression}; to wait for a module that is not loaded yet, qualify it as \
                 module!{}",
                expression.trim()
            );
            return Err(TargetError::failed_because("no_such_symbol", message));
        }
        return Err(error);
    };
    let Some(loaded) = target.module_named(module)? else { return Ok(None) };
    // A module whose symbols were never looked for may still know the name.
    let before = target.symbol_status(loaded.base, false).map(|status| status.state).ok();
    if matches!(before, None | Some(SymbolState::Deferred | SymbolState::None)) {
        halt.check("loading symbols")?;
        let _ = target.symbol_status(loaded.base, true);
        match target.evaluate(expression, halt) {
            Ok(address) => return Ok(Some(address)),
            Err(TargetError::Failed { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    let state = target.symbol_status(loaded.base, false).map(|status| status.state).ok();
    let why = match state {
        Some(SymbolState::None | SymbolState::Deferred) => "; it has no symbols here",
        Some(SymbolState::Export) => "; only its exports are known here",
        _ => "",
    };
    let message = format!("{module} is loaded and {expression} is nothing in it ({error}){why}");
    Err(TargetError::failed_because("no_such_symbol", message))
}

/// The module `module!symbol` or `module+rva` waits for; `None` for anything else.
fn module_of(expression: &str) -> Option<&str> {
    let text = expression.trim();
    if let Some((module, symbol)) = text.split_once('!') {
        let plain = !symbol.is_empty() && !symbol.contains(char::is_whitespace);
        return (plain && is_name(module)).then_some(module);
    }
    let (module, rva) = text.split_once('+')?;
    let digits = rva.trim().trim_start_matches("0x").replace('`', "");
    (is_name(module.trim()) && u64::from_str_radix(&digits, 16).is_ok()).then_some(module.trim())
}

fn is_name(text: &str) -> bool {
    let first = text.chars().next().is_some_and(|c| c.is_alphabetic() || c == '_');
    first && text.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '.' | '-' | ':' | '~'))
}

/// Refuses an address no code can be read at: the engine could not insert it, and then nothing runs.
pub(crate) fn readable_code(target: &dyn Target, address: u64) -> Result<()> {
    match target.read_u8(address) {
        Ok(_) => Ok(()),
        Err(error) => Err(TargetError::failed_because(
            "unreadable_code",
            format!("no code can be read at {address:#018x} ({error}), so nothing can stop there"),
        )),
    }
}

/// What the resolved place must be.
fn place(target: &dyn Target, wanted: &Wanted, address: Option<u64>) -> Result<()> {
    match (wanted.watch, address) {
        (None, Some(address)) => readable_code(target, address),
        (Some((_, size)), Some(address)) if !address.is_multiple_of(u64::from(size)) => {
            let down = address - address % u64::from(size);
            Err(TargetError::InvalidArgument(format!(
                "{address:#018x} is not a multiple of {size}, and the processor watches {size} bytes only at one \
                 (the nearest below is {down:#018x}); watch fewer bytes, or start there"
            )))
        }
        (Some((_, size)), None) if size > 1 => Err(TargetError::failed_because(
            "module_not_loaded",
            "its module is not loaded, so where it will be, and whether it can be watched there, is not known; \
             set it once the module is loaded, or watch one byte",
        )),
        _ => Ok(()),
    }
}

/// Of the same kind at the same resolved address. Deferred ones cannot be compared.
fn same_place(old: &Breakpoint, wanted: &Wanted, address: Option<u64>) -> bool {
    address.is_some() && old.address == address && old.watch == wanted.watch
}

/// Refuses a data breakpoint the processor has no register left for.
fn slots(target: &dyn Target, wanted: &Wanted, all: &[Breakpoint], replaced: &[u32]) -> Result<()> {
    if wanted.watch.is_none() || !is_x86(target.facts().machine) {
        return Ok(());
    }
    let used = data(all).filter(|b| !replaced.contains(&b.id));
    let ids: Vec<String> = used.map(|b| b.id.to_string()).collect();
    if ids.len() < HARDWARE_SLOTS {
        return Ok(());
    }
    let message = format!(
        "the processor's {HARDWARE_SLOTS} hardware slots are in use by breakpoints {}; clear one first",
        ids.join(", ")
    );
    Err(TargetError::failed_because("no_hardware_slot", message))
}
