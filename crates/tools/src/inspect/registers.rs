//! `registers`: a register that was not recorded is unavailable, never zero.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use target::{Address, Context, HexBytes, Machine};

use crate::error::ToolError;
use crate::prose::Fragment;
use crate::routing::SessionId;
use crate::surface::Surface;
use crate::tool::{Hints, Job, Tool, WorkerTool};
use crate::whose::{self, ViewChoice};

pub(crate) struct Registers;

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Params {
    /// Also sub-registers, x87 and vector registers.
    #[serde(default)]
    all: Option<bool>,
    /// System thread id; on a kernel target a processor number.
    #[serde(default)]
    thread: Option<u32>,
    /// Which side of a WoW64 process.
    #[serde(default)]
    view: Option<ViewChoice>,
    #[serde(default)]
    session_id: Option<SessionId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum Kind {
    Int,
    /// `bytes`, in memory order.
    Bytes,
    /// The target does not hold it.
    Unavailable,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct Row {
    #[schemars(extend("x-verbatim" = true))]
    name: String,
    kind: Kind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value: Option<Address>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bytes: Option<HexBytes>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    subregister: bool,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Output {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    instruction_pointer: Option<Address>,
    registers: Vec<Row>,
    all_registers: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    thread: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    processor: Option<u32>,
    /// Where the values were recorded: `exception`, `thread`, `context_record`, ...
    #[serde(default, skip_serializing_if = "Option::is_none")]
    source: Option<String>,
}

const X64_PARTS: [&str; 52] = [
    "eax", "ecx", "edx", "ebx", "esp", "ebp", "esi", "edi", "r8d", "r9d", "r10d", "r11d", "r12d", "r13d",
    "r14d", "r15d", "ax", "cx", "dx", "bx", "sp", "bp", "si", "di", "r8w", "r9w", "r10w", "r11w", "r12w",
    "r13w", "r14w", "r15w", "al", "cl", "dl", "bl", "spl", "bpl", "sil", "dil", "r8b", "r9b", "r10b", "r11b",
    "r12b", "r13b", "r14b", "r15b", "ah", "ch", "dh", "bh",
];
const X86_PARTS: [&str; 16] =
    ["ax", "cx", "dx", "bx", "sp", "bp", "si", "di", "al", "cl", "dl", "bl", "ah", "ch", "dh", "bh"];

fn integers(context: &Context) -> Vec<Row> {
    let machine = context.machine;
    Context::display_order(machine)
        .iter()
        .filter_map(|&number| Some((Context::register_name(machine, number)?, context.get(number))))
        .map(|(name, value)| Row {
            name: name.to_owned(),
            kind: if value.is_some() { Kind::Int } else { Kind::Unavailable },
            value: value.map(Address),
            bytes: None,
            subregister: false,
        })
        .collect()
}

fn parts(context: &Context) -> impl Iterator<Item = Row> {
    let names: &[&str] = match context.machine {
        Machine::X64 => &X64_PARTS,
        Machine::X86 => &X86_PARTS,
        Machine::Arm64 | Machine::Arm32 => &[],
    };
    names.iter().filter_map(|name| {
        let value = context.by_name(name)?;
        Some(Row {
            name: (*name).to_owned(),
            kind: Kind::Int,
            value: Some(Address(value)),
            bytes: None,
            subregister: true,
        })
    })
}

fn wide(context: &Context) -> impl Iterator<Item = Row> {
    let vector = if matches!(context.machine, Machine::Arm64) { "v" } else { "xmm" };
    let row = |name: String, bytes: &[u8]| Row {
        name,
        kind: Kind::Bytes,
        value: None,
        bytes: Some(HexBytes(bytes.to_vec())),
        subregister: false,
    };
    let x87 = context.x87.iter().enumerate().map(move |(i, bytes)| row(format!("st{i}"), &bytes[..10]));
    let vectors =
        context.vectors.iter().enumerate().map(move |(i, bytes)| row(format!("{vector}{i}"), bytes));
    x87.chain(vectors)
}

impl Tool for Registers {
    const NAME: &'static str = "registers";
    const TITLE: &'static str = "Registers";
    const HINTS: Hints = Hints::READ;
    const PROSE: &'static [Fragment] = &[Fragment::Fixed(
        "Registers of the current thread (of a crash: at the fault), or of another thread or processor. \
         A register the dump does not hold is `unavailable`, not zero.",
    )];
    type Params = Params;
    type Output = Output;

    fn render(output: &Output, _: &Surface) -> String {
        if output.registers.is_empty() {
            return "The target has no register context here: it is no running or crashed thread.".to_owned();
        }
        let mut text = String::from("```\n");
        let mut column = 0;
        for row in &output.registers {
            let value = match (&row.value, &row.bytes) {
                (Some(Address(value)), _) => format!("{value:016x}"),
                (None, Some(bytes)) => bytes.to_string(),
                (None, None) => "unavailable".to_owned(),
            };
            text.push_str(&format!("{:>6}={value}", row.name));
            column += 1;
            let wide = row.bytes.is_some();
            text.push(if wide || column % 3 == 0 { '\n' } else { ' ' });
            if wide {
                column = 0;
            }
        }
        text = text.trim_end().to_owned();
        text.push_str("\n```");
        if let Some(source) = &output.source {
            text.push_str(&format!("\nRecorded as: {source}."));
        }
        text
    }
}

impl WorkerTool for Registers {
    fn run(job: &mut Job<'_>, params: Params) -> Result<Output, ToolError> {
        let owned = whose::context(job.target, params.thread, params.view)?;
        let all_registers = params.all.unwrap_or(false);
        let mut out = Output {
            instruction_pointer: None,
            registers: Vec::new(),
            all_registers,
            thread: owned.thread,
            processor: owned.processor,
            source: None,
        };
        if let Some(context) = owned.context {
            out.instruction_pointer = Some(Address(context.ip()));
            out.source = Some(context.source.name().to_owned());
            out.registers = integers(&context);
            if all_registers {
                out.registers.extend(parts(&context));
                out.registers.extend(wide(&context));
            }
        }
        Ok(out)
    }
}
