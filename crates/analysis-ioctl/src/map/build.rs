//! From findings to rows.

use std::collections::{BTreeMap, BTreeSet};

use code_flow::{CodeImage, CodeLocation, Coverage, Range};
use target::{Address, Code, Halt, Rva};

use super::{
    CodeRow, DefaultRow, DisputedRow, EvidenceRow, IoctlMap, PatternRow, SiteRow, SizeRange, StatusValue,
    TableRow, UnresolvedRow,
};
use crate::analysis::{Convention, Findings, Question, Recovered, Site, analyse};
use crate::explore::{Evidence, Fate};
use crate::expr::Variable;
use crate::flow::MAX_SWEEPS;
use crate::pass::{FrameworkTable, Pass};
use crate::set::{Set, Sets};
use crate::verify::Verifier;

/// Sites counted in detail.
const MAX_SITES: usize = 16_384;
/// Rows of the smaller lists.
const MAX_TABLES: usize = 256;
const MAX_DOUBTS: usize = 1024;
/// Codes and landings the interpreter is asked about.
const MAX_VERIFIED: usize = 6144;
/// A pattern of up to this many codes is listed code by code as well.
const MAX_EXPANDED: u64 = 256;
/// Method and access bits of a control code.
const METHOD_AND_ACCESS: u32 = 0xc003;

/// What to map.
#[derive(Clone, Debug)]
pub struct MapRequest {
    pub entry: u64,
    /// `None`: try `wdm`, and the framework's where there is a framework.
    pub convention: Option<Convention>,
    pub major: u8,
    pub framework: Option<FrameworkTable>,
    pub descend: bool,
    pub verify: bool,
    /// Codes listed; the count is exact.
    pub max_codes: usize,
    /// Sweeps over one function, for tests; [`MAX_SWEEPS`] otherwise.
    pub sweeps: usize,
    /// How the entry was found.
    pub source: Option<String>,
    pub also_majors: Vec<u8>,
}

impl MapRequest {
    /// A WDM dispatch routine at `entry`, everything else as it is by default.
    #[must_use]
    pub fn at(entry: u64) -> Self {
        Self {
            entry,
            convention: None,
            major: 0x0e,
            framework: None,
            descend: true,
            verify: true,
            max_codes: 1024,
            sweeps: MAX_SWEEPS,
            source: None,
            also_majors: Vec::new(),
        }
    }
}

/// A map, and what analyses that go on from it need.
pub struct Mapped {
    pub map: IoctlMap,
    pub question: Question,
}

/// Maps one entry point of `image`.
#[must_use]
pub fn map_entry(image: &CodeImage<'_>, request: &MapRequest, halt: &Halt) -> Mapped {
    let conventions: Vec<Convention> = match request.convention {
        Some(convention) => vec![convention],
        None if request.framework.is_some() => {
            vec![Convention::Wdm, Convention::WdfDeviceControl, Convention::WdfDefault]
        }
        None => vec![Convention::Wdm],
    };
    let mut first = None;
    for convention in conventions {
        let mapped = map_as(image, request, convention, halt);
        if mapped.1 {
            return mapped.0;
        }
        first.get_or_insert(mapped.0);
    }
    // Nothing traced a code: the plain reading stands. There is always one.
    first.unwrap_or_else(|| map_as(image, request, Convention::Wdm, halt).0)
}

/// The map, and whether it traced the code.
fn map_as(
    image: &CodeImage<'_>,
    request: &MapRequest,
    convention: Convention,
    halt: &Halt,
) -> (Mapped, bool) {
    let constants = |address: u64, size: u8| image.constant(address, usize::from(size));
    let mut pass = Pass::new(image, &constants, request.major);
    let question = Question {
        entry: request.entry,
        convention,
        major: request.major,
        framework: request.framework,
        descend: request.descend,
        sweeps: request.sweeps,
    };
    let found = analyse(&mut pass, question, halt);
    let traced = found.traced;
    let map = Build { image, request, question, halt, sets: &mut pass.solver.sets, found: &found }.build();
    (Mapped { map, question }, traced)
}

