//! `server_log`: the last records of the supervisor and its workers.

use std::sync::Arc;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::ToolError;
use crate::prose::Fragment;
use crate::routing::SessionId;
use crate::sessions::{LogQuery, LogRecord, Sessions};
use crate::surface::Surface;
use crate::table::quiet;
use crate::tool::{Hints, SessionsTool, Tool};

pub(crate) struct ServerLog;

#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum Level {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

impl Level {
    fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Params {
    /// Only records of this session's worker.
    #[serde(default)]
    session_id: Option<SessionId>,
    /// This severity and worse, default info.
    #[serde(default)]
    level: Option<Level>,
    /// Most recent records, default 50.
    #[serde(default)]
    #[schemars(range(min = 1, max = 500))]
    limit: Option<u32>,
    /// Only records after this: next_since of the last page.
    #[serde(default)]
    since: Option<u64>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Output {
    records: Vec<LogRecord>,
    matched: usize,
    next_since: u64,
    held: usize,
    capacity: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    oldest_seq: Option<u64>,
    /// Records after `since` are no longer held.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    missed: bool,
}

impl Tool for ServerLog {
    const NAME: &'static str = "server_log";
    const TITLE: &'static str = "Server log";
    const HINTS: Hints = Hints::PURE;
    const PROSE: &'static [Fragment] = &[Fragment::Fixed(
        "The server's own log, oldest first: why an open or a worker failed. Not the target's output.",
    )];
    const WHILE_RUNNING: bool = true;
    type Params = Params;
    type Output = Output;

    fn render(output: &Output, _: &Surface) -> String {
        let mut text = format!("{} of {} matching records", output.records.len(), output.matched);
        if output.missed {
            text.push_str("; older ones are no longer held");
        }
        text.push_str(&format!("; next_since {}.", output.next_since));
        for record in &output.records {
            let session = record.session_id.as_deref().map(|id| format!(" [{id}]")).unwrap_or_default();
            text.push_str(&format!(
                "\n{} {} {}{session} {}: {}",
                record.seq,
                record.at,
                record.level,
                record.target,
                quiet(&record.message)
            ));
        }
        text
    }
}

#[async_trait]
impl SessionsTool for ServerLog {
    async fn run(sessions: Arc<dyn Sessions>, params: Params) -> Result<Output, ToolError> {
        let page = sessions
            .log(LogQuery {
                session_id: params.session_id.map(|SessionId(id)| id),
                level: params.level.unwrap_or(Level::Info).name().to_owned(),
                limit: params.limit.unwrap_or(50) as usize,
                since: params.since,
            })
            .await?;
        Ok(Output {
            records: page.records,
            matched: page.matched,
            next_since: page.next_since,
            held: page.held,
            capacity: page.capacity,
            oldest_seq: page.oldest_seq,
            missed: page.missed,
        })
    }
}
