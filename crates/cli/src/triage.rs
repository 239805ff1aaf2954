//! `triage`: every dump opened, triaged, reported, and its session ended.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use analysis_crash::{CrashTriage, ExceptionTriage};
use indicatif::ProgressBar;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use supervisor::{CallFailure, CallResult, Client, Supervisor};
use target::FrameInfo;
use tokio_util::sync::CancellationToken;
use tools::{Summary, Surface};

use crate::arguments::Triage;
use crate::call::opening;
use crate::output::shown_path;
use crate::progress::{Told, bar};
use crate::style::{Style, plain};
use crate::{FAILED, OK, dumps, output, report, summary};

/// What `open_dump` answered.
#[derive(Debug, Deserialize)]
pub(crate) struct Opened {
    pub(crate) session_id: String,
    pub(crate) kind: String,
    pub(crate) summary: Summary,
}

/// What is known of the crash.
#[derive(Debug)]
pub(crate) enum Crash {
    BugCheck(Box<CrashTriage>),
    Exception(Box<ExceptionTriage>),
    /// The file opened but records no crash: why not, and where it stands.
    None {
        why: String,
        frames: Vec<FrameInfo>,
    },
}

/// A row of `modules`, as far as a report needs it.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct ModuleRow {
    pub(crate) name: String,
    pub(crate) image_name: String,
    #[serde(default)]
    pub(crate) loaded_image_name: Option<String>,
    pub(crate) timestamp: u32,
    #[serde(default)]
    pub(crate) version: Option<String>,
    pub(crate) symbols: String,
    #[serde(default)]
    pub(crate) symbols_note: Option<String>,
    #[serde(default)]
    pub(crate) pdb: Option<PdbRow>,
}

/// The PDB an image names.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct PdbRow {
    pub(crate) name: String,
    /// GUID and age as a symbol store writes them.
    pub(crate) key: String,
}

impl ModuleRow {
    /// The path it was loaded from, else its name.
    pub(crate) fn path(&self) -> &str {
        self.loaded_image_name.as_ref().unwrap_or(&self.image_name)
    }

    /// Whether it lies where Windows keeps its own images.
    pub(crate) fn is_system(&self) -> bool {
        let path = self.path().to_ascii_lowercase().replace('/', "\\");
        path.contains("\\windows\\") || path.starts_with("\\systemroot\\")
    }

    pub(crate) fn lacks_symbols(&self) -> bool {
        matches!(self.symbols.as_str(), "none" | "export")
    }
}

/// A triaged dump.
#[derive(Debug)]
pub(crate) struct Triaged {
    pub(crate) path: PathBuf,
    pub(crate) opened: Opened,
    pub(crate) crash: Crash,
    /// As given on the command line.
    pub(crate) symbols: Option<String>,
    pub(crate) images: Option<String>,
    /// The module that is blamed, or the crash happened in.
    pub(crate) module: Option<ModuleRow>,
    /// The same as JSON: the tool's own answer.
    pub(crate) answer: Value,
}

impl Triaged {
    /// Whether the file is an image and no dump.
    pub(crate) fn is_image(&self) -> bool {
        self.opened.kind == "image"
    }
}

/// A dump that was not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) path: PathBuf,
    /// What happened and what to do next.
    pub(crate) message: String,
    pub(crate) error: Option<Value>,
}

pub(crate) type Outcome = Result<Triaged, Failure>;

pub(crate) struct Asker {
    pub(crate) client: Arc<Client>,
    pub(crate) bar: ProgressBar,
    pub(crate) path: PathBuf,
    pub(crate) symbols: Option<String>,
    pub(crate) images: Option<String>,
}

impl Asker {
    pub(crate) fn failure(&self, message: impl Into<String>, error: Option<Value>) -> Failure {
        Failure { path: shown_path(&self.path), message: message.into(), error }
    }

    pub(crate) async fn call(&self, tool: &str, args: Map<String, Value>) -> Result<CallResult, Failure> {
        let name =
            shown_path(&self.path).file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let sink = Told::sink(&self.bar, &plain(&name));
        let called =
            self.client.call(tool, Some(args), &Surface::all(), sink, CancellationToken::new()).await;
        called.map_err(|failure| match failure {
            CallFailure::NoWorker(_) => {
                self.failure(format!("{failure}; windbg-mcp doctor says what is missing"), None)
            }
            CallFailure::UnknownTool { .. } => self.failure(failure.to_string(), None),
        })
    }

