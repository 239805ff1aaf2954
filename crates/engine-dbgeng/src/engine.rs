//! The engine's interfaces and what is remembered beside them.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use target::{Facts, Machine, Module, Selection, SymbolPaths, TargetError};
use windows::Win32::System::Diagnostics::Debug::Extensions::{
    DEBUG_STATUS_NO_DEBUGGEE, IDebugAdvanced3, IDebugClient5, IDebugControl4, IDebugDataSpaces4,
    IDebugEventCallbacksWide, IDebugInputCallbacks, IDebugOutputCallbacksWide, IDebugRegisters2,
    IDebugSymbols3, IDebugSystemObjects4,
};
use windows::core::{HSTRING, Interface};

use crate::breakpoints::Remembered;
use crate::callbacks::{EventCallbacks, InputCallbacks};
use crate::cut_step::CutStep;
use crate::exit_code::ExitCode;
use crate::identity::Held;
use crate::library;
use crate::locals::Pdbs;
use crate::output::{Collected, OutputCallbacks};
use crate::registers::Described;
use crate::watchdog::{Breaker, Watchdog};

/// Why nothing was opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("{} is missing: point WINDBG_MCP_ENGINE_DIR at a folder with Microsoft's debugger DLLs", .0.display())]
    EngineMissing(PathBuf),
    #[error(
        "{} does not load: {}; is it the DLL of this program's architecture, with its companions?",
        path.display(), explain(error)
    )]
    EngineUnloadable { path: PathBuf, error: windows::core::Error },
    #[error("DbgEng failed while {doing}: {}", explain(error))]
    Engine { doing: &'static str, error: windows::core::Error },
    #[error("DbgEng did not load {} within {seconds} s", path.display())]
    NotLoaded { path: PathBuf, seconds: u64 },
    /// The system refused to start the program; nothing runs.
    #[error("cannot start \"{command_line}\": {reason}")]
    NotStarted { command_line: String, reason: String },
    /// The system refused the attach; the process is as it was.
    #[error("cannot attach to process {pid}: {reason}")]
    NotAttached { pid: u32, reason: String },
    /// Nothing was dialled, or nobody is there.
    #[error("cannot attach to the kernel behind {aim}: {reason}")]
    NotDialled { aim: String, reason: String },
    /// The engine gave up without the stop; it still holds on to the target.
    #[error("DbgEng came back from {aim} without a stop: {reason}")]
    NoFirstStop { aim: String, reason: String },
    /// It ran to its end before it stopped.
    #[error("{what} ended{} before it stopped for the debugger", code_text(*.code))]
    Exited { what: String, code: Option<u32> },
    /// It neither stopped nor could be broken into; it was let go of again.
    #[error("{what} did not stop within {seconds} s; it was let go of")]
    NotStopped { what: String, seconds: u64 },
}

fn code_text(code: Option<u32>) -> String {
    code.map(|c| format!(" with exit code {c:#x} ({c})")).unwrap_or_default()
}

/// `Result` of an engine call, said as a target's error.
pub(crate) trait EngineResult<T> {
    fn said(self, doing: &str) -> Result<T, TargetError>;
}

impl<T> EngineResult<T> for windows::core::Result<T> {
    fn said(self, doing: &str) -> Result<T, TargetError> {
        self.map_err(|error| TargetError::failed(format!("DbgEng could not {doing}: {}", explain(&error))))
    }
}

/// An HRESULT in words with its number; Wine has no message table, so the number always stands.
pub(crate) fn explain(error: &windows::core::Error) -> String {
    let code = error.code().0;
    let message = error.message();
    let words = match code.cast_unsigned() {
        0x8007_0002 => "file not found",
        0x8007_0003 => "path not found",
        0x8007_0005 => "access denied",
        0x8007_00c1 => "not a program this engine can run",
        0x8007_0057 => "invalid parameter",
        0x8007_0020 => "in use by somebody else",
        0x8007_00e7 => "all instances of the pipe are busy",
        0x8007_274d => "connection refused",
        0x8007_274c => "no connection in time",
        0x8007_0016 => "the engine does not recognise it",
        0x8004_0205 => "nothing is there to do it on",
        _ => message.trim(),
    };
    if words.is_empty() { format!("{code:#010x}") } else { format!("{words} ({code:#010x})") }
}

/// How the target came here: decides how it is let go of (spec 10 section 1.8).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Dump,
    Launched,
    /// The processes attached to, by system id.
    Attached(Vec<u32>),
    /// The kernel of another machine.
    Kernel,
}

