//! What the walk collects for [`ImageIndex`]: references, uses of imports, privileged instructions.

use std::collections::HashSet;
use std::rc::Rc;

use code::record::{Operand, Operation, Register, Transfer};
use code::{Arm64, Decoded, Mention, Recorder, Scanned, decode_arm64};
use target::Machine;

use crate::image::CodeImage;
use crate::listing::ResolvedTable;
use crate::reference_list::ReferenceList;
use crate::references::{ImageIndex, ImportSite, ImportUse, PrivilegedSite, Reference, XrefKind};
use crate::spans::Span;
use crate::structural::{WINDOW, records, resolve};
use crate::vocabulary::{Coverage, Standing};
use crate::walk::{Visitor, Walk};

/// Most references of an image.
const MAX_REFERENCES: usize = 1 << 22;
/// Most privileged instructions kept for each standing; they are counted beyond.
const MAX_PRIVILEGED: usize = 1 << 16;
/// Most sites that use imports.
const MAX_IMPORT_SITES: usize = 1 << 20;

/// A register that straight-line code loaded from an import's slot.
#[derive(Clone, Copy)]
struct Loaded {
    register: u8,
    slot: u64,
    at: u64,
    standing: Standing,
}

pub(crate) struct Collector<'i, 'a> {
    image: &'i CodeImage<'a>,
    recorder: Recorder,
    relocated: bool,
    references: ReferenceList,
    sites: Vec<ImportSite>,
    /// Calls of a loaded register, and where it was loaded.
    register_calls: Vec<(ImportSite, u64)>,
    /// Jumps of a loaded register.
    import_jumps: HashSet<u64>,
    loaded: Vec<Loaded>,
    /// ARM64: what `adrp` and `add` made of each register.
    known: [Option<u64>; 32],
    privileged: [Vec<PrivilegedSite>; 3],
    counts: [usize; 3],
    unresolved_jumps: usize,
    /// Addresses of code that reached code computes.
    taken: Vec<u64>,
    cap_hit: bool,
}

fn place(standing: Standing) -> usize {
    match standing {
        Standing::InFunction => 0,
        Standing::NoUnwindEntry => 1,
        Standing::Unverified => 2,
    }
}

impl<'i, 'a> Collector<'i, 'a> {
    pub(crate) fn new(image: &'i CodeImage<'a>) -> Self {
        Self {
            image,
            recorder: Recorder::new(image.machine),
            relocated: !image.relocations().is_empty(),
            references: ReferenceList::new(
                image.base,
                image.size,
                (image.size as usize / 16).min(MAX_REFERENCES),
            ),
            sites: Vec::new(),
            register_calls: Vec::new(),
            import_jumps: HashSet::new(),
            loaded: Vec::new(),
            known: [None; 32],
            privileged: [const { Vec::new() }; 3],
            counts: [0; 3],
            unresolved_jumps: 0,
            taken: Vec::new(),
            cap_hit: false,
        }
    }

    pub(crate) fn finish(
        mut self,
        image: &CodeImage<'_>,
        mut coverage: Coverage,
        starts: Rc<[u64]>,
    ) -> ImageIndex {
        self.interrupted();
        if self.cap_hit {
            coverage.cap("references");
        }
        self.references.sort();
        let mut privileged: Vec<PrivilegedSite> = self.privileged.into_iter().flatten().collect();
        privileged.sort_by_key(|site| site.at);
        let mut out = ImageIndex {
            references: self.references,
            imports: Vec::new(),
            privileged,
            privileged_counts: self.counts,
            coverage,
            unresolved_jumps: self.unresolved_jumps,
            starts,
        };
        let mut sites = self.sites;
        for (site, load) in self.register_calls {
            // A jump in between the load and the call brings another register value.
            if out.entered(load, site.at) {
                sites.push(ImportSite { at: load, how: ImportUse::Read, ..site });
            } else {
                sites.push(site);
            }
        }
        out.imports = resolve_thunks(image, &out, sites);
        out
    }

    fn refer(&mut self, target: u64, at: u64, kind: XrefKind, standing: Standing) {
        if self.references.len() >= MAX_REFERENCES {
            self.cap_hit = true;
            return;
        }
        self.references.push(Reference { target, at, kind, standing });
    }

    fn site(&mut self, slot: u64, at: u64, how: ImportUse, standing: Standing) {
        if self.sites.len() >= MAX_IMPORT_SITES {
            self.cap_hit = true;
            return;
        }
        self.sites.push(ImportSite { slot, at, how, standing });
    }

    fn is_slot(&self, address: u64) -> bool {
        self.image.imports().at_slot(address).is_some()
    }

    /// Whether the loader relocates something inside the instruction: only then a number in it is
    /// an address. Without relocations every number may be one.
    fn has_relocation(&self, instruction: &Scanned) -> bool {
        let Some(first) = self.image.rva(instruction.address) else { return false };
        let all = self.image.relocations();
        let from = all.partition_point(|relocation| relocation.rva < first);
        all.get(from).is_some_and(|r| r.rva < first + u32::from(instruction.length))
    }