    /// The tool's answer as a value, its error as a failure.
    pub(crate) async fn ask(&self, tool: &str, args: Map<String, Value>) -> Result<Value, Failure> {
        let result = self.call(tool, args).await?;
        let structured = result.structured.unwrap_or_default();
        if result.is_error {
            return Err(self.failure(result.text, structured.get("error").cloned()));
        }
        Ok(structured)
    }

    pub(crate) fn read<T: DeserializeOwned>(&self, tool: &str, value: &Value) -> Result<T, Failure> {
        serde_json::from_value(value.clone()).map_err(|error| {
            self.failure(format!("the answer of {tool} is not what it should be: {error}; report this"), None)
        })
    }
}

pub(crate) fn routed(session: &str) -> Map<String, Value> {
    let mut args = Map::new();
    args.insert("session_id".into(), json!(session));
    args
}

/// Whether a refused triage means that there is nothing to triage.
fn nothing_recorded(failure: &Failure) -> bool {
    let category = failure.error.as_ref().and_then(|error| error["category"].as_str());
    category == Some("debugger") || category == Some("unsupported")
}

async fn crash(asker: &Asker, opened: &Opened) -> Result<(Crash, Value), Failure> {
    let kernel = opened.summary.kernel_mode == Some(true);
    let tool = if kernel { "crash_triage" } else { "exception_triage" };
    match asker.ask(tool, routed(&opened.session_id)).await {
        Ok(value) if kernel => Ok((Crash::BugCheck(asker.read(tool, &value)?), value)),
        Ok(value) => Ok((Crash::Exception(asker.read(tool, &value)?), value)),
        Err(failure) if nothing_recorded(&failure) => {
            let stack = asker.ask("backtrace", routed(&opened.session_id)).await.unwrap_or_default();
            let frames = stack.get("frames").cloned().unwrap_or_default();
            let frames = serde_json::from_value(frames).unwrap_or_default();
            Ok((Crash::None { why: failure.message, frames }, json!({ "error": failure.error })))
        }
        Err(failure) => Err(failure),
    }
}

/// The name of the module the report is about.
fn suspect(crash: &Crash) -> Option<&str> {
    let named = |analysis: &'_ analysis_crash::Analysis| analysis.module_name.is_some();
    match crash {
        Crash::BugCheck(triage) if named(&triage.analysis) => triage.analysis.module_name.as_deref(),
        Crash::BugCheck(triage) => triage.faulting_frame.as_ref()?.module.as_deref(),
        Crash::Exception(triage) if named(&triage.analysis) => triage.analysis.module_name.as_deref(),
        Crash::Exception(triage) => triage.frames.iter().find_map(|frame| frame.module.as_deref()),
        Crash::None { frames, .. } => frames.iter().find_map(|frame| frame.module.as_deref()),
    }
}

async fn module(asker: &Asker, opened: &Opened, name: &str) -> Option<ModuleRow> {
    let mut args = routed(&opened.session_id);
    args.insert("filter".into(), json!(name));
    let page = asker.ask("modules", args).await.ok()?;
    let rows: Vec<ModuleRow> = serde_json::from_value(page.get("modules")?.clone()).ok()?;
    rows.into_iter().find(|row| row.name.eq_ignore_ascii_case(name))
}

