//! The breakpoints there are, and clearing them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use target::capability::{Access, Breakpoint};
use target::{Address, Result, Rva, Target};

use crate::location::attributed;
use crate::targets::breakpoints_of;

/// What a breakpoint stops on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum Kind {
    Code,
    Data,
}

/// A watched access as records carry it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct WatchRecord {
    pub access: AccessName,
    pub size: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum AccessName {
    Read,
    Write,
    ReadWrite,
    Execute,
    Io,
}

impl AccessName {
    #[must_use]
    pub fn access(self) -> Access {
        match self {
            Self::Read => Access::Read,
            Self::Write => Access::Write,
            Self::ReadWrite => Access::ReadWrite,
            Self::Execute => Access::Execute,
            Self::Io => Access::Io,
        }
    }
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::ReadWrite => "read_write",
            Self::Execute => "execute",
            Self::Io => "io",
        }
    }
}

impl From<Access> for AccessName {
    fn from(access: Access) -> Self {
        match access {
            Access::Read => Self::Read,
            Access::Write => Self::Write,
            Access::ReadWrite => Self::ReadWrite,
            Access::Execute => Self::Execute,
            Access::Io => Self::Io,
        }
    }
}

/// A breakpoint as it is (spec 10 section 7.3).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BreakpointRecord {
    pub id: u32,
    pub kind: Kind,
    /// Absent while it is deferred.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<Address>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub module: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rva: Option<Rva>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expression: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub condition: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watch: Option<WatchRecord>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<u32>,
    pub enabled: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deferred: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub one_shot: bool,
    pub pass_count: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passes_remaining: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hits: Option<u32>,
}

/// The record of `breakpoint`.
pub(crate) fn record(target: &dyn Target, breakpoint: &Breakpoint) -> BreakpointRecord {
    let (module, rva) = breakpoint.address.map(|at| attributed(target, at)).unwrap_or_default();
    BreakpointRecord {
        id: breakpoint.id,
        kind: if breakpoint.watch.is_some() { Kind::Data } else { Kind::Code },
        address: breakpoint.address.map(Address),
        module,
        rva,
        expression: breakpoint.expression.clone(),
        command: breakpoint.command.clone(),
        condition: breakpoint.condition.clone(),
        watch: breakpoint.watch.map(|(access, size)| WatchRecord { access: access.into(), size }),
        thread: breakpoint.thread,
        enabled: breakpoint.enabled,
        deferred: breakpoint.address.is_none(),
        one_shot: breakpoint.one_shot,
        pass_count: breakpoint.pass_count,
        passes_remaining: breakpoint.passes_remaining,
        hits: breakpoint.hits,
    }
}

/// All breakpoints, ascending by id.
///
/// # Errors
/// `Unsupported` for a target that takes none; the engine's own.
pub fn list(target: &dyn Target) -> Result<Vec<BreakpointRecord>> {
    let mut all = breakpoints_of(target)?.list()?;
    all.sort_by_key(|breakpoint| breakpoint.id);
    Ok(all.iter().map(|breakpoint| record(target, breakpoint)).collect())
}

/// All breakpoints but those of `hidden`, which nobody set by hand.
///
/// # Errors
/// As [`list`].
pub fn list_shown(target: &dyn Target, hidden: &[u32]) -> Result<Vec<BreakpointRecord>> {
    let mut all = list(target)?;
    all.retain(|record| !hidden.contains(&record.id));
    Ok(all)
}

/// A breakpoint that is still there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NotCleared {
    pub id: u32,
    pub error: String,
}

/// What clearing came to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Cleared {
    pub removed: Vec<u32>,
    /// Asked for and not there.
    pub missing: Vec<u32>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<NotCleared>,
    pub remaining: Vec<BreakpointRecord>,
}

/// Removes the breakpoints `ids`, all when `None`.
///
/// # Errors
/// `Unsupported`, or the inventory cannot be read: then nothing was removed.
pub fn clear(target: &dyn Target, ids: Option<&[u32]>) -> Result<Cleared> {
    clear_shown(target, ids, &[])
}

/// The same, and those of `hidden` are not there.
///
/// # Errors
/// As [`clear`].
pub fn clear_shown(target: &dyn Target, ids: Option<&[u32]>, hidden: &[u32]) -> Result<Cleared> {
    let breakpoints = breakpoints_of(target)?;
    let mut present: Vec<u32> = breakpoints.list()?.iter().map(|breakpoint| breakpoint.id).collect();
    present.retain(|id| !hidden.contains(id));
    present.sort_unstable();
    let wanted: Vec<u32> = ids.map_or_else(|| present.clone(), <[u32]>::to_vec);
    let mut cleared = Cleared::default();
    for id in wanted {
        if !present.contains(&id) {
            cleared.missing.push(id);
            continue;
        }
        match breakpoints.remove(id) {
            Ok(()) => cleared.removed.push(id),
            Err(error) => cleared.failed.push(NotCleared { id, error: error.to_string() }),
        }
    }
    cleared.remaining = list_shown(target, hidden)?;
    Ok(cleared)
}