    fn mention(&mut self, instruction: &Scanned, address: u64, mention: Mention, standing: Standing) {
        let at = instruction.address;
        let kind = match mention {
            Mention::Call => XrefKind::Call,
            Mention::Jump => XrefKind::Jump,
            Mention::Branch => XrefKind::Branch,
            Mention::Accessed if self.is_slot(address) => XrefKind::Import,
            Mention::Accessed if self.image.contains(address) => XrefKind::Access,
            Mention::Taken if self.image.contains(address) && self.is_address(instruction, address) => {
                XrefKind::AddressTaken
            }
            _ => return,
        };
        self.refer(address, at, kind, standing);
        if kind == XrefKind::AddressTaken
            && standing == Standing::InFunction
            && self.taken.len() < MAX_REFERENCES
            && self.image.is_executable(address)
        {
            self.taken.push(address);
        }
    }

    fn is_address(&self, instruction: &Scanned, address: u64) -> bool {
        let relative = instruction
            .iced()
            .is_none_or(|iced| iced.is_ip_rel_memory_operand() && iced.ip_rel_memory_address() == address);
        relative || !self.relocated || self.has_relocation(instruction)
    }

    fn privileged(&mut self, instruction: &Scanned, bytes: &[u8], standing: Standing) {
        let kind = instruction.privilege();
        if kind.is_none() && !instruction.reads_descriptor_state() {
            return;
        }
        let list = place(standing);
        self.counts[list] += 1;
        if self.privileged[list].len() < MAX_PRIVILEGED {
            let record = instruction.record(&mut self.recorder, bytes);
            let mnemonic = record.mnemonic.to_string();
            self.privileged[list].push(PrivilegedSite { at: instruction.address, kind, mnemonic, standing });
        }
    }

    fn x86_imports(&mut self, instruction: &Scanned, slot: Option<u64>, bytes: &[u8], standing: Standing) {
        let at = instruction.address;
        if slot.is_none() && self.loaded.is_empty() {
            return;
        }
        let indirect = matches!(instruction.transfer, Transfer::Call(None) | Transfer::Jump(None));
        match slot {
            Some(slot) if indirect => return self.site(slot, at, ImportUse::Called, standing),
            Some(slot) => {
                let record = instruction.record(&mut self.recorder, bytes);
                self.overwrite(&record);
                match (record.operation, record.destination().and_then(Operand::register)) {
                    (Operation::Move, Some(register)) => self.load(register, slot, at, standing),
                    _ => self.site(slot, at, ImportUse::Read, standing),
                }
                return;
            }
            None => {}
        }
        let record = instruction.record(&mut self.recorder, bytes);
        if indirect && let Some(register) = record.operands.first().and_then(Operand::register) {
            self.register_call(register, at, standing);
        } else {
            self.overwrite(&record);
        }
    }

    fn load(&mut self, register: Register, slot: u64, at: u64, standing: Standing) {
        if let code::record::Family::General(number) = register.family {
            self.loaded.push(Loaded { register: number, slot, at, standing });
        } else {
            self.site(slot, at, ImportUse::Read, standing);
        }
    }

    fn register_call(&mut self, register: Register, at: u64, standing: Standing) {
        let code::record::Family::General(number) = register.family else { return };
        let Some(index) = self.loaded.iter().position(|loaded| loaded.register == number) else { return };
        let loaded = self.loaded.remove(index);
        let site = ImportSite { slot: loaded.slot, at, how: ImportUse::Called, standing };
        if self.register_calls.len() < MAX_IMPORT_SITES {
            self.register_calls.push((site, loaded.at));
            self.import_jumps.insert(at);
        } else {
            self.cap_hit = true;
        }
    }

    /// Registers an instruction writes no longer hold what was loaded.
    fn overwrite(&mut self, record: &Decoded) {
        let lost: Vec<Loaded> = self
            .loaded
            .iter()
            .filter(|loaded| record.writes_family(code::record::Family::General(loaded.register)))
            .copied()
            .collect();
        self.loaded.retain(|loaded| !lost.iter().any(|gone| gone.register == loaded.register));
        for gone in lost {
            self.site(gone.slot, gone.at, ImportUse::Read, gone.standing);
        }
    }

    fn arm64(&mut self, instruction: &Scanned, standing: Standing) {
        let Some(word) = instruction.word() else { return };
        let at = instruction.address;
        let written = (word & 31) as usize;
        let known = |this: &Self, register: u8| this.known[usize::from(register & 31)];
        let mut value = None;
        let mut loaded = None;
        match decode_arm64(word) {
            Arm64::Adr { page: true, .. } => value = instruction.page().map(|(_, page)| page),
            Arm64::AddImmediate { source, immediate, flags: false, wide: true, .. } => {
                value = known(self, source).map(|base| base.wrapping_add_signed(immediate));
                if let Some(address) = value {
                    self.mention(instruction, address, Mention::Taken, standing);
                }
            }
            Arm64::Move { source, .. } => value = known(self, source),
            Arm64::Memory(access) => {
                if let (Some(base), code::Addressing::Offset(offset)) =
                    (known(self, access.base), access.addressing)
                {
                    let address = base.wrapping_add_signed(offset);
                    self.mention(instruction, address, Mention::Accessed, standing);
                    if self.is_slot(address) && access.load && access.size == 8 {
                        loaded = Some((access.first, address));
                    }
                }
                if let Some(second) = access.second {
                    self.forget(second);
                }
                if !access.load {
                    // A store writes memory, not the register in its low bits.
                    return;
                }
            }
            Arm64::BranchLinkRegister { register, .. } | Arm64::BranchRegister { register, .. } => {
                return self.register_call(Register::general(register, 64), at, standing);
            }
            _ => {}
        }
        self.forget(written as u8);
        self.known[written] = value;
        if let Some((register, slot)) = loaded {
            self.loaded.push(Loaded { register, slot, at, standing });
        }
    }