/// An address with what is known of it.
#[must_use]
pub fn location(image: &CodeImage<'_>, address: u64) -> CodeLocation {
    let mut out = CodeLocation::at(address);
    if let Some(rva) = image.rva(address) {
        out.module = Some(image.record.module.clone());
        out.rva = Some(Rva(u64::from(rva)));
        out.section = image.section_at(address).map(|section| section.name.clone());
    }
    if let Some((symbol, displacement)) = image.names().nearest(address) {
        out.symbol = Some(symbol);
        out.displacement = Some(Rva(displacement));
    }
    out
}

struct Build<'b, 'i, 'a> {
    image: &'i CodeImage<'a>,
    request: &'b MapRequest,
    question: Question,
    halt: &'b Halt,
    sets: &'b mut Sets,
    found: &'b Findings,
}

/// One code with the sites that tell it apart.
struct Case<'f> {
    sites: BTreeMap<(u64, u64, Recovered), (&'f Site, Option<bool>)>,
}

impl<'b> Build<'b, '_, '_> {
    fn rva(&self, address: u64) -> Rva {
        Rva(address.wrapping_sub(self.image.base))
    }

    fn build(mut self) -> IoctlMap {
        let mut coverage = self.coverage();
        let patterns = self.patterns();
        let (cases, disputed, site_count) = self.cases(&mut coverage);
        let found = self.found;
        let unproved = cases.values().filter(|c| c.sites.values().all(|(s, _)| !s.proved)).count();
        let code_count = cases.len();
        if code_count > self.request.max_codes {
            coverage.cap("max_codes");
        }
        let codes =
            cases.iter().take(self.request.max_codes).map(|(code, case)| self.row(*code, case)).collect();
        let tables = found.tables.iter().take(MAX_TABLES).map(|t| self.table(t)).collect();
        let unresolved = found
            .unresolved
            .iter()
            .take(MAX_DOUBTS)
            .map(|(at, why)| UnresolvedRow { at: self.rva(*at), reason: (*why).to_owned() });
        let unresolved: Vec<_> = unresolved.collect();
        let untracked = found.untracked.iter().take(MAX_DOUBTS).map(|at| self.rva(*at)).collect();
        let default = found.default.as_ref().map(|default| DefaultRow {
            lands: self.rva(default.lands),
            status: default.fate.status.map(status),
            accepted: default.fate.accepted,
        });
        let code_proved = found.traced && found.sites.iter().all(|site| site.proved);
        // A routine that was never seen to read the code says nothing about codes.
        let complete = coverage.is_complete()
            && (code_proved || code_count > 0)
            && found.unresolved.is_empty()
            && found.untracked.is_empty()
            && !found.unsettled
            && disputed.is_empty();
        IoctlMap {
            dispatch: location(self.image, self.question.entry),
            convention: self.question.convention.name().to_owned(),
            major: self.question.major,
            source: self.request.source.clone(),
            code_proved,
            codes,
            code_count,
            site_count,
            unproved_count: unproved,
            patterns,
            disputed,
            default,
            tables,
            unresolved,
            unresolved_count: found.unresolved.len(),
            untracked,
            untracked_count: found.untracked.len(),
            blind: found.blind.len() as u64,
            unsettled: found.unsettled,
            also_majors: self.request.also_majors.clone(),
            coverage,
            complete,
        }
    }

    fn coverage(&self) -> Coverage {
        let mut coverage = Coverage { blind: self.found.blind.len() as u64, ..Coverage::default() };
        coverage.stopped = self.found.stopped;
        for cap in &self.found.caps {
            coverage.cap(cap);
        }
        let mut runs = self.found.scanned.clone();
        runs.sort_unstable();
        runs.dedup();
        coverage.scanned_bytes = runs.iter().map(|(start, end)| end - start).sum();
        // Runs that are near each other are one range for a reader.
        let mut merged: Vec<(u64, u64)> = Vec::new();
        for (start, end) in runs {
            match merged.last_mut() {
                Some(last) if start.saturating_sub(last.1) <= 64 => last.1 = last.1.max(end),
                _ => merged.push((start, end)),
            }
        }
        if merged.len() > MAX_TABLES {
            merged.truncate(MAX_TABLES);
        }
        coverage.scanned = merged
            .into_iter()
            .map(|(start, end)| Range {
                section: self.image.section_at(start).map(|s| s.name.clone()).unwrap_or_default(),
                start: Address(start),
                bytes: end - start,
            })
            .collect();
        coverage
    }

