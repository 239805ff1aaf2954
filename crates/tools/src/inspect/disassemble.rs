//! `disassemble`: instructions with their attribution.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use target::{Address, Flow, HexBytes, Instruction, Machine, MemoryExt as _, Rva, Target, TargetExt as _};

use crate::error::{Category, ToolError};
use crate::location::{self, attribution};
use crate::prose::Fragment;
use crate::routing::SessionId;
use crate::surface::Surface;
use crate::table::fenced;
use crate::tool::{Hints, Job, Tool, WorkerTool};
use crate::whose;

pub(crate) struct Disassemble;

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Params {
    /// Expression; default the current instruction pointer. Bare digits are hex.
    #[serde(default)]
    address: Option<String>,
    /// Instructions, default 16.
    #[serde(default)]
    #[schemars(range(min = 1, max = 128))]
    count: Option<u32>,
    #[serde(default)]
    session_id: Option<SessionId>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct Row {
    address: Address,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    module: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rva: Option<Rva>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    attribution_failed: bool,
    /// Memory order; of ARM64 the instruction word.
    bytes: HexBytes,
    text: String,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Output {
    start: Address,
    /// Nearest symbol at or before `start`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    symbol: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    displacement: Option<Rva>,
    instructions: Vec<Row>,
    /// The code ended before the count; asking for more returns the same.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    stopped_early: bool,
}

fn row(target: &dyn Target, machine: Machine, instruction: &Instruction) -> Row {
    let (module, rva, attribution_failed) = attribution(target, instruction.address);
    let mut bytes = instruction.bytes.0.clone();
    if machine == Machine::Arm64 {
        bytes.reverse();
    }
    let text = match &instruction.text {
        // One space between words, no backticks: addresses in one form.
        Some(text) => text.replace('`', "").split_whitespace().collect::<Vec<_>>().join(" "),
        None => "???".to_owned(),
    };
    Row {
        address: Address(instruction.address),
        module,
        rva,
        attribution_failed,
        bytes: HexBytes(bytes),
        text,
    }
}

/// Names of what is called through a slot of an import table, which is read once a module.
struct Imported<'t> {
    target: &'t dyn Target,
    of: Option<(u64, Vec<pe::ImportedDll>)>,
}

impl Imported<'_> {
    /// The import a call or jump goes through, unless a symbol says it already.
    fn name(&mut self, instruction: &Instruction, text: &str) -> Option<String> {
        if !matches!(instruction.flow, Flow::IndirectCall | Flow::IndirectBranch) {
            return None;
        }
        let slot = instruction.data_address?;
        let module = self.target.module_at(slot).ok().flatten()?;
        if self.of.as_ref().is_none_or(|(base, _)| *base != module.base) {
            self.of = Some((module.base, expression::imports(self.target, module.base)));
        }
        let (base, imports) = self.of.as_ref()?;
        let name = expression::slot_name(imports, slot - base)?;
        let bare = name.rsplit_once('!').map_or(name.as_str(), |(_, bare)| bare);
        (!text.contains(bare)).then_some(name)
    }
}

impl Tool for Disassemble {
    const NAME: &'static str = "disassemble";
    const TITLE: &'static str = "Disassemble";
    const HINTS: Hints = Hints::READ;
    const PROSE: &'static [Fragment] =
        &[Fragment::Fixed("Instructions from an address on (default: where execution stands).")];
    type Params = Params;
    type Output = Output;

    fn check(params: &Params) -> Result<(), Vec<String>> {
        params.address.as_deref().map_or(Ok(()), |text| location::check_expression("address", text))
    }

    fn render(output: &Output, _: &Surface) -> String {
        let mut text = match (&output.symbol, output.displacement) {
            (Some(symbol), Some(displacement)) => format!("{symbol}+{displacement}\n"),
            _ => String::new(),
        };
        let rows: Vec<[String; 4]> = output
            .instructions
            .iter()
            .map(|row| {
                let place = match (&row.module, row.rva) {
                    (Some(module), Some(rva)) => format!("{module}+{rva}"),
                    _ => String::new(),
                };
                [row.address.to_string(), place, row.bytes.to_string(), row.text.clone()]
            })
            .collect();
        text.push_str(&fenced(["address", "where", "bytes", "instruction"], &rows));
        if output.stopped_early {
            text.push_str("\nThe code ends here: what follows is unmapped or no instruction.");
        }
        text
    }
}

impl WorkerTool for Disassemble {
    fn run(job: &mut Job<'_>, params: Params) -> Result<Output, ToolError> {
        let target = job.target;
        let start = match &params.address {
            Some(text) => location::evaluate(target, text, job.halt)?,
            None => {
                whose::context(target, None, None)?.context.map(|context| context.ip()).ok_or_else(|| {
                    ToolError::new(
                    Category::Debugger,
                    "the target has no register context, so there is no current instruction; give an address",
                )
                .because("no_context")
                })?
            }
        };
        let count = params.count.unwrap_or(16) as usize;
        let machine = target.facts().machine;
        let found = target.disassemble(start, count)?;
        let mut instructions = Vec::with_capacity(found.len());
        let mut undecodable = false;
        let mut imported = Imported { target, of: None };
        for instruction in found.iter().take(count) {
            let mut row = row(target, machine, instruction);
            if let Some(name) = imported.name(instruction, &row.text) {
                row.text.push_str(&format!(" {{{name}}}"));
            }
            instructions.push(row);
            if instruction.text.is_none() {
                undecodable = true;
                break;
            }
        }
        if instructions.is_empty() {
            // Why the first byte does not read, else that it begins no instruction.
            target.read_u8(start).map_err(target::TargetError::from)?;
            let message = format!("no instruction was decoded at {}", Address(start));
            return Err(ToolError::new(Category::Debugger, message).because("no_code"));
        }
        let hit = target.symbol_at(start).ok().flatten();
        Ok(Output {
            start: Address(start),
            displacement: hit.as_ref().map(|hit| Rva(hit.displacement)),
            symbol: hit.map(|hit| hit.qualified()),
            stopped_early: undecodable || instructions.len() < count,
            instructions,
        })
    }
}
