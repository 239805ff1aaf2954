//! Recursive descent over one function.

use std::collections::{BTreeMap, BTreeSet};

use code::record::Transfer;
use code::{Decoded, Recorder};
use target::Halt;

use crate::callee::{Callee, callee, callee_in, decode_at, retpoline};
use crate::image::CodeImage;
use crate::listing::{
    EdgeKind, EntrySource, ExternalEdge, Listing, MAX_BLOCKS, MAX_INSTRUCTIONS, MAX_ROUNDS, Resolution,
    TableResolver,
};
use crate::no_return::never_returns;

/// Instructions between two looks at the halt.
const POLL: usize = 256;

/// How a target is reached.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Via {
    Conditional,
    Unconditional,
}

/// The function that starts at `entry`. What belongs to it depends on the starts known: build an
/// [`ImageIndex`](crate::ImageIndex) of the image first, or [`CodeImage::learn`] one.
#[must_use]
pub fn listing(image: &CodeImage<'_>, entry: u64, tables: &dyn TableResolver, halt: &Halt) -> Listing {
    let mut descent = Descent::new(image, entry, halt);
    descent.follow(entry);
    for round in 0.. {
        if round >= MAX_ROUNDS {
            descent.cap("table_rounds");
            break;
        }
        if !descent.tables(tables) {
            break;
        }
    }
    descent.finish()
}

/// Start of the function `address` lies in: from the unwind records, else the nearest known start
/// before it in the same section. `None` when nothing is known.
#[must_use]
pub fn function_at(image: &CodeImage<'_>, address: u64) -> Option<u64> {
    let rva = image.rva(address)?;
    if image.is_start(address) {
        return Some(address);
    }
    if let Some(region) = image.regions().at(rva) {
        return Some(image.base + u64::from(region.primary));
    }
    let section = image.section_at(address)?;
    let start = image.start_before(address)?;
    // A record between the two: `address` lies in a gap after another function.
    let between = image.rva(start).and_then(|s| image.regions().at(s)).is_some_and(|r| r.end <= rva);
    (!between && image.section_at(start) == Some(section)).then_some(start)
}

struct Descent<'i, 'a> {
    image: &'i CodeImage<'a>,
    recorder: Recorder,
    halt: &'i Halt,
    out: Listing,
    /// Primary record of the function, as RVA.
    primary: Option<u32>,
    /// `[start, end)` ranges that belong to the function.
    extent: Vec<(u64, u64)>,
    edges: BTreeSet<ExternalEdge>,
    blind: BTreeSet<u64>,
    overlaps: BTreeSet<u64>,
    /// Indirect jumps and what was last said of them.
    indirect: BTreeMap<u64, &'static str>,
}

impl<'i, 'a> Descent<'i, 'a> {
    fn new(image: &'i CodeImage<'a>, entry: u64, halt: &'i Halt) -> Self {
        let region = image.rva(entry).and_then(|rva| image.regions().at(rva));
        let own = region.filter(|region| image.rva(entry) == Some(region.begin));
        let entry_source = match own {
            Some(_) => EntrySource::Unwind,
            None if image.is_start(entry) => EntrySource::KnownStart,
            None => EntrySource::Given,
        };
        let primary = region.map(|region| region.primary);
        let extent = match primary {
            Some(primary) => image
                .regions()
                .of(primary)
                .iter()
                .map(|part| (image.base + u64::from(part.begin), image.base + u64::from(part.end)))
                .collect(),
            None => vec![(entry, gap_end(image, entry))],
        };
        let out = Listing {
            entry,
            entry_source,
            instructions: BTreeMap::new(),
            external_edges: Vec::new(),
            branch_targets: BTreeSet::new(),
            blind: Vec::new(),
            overlaps: Vec::new(),
            regions: Vec::new(),
            no_return_calls: Vec::new(),
            tables: Vec::new(),
            unresolved: Vec::new(),
            stopped: None,
            caps: Vec::new(),
        };
        Self {
            image,
            recorder: Recorder::new(image.machine),
            halt,
            out,
            primary,
            extent,
            edges: BTreeSet::new(),
            blind: BTreeSet::new(),
            overlaps: BTreeSet::new(),
            indirect: BTreeMap::new(),
        }
    }