    /// Sites whose codes differ in bits nobody looked at.
    fn patterns(&mut self) -> Vec<PatternRow> {
        let mut rows = Vec::new();
        for site in self.found.sites.iter().filter(|site| site.proved) {
            let count = self.sets.count(site.values);
            if count < 2 {
                continue;
            }
            let few = site.listed && count <= crate::analysis::FINITE;
            let Some(cubes) = self.sets.patterns(site.values, if few { 1 } else { MAX_TABLES }) else {
                continue;
            };
            for (mask, value) in cubes {
                let free = !mask;
                if few && free & !METHOD_AND_ACCESS != 0 || rows.len() >= MAX_DOUBTS {
                    continue;
                }
                let count = 1u64 << free.count_ones();
                rows.push(PatternRow {
                    mask: Code(mask),
                    value: Code(value),
                    count,
                    at: self.rva(site.at),
                    lands: self.rva(site.lands),
                    recovered: site.recovered.into(),
                    handler: site.fate.handler.map(|h| location(self.image, h)),
                    accepted: site.fate.accepted,
                    listed: count <= MAX_EXPANDED || few,
                });
            }
        }
        rows.sort_by_key(|row| (row.value, row.mask, row.at));
        rows.dedup();
        rows
    }

    fn cases(&mut self, coverage: &mut Coverage) -> (BTreeMap<u32, Case<'b>>, Vec<DisputedRow>, usize) {
        let found: &'b Findings = self.found;
        let follow: Vec<u64> = found.functions.iter().copied().collect();
        let verifier =
            if self.request.verify { Verifier::new(self.image, &self.question, follow) } else { None };
        let mut cases: BTreeMap<u32, Case<'b>> = BTreeMap::new();
        let mut disputed = BTreeSet::new();
        let mut asked: BTreeMap<(u32, u64), Option<bool>> = BTreeMap::new();
        let mut site_count = 0;
        for site in found.sites.iter().filter(|site| site.listed) {
            for code in self.listed(site.values) {
                if site_count >= MAX_SITES {
                    coverage.cap("sites");
                    break;
                }
                let verdict = match &verifier {
                    Some(verifier) if site.proved => {
                        let room = asked.len() < MAX_VERIFIED && self.halt.stop().is_none();
                        *asked.entry((code, site.lands)).or_insert_with(|| {
                            if room {
                                verifier.reaches(code, self.question.major, site.lands, self.halt)
                            } else {
                                None
                            }
                        })
                    }
                    _ => None,
                };
                if verdict == Some(false) {
                    disputed.insert((code, site.at, site.lands));
                    continue;
                }
                let case = cases.entry(code).or_insert_with(|| Case { sites: BTreeMap::new() });
                let key = (site.at, site.lands, site.recovered);
                if case.sites.insert(key, (site, verdict)).is_none() {
                    site_count += 1;
                }
            }
        }
        let disputed = disputed.into_iter().take(MAX_DOUBTS).map(|(code, at, lands)| DisputedRow {
            code: Code(code),
            at: self.rva(at),
            lands: self.rva(lands),
        });
        (cases, disputed.collect(), site_count)
    }

    /// Codes of a site that are listed one by one.
    fn listed(&mut self, values: Set) -> Vec<u32> {
        if let Some(all) = self.sets.values(values, crate::analysis::FINITE as usize) {
            return all;
        }
        Vec::new()
    }

