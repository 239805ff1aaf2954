//! `walk_memory`: lists, arrays and chains of structures, a row a node.

use analysis_walk::{Field, MOST_NODES, Nodes, Plan, Stopped, walk};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use target::{Address, Stop};

use super::walk_result::{Column, MaybeRead, Mode, Output, Reason, Row, StoppedAt};
use crate::error::{Category, ToolError};
use crate::location;
use crate::prose::Fragment;
use crate::routing::SessionId;
use crate::surface::Surface;
use crate::tool::{Hints, Job, Tool, WorkerTool};

pub(crate) struct WalkMemory;

/// Nodes of an array or a chain when the caller does not say.
const COUNT: u16 = 64;

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct FieldParam {
    /// Default: its offset.
    #[serde(default)]
    #[schemars(length(min = 1, max = 64))]
    name: Option<String>,
    /// From the node; may be negative.
    offset: i64,
    /// 1, 2, 4 or 8; default a pointer's.
    #[serde(default)]
    #[schemars(range(min = 1, max = 8))]
    size: Option<u8>,
}

#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Params {
    /// A list: these nodes, and nothing else of start, stride, next_offset, stop_at, count.
    #[serde(default)]
    #[schemars(length(min = 1, max = 1024))]
    addresses: Option<Vec<String>>,
    /// First node, an expression (bare digits are hex); with stride or next_offset.
    #[serde(default)]
    start: Option<String>,
    /// An array: bytes from node to node; may be negative.
    #[serde(default)]
    stride: Option<i64>,
    /// A chain: where in a node the pointer to the next is.
    #[serde(default)]
    next_offset: Option<i64>,
    /// Of a chain: ends before this node, an expression. Pass the list head.
    #[serde(default)]
    stop_at: Option<String>,
    /// Nodes at most, default 64.
    #[serde(default)]
    #[schemars(range(min = 1, max = 1024))]
    count: Option<u16>,
    /// Values of each node; default the pointer at 0, of a chain none.
    #[serde(default)]
    #[schemars(length(max = 16))]
    fields: Option<Vec<FieldParam>>,
    /// 4 or 8; default the target's. 4 for 32-bit structures of a WoW64 process.
    #[serde(default)]
    #[schemars(range(min = 4, max = 8))]
    pointer_size: Option<u8>,
    #[serde(default)]
    session_id: Option<SessionId>,
}

impl Tool for WalkMemory {
    const NAME: &'static str = "walk_memory";
    const TITLE: &'static str = "Walk a list, array or chain";
    const HINTS: Hints = Hints::READ;
    const PROSE: &'static [Fragment] = &[Fragment::Fixed(
        "Values of many structures in one call: of the addresses given, of an array (start, stride) or along a \
         linked list (start, next_offset). What does not read is null in its row; the walk goes on. A LIST_ENTRY \
         links entries, not structures: use negative offsets. A list head is no node: start poi(head), stop_at \
         head.",
    )];
    type Params = Params;
    type Output = Output;

    /// An address may come as a number.
    fn loosen(args: &mut Map<String, Value>) {
        if let Some(Value::Array(addresses)) = args.get_mut("addresses") {
            for address in addresses {
                let exact = |number: &u64| *number < 1 << 53;
                if let Some(number) = address.as_u64().filter(exact) {
                    *address = Value::from(format!("{number:#x}"));
                }
            }
        }
    }

    fn check(params: &Params) -> Result<(), Vec<String>> {
        let mut problems = exclusive(params);
        for (field, text) in [("start", &params.start), ("stop_at", &params.stop_at)] {
            let checked = text.as_deref().map(|text| location::check_expression(field, text));
            problems.extend(checked.and_then(Result::err).into_iter().flatten());
        }
        for (index, text) in params.addresses.iter().flatten().enumerate() {
            problems.extend(address(text).err().map(|error| format!("addresses[{index}]: {error}")));
        }
        if params.stride == Some(0) {
            problems.push("stride must not be 0".to_owned());
        }
        if params.pointer_size.is_some_and(|size| ![4, 8].contains(&size)) {
            problems.push("pointer_size must be 4 or 8".to_owned());
        }
        problems.extend(field_problems(params.fields.as_deref().unwrap_or_default()));
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }

    fn render(output: &Output, _: &Surface) -> String {
        output.text()
    }
}

/// Each node source answers "what is the next address?"; two would have to be chosen between.
fn exclusive(params: &Params) -> Vec<String> {
    let mut problems = Vec::new();
    let others = [
        ("start", params.start.is_some()),
        ("stride", params.stride.is_some()),
        ("next_offset", params.next_offset.is_some()),
        ("stop_at", params.stop_at.is_some()),
        ("count", params.count.is_some()),
    ];
    if params.addresses.is_some() {
        let given: Vec<&str> = others.iter().filter(|(_, given)| *given).map(|(name, _)| *name).collect();
        if !given.is_empty() {
            problems.push(format!("addresses excludes {}", given.join(", ")));
        }
        return problems;
    }
    if params.start.is_none() {
        problems.push("give addresses, or start with stride or next_offset".to_owned());
    } else if params.stride.is_some() == params.next_offset.is_some() {
        problems.push("start needs exactly one of stride (an array) and next_offset (a chain)".to_owned());
    }
    if params.stop_at.is_some() && params.next_offset.is_none() {
        problems.push("stop_at belongs to a chain: give next_offset".to_owned());
    }
    problems
}

