//! Opening a target: what an opener asks of a worker, and what the worker answers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use target::{Ability, Address, Code, DumpFormat, Target};

use crate::live_opening::{AttachRequest, KernelRequest, LaunchRequest};

/// Which engine serves a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum EngineChoice {
    #[default]
    Auto,
    Native,
    Dbgeng,
}

/// A request to open something in a fresh worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "open", rename_all = "snake_case")]
pub enum OpenRequest {
    Dump {
        path: String,
        engine: EngineChoice,
        #[serde(default)]
        symbol_path: Option<String>,
        #[serde(default)]
        image_path: Option<String>,
        /// Load address of a bare PE image.
        #[serde(default)]
        image_base: Option<u64>,
        /// Whether URL elements of the symbol path may be used.
        #[serde(default)]
        network: bool,
    },
    /// A process to start.
    Launch(LaunchRequest),
    /// A process to attach to.
    Attach(AttachRequest),
    /// A kernel on another machine.
    Kernel(KernelRequest),
    /// A target made of a script, for tests; its text is the scripted target's own.
    Scripted { script: String },
}

impl OpenRequest {
    /// What the session is aimed at, for status rows.
    #[must_use]
    pub fn aim(&self) -> String {
        match self {
            Self::Dump { path, .. } => path.clone(),
            Self::Launch(launch) => launch.command_line.clone(),
            Self::Attach(attach) => attach.pid.map_or("no process".to_owned(), |pid| format!("pid {pid}")),
            Self::Kernel(kernel) => kernel.connection.to_string(),
            Self::Scripted { .. } => "scripted".to_owned(),
        }
    }

    /// The engine that was asked for.
    #[must_use]
    pub fn engine(&self) -> EngineChoice {
        match self {
            Self::Dump { engine, .. } => *engine,
            Self::Launch(launch) => launch.engine,
            Self::Attach(attach) => attach.engine,
            Self::Kernel(kernel) => kernel.engine,
            Self::Scripted { .. } => EngineChoice::Auto,
        }
    }

    /// Whether only DbgEng can open it (spec 00 decision 2).
    #[must_use]
    pub fn needs_dbgeng(&self) -> bool {
        match self {
            Self::Dump { path, .. } => path.to_ascii_lowercase().ends_with(".run"),
            Self::Launch(_) | Self::Attach(_) => true,
            Self::Kernel(kernel) => {
                let transport = kernel.connection.transport();
                transport.dbgeng_dials() && !transport.native_dials()
            }
            Self::Scripted { .. } => false,
        }
    }

    /// The remote target it takes control of.
    #[must_use]
    pub fn connection(&self) -> Option<&connection_string::Connection> {
        match self {
            Self::Kernel(kernel) => Some(&kernel.connection),
            _ => None,
        }
    }

    /// The file it opens.
    #[must_use]
    pub fn file(&self) -> Option<&str> {
        match self {
            Self::Dump { path, .. } => Some(path),
            Self::Launch(_) | Self::Attach(_) | Self::Kernel(_) | Self::Scripted { .. } => None,
        }
    }

    /// The same, to be changed.
    pub fn file_mut(&mut self) -> Option<&mut String> {
        match self {
            Self::Dump { path, .. } => Some(path),
            Self::Launch(_) | Self::Attach(_) | Self::Kernel(_) | Self::Scripted { .. } => None,
        }
    }

    /// The Wine prefix its worker lives in; the environment's when `None`.
    #[must_use]
    pub fn wine_prefix(&self) -> Option<&str> {
        match self {
            Self::Launch(launch) => launch.wine_prefix.as_deref(),
            Self::Attach(attach) => attach.wine_prefix.as_deref(),
            Self::Dump { .. } | Self::Kernel(_) | Self::Scripted { .. } => None,
        }
    }
}

/// What a worker says of a target it opened. `kind` is the session's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OpenReport {
    /// `dump`, `image`, `trace`, `launch`, `process`, `kernel`.
    pub kind: String,
    pub engine: String,
    /// Why this engine, in one clause.
    pub engine_reason: String,
    /// The target's version block, for people.
    pub report: String,
    pub summary: Summary,
}

/// Facts of an open target (spec 10 section 5). A field that was not established is absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Summary {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_mode: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arch: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pointer_size: Option<u8>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub wow64: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub os: Option<OsInfo>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<ProcessInfo>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processors: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modules_loaded: Option<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub primary_module: Option<PrimaryModule>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bug_check: Option<BugCheckInfo>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exception: Option<ExceptionInfo>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dump: Option<DumpInfo>,
    /// Of an image session: the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<ImageInfo>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub can: Vec<Ability>,
    /// What a caller would assume and cannot have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limitation: Option<String>,
}

