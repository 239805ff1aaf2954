//! Breakpoints, with the refusals of spec 10 section 7.3: DbgEng accepts some at set time that then
//! never fire, or fail every later resume.

use target::capability::{Access, Breakpoint, StopReason};
use target::{Breakpoints, MemoryExt, Result, TargetError, TargetExt};
use windows::Win32::System::Diagnostics::Debug::Extensions::{
    DEBUG_BREAK_EXECUTE, DEBUG_BREAK_IO, DEBUG_BREAK_READ, DEBUG_BREAK_WRITE, DEBUG_BREAKPOINT_CODE,
    DEBUG_BREAKPOINT_DATA, DEBUG_BREAKPOINT_DEFERRED, DEBUG_BREAKPOINT_ENABLED, DEBUG_BREAKPOINT_ONE_SHOT,
    DEBUG_BREAKPOINT_PARAMETERS, DEBUG_OUTCTL_THIS_CLIENT, IDebugBreakpoint2,
};
use windows::core::HSTRING;

use crate::engine::{DbgEng, EngineResult};
use crate::names;

/// `DEBUG_ANY_ID` (dbgeng.h).
const ANY_ID: u32 = u32::MAX;
/// Debug registers of x86 and x64.
const HARDWARE_SLOTS: usize = 4;

/// What the engine does not keep of a breakpoint.
#[derive(Clone, Debug, Default)]
pub(crate) struct Remembered {
    expression: Option<String>,
    condition: Option<String>,
    /// Run after the condition held; without a condition the engine runs it by itself.
    command: Option<String>,
}

/// Where a breakpoint is to be.
enum Place {
    Address(u64),
    /// Waits for its module.
    Deferred(String),
}

impl DbgEng {
    pub(crate) fn is_data_breakpoint(&self, id: u32) -> bool {
        self.parameters(id).is_some_and(|p| p.BreakType == DEBUG_BREAKPOINT_DATA)
    }

    /// Whether an enabled code breakpoint is at `address`.
    pub(crate) fn is_break_point_at(&self, address: u64) -> bool {
        let here = |p: DEBUG_BREAKPOINT_PARAMETERS| {
            p.BreakType == DEBUG_BREAKPOINT_CODE
                && p.Flags & DEBUG_BREAKPOINT_ENABLED != 0
                && self.narrow(p.Offset) == address
        };
        self.ids().into_iter().any(|id| self.parameters(id).is_some_and(here))
    }

    fn parameters(&self, id: u32) -> Option<DEBUG_BREAKPOINT_PARAMETERS> {
        let mut parameters = DEBUG_BREAKPOINT_PARAMETERS::default();
        // SAFETY: one id in, one record out.
        unsafe { self.control.GetBreakpointParameters(1, Some(&id), 0, &mut parameters) }.ok()?;
        (parameters.Id == id).then_some(parameters)
    }

    /// Whether a stop at a breakpoint is none: its condition is false, or its command went on.
    pub(crate) fn passes_by(&self, reason: &StopReason) -> bool {
        let (StopReason::Breakpoint { id } | StopReason::DataBreakpoint { id }) = reason else {
            return false;
        };
        let Some(remembered) = self.remembered.borrow().get(id).cloned() else { return false };
        let Some(condition) = &remembered.condition else { return false };
        // A condition that cannot be evaluated stops: the caller sees why it matters.
        if self.evaluate_masm(condition).is_ok_and(|value| value == 0) {
            return true;
        }
        if let Some(command) = &remembered.command {
            // SAFETY: the string lives for the call.
            let _ = unsafe { self.control.ExecuteWide(DEBUG_OUTCTL_THIS_CLIENT, &HSTRING::from(command), 4) };
            return self.running();
        }
        false
    }

