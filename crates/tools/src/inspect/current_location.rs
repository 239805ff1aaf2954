//! `current_location`: where execution stands, as one moment's facts.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use target::{Address, Rva, TargetExt};

use crate::error::ToolError;
use crate::location::{Coordinate, coordinate};
use crate::prose::Fragment;
use crate::routing::SessionId;
use crate::surface::Surface;
use crate::tool::{Hints, Job, Tool, WorkerTool};
use crate::whose;

pub(crate) struct CurrentLocation;

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Params {
    #[serde(default)]
    session_id: Option<SessionId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum LocationState {
    /// In a loaded module.
    Mapped,
    /// In no loaded module.
    Unmapped,
    AttributionFailed,
    /// The target has no register context here.
    ContextUnavailable,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Output {
    location_state: LocationState,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    address: Option<Address>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    thread: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    processor: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    symbol: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    displacement: Option<Rva>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    coordinate: Option<Coordinate>,
}

impl Tool for CurrentLocation {
    const NAME: &'static str = "current_location";
    const TITLE: &'static str = "Current location";
    const HINTS: Hints = Hints::READ;
    const PROSE: &'static [Fragment] = &[
        Fragment::Fixed(
            "Where execution stands: address, symbol, thread, and a coordinate (module identity + rva) that \
             names the same place in another session of the same build. Of a kernel dump: the stop, in \
             KeBugCheckEx, not the fault.",
        ),
        Fragment::If { needs: &["crash_triage"], text: "The fault: crash_triage." },
    ];
    type Params = Params;
    type Output = Output;

    fn render(output: &Output, _: &Surface) -> String {
        let whose = match (output.processor, output.thread) {
            (Some(processor), _) => format!(" on processor {processor}"),
            (None, Some(thread)) => format!(" on thread {thread}"),
            (None, None) => String::new(),
        };
        let Some(address) = output.address else {
            return format!("The target has no register context here{whose}.");
        };
        let mut text = format!("{address}{whose}");
        if let (Some(symbol), Some(displacement)) = (&output.symbol, output.displacement) {
            text.push_str(&format!(", {symbol}+{displacement}"));
        }
        match (&output.coordinate, output.location_state) {
            (Some(at), _) => text.push_str(&format!(
                ", {} rva {} ({}, timestamp {:08x}, size {:#x})",
                at.module, at.rva, at.image_name, at.identity.timestamp, at.identity.size
            )),
            (None, LocationState::AttributionFailed) => text.push_str(", module look-up failed"),
            (None, _) => text.push_str(", in no loaded module"),
        }
        text
    }
}

impl WorkerTool for CurrentLocation {
    fn run(job: &mut Job<'_>, _: Params) -> Result<Output, ToolError> {
        let target = job.target;
        whose::has_threads(target)?;
        let owned = whose::context(target, None, None)?;
        let mut out = Output {
            location_state: LocationState::ContextUnavailable,
            address: None,
            thread: owned.thread,
            processor: owned.processor,
            symbol: None,
            displacement: None,
            coordinate: None,
        };
        let Some(context) = owned.context else { return Ok(out) };
        let address = context.ip();
        out.address = Some(Address(address));
        match target.module_at(address) {
            Err(_) => out.location_state = LocationState::AttributionFailed,
            Ok(None) => out.location_state = LocationState::Unmapped,
            Ok(Some(module)) => {
                out.location_state = LocationState::Mapped;
                if let Ok(Some(hit)) = target.symbol_at(address) {
                    out.symbol = Some(hit.qualified());
                    out.displacement = Some(Rva(hit.displacement));
                }
                out.coordinate = Some(coordinate(target, &module, address - module.base));
            }
        }
        Ok(out)
    }
}
