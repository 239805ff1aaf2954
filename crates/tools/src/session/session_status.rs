//! `session_status`: what is open and what it is doing. Never asks a worker, never queues.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::ToolError;
use crate::prose::Fragment;
use crate::routing::{SessionId, handle};
use crate::sessions::{SessionRow, Sessions};
use crate::surface::Surface;
use crate::tool::{Hints, SessionsTool, Tool};

pub(crate) struct SessionStatus;

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Params {
    /// One session, closed ones too; omitted: all that are open.
    #[serde(default)]
    session_id: Option<SessionId>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Output {
    sessions: Vec<SessionRow>,
    max_sessions: u32,
    /// The handle that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    asked: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    unknown_handle: bool,
    /// Of the whole run, by the redaction rule's name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    redacted_in_run: BTreeMap<String, u64>,
}

fn line(row: &SessionRow) -> String {
    let mut text = format!("{}{} {}", if row.current { "* " } else { "  " }, row.session_id, row.state);
    if let Some(kind) = &row.kind {
        text.push_str(&format!(" {kind}"));
    }
    text.push_str(&format!(" {} ({} engine", row.target, row.engine));
    if let Some(pid) = row.engine_pid {
        text.push_str(&format!(", pid {pid}"));
    }
    text.push_str(&format!("), {} s in this state", row.in_state_for_ms / 1000));
    if let Some(busy) = &row.busy {
        text.push_str(&format!(
            ", busy with {} for {} ms, {} waiting",
            busy.tool, busy.running_for_ms, busy.queued
        ));
    }
    if let Some(run) = &row.execution {
        let bound = run.breaks_in_ms.map(|ms| format!(", broken in after {ms} ms more")).unwrap_or_default();
        let verb = if run.stopped { "ran" } else { "has been running for" };
        text.push_str(&format!(", {} {verb} {} ms{bound}", run.execution, run.running_for_ms));
    }
    if row.waits_indefinitely {
        text.push_str(", waits until the target answers");
    }
    if row.overdue {
        text.push_str(", overdue");
    }
    if row.target_gone {
        text.push_str(", its target is gone");
    }
    if let Some(why) = &row.why {
        text.push_str(&format!(", {why}"));
    }
    text
}

impl Tool for SessionStatus {
    const NAME: &'static str = "session_status";
    const TITLE: &'static str = "Session status";
    const HINTS: Hints = Hints::PURE;
    const PROSE: &'static [Fragment] = &[Fragment::Fixed(
        "Open sessions, newest first, and what each is doing. Answers at once, also while a call runs.",
    )];
    const WHILE_RUNNING: bool = true;
    type Params = Params;
    type Output = Output;

    fn render(output: &Output, _: &Surface) -> String {
        if output.unknown_handle {
            let asked = output.asked.as_deref().unwrap_or("That handle");
            return format!(
                "{asked} names no session this server remembers. Opening again is safe: a live session is never \
                 forgotten."
            );
        }
        let mut text = if output.sessions.is_empty() {
            format!("No session is open; up to {} can be.", output.max_sessions)
        } else {
            let lines: Vec<String> = output.sessions.iter().map(line).collect();
            let live = output.sessions.iter().filter(|row| row.live).count();
            format!("{}\n{live} live of at most {}.", lines.join("\n"), output.max_sessions)
        };
        if !output.redacted_in_run.is_empty() {
            let counts = output.redacted_in_run.iter().map(|(name, count)| format!("{name} {count}"));
            text.push_str(&format!("\nRedacted in this run: {}.", counts.collect::<Vec<_>>().join(", ")));
        }
        text
    }
}

#[async_trait]
impl SessionsTool for SessionStatus {
    async fn run(sessions: Arc<dyn Sessions>, params: Params) -> Result<Output, ToolError> {
        let page = sessions.status(handle(params.session_id.as_ref())).await?;
        Ok(Output {
            sessions: page.sessions,
            max_sessions: page.max_sessions,
            asked: params.session_id.map(|SessionId(id)| id),
            unknown_handle: page.unknown_handle,
            redacted_in_run: page.redactions,
        })
    }
}
