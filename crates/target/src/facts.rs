//! What a target is, once opened, and what it can do.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::machine::Machine;

/// Kind of target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TargetKind {
    UserDump,
    KernelDump,
    Image,
    Process,
    Kernel,
    LocalKernel,
    Trace,
}

impl TargetKind {
    #[must_use]
    pub fn is_kernel(self) -> bool {
        matches!(self, Self::KernelDump | Self::Kernel | Self::LocalKernel)
    }
    #[must_use]
    pub fn is_live(self) -> bool {
        matches!(self, Self::Process | Self::Kernel | Self::LocalKernel)
    }
}

/// File format of a dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum DumpFormat {
    UserMinidump,
    UserFullLegacy,
    KernelTriage,
    KernelFull,
    KernelBitmap,
    KernelRanges,
    /// A 32-bit kernel dump: header facts only.
    KernelHeaderOnly,
}

/// Facts about the dump file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DumpFacts {
    pub format: DumpFormat,
    /// `cab`, `zip`, `xz`, `gz`.
    pub container: Option<&'static str>,
    /// RFC 3339 UTC.
    pub time: Option<String>,
    pub uptime_ms: Option<u64>,
    pub full_memory: bool,
    pub truncated: bool,
    pub comment: Option<String>,
}

/// Windows version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OsVersion {
    pub major: u32,
    pub minor: u32,
    pub build: u32,
    /// `workstation`, `server`, `domain_controller`.
    pub product: Option<&'static str>,
    /// `19041.1.amd64fre.vb_release.191206-1406`, if recorded.
    pub build_lab: Option<String>,
    pub service_pack: Option<String>,
}

/// Facts that hold for the life of the target.
#[derive(Clone, Debug, PartialEq)]
pub struct Facts {
    pub kind: TargetKind,
    /// The target's (of a WoW64 process: its 32-bit side).
    pub machine: Machine,
    /// A 32-bit process of a 64-bit system.
    pub wow64: bool,
    pub os: Option<OsVersion>,
    pub process: Option<ProcessFacts>,
    pub processors: Option<u32>,
    pub dump: Option<DumpFacts>,
    /// What a caller would assume and cannot have; names no tool.
    pub limitations: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessFacts {
    pub pid: Option<u32>,
    pub name: Option<String>,
    /// Seconds since 1970.
    pub created: Option<u32>,
    pub peb: Option<u64>,
}

/// What a session serves beyond inspection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum Ability {
    Run,
    Step,
    Breakpoints,
    Watch,
    Write,
    Reverse,
    Execute,
    Dx,
}

/// Which target a batch or a coordinate was aimed at: changes when the target is replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Rises whenever the engine's target is another one.
    pub generation: u64,
    /// What it is aimed at: a path, a pid, a connection label.
    pub aim: String,
}