    fn place(&self, wanted: &Breakpoint) -> Result<Place> {
        if let Some(address) = wanted.address {
            return Ok(Place::Address(address));
        }
        let Some(expression) = wanted.expression.as_deref().filter(|e| !e.trim().is_empty()) else {
            return Err(TargetError::InvalidArgument(
                "a breakpoint needs an address or an expression".to_owned(),
            ));
        };
        let first = match self.evaluate_masm(expression) {
            Ok(address) => return Ok(Place::Address(self.narrow(address))),
            Err(error) => error,
        };
        let module = module_part(expression);
        let Some(module) = module else {
            return Err(TargetError::failed_because(
                "no_such_symbol",
                format!(
                    "\"{expression}\" is not known; to set it before its module is loaded, qualify it as module!name"
                ),
            ));
        };
        if self.module_named(module)?.is_none() {
            return Ok(Place::Deferred(expression.to_owned()));
        }
        // SAFETY: the string lives for the call.
        let _ = unsafe { self.symbols.ReloadWide(&HSTRING::from(format!("/f {}", self.image_of(module)))) };
        self.forget();
        match self.evaluate_masm(expression) {
            Ok(address) => Ok(Place::Address(self.narrow(address))),
            Err(_) => Err(TargetError::failed_because(
                "no_such_symbol",
                format!("{module} is loaded and has no \"{expression}\": {first}"),
            )),
        }
    }

    fn image_of(&self, module: &str) -> String {
        let found = self.module_named(module).ok().flatten();
        found.map_or_else(|| module.to_owned(), |m| m.image_name)
    }

    fn refuse_poison(&self, place: &Place, watch: Option<(Access, u8)>) -> Result<()> {
        if let Some((access, size)) = watch {
            self.refuse_watch(place, access, size)?;
            self.refuse_fifth()?;
            return Ok(());
        }
        if let Place::Address(address) = place
            && self.read_u8(*address).is_err()
        {
            return Err(TargetError::failed_because(
                "unreadable",
                format!("there is no code at {address:#x}: the address is not readable"),
            ));
        }
        Ok(())
    }

    fn refuse_watch(&self, place: &Place, access: Access, size: u8) -> Result<()> {
        let pointer = self.facts.machine.pointer_size();
        let refused = |text: String| Err(TargetError::InvalidArgument(text));
        if !matches!(size, 1 | 2 | 4 | 8) || size > pointer {
            return refused(format!(
                "a watch of {size} bytes does not exist here: 1, 2, 4{} do",
                if pointer == 8 { " and 8" } else { "" }
            ));
        }
        match access {
            Access::Execute if size != 1 => return refused("an execute watch is 1 byte".to_owned()),
            Access::Io => {
                return Err(TargetError::unsupported(
                    "wrong_target_kind",
                    "port watches exist on kernel targets only",
                ));
            }
            _ => {}
        }
        match place {
            Place::Address(address) if address % u64::from(size) != 0 => {
                refused(format!("a watch of {size} bytes must be aligned to {size}; {address:#x} is not"))
            }
            _ => Ok(()),
        }
    }

    fn refuse_fifth(&self) -> Result<()> {
        let used: Vec<String> = self
            .ids()
            .into_iter()
            .filter_map(|id| self.parameters(id))
            .filter(|p| p.BreakType == DEBUG_BREAKPOINT_DATA && p.Flags & DEBUG_BREAKPOINT_ENABLED != 0)
            .map(|p| p.Id.to_string())
            .collect();
        if used.len() < HARDWARE_SLOTS {
            return Ok(());
        }
        Err(TargetError::failed_because(
            "no_hardware_slot",
            format!("4 hardware slots in use by ids {}; clear one first", used.join(", ")),
        ))
    }

    fn engine_thread_of(&self, system_id: u32) -> Result<u32> {
        self.thread_ids()?.into_iter().find(|(_, system)| *system == system_id).map(|(id, _)| id).ok_or_else(
            || TargetError::InvalidArgument(format!("there is no thread {system_id:#x} ({system_id})")),
        )
    }

