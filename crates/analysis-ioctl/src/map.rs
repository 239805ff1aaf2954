//! The answer: control codes with where they go, what guards them, and how sure it is.

mod build;
mod render;

use code_flow::{CodeLocation, Coverage, ImageRecord};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use target::{Address, Code, Rva};

pub use build::{MapRequest, Mapped, location, map_entry};
pub use render::render;

use crate::analysis::{Convention, Recovered};

/// How a site told its codes apart from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum RecoveredBy {
    Compare,
    JumpTable,
    BitTest,
    PointerTable,
    TableScan,
    Range,
}

impl From<Recovered> for RecoveredBy {
    fn from(recovered: Recovered) -> Self {
        match recovered {
            Recovered::Compare => Self::Compare,
            Recovered::JumpTable => Self::JumpTable,
            Recovered::BitTest => Self::BitTest,
            Recovered::PointerTable => Self::PointerTable,
            Recovered::TableScan => Self::TableScan,
            Recovered::Range => Self::Range,
        }
    }
}

/// One place that tells a code apart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SiteRow {
    pub at: Rva,
    pub recovered: RecoveredBy,
    /// The value was traced from the request; else it is only at the right offset of something.
    pub proved: bool,
    /// The concrete interpreter got there too. Absent: not asked, or it could not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified: Option<bool>,
    pub lands: Rva,
    /// Call sites between the routine and the function this is in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub via: Vec<Rva>,
}

/// A status word.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StatusValue {
    pub value: Code,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Bounds of a length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SizeRange {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<u32>,
}

/// A check of a length that every accepted request passes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EvidenceRow {
    /// `input` or `output`.
    pub field: String,
    /// `eq`, `ne`, `le`, `ge`: what holds on the way on.
    pub op: String,
    pub value: u32,
    pub at: Rva,
    pub exact: bool,
}

/// One control code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CodeRow {
    pub code: Code,
    pub device_type: u16,
    pub function: u16,
    /// `buffered`, `in_direct`, `out_direct`, `neither`.
    pub method: String,
    /// `any`, `read`, `write`, `read_write`.
    pub required_access: String,
    pub sites: Vec<SiteRow>,
    /// Where the case begins.
    pub case_rva: Rva,
    /// First function of the image an accepted request is handed to. Absent: inline, or through a
    /// pointer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handler: Option<CodeLocation>,
    /// The function the case is in, where it is not the routine itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dispatch_rva: Option<Rva>,
    /// false: refused on every path. Absent: cannot be told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<StatusValue>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_size: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub out_size: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_range: Option<SizeRange>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub out_range: Option<SizeRange>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<EvidenceRow>,
}

/// Codes told apart by some of their bits only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PatternRow {
    pub mask: Code,
    pub value: Code,
    pub count: u64,
    pub at: Rva,
    pub lands: Rva,
    pub recovered: RecoveredBy,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handler: Option<CodeLocation>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted: Option<bool>,
    /// Each of its codes is in `codes` too.
    pub listed: bool,
}

/// A code the two interpreters disagree on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DisputedRow {
    pub code: Code,
    pub at: Rva,
    pub lands: Rva,
}

/// What happens to every other code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DefaultRow {
    pub lands: Rva,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<StatusValue>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted: Option<bool>,
}

/// A table that was followed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TableRow {
    pub at: Rva,
    pub table: Rva,
    pub entries: usize,
    /// Entries that do not lead to the default.
    pub followed: usize,
    pub entry_size: u8,
    pub form: String,
}

/// An indirect transfer that was not followed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UnresolvedRow {
    pub at: Rva,
    pub reason: String,
}

/// The codes one routine accepts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IoctlMap {
    pub dispatch: CodeLocation,
    /// `wdm`, `fast_io`, `wdf_device_control`, `wdf_default`, `wdf_in_caller_context`.
    pub convention: String,
    pub major: u8,
    /// `given`, `replay` or `static`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The code was traced from the request, and every site compares it.
    pub code_proved: bool,
    pub codes: Vec<CodeRow>,
    pub code_count: usize,
    pub site_count: usize,
    pub unproved_count: usize,
    pub patterns: Vec<PatternRow>,
    pub disputed: Vec<DisputedRow>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<DefaultRow>,
    pub tables: Vec<TableRow>,
    /// Indirect transfers that codes may take and that were not followed.
    pub unresolved: Vec<UnresolvedRow>,
    pub unresolved_count: usize,
    /// Tests of the code that are not understood.
    pub untracked: Vec<Rva>,
    pub untracked_count: usize,
    pub blind: u64,
    /// The analysis did not come to rest: no fact of it is used.
    pub unsettled: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also_majors: Vec<u8>,
    pub coverage: Coverage,
    /// Nothing above cut it short, and the code was seen read: no other code is told apart here.
    pub complete: bool,
}

/// The images named in an answer.
pub type Images = Vec<ImageRecord>;

impl IoctlMap {
    /// The map of a driver that installs no routine for control codes; `dispatch` is its entry point.
    #[must_use]
    pub fn without_routine(dispatch: CodeLocation, complete: bool) -> Self {
        Self {
            dispatch,
            convention: Convention::Wdm.name().to_owned(),
            major: 0x0e,
            source: Some("none".to_owned()),
            code_proved: false,
            codes: Vec::new(),
            code_count: 0,
            site_count: 0,
            unproved_count: 0,
            patterns: Vec::new(),
            disputed: Vec::new(),
            default: None,
            tables: Vec::new(),
            unresolved: Vec::new(),
            unresolved_count: 0,
            untracked: Vec::new(),
            untracked_count: 0,
            blind: 0,
            unsettled: false,
            also_majors: Vec::new(),
            coverage: Coverage::default(),
            complete,
        }
    }

    /// A routine is there, and nothing in it was seen to look at the code.
    #[must_use]
    pub fn never_read(&self) -> bool {
        !self.code_proved && self.code_count == 0 && self.source.as_deref() != Some("none")
    }

    /// An address of a row, in the routine's image.
    #[must_use]
    pub fn address(&self, base: u64, rva: Rva) -> Address {
        Address(base.wrapping_add(rva.0))
    }
}

/// The convention called `name`.
#[must_use]
pub fn convention_named(name: &str) -> Option<Convention> {
    [
        Convention::Wdm,
        Convention::FastIo,
        Convention::WdfDeviceControl,
        Convention::WdfDefault,
        Convention::WdfInCallerContext,
    ]
    .into_iter()
    .find(|convention| convention.name() == name)
}
