//! Which worker serves a request, decided before one is spawned: an engine cannot change its process's
//! architecture afterwards (spec 10 section 1.3, spec 00 decisions 2 and 12).

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tools::{Category, EngineChoice, OpenRequest, ToolError};

use crate::config::Config;
use crate::image_header::{DUMP_X86, minidump_architecture};
use crate::wine::{self, Arch, EngineFact};

/// Setting up a Wine prefix takes about 10 s on an idle machine.
const FIRST_START: Duration = Duration::from_secs(120);

/// A worker that may be started.
#[derive(Debug)]
pub(crate) struct Image {
    pub(crate) program: PathBuf,
    pub(crate) args: Vec<OsString>,
    pub(crate) environment: Vec<(String, OsString)>,
    pub(crate) ready: Duration,
    /// Why this engine, in a clause.
    pub(crate) reason: String,
    /// It sees this machine's files on Wine's drive Z.
    pub(crate) under_wine: bool,
    /// Wine's prefix it lives in.
    pub(crate) prefix: Option<PathBuf>,
}

impl Image {
    /// The worker's file, for messages.
    pub(crate) fn name(&self) -> String {
        let file = if self.under_wine { self.args.first().map(Path::new) } else { None };
        file.unwrap_or(&self.program).display().to_string()
    }
}

/// Workers to try, best first, and what a caller should know when the first of all is not among them.
#[derive(Debug)]
pub(crate) struct Choice {
    pub(crate) images: Vec<Image>,
    pub(crate) limitation: Option<String>,
}

/// This executable; by what the kernel still holds of it when its file was replaced by an upgrade.
fn own_image() -> Result<PathBuf, String> {
    let own = std::env::current_exe()
        .map_err(|error| format!("cannot find this executable to start a worker from: {error}"))?;
    let held = PathBuf::from("/proc/self/exe");
    Ok(if !own.exists() && held.exists() { held } else { own })
}

fn plain(config: &Config, program: PathBuf, engine: &str, reason: &str) -> Image {
    let mut args: Vec<OsString> = config.worker_args.iter().map(OsString::from).collect();
    args.push(format!("--engine={engine}").into());
    Image {
        program,
        args,
        environment: Vec::new(),
        ready: config.worker_ready,
        reason: reason.to_owned(),
        under_wine: false,
        prefix: None,
    }
}

/// Whether the 32-bit worker would serve the target better: extensions are paired with both the
/// debugger's and the target's architecture.
fn wants_x86(request: &OpenRequest) -> bool {
    request.file().is_some_and(|path| minidump_architecture(Path::new(path)) == Some(DUMP_X86))
}

/// What DbgEng needs on this machine and what of it is here; for people.
pub(crate) fn dbgeng_facts(config: &Config) -> Vec<EngineFact> {
    if cfg!(windows) { Vec::new() } else { wine::facts(config, Arch::X64, None).1 }
}

/// The DbgEng workers for `request`, or what is missing.
fn dbgeng(config: &Config, request: &OpenRequest, why: &str) -> Result<Vec<Image>, String> {
    if cfg!(windows) { on_windows(config, request, why) } else { under_wine(config, request, why) }
}

fn on_windows(config: &Config, request: &OpenRequest, why: &str) -> Result<Vec<Image>, String> {
    let own = own_image()?;
    let x86 = own.parent().unwrap_or(Path::new(".")).join("x86").join(own.file_name().unwrap_or_default());
    // Where a folder is named that has no 32-bit DLLs, Windows' own are no substitute for it.
    let named = config.engine_dir.as_ref().map(|_| wine::engine_folder(config, Arch::X86, &x86));
    let mut images = Vec::new();
    if wants_x86(request) && x86.is_file() && named != Some(None) {
        images.push(with_engine(plain(config, x86, "dbgeng", why), named.flatten()));
    }
    images.push(with_engine(plain(config, own, "dbgeng", why), config.engine_dir.clone()));
    Ok(images)
}

fn with_engine(mut image: Image, folder: Option<PathBuf>) -> Image {
    image.environment.extend(folder.map(|folder| ("WINDBG_MCP_ENGINE_DIR".to_owned(), folder.into())));
    image
}

