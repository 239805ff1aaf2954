//! `backtrace`: the walked stack. Inline frames are rows and are not counted.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use target::{Context, Frame, FrameInfo, WalkEnd};

use crate::error::ToolError;
use crate::prose::Fragment;
use crate::routing::SessionId;
use crate::stack;
use crate::surface::Surface;
use crate::symbol_hint;
use crate::tool::{Hints, Job, Tool, WorkerTool};
use crate::whose::{self, ViewChoice};

pub(crate) struct Backtrace;

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Params {
    /// Physical frames at most, default 32.
    #[serde(default)]
    #[schemars(range(min = 1, max = 256))]
    frames: Option<u32>,
    /// System thread id; on a kernel target a processor number.
    #[serde(default)]
    thread: Option<u32>,
    /// Which side of a WoW64 process.
    #[serde(default)]
    view: Option<ViewChoice>,
    #[serde(default)]
    session_id: Option<SessionId>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Output {
    frames: Vec<FrameInfo>,
    frames_truncated: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    thread: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    processor: Option<u32>,
    /// Why the walk ended before the outermost frame.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ended: Option<String>,
    /// What a reader of the stack must know.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    limitations: Vec<String>,
}

/// The first `limit` physical frames with their inline rows, and whether there were more.
fn first(frames: &[Frame], limit: usize) -> (&[Frame], bool) {
    let mut physical = 0;
    for (index, frame) in frames.iter().enumerate() {
        physical += usize::from(!frame.inline);
        if physical == limit {
            let rest = &frames[index + 1..];
            return (&frames[..=index], !rest.is_empty());
        }
    }
    (frames, false)
}

/// Where the walk was lost, what lies above it on the stack and looks like return addresses.
fn guess(job: &Job<'_>, from: &Context, limit: usize, frames: &mut Vec<Frame>) {
    let walked: Vec<u64> = frames.iter().filter(|frame| !frame.inline).map(|frame| frame.ip).collect();
    let above = frames.last().map_or(0, |frame| frame.sp);
    let room = limit.saturating_sub(walked.len());
    // A few more than there is room for: what was walked is met again.
    let Ok(found) = job.target.scan_stack(from, room + walked.len(), job.halt) else { return };
    let new = found.into_iter().filter(|frame| frame.sp > above && !walked.contains(&frame.ip));
    frames.extend(new.take(room));
}

fn ended(end: WalkEnd) -> Option<String> {
    match end {
        WalkEnd::Outermost | WalkEnd::Limit => None,
        WalkEnd::Lost(why) => Some(why.to_owned()),
        WalkEnd::NoProgress => Some("the stack pointer stopped moving up".to_owned()),
        WalkEnd::Deadline => Some("the call's time ran out".to_owned()),
        WalkEnd::Interrupted => Some("interrupted".to_owned()),
    }
}

impl Tool for Backtrace {
    const NAME: &'static str = "backtrace";
    const TITLE: &'static str = "Backtrace";
    const HINTS: Hints = Hints::READ;
    const PROSE: &'static [Fragment] = &[
        Fragment::Fixed(
            "Call stack of the current thread (of a process crash: at the fault), or of another, innermost \
             first. Each frame says how it was `found`; `scan` is a guess, not a walk. Of a kernel dump it \
             starts at the stop, in KeBugCheckEx.",
        ),
        Fragment::If { needs: &["crash_triage"], text: "From the fault: crash_triage." },
        Fragment::If { needs: &["crash_triage", "execute"], text: "Or its stack_command in `execute`." },
    ];
    type Params = Params;
    type Output = Output;

    fn render(output: &Output, _: &Surface) -> String {
        if output.frames.is_empty() {
            return "No frames: the target has no register context here.".to_owned();
        }
        let mut text = stack::table(&output.frames);
        if output.frames_truncated {
            text.push_str("\nThe stack goes on; ask for more frames.");
        }
        if let Some(ended) = &output.ended {
            text.push_str(&format!("\nThe walk ended early: {ended}."));
        }
        for limitation in &output.limitations {
            text.push_str(&format!("\nNote: {limitation}"));
        }
        text
    }
}

impl WorkerTool for Backtrace {
    fn run(job: &mut Job<'_>, params: Params) -> Result<Output, ToolError> {
        let limit = params.frames.unwrap_or(32) as usize;
        whose::has_threads(job.target)?;
        let owned = whose::context(job.target, params.thread, params.view)?;
        let mut out = Output {
            frames: Vec::new(),
            frames_truncated: false,
            thread: owned.thread,
            processor: owned.processor,
            ended: None,
            limitations: Vec::new(),
        };
        if let Some(context) = owned.context {
            // One more than asked: a stack of exactly `limit` frames is not truncated.
            let mut walked = job.target.stack(&context, limit + 1, job.halt)?;
            if matches!(walked.end, WalkEnd::Lost(_) | WalkEnd::NoProgress) {
                guess(job, &context, limit, &mut walked.frames);
            }
            let (frames, more) = first(&walked.frames, limit);
            out.frames = frames.iter().enumerate().map(|(index, f)| FrameInfo::new(index, f)).collect();
            out.frames_truncated = more;
            out.ended = if more { None } else { ended(walked.end) };
            out.limitations = walked.limitations;
            out.limitations.extend(symbol_hint::hint(job.target, &out.frames));
        }
        Ok(out)
    }
}