    fn row(&self, code: u32, case: &Case<'_>) -> CodeRow {
        let mut sites: Vec<_> = case.sites.values().copied().collect();
        // The proved ones say where the case is; among them the one that knows most of its fate.
        sites.sort_by_key(|(site, _)| (!site.proved, site.fate.accepted.is_none(), site.via.len(), site.at));
        let Some((main, _)) = sites.first().copied() else {
            return self.bare(code);
        };
        let mut row = self.bare(code);
        row.case_rva = self.rva(main.lands);
        row.accepted = accepted(sites.iter().map(|(site, _)| &site.fate));
        row.status = main.fate.status.map(status);
        let handler = sites.iter().find_map(|(site, _)| site.fate.handler);
        row.handler = handler.map(|handler| location(self.image, handler));
        row.dispatch_rva = (main.function != self.question.entry).then(|| self.rva(main.function));
        (row.in_size, row.in_range) = self.size(main.fate.input);
        (row.out_size, row.out_range) = self.size(main.fate.output);
        row.evidence = main.fate.evidence.iter().map(|evidence| self.evidence(evidence)).collect();
        row.sites = sites
            .iter()
            .map(|(site, verified)| SiteRow {
                at: self.rva(site.at),
                recovered: site.recovered.into(),
                proved: site.proved,
                verified: *verified,
                lands: self.rva(site.lands),
                via: site.via.iter().map(|at| self.rva(*at)).collect(),
            })
            .collect();
        row
    }

    fn bare(&self, code: u32) -> CodeRow {
        const METHODS: [&str; 4] = ["buffered", "in_direct", "out_direct", "neither"];
        const ACCESS: [&str; 4] = ["any", "read", "write", "read_write"];
        CodeRow {
            code: Code(code),
            device_type: (code >> 16) as u16,
            function: (code >> 2 & 0xfff) as u16,
            method: METHODS[(code & 3) as usize].to_owned(),
            required_access: ACCESS[(code >> 14 & 3) as usize].to_owned(),
            sites: Vec::new(),
            case_rva: Rva(0),
            handler: None,
            dispatch_rva: None,
            accepted: None,
            status: None,
            in_size: None,
            out_size: None,
            in_range: None,
            out_range: None,
            evidence: Vec::new(),
        }
    }

    fn size(&self, lengths: Option<Set>) -> (Option<u32>, Option<SizeRange>) {
        let Some(set) = lengths.filter(|set| *set != Set::ALL) else { return (None, None) };
        match (self.sets.min(set), self.sets.max(set)) {
            (Some(min), Some(max)) if min == max => (Some(min), None),
            (Some(min), Some(max)) => {
                let range =
                    SizeRange { min: Some(min).filter(|m| *m > 0), max: Some(max).filter(|m| *m < u32::MAX) };
                (None, Some(range).filter(|r| r.min.is_some() || r.max.is_some()))
            }
            _ => (None, None),
        }
    }

    fn evidence(&self, evidence: &Evidence) -> EvidenceRow {
        let field = if evidence.field == Variable::INPUT_LENGTH { "input" } else { "output" };
        EvidenceRow {
            field: field.to_owned(),
            op: evidence.op.to_owned(),
            value: evidence.value,
            at: self.rva(evidence.at),
            exact: evidence.exact,
        }
    }

    fn table(&self, table: &crate::analysis::Table) -> TableRow {
        TableRow {
            at: self.rva(table.at),
            table: self.rva(table.form.table),
            entries: table.form.entries,
            followed: table.followed,
            entry_size: table.form.entry_size,
            form: table.form.form.to_owned(),
        }
    }
}

/// Accepted somewhere; or refused everywhere.
fn accepted<'f>(fates: impl Iterator<Item = &'f Fate> + Clone) -> Option<bool> {
    if fates.clone().any(|fate| fate.accepted == Some(true)) {
        return Some(true);
    }
    let mut fates = fates;
    fates.all(|fate| fate.accepted == Some(false)).then_some(false)
}

fn status(value: u32) -> StatusValue {
    StatusValue {
        value: Code(value),
        name: analysis_status::names_of(analysis_status::Table::Ntstatus, value)
            .first()
            .map(|n| (*n).to_owned()),
    }
}
