//! `ioctl_trace`: control codes as they arrive at a dispatch routine.

use analysis_driver::{Locations, Trace, TraceConvention, TraceOptions, TracePage, parse_code};
use code_flow::CodeLocation;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{Category, ToolError};
use crate::location::{check_expression, evaluate};
use crate::prose::Fragment;
use crate::routing::SessionId;
use crate::surface::Surface;
use crate::tool::{Hints, Job, Tool, WorkerTool};

pub(crate) struct IoctlTrace;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub(crate) enum Action {
    #[default]
    Start,
    Read,
    Stop,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Params {
    #[serde(default)]
    action: Action,
    /// The dispatch routine's first instruction; needed to start.
    #[serde(default)]
    dispatch: Option<String>,
    #[serde(default)]
    convention: TraceConvention,
    /// Only these codes.
    #[serde(default)]
    #[schemars(length(max = 64))]
    codes: Vec<String>,
    /// Bytes of the input buffer to keep.
    #[serde(default)]
    #[schemars(range(max = 256))]
    capture_input: Option<u32>,
    /// Default 4096; the oldest give way.
    #[serde(default)]
    #[schemars(range(min = 1, max = 65_536))]
    max_records: Option<u32>,
    /// Start although no function is known to begin there.
    #[serde(default)]
    force: Option<bool>,
    #[serde(default)]
    trace_id: Option<String>,
    /// next_since of the page before.
    #[serde(default)]
    since: Option<u64>,
    #[serde(default)]
    #[schemars(range(min = 1, max = 500))]
    limit: Option<u32>,
    #[serde(default)]
    session_id: Option<SessionId>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Output {
    trace_id: String,
    breakpoint: u32,
    at: CodeLocation,
    #[serde(default, flatten, skip_serializing_if = "Option::is_none")]
    page: Option<TracePage>,
    /// The module that held the routine is gone: nothing can arrive there any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    lost: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    removed: bool,
}

/// The codes of the filter. Digits alone are refused with both readings.
fn filter(codes: &[String]) -> Result<Vec<u32>, Vec<String>> {
    let mut problems = Vec::new();
    let mut out = Vec::new();
    for text in codes {
        match parse_code(text) {
            Ok(reading) => match reading.alternate {
                Some(other) => problems.push(format!(
                    "codes: {text} may mean {:#x} (decimal) or {other:#x} (hexadecimal); write one of them",
                    reading.code
                )),
                None => out.push(reading.code),
            },
            Err(error) => problems.push(format!("codes: {error}")),
        }
    }
    if problems.is_empty() { Ok(out) } else { Err(problems) }
}

impl Tool for IoctlTrace {
    const NAME: &'static str = "ioctl_trace";
    const TITLE: &'static str = "Record arriving control codes";
    const HINTS: Hints = Hints::STATE;
    const PROSE: &'static [Fragment] = &[Fragment::Fixed(
        "Records each control request that reaches a dispatch routine while the target runs: start on a stopped \
         live target, let it go, read, stop. Hits are no stops. Only delivered requests arrive: one the access \
         gate refuses leaves no record, so absence is not 'unhandled'.",
    )];
    type Params = Params;
    type Output = Output;

    fn check(params: &Params) -> Result<(), Vec<String>> {
        let mut problems = filter(&params.codes).err().unwrap_or_default();
        match (params.action, &params.dispatch, &params.trace_id) {
            (Action::Start, Some(text), None) => {
                problems.extend(check_expression("dispatch", text).err().unwrap_or_default());
            }
            (Action::Start, ..) => problems.push("start takes dispatch and no trace_id".to_owned()),
            (_, None, _) => {}
            _ => problems.push("dispatch is for start only".to_owned()),
        }
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }

