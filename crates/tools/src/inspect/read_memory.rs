//! `read_memory`: bytes, how far the read got, and why it stopped.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use target::{Address, HexBytes, MemoryExt, Stop, Target, TargetExt, TargetKind, Unreadable};

use crate::error::{Category, ToolError};
use crate::location::{self, Coordinate};
use crate::prose::Fragment;
use crate::routing::SessionId;
use crate::surface::Surface;
use crate::tool::{Hints, Job, Tool, WorkerTool};

pub(crate) struct ReadMemory;

/// Bytes one answer carries: their hex stays well below the 1 MiB an answer may have.
const ANSWER_LIMIT: usize = 384 * 1024;
/// Bytes shown in the text half.
const TEXT_LIMIT: usize = 16 * 1024;
const PAGE: u64 = 0x1000;

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Params {
    /// Expression: `fffff803`1ab10000`, nt!Symbol+0x1c, @rsp, poi(@rsp). Bare digits are hex.
    #[serde(default)]
    address: Option<String>,
    /// Instead of address: a place in an image by its identity, as an answer's coordinate gives it.
    #[serde(default)]
    coordinate: Option<Coordinate>,
    /// Bytes, default 64.
    #[serde(default)]
    #[schemars(range(min = 1, max = 1_048_576))]
    size: Option<u32>,
    #[serde(default)]
    session_id: Option<SessionId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum Stopped {
    Unreadable,
    Deadline,
    Interrupted,
    /// The answer is full; go on from `stopped_at`.
    AnswerLimit,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Output {
    address: Address,
    requested_size: usize,
    read_size: usize,
    data: HexBytes,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stopped: Option<Stopped>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stopped_at: Option<Address>,
    /// Why the byte at `stopped_at` is unreadable: `not_in_dump`, `paged_out`, ...
    #[serde(default, skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    /// Of an image: zeros among these are what the file has no bytes for.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    uninitialised: bool,
}

impl Tool for ReadMemory {
    const NAME: &'static str = "read_memory";
    const TITLE: &'static str = "Read memory";
    const HINTS: Hints = Hints::READ;
    const PROSE: &'static [Fragment] = &[Fragment::Fixed(
        "Bytes of virtual memory. A read that meets a hole answers what came before it and says why it \
         stopped.",
    )];
    type Params = Params;
    type Output = Output;

    fn check(params: &Params) -> Result<(), Vec<String>> {
        location::check(params.address.as_deref(), params.coordinate.as_ref(), params.session_id.is_some())
    }

    fn render(output: &Output, _: &Surface) -> String {
        let shown = &output.data.0[..output.data.0.len().min(TEXT_LIMIT)];
        let mut text =
            format!("{} of {} bytes at {}\n```\n", output.read_size, output.requested_size, output.address);
        for (index, line) in shown.chunks(16).enumerate() {
            text.push_str(&hex_line(output.address.0.wrapping_add(index as u64 * 16), line));
        }
        text.push_str("```");
        let hidden = output.data.0.len() - shown.len();
        if hidden > 0 {
            text.push_str(&format!("\n{hidden} more bytes are in the structured answer's data."));
        }
        if let (Some(stopped), Some(at)) = (output.stopped, output.stopped_at) {
            let why = output.why.as_deref().unwrap_or("");
            text.push_str(&match stopped {
                Stopped::Unreadable => format!("\nStopped at {at}: unreadable ({why})."),
                Stopped::Deadline => format!("\nStopped at {at}: the call's time ran out."),
                Stopped::Interrupted => format!("\nStopped at {at}: interrupted."),
                Stopped::AnswerLimit => format!("\nThis answer is full; go on from {at}."),
            });
        }
        if output.uninitialised {
            text.push_str("\nPart of it is uninitialised data: zeros that the file does not hold.");
        }
        text
    }
}

