//! Opening: a dump, a program to start, a process to attach to. Each is split into the part that
//! claims the target and the wait for its first stop, and says when it passes from one to the other.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use target::{Halt, SymbolPaths};
use windows::Win32::System::Diagnostics::Debug::Extensions::{
    DEBUG_ATTACH_DEFAULT, DEBUG_CREATE_PROCESS_OPTIONS, DEBUG_ENGOPT_INITIAL_BREAK, DEBUG_FILTER_BREAK,
    DEBUG_FILTER_CREATE_PROCESS, DEBUG_FILTER_EXIT_PROCESS, DEBUG_FILTER_IGNORE,
    DEBUG_FILTER_INITIAL_BREAKPOINT, DEBUG_SPECIFIC_FILTER_PARAMETERS, DEBUG_STATUS_GO,
    DEBUG_STATUS_NO_DEBUGGEE, IDebugControl4,
};
use windows::core::{HRESULT, HSTRING, Interface, PCWSTR};

use crate::engine::{DbgEng, OpenError, Origin, explain};
use crate::watchdog::Watched;

/// A dump that has not loaded by then does not load.
const LOAD_WAIT: Duration = Duration::from_secs(60);
/// A live process that has not stopped by then is broken into.
const FIRST_STOP: Duration = Duration::from_secs(30);
/// `CREATE_NO_WINDOW`, `DEBUG_PROCESS`, `DEBUG_ONLY_THIS_PROCESS` (winbase.h). A console of its own
/// keeps the program away from this process's standard output, which is the channel.
const CREATE_NO_WINDOW: u32 = 0x0800_0000;
const DEBUG_PROCESS: u32 = 1;
const DEBUG_ONLY_THIS_PROCESS: u32 = 2;

/// Where the engine is and where it looks for symbols.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// The folder with `dbgeng.dll` and its companions.
    pub engine: PathBuf,
    pub paths: SymbolPaths,
}

/// How far an open got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Milestone {
    /// The target exists or is claimed: the dump was handed over, the process created or attached to,
    /// the link to a kernel taken.
    Committed,
    /// It is loaded and stopped; only its report is left.
    Opened,
}

/// Where a launched program first stops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InitialBreak {
    /// At the loader's breakpoint, before `main`.
    #[default]
    Loader,
    /// At its own first event; broken into after 30 s (or the halt's deadline) without one.
    None,
}

/// A program to start under the debugger.
#[derive(Clone, Debug, Default)]
pub struct LaunchOptions {
    /// As `CreateProcess` takes it: the program, quoted if it holds spaces, then its arguments.
    pub command_line: String,
    /// Its working directory; this process's when `None`.
    pub directory: Option<String>,
    /// Added to or replacing variables of this process's environment; an empty value removes one.
    pub environment: Vec<(String, String)>,
    /// Debug processes it starts, too.
    pub children: bool,
    pub initial_break: InitialBreak,
}

/// Opens a dump and waits until it is loaded.
///
/// # Errors
/// When the engine is not there, refuses the file, or does not load it in 60 s.
pub fn open_dump(path: &Path, options: &OpenOptions, on: &dyn Fn(Milestone)) -> Result<DbgEng, OpenError> {
    let mut engine =
        DbgEng::create(&options.engine, &options.paths, path.display().to_string(), Origin::Dump)?;
    // SAFETY: the string lives for the call.
    unsafe { engine.client.OpenDumpFileWide(&HSTRING::from(path.as_os_str()), 0) }
        .map_err(|error| OpenError::Engine { doing: "opening the dump", error })?;
    on(Milestone::Committed);
    wait_for_load(&engine.control, path)?;
    engine.image = image_file(path);
    engine.settle()?;
    on(Milestone::Opened);
    Ok(engine)
}

/// Longest image file that is read.
const LONGEST_IMAGE: u64 = 512 << 20;

/// The file, if it is a PE image: the engine reads such a session's memory with holes.
fn image_file(path: &Path) -> Option<pe::FileImage<Vec<u8>>> {
    let mut head = [0; 2];
    let mut file = std::fs::File::open(path).ok()?;
    std::io::Read::read_exact(&mut file, &mut head).ok()?;
    if head != *b"MZ" || file.metadata().ok()?.len() > LONGEST_IMAGE {
        return None;
    }
    pe::FileImage::new(std::fs::read(path).ok()?).ok()
}

fn wait_for_load(control: &IDebugControl4, path: &Path) -> Result<(), OpenError> {
    let milliseconds = u32::try_from(LOAD_WAIT.as_millis()).unwrap_or(u32::MAX);
    match wait(control, milliseconds) {
        HRESULT(0) => Ok(()),
        HRESULT(1) => Err(OpenError::NotLoaded { path: path.to_owned(), seconds: LOAD_WAIT.as_secs() }),
        failure => Err(OpenError::Engine { doing: "loading the dump", error: failure.into() }),
    }
}