/// One engine, one target. Created and used on one thread; see [`DbgEng::breaker`] for the others.
pub struct DbgEng {
    pub(crate) client: IDebugClient5,
    pub(crate) control: IDebugControl4,
    pub(crate) symbols: IDebugSymbols3,
    pub(crate) registers: IDebugRegisters2,
    pub(crate) spaces: IDebugDataSpaces4,
    pub(crate) system: IDebugSystemObjects4,
    pub(crate) advanced: IDebugAdvanced3,
    pub(crate) watchdog: Watchdog,
    pub(crate) output: Arc<Mutex<Collected>>,
    /// Of the process that was opened.
    pub(crate) exit_code: RefCell<Option<ExitCode>>,
    pub(crate) origin: Origin,
    pub(crate) facts: Facts,
    pub(crate) aim: String,
    pub(crate) generation: Cell<u64>,
    pub(crate) held: Held,
    pub(crate) paths: RefCell<SymbolPaths>,
    pub(crate) selection: Cell<Selection>,
    pub(crate) modules: RefCell<Option<Arc<[Module]>>>,
    pub(crate) pdbs: Pdbs,
    pub(crate) remembered: RefCell<BTreeMap<u32, Remembered>>,
    /// Why there is no target any more.
    pub(crate) gone: RefCell<Option<String>>,
    /// Breaks that were raised whose stop has not come yet.
    pub(crate) undelivered: Cell<u32>,
    pub(crate) cut_step: Cell<Option<CutStep>>,
    /// What registers there are; the same for every thread.
    pub(crate) described: RefCell<Option<Rc<[Described]>>>,
    pub(crate) released: Cell<bool>,
    /// The file of an image session.
    pub(crate) image: Option<pe::FileImage<Vec<u8>>>,
}

impl DbgEng {
    /// An engine with nothing in it, its paths set.
    pub(crate) fn create(
        folder: &Path,
        paths: &SymbolPaths,
        aim: String,
        origin: Origin,
    ) -> Result<Self, OpenError> {
        let client = library::create(folder)?;
        let output = Arc::new(Mutex::new(Collected::default()));
        let failed = |doing| move |error| OpenError::Engine { doing, error };
        let control: IDebugControl4 = client.cast().map_err(failed("asking for IDebugControl4"))?;
        let symbols: IDebugSymbols3 = client.cast().map_err(failed("asking for IDebugSymbols3"))?;
        let printed: IDebugOutputCallbacksWide = OutputCallbacks(Arc::clone(&output)).into();
        let input: IDebugInputCallbacks = InputCallbacks(control.clone()).into();
        // SAFETY: every pointer passed below lives for its call, on the thread that made the client.
        unsafe {
            client.SetOutputCallbacksWide(&printed).map_err(failed("setting output callbacks"))?;
            client.SetInputCallbacks(&input).map_err(failed("setting input callbacks"))?;
            symbols
                .SetSymbolPathWide(&HSTRING::from(engine_symbol_path(paths)))
                .map_err(failed("setting the symbol path"))?;
            symbols
                .SetImagePathWide(&HSTRING::from(crate::wine::windows_search_path(&paths.images)))
                .map_err(failed("setting the image path"))?;
        }
        let watchdog = Watchdog::start(&control).map_err(|error| OpenError::Engine {
            doing: "starting the watchdog thread",
            error: error.into(),
        })?;
        let events = Arc::<AtomicU64>::default();
        let callbacks =
            EventCallbacks { injection: watchdog.injection().cloned(), sessions: Arc::clone(&events) };
        let callbacks: IDebugEventCallbacksWide = callbacks.into();
        // SAFETY: the engine holds a reference of its own to the object.
        unsafe { client.SetEventCallbacksWide(&callbacks) }.map_err(failed("setting event callbacks"))?;
        Ok(Self {
            registers: client.cast().map_err(failed("asking for IDebugRegisters2"))?,
            spaces: client.cast().map_err(failed("asking for IDebugDataSpaces4"))?,
            system: client.cast().map_err(failed("asking for IDebugSystemObjects4"))?,
            advanced: client.cast().map_err(failed("asking for IDebugAdvanced3"))?,
            client,
            control,
            symbols,
            watchdog,
            output,
            exit_code: RefCell::new(None),
            origin,
            facts: crate::facts::unknown(),
            aim,
            generation: Cell::new(1),
            held: Held::counting(events),
            paths: RefCell::new(paths.clone()),
            selection: Cell::new(Selection::default()),
            modules: RefCell::new(None),
            pdbs: Pdbs::default(),
            remembered: RefCell::default(),
            gone: RefCell::new(None),
            undelivered: Cell::new(0),
            cut_step: Cell::new(None),
            described: RefCell::new(None),
            released: Cell::new(false),
            image: None,
        })
    }

    /// Pins what commands of a user could bend, and reads what does not change.
    pub(crate) fn settle(&mut self) -> Result<(), OpenError> {
        // SAFETY: integers only.
        unsafe { self.control.SetRadix(16) }
            .map_err(|error| OpenError::Engine { doing: "setting the radix", error })?;
        self.facts = self.read_facts();
        self.watch_exit();
        if self.image.is_none() {
            self.sync_selection();
        }
        Ok(())
    }