async fn one(asker: Asker, args: Map<String, Value>) -> Outcome {
    let answer = asker.ask("open_dump", args).await?;
    let opened: Opened = asker.read("open_dump", &answer)?;
    let result = async {
        let (crash, triage) = crash(&asker, &opened).await?;
        let image = opened.summary.primary_module.as_ref().filter(|_| opened.kind == "image");
        if let Some(image) = image {
            // A name asked for is what loads symbols.
            let mut args = routed(&opened.session_id);
            args.insert("command".into(), json!(format!("ln {}", image.start)));
            let _ = asker.ask("execute", args).await;
        }
        let module = match suspect(&crash).or(image.map(|image| image.name.as_str())) {
            Some(name) => module(&asker, &opened, name).await,
            None => None,
        };
        Ok((crash, triage, module))
    }
    .await;
    // The slot is wanted by the next dump, whatever came of this one.
    let ended = asker.call("end_session", routed(&opened.session_id)).await;
    if let Err(failure) = ended {
        output::problem(&format!("ending the session of {}: {}", asker.path.display(), failure.message));
    }
    let (crash, triage, module) = result?;
    let answer = json!({ "open": answer, "triage": triage });
    let own = |path: Option<String>| path.map(|path| output::shown(&path).into_owned());
    let (symbols, images) = (own(asker.symbols), own(asker.images));
    Ok(Triaged { path: shown_path(&asker.path), opened, crash, symbols, images, module, answer })
}

/// One JSON object of a dump.
fn object(outcome: &Outcome) -> Value {
    match outcome {
        Ok(triaged) => json!({
            "path": triaged.path.to_string_lossy(),
            "status": "ok",
            "open": triaged.answer["open"],
            "triage": triaged.answer["triage"],
        }),
        Err(failure) => json!({
            "path": failure.path.to_string_lossy(),
            "status": "error",
            "error": failure.error.clone().unwrap_or_else(|| json!({ "message": failure.message })),
        }),
    }
}

struct Printer<'a> {
    asked: &'a Triage,
    style: Style,
    bar: ProgressBar,
    several: bool,
}

impl Printer<'_> {
    fn print(&self, outcome: &Outcome) {
        self.bar.suspend(|| match outcome {
            _ if self.asked.json => output::line(&object(outcome).to_string()),
            Ok(triaged) if self.several && !self.asked.full => {
                output::line(&report::short(triaged, self.style));
            }
            Ok(triaged) => output::line(&report::full(triaged, self.style)),
            Err(failure) => output::problem(&report::failure(failure)),
        });
    }
}

/// How many dumps are worked on at once.
pub(crate) fn at_once(supervisor: &Supervisor) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    cores.min(supervisor.config().sessions).max(1)
}

/// Runs the subcommand: 0 when every dump was triaged, 1 when some were not.
pub(crate) async fn run(asked: &Triage, supervisor: &Arc<Supervisor>) -> i32 {
    let (paths, trouble) = dumps::find(&asked.paths);
    trouble.iter().for_each(|text| output::problem(&plain(text)));
    let bar = bar(paths.len());
    let printer = Printer { asked, style: Style::of_stdout(), bar: bar.clone(), several: paths.len() > 1 };
    let client = supervisor.client("cli");
    let mut outcomes: Vec<Outcome> = Vec::with_capacity(paths.len());
    let mut running = std::collections::VecDeque::new();
    let mut waiting = paths.iter();
    // In order of the command line, a few ahead of what is printed.
    loop {
        while running.len() < at_once(supervisor)
            && let Some(path) = waiting.next()
        {
            running.push_back(start(&client, &bar, path, asked));
        }
        let Some((path, task)) = running.pop_front() else { break };
        let outcome = task.await.unwrap_or_else(|error| {
            Err(Failure {
                path,
                message: format!("the triage itself failed: {error}; report this"),
                error: None,
            })
        });
        bar.inc(1);
        printer.print(&outcome);
        outcomes.push(outcome);
    }
    bar.finish_and_clear();
    if printer.several && !asked.json {
        output::print(&summary::text(&outcomes, printer.style));
    }
    let failed = outcomes.iter().any(Result::is_err) || !trouble.is_empty();
    if failed { FAILED } else { OK }
}

type Started = (PathBuf, tokio::task::JoinHandle<Outcome>);

fn start(client: &Arc<Client>, bar: &ProgressBar, path: &Path, asked: &Triage) -> Started {
    let asker = Asker {
        client: Arc::clone(client),
        bar: bar.clone(),
        path: path.to_owned(),
        symbols: asked.search.symbols.clone(),
        images: asked.search.images.clone(),
    };
    (path.to_owned(), tokio::spawn(one(asker, opening(path, &asked.search))))
}
