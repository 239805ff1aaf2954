//! `set_breakpoint`: code and data breakpoints that can be inserted and can fire, and no others.

use control::{AccessName, BreakpointRecord, Wanted};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use target::TargetError;

use super::{derived, records, refused};
use crate::error::{Category, ToolError};
use crate::location::{self, Coordinate};
use crate::prose::Fragment;
use crate::routing::SessionId;
use crate::surface::Surface;
use crate::tool::{Hints, Job, Tool, WorkerTool};

pub(crate) struct SetBreakpoint;

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct Watch {
    access: AccessName,
    /// 1, 2, 4 or 8 bytes; 1 for execute.
    #[schemars(range(min = 1, max = 8))]
    size: u8,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Params {
    /// module!symbol, module+rva, 0x...
    #[serde(default)]
    expression: Option<String>,
    #[serde(default)]
    coordinate: Option<Coordinate>,
    /// A data breakpoint: stops after the access.
    #[serde(default)]
    watch: Option<Watch>,
    /// Run at each hit; end with gc to log and go on.
    #[serde(default)]
    #[schemars(length(min = 1, max = 4096))]
    command: Option<String>,
    /// Stop only when this expression is not 0.
    #[serde(default)]
    condition: Option<String>,
    #[serde(default)]
    one_shot: Option<bool>,
    /// Stop at this arrival; default 1.
    #[serde(default)]
    #[schemars(range(min = 1, max = 2_147_483_647))]
    pass_count: Option<u32>,
    /// System thread id; default any.
    #[serde(default)]
    thread: Option<u32>,
    #[serde(default)]
    session_id: Option<SessionId>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Output {
    breakpoint: BreakpointRecord,
    /// Ids of those it took the place of.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    replaced: Vec<u32>,
    /// All there are now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    breakpoints: Option<Vec<BreakpointRecord>>,
    /// It is set; do not set it again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    cut_short: bool,
}

impl Params {
    fn wanted(&self) -> Wanted {
        Wanted {
            address: None,
            expression: self.expression.clone(),
            watch: self.watch.as_ref().map(|watch| (watch.access.access(), watch.size)),
            command: self.command.clone(),
            condition: self.condition.clone(),
            one_shot: self.one_shot.unwrap_or(false),
            pass_count: self.pass_count.unwrap_or(1),
            thread: self.thread,
        }
    }
}

impl Tool for SetBreakpoint {
    const NAME: &'static str = "set_breakpoint";
    const TITLE: &'static str = "Set a breakpoint";
    const HINTS: Hints = Hints::OPEN;
    const PROSE: &'static [Fragment] = &[Fragment::Fixed(
        "Sets a code or data breakpoint. One of the same kind at the same address is replaced. A module that is \
         not loaded yet defers it.",
    )];
    type Params = Params;
    type Output = Output;

    fn check(params: &Params) -> Result<(), Vec<String>> {
        let mut problems = Vec::new();
        let (named, at) = (params.session_id.is_some(), params.coordinate.as_ref());
        problems.extend(location::check_as("expression", params.expression.as_deref(), at, named).err());
        let mut problems: Vec<String> = problems.into_iter().flatten().collect();
        if let Some(condition) = &params.condition {
            problems.extend(location::check_expression("condition", condition).err().into_iter().flatten());
        }
        if params.command.as_ref().is_some_and(|command| command.trim().is_empty() || command.contains('\0'))
        {
            problems.push("command must not be blank or contain NUL".to_owned());
        }
        problems.extend(params.wanted().problems());
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }

    fn render(output: &Output, _: &Surface) -> String {
        let mut text = format!("Set {}.", records::words(&output.breakpoint));
        if !output.replaced.is_empty() {
            let ids: Vec<String> = output.replaced.iter().map(ToString::to_string).collect();
            text.push_str(&format!(" It took the place of {}.", ids.join(", ")));
        }
        if output.cut_short {
            text.push_str(" The call was cut short meanwhile; it is set all the same.");
        }
        if let Some(all) = output.breakpoints.as_ref().filter(|all| all.len() > 1) {
            text.push_str(&format!("\n{}", records::table(all)));
        }
        text
    }

    fn derived(output: &Output) -> Vec<transcript::Derived> {
        derived::set(&output.breakpoint, &output.replaced)
    }
}

impl WorkerTool for SetBreakpoint {
    fn run(job: &mut Job<'_>, params: Params) -> Result<Output, ToolError> {
        let target = job.target;
        control::breakpoints_of(target).map_err(refused)?;
        let mut wanted = params.wanted();
        if let Some(at) = &params.coordinate {
            let span = wanted.watch.map_or(1, |(_, size)| u64::from(size));
            wanted.address = Some(location::resolve(target, at, span)?);
        }
        let change = control::set(target, &wanted, job.halt).map_err(|error| failed(job, &wanted, error))?;
        Ok(Output {
            breakpoint: change.breakpoint,
            replaced: change.replaced,
            breakpoints: change.breakpoints,
            cut_short: change.cut_short,
        })
    }
}

fn failed(job: &Job<'_>, wanted: &Wanted, error: TargetError) -> ToolError {
    let text = wanted.expression.as_deref().unwrap_or_default();
    match error {
        TargetError::Deadline(_) => ToolError::new(
            Category::NotRun,
            format!("resolving {text} was cut short: the call's time ran out; no breakpoint was set"),
        ),
        TargetError::Failed { reason: Some("no_such_symbol"), .. } => {
            let near = location::near_symbols(job.target, text, job.halt);
            let mut out = refused(error);
            if !near.is_empty() {
                out.message.push_str(&format!("; near names: {}", near.join(", ")));
            }
            out
        }
        error => refused(error),
    }
}
