//! `reachable_from_dispatch`: whether a routine can get to an address, and by which branches.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use analysis_ioctl::analysis::Convention;
use analysis_ioctl::{Compared as Looked, Gates, Routine, gates};
use code_flow::recipe::{Step, recipe};
use code_flow::{
    CodeImage, CodeLocation, HopKind, ImageRecord, NoTables, Reached, Search, Stopped, Structural,
    TableResolver, reach,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use target::{Address, Rva, TargetExt};

use crate::error::ToolError;
use crate::ioctl::{code_image, control_entries};
use crate::location::{check_expression, evaluate};
use crate::prose::Fragment;
use crate::routing::SessionId;
use crate::surface::Surface;
use crate::tool::{Hints, Job, Tool, WorkerTool};

pub(crate) struct ReachableFromDispatch;

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Params {
    /// Routine, or an address inside one: a case of a switch.
    from: String,
    /// Expression for the target.
    #[serde(default)]
    address: Option<String>,
    /// With `rva`, instead of `address`.
    #[serde(default)]
    module: Option<String>,
    #[serde(default)]
    rva: Option<Rva>,
    /// Default 256.
    #[serde(default)]
    #[schemars(range(min = 1, max = 4096))]
    max_functions: Option<u32>,
    /// Default 32.
    #[serde(default)]
    #[schemars(range(min = 1, max = 128))]
    max_depth: Option<u32>,
    /// The branches of one path (default true).
    #[serde(default)]
    recipe: Option<bool>,
    /// Follow jump tables (default true).
    #[serde(default)]
    tables: Option<bool>,
    /// Follow edges into other modules (default false).
    #[serde(default)]
    cross_image: Option<bool>,
    #[serde(default)]
    session_id: Option<SessionId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum Verdict {
    Reachable,
    NotReachable,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum Required {
    Taken,
    Fallthrough,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum Field {
    IoControlCode,
    InputLength,
    OutputLength,
    Memory,
    Register,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct HopRow {
    site: CodeLocation,
    kind: HopKind,
    callee: CodeLocation,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct Predicate {
    field: Field,
    op: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value: Option<Rva>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mask: Option<Rva>,
    text: String,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct StepRow {
    site: CodeLocation,
    condition: String,
    required: Required,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    predicate: Option<Predicate>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct Segment {
    function: CodeLocation,
    start: CodeLocation,
    goal: CodeLocation,
    /// Empty without `gates_unknown`: unconditional.
    steps: Vec<StepRow>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    gates_unknown: bool,
    /// Control codes that can stand at the goal, where they are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    codes: Option<Vec<target::Code>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    code_count: Option<u64>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Output {
    verdict: Verdict,
    from: CodeLocation,
    /// The walk began inside a routine: other cases of its switch are not looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    started_at: Option<Address>,
    /// `from` is no instruction boundary; the walk began at the routine's entry.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    from_not_boundary: bool,
    target: CodeLocation,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    target_in_listing: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    containing_function: Option<CodeLocation>,
    path: Vec<HopRow>,
    hops: usize,
    functions_explored: usize,
    deepest: usize,
    /// Raise `max_functions` or `max_depth`.
    bound_hit: bool,
    blind_stops: usize,
    /// Indirect transfers that were not followed.
    unresolved_indirect: Vec<CodeLocation>,
    unresolved_count: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    recipe: Option<Vec<Segment>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stopped: Option<Stopped>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    caps: Vec<String>,
    complete: bool,
    images: Vec<ImageRecord>,
}

/// `IRP_MJ_DEVICE_CONTROL`.
const DEVICE_CONTROL: u8 = 0x0e;
/// Codes listed for a segment; they are counted beyond.
const MAX_CODES: usize = 256;

impl Tool for ReachableFromDispatch {
    const NAME: &'static str = "reachable_from_dispatch";
    const TITLE: &'static str = "Ask whether code is reachable";
    const HINTS: Hints = Hints::READ;
    const PROSE: &'static [Fragment] = &[Fragment::Fixed(
        "Whether a dispatch routine (or one case of it) can reach an address through direct calls, tail jumps and \
         resolved tables, and by which branches. reachable is sound; not_reachable is only \"not found\": read \
         bound_hit, blind_stops, unresolved_indirect and stopped.",
    )];
    type Params = Params;
    type Output = Output;

    fn check(params: &Params) -> Result<(), Vec<String>> {
        check_expression("from", &params.from)?;
        code_image::check_place(params.address.as_deref(), params.module.as_deref(), params.rva)
    }

    fn render(output: &Output, _: &Surface) -> String {
        let verb = match output.verdict {
            Verdict::Reachable => "reaches",
            Verdict::NotReachable => "was not found to reach",
        };
        let mut text = format!("{} {verb} {}", output.from.describe(), output.target.describe());
        if output.verdict == Verdict::NotReachable {
            text.push_str(&excuses(output));
        }
        for hop in &output.path {
            text.push_str(&format!("\n  {} -> {}", hop.site.describe(), hop.callee.describe()));
        }
        for segment in output.recipe.iter().flatten() {
            text.push_str(&format!("\nIn {}:", segment.function.describe()));
            match (&segment.steps[..], segment.gates_unknown) {
                (_, true) => text.push_str(" which branches lead there is not known"),
                ([], false) => text.push_str(" unconditional"),
                (steps, false) => {
                    for step in steps {
                        let predicate = step.predicate.as_ref().map(|p| format!(" ({})", p.text));
                        let how = match step.required {
                            Required::Taken => "taken",
                            Required::Fallthrough => "not taken",
                        };
                        let at = step.site.describe();
                        let gate = predicate.unwrap_or_default();
                        text.push_str(&format!("\n  {at} {} {how}{gate}", step.condition));
                    }
                }
            }
            if let Some(codes) = &segment.codes {
                let list: Vec<String> = codes.iter().map(ToString::to_string).collect();
                text.push_str(&format!("\n  codes: {}", list.join(" ")));
            }
        }
        text.push_str(&format!(
            "\n{} functions explored, {} deep, {} indirect transfers not followed",
            output.functions_explored, output.deepest, output.unresolved_count
        ));
        text
    }
}

fn excuses(output: &Output) -> String {
    let mut parts = Vec::new();
    if output.bound_hit {
        parts.push("a bound was hit".to_owned());
    }
    if output.stopped.is_some() {
        parts.push("it was stopped early".to_owned());
    }
    if output.blind_stops > 0 {
        parts.push(format!("{} paths end where bytes did not read or decode", output.blind_stops));
    }
    if output.unresolved_count > 0 {
        parts.push(format!("{} indirect transfers were not followed", output.unresolved_count));
    }
    if parts.is_empty() { " by any direct edge".to_owned() } else { format!(", but {}", parts.join(", ")) }
}

impl WorkerTool for ReachableFromDispatch {
    fn run(job: &mut Job<'_>, params: Params) -> Result<Output, ToolError> {
        let from = evaluate(job.target, &params.from, job.halt)?;
        let target = code_image::place(job, params.address.as_deref(), params.module.as_deref(), params.rva)?;
        let module = code_image::module_of(job.target, from)?;
        let image = code_image::open(job, &module)?;
        if !image.is_executable(from) {
            return Err(ToolError::new(
                crate::error::Category::Debugger,
                format!("{} is in no executable section of {}", params.from, module.name),
            )
            .because("not_code"));
        }
        if !job.target.facts().kind.is_live() {
            job.kept.indexes.index(job.target, &image, job.halt);
        }
        let opened = RefCell::new(HashMap::from([(image.base, Some(Rc::new(image)))]));
        let images = |address: u64| image_at(job, &opened, address);
        let tables: &dyn TableResolver = if params.tables.unwrap_or(true) { &Structural } else { &NoTables };
        let search = Search {
            images: &images,
            from,
            target,
            max_functions: params.max_functions.unwrap_or(256) as usize,
            max_depth: params.max_depth.unwrap_or(32) as usize,
            tables,
            cross_image: params.cross_image.unwrap_or(false),
            halt: job.halt,
        };
        let found = reach(&search).unwrap_or_default();
        Ok(output(job, from, target, &found, params.recipe.unwrap_or(true), &images))
    }
}

type Opened<'a> = RefCell<HashMap<u64, Option<Rc<CodeImage<'a>>>>>;

/// The image at `address`, opened once.
fn image_at<'a>(job: &Job<'a>, opened: &Opened<'a>, address: u64) -> Option<Rc<CodeImage<'a>>> {
    let module = job.target.module_at(address).ok().flatten()?;
    if let Some(known) = opened.borrow().get(&module.base) {
        return known.clone();
    }
    let image = code_image::open(job, &module).ok().map(Rc::new);
    opened.borrow_mut().insert(module.base, image.clone());
    image
}

fn output<'a>(
    job: &Job<'a>,
    from: u64,
    target: u64,
    found: &Reached,
    want_recipe: bool,
    images: &dyn Fn(u64) -> Option<Rc<CodeImage<'a>>>,
) -> Output {
    let mut locations = analysis_driver::Locations::new(job.target);
    let path = found
        .path
        .iter()
        .map(|hop| HopRow { site: locations.at(hop.site), kind: hop.kind, callee: locations.at(hop.callee) })
        .collect();
    let segments = (found.reachable && want_recipe).then(|| {
        let goal = found.path.first().map_or(target, |hop| hop.site);
        let gate = gate(job, found, goal, images).unwrap_or_default();
        segments(&mut locations, found, target, &gate)
    });
    let unresolved_indirect = found.unresolved.iter().map(|site| locations.at(*site)).collect();
    let complete = !found.bound_hit
        && found.stopped.is_none()
        && found.blind_stops == 0
        && found.unresolved_count == 0
        && found.caps.is_empty();
    let from_location = locations.at(from);
    let target_location = locations.at(target);
    let containing_function = found.containing_function.map(|start| locations.at(start));
    let mut records = locations.images();
    for record in &mut records {
        record.bytes_from = images(record.base.0).and_then(|image| image.bytes_from());
    }
    Output {
        verdict: if found.reachable { Verdict::Reachable } else { Verdict::NotReachable },
        from: from_location,
        started_at: found.started_at.map(Address),
        from_not_boundary: found.from_not_boundary,
        target: target_location,
        target_in_listing: found.target_in_listing,
        containing_function,
        path,
        hops: found.path.len(),
        functions_explored: found.functions_explored,
        deepest: found.deepest,
        bound_hit: found.bound_hit,
        blind_stops: found.blind_stops,
        unresolved_indirect,
        unresolved_count: found.unresolved_count,
        recipe: segments,
        stopped: found.stopped,
        caps: found.caps.iter().map(|cap| (*cap).to_owned()).collect(),
        complete,
        images: records,
    }
}

/// One segment for each function of the path: from where control enters to the hop, or the target.
fn segments(
    locations: &mut analysis_driver::Locations<'_>,
    found: &Reached,
    target: u64,
    gate: &Gates,
) -> Vec<Segment> {
    found
        .functions
        .iter()
        .enumerate()
        .map(|(index, explored)| {
            let goal = found.path.get(index).map_or(target, |hop| hop.site);
            let steps = recipe(&explored.listing, &explored.blocks, explored.enters, goal);
            let codes = gate.codes.as_ref().filter(|_| index == 0);
            Segment {
                function: locations.at(explored.listing.entry),
                start: locations.at(explored.enters),
                goal: locations.at(goal),
                gates_unknown: steps.is_none(),
                steps: steps
                    .unwrap_or_default()
                    .iter()
                    .map(|step| step_row(locations, &explored.listing, step, gate))
                    .collect(),
                codes: codes.map(|(codes, _)| codes.iter().copied().map(target::Code).collect()),
                code_count: codes.map(|(_, count)| *count),
            }
        })
        .collect()
}

/// What the data flow of the dispatch routine says of its own segment: the control codes that can
/// stand at its goal, and which of its compares look at the code or a length.
fn gate<'a>(
    job: &Job<'a>,
    found: &Reached,
    goal: u64,
    images: &dyn Fn(u64) -> Option<Rc<CodeImage<'a>>>,
) -> Option<Gates> {
    let first = found.functions.first()?;
    let entry = first.listing.entry;
    let image = images(entry)?;
    let installed = control_entries::discovered(job, &image).map(|found| found.requests).unwrap_or_default();
    let known = installed.iter().find(|request| request.entry == entry);
    let routine = Routine {
        entry,
        convention: known.and_then(|request| request.convention).unwrap_or(Convention::Wdm),
        major: known.map_or(DEVICE_CONTROL, |request| request.major),
    };
    let steps = recipe(&first.listing, &first.blocks, first.enters, goal).unwrap_or_default();
    let compares: Vec<u64> = steps.iter().filter_map(|step| step.compares.as_ref().map(|c| c.at)).collect();
    gates(&image, routine, goal, &compares, MAX_CODES, job.halt)
}

fn step_row(
    locations: &mut analysis_driver::Locations<'_>,
    listing: &code_flow::Listing,
    step: &Step,
    gate: &Gates,
) -> StepRow {
    let condition = listing.instructions.get(&step.site).map(|branch| branch.mnemonic.to_string());
    StepRow {
        site: locations.at(step.site),
        condition: condition.unwrap_or_default(),
        required: if step.taken { Required::Taken } else { Required::Fallthrough },
        predicate: predicate(listing, step, gate),
    }
}

/// What the compare before a branch says when the branch goes as required.
fn predicate(listing: &code_flow::Listing, step: &Step, gate: &Gates) -> Option<Predicate> {
    let compared = step.compares.as_ref()?;
    let text = listing.instructions.get(&compared.at)?.text();
    let condition = step.condition?;
    let holds = if step.taken { condition } else { condition.negated()? };
    let op = holds.name();
    let field = match gate.fields.get(&compared.at) {
        Some(Looked::Code) => Field::IoControlCode,
        Some(Looked::InputLength) => Field::InputLength,
        Some(Looked::OutputLength) => Field::OutputLength,
        None if compared.left.memory().is_some() => Field::Memory,
        None => Field::Register,
    };
    let number = compared.value.map(Rva);
    Some(Predicate {
        field,
        text: format!("{text}: {op}"),
        op,
        value: if compared.mask { None } else { number },
        mask: if compared.mask { number } else { None },
    })
}
