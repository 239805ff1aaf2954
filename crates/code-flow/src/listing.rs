//! A function's instructions, found by recursive descent.

use std::collections::{BTreeMap, BTreeSet};

use code::Decoded;
use code::record::Transfer;

use crate::image::CodeImage;
use crate::vocabulary::Stopped;

/// Instructions one listing may hold.
pub const MAX_INSTRUCTIONS: usize = 65_536;
/// Basic blocks one listing may hold.
pub const MAX_BLOCKS: usize = 8_192;
/// Rounds of resolving tables and descending again.
pub const MAX_ROUNDS: usize = 16;

/// How control leaves a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EdgeKind {
    Call,
    TailJump,
}

/// A direct transfer out of the listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ExternalEdge {
    pub site: u64,
    pub target: u64,
    pub kind: EdgeKind,
}

/// Why an entry is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntrySource {
    /// The unwind table begins a function there.
    Unwind,
    /// A known start (export, symbol, call target, ...).
    KnownStart,
    /// Only because the caller said so.
    Given,
}

/// A resolved indirect jump or call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedTable {
    /// The jump or call.
    pub site: u64,
    /// First byte of the table that holds targets.
    pub table: u64,
    /// Slots of the table, and the targets behind them in slot order (a target may repeat).
    pub targets: Vec<u64>,
    /// Bytes per slot.
    pub entry_size: u8,
    /// `rva32`, `relative32`, `absolute32`, `byte_map`, `pointer`, ...
    pub form: &'static str,
}

/// What a resolver says of one indirect transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolution {
    Resolved(ResolvedTable),
    /// Not a table this resolver can prove; why, for `unresolved[]`.
    Unresolved(&'static str),
}

/// Resolves indirect jumps to their targets. Called between rounds of the descent, so the listing
/// holds what was found so far. Must be bounded by itself.
pub trait TableResolver {
    fn resolve(&self, image: &CodeImage<'_>, listing: &Listing, site: u64) -> Resolution;
}

/// Resolves nothing.
pub struct NoTables;

impl TableResolver for NoTables {
    fn resolve(&self, _: &CodeImage<'_>, _: &Listing, _: u64) -> Resolution {
        Resolution::Unresolved("tables were not asked for")
    }
}

/// A function.
#[derive(Clone, Debug)]
pub struct Listing {
    pub entry: u64,
    pub entry_source: EntrySource,
    /// By address.
    pub instructions: BTreeMap<u64, Decoded>,
    pub external_edges: Vec<ExternalEdge>,
    /// Where jumps, branches and tables inside the function lead.
    pub branch_targets: BTreeSet<u64>,
    /// Addresses that would not read or decode.
    pub blind: Vec<u64>,
    /// Instructions that begin inside another one.
    pub overlaps: Vec<u64>,
    /// `[start, end)` of the unwind records (or of the extent used), by address.
    pub regions: Vec<(u64, u64)>,
    /// Calls after which control does not return.
    pub no_return_calls: Vec<u64>,
    pub tables: Vec<ResolvedTable>,
    /// Indirect jumps that were not resolved, with the reason. Jumps to imports are not among them.
    pub unresolved: Vec<(u64, &'static str)>,
    pub stopped: Option<Stopped>,
    /// Caps that ended the descent.
    pub caps: Vec<&'static str>,
}

impl Listing {
    /// The straight-line code right before `site`, at most `count` instructions: nothing jumps into
    /// it and nothing but calls leaves it.
    #[must_use]
    pub fn straight_before(&self, site: u64, count: usize) -> Vec<&Decoded> {
        let mut out: Vec<&Decoded> = Vec::new();
        let mut at = site;
        while out.len() < count && !self.branch_targets.contains(&at) {
            let Some((_, before)) = self.instructions.range(..at).next_back() else { break };
            let whole = matches!(before.transfer, Transfer::Fallthrough | Transfer::Call(_));
            if before.end() != at || !whole {
                break;
            }
            out.push(before);
            at = before.address;
        }
        out.reverse();
        out
    }
}
