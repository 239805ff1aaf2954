//! `registers`: a register that was not recorded is unavailable, never zero.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use target::{Address, Context, HexBytes, ListedRegister, Machine, RegisterValue};

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
    Float,
    /// `value` says which; `bytes` is the number as it is held.
    NonFinite,
    /// `bytes`, in memory order.
    Bytes,
    /// The target does not hold it.
    Unavailable,
}

/// Integers as `0x` and 16 digits.
#[derive(Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
enum Value {
    Float(f64),
    /// `nan`, `infinity`, `negative_infinity`.
    NonFinite(NonFinite),
    Int(Address),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum NonFinite {
    Nan,
    Infinity,
    NegativeInfinity,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct Row {
    #[schemars(extend("x-verbatim" = true))]
    name: String,
    kind: Kind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value: Option<Value>,
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
            value: value.map(|value| Value::Int(Address(value))),
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
            value: Some(Value::Int(Address(value))),
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
    x87.chain(vectors).chain(lanes(context, vector))
}

/// Vector registers once more as single-precision lanes, as the debugger shows them.
fn lanes(context: &Context, vector: &'static str) -> impl Iterator<Item = Row> {
    context.vectors.iter().enumerate().flat_map(move |(register, bytes)| {
        bytes.chunks_exact(4).enumerate().map(move |(lane, bytes)| {
            let value = f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            number(format!("{vector}{register}/{lane}"), value.into(), bytes, false)
        })
    })
}

/// A floating-point row; JSON has no NaN and no infinity.
fn number(name: String, value: f64, held: &[u8], subregister: bool) -> Row {
    let odd = match value {
        _ if value.is_nan() => Some(NonFinite::Nan),
        f64::INFINITY => Some(NonFinite::Infinity),
        f64::NEG_INFINITY => Some(NonFinite::NegativeInfinity),
        _ => None,
    };
    Row {
        name,
        kind: if odd.is_some() { Kind::NonFinite } else { Kind::Float },
        value: Some(odd.map_or(Value::Float(value), Value::NonFinite)),
        bytes: odd.map(|_| HexBytes(held.to_vec())),
        subregister,
    }
}

fn listed(register: ListedRegister) -> Row {
    let ListedRegister { name, value, subregister } = register;
    let row = |kind, value, bytes| Row { name: name.clone(), kind, value, bytes, subregister };
    match value {
        RegisterValue::Int(value) => row(Kind::Int, Some(Value::Int(Address(value))), None),
        RegisterValue::Bytes(bytes) => row(Kind::Bytes, None, Some(HexBytes(bytes))),
        RegisterValue::Unavailable => row(Kind::Unavailable, None, None),
        RegisterValue::Float(value) => number(name, value, &value.to_le_bytes(), subregister),
    }
}

fn from_context(context: &Context, all: bool) -> Vec<Row> {
    let mut rows = integers(context);
    if all {
        rows.extend(parts(context));
        rows.extend(wide(context));
    }
    rows
}

impl Tool for Registers {
    const NAME: &'static str = "registers";
    const TITLE: &'static str = "Registers";
    const HINTS: Hints = Hints::READ;
    const PROSE: &'static [Fragment] = &[
        Fragment::Fixed(
            "Registers of the current thread (of a process crash: at the fault), or of another thread or \
             processor. A register the dump does not hold is `unavailable`, not zero. Of a kernel dump they are \
             the processor's at the stop, in KeBugCheckEx.",
        ),
        Fragment::If { needs: &["crash_triage"], text: "The fault itself: crash_triage." },
        Fragment::If {
            needs: &["crash_triage", "execute"],
            text: "Its stack_command in `execute`, with `r` for `k`, shows the fault's.",
        },
    ];
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
                (Some(Value::Int(Address(value))), _) => format!("{value:016x}"),
                (Some(Value::Float(value)), _) => format!("{value:e}"),
                (Some(Value::NonFinite(odd)), _) => match odd {
                    NonFinite::Nan => "nan".to_owned(),
                    NonFinite::Infinity => "infinity".to_owned(),
                    NonFinite::NegativeInfinity => "-infinity".to_owned(),
                },
                (None, Some(bytes)) => bytes.to_string(),
                (None, None) => "unavailable".to_owned(),
            };
            text.push_str(&format!("{:>6}={value}", row.name));
            column += 1;
            let wide = row.kind == Kind::Bytes;
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
        whose::has_threads(job.target)?;
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
            out.registers = match job.target.listed_registers(owned.of, owned.view, all_registers)? {
                Some(rows) => rows.into_iter().map(listed).collect(),
                None => from_context(&context, all_registers),
            };
        }
        Ok(out)
    }
}