    fn cap(&mut self, name: &'static str) {
        if !self.out.caps.contains(&name) {
            self.out.caps.push(name);
        }
    }

    fn in_extent(&self, address: u64) -> bool {
        self.extent.iter().any(|&(start, end)| address >= start && address < end)
    }

    /// Decodes everything reached from `from`.
    fn follow(&mut self, from: u64) {
        let mut queue = vec![from];
        while let Some(start) = queue.pop() {
            self.path(start, &mut queue);
            if self.out.stopped.is_some() || self.out.instructions.len() >= MAX_INSTRUCTIONS {
                return;
            }
        }
    }

    /// One path, until it ends or meets what is decoded already.
    fn path(&mut self, start: u64, queue: &mut Vec<u64>) {
        let mut at = start;
        while !self.out.instructions.contains_key(&at) {
            if self.out.instructions.len() >= MAX_INSTRUCTIONS {
                return self.cap("listing_instructions");
            }
            if self.out.instructions.len().is_multiple_of(POLL)
                && let Some(stop) = self.halt.stop()
            {
                self.out.stopped = Some(stop.into());
                return;
            }
            let instruction = decode_at(self.image, &mut self.recorder, at);
            if matches!(instruction.transfer, Transfer::Unreadable | Transfer::Undecodable) {
                self.blind.insert(at);
                return;
            }
            self.note_overlap(at, &instruction);
            let goes_on = self.transfer(&instruction, queue);
            let next = instruction.end();
            let after_call = matches!(instruction.transfer, Transfer::Call(_));
            self.out.instructions.insert(at, instruction);
            if !goes_on || !self.falls_into(at, next, after_call) {
                return;
            }
            at = next;
        }
    }

    fn note_overlap(&mut self, at: u64, instruction: &Decoded) {
        let before = self.out.instructions.range(..at).next_back();
        if before.is_some_and(|(_, other)| other.end() > at) {
            self.overlaps.insert(at);
        }
        if self.out.instructions.range(at + 1..instruction.end()).next().is_some() {
            self.overlaps.insert(at);
        }
    }

    /// Records where an instruction leads; whether control goes on behind it.
    fn transfer(&mut self, instruction: &Decoded, queue: &mut Vec<u64>) -> bool {
        let site = instruction.address;
        match instruction.transfer {
            Transfer::Fallthrough => true,
            Transfer::Branch(target) => {
                if let Some(target) = target {
                    self.edge(site, target, Via::Conditional, queue);
                }
                true
            }
            Transfer::Jump(Some(target)) if retpoline(self.image, target).is_some() => {
                self.indirect.entry(site).or_insert("");
                false
            }
            Transfer::Jump(Some(target)) => {
                self.edge(site, target, Via::Unconditional, queue);
                false
            }
            Transfer::Jump(None) => {
                if callee(self.image, instruction) == Callee::Indirect {
                    self.indirect.entry(site).or_insert("");
                }
                false
            }
            // `call $+5` reads its own address.
            Transfer::Call(Some(target)) if target == instruction.end() => true,
            Transfer::Call(target) => {
                if let Some(target) = target.filter(|target| retpoline(self.image, *target).is_none()) {
                    self.image.note_start(target);
                    self.edges.insert(ExternalEdge { site, target, kind: EdgeKind::Call });
                }
                let ends = never_returns(self.image, instruction);
                if ends {
                    self.out.no_return_calls.push(site);
                }
                !ends
            }
            Transfer::Return | Transfer::Trap | Transfer::Unreadable | Transfer::Undecodable => false,
        }
    }

    /// A jump or branch: inside the function, or an edge out of it.
    fn edge(&mut self, site: u64, target: u64, via: Via, queue: &mut Vec<u64>) {
        if self.belongs(target, via) {
            self.target(target, queue);
        } else {
            self.edges.insert(ExternalEdge { site, target, kind: EdgeKind::TailJump });
        }
    }

    fn target(&mut self, target: u64, queue: &mut Vec<u64>) {
        if self.out.branch_targets.len() >= MAX_BLOCKS {
            return self.cap("listing_blocks");
        }
        if self.out.branch_targets.insert(target) {
            queue.push(target);
        }
    }

