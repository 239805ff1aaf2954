//! The engine's interfaces, opening a dump, and the facts read once.

use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use target::{
    DumpFacts, DumpFormat, Facts, Machine, Module, OsVersion, ProcessFacts, Selection, SymbolPaths, TargetError,
    TargetKind,
};
use windows::Win32::System::Diagnostics::Debug::Extensions::{
    DEBUG_CLASS_KERNEL, IDebugAdvanced3, IDebugClient5, IDebugControl4, IDebugDataSpaces4, IDebugOutputCallbacksWide,
    IDebugRegisters2, IDebugSymbols3, IDebugSystemObjects4,
};
use windows::core::{HRESULT, HSTRING, Interface};

use crate::library;
use crate::names;
use crate::output::{Collected, OutputCallbacks};

/// A dump that has not loaded by then does not load.
const LOAD_WAIT: Duration = Duration::from_secs(60);

/// Where the engine is and what to open.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// The folder with `dbgeng.dll` and its companions.
    pub engine: PathBuf,
    pub paths: SymbolPaths,
}

/// Why nothing was opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("{} is missing: point WINDBG_MCP_ENGINE_DIR at a folder with Microsoft's debugger DLLs", .0.display())]
    EngineMissing(PathBuf),
    #[error("{} does not load: {error}; is it the DLL of this program's architecture, with its companions?", path.display())]
    EngineUnloadable { path: PathBuf, error: windows::core::Error },
    #[error("DbgEng failed while {doing}: {error}")]
    Engine { doing: &'static str, error: windows::core::Error },
    #[error("DbgEng did not load {} within {} s", path.display(), LOAD_WAIT.as_secs())]
    NotLoaded { path: PathBuf },
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
    let message = error.message();
    let code = error.code().0;
    if message.is_empty() { format!("{code:#010x}") } else { format!("{} ({code:#010x})", message.trim()) }
}

/// One engine, one target.
pub struct DbgEng {
    pub(crate) client: IDebugClient5,
    pub(crate) control: IDebugControl4,
    pub(crate) symbols: IDebugSymbols3,
    pub(crate) registers: IDebugRegisters2,
    pub(crate) spaces: IDebugDataSpaces4,
    pub(crate) system: IDebugSystemObjects4,
    pub(crate) advanced: IDebugAdvanced3,
    pub(crate) output: Arc<Mutex<Collected>>,
    pub(crate) facts: Facts,
    pub(crate) aim: String,
    pub(crate) generation: Cell<u64>,
    pub(crate) paths: RefCell<SymbolPaths>,
    pub(crate) selection: Cell<Selection>,
    pub(crate) modules: RefCell<Option<Arc<[Module]>>>,
}

/// Opens a dump and waits until it is loaded.
///
/// # Errors
/// When the engine is not there, refuses the file, or does not load it in time.
pub fn open_dump(path: &Path, options: &OpenOptions) -> Result<DbgEng, OpenError> {
    let client = library::create(&options.engine)?;
    let output = Arc::new(Mutex::new(Collected::default()));
    let callbacks: IDebugOutputCallbacksWide = OutputCallbacks(Arc::clone(&output)).into();
    let failed = |doing| move |error| OpenError::Engine { doing, error };
    let control: IDebugControl4 = client.cast().map_err(failed("asking for IDebugControl4"))?;
    let symbols: IDebugSymbols3 = client.cast().map_err(failed("asking for IDebugSymbols3"))?;
    // SAFETY: every pointer passed below lives for its call, on the thread that made the client.
    unsafe {
        client.SetOutputCallbacksWide(&callbacks).map_err(failed("setting callbacks"))?;
        let engine_path = engine_symbol_path(&options.paths);
        symbols.SetSymbolPathWide(&HSTRING::from(engine_path)).map_err(failed("setting the symbol path"))?;
        symbols
            .SetImagePathWide(&HSTRING::from(options.paths.images.as_str()))
            .map_err(failed("setting the image path"))?;
        client.OpenDumpFileWide(&HSTRING::from(path.as_os_str()), 0).map_err(failed("opening the dump"))?;
        wait_for_load(&control, path)?;
        control.SetRadix(16).map_err(failed("setting the radix"))?;
    }
    let mut engine = DbgEng {
        registers: client.cast().map_err(failed("asking for IDebugRegisters2"))?,
        spaces: client.cast().map_err(failed("asking for IDebugDataSpaces4"))?,
        system: client.cast().map_err(failed("asking for IDebugSystemObjects4"))?,
        advanced: client.cast().map_err(failed("asking for IDebugAdvanced3"))?,
        client,
        control,
        symbols,
        output,
        facts: unknown_facts(),
        aim: path.display().to_string(),
        generation: Cell::new(1),
        paths: RefCell::new(options.paths.clone()),
        selection: Cell::new(Selection::default()),
        modules: RefCell::new(None),
    };
    engine.facts = engine.read_facts();
    Ok(engine)
}