fn under_wine(config: &Config, request: &OpenRequest, why: &str) -> Result<Vec<Image>, String> {
    let image = |setup: wine::Setup| {
        let program = setup.wine.clone();
        let mut image = plain(config, program, "dbgeng", &format!("{why}, under Wine"));
        image.args.insert(0, setup.worker.clone().into());
        image.environment = setup.environment();
        if setup.prefix.as_deref().is_some_and(|prefix| !wine::exists(prefix)) {
            image.ready = config.worker_ready.max(FIRST_START);
        }
        image.under_wine = true;
        image.prefix = setup.prefix;
        image
    };
    let (setup, facts) = wine::facts(config, Arch::X64, request.wine_prefix());
    let Some(setup) = setup else {
        let missing = facts.into_iter().filter(|fact| fact.needed && !fact.present).map(|fact| fact.text);
        return Err(missing.collect::<Vec<_>>().join("; "));
    };
    let mut images = Vec::new();
    if wants_x86(request)
        && let (Some(x86), _) = wine::facts(config, Arch::X86, request.wine_prefix())
    {
        images.push(image(x86));
    }
    images.push(image(setup));
    Ok(images)
}

/// The workers that may serve `request`.
///
/// # Errors
/// [`Category::Unsupported`] when the engine that was asked for is not to be had here.
pub(crate) fn choose(config: &Config, request: &OpenRequest) -> Result<Choice, ToolError> {
    if let Some(worker) = &config.worker {
        let mut image = plain(config, worker.clone(), "", "");
        image.args.pop();
        return Ok(Choice { images: vec![image], limitation: None });
    }
    let undialable = |says: &str, engine: &str| {
        let words = request.connection().map(|connection| connection.transport().words()).unwrap_or_default();
        let message = format!("engine {says} does not dial {words}; engine {engine} does");
        ToolError::new(Category::Unsupported, message).because("no_transport").with("target", "no")
    };
    let native = |why: &str| match own_image() {
        Ok(own) => Ok(plain(config, own, "native", why)),
        Err(why) => Err(ToolError::new(Category::Internal, why)),
    };
    let (choice, why) = match request.engine() {
        EngineChoice::Auto => automatic(config, request),
        asked => (asked, "it was asked for"),
    };
    if let Some(transport) = request.connection().map(|connection| connection.transport()) {
        if choice == EngineChoice::Dbgeng && !transport.dbgeng_dials() {
            return Err(undialable("dbgeng", "native"));
        }
        if choice == EngineChoice::Native && transport.only_dbgeng_dials() {
            return Err(undialable("native", "dbgeng"));
        }
    }
    if choice == EngineChoice::Native {
        return Ok(Choice { images: vec![native(why)?], limitation: None });
    }
    let falls_back = request.engine() == EngineChoice::Auto && !request.needs_dbgeng();
    match dbgeng(config, request, why) {
        Ok(mut images) => {
            if falls_back {
                images.push(native("DbgEng could not be started")?);
            }
            Ok(Choice { images, limitation: None })
        }
        Err(missing) if falls_back => Ok(Choice {
            images: vec![native("DbgEng is not to be had here")?],
            limitation: Some(format!("DbgEng is the default engine and is not to be had: {missing}")),
        }),
        Err(missing) => Err(unavailable(&missing)),
    }
}

fn automatic(config: &Config, request: &OpenRequest) -> (EngineChoice, &'static str) {
    if request.needs_dbgeng() {
        return (EngineChoice::Dbgeng, "only DbgEng opens this kind of target");
    }
    if request.connection().is_some_and(|connection| !connection.transport().dbgeng_dials()) {
        return (EngineChoice::Native, "only it dials this kind of connection");
    }
    match config.engine {
        EngineChoice::Auto if request.connection().is_some() && !cfg!(windows) => {
            (EngineChoice::Native, "it dials this kind of connection on every system")
        }
        EngineChoice::Auto if cfg!(windows) => (EngineChoice::Dbgeng, "it is the default on Windows"),
        EngineChoice::Auto => (EngineChoice::Native, "it opens dumps and images on every system"),
        chosen => (chosen, "WINDBG_MCP_ENGINE names it"),
    }
}

/// The refusal of an engine that is not to be had.
pub(crate) fn unavailable(missing: &str) -> ToolError {
    let message =
        format!("engine dbgeng is not to be had here: {missing}. `windbg-mcp doctor` says how to get it");
    ToolError::new(Category::Unsupported, message).because("no_dbgeng").with("target", "no")
}
