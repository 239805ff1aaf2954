//! One entry point analysed: sites, tables, defaults, over the routine and the callees it hands the
//! request to.

mod scan;
mod sites;

use std::collections::{BTreeMap, BTreeSet};

use code_flow::Stopped;
use target::Halt;

use crate::explore::{Fate, Refusal};
use crate::expr::{Expr, Node, Symbol, Variable};
use crate::flow::{Flow, TableForm, Tables};
use crate::pass::{FrameworkTable, Pass};
use crate::record::{Record, Recorder};
use crate::set::Set;
use crate::solve::Outcome;
use crate::state::{Place, State};

/// Callees followed from one entry, and how deep.
const MAX_FUNCTIONS: usize = 64;
const MAX_DEPTH: usize = 3;
/// Blocks of all functions of one entry.
const MAX_BLOCKS: usize = 16_384;
/// A set with at most this many values is finite: its codes are cases, not a default.
pub(crate) const FINITE: u64 = 4096;

/// How the routine is entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Convention {
    /// `(DeviceObject, Irp)`.
    Wdm,
    /// `FAST_IO_DEVICE_CONTROL`.
    FastIo,
    /// `(Queue, Request, OutputBufferLength, InputBufferLength, IoControlCode)`.
    WdfDeviceControl,
    /// `EvtIoDefault(Queue, Request)`.
    WdfDefault,
    /// `EvtIoInCallerContext(Device, Request)`.
    WdfInCallerContext,
}

impl Convention {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Wdm => "wdm",
            Self::FastIo => "fast_io",
            Self::WdfDeviceControl => "wdf_device_control",
            Self::WdfDefault => "wdf_default",
            Self::WdfInCallerContext => "wdf_in_caller_context",
        }
    }

    #[must_use]
    pub fn is_framework(self) -> bool {
        matches!(self, Self::WdfDeviceControl | Self::WdfDefault | Self::WdfInCallerContext)
    }

    fn refusal(self) -> Refusal {
        match self {
            Self::Wdm => Refusal::Irp,
            Self::FastIo => Refusal::FastIo,
            _ => Refusal::Framework,
        }
    }
}

/// What to analyse.
#[derive(Clone, Copy, Debug)]
pub struct Question {
    pub entry: u64,
    pub convention: Convention,
    /// `MajorFunction` of the stack location.
    pub major: u8,
    pub framework: Option<FrameworkTable>,
    /// Follow the request into callees.
    pub descend: bool,
    /// Sweeps over one function's blocks.
    pub sweeps: usize,
}

/// How a site narrowed the set of codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Recovered {
    Compare,
    JumpTable,
    BitTest,
    PointerTable,
    TableScan,
    Range,
}

/// An edge that some codes take.
#[derive(Clone, Debug)]
pub struct Site {
    pub at: u64,
    pub lands: u64,
    pub values: Set,
    pub recovered: Recovered,
    pub proved: bool,
    /// Call sites from the entry to the function it is in.
    pub via: Vec<u64>,
    pub fate: Fate,
    /// Entry of the function it is in.
    pub function: u64,
    /// Its codes are cases; else it is a long range, told as patterns only.
    pub listed: bool,
}

/// The codes no site takes.
#[derive(Clone, Debug)]
pub struct Default {
    pub lands: u64,
    pub values: Set,
    pub fate: Fate,
    /// The function's depth: a callee's default is the truer one.
    pub depth: usize,
}

/// A table followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    pub at: u64,
    pub form: TableForm,
    /// Slots that do not lead to the default.
    pub followed: usize,
}

/// Everything found from one entry.
#[derive(Default)]
pub struct Findings {
    pub sites: Vec<Site>,
    pub default: Option<Default>,
    pub tables: Vec<Table>,
    /// Site, reason.
    pub unresolved: BTreeMap<u64, &'static str>,
    pub untracked: BTreeSet<u64>,
    pub blind: BTreeSet<u64>,
    pub unsettled: bool,
    pub stopped: Option<Stopped>,
    pub caps: BTreeSet<&'static str>,
    /// The control code was read from the request somewhere.
    pub traced: bool,
    /// Functions analysed.
    pub functions: BTreeSet<u64>,
    pub instructions: usize,
    /// Bytes of code looked at, as `[start, end)` runs.
    pub scanned: Vec<(u64, u64)>,
}

/// An analysis in progress.
pub struct Analysis<'p, 'a> {
    pub pass: &'p mut Pass<'a>,
    pub question: Question,
    pub halt: &'p Halt,
    pub found: Findings,
    blocks: usize,
}

/// Analyses one entry.
#[must_use]
pub fn analyse(pass: &mut Pass<'_>, question: Question, halt: &Halt) -> Findings {
    pass.framework = question.framework;
    pass.major = question.major;
    let entry = entry_state(pass, question.convention);
    let mut analysis = Analysis { pass, question, halt, found: Findings::default(), blocks: 0 };
    analysis.function(question.entry, &entry, &[], &mut Vec::new());
    analysis.finish()
}