    /// Holds on to the live process for its exit code.
    pub(crate) fn watch_exit(&self) {
        // A kernel's process ids are another machine's.
        if self.is_live() && self.origin != Origin::Kernel && self.exit_code.borrow().is_none() {
            // SAFETY: no arguments.
            let pid = unsafe { self.system.GetCurrentProcessSystemId() };
            *self.exit_code.borrow_mut() = pid.ok().and_then(ExitCode::of);
        }
    }

    pub(crate) fn exited_with(&self) -> Option<u32> {
        self.exit_code.borrow().as_ref().and_then(ExitCode::settled)
    }

    /// A handle that breaks in from any thread.
    #[must_use]
    pub fn breaker(&self) -> Breaker {
        self.watchdog.breaker()
    }

    /// `DEBUG_STATUS_*`; unreadable is "stopped", so that reading it never fails a call.
    pub(crate) fn status(&self) -> u32 {
        // SAFETY: no arguments.
        unsafe { self.control.GetExecutionStatus() }.unwrap_or(0)
    }

    /// Refuses when the target is known to be gone; asks the engine nothing.
    pub(crate) fn here(&self) -> Result<(), TargetError> {
        match &*self.gone.borrow() {
            Some(why) => Err(TargetError::Gone(why.clone())),
            None => Ok(()),
        }
    }

    /// Refuses when there is no target: text driven into an engine without one can fault inside it.
    pub(crate) fn alive(&self) -> Result<(), TargetError> {
        self.here()?;
        if self.status() == DEBUG_STATUS_NO_DEBUGGEE {
            return Err(TargetError::Gone("the engine holds no target any more".to_owned()));
        }
        Ok(())
    }

    pub(crate) fn set_gone(&self, why: String) {
        self.gone.borrow_mut().get_or_insert(why);
        self.generation.set(self.generation.get() + 1);
        self.forget();
    }

    /// Whatever was cached about the target may have changed.
    pub(crate) fn forget(&self) {
        *self.modules.borrow_mut() = None;
    }
}

impl Drop for DbgEng {
    fn drop(&mut self) {
        if !self.released.get() {
            let _ = self.let_go();
        }
    }
}

/// What is said for an empty path: that would make the engine fall back to its own default, which
/// reaches out to the internet; a folder that is not there does not.
const NOWHERE: &str = "C:\\windbg-mcp-no-symbols";

/// The path without what would reach out, unless the network is allowed.
pub(crate) fn engine_symbol_path(paths: &SymbolPaths) -> String {
    let elements = paths.symbols.split(';').map(str::trim).filter(|e| !e.is_empty());
    let kept: Vec<String> = elements
        .filter_map(|element| if paths.network { Some(element.to_owned()) } else { offline(element) })
        .collect();
    if kept.is_empty() { NOWHERE.to_owned() } else { kept.join(";") }
}

/// `srv*DIR*URL` is `srv*DIR`; `srv*URL` is nothing, nor is a bare `srv*`, which means Microsoft's.
fn offline(element: &str) -> Option<String> {
    let is_url = |part: &&str| part.contains("://");
    let parts: Vec<&str> = element.split('*').filter(|part| !is_url(part)).collect();
    let keyword = parts.first().map(|p| p.to_ascii_lowercase()).unwrap_or_default();
    let needed = match keyword.as_str() {
        "srv" => 2,
        "symsrv" => 3,
        _ => 1,
    };
    let places = parts.iter().skip(needed - 1).any(|part| !part.is_empty());
    (parts.len() >= needed && places).then(|| parts.join("*"))
}

/// `IMAGE_FILE_MACHINE_*` as the engine answers it.
pub(crate) fn machine_of(processor_type: u32) -> Option<Machine> {
    Machine::from_image(u16::try_from(processor_type).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_the_network_no_url_reaches_the_engine() {
        let path = |symbols: &str, network| {
            engine_symbol_path(&SymbolPaths { symbols: symbols.to_owned(), images: String::new(), network })
        };
        let url = "https://msdl.microsoft.com/download/symbols";
        assert_eq!(path(&format!("D:\\s;srv*D:\\c*{url};cache*D:\\x"), false), "D:\\s;srv*D:\\c;cache*D:\\x");
        assert_eq!(path(&format!("srv*{url}"), false), NOWHERE);
        assert_eq!(path(url, false), NOWHERE);
        assert_eq!(path("srv*", false), NOWHERE);
        assert_eq!(path(&format!("symsrv*symsrv.dll*D:\\c*{url}"), false), "symsrv*symsrv.dll*D:\\c");
        assert_eq!(path(&format!("symsrv*symsrv.dll*{url}"), false), NOWHERE);
        assert_eq!(path("", true), NOWHERE);
        assert_eq!(path(&format!("srv*{url}"), true), format!("srv*{url}"));
    }
}