    /// Whether a target is part of this function. Compilers split cold parts off into records of
    /// their own, which only conditional branches enter.
    fn belongs(&mut self, target: u64, via: Via) -> bool {
        if self.in_extent(target) {
            return true;
        }
        let Some(rva) = self.image.rva(target) else { return false };
        if via == Via::Unconditional || !self.image.is_executable(target) || self.image.is_start(target) {
            return false;
        }
        let part = match self.image.regions().at(rva) {
            Some(region) => {
                let (begin, end) = (region.begin, region.end);
                (self.image.base + u64::from(begin), self.image.base + u64::from(end))
            }
            None => (target, gap_end(self.image, target)),
        };
        self.extent.push(part);
        true
    }

    /// Whether control may run on from `site` into `next`.
    fn falls_into(&mut self, site: u64, next: u64, after_call: bool) -> bool {
        if self.in_extent(next) {
            return true;
        }
        // A call that ends a function's code does not come back.
        if after_call {
            self.out.no_return_calls.push(site);
            return false;
        }
        let Some(rva) = self.image.rva(next) else {
            self.blind.insert(next);
            return false;
        };
        if self.image.regions().at(rva).is_some() || self.image.is_start(next) {
            self.edges.insert(ExternalEdge { site, target: next, kind: EdgeKind::TailJump });
            return false;
        }
        self.extent.push((next, gap_end(self.image, next)));
        true
    }

    /// Resolves indirect jumps; whether new code came of it.
    fn tables(&mut self, resolver: &dyn TableResolver) -> bool {
        let sites: Vec<u64> = self.indirect.keys().copied().collect();
        let before = self.out.instructions.len();
        self.publish();
        for site in sites {
            if self.out.stopped.is_some() {
                return false;
            }
            if matches!(callee_in(self.image, &self.out, site), Callee::Import(_)) {
                self.indirect.remove(&site);
                continue;
            }
            match resolver.resolve(self.image, &self.out, site) {
                Resolution::Resolved(table) => {
                    let mut queue = Vec::new();
                    for target in &table.targets {
                        self.target(*target, &mut queue);
                    }
                    for target in queue {
                        self.follow(target);
                    }
                    self.indirect.remove(&site);
                    self.out.tables.push(table);
                }
                Resolution::Unresolved(why) => {
                    self.indirect.insert(site, why);
                }
            }
        }
        self.out.instructions.len() > before
    }

    /// Puts what was collected so far into the listing, for resolvers to look at.
    fn publish(&mut self) {
        self.out.external_edges = self.edges.iter().copied().collect();
        self.out.blind = self.blind.iter().copied().collect();
        self.out.overlaps = self.overlaps.iter().copied().collect();
        self.out.unresolved = self.indirect.iter().map(|(site, why)| (*site, *why)).collect();
    }

    fn finish(mut self) -> Listing {
        self.publish();
        self.out.regions = std::mem::take(&mut self.extent);
        self.out.regions.sort_unstable();
        self.out.regions.dedup();
        if self.primary.is_none() {
            // Without records the extent is a guess up to the next start: what was decoded is not.
            let last = self.out.instructions.values().map(Decoded::end).max();
            for region in &mut self.out.regions {
                region.1 = region.1.min(last.unwrap_or(region.1).max(region.0));
            }
        }
        self.out.no_return_calls.sort_unstable();
        self.out.no_return_calls.dedup();
        self.out
    }
}

/// End of a function that has no unwind record: the next start or record, or its section's end.
fn gap_end(image: &CodeImage<'_>, start: u64) -> u64 {
    let Some(rva) = image.rva(start) else { return start };
    let section = image.pe.section_at(rva);
    let section_end = section.map_or(image.size, |section| {
        section.rva.saturating_add(section.virtual_size.max(section.raw_size)).min(image.size)
    });
    let mut end = image.base + u64::from(section_end.max(rva));
    if let Some(record) = image.regions().next_begin(rva) {
        end = end.min(image.base + u64::from(record));
    }
    if let Some(next) = image.next_start(start) {
        end = end.min(next);
    }
    end.max(start.saturating_add(1))
}
