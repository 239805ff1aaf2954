//! `execute`: a raw WinDbg command line, text in, text out.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::clip::{OUTPUT_LIMIT, clip};
use crate::error::ToolError;
use crate::prose::Fragment;
use crate::routing::SessionId;
use crate::surface::Surface;
use crate::tool::{Hints, Job, Tool, WorkerTool};

pub(crate) struct Execute;

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Params {
    /// As typed in WinDbg; `;` between several.
    #[schemars(length(min = 1, max = 65536))]
    command: String,
    #[serde(default)]
    session_id: Option<SessionId>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Output {
    text: String,
    /// The command was stopped before its end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    cut_short: bool,
    /// Bytes left out of the middle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    omitted: Option<usize>,
}

impl Tool for Execute {
    const NAME: &'static str = "execute";
    const TITLE: &'static str = "Run a WinDbg command";
    const HINTS: Hints = Hints::OPEN;
    const PROSE: &'static [Fragment] = &[Fragment::Fixed(
        "A WinDbg command as text, for what no typed tool answers: k lm r u d* dt dv x ln ? s .ecxr .exr .frame \
         .cxr .trap lmv ~*k ~Ns !process .process .thread !address .lastevent vertarget.",
    )];
    const RAW: bool = true;
    type Params = Params;
    type Output = Output;

    fn check(params: &Params) -> Result<(), Vec<String>> {
        let mut problems = Vec::new();
        if params.command.trim().is_empty() {
            problems.push("command must not be blank".to_owned());
        }
        if params.command.contains('\0') {
            problems.push("command must not contain NUL".to_owned());
        }
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }

    fn retires_handle(params: &Params) -> bool {
        control::replaces_target(&params.command)
    }

    fn render(output: &Output, _: &Surface) -> String {
        let mut text = output.text.clone();
        if text.trim().is_empty() {
            "The command printed nothing.".clone_into(&mut text);
        }
        if output.cut_short {
            text.push_str("\n[The command was stopped before its end; this is what it had printed.]");
        }
        text
    }
}

impl WorkerTool for Execute {
    fn run(job: &mut Job<'_>, params: Params) -> Result<Output, ToolError> {
        // An engine's own interpreter knows every command; ours serves where there is none.
        let (text, cut_short) = match job.target.command() {
            Some(command) => {
                let printed = command.execute(&params.command, job.halt)?;
                (printed.text, printed.cut_short)
            }
            None if job.target.write().is_some() => drive(job, &params.command)?,
            None => {
                let printed = job
                    .commands
                    .execute(job.target, &params.command, job.halt)
                    .map_err(|error| refused(error, &params.command))?;
                (printed.text, printed.cut_short)
            }
        };
        let (text, omitted) = clip(text, OUTPUT_LIMIT);
        Ok(Output { text, cut_short, omitted })
    }
}

/// Longest a command may let the target move when the call itself has no bound.
const RUN: Duration = Duration::from_secs(60);

/// Our interpreter on a target that runs and takes writes.
fn drive(job: &mut Job<'_>, line: &str) -> Result<(String, bool), ToolError> {
    let progress = job.progress;
    let moving = || progress.moving();
    let wait = job.halt.remaining().unwrap_or(RUN);
    let live = command::Live { runs: job.runs, wait, moving: &moving };
    let driven = job.commands.drive(job.target, line, live, job.halt);
    let output = driven.map_err(|error| refused(error, line))?.output;
    Ok((output.text, output.cut_short))
}

/// What a typed tool answers better than the command that is not served.
fn refused(error: target::TargetError, command: &str) -> ToolError {
    let error = ToolError::from(error);
    if command.contains("!analyze") { error.then(&["exception_triage", "crash_triage"]) } else { error }
}