/// An empty path makes the engine fall back to its own default, which reaches out to the internet; a
/// folder that is not there does not.
pub(crate) fn engine_symbol_path(paths: &SymbolPaths) -> String {
    let wanted = paths.symbols.trim();
    if wanted.is_empty() { "C:\\windbg-mcp-no-symbols".to_owned() } else { wanted.to_owned() }
}

fn wait_for_load(control: &IDebugControl4, path: &Path) -> Result<(), OpenError> {
    let milliseconds = u32::try_from(LOAD_WAIT.as_millis()).unwrap_or(u32::MAX);
    // `windows` folds S_FALSE (the wait expired) into success, so the raw answer is asked for.
    // SAFETY: the interface pointer is valid; WaitForEvent takes two integers (dbgeng.h).
    let answer: HRESULT =
        unsafe { (Interface::vtable(control).WaitForEvent)(Interface::as_raw(control), 0, milliseconds) };
    match answer {
        HRESULT(0) => Ok(()),
        HRESULT(1) => Err(OpenError::NotLoaded { path: path.to_owned() }),
        failure => Err(OpenError::Engine { doing: "loading the dump", error: failure.into() }),
    }
}

fn unknown_facts() -> Facts {
    Facts {
        kind: TargetKind::UserDump,
        machine: Machine::X64,
        wow64: false,
        os: None,
        process: None,
        processors: None,
        dump: None,
        limitations: Vec::new(),
    }
}

/// `DEBUG_*_DUMP` qualifiers of both classes (dbgeng.h).
const SMALL_DUMP: u32 = 1024;
const FULL_DUMP: u32 = 1026;

impl DbgEng {
    fn read_facts(&self) -> Facts {
        let (mut class, mut qualifier) = (0, 0);
        // SAFETY: both pointers are to locals.
        let _ = unsafe { self.control.GetDebuggeeType(&mut class, &mut qualifier) };
        let kernel = class == DEBUG_CLASS_KERNEL;
        // SAFETY: no arguments.
        let (effective, actual) = unsafe {
            (self.control.GetEffectiveProcessorType().ok(), self.control.GetActualProcessorType().ok())
        };
        let machine = effective.and_then(machine_of).unwrap_or(Machine::X64);
        let wow64 = machine == Machine::X86 && actual.and_then(machine_of) == Some(Machine::X64);
        Facts {
            kind: if kernel { TargetKind::KernelDump } else { TargetKind::UserDump },
            machine,
            wow64,
            os: self.os_version(),
            process: (!kernel).then(|| self.process_facts()),
            // SAFETY: no arguments.
            processors: unsafe { self.control.GetNumberProcessors() }.ok(),
            dump: Some(self.dump_facts(kernel, qualifier)),
            limitations: Vec::new(),
        }
    }

    fn dump_facts(&self, kernel: bool, qualifier: u32) -> DumpFacts {
        let format = match (kernel, qualifier) {
            (true, SMALL_DUMP) => DumpFormat::KernelTriage,
            (true, FULL_DUMP) => DumpFormat::KernelFull,
            (true, _) => DumpFormat::KernelBitmap,
            (false, _) => DumpFormat::UserMinidump,
        };
        // SAFETY: no arguments.
        let (seconds, uptime) =
            unsafe { (self.control.GetCurrentTimeDate().ok(), self.control.GetCurrentSystemUpTime().ok()) };
        DumpFacts {
            format,
            container: None,
            time: seconds.and_then(|s| target::value::rfc3339(i64::from(s), 0)),
            uptime_ms: uptime.map(|s| u64::from(s) * 1000),
            full_memory: qualifier != SMALL_DUMP,
            truncated: false,
            comment: None,
        }
    }

    fn os_version(&self) -> Option<OsVersion> {
        let (mut platform, mut major, mut minor) = (0, 0, 0);
        // SAFETY: the out pointers are to locals, the optional ones absent.
        unsafe { self.control.GetSystemVersionValues(&mut platform, &mut major, &mut minor, None, None) }.ok()?;
        let (mut kd_major, mut kd_minor, mut service_pack) = (0, 0, 0);
        // GetSystemVersion reports the build number as the minor version (dbgeng.h).
        // SAFETY: as above.
        unsafe {
            let _ = self.control.GetSystemVersion(
                &mut platform,
                &mut kd_major,
                &mut kd_minor,
                None,
                None,
                &mut service_pack,
                None,
                None,
            );
        }
        Some(OsVersion { major, minor, build: kd_minor, ..OsVersion::default() })
    }

    fn process_facts(&self) -> ProcessFacts {
        // SAFETY: no pointers but the string buffers, which live for the call.
        unsafe {
            ProcessFacts {
                pid: self.system.GetCurrentProcessSystemId().ok(),
                name: names::wide(|buffer, size| self.system.GetCurrentProcessExecutableNameWide(buffer, size))
                    .ok()
                    .map(|path| target::base_name(&path).to_owned()),
                created: None,
                peb: self.system.GetCurrentProcessPeb().ok(),
            }
        }
    }
}

/// `IMAGE_FILE_MACHINE_*` as the engine answers it.
pub(crate) fn machine_of(processor_type: u32) -> Option<Machine> {
    Machine::from_image(u16::try_from(processor_type).ok()?)
}
