//! What is asked of a worker that starts or takes over a process (spec 10 sections 5.5 and 5.6,
//! spec 00 decision 26), or that takes over a kernel (section 5.3).

use connection_string::Connection;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::opening::EngineChoice;

/// Where a launched process first stops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum InitialBreak {
    /// At the loader's breakpoint, before the program's own code.
    #[default]
    Loader,
    /// Not at all: it runs to its first event of its own.
    None,
}

/// A process to start under the debugger.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchRequest {
    /// As `CreateProcess` takes it; not blank.
    pub command_line: String,
    #[serde(default)]
    pub engine: EngineChoice,
    /// Its working directory; the debugger's when `None`.
    #[serde(default)]
    pub directory: Option<String>,
    /// Variables set beside the inherited ones.
    #[serde(default)]
    pub environment: Vec<(String, String)>,
    /// Whether its child processes are debugged too.
    #[serde(default)]
    pub children: bool,
    #[serde(default)]
    pub initial_break: InitialBreak,
    /// On Wine: the prefix worker and target share; the environment's when `None`.
    #[serde(default)]
    pub wine_prefix: Option<String>,
    #[serde(default)]
    pub symbol_path: Option<String>,
    #[serde(default)]
    pub image_path: Option<String>,
    /// Whether URL elements of the symbol path may be used.
    #[serde(default)]
    pub network: bool,
}

/// A process to attach to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachRequest {
    /// `None` is refused with the list of processes there are.
    #[serde(default)]
    pub pid: Option<u32>,
    #[serde(default)]
    pub engine: EngineChoice,
    #[serde(default)]
    pub wine_prefix: Option<String>,
    #[serde(default)]
    pub symbol_path: Option<String>,
    #[serde(default)]
    pub image_path: Option<String>,
    #[serde(default)]
    pub network: bool,
}

/// A kernel on another machine to attach to. Serialises with its key: for the worker's channel only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelRequest {
    pub connection: Connection,
    #[serde(default)]
    pub engine: EngineChoice,
    #[serde(default)]
    pub symbol_path: Option<String>,
    #[serde(default)]
    pub image_path: Option<String>,
    #[serde(default)]
    pub network: bool,
}
