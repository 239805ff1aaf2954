//! `run_to_address`: whether and how execution gets to a place.

use std::time::Duration;

use control::{RunTo, Verdict};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{DEFAULT_MS, controlled, derived, stops};
use crate::error::ToolError;
use crate::location::{self, Coordinate};
use crate::prose::Fragment;
use crate::routing::SessionId;
use crate::surface::Surface;
use crate::table::quiet;
use crate::tool::{Hints, Job, Tool, WorkerTool};

pub(crate) struct RunToAddress;

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Params {
    /// Expression: module!symbol, module+rva, 0x...
    #[serde(default)]
    address: Option<String>,
    #[serde(default)]
    coordinate: Option<Coordinate>,
    /// Default 60000.
    #[serde(default)]
    #[schemars(range(min = 1, max = 3_600_000))]
    timeout_ms: Option<u64>,
    #[serde(default)]
    session_id: Option<SessionId>,
}

impl Tool for RunToAddress {
    const NAME: &'static str = "run_to_address";
    const TITLE: &'static str = "Run to an address";
    const HINTS: Hints = Hints::OPEN;
    const PROSE: &'static [Fragment] = &[Fragment::Fixed(
        "Runs until execution reaches a place: hit, stopped_elsewhere, timeout (broken in) or target_gone. \
         Breakpoints stay as they are. At the place already, it runs to the next arrival.",
    )];
    type Params = Params;
    type Output = RunTo;

    fn check(params: &Params) -> Result<(), Vec<String>> {
        location::check(params.address.as_deref(), params.coordinate.as_ref(), params.session_id.is_some())
    }

    fn render(output: &RunTo, _: &Surface) -> String {
        let place = stops::Place {
            at: output.stopped_at,
            module: output.module.as_deref(),
            rva: output.rva,
            symbol: output.symbol.as_deref(),
            displacement: output.displacement,
            thread: output.thread,
            processor: output.processor,
        };
        let (place, after) = (place.words(), format!("after {} ms", output.elapsed_ms));
        let why = output.reason.as_ref().map_or_else(String::new, |r| format!(": {}", quiet(&r.describe())));
        let mut text = match output.verdict {
            Verdict::Hit => format!("Hit {after}: {place}."),
            Verdict::StoppedElsewhere if output.interrupted => {
                format!("Not reached: broken in on request {after} at {place}.")
            }
            Verdict::StoppedElsewhere => format!("Not reached: stopped {after} at {place}{why}."),
            Verdict::Timeout => format!(
                "Not reached within {} ms; the target was broken in and stands at {place}.",
                output.timeout_ms
            ),
            Verdict::TargetGone => format!("Not reached: the target is gone {after}{why}."),
        };
        text.push_str(&format!(" Wanted: {}.", output.target));
        stops::printed(&mut text, &output.output);
        text
    }

    fn derived(output: &RunTo) -> Vec<transcript::Derived> {
        derived::run_to(output)
    }
}

impl WorkerTool for RunToAddress {
    fn run(job: &mut Job<'_>, params: Params) -> Result<RunTo, ToolError> {
        let target = job.target;
        // Refused before a place is looked up: a dump has places, and still does not run.
        control::run_of(target).map_err(super::refused)?;
        let address = match (&params.address, &params.coordinate) {
            (Some(text), _) => location::evaluate(target, text, job.halt)?,
            (None, Some(at)) => location::resolve(target, at, 1)?,
            (None, None) => return Err(ToolError::invalid("give exactly one of address and coordinate")),
        };
        let bound = Duration::from_millis(params.timeout_ms.unwrap_or(DEFAULT_MS));
        controlled(job, |control| control::run_to(control, address, bound))
    }
}