/// What the convention passes.
#[must_use]
pub fn entry_state(pass: &mut Pass<'_>, convention: Convention) -> State {
    let mut state = State::unknown(&mut pass.solver);
    let mut symbol = |s| pass.solver.exprs.symbol(s);
    let (device, irp) = (symbol(Symbol::DeviceObject), symbol(Symbol::Irp));
    let (queue, request) = (symbol(Symbol::Queue), symbol(Symbol::Request));
    let back = symbol(Symbol::ReturnAddress);
    let type3 = symbol(Symbol::Type3InputBuffer);
    let user = symbol(Symbol::UserBuffer);
    let code = pass.solver.exprs.var(Variable::CODE);
    let input = pass.solver.exprs.var(Variable::INPUT_LENGTH);
    let output = pass.solver.exprs.var(Variable::OUTPUT_LENGTH);
    let unknown = Expr::UNKNOWN;
    let arguments = match convention {
        Convention::Wdm => vec![device, irp],
        Convention::FastIo => {
            vec![unknown, unknown, type3, input, user, output, code, unknown, device]
        }
        Convention::WdfDeviceControl => vec![queue, request, output, input, code],
        Convention::WdfDefault => vec![queue, request],
        Convention::WdfInCallerContext => vec![device, request],
    };
    set_arguments(pass, &mut state, &arguments);
    if pass.arm() {
        state.set_register(code::record::Family::General(30), back);
    } else {
        state.store(Place::Stack(0), pass.layout.pointer, back);
    }
    state
}

fn set_arguments(pass: &mut Pass<'_>, state: &mut State, arguments: &[Expr]) {
    use code::record::Family;
    let pointer = pass.layout.pointer;
    let (registers, first_slot): (&[u8], i64) = match pass.machine {
        target::Machine::X64 => (&[1, 2, 8, 9], 0x28),
        target::Machine::Arm64 => (&[0, 1, 2, 3, 4, 5, 6, 7], 0),
        _ => (&[], 4),
    };
    for (index, &argument) in arguments.iter().enumerate() {
        match registers.get(index) {
            Some(&register) => state.set_register(Family::General(register), argument),
            None => {
                let slot = (index - registers.len()) as i64 * i64::from(pointer);
                // A 32-bit argument leaves the upper half of its slot undefined.
                let wide = pass.solver.exprs.variable(argument) == Some(Variable::CODE);
                let size = if wide { 4 } else { pointer };
                state.store(Place::Stack(first_slot + slot), size, argument);
            }
        }
    }
}

impl Analysis<'_, '_> {
    /// Analyses one function entered with `entry`; the sites it adds have `via` before them.
    fn function(&mut self, entry: u64, state: &State, via: &[u64], chain: &mut Vec<u64>) {
        if self.found.functions.len() >= MAX_FUNCTIONS || self.blocks >= MAX_BLOCKS {
            self.found.caps.insert("functions");
            return;
        }
        self.found.functions.insert(entry);
        let image = self.pass.image;
        let listing = {
            let tables = Tables::new(self.pass, state.clone(), self.halt);
            code_flow::listing(image, entry, &tables, self.halt)
        };
        self.found.stopped = self.found.stopped.or(listing.stopped);
        let flow = Flow::solve(self.pass, listing, state, self.question.sweeps, self.halt);
        self.found.stopped = self.found.stopped.or(flow.stopped);
        self.blocks += flow.blocks.blocks.len();
        self.note(&flow);
        if !flow.settled || self.found.stopped.is_some() {
            // Unsettled facts are stronger than the truth: none is used.
            self.found.unsettled |= !flow.settled && self.found.stopped.is_none();
            return;
        }
        let mut recorder = Recorder { out: Record::default(), listing: &flow.listing };
        flow.visit(self.pass, &mut recorder);
        let record = recorder.out;
        if record.cap_hit {
            self.found.caps.insert("sites");
        }
        self.traced_in(&flow, &record);
        self.collect(&flow, &record, via);
        if self.question.descend {
            chain.push(entry);
            self.descend(&record, via, chain);
            chain.pop();
        } else if record.calls.iter().any(|call| self.carries_request(call.callee, &call.state)) {
            for call in &record.calls {
                if self.carries_request(call.callee, &call.state) {
                    self.found.untracked.insert(call.site);
                }
            }
        }
    }

    fn note(&mut self, flow: &Flow) {
        self.found.blind.extend(&flow.listing.blind);
        self.found.caps.extend(&flow.listing.caps);
        if flow.blocks.cap_hit {
            self.found.caps.insert("blocks");
        }
        self.found.instructions += flow.listing.instructions.len();
        let mut run: Option<(u64, u64)> = None;
        for instruction in flow.listing.instructions.values() {
            run = match run {
                Some((start, end)) if end == instruction.address => Some((start, instruction.end())),
                other => {
                    self.found.scanned.extend(other);
                    Some((instruction.address, instruction.end()))
                }
            };
        }
        self.found.scanned.extend(run);
    }

