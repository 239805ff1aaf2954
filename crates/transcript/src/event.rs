//! What a transcript tells (spec 20 section 4.3). No event has a field called like one of the
//! envelope's: `v`, `run`, `seq`, `at`, `mono_ms`.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Text as a record keeps it: scrubbed, then cut at a character.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Text {
    pub text: String,
    /// Bytes left out behind it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped: Option<usize>,
}

impl Text {
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), dropped: None }
    }
}

/// One event, as it stands on its line behind the envelope.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The run begins.
    Start {
        version: String,
        pid: u32,
        /// Bytes kept per field; 0 is no cap.
        field_limit: usize,
        /// What this format is called.
        schema: String,
        engines: Vec<String>,
        /// The tools served, in words.
        surface: String,
    },
    /// The run goes on in this file; before, it was in `from`.
    Continued {
        from: String,
    },
    ToolRequest {
        request: u64,
        tool: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        client: Option<String>,
        /// As the caller named it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        args: Option<Value>,
    },
    ToolResult {
        request: u64,
        tool: String,
        /// As the call was routed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session: Option<String>,
        elapsed_ms: u64,
        /// `ok` or `error`.
        verdict: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        category: Option<String>,
        text: Text,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        data: Option<Value>,
    },
    SessionOpen {
        session: String,
        kind: String,
        target: Text,
        engine: String,
        engine_pid: u32,
    },
    SessionState {
        session: String,
        state: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        detail: Option<Text>,
    },
    SessionEnd {
        session: String,
        released: bool,
        worker_terminated: bool,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        waited_ms: Option<u64>,
    },
    WorkerLost {
        session: String,
        detail: Text,
    },
    /// A wait was abandoned; the job was not cancelled.
    CallTimeout {
        session: String,
        budget_ms: u64,
    },
    Interrupt {
        session: String,
        delivered: bool,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        detail: Option<Text>,
    },
    Stop {
        request: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session: Option<String>,
        command: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stopped_at: Option<String>,
        interrupted: bool,
        timed_out: bool,
        target_gone: bool,
    },
    RunTo {
        request: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session: Option<String>,
        verdict: String,
        target: Text,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stopped_at: Option<String>,
    },
    Mutation {
        request: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session: Option<String>,
        /// `breakpoint`, `batch_step`, `restore`.
        kind: String,
        detail: Text,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        step: Option<Text>,
    },
    Assertion {
        request: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session: Option<String>,
        step: Text,
        detail: Text,
    },
    Batch {
        request: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session: Option<String>,
        outcome: String,
        /// Where it ended: `steps 3`, `always 1`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        at_step: Option<String>,
        committed: bool,
        rollback: String,
        rollback_complete: bool,
        after: String,
        elapsed_ms: u64,
    },
    LeaseExpired {
        sessions: usize,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        client: Option<String>,
    },
    Shutdown {
        sessions: usize,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        client: Option<String>,
    },
    /// Records before this one that could not be written.
    Gap {
        lost: u64,
    },
    /// Stands for a record over the ceiling: a recorder bug, made visible.
    Oversized {
        of: String,
        bytes: usize,
    },
    /// Of a later version.
    #[serde(other)]
    Other,
}

/// What a tool's typed answer tells beside itself. The recorder's owner adds request and session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Derived {
    Stop {
        command: String,
        stopped_at: Option<String>,
        interrupted: bool,
        timed_out: bool,
        target_gone: bool,
    },
    RunTo {
        verdict: String,
        target: String,
        stopped_at: Option<String>,
    },
    Mutation {
        /// `breakpoint`, `batch_step`, `restore`.
        kind: &'static str,
        detail: String,
        step: Option<String>,
    },
    Assertion {
        step: String,
        detail: String,
    },
    Batch {
        outcome: String,
        at_step: Option<String>,
        committed: bool,
        rollback: String,
        rollback_complete: bool,
        after: String,
        elapsed_ms: u64,
    },
}