/// Whether the file of an image session lacks bytes between `address` and `length` further, although
/// a section covers them.
fn is_uninitialised(target: &dyn Target, address: u64, length: usize) -> bool {
    if target.facts().kind != TargetKind::Image {
        return false;
    }
    let Ok(Some(module)) = target.module_at(address) else { return false };
    let Ok(headers) = pe::Pe::parse(&pe::MappedImage::new(target, module.base)) else { return false };
    let start = address - module.base;
    let end = start.saturating_add(length as u64);
    headers.sections.iter().any(|section| {
        let begin = u64::from(section.rva) + u64::from(section.raw_size);
        let covered = u64::from(section.rva) + u64::from(section.virtual_size);
        start < covered && begin < end && begin < covered
    })
}

fn hex_line(address: u64, bytes: &[u8]) -> String {
    let mut hex = String::with_capacity(48);
    for (index, byte) in bytes.iter().enumerate() {
        hex.push_str(&format!("{}{byte:02x}", if index == 8 { "-" } else { " " }));
    }
    let ascii: String = bytes
        .iter()
        .map(|&b| if (0x20..0x7f).contains(&b) && b != b'`' { char::from(b) } else { '.' })
        .collect();
    format!("{address:016x} {hex:<48}  {ascii}\n")
}

impl WorkerTool for ReadMemory {
    fn run(job: &mut Job<'_>, params: Params) -> Result<Output, ToolError> {
        let size = params.size.unwrap_or(64) as usize;
        let address = match (&params.address, &params.coordinate) {
            (_, Some(at)) => location::resolve(job.target, at, size as u64)?,
            (Some(text), None) => location::evaluate(job.target, text, job.halt)?,
            (None, None) => return Err(ToolError::invalid("give exactly one of address and coordinate")),
        };
        // The last byte may be 2^64 - 1 itself.
        if address.checked_add(size as u64 - 1).is_none() {
            return Err(ToolError::invalid(format!(
                "{size} bytes from {} reach past 2^64",
                Address(address)
            )));
        }
        read(job, address, size)
    }
}

fn read(job: &Job<'_>, address: u64, size: usize) -> Result<Output, ToolError> {
    let wanted = size.min(ANSWER_LIMIT);
    let mut data = Vec::with_capacity(wanted);
    let mut stopped = (wanted < size).then_some(Stopped::AnswerLimit);
    let mut why = None;
    while data.len() < wanted {
        let at = address.wrapping_add(data.len() as u64);
        let to_page_end = (PAGE - at % PAGE) as usize;
        let (bytes, hole) = job.target.read_prefix(at, to_page_end.min(wanted - data.len()));
        data.extend_from_slice(&bytes);
        let pause = match hole {
            Some(Unreadable::Deadline) => Some(Stop::Deadline),
            Some(Unreadable::Interrupted) => Some(Stop::Interrupted),
            Some(hole) => {
                stopped = Some(Stopped::Unreadable);
                why = Some(hole);
                break;
            }
            None if data.len() < wanted => job.halt.stop(),
            None => None,
        };
        if let Some(pause) = pause {
            stopped = Some(match pause {
                Stop::Deadline => Stopped::Deadline,
                Stop::Interrupted => Stopped::Interrupted,
            });
            break;
        }
    }
    if data.is_empty()
        && let Some(hole) = why
    {
        return Err(nothing(job, address, hole));
    }
    Ok(Output {
        address: Address(address),
        requested_size: size,
        read_size: data.len(),
        stopped,
        stopped_at: stopped.map(|_| Address(address.wrapping_add(data.len() as u64))),
        why: why.map(|hole| hole.reason().to_owned()),
        uninitialised: is_uninitialised(job.target, address, data.len()),
        data: HexBytes(data),
    })
}

/// The refusal when not even the first byte is readable.
fn nothing(job: &Job<'_>, address: u64, hole: Unreadable) -> ToolError {
    let place = match job.target.attribute(address) {
        target::Attribution::Module { name, rva, .. } => format!("it lies in {name} at rva {rva:#x}"),
        target::Attribution::NoModule { unloaded: Some(name) } => {
            format!("it lies where {name} was before it was unloaded")
        }
        target::Attribution::NoModule { unloaded: None } => "it lies in no loaded module".to_owned(),
        target::Attribution::LookupFailed => "whether it lies in a module could not be looked up".to_owned(),
    };
    ToolError::new(Category::Debugger, format!("cannot read {}: {hole}; {place}", Address(address)))
        .because(hole.reason())
}