    /// Whether some state of the function holds the traced code.
    fn traced_in(&mut self, flow: &Flow, record: &Record) {
        let facts = record.branches.values().flat_map(|branch| &branch.facts);
        let compared = facts.flat_map(|fact| fact.variables().collect::<Vec<_>>());
        self.found.traced |= compared.into_iter().any(|v| v == Variable::CODE)
            || record.tables.iter().any(|table| table.variable == Variable::CODE)
            || flow.entries.iter().flatten().any(|state| state.holds_code(&self.pass.solver.exprs));
    }

    /// Whether a call gives its callee the request, the code, or a length, while codes are undecided.
    fn carries_request(&mut self, callee: u64, state: &State) -> bool {
        let codes = state.values(Variable::CODE, &mut self.pass.solver);
        if self.pass.solver.sets.count(codes) <= FINITE || !self.pass.image.is_executable(callee) {
            return false;
        }
        (0..6).any(|index| {
            let value = crate::semantics::argument(self.pass, index, state);
            let exprs = &self.pass.solver.exprs;
            matches!(
                exprs.node(value),
                Node::Symbol(Symbol::Irp | Symbol::StackLocation | Symbol::Request) | Node::Variable(_)
            ) || exprs.from_code(value)
                || self.points_to_parameters(value, state)
        })
    }

    fn points_to_parameters(&mut self, value: Expr, state: &State) -> bool {
        let Node::Stack(offset) = self.pass.solver.exprs.node(value) else { return false };
        let place = Place::Stack(offset.saturating_add(self.pass.layout.params_code));
        let loaded = state.load(place, 4, &mut self.pass.solver.exprs);
        self.pass.solver.exprs.from_code(loaded)
    }

    fn descend(&mut self, record: &Record, via: &[u64], chain: &mut Vec<u64>) {
        for call in &record.calls {
            if !self.carries_request(call.callee, &call.state) {
                continue;
            }
            if chain.contains(&call.callee) {
                continue;
            }
            if via.len() >= MAX_DEPTH {
                self.found.caps.insert("depth");
                self.found.untracked.insert(call.site);
                continue;
            }
            let mut inner = call.state.clone();
            inner.compare(call.site, crate::solve::Comparison::Nothing, &mut self.pass.solver);
            if !call.is_jump {
                self.pass.enter_callee(&mut inner);
            }
            let via: Vec<u64> = via.iter().copied().chain([call.site]).collect();
            self.function(call.callee, &inner, &via, chain);
        }
    }

    fn finish(mut self) -> Findings {
        if self.pass.solver.sets.overflowed() {
            self.found.caps.insert("code_sets");
            self.found.unsettled = true;
        }
        if self.pass.solver.exhausted() {
            self.found.caps.insert("evaluations");
        }
        if self.found.unsettled || self.found.stopped.is_some() {
            self.found.sites.clear();
            self.found.default = None;
            self.found.tables.clear();
        }
        self.found
    }

    fn collect(&mut self, flow: &Flow, record: &Record, via: &[u64]) {
        let first = self.found.sites.len();
        sites::collect(self, flow, record, via);
        let scanned = scan::scans(self, flow, record, via);
        for (site, why, codes) in &record.unresolved {
            if !scanned.guards(flow, *site) && !self.told_apart(flow, *site, *codes, first) {
                self.found.unresolved.insert(*site, why);
            }
        }
        for branch in record.branches.values() {
            let lost = branch.facts.iter().any(|fact| fact.outcome == Outcome::Lost);
            let lost = lost && !scanned.branches.contains(&branch.site) && !scanned.guards(flow, branch.site);
            if lost && !self.told_apart(flow, branch.site, branch.codes, first) {
                self.found.untracked.insert(branch.site);
            }
        }
    }

    /// Whether every code that gets to `site` was listed on the way there, so that what happens at
    /// `site` adds none. Sites of this function are those from `first` on.
    fn told_apart(&mut self, flow: &Flow, site: u64, codes: Set, first: usize) -> bool {
        if self.pass.solver.sets.count(codes) > FINITE {
            return false;
        }
        let Some(block) = flow.blocks.containing(site) else { return false };
        let mut before = BTreeSet::new();
        let mut stack = vec![block];
        while let Some(at) = stack.pop() {
            if before.insert(at) {
                stack.extend(&flow.blocks.blocks[at].predecessors);
            }
        }
        let mut listed = Set::EMPTY;
        for site in self.found.sites.iter().skip(first).filter(|s| s.proved && s.listed) {
            let lands = flow.blocks.starting_at(site.lands);
            if lands.is_some_and(|lands| before.contains(&lands)) {
                listed = self.pass.solver.sets.or(listed, site.values);
            }
        }
        self.pass.solver.sets.is_subset(codes, listed)
    }
}
