//! A target made of bytes, for analyses only.
#![allow(dead_code, unreachable_pub)]

use std::collections::BTreeMap;
use std::sync::Arc;

use target::{
    Ability, Attribution, BugCheck, Context, ContextOf, ContextSource, DumpFacts, DumpFormat,
    ExceptionRecord, Facts, Found, Frame, Halt, Identity, Instruction, KernelThread, Local, Machine, Memory,
    Module, Process, ReadOutcome, Region, RegionMemory, RegionState, Reloaded, Result, Selection, SourceLine,
    Space, Stack, StoredEvent, SymbolHit, SymbolKind, SymbolPaths, SymbolState, SymbolStatus, Target,
    TargetError, TargetExt, TargetKind, Thread, TypeLayout, UnloadedModule, View, WalkEnd,
};

pub struct Fake {
    pub facts: Facts,
    pub memory: RegionMemory,
    pub modules: Vec<Module>,
    pub unloaded: Vec<UnloadedModule>,
    /// Function starts.
    pub symbols: BTreeMap<u64, (String, String)>,
    /// The stack of a context, by its ip; what is not listed has the context's own frame only.
    pub stacks: BTreeMap<u64, Vec<(u64, u64)>>,
    pub end: WalkEnd,
    pub scanned: Vec<(u64, u64)>,
    pub selected: Option<Context>,
    /// Saved contexts of threads that do not run, by ETHREAD.
    pub parked: BTreeMap<u64, Context>,
    pub kernel_thread: Option<KernelThread>,
    pub processes: BTreeMap<u64, Process>,
    pub threads: Vec<Thread>,
    pub event: Option<StoredEvent>,
    pub bug: Option<BugCheck>,
    pub types: BTreeMap<String, TypeLayout>,
    pub regions: Vec<Region>,
}

impl Fake {
    pub fn new(kind: TargetKind, machine: Machine) -> Self {
        let dump = DumpFacts {
            format: DumpFormat::KernelFull,
            container: None,
            time: None,
            uptime_ms: None,
            full_memory: false,
            truncated: false,
            comment: None,
        };
        Self {
            facts: Facts {
                kind,
                machine,
                wow64: false,
                os: None,
                process: None,
                processors: Some(1),
                dump: Some(dump),
                limitations: vec![],
            },
            memory: RegionMemory::new(),
            modules: vec![],
            unloaded: vec![],
            symbols: BTreeMap::new(),
            stacks: BTreeMap::new(),
            end: WalkEnd::Outermost,
            scanned: vec![],
            selected: None,
            parked: BTreeMap::new(),
            kernel_thread: None,
            processes: BTreeMap::new(),
            threads: vec![],
            event: None,
            bug: None,
            types: BTreeMap::new(),
            regions: vec![],
        }
    }

    pub fn module(&mut self, name: &str, image: &str, base: u64) -> &mut Self {
        self.modules.push(Module {
            name: name.into(),
            image_name: image.into(),
            image_path: format!("C:\\app\\{image}"),
            base,
            size: 0x10_0000,
            timestamp: 0x5f00_0001,
            checksum: 0,
            pdb: None,
            user_mode: None,
            file_version: None,
        });
        self
    }

    pub fn symbol(&mut self, address: u64, module: &str, name: &str) -> &mut Self {
        self.symbols.insert(address, (module.into(), name.into()));
        self
    }

    pub fn context_at(&self, ip: u64, sp: u64) -> Context {
        let mut context = Context::new(self.facts.machine, ContextSource::Exception);
        context.set_ip(ip);
        context.set_sp(sp);
        context
    }

    /// The exception a user dump was written for, at `ip`.
    pub fn raise(&mut self, code: u32, parameters: &[u64], ip: u64, sp: u64) -> &mut Self {
        let record =
            ExceptionRecord { code, flags: 1, nested: 0, address: ip, parameters: parameters.to_vec() };
        self.event = Some(StoredEvent {
            thread: Some(7),
            record,
            first_chance: None,
            context: Some(self.context_at(ip, sp)),
            context_invalid: false,
        });
        self
    }