    pub(crate) fn ids(&self) -> Vec<u32> {
        // SAFETY: no arguments.
        let count = unsafe { self.control.GetNumberBreakpoints() }.unwrap_or(0).min(65_536);
        let mut ids = Vec::new();
        for index in 0..count {
            // SAFETY: integers only; the object is asked for its id and dropped.
            if let Ok(id) = unsafe { self.control.GetBreakpointByIndex2(index).and_then(|b| b.GetId()) } {
                ids.push(id);
            }
        }
        ids.sort_unstable();
        ids
    }

    /// The engine deletes the object at once, whatever its reference count: it must not be released.
    fn discard(&self, object: IDebugBreakpoint2) -> windows::core::Result<()> {
        let object = std::mem::ManuallyDrop::new(object);
        // SAFETY: the object is alive and not touched afterwards, not even to release it.
        unsafe { self.control.RemoveBreakpoint2(&*object) }
    }

    pub(crate) fn remove_all_breakpoints(&self) {
        for id in self.ids() {
            let _ = self.remove(id);
        }
    }

    /// Everything but creation; on failure the caller removes the object.
    fn configure(&self, object: &IDebugBreakpoint2, wanted: &Breakpoint, place: &Place) -> Result<()> {
        // SAFETY: integers, and strings that live for their calls.
        unsafe {
            match place {
                Place::Address(address) => {
                    object.SetOffset(self.widen(*address)).said("place the breakpoint")?
                }
                Place::Deferred(expression) => {
                    object.SetOffsetExpressionWide(&HSTRING::from(expression)).said("place the breakpoint")?
                }
            }
            if let Some((access, size)) = wanted.watch {
                object.SetDataParameters(u32::from(size), access_bits(access)).said("set what is watched")?;
            }
            if let Some(command) = wanted.command.as_deref().filter(|_| wanted.condition.is_none()) {
                object.SetCommandWide(&HSTRING::from(command)).said("set the command")?;
            }
            if wanted.pass_count > 1 {
                object.SetPassCount(wanted.pass_count).said("set the pass count")?;
            }
            if let Some(thread) = wanted.thread {
                object.SetMatchThreadId(self.engine_thread_of(thread)?).said("set the thread")?;
            }
            let one_shot = if wanted.one_shot { DEBUG_BREAKPOINT_ONE_SHOT } else { 0 };
            let enabled = if wanted.enabled { DEBUG_BREAKPOINT_ENABLED } else { 0 };
            object.AddFlags(one_shot | enabled).said("arm the breakpoint")
        }
    }

    fn record(&self, id: u32) -> Result<Breakpoint> {
        let missing = || TargetError::InvalidArgument(format!("there is no breakpoint {id}"));
        let parameters = self.parameters(id).ok_or_else(missing)?;
        let remembered = self.remembered.borrow().get(&id).cloned().unwrap_or_default();
        // SAFETY: integers only, then buffers that live for their calls.
        let (command, expression) = unsafe {
            let object = self.control.GetBreakpointById2(id).said("read the breakpoint")?;
            (
                names::wide(|buffer, size| object.GetCommandWide(buffer, size))
                    .ok()
                    .filter(|c| !c.is_empty()),
                names::wide(|buffer, size| object.GetOffsetExpressionWide(buffer, size))
                    .ok()
                    .filter(|e| !e.is_empty()),
            )
        };
        let deferred = parameters.Flags & DEBUG_BREAKPOINT_DEFERRED != 0;
        let thread = (parameters.MatchThread != ANY_ID)
            .then(|| {
                self.thread_ids()
                    .ok()?
                    .into_iter()
                    .find(|(t, _)| *t == parameters.MatchThread)
                    .map(|(_, s)| s)
            })
            .flatten();
        Ok(Breakpoint {
            id,
            address: (!deferred).then(|| self.narrow(parameters.Offset)),
            expression: remembered.expression.or(expression),
            watch: (parameters.BreakType == DEBUG_BREAKPOINT_DATA).then(|| {
                (access_of(parameters.DataAccessType), u8::try_from(parameters.DataSize).unwrap_or(u8::MAX))
            }),
            command: command.or(remembered.command),
            condition: remembered.condition,
            thread,
            enabled: parameters.Flags & DEBUG_BREAKPOINT_ENABLED != 0,
            one_shot: parameters.Flags & DEBUG_BREAKPOINT_ONE_SHOT != 0,
            pass_count: parameters.PassCount.max(1),
            passes_remaining: Some(parameters.CurrentPassCount.max(1)),
            hits: None,
        })
    }
}

