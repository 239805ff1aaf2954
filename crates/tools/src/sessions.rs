//! The supervisor's sessions as tools see them. The supervisor implements this; tools never see a
//! process.

use std::time::Duration;

use async_trait::async_trait;
use control::StopRecord;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::{Category, ToolError};
use crate::opening::{OpenReport, OpenRequest};

/// A session that was opened.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenedSession {
    pub session_id: String,
    pub report: OpenReport,
}

/// How `interrupt` ended (spec 10 section 1.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum InterruptOutcome {
    Raised,
    AlreadyPending,
    NothingRunning,
    Sealed,
    Unreachable,
    Barred,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interrupted {
    pub session_id: String,
    pub outcome: InterruptOutcome,
    /// The tool whose job was running.
    pub job: Option<String>,
}

/// How a session ended (spec 10 sections 1.8 and 5.8).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    pub session_id: String,
    /// `closed`, `detached`, `terminated`, `resumed_and_detached`, `killed`, `preserved`, `handed_off`.
    pub ending: String,
    pub released: bool,
    pub worker_terminated: bool,
    pub waited_ms: Option<u64>,
    pub target_left_running: Option<bool>,
    /// The target may be halted, and nobody here can tell: it is looked at from outside.
    pub recovery_required: bool,
}

/// A run that was started and is not waited for (spec 10 section 7.7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartedRun {
    pub session_id: String,
    /// The run's handle, unique on this server.
    pub execution: String,
    pub command: String,
    /// The target moves; `false` when it has stopped again already, or never moved.
    pub running: bool,
    pub moved: bool,
    pub breaks_in_ms: Option<u64>,
}

/// What a wait for a run's stop came to.
#[derive(Clone, Debug, PartialEq)]
pub struct WaitedRun {
    pub session_id: String,
    pub execution: String,
    /// From when it moved; frozen at the stop.
    pub running_for_ms: u64,
    /// Absent while it runs.
    pub stop: Option<StopRecord>,
    pub breaks_in_ms: Option<u64>,
}

/// What a break into a run came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokenIn {
    pub session_id: String,
    pub execution: String,
    /// `false` only when the run had stopped before the call looked.
    pub requested: bool,
    pub detail: String,
}

/// The run of a session, or the last it had.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ExecutionRow {
    pub execution: String,
    pub command: String,
    pub running_for_ms: u64,
    pub stopped: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub breaks_in_ms: Option<u64>,
}

fn no_runs() -> ToolError {
    ToolError::new(Category::Unsupported, "runs that are not waited for are not served here")
}

/// A row of `session_status` (spec 10 section 5.9).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SessionRow {
    pub session_id: String,
    /// `dump`, `image`, `trace`; absent until the open says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    pub engine: String,
    /// Why that engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine_reason: Option<String>,
    pub target: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine_pid: Option<u32>,
    /// `opening`, `attaching`, `open`, `failed`, `retired`, `closed`, `kernel_unresolved`.
    pub state: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub overdue: bool,
    /// Its open ends when the target answers, and no sooner.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub waits_indefinitely: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub interruptible: bool,
    pub in_state_for_ms: u64,
    pub age_ms: u64,
    pub current: bool,
    pub live: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy: Option<BusyRow>,
    /// The run that is not waited for, or the last there was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution: Option<ExecutionRow>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub target_gone: bool,
}

/// The oldest unanswered call and how many wait behind it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BusyRow {
    pub tool: String,
    pub running_for_ms: u64,
    pub queued: u32,
}

#[derive(Clone, Debug, PartialEq)]
pub struct StatusPage {
    pub sessions: Vec<SessionRow>,
    pub max_sessions: u32,
    /// The handle asked for names nothing this server remembers.
    pub unknown_handle: bool,
    /// What the redaction filter took out in this run, by the names of its rules.
    pub redactions: std::collections::BTreeMap<String, u64>,
}

/// What of the log is wanted (spec 10 section 5.10).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogQuery {
    pub session_id: Option<String>,
    /// `error`, `warn`, `info`, `debug`, `trace`.
    pub level: String,
    pub limit: usize,
    pub since: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LogRecord {
    pub seq: u64,
    /// RFC 3339 UTC.
    pub at: String,
    pub level: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    pub target: String,
    pub message: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogPage {
    pub records: Vec<LogRecord>,
    pub matched: usize,
    pub next_since: u64,
    pub held: usize,
    pub capacity: usize,
    pub oldest_seq: Option<u64>,
    pub missed: bool,
}

/// What the tools that run in the supervisor may ask of it.
#[async_trait]
pub trait Sessions: Send + Sync {
    /// Opens a target in a worker of its own. Failures carry `target: no|yes|pending`.
    async fn open(&self, request: OpenRequest) -> Result<OpenedSession, ToolError>;
    /// Runs a worker operation (a tool's name, or one of [`crate::operations`]) on a session, the
    /// current one when `None`; answers the session it ran on.
    async fn operate(
        &self,
        session: Option<&str>,
        operation: &str,
        args: Value,
    ) -> Result<(String, Value), ToolError>;
    async fn interrupt(&self, session: Option<&str>) -> Result<Interrupted, ToolError>;
    async fn end(&self, session: Option<&str>) -> Result<Ended, ToolError>;
    /// Gives up the controller of a kernel in an unknown state: ends its worker, whose process id must
    /// be `pid`, without letting go of the target (spec 10 section 1.9).
    async fn hand_off(&self, _session: &str, _pid: u32) -> Result<Ended, ToolError> {
        Err(ToolError::new(Category::Unsupported, "kernel controllers are not kept here"))
    }
    async fn status(&self, session: Option<&str>) -> Result<StatusPage, ToolError>;
    async fn log(&self, query: LogQuery) -> Result<LogPage, ToolError>;
    /// Lets the target run, at most `max_run`, without waiting for its stop; answers once it moves.
    async fn continue_async(
        &self,
        _session: Option<&str>,
        _max_run: Duration,
    ) -> Result<StartedRun, ToolError> {
        Err(no_runs())
    }
    /// Waits for the stop of a run; no stop within `timeout` is no error.
    async fn wait_for_stop(
        &self,
        _session: Option<&str>,
        _execution: &str,
        _timeout: Duration,
    ) -> Result<WaitedRun, ToolError> {
        Err(no_runs())
    }
    /// Breaks into that run and no other.
    async fn break_in(&self, _session: Option<&str>, _execution: &str) -> Result<BrokenIn, ToolError> {
        Err(no_runs())
    }
    /// Symbol settings remembered for this client's later sessions; `None` forgets them.
    async fn remember_symbols(&self, settings: Option<SymbolSettings>);
    /// What is remembered.
    async fn remembered_symbols(&self) -> Option<SymbolSettings>;
}

/// Symbol settings for later sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SymbolSettings {
    #[serde(default)]
    pub symbol_path: Option<String>,
    #[serde(default)]
    pub image_path: Option<String>,
    #[serde(default)]
    pub network: bool,
}
