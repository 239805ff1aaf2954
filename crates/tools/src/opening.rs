//! Opening a target: what an opener asks of a worker, and what the worker answers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use target::{Ability, Address, Code, DumpFormat};

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
    /// A target made of a script, for tests; its text is the scripted target's own.
    Scripted { script: String },
}

impl OpenRequest {
    /// What the session is aimed at, for status rows.
    #[must_use]
    pub fn aim(&self) -> &str {
        match self {
            Self::Dump { path, .. } => path,
            Self::Scripted { .. } => "scripted",
        }
    }
}

/// What a worker says of a target it opened. `kind` is the session's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OpenReport {
    /// `dump`, `image`, `trace`.
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
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub can: Vec<Ability>,
    /// What a caller would assume and cannot have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limitation: Option<String>,
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