/// `WaitForEvent` with its raw answer: `windows` folds S_FALSE (the wait expired) into success.
pub(crate) fn wait(control: &IDebugControl4, milliseconds: u32) -> HRESULT {
    // SAFETY: the interface pointer is valid; WaitForEvent takes two integers (dbgeng.h).
    unsafe { (Interface::vtable(control).WaitForEvent)(Interface::as_raw(control), 0, milliseconds) }
}

/// Starts a program under the debugger and waits for its first stop.
///
/// # Errors
/// When it cannot be started (nothing runs then), or ends before it stops.
pub fn launch(
    launch: &LaunchOptions,
    options: &OpenOptions,
    on: &dyn Fn(Milestone),
    halt: &Halt,
) -> Result<DbgEng, OpenError> {
    let line = launch.command_line.trim();
    let refused = |reason: String| OpenError::NotStarted { command_line: line.to_owned(), reason };
    if line.is_empty() || line.contains('\0') {
        return Err(refused("name a program to start".to_owned()));
    }
    let mut engine = DbgEng::create(&options.engine, &options.paths, line.to_owned(), Origin::Launched)?;
    engine.ignore_exit();
    match launch.initial_break {
        InitialBreak::Loader => engine.arm_initial_break()?,
        // Stopped at its creation for a moment, so that its end is not missed.
        InitialBreak::None => engine.set_filter(DEBUG_FILTER_CREATE_PROCESS, DEBUG_FILTER_BREAK),
    }
    let children = if launch.children { DEBUG_PROCESS } else { DEBUG_PROCESS | DEBUG_ONLY_THIS_PROCESS };
    let create =
        DEBUG_CREATE_PROCESS_OPTIONS { CreateFlags: children | CREATE_NO_WINDOW, ..Default::default() };
    let environment = environment_block(&launch.environment);
    let directory = launch.directory.as_ref().map(HSTRING::from);
    // SAFETY: the options, the strings and the block live for the call; the block ends with two NULs.
    unsafe {
        engine.client.CreateProcess2Wide(
            0,
            &HSTRING::from(line),
            (&raw const create).cast(),
            u32::try_from(size_of_val(&create)).unwrap_or(0),
            directory.as_ref().map_or(PCWSTR::null(), |d| PCWSTR(d.as_ptr())),
            PCWSTR(environment.as_ptr()),
        )
    }
    .map_err(|error| refused(explain(&error)))?;
    on(Milestone::Committed);
    if launch.initial_break == InitialBreak::None {
        engine.run_from_creation(line, halt)?;
    }
    engine.wait_for_first_stop(None, line, halt)?;
    engine.settle()?;
    on(Milestone::Opened);
    Ok(engine)
}

/// Attaches to a running process and waits until it is stopped.
///
/// # Errors
/// When there is no such process or it may not be debugged; it is left as it was then.
pub fn attach(
    pid: u32,
    options: &OpenOptions,
    on: &dyn Fn(Milestone),
    halt: &Halt,
) -> Result<DbgEng, OpenError> {
    let aim = format!("process {pid}");
    let mut engine =
        DbgEng::create(&options.engine, &options.paths, aim.clone(), Origin::Attached(vec![pid]))?;
    engine.ignore_exit();
    engine.arm_initial_break()?;
    // SAFETY: integers only.
    unsafe { engine.client.AttachProcess(0, pid, DEBUG_ATTACH_DEFAULT) }
        .map_err(|error| OpenError::NotAttached { pid, reason: explain(&error) })?;
    on(Milestone::Committed);
    engine.wait_for_first_stop(Some(pid), &aim, halt)?;
    engine.settle()?;
    on(Milestone::Opened);
    Ok(engine)
}

/// This process's environment with `changes`, as `CreateProcess` takes it. (Wine hands its own
/// `WINEDLLOVERRIDES` on whatever is said here, so whoever starts the worker names the engine's DLLs
/// in it by full path: a program forced to a `dbghelp` it does not have would not start.)
fn environment_block(changes: &[(String, String)]) -> Vec<u16> {
    let changed = |name: &str| changes.iter().any(|(n, _)| n.eq_ignore_ascii_case(name));
    let own = std::env::vars_os().filter_map(|(name, value)| {
        let name = name.into_string().ok()?;
        // Ours, and none of the program's business: the transcript's path, the redaction rules.
        let ours = name.to_ascii_uppercase().starts_with("WINDBG_MCP_");
        (!changed(&name) && !ours).then(|| (name, value.to_string_lossy().into_owned()))
    });
    let clean = |text: &String| !text.contains('\0');
    let added = changes
        .iter()
        .filter(|(name, value)| !name.is_empty() && !value.is_empty() && clean(name) && clean(value))
        .cloned();
    let mut variables: Vec<(String, String)> = own.chain(added).collect();
    // CreateProcess wants the block sorted by name, any case.
    variables.sort_by_key(|(name, _)| name.to_uppercase());
    let mut block = Vec::new();
    for (name, value) in variables {
        block.extend(format!("{name}={value}").encode_utf16());
        block.push(0);
    }
    block.push(0);
    block.push(0);
    block
}