/// The module of `module!symbol` or `module+rva`, when the text begins with a name.
fn module_part(expression: &str) -> Option<&str> {
    let text = expression.trim();
    let end = text.find(|c: char| !(c.is_alphanumeric() || "_.$~".contains(c)))?;
    let name = &text[..end];
    let follows = text[end..].trim_start();
    let number = name.strip_prefix("0x").unwrap_or(name).chars().all(|c| c.is_ascii_hexdigit());
    (!name.is_empty() && (follows.starts_with('!') || (follows.starts_with('+') && !number))).then_some(name)
}

fn access_bits(access: Access) -> u32 {
    match access {
        Access::Read => DEBUG_BREAK_READ,
        Access::Write => DEBUG_BREAK_WRITE,
        Access::ReadWrite => DEBUG_BREAK_READ | DEBUG_BREAK_WRITE,
        Access::Execute => DEBUG_BREAK_EXECUTE,
        Access::Io => DEBUG_BREAK_IO,
    }
}

fn access_of(bits: u32) -> Access {
    match bits {
        DEBUG_BREAK_READ => Access::Read,
        DEBUG_BREAK_WRITE => Access::Write,
        DEBUG_BREAK_EXECUTE => Access::Execute,
        DEBUG_BREAK_IO => Access::Io,
        _ => Access::ReadWrite,
    }
}

impl Breakpoints for DbgEng {
    fn add(&self, breakpoint: &Breakpoint) -> Result<Breakpoint> {
        self.alive()?;
        let place = self.place(breakpoint)?;
        self.refuse_poison(&place, breakpoint.watch)?;
        let kind = if breakpoint.watch.is_some() { DEBUG_BREAKPOINT_DATA } else { DEBUG_BREAKPOINT_CODE };
        // SAFETY: integers only.
        let object = unsafe { self.control.AddBreakpoint2(kind, ANY_ID) }.said("add a breakpoint")?;
        // SAFETY: no arguments.
        let id = unsafe { object.GetId() }.said("read the breakpoint's id")?;
        if let Err(error) = self.configure(&object, breakpoint, &place) {
            let _ = self.discard(object);
            return Err(error);
        }
        self.remembered.borrow_mut().insert(
            id,
            Remembered {
                expression: breakpoint.expression.clone(),
                condition: breakpoint.condition.clone(),
                command: breakpoint.command.clone(),
            },
        );
        self.record(id)
    }

    fn remove(&self, id: u32) -> Result<()> {
        self.alive()?;
        // SAFETY: integers only.
        let object = unsafe { self.control.GetBreakpointById2(id) }
            .map_err(|_| TargetError::InvalidArgument(format!("there is no breakpoint {id}")))?;
        self.discard(object).said(&format!("remove breakpoint {id}"))?;
        self.remembered.borrow_mut().remove(&id);
        Ok(())
    }

    fn list(&self) -> Result<Vec<Breakpoint>> {
        self.alive()?;
        self.ids().into_iter().map(|id| self.record(id)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::module_part;

    #[test]
    fn only_a_qualified_name_can_wait_for_its_module() {
        assert_eq!(module_part("victim!poke"), Some("victim"));
        assert_eq!(module_part(" later+0x10"), Some("later"));
        assert_eq!(module_part("0x401000+4"), None);
        assert_eq!(module_part("deadbeef+4"), None);
        assert_eq!(module_part("poke"), None);
        assert_eq!(module_part("@rip"), None);
        assert_eq!(module_part("!x"), None);
    }
}
