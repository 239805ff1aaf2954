//! Stack frames. Each says how it was found; a scanned frame is never presented as walked.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::context::Context;
use crate::module::Attribution;
use crate::symbol::{SourceLine, SymbolHit};
use crate::value::{Address, Rva};

/// How a frame was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum Found {
    /// The starting context itself.
    Context,
    /// From the caller's unwind data.
    Unwind,
    /// The function below had no unwind data: a leaf, its return address on top of the stack.
    Leaf,
    FramePointer,
    /// From an x86 FPO or FrameData program.
    Fpo,
    /// A stack word that looks like a return address: a guess.
    Scan,
}

/// One frame, engine-neutral.
#[derive(Clone, Debug, PartialEq)]
pub struct Frame {
    pub ip: u64,
    pub sp: u64,
    pub found: Found,
    /// Shares ip and sp with the physical frame below it in the list.
    pub inline: bool,
    pub attribution: Attribution,
    pub symbol: Option<SymbolHit>,
    pub source: Option<SourceLine>,
    /// Registers of this frame, the restored ones valid. `None` when the engine does not give them.
    pub context: Option<Box<Context>>,
    /// Return address of this frame's function, for the debugger's `RetAddr` column.
    pub return_address: u64,
}

/// Why a walk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalkEnd {
    /// The outermost frame was reached: a null return address.
    Outermost,
    Limit,
    /// No unwind data or memory to go on with.
    Lost(&'static str),
    /// The stack pointer did not move up, or the frames repeat.
    NoProgress,
    Deadline,
    Interrupted,
}

/// A walked stack.
#[derive(Clone, Debug, PartialEq)]
pub struct Stack {
    pub frames: Vec<Frame>,
    pub end: WalkEnd,
    /// Things a reader must know: images missing, user memory absent.
    pub limitations: Vec<String>,
}

/// A source position in a result row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SourceInfo {
    pub file: String,
    pub line: u32,
}

/// One frame in a result (spec 00 decision 24): the one shape everywhere.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FrameInfo {
    pub index: u32,
    pub address: Address,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sp: Option<Address>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub module: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rva: Option<Rva>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub symbol: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub displacement: Option<Rva>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<SourceInfo>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub inline: bool,
    pub found: Found,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub attribution_failed: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unloaded_module: Option<String>,
}

impl FrameInfo {
    /// The row of `frame` at `index`.
    #[must_use]
    pub fn new(index: usize, frame: &Frame) -> Self {
        let (module, rva, unloaded, failed) = match &frame.attribution {
            Attribution::Module { name, rva, .. } => (Some(name.clone()), Some(Rva(*rva)), None, false),
            Attribution::NoModule { unloaded } => (None, None, unloaded.clone(), false),
            Attribution::LookupFailed => (None, None, None, true),
        };
        Self {
            index: u32::try_from(index).unwrap_or(u32::MAX),
            address: Address(frame.ip),
            sp: (frame.sp != 0).then_some(Address(frame.sp)),
            module,
            rva,
            symbol: frame.symbol.as_ref().map(SymbolHit::qualified),
            displacement: frame.symbol.as_ref().map(|hit| Rva(frame.ip.wrapping_sub(hit.address))),
            source: frame.source.as_ref().map(|s| SourceInfo { file: s.file.clone(), line: s.line }),
            inline: frame.inline,
            found: frame.found,
            attribution_failed: failed,
            unloaded_module: unloaded,
        }
    }

    /// `module!symbol+0x1c`, `module+0x334c`, or the bare address; how people name a frame.
    #[must_use]
    pub fn place(&self) -> String {
        match (&self.symbol, &self.module, &self.rva) {
            (Some(symbol), _, _) => match self.displacement {
                Some(Rva(0)) | None => symbol.clone(),
                Some(displacement) => format!("{symbol}+{displacement}"),
            },
            (None, Some(module), Some(rva)) => format!("{module}+{rva}"),
            _ => self.address.to_string(),
        }
    }
}
