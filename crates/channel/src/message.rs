//! What travels.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The opener's job id. Not "the first id": a session accepts calls while it opens.
pub const OPEN_ID: u64 = 0;

/// Supervisor to worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Request {
    pub id: u64,
    #[serde(flatten)]
    pub op: Op,
    /// What is left of the caller's wait when this is written, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patience_ms: Option<u64>,
}

/// One indivisible job, or something the reader does at once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Op {
    /// Opens the target; always job [`OPEN_ID`].
    Open { request: Value },
    /// A tool that runs in the worker, or a worker operation.
    Run { operation: String, args: Value },
    /// Breaks the running job. With `job`: only that one, and it is barred if it has not begun.
    Interrupt {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        job: Option<u64>,
    },
    /// Takes a job out of the queue if it has not begun; a running job goes on.
    Cancel { job: u64 },
    /// A teardown begins: a running batch stops at its next step and cleans up, a queued one does not
    /// begin. Answered at once with `{within_ms}`: how long the running one may still take, 0 without.
    Abandon,
    /// Releases the target, in queue order, and ends the worker.
    End,
    /// Acted on at once: what this worker holds is kept whatever becomes of the supervisor, until its
    /// process is ended from outside.
    PreserveKernel,
}

/// Worker to supervisor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "message", rename_all = "snake_case")]
pub enum Message {
    /// The engine exists. First message, or [`Message::Fatal`].
    Ready {
        build: String,
        engine: String,
        arch: String,
    },
    /// No engine; the worker exits.
    Fatal {
        text: String,
    },
    /// The opener's target now exists or is claimed.
    Committed {
        id: u64,
    },
    /// The target is loaded; only the opener's report is left.
    Opened {
        id: u64,
    },
    /// A run's target is moving: sent only when it really is, perhaps more than once.
    Resumed {
        id: u64,
    },
    /// A step of a job, in words.
    Progress {
        id: u64,
        text: String,
    },
    /// What the abandonment `id` was told of a running batch, again: 0 when the batch is over.
    RollingBack {
        id: u64,
        within_ms: u64,
    },
    Log(LogLine),
    /// Exactly one per request.
    Done {
        id: u64,
        result: Outcome,
    },
}

/// A log record of the worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLine {
    /// Milliseconds since 1970.
    pub at_ms: u64,
    pub level: String,
    pub target: String,
    pub text: String,
    /// Records dropped before this one because the queue was full.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub dropped: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants a reference")]
fn is_zero(value: &u64) -> bool {
    *value == 0
}

/// How a request ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Outcome {
    Ok {
        /// The finished answer, forwarded untouched.
        data: Value,
        /// A break was raised for this job: it holds what had been reached.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        interrupted: bool,
    },
    /// The error as the tools spell it.
    Err { error: Value },
}

/// What the reader did with an [`Op::Interrupt`] (spec 10 section 1.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Interrupt {
    Raised,
    AlreadyPending,
    NothingRunning,
    Sealed,
    Unreachable,
    Barred,
}
