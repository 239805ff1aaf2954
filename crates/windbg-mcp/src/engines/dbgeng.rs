//! Microsoft's engine, on Windows and under Wine: where it is, and what it opens.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use engine_dbgeng::{Milestone, OpenError, OpenOptions, wine};
use target::{Halt, Machine, SymbolPaths, Target};
use tools::live_opening::{InitialBreak, LaunchRequest};
use tools::{Category, OpenReport, OpenRequest, ToolError};
use worker::{Factories, Opener};

use super::{refused, report, variable};

/// A folder with the engine, and what to say of it.
#[derive(Clone, Debug)]
struct Place {
    folder: PathBuf,
    what: String,
}

/// Processes an answer names.
const PROCESSES: usize = 200;

/// A dump unpacked for this worker.
static UNPACKED: Mutex<Option<PathBuf>> = Mutex::new(None);

pub(super) fn factories() -> Factories {
    let place = places().into_iter().find(|place| place.folder.join("dbgeng.dll").is_file());
    let found = place.clone();
    Factories {
        engine: "dbgeng",
        prepare: Some(Box::new(move || prepare(found.as_ref()))),
        open: Box::new(move |request, opener, halt| match &place {
            Some(place) => open(place, request, opener, halt),
            None => Err(ToolError::new(Category::Internal, "the worker has no engine")),
        }),
        operations: Vec::new(),
    }
}

/// What unpacked dumps are called.
const UNPACKED_NAME: (&str, &str) = ("windbg-mcp-", ".dmp");
/// One this old is no longer on its way to an engine.
const SETTLED: std::time::Duration = std::time::Duration::from_secs(60);