impl Derived {
    /// The event of a call.
    #[must_use]
    pub fn of(self, request: u64, session: Option<String>) -> Event {
        match self {
            Self::Stop { command, stopped_at, interrupted, timed_out, target_gone } => {
                Event::Stop { request, session, command, stopped_at, interrupted, timed_out, target_gone }
            }
            Self::RunTo { verdict, target, stopped_at } => {
                Event::RunTo { request, session, verdict, target: Text::new(target), stopped_at }
            }
            Self::Mutation { kind, detail, step } => Event::Mutation {
                request,
                session,
                kind: kind.to_owned(),
                detail: Text::new(detail),
                step: step.map(Text::new),
            },
            Self::Assertion { step, detail } => {
                Event::Assertion { request, session, step: Text::new(step), detail: Text::new(detail) }
            }
            Self::Batch { outcome, at_step, committed, rollback, rollback_complete, after, elapsed_ms } => {
                Event::Batch {
                    request,
                    session,
                    outcome,
                    at_step,
                    committed,
                    rollback,
                    rollback_complete,
                    after,
                    elapsed_ms,
                }
            }
        }
    }
}

impl Event {
    /// Its name on the line.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Start { .. } => "start",
            Self::Continued { .. } => "continued",
            Self::ToolRequest { .. } => "tool_request",
            Self::ToolResult { .. } => "tool_result",
            Self::SessionOpen { .. } => "session_open",
            Self::SessionState { .. } => "session_state",
            Self::SessionEnd { .. } => "session_end",
            Self::WorkerLost { .. } => "worker_lost",
            Self::CallTimeout { .. } => "call_timeout",
            Self::Interrupt { .. } => "interrupt",
            Self::Stop { .. } => "stop",
            Self::RunTo { .. } => "run_to",
            Self::Mutation { .. } => "mutation",
            Self::Assertion { .. } => "assertion",
            Self::Batch { .. } => "batch",
            Self::LeaseExpired { .. } => "lease_expired",
            Self::Shutdown { .. } => "shutdown",
            Self::Gap { .. } => "gap",
            Self::Oversized { .. } => "oversized",
            Self::Other => "other",
        }
    }

    /// Its long texts and its short words, all of which are scrubbed.
    pub(crate) fn strings(&mut self) -> (Vec<&mut Text>, Vec<&mut String>) {
        let (mut texts, mut words) = (Vec::new(), Vec::new());
        match self {
            Self::Start { version, surface, engines, .. } => {
                words.extend([version, surface]);
                words.extend(engines);
            }
            Self::ToolRequest { tool, client, session, .. } => {
                words.push(tool);
                words.extend(client.iter_mut().chain(session));
            }
            Self::ToolResult { tool, session, category, text, .. } => {
                texts.push(text);
                words.push(tool);
                words.extend(session.iter_mut().chain(category));
            }
            Self::SessionOpen { target, .. } => texts.push(target),
            Self::SessionState { detail, .. } | Self::Interrupt { detail, .. } => texts.extend(detail),
            Self::WorkerLost { detail, .. } => texts.push(detail),
            Self::Stop { command, .. } => words.push(command),
            Self::RunTo { target, .. } => texts.push(target),
            Self::Mutation { detail, step, .. } => {
                texts.push(detail);
                texts.extend(step);
            }
            Self::Assertion { step, detail, .. } => texts.extend([step, detail]),
            Self::Batch { after, at_step, .. } => {
                words.push(after);
                words.extend(at_step);
            }
            Self::LeaseExpired { client, .. } | Self::Shutdown { client, .. } => words.extend(client),
            Self::Continued { .. }
            | Self::SessionEnd { .. }
            | Self::CallTimeout { .. }
            | Self::Gap { .. }
            | Self::Oversized { .. }
            | Self::Other => {}
        }
        (texts, words)
    }
}