    fn render(output: &Output, _: &Surface) -> String {
        let mut text =
            format!("{} at {} (breakpoint {})", output.trace_id, output.at.describe(), output.breakpoint);
        if output.removed {
            text.push_str(", removed");
        }
        if output.lost {
            text.push_str("\nThe module is unloaded: nothing can arrive any more.");
        }
        let Some(page) = &output.page else { return text };
        text.push_str(&format!(
            "\n{} recorded, {} held, {} dropped, {} unreadable, {} hits",
            page.total, page.held, page.dropped, page.unreadable, page.hits
        ));
        for error in &page.errors {
            text.push_str(&format!("\n{error}"));
        }
        for row in &page.records {
            text.push_str(&format!(
                "\n{} +{} ms {} {} in {:#x} out {:#x} irp {} device {}",
                row.seq, row.at_ms, row.code, row.decoded, row.in_len, row.out_len, row.irp, row.device
            ));
            if let Some(input) = &row.input {
                text.push_str(&format!(" input {input}"));
            }
        }
        text
    }
}

fn name(breakpoint: u32) -> String {
    format!("trace-{breakpoint}")
}

/// The trace a call means: the one it names, or the only one.
fn which(job: &Job<'_>, named: Option<&str>) -> Result<u32, ToolError> {
    let all: Vec<u32> = job.runs.observers::<Trace>().map(|(breakpoint, _)| breakpoint).collect();
    let found = match named {
        Some(named) => all.iter().find(|breakpoint| name(**breakpoint) == named),
        None if all.len() == 1 => all.first(),
        None => None,
    };
    found.copied().ok_or_else(|| {
        let have: Vec<String> = all.iter().map(|breakpoint| name(*breakpoint)).collect();
        let have = if have.is_empty() { "none".to_owned() } else { have.join(", ") };
        ToolError::new(Category::Debugger, format!("no such trace; running: {have}")).because("no_such_trace")
    })
}

fn start(job: &mut Job<'_>, params: &Params) -> Result<u32, ToolError> {
    let target = job.target;
    if target.breakpoints().is_none() || target.run().is_none() {
        return Err(ToolError::new(
            Category::Unsupported,
            "only a live target that stops and goes on can be traced; a dump, an image or a local kernel has no \
             arrivals",
        )
        .because("unsupported_target"));
    }
    let text = params.dispatch.as_deref().unwrap_or_default();
    let at = evaluate(target, text, job.halt)?;
    let bounds = target.function_bounds(at).ok().flatten().map(|(start, _)| start);
    let named = target.symbol_at(at).ok().flatten().is_some_and(|hit| hit.displacement == 0);
    if bounds != Some(at) && !named && params.force != Some(true) {
        return Err(ToolError::invalid(format!(
            "{at:#018x} is not known to begin a function, and arguments are only there in their places; force: \
             true starts all the same"
        ))
        .because("bad_operand"));
    }
    let codes = filter(&params.codes).map_err(|problems| ToolError::invalid(problems.join("; ")))?;
    let options = TraceOptions {
        convention: params.convention,
        codes,
        capture_input: params.capture_input.unwrap_or(0) as usize,
        max_records: params.max_records.unwrap_or(4096) as usize,
    };
    Ok(job.runs.observe(target, at, Box::new(Trace::new(at, options)))?)
}

impl WorkerTool for IoctlTrace {
    fn run(job: &mut Job<'_>, params: Params) -> Result<Output, ToolError> {
        let breakpoint = match params.action {
            Action::Start => start(job, &params)?,
            _ => which(job, params.trace_id.as_deref())?,
        };
        let Some(trace) = job.runs.observer::<Trace>(breakpoint) else {
            return Err(ToolError::new(Category::Internal, "the trace is gone"));
        };
        let at = Locations::new(job.target).at(trace.at);
        let limit = params.limit.unwrap_or(100) as usize;
        let page = (params.action != Action::Start).then(|| trace.page(params.since.unwrap_or(0), limit));
        let removed = params.action == Action::Stop && job.runs.stop_observing(job.target, breakpoint)?;
        let lost = at.module.is_none() && !at.attribution_failed;
        Ok(Output { trace_id: name(breakpoint), breakpoint, at, page, lost, removed })
    }
}