impl DbgEng {
    /// Before the process exists: without it a program runs to its first exception or its end.
    pub(crate) fn arm_initial_break(&self) -> Result<(), OpenError> {
        // SAFETY: integers only.
        unsafe { self.control.AddEngineOptions(DEBUG_ENGOPT_INITIAL_BREAK) }
            .map_err(|error| OpenError::Engine { doing: "asking for the initial break", error })?;
        self.set_filter(DEBUG_FILTER_INITIAL_BREAKPOINT, DEBUG_FILTER_BREAK);
        Ok(())
    }

    /// The end of the process is the end of the wait, not a stop in a process without threads.
    fn ignore_exit(&self) {
        self.set_filter(DEBUG_FILTER_EXIT_PROCESS, DEBUG_FILTER_IGNORE);
    }

    fn run_from_creation(&self, what: &str, halt: &Halt) -> Result<(), OpenError> {
        self.wait_for_first_stop(None, what, halt)?;
        self.watch_exit();
        self.set_filter(DEBUG_FILTER_CREATE_PROCESS, DEBUG_FILTER_IGNORE);
        self.set_filter(DEBUG_FILTER_INITIAL_BREAKPOINT, DEBUG_FILTER_IGNORE);
        // SAFETY: integers only.
        unsafe { self.control.SetExecutionStatus(DEBUG_STATUS_GO) }
            .map_err(|error| OpenError::Engine { doing: "letting the program run", error })
    }

    /// What the engine does at one of its own kinds of event.
    fn set_filter(&self, index: u32, option: u32) {
        let mut parameters = [DEBUG_SPECIFIC_FILTER_PARAMETERS::default()];
        // SAFETY: one record of the right size in and out.
        unsafe {
            if self.control.GetSpecificFilterParameters(index, &mut parameters).is_ok() {
                parameters[0].ExecutionOption = option;
                let _ = self.control.SetSpecificFilterParameters(index, &parameters);
            }
        }
    }

    /// Pumps until the process is there and stopped: a wait is one event, and not necessarily ours.
    fn wait_for_first_stop(&self, pid: Option<u32>, what: &str, halt: &Halt) -> Result<(), OpenError> {
        let deadline = Instant::now() + FIRST_STOP;
        let not_stopped = || OpenError::NotStopped { what: what.to_owned(), seconds: FIRST_STOP.as_secs() };
        for _ in 0..1000 {
            let left = deadline.saturating_duration_since(Instant::now());
            let watched = Watched::Resume { processes: self.pids_here(), raised: None };
            let (answer, _) =
                self.watchdog.during(halt, Some(left), watched, || wait(&self.control, u32::MAX));
            if self.status() == DEBUG_STATUS_NO_DEBUGGEE {
                let code = self.exited_with();
                self.released.set(true);
                return Err(OpenError::Exited { what: what.to_owned(), code });
            }
            if answer != HRESULT(0) {
                return Err(OpenError::Engine { doing: "waiting for the first stop", error: answer.into() });
            }
            // SAFETY: no arguments.
            let here = unsafe { self.system.GetCurrentProcessSystemId() };
            if here.is_ok_and(|here| pid.is_none_or(|wanted| wanted == here)) {
                self.watchdog.drain();
                return Ok(());
            }
            if left.is_zero() {
                return Err(not_stopped());
            }
            // SAFETY: integers only.
            let _ = unsafe {
                self.control.SetExecutionStatus(
                    windows::Win32::System::Diagnostics::Debug::Extensions::DEBUG_STATUS_GO,
                )
            };
        }
        Err(not_stopped())
    }
}

/// System ids and program names of the processes the engine may attach to, by id.
///
/// # Errors
/// When the engine is not there or cannot list them.
pub fn processes(engine: &Path) -> Result<Vec<(u32, String)>, OpenError> {
    let client = crate::library::create(engine)?;
    let failed = |error| OpenError::Engine { doing: "listing processes", error };
    let mut ids = vec![0u32; 4096];
    let mut count = 0;
    // SAFETY: the array is as long as said.
    unsafe { client.GetRunningProcessSystemIds(0, Some(&mut ids), Some(&mut count)) }.map_err(failed)?;
    ids.truncate(count as usize);
    ids.sort_unstable();
    let name = |id: u32| {
        crate::names::wide(|buffer, size| {
            // SAFETY: the buffer lives for the call.
            unsafe { client.GetRunningProcessDescriptionWide(0, id, 0, buffer, size, None, None) }
        })
        .unwrap_or_default()
    };
    Ok(ids.into_iter().map(|id| (id, target::base_name(&name(id)).to_owned())).collect())
}
