//! A batch as its caller writes it (spec 20 section 2.2). Steps are one flat struct with a table of
//! the keys each operation takes: a tagged enum could not refuse an unknown key, and a mistyped
//! `always` or `expect` must not pass.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::changes::{Change, changes};

/// What a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum Op {
    Command,
    Resume,
    RunTo,
    Eval,
    ReadMemory,
    WriteMemory,
}

impl Op {
    pub(crate) const ALL: [Self; 6] =
        [Self::Command, Self::Resume, Self::RunTo, Self::Eval, Self::ReadMemory, Self::WriteMemory];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Command => "command",
            Self::Resume => "resume",
            Self::RunTo => "run_to",
            Self::Eval => "eval",
            Self::ReadMemory => "read_memory",
            Self::WriteMemory => "write_memory",
        }
    }

    /// The operation's own keys: required ones, then optional ones.
    pub(crate) fn own(self) -> (&'static [&'static str], &'static [&'static str]) {
        match self {
            Self::Command => (&["command"], &[]),
            Self::Resume => (&["command"], &["timeout_ms"]),
            Self::RunTo => (&["address"], &["timeout_ms"]),
            Self::Eval => (&["expr"], &["capture"]),
            Self::ReadMemory => (&["address", "size"], &[]),
            Self::WriteMemory => (&["address", "bytes"], &["restore"]),
        }
    }
}

/// When the engine process writes the old bytes of a `write_memory` back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum Restore {
    Always,
    OnFailure,
    Never,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum CheckKind {
    Contains,
    NotContains,
    Eval,
    Verdict,
    Bytes,
}

impl CheckKind {
    pub(crate) const ALL: [Self; 5] =
        [Self::Contains, Self::NotContains, Self::Eval, Self::Verdict, Self::Bytes];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Contains => "contains",
            Self::NotContains => "not_contains",
            Self::Eval => "eval",
            Self::Verdict => "verdict",
            Self::Bytes => "bytes",
        }
    }

    /// All required.
    pub(crate) fn own(self) -> &'static [&'static str] {
        match self {
            Self::Contains | Self::NotContains => &["text"],
            Self::Eval => &["expr", "equals"],
            Self::Verdict | Self::Bytes => &["equals"],
        }
    }
}

/// Something that must hold after a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub struct Check {
    pub check: CheckKind,
    /// Looked for in the output, any case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expr: Option<String>,
    /// Expression; all bytes in hex, no spaces; or verdict hit, stopped_elsewhere, timeout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub equals: Option<String>,
}

/// One step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub struct Step {
    pub op: Op,
    /// Label in the report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// WinDbg text; resume needs one (g) and waits for the stop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Expression; digits alone need 0x or 0n.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// MASM, bare digits hex.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expr: Option<String>,
    /// Bytes to read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_048_576))]
    pub size: Option<u32>,
    /// Hex to write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<String>,
    /// When written bytes are put back; default always.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore: Option<Restore>,
    /// Wait for the stop, default 60000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 3_600_000))]
    pub timeout_ms: Option<u64>,
    /// Name for an eval's value; later text says {{name}}, 0x and all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capture: Option<String>,
    /// All must hold, or the batch fails.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub expect: Vec<Check>,
}

impl Step {
    /// The raw command text, of the operations that have one.
    #[must_use]
    pub fn raw(&self) -> Option<&str> {
        matches!(self.op, Op::Command | Op::Resume).then(|| self.command.as_deref()).flatten()
    }

    /// What running the step can change.
    #[must_use]
    pub fn changes(&self) -> Vec<Change> {
        let mut found = self.raw().map(changes).unwrap_or_default();
        let own = match self.op {
            Op::Resume | Op::RunTo => Some(Change::Execution),
            Op::WriteMemory => Some(Change::Memory),
            Op::Command | Op::Eval | Op::ReadMemory => None,
        };
        found.extend(own.filter(|own| !found.contains(own)));
        found.sort();
        found
    }

    /// What it does, in a line.
    #[must_use]
    pub fn action(&self) -> String {
        let address = self.address.as_deref().unwrap_or_default();
        match self.op {
            Op::Command | Op::Resume => self.command.clone().unwrap_or_default(),
            Op::Eval => format!("eval {}", self.expr.as_deref().unwrap_or_default()),
            Op::RunTo => format!("run_to {address}"),
            Op::ReadMemory => format!("read_memory {address} {}", self.size.unwrap_or_default()),
            Op::WriteMemory => {
                format!("write_memory {address} {}", self.bytes.as_deref().unwrap_or_default())
            }
        }
    }
}

/// A whole batch, as [`crate::parse`] admits it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Batch {
    pub steps: Vec<Step>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub always: Vec<Step>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

impl Batch {
    /// Whether a command of either block names one that can replace the target: the session's handle
    /// is retired before the batch begins.
    #[must_use]
    pub fn replaces_target(&self) -> bool {
        let mut all = self.steps.iter().chain(&self.always);
        all.any(|step| step.changes().contains(&Change::DebugTarget))
    }
}