fn field_problems(fields: &[FieldParam]) -> Vec<String> {
    let mut problems = Vec::new();
    let mut names: Vec<String> = Vec::new();
    for (index, field) in fields.iter().enumerate() {
        if field.size.is_some_and(|size| ![1, 2, 4, 8].contains(&size)) {
            problems.push(format!("fields[{index}].size must be 1, 2, 4 or 8"));
        }
        let name = field.name.clone().unwrap_or_else(|| offset_name(field.offset));
        if names.contains(&name) {
            problems.push(format!("fields[{index}]: the name {name:?} is there twice"));
        }
        names.push(name);
    }
    problems
}

/// `+0x18`, `-0x10`.
fn offset_name(offset: i64) -> String {
    format!("{}{:#x}", if offset < 0 { "-" } else { "+" }, offset.unsigned_abs())
}

/// An address token: eight or sixteen hex digits are one as a debugger prints it, however many of them
/// are decimal digits too.
fn address(text: &str) -> Result<u64, expression::AddressError> {
    let word = text.trim();
    if [8, 16].contains(&word.len()) && word.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return expression::parse_address(&format!("0x{word}"));
    }
    expression::parse_address(word)
}

impl Params {
    fn nodes(&self, job: &Job<'_>) -> Result<Nodes, ToolError> {
        if let Some(texts) = &self.addresses {
            let addresses = texts.iter().map(|text| address(text)).collect::<Result<Vec<_>, _>>();
            return addresses
                .map(Nodes::List)
                .map_err(|error| ToolError::invalid(format!("addresses: {error}")));
        }
        let evaluate = |text: &String| location::evaluate(job.target, text, job.halt);
        let count = usize::from(self.count.unwrap_or(COUNT)).min(MOST_NODES);
        let start = self.start.as_ref().map(evaluate).transpose()?;
        match (start, self.stride, self.next_offset) {
            (Some(start), Some(stride), None) => Ok(Nodes::Array { start, stride, count }),
            (Some(start), None, Some(link)) => {
                let stop_at = self.stop_at.as_ref().map(evaluate).transpose()?;
                Ok(Nodes::Chain { start, link, stop_at, count })
            }
            _ => Err(ToolError::invalid("give addresses, or start with stride or next_offset")),
        }
    }

    fn columns(&self, mode: Mode, pointer: u8) -> Vec<Column> {
        match self.fields.as_deref().unwrap_or_default() {
            [] if mode == Mode::Chain => Vec::new(),
            [] => vec![Column { name: "value".to_owned(), offset: 0, size: pointer }],
            fields => fields
                .iter()
                .map(|field| Column {
                    name: field.name.clone().unwrap_or_else(|| offset_name(field.offset)),
                    offset: field.offset,
                    size: field.size.unwrap_or(pointer),
                })
                .collect(),
        }
    }
}

impl WorkerTool for WalkMemory {
    fn run(job: &mut Job<'_>, params: Params) -> Result<Output, ToolError> {
        let nodes = params.nodes(job)?;
        let (mode, start) = match &nodes {
            Nodes::List(_) => (Mode::List, None),
            Nodes::Array { start, .. } => (Mode::Array, Some(Address(*start))),
            Nodes::Chain { start, .. } => (Mode::Chain, Some(Address(*start))),
        };
        let pointer_size = params.pointer_size.unwrap_or_else(|| job.target.facts().machine.pointer_size());
        let columns = params.columns(mode, pointer_size);
        let fields =
            columns.iter().map(|column| Field { offset: column.offset, size: column.size }).collect();
        let plan = Plan { nodes, fields, pointer_size };
        let walked = walk(&plan, job.target, &|| job.halt.stop());
        if let Stopped::Halted { why: Stop::Deadline, index: 0, .. } = walked.stopped {
            return Err(ToolError::new(
                Category::NotRun,
                "the call's time ran out before the first node was read",
            ));
        }
        Ok(Output {
            mode,
            start,
            columns,
            requested: plan.requested(),
            walked: walked.nodes.len(),
            unreadable: walked.unreadable,
            nodes: walked.nodes.into_iter().map(|node| row(node, mode)).collect(),
            stopped: stopped(walked.stopped, mode),
            note: walked.note.map(|error| error.to_string()),
        })
    }
}

fn row(node: analysis_walk::Node, mode: Mode) -> Row {
    let read = |value: Option<u64>| MaybeRead(value.map(Address));
    Row {
        address: Address(node.address),
        next: (mode == Mode::Chain).then(|| read(node.next)),
        values: node.values.into_iter().map(read).collect(),
    }
}

fn stopped(stopped: Stopped, mode: Mode) -> StoppedAt {
    let at = |reason, at| StoppedAt { at: Some(Address(at)), ..StoppedAt::new(reason) };
    match stopped {
        Stopped::Complete => StoppedAt::new(Reason::Complete),
        Stopped::NullLink => StoppedAt::new(Reason::NullLink),
        Stopped::Cap { next } => StoppedAt { next: Some(Address(next)), ..StoppedAt::new(Reason::Cap) },
        Stopped::Loop { at: node } => at(Reason::Loop, node),
        Stopped::StopAddress { at: node } => at(Reason::StopAddress, node),
        Stopped::UnreadableLink { at: node } => at(Reason::UnreadableLink, node),
        Stopped::Halted { why, next, index } => {
            let reason = match why {
                Stop::Deadline => Reason::Deadline,
                Stop::Interrupted => Reason::Interrupted,
            };
            let (next, index) =
                if mode == Mode::List { (None, Some(index)) } else { (Some(Address(next)), None) };
            StoppedAt { next, next_index: index, ..StoppedAt::new(reason) }
        }
    }
}