impl Summary {
    /// Adds to what a caller would assume and cannot have.
    pub fn limit(&mut self, more: Option<&str>) {
        let Some(more) = more.filter(|more| !more.is_empty()) else { return };
        self.limitation = Some(match self.limitation.take() {
            Some(known) => format!("{known}; {more}"),
            None => more.to_owned(),
        });
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OsInfo {
    pub major: u32,
    pub minor: u32,
    pub build: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub product: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProcessInfo {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PrimaryModule {
    #[schemars(extend("x-verbatim" = true))]
    pub name: String,
    pub image_name: String,
    pub start: Address,
    pub size: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BugCheckInfo {
    pub code: Code,
    pub parameters: Vec<Address>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExceptionInfo {
    pub code: Code,
    pub address: Address,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DumpInfo {
    pub format: DumpFormat,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uptime_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub full_memory: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
}

/// An image file, and what a replay of its entry stands at.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ImageInfo {
    #[serde(flatten)]
    pub facts: target::ImageFacts,
    /// Of drivers: the entry is replayed when a tool first needs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<ReplayInfo>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct ReplayInfo {
    pub status: ReplayState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum ReplayState {
    OnFirstUse,
}

fn image(target: &dyn Target) -> Option<ImageInfo> {
    let mut facts = target.image_facts()?;
    if let Some(module) = target.modules().ok().as_ref().and_then(|modules| modules.first()) {
        facts.framework = driver_replay::framework_in(target, module).map(|framework| framework.name);
    }
    let replay = facts.is_driver.then_some(ReplayInfo { status: ReplayState::OnFirstUse });
    Some(ImageInfo { facts, replay })
}

/// The facts of an open target. One failed look-up costs one field.
#[must_use]
pub fn summary_of(target: &dyn Target) -> Summary {
    let facts = target.facts();
    let kernel = facts.kind.is_kernel();
    let modules = target.modules().ok();
    let primary = modules.as_ref().and_then(|modules| primary_module(modules, kernel));
    Summary {
        kernel_mode: Some(kernel),
        arch: Some(facts.machine.name().to_owned()),
        pointer_size: Some(facts.machine.pointer_size()),
        wow64: facts.wow64,
        os: facts.os.as_ref().map(|os| OsInfo {
            major: os.major,
            minor: os.minor,
            build: os.build,
            product: os.product.map(ToOwned::to_owned),
        }),
        process: facts
            .process
            .as_ref()
            .map(|process| ProcessInfo { pid: process.pid, name: process.name.clone() }),
        processors: facts.processors.filter(|_| kernel),
        modules_loaded: modules.as_ref().map(|modules| modules.len()),
        primary_module: primary,
        bug_check: bug_check(target, kernel),
        exception: exception(target, kernel),
        dump: facts.dump.as_ref().map(dump),
        image: image(target),
        can: target.abilities(),
        limitation: (!facts.limitations.is_empty()).then(|| facts.limitations.join("; ")),
    }
}

/// The kernel, or the program of a process.
fn primary_module(modules: &[target::Module], kernel: bool) -> Option<PrimaryModule> {
    let is_program = |m: &&target::Module| m.image_name.to_ascii_lowercase().ends_with(".exe");
    let module = if kernel {
        modules.iter().find(|m| m.name.eq_ignore_ascii_case("nt")).or(modules.first())
    } else {
        modules.iter().find(is_program).or(modules.first())
    }?;
    Some(PrimaryModule {
        name: module.name.clone(),
        image_name: module.image_name.clone(),
        start: Address(module.base),
        size: module.size,
        timestamp: (module.timestamp != 0).then_some(module.timestamp),
    })
}

fn bug_check(target: &dyn Target, kernel: bool) -> Option<BugCheckInfo> {
    let check = target.bug_check().ok().flatten().filter(|check| kernel && check.code != 0)?;
    Some(BugCheckInfo { code: Code(check.code), parameters: check.parameters.map(Address).to_vec() })
}

fn exception(target: &dyn Target, kernel: bool) -> Option<ExceptionInfo> {
    let event = target.stored_event().ok().flatten().filter(|_| !kernel)?;
    Some(ExceptionInfo {
        code: Code(event.record.code),
        address: Address(event.record.address),
        thread: event.thread,
    })
}

fn dump(facts: &target::DumpFacts) -> DumpInfo {
    DumpInfo {
        format: facts.format,
        container: facts.container.map(ToOwned::to_owned),
        time: facts.time.clone(),
        uptime_ms: facts.uptime_ms,
        full_memory: facts.full_memory,
        truncated: facts.truncated,
        comment: facts.comment.clone(),
    }
}

/// The target's version block, for people.
#[must_use]
pub fn version_block(target: &dyn Target) -> String {
    let facts = target.facts();
    let mut lines = Vec::new();
    if let Some(os) = &facts.os {
        let pack = os.service_pack.as_deref().map(|pack| format!(" {pack}")).unwrap_or_default();
        let processors = facts.processors.map(|n| format!(", {n} processors")).unwrap_or_default();
        let product = os.product.map(|product| format!(" ({product})")).unwrap_or_default();
        lines.push(format!(
            "Windows {}.{} build {}{pack}{product}, {}{processors}",
            os.major,
            os.minor,
            os.build,
            facts.machine.name()
        ));
        if let Some(lab) = &os.build_lab {
            lines.push(format!("Built by: {lab}"));
        }
    }
    if let Some(process) = &facts.process {
        let name = process.name.as_deref().unwrap_or("unknown");
        let pid = process.pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default();
        let wow64 = if facts.wow64 { ", a 32-bit process of a 64-bit system" } else { "" };
        lines.push(format!("Process: {name}{pid}{wow64}"));
    }
    if let Some(dump) = &facts.dump {
        if let Some(time) = &dump.time {
            lines.push(format!("Dump taken: {time}"));
        }
        if let Some(uptime) = dump.uptime_ms {
            let seconds = uptime / 1000;
            lines.push(format!(
                "Uptime: {} days {:02}:{:02}:{:02}",
                seconds / 86400,
                seconds / 3600 % 24,
                seconds / 60 % 60,
                seconds % 60
            ));
        }
        if let Some(comment) = &dump.comment {
            lines.push(format!("Comment: {}", crate::table::quiet(comment)));
        }
    }
    lines.join("\n")
}