    fn forget(&mut self, register: u8) {
        self.known[usize::from(register & 31)] = None;
        if let Some(index) = self.loaded.iter().position(|loaded| loaded.register == register) {
            let gone = self.loaded.remove(index);
            self.site(gone.slot, gone.at, ImportUse::Read, gone.standing);
        }
    }
}

impl Visitor for Collector<'_, '_> {
    fn instruction(&mut self, instruction: &Scanned, bytes: &[u8], standing: Standing, _: &Span) {
        self.privileged(instruction, bytes, standing);
        let mut mentions = [None; 4];
        let mut count = 0;
        instruction.mentions(|address, mention| {
            if let Some(slot) = mentions.get_mut(count) {
                *slot = Some((address, mention));
                count += 1;
            }
        });
        let mut slot = None;
        for (address, mention) in mentions.into_iter().flatten() {
            self.mention(instruction, address, mention, standing);
            if mention == Mention::Accessed && self.is_slot(address) {
                slot = Some(address);
            }
        }
        if self.image.machine == Machine::Arm64 {
            self.arm64(instruction, standing);
        } else {
            self.x86_imports(instruction, slot, bytes, standing);
        }
    }

    fn interrupted(&mut self) {
        if self.image.machine == Machine::Arm64 {
            self.known = [None; 32];
        }
        for gone in std::mem::take(&mut self.loaded) {
            self.site(gone.slot, gone.at, ImportUse::Read, gone.standing);
        }
    }

    fn table(&mut self, walk: &Walk<'_, '_>, jump: &Scanned) -> Option<ResolvedTable> {
        let mut slot = None;
        jump.mentions(|address, mention| {
            if mention == Mention::Accessed {
                slot = Some(address);
            }
        });
        if slot.is_some_and(|slot| self.is_slot(slot)) || self.import_jumps.contains(&jump.address) {
            return None;
        }
        let before = walk.before(jump.address, WINDOW);
        let window = records(self.image.machine, &before, |address| walk.bytes_at(address));
        let record = self.recorder.record(jump.address, walk.bytes_at(jump.address));
        let may_start = |address: u64| walk.may_start(address);
        let Ok(table) = resolve(self.image, &window, &record, &may_start) else {
            self.unresolved_jumps += 1;
            return None;
        };
        let mut targets = table.targets.clone();
        targets.sort_unstable();
        targets.dedup();
        for target in targets {
            self.refer(target, jump.address, XrefKind::Table, Standing::InFunction);
        }
        Some(table)
    }

    fn taken(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.taken)
    }
}

/// Calls of a thunk are calls of the import; a thunk that is called is no site of its own.
fn resolve_thunks(image: &CodeImage<'_>, index: &ImageIndex, sites: Vec<ImportSite>) -> Vec<ImportSite> {
    let mut out: Vec<ImportSite> = Vec::with_capacity(sites.len());
    for site in sites {
        let start = if site.how == ImportUse::Called { thunk_start(image, &site) } else { None };
        let callers = start.map(|start| index.to(start));
        let before = out.len();
        out.extend(
            callers
                .into_iter()
                .flatten()
                .filter(|caller| matches!(caller.kind, XrefKind::Call | XrefKind::Jump | XrefKind::Branch))
                .map(|caller| ImportSite { at: caller.at, standing: caller.standing, ..site }),
        );
        // A thunk nothing leads to (linkers leave some) calls nothing.
        if out.len() == before && (start.is_none() || site.standing == Standing::InFunction) {
            out.push(site);
        }
    }
    // The loader makes direct transfers of calls through slots.
    for reference in index.references.unpacked() {
        let transfer = matches!(reference.kind, XrefKind::Call | XrefKind::Jump);
        if transfer
            && !image.contains(reference.target)
            && let Some(import) = image.bound_import(reference.target)
        {
            let (at, standing) = (reference.at, reference.standing);
            out.push(ImportSite { slot: import.slot, at, how: ImportUse::Called, standing });
        }
    }
    out.sort_unstable();
    out.dedup();
    out
}

/// Where the thunk begins that a site would be the jump of.
fn thunk_start(image: &CodeImage<'_>, site: &ImportSite) -> Option<u64> {
    let start = if image.machine == Machine::Arm64 { site.at.checked_sub(8)? } else { site.at };
    crate::callee::thunk(image, start).filter(|import| import.slot == site.slot).map(|_| start)
}
