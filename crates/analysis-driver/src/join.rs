//! From a control code to what it leads to and who may send it (spec 40 section 9.11).

use std::collections::HashMap;
use std::rc::Rc;

use analysis_ioctl::map::{CodeRow, IoctlMap};
use code_flow::{CodeImage, ImageIndex, ImportUse, SinkKind, Spread, Stopped, Structural, sink_kind, spread};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use target::{Code, Halt, Rva};

use crate::access::{AccessModel, TokenKind};
use crate::control_code::ControlCode;

/// A sensitive routine a code leads to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReachedSink {
    pub sink: String,
    pub kind: SinkKind,
    /// Calls between the case and the function that calls it.
    pub depth: u32,
    /// Call sites, the sink's own last.
    pub path: Vec<Rva>,
}

/// A privileged instruction a code leads to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReachedPrivileged {
    pub at: Rva,
    pub kind: String,
}

/// One code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JoinRow {
    pub code: Code,
    pub reaches: Vec<ReachedSink>,
    pub privileged: Vec<ReachedPrivileged>,
    /// Classes of the findings about it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<String>,
    /// Who can open a device with the access the code needs. Absent: no descriptor was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deliverable_to: Option<Vec<TokenKind>>,
    /// Depth or functions ended the search: more may be reached.
    pub bound_hit: bool,
    /// Indirect transfers on the way that nobody resolved.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unresolved: usize,
}

fn is_zero(value: &usize) -> bool {
    *value == 0
}

/// The join of every accepted code.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Join {
    pub codes: Vec<JoinRow>,
    /// Codes of the map that are refused on every path.
    pub refused: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<Stopped>,
}

/// How far a join looks.
#[derive(Clone, Copy, Debug)]
pub struct JoinBounds {
    pub depth: u32,
    pub functions: usize,
}

const MAX_ROWS: usize = 1024;
const MAX_SINKS: usize = 64;
const MAX_PRIVILEGED: usize = 64;

/// Joins the codes of `maps` with what they reach in `image` and with the gates of the devices.
/// `findings` names the classes found for a code.
#[must_use]
pub fn join(
    image: &CodeImage<'_>,
    index: &ImageIndex,
    maps: &[IoctlMap],
    gates: &[&AccessModel],
    findings: &dyn Fn(Code) -> Vec<String>,
    bounds: JoinBounds,
    halt: &Halt,
) -> Join {
    let mut out = Join::default();
    let mut spreads: HashMap<u64, Rc<Spread>> = HashMap::new();
    for row in maps.iter().flat_map(|map| &map.codes) {
        if row.accepted == Some(false) {
            out.refused += 1;
            continue;
        }
        if out.codes.iter().any(|seen| seen.code == row.code) || out.codes.len() >= MAX_ROWS {
            continue;
        }
        if let Some(stop) = halt.stop() {
            out.stopped = Some(stop.into());
            break;
        }
        let landing = image.base.wrapping_add(row.case_rva.0);
        let reached = spreads.entry(landing).or_insert_with(|| {
            Rc::new(spread(image, landing, &Structural, bounds.depth, bounds.functions, halt))
        });
        out.stopped = out.stopped.or(reached.stopped);
        out.codes.push(joined(image, index, row, reached, gates, findings));
    }
    out
}

fn joined(
    image: &CodeImage<'_>,
    index: &ImageIndex,
    row: &CodeRow,
    reached: &Spread,
    gates: &[&AccessModel],
    findings: &dyn Fn(Code) -> Vec<String>,
) -> JoinRow {
    let rva = |address: u64| Rva(address.wrapping_sub(image.base));
    let mut reaches: Vec<ReachedSink> = Vec::new();
    for slot in &image.imports().slots {
        let Some(name) = &slot.name else { continue };
        let Some(kind) = sink_kind(name) else { continue };
        let called = index.uses(slot.slot).filter(|site| site.how == ImportUse::Called);
        let nearest =
            called.filter(|site| reached.reaches(site.at)).min_by_key(|site| reached.depth(site.at));
        if let Some(site) = nearest.filter(|_| reaches.len() < MAX_SINKS) {
            let path = reached.path(site.at).into_iter().chain([site.at]).map(rva).collect();
            reaches.push(ReachedSink { sink: name.clone(), kind, depth: reached.depth(site.at), path });
        }
    }
    reaches.sort_by(|a, b| (a.depth, &a.sink).cmp(&(b.depth, &b.sink)));
    reaches.dedup_by(|a, b| a.sink == b.sink);
    let privileged = index.privileged.iter().filter(|site| reached.reaches(site.at)).take(MAX_PRIVILEGED);
    let privileged = privileged
        .filter_map(|site| {
            site.kind.map(|kind| ReachedPrivileged { at: rva(site.at), kind: kind.name().to_owned() })
        })
        .collect();
    JoinRow {
        code: row.code,
        reaches,
        privileged,
        findings: findings(row.code),
        deliverable_to: deliverable(row.code, gates),
        bound_hit: reached.bound_hit,
        unresolved: reached.unresolved,
    }
}

/// Kinds of caller that can open one of the devices with the access the code requires.
fn deliverable(code: Code, gates: &[&AccessModel]) -> Option<Vec<TokenKind>> {
    let required = ControlCode(code.0).required_access();
    let opens = |token: TokenKind| {
        let rows = gates.iter().flat_map(|gate| &gate.tokens).filter(|row| row.token == token);
        rows.into_iter().any(|row| row.delivers.contains(&required))
    };
    (!gates.is_empty()).then(|| TokenKind::ALL.into_iter().filter(|token| opens(*token)).collect())
}