/// Removes unpacked dumps of workers that were killed. One that is in use is open, and stays.
fn clean_up_after_others() {
    let is_one = |name: &str| {
        let middle = name.strip_prefix(UNPACKED_NAME.0).and_then(|rest| rest.strip_suffix(UNPACKED_NAME.1));
        middle.is_some_and(|pid| !pid.is_empty() && pid.bytes().all(|b| b.is_ascii_digit()))
    };
    for entry in std::fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten() {
        let old = entry.metadata().and_then(|m| m.modified()).ok().and_then(|at| at.elapsed().ok());
        if entry.file_name().to_str().is_some_and(is_one) && old.is_some_and(|age| age > SETTLED) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// Removes the unpacked dump.
pub(super) fn clean() {
    if let Some(path) = UNPACKED.lock().unwrap_or_else(PoisonError::into_inner).take()
        && let Err(error) = std::fs::remove_file(&path)
    {
        tracing::warn!(path = %path.display(), %error, "an unpacked dump stays behind");
    }
}

/// The folder of Debugging Tools for this architecture, as Microsoft names it.
const ARCHITECTURE: &str = if cfg!(target_arch = "x86") {
    "x86"
} else if cfg!(target_arch = "aarch64") {
    "arm64"
} else {
    "x64"
};

/// Where the engine may be, best first. A folder that is named is the only one: taking another would
/// hide the mistake.
fn places() -> Vec<Place> {
    if let Some(named) = variable("WINDBG_MCP_ENGINE_DIR") {
        let folder = PathBuf::from(wine::windows_path(&named));
        return vec![Place { what: format!("DbgEng of {}", folder.display()), folder }];
    }
    let mut places = Vec::new();
    let own = std::env::current_exe().ok().and_then(|own| own.parent().map(Path::to_owned));
    if let Some(folder) = own {
        places.push(Place { what: format!("DbgEng beside this program in {}", folder.display()), folder });
    }
    for root in ["ProgramFiles(x86)", "ProgramFiles"].into_iter().filter_map(variable) {
        let folder = Path::new(&root).join(r"Windows Kits\10\Debuggers").join(ARCHITECTURE);
        places.push(Place { what: format!("DbgEng of the Debugging Tools in {}", folder.display()), folder });
    }
    if let Some(root) = variable("SystemRoot").filter(|_| wine::version().is_none()) {
        // The loader redirects a 32-bit process's System32 to its own.
        places.push(Place {
            folder: Path::new(&root).join("System32"),
            what: "Windows' own DbgEng in System32: no symbol server, no extensions (--engine-dir names a full one)"
                .to_owned(),
        });
    }
    places
}

fn prepare(place: Option<&Place>) -> Result<(), String> {
    match place {
        Some(place) => engine_dbgeng::load(&place.folder).map_err(|error| error.to_string()),
        None => {
            let looked: Vec<String> = places().iter().map(|p| p.folder.display().to_string()).collect();
            Err(format!(
                "no dbgeng.dll in {}; point WINDBG_MCP_ENGINE_DIR (--engine-dir) at a folder with Microsoft's \
                 debugger DLLs",
                looked.join(", ")
            ))
        }
    }
}

fn open(
    place: &Place,
    request: &OpenRequest,
    opener: &dyn Opener,
    halt: &Halt,
) -> Result<(Box<dyn Target>, OpenReport), ToolError> {
    let on = |milestone| match milestone {
        Milestone::Committed => opener.committed(),
        Milestone::Opened => opener.step("reading what it says of itself"),
    };
    match request {
        OpenRequest::Dump { .. } => open_dump(place, request, opener, &on, halt),
        OpenRequest::Launch(launch) => {
            opener.step("starting the program");
            let options =
                options(place, launch.symbol_path.as_ref(), launch.image_path.as_ref(), launch.network);
            let target = engine_dbgeng::launch(&launched(launch), &options, &on, halt)
                .map_err(|error| failed(&launch.command_line, &error))?;
            Ok(live(target, "launch", place))
        }
        OpenRequest::Attach(attach) => {
            let Some(pid) = attach.pid else { return Err(no_pid(place)) };
            opener.step("attaching");
            let options =
                options(place, attach.symbol_path.as_ref(), attach.image_path.as_ref(), attach.network);
            let target = engine_dbgeng::attach(pid, &options, &on, halt)
                .map_err(|error| failed(&format!("process {pid}"), &error))?;
            Ok(live(target, "process", place))
        }
        OpenRequest::Kernel(kernel) => {
            opener.step("waiting for the kernel");
            let options =
                options(place, kernel.symbol_path.as_ref(), kernel.image_path.as_ref(), kernel.network);
            let aim = kernel.connection.to_string();
            let link = engine_dbgeng::KernelLink {
                connection: kernel.connection.expose(),
                aim: &aim,
                connected: opener.when_connected(),
            };
            let target = engine_dbgeng::attach_kernel(link, &options, &on, halt)
                .map_err(|error| failed(&aim, &error))?;
            Ok(live(target, "kernel", place))
        }
        OpenRequest::Scripted { .. } => {
            Err(ToolError::new(Category::Unsupported, "DbgEng does not open scripts"))
        }
    }
}

fn open_dump(
    place: &Place,
    request: &OpenRequest,
    opener: &dyn Opener,
    on: &dyn Fn(Milestone),
    halt: &Halt,
) -> Result<(Box<dyn Target>, OpenReport), ToolError> {
    let OpenRequest::Dump { path, symbol_path, image_path, network, .. } = request else {
        return Err(ToolError::new(Category::Internal, "not a dump"));
    };
    let file = PathBuf::from(wine::windows_path(path));
    opener.step("looking at the dump");
    let (file, container) = plain(path, &file, halt)?;
    let mut options = options(place, symbol_path.as_ref(), image_path.as_ref(), *network);
    search_beside(path, &mut options.paths);
    opener.step("opening the dump");
    let target = engine_dbgeng::open_dump(&file, &options, on).map_err(|error| failed(path, &error))?;
    let mut report = report(&target, "dbgeng", engine_words(place));
    if let (Some(dump), Some(container)) = (&mut report.summary.dump, container) {
        dump.container = Some(container.to_owned());
    }
    limit_32_bit(&target, &mut report);
    Ok((Box::new(target), report))
}

fn launched(launch: &LaunchRequest) -> engine_dbgeng::LaunchOptions {
    engine_dbgeng::LaunchOptions {
        command_line: command_line(&launch.command_line),
        directory: launch.directory.as_deref().map(wine::windows_path),
        environment: launch.environment.clone(),
        children: launch.children,
        initial_break: match launch.initial_break {
            InitialBreak::Loader => engine_dbgeng::InitialBreak::Loader,
            InitialBreak::None => engine_dbgeng::InitialBreak::None,
        },
    }
}

/// The program's path as this process opens it; its arguments are its own business.
fn command_line(line: &str) -> String {
    let line = line.trim();
    let (quote, rest) = match line.strip_prefix('"') {
        Some(rest) => ("\"", rest),
        None => ("", line),
    };
    let end = rest.find(if quote.is_empty() { ' ' } else { '"' }).unwrap_or(rest.len());
    format!("{quote}{}{}", wine::windows_path(&rest[..end]), &rest[end..])
}

fn live(target: engine_dbgeng::DbgEng, kind: &str, place: &Place) -> (Box<dyn Target>, OpenReport) {
    let mut report = report(&target, "dbgeng", engine_words(place));
    kind.clone_into(&mut report.kind);
    limit_32_bit(&target, &mut report);
    (Box::new(target), report)
}

/// An attach without a process is answered with those there are.
fn no_pid(place: &Place) -> ToolError {
    match engine_dbgeng::processes(&place.folder) {
        Ok(processes) => {
            let rows: Vec<String> =
                processes.iter().take(PROCESSES).map(|(pid, name)| format!("{pid} {name}")).collect();
            let message = format!("name a process by pid; there are: {}", rows.join(", "));
            let list: Vec<_> =
                processes.iter().map(|(pid, name)| serde_json::json!({ "pid": pid, "name": name })).collect();
            ToolError::new(Category::InvalidArgument, message).with("processes", list)
        }
        Err(error) => failed("attach_process", &error),
    }
}

fn limit_32_bit(target: &dyn Target, report: &mut OpenReport) {
    if target.facts().machine == Machine::X86 && !cfg!(target_arch = "x86") {
        report.summary.limit(Some(
            "a 32-bit target in the 64-bit engine: extensions that pair with both (.NET's SOS) need the x86 worker \
             and the x86 DLLs",
        ));
    }
}

fn engine_words(place: &Place) -> String {
    match wine::version() {
        Some(version) => format!("{} (Wine {version})", place.what),
        None => place.what.clone(),
    }
}

fn options(place: &Place, symbols: Option<&String>, images: Option<&String>, network: bool) -> OpenOptions {
    let or_variable =
        |asked: Option<&String>, name: &str| asked.cloned().or_else(|| variable(name)).unwrap_or_default();
    let paths = SymbolPaths {
        symbols: or_variable(symbols, "_NT_SYMBOL_PATH"),
        images: or_variable(images, "_NT_EXECUTABLE_IMAGE_PATH"),
        network,
    };
    OpenOptions { engine: place.folder.clone(), paths }
}

/// The dump's own folder is always searched, as the native engine does.
fn search_beside(dump: &str, paths: &mut SymbolPaths) {
    let file = std::path::absolute(wine::windows_path(dump)).ok();
    let Some(folder) = file.as_deref().and_then(Path::parent).map(|folder| folder.display().to_string())
    else {
        return;
    };
    for path in [&mut paths.symbols, &mut paths.images] {
        if !path.is_empty() {
            path.push(';');
        }
        path.push_str(&folder);
    }
}

/// The file DbgEng is handed, and what it was packed in. What cannot be a dump is refused in the
/// native engine's words; what that one does not serve, DbgEng may.
fn plain(path: &str, file: &Path, halt: &Halt) -> Result<(PathBuf, Option<&'static str>), ToolError> {
    let say = |error: dump::DumpError| {
        let (category, reason) = error.category();
        let message = error.to_string().replace(&file.display().to_string(), path);
        refused(path, category, reason, message)
    };
    let Some(packed) = dump::unpack(file, halt).map_err(say)? else {
        return match dump::open_within(file, halt) {
            Ok(_) => Ok((file.to_owned(), None)),
            Err(error) if worth_a_try(&error) => Ok((file.to_owned(), None)),
            Err(error) => Err(say(error)),
        };
    };
    clean_up_after_others();
    let (before, after) = UNPACKED_NAME;
    let copy = std::env::temp_dir().join(format!("{before}{}{after}", std::process::id()));
    // A name others can guess: what lies there is never written through.
    let _ = std::fs::remove_file(&copy);
    let written = File::create_new(&copy).and_then(|mut out| out.write_all(packed.file.bytes()));
    *UNPACKED.lock().unwrap_or_else(PoisonError::into_inner) = Some(copy.clone());
    match written {
        Ok(()) => Ok((copy, Some(packed.container.name()))),
        Err(error) => {
            clean();
            Err(refused(
                path,
                "debugger",
                Some("disk_full"),
                format!("cannot be unpacked to {}: {error}", copy.display()),
            ))
        }
    }
}

fn worth_a_try(error: &dump::DumpError) -> bool {
    match error {
        dump::DumpError::Malformed { what } => !what.contains("empty"),
        dump::DumpError::Unsupported { reason, .. } => *reason != "foreign_platform",
        _ => false,
    }
}

fn failed(path: &str, error: &OpenError) -> ToolError {
    let category = match error {
        OpenError::EngineMissing(_) | OpenError::EngineUnloadable { .. } => "unsupported",
        _ => "debugger",
    };
    refused(path, category, None, error.to_string())
}