    pub fn bug(&mut self, code: u32, parameters: [u64; 4]) -> &mut Self {
        self.bug = Some(BugCheck { code, parameters, driver: None });
        self
    }

    fn frame(&self, ip: u64, sp: u64, found: Found) -> Frame {
        Frame {
            ip,
            sp,
            found,
            inline: false,
            attribution: self.attribute(ip),
            symbol: self.symbol_at(ip).unwrap(),
            source: None,
            context: None,
            return_address: 0,
        }
    }
}

impl Memory for Fake {
    fn read(&self, space: Space, address: u64, buffer: &mut [u8]) -> ReadOutcome {
        self.memory.read(space, address, buffer)
    }
}

fn no<T>(what: &'static str) -> Result<T> {
    Err(TargetError::unsupported("fake", what))
}

impl Target for Fake {
    fn facts(&self) -> &Facts {
        &self.facts
    }
    fn identity(&self) -> Identity {
        Identity { generation: 1, aim: "fake".into() }
    }
    fn abilities(&self) -> Vec<Ability> {
        vec![]
    }
    fn modules(&self) -> Result<Arc<[Module]>> {
        Ok(self.modules.clone().into())
    }
    fn unloaded_modules(&self) -> Result<Arc<[UnloadedModule]>> {
        Ok(self.unloaded.clone().into())
    }
    fn resync(&self) -> Result<()> {
        Ok(())
    }
    fn symbol_status(&self, _: u64, _: bool) -> Result<SymbolStatus> {
        Ok(SymbolStatus { state: SymbolState::None, pdb: None, file: None, unmatched: false, note: None })
    }
    fn symbol_paths(&self) -> SymbolPaths {
        SymbolPaths::default()
    }
    fn set_symbol_paths(&self, _: SymbolPaths) -> Result<()> {
        Ok(())
    }
    fn reload(&self, _: Option<&str>, _: bool) -> Result<Reloaded> {
        no("reload")
    }
    fn threads(&self) -> Result<Arc<[Thread]>> {
        Ok(self.threads.clone().into())
    }
    fn processes(&self, _: &Halt) -> Result<Vec<Process>> {
        Ok(self.processes.values().cloned().collect())
    }
    fn kernel_threads(&self, _: u64, _: &Halt) -> Result<Vec<KernelThread>> {
        no("kernel_threads")
    }
    fn current_kernel_thread(&self) -> Result<KernelThread> {
        self.kernel_thread.clone().map_or_else(|| no("current_kernel_thread"), Ok)
    }
    fn process(&self, object: u64) -> Result<Process> {
        self.processes.get(&object).cloned().map_or_else(|| no("process"), Ok)
    }
    fn selection(&self) -> Selection {
        Selection::default()
    }
    fn select(&self, _: Selection) -> Result<()> {
        panic!("an analysis must not move the selection")
    }
    fn context(&self, of: ContextOf, _: View) -> Result<Option<Context>> {
        match of {
            ContextOf::Selected | ContextOf::Thread(_) => Ok(self.selected.clone()),
            ContextOf::KernelThread(object) => Ok(self.parked.get(&object).cloned()),
            ContextOf::Processor(_) => Ok(None),
        }
    }
    fn stack(&self, from: &Context, limit: usize, halt: &Halt) -> Result<Stack> {
        halt.check("walking")?;
        let mut frames = vec![self.frame(from.ip(), from.sp(), Found::Context)];
        for &(ip, sp) in self.stacks.get(&from.ip()).into_iter().flatten() {
            frames.push(self.frame(ip, sp, Found::Unwind));
        }
        let end = if frames.len() > limit { WalkEnd::Limit } else { self.end };
        frames.truncate(limit);
        Ok(Stack { frames, end, limitations: vec![] })
    }
    fn scan_stack(&self, _: &Context, limit: usize, _: &Halt) -> Result<Vec<Frame>> {
        Ok(self.scanned.iter().take(limit).map(|&(ip, sp)| self.frame(ip, sp, Found::Scan)).collect())
    }
    fn stored_event(&self) -> Result<Option<StoredEvent>> {
        Ok(self.event.clone())
    }
    fn bug_check(&self) -> Result<Option<BugCheck>> {
        Ok(self.bug.clone())
    }
    fn region(&self, address: u64) -> Result<Region> {
        let found = self.regions.iter().find(|r| address >= r.base && address - r.base < r.size).cloned();
        Ok(found.unwrap_or(Region {
            base: address,
            size: 1,
            allocation_base: None,
            state: RegionState::Unknown,
            protect: None,
            usage: None,
        }))
    }
    fn symbol_at(&self, address: u64) -> Result<Option<SymbolHit>> {
        let Some((&start, (module, name))) = self.symbols.range(..=address).next_back() else {
            return Ok(None);
        };
        if !matches!(self.attribute(address), Attribution::Module { name, .. } if &name == module) {
            return Ok(None);
        }
        Ok(Some(SymbolHit {
            module: module.clone(),
            name: name.clone(),
            raw_name: None,
            address: start,
            displacement: address - start,
            size: None,
            kind: SymbolKind::Function,
        }))
    }
    fn resolve(&self, name: &str) -> Result<Vec<SymbolHit>> {
        let mut out = vec![];
        for address in self.symbols.keys() {
            out.extend(self.symbol_at(*address)?.filter(|hit| hit.qualified() == name));
        }
        Ok(out)
    }
    fn find_symbols(&self, _: &str, _: usize, _: &Halt) -> Result<Vec<SymbolHit>> {
        no("find_symbols")
    }
    fn source_line(&self, _: u64) -> Result<Option<SourceLine>> {
        Ok(None)
    }
    fn type_layout(&self, name: &str) -> Result<TypeLayout> {
        self.types.get(name).cloned().map_or_else(|| no("type_layout"), Ok)
    }
    fn find_types(&self, _: &str, _: usize) -> Result<Vec<String>> {
        no("find_types")
    }
    fn locals(&self, _: &Frame) -> Result<Vec<Local>> {
        no("locals")
    }
    fn disassemble(&self, _: u64, _: usize) -> Result<Vec<Instruction>> {
        no("disassemble")
    }
    fn function_bounds(&self, _: u64) -> Result<Option<(u64, u64)>> {
        Ok(None)
    }
    fn evaluate(&self, _: &str, _: &Halt) -> Result<u64> {
        no("evaluate")
    }
    fn release(&self) -> Result<target::Ending> {
        Ok(target::Ending::Closed)
    }
}

/// Bytes put together field by field at growing offsets.
#[derive(Default)]
pub struct Bytes(pub Vec<u8>);

impl Bytes {
    pub fn of(size: usize) -> Self {
        Self(vec![0; size])
    }
    pub fn put(mut self, at: usize, bytes: &[u8]) -> Self {
        if self.0.len() < at + bytes.len() {
            self.0.resize(at + bytes.len(), 0);
        }
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
        self
    }
    pub fn u8(self, at: usize, value: u8) -> Self {
        self.put(at, &[value])
    }
    pub fn u16(self, at: usize, value: u16) -> Self {
        self.put(at, &value.to_le_bytes())
    }
    pub fn u32(self, at: usize, value: u32) -> Self {
        self.put(at, &value.to_le_bytes())
    }
    pub fn u64(self, at: usize, value: u64) -> Self {
        self.put(at, &value.to_le_bytes())
    }
    pub fn word(self, at: usize, value: u64, wide: bool) -> Self {
        if wide { self.u64(at, value) } else { self.u32(at, value as u32) }
    }
}

/// UTF-16LE with a NUL.
pub fn wide_z(text: &str) -> Vec<u8> {
    text.encode_utf16().chain([0]).flat_map(u16::to_le_bytes).collect()
}
