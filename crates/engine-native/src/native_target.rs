//! The native engine's [`Target`].

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use target::{
    Ability, BugCheck, Context, ContextOf, Facts, Frame, Halt, Identity, Instruction, KernelThread, Local,
    Machine, Memory, MemoryExt, Module, Physical, Process, ReadOutcome, Region, RegionState, Reloaded,
    Result, Selection, SourceLine, Space, Stack, StoredEvent, SymbolHit, SymbolPaths, SymbolStatus, Target,
    TargetError, Thread, TypeLayout, TypeRef, UnloadedModule, View,
};

use crate::core::Core;
use crate::kernel::KernelState;
use crate::live::Live;
use crate::raw::RawMemory;
use crate::symbolize::Symbolizer;
use crate::user::UserProcess;
use crate::walk;

/// Longest an unqualified name may load symbols before it gives up.
const RESOLVE_BUDGET: Duration = Duration::from_secs(20);

/// What the file is of.
pub(crate) enum Side {
    User(Box<UserProcess>),
    Kernel(Box<KernelState>),
    Image,
}

impl Side {
    /// A small kernel dump, which holds no images.
    pub(crate) fn is_triage(&self, core: &Core) -> bool {
        matches!((self, &core.raw), (Self::Kernel(_), RawMemory::Blocks(_)))
    }
}

/// A target over one file.
pub(crate) struct NativeTarget {
    pub(crate) facts: Facts,
    pub(crate) identity: Identity,
    pub(crate) core: Rc<Core>,
    pub(crate) symbols: Symbolizer,
    pub(crate) side: Side,
    pub(crate) selection: Cell<Selection>,
    /// Why nothing but header facts is served, of 32-bit kernels.
    pub(crate) header_only: Option<HeaderOnly>,
    /// Of a live target, the connection and what it is told.
    pub(crate) live: Option<Live>,
}

/// What a 32-bit kernel dump's header says.
pub(crate) struct HeaderOnly {
    pub(crate) bug_check: BugCheck,
    pub(crate) event: Option<StoredEvent>,
}

impl NativeTarget {
    fn kernel(&self) -> Result<&KernelState> {
        match &self.side {
            Side::Kernel(kernel) => Ok(kernel),
            _ if self.header_only.is_some() => Err(TargetError::unsupported(
                "foreign_architecture",
                "this is a kernel dump of a 32-bit system: only its header and driver list are read",
            )),
            _ => Err(TargetError::unsupported(
                "wrong_target_kind",
                "this is no kernel target; open a kernel dump for processes, kernel threads and processors",
            )),
        }
    }

    /// Refuses while a live target runs, or is there no more.
    fn here(&self) -> Result<()> {
        let Some(live) = &self.live else { return Ok(()) };
        live.stopped()?;
        // It stopped again while the link was made good: nothing that was read holds.
        if live.seen.get() != live.kernel.stops() {
            self.settle(live);
        }
        Ok(())
    }

    /// User addresses of a kernel target go through this root.
    pub(crate) fn apply_selection(&self, selection: Selection) {
        if let Side::Kernel(kernel) = &self.side
            && kernel.is_paged()
        {
            let root = match (selection.process, selection.processor) {
                // What a live target's stopped processor sees, the target itself reads.
                (None, Some(processor)) if self.live.is_some() && processor == kernel.event_processor() => {
                    None
                }
                (Some(process), _) => kernel.directory_table_base(process),
                (None, Some(processor)) => kernel.root_of_processor(processor),
                (None, None) => None,
            };
            self.core.set_user_root(root.unwrap_or(0));
            self.core.set_modules(kernel.modules_with_process(selection, &self.symbols));
        }
        self.selection.set(selection);
    }

    /// Selects what a debugger would right after opening.
    pub(crate) fn select_initial(&self) {
        let selection = match &self.side {
            Side::User(process) => {
                let event = process.event_thread().filter(|&t| process.has_thread(t));
                let thread = event.or_else(|| process.threads.first().map(|t| t.system_id));
                Selection { thread, processor: None, process: None }
            }
            Side::Kernel(kernel) if kernel.processors() > 0 => {
                Selection { thread: None, processor: Some(kernel.event_processor()), process: None }
            }
            _ => Selection::default(),
        };
        self.apply_selection(selection);
    }

    fn no_thread(id: u32) -> TargetError {
        TargetError::InvalidArgument(format!(
            "there is no thread {id:#x} ({id}) in this dump; the threads list shows the ids there are"
        ))
    }

    /// `nt!KiBugCheckDriver`: the driver the kernel blamed.
    fn bug_check_driver(&self) -> Option<String> {
        let symbol = self.symbols.resolve("nt!KiBugCheckDriver", &Halt::within(RESOLVE_BUDGET)).ok()?;
        let name = self.core.read_u64(symbol.first()?.address).ok().filter(|&p| p != 0)?;
        self.core.read_unicode_string(name, 8).ok().filter(|n| !n.is_empty())
    }

    /// Addresses of a 32-bit target are 32 bits wide, however they were written.
    fn narrow(&self, address: u64) -> u64 {
        let sign_extended = address >> 31 == 0x1_ffff_ffff;
        if self.core.machine.pointer_size() == 4 || (self.facts.wow64 && sign_extended) {
            address & 0xffff_ffff
        } else {
            address
        }
    }

    /// The machine code at `address` is of: its image's, else the selected context's.
    pub(crate) fn machine_at(&self, address: u64) -> Machine {
        let image = self.core.module_at(address).and_then(|m| self.core.pe_of(&m)).and_then(|pe| pe.machine);
        image.unwrap_or_else(|| {
            // Outside images a WoW64 process runs 32-bit code below 4 GiB and 64-bit code above.
            if self.facts.wow64 && address >> 32 != 0 { self.core.machine } else { self.facts.machine }
        })
    }
}

impl Memory for NativeTarget {
    fn read(&self, space: Space, address: u64, buffer: &mut [u8]) -> ReadOutcome {
        let address = if space == Space::Physical { address } else { self.narrow(address) };
        self.core.read(space, address, buffer)
    }
}

impl Target for NativeTarget {
    fn image_facts(&self) -> Option<target::ImageFacts> {
        match &self.core.raw {
            RawMemory::Image { file, base } => Some(file.facts(*base)),
            _ => None,
        }
    }
    fn facts(&self) -> &Facts {
        &self.facts
    }
    fn identity(&self) -> Identity {
        let generation = self.live.as_ref().map_or(self.identity.generation, |live| live.generation.get());
        Identity { generation, ..self.identity.clone() }
    }
    fn abilities(&self) -> Vec<Ability> {
        if self.live.is_none() {
            return Vec::new();
        }
        let mut abilities = vec![Ability::Run, Ability::Step, Ability::Breakpoints];
        abilities.extend((self.core.machine == Machine::X64).then_some(Ability::Watch));
        abilities.push(Ability::Write);
        abilities
    }

    fn modules(&self) -> Result<Arc<[Module]>> {
        self.here()?;
        if let Side::Kernel(kernel) = &self.side
            && let Some(error) = kernel.modules_error()
        {
            return Err(error);
        }
        Ok(self.core.modules())
    }
    fn unloaded_modules(&self) -> Result<Arc<[UnloadedModule]>> {
        Ok(match &self.side {
            Side::User(process) => Arc::clone(&process.unloaded),
            Side::Kernel(kernel) => kernel.unloaded(),
            Side::Image => Arc::default(),
        })
    }
    fn resync(&self) -> Result<()> {
        self.here()?;
        if let (Some(live), Side::Kernel(kernel)) = (&self.live, &self.side) {
            if let Some(pages) = crate::kernel::live_pages(&self.core) {
                pages.forget();
            }
            live.modules_changed.set(false);
            kernel.stopped_again(true);
            self.apply_selection(self.selection.get());
        }
        Ok(())
    }
    fn symbol_status(&self, base: u64, load: bool) -> Result<SymbolStatus> {
        let modules = self.core.modules();
        let module = modules
            .iter()
            .find(|m| m.base == base)
            .ok_or_else(|| TargetError::InvalidArgument(format!("no module is loaded at {base:#x}")))?;
        Ok(self.symbols.status(module, load))
    }
    fn symbol_paths(&self) -> SymbolPaths {
        self.symbols.paths()
    }
    fn set_symbol_paths(&self, paths: SymbolPaths) -> Result<()> {
        self.symbols.set_paths(paths);
        if let Side::Kernel(kernel) = &self.side {
            kernel.forget_layout();
        }
        Ok(())
    }
    fn reload(&self, pattern: Option<&str>, force: bool) -> Result<Reloaded> {
        let glob = pattern.map(symbols::glob::Glob::new);
        let wanted =
            |m: &Module| glob.as_ref().is_none_or(|g| g.matches(&m.name) || g.matches(&m.image_name));
        let all = self.core.modules();
        let modules = self.symbols.forget(&all, wanted);
        if let (0, Some(pattern)) = (modules, pattern) {
            return Err(TargetError::failed_because(
                "no_such_module",
                format!("no loaded module is called {pattern}"),
            ));
        }
        if let Side::Kernel(kernel) = &self.side {
            kernel.forget_layout();
        }
        if force && pattern.is_some() {
            for module in all.iter().filter(|m| wanted(m)) {
                let _ = self.symbols.of(module);
            }
        }
        Ok(Reloaded { modules })
    }

    fn threads(&self) -> Result<Arc<[Thread]>> {
        self.here()?;
        Ok(match &self.side {
            Side::User(process) => Arc::clone(&process.threads),
            Side::Kernel(kernel) => kernel.threads(),
            Side::Image => Arc::default(),
        })
    }
    fn processes(&self, halt: &Halt) -> Result<Vec<Process>> {
        self.here()?;
        self.kernel()?.processes(&self.symbols, halt)
    }
    fn kernel_threads(&self, process: u64, halt: &Halt) -> Result<Vec<KernelThread>> {
        self.here()?;
        self.kernel()?.kernel_threads(process, &self.symbols, halt)
    }
    fn current_kernel_thread(&self) -> Result<KernelThread> {
        self.here()?;
        let kernel = self.kernel()?;
        let processor = self.selection.get().processor.unwrap_or(kernel.event_processor());
        kernel.current_thread(processor, &self.symbols)
    }
    fn process(&self, object: u64) -> Result<Process> {
        self.here()?;
        self.kernel()?.process(object, &self.symbols)
    }

    fn selection(&self) -> Selection {
        self.selection.get()
    }
    fn select(&self, selection: Selection) -> Result<()> {
        self.here()?;
        match &self.side {
            Side::User(process) => {
                if selection.processor.is_some() || selection.process.is_some() {
                    return Err(TargetError::unsupported(
                        "wrong_target_kind",
                        "processors and kernel processes are selected on kernel targets only",
                    ));
                }
                if let Some(id) = selection.thread.filter(|&id| !process.has_thread(id)) {
                    return Err(Self::no_thread(id));
                }
            }
            Side::Kernel(kernel) => {
                if selection.thread.is_some() {
                    return Err(TargetError::unsupported(
                        "wrong_target_kind",
                        "user threads are selected by system id on user targets only",
                    ));
                }
                if let Some(processor) = selection.processor {
                    kernel.processor_context(processor)?;
                }
                if let Some(process) = selection.process {
                    kernel.process(process, &self.symbols)?;
                }
            }
            Side::Image => {
                if selection != Selection::default() {
                    return Err(TargetError::unsupported(
                        "wrong_target_kind",
                        "an image has no threads to select",
                    ));
                }
            }
        }
        self.apply_selection(selection);
        Ok(())
    }

    fn context(&self, of: ContextOf, view: View) -> Result<Option<Context>> {
        self.here()?;
        match (&self.side, of) {
            (Side::User(process), ContextOf::Selected) => match self.selection.get().thread {
                Some(id) => process.shown_context(id, view).ok_or_else(|| Self::no_thread(id)),
                None => Ok(None),
            },
            (Side::User(process), ContextOf::Thread(id)) => {
                process.thread_context(id, view).ok_or_else(|| Self::no_thread(id))
            }
            (Side::Kernel(kernel), ContextOf::Selected) => match self.selection.get().processor {
                Some(processor) => kernel.processor_context(processor),
                None => Ok(None),
            },
            (Side::Kernel(kernel), ContextOf::Processor(processor)) => kernel.processor_context(processor),
            (Side::Kernel(kernel), ContextOf::KernelThread(thread)) => kernel.thread_context(thread),
            (Side::Image, ContextOf::Selected) => Ok(None),
            (_, of) => Err(TargetError::unsupported(
                "wrong_target_kind",
                format!("{of:?} does not exist on this kind of target"),
            )),
        }
    }
    fn stack(&self, from: &Context, limit: usize, halt: &Halt) -> Result<Stack> {
        self.here()?;
        self.core.images.bound.during(halt, || walk::stack(self, from, limit, halt))
    }
    fn scan_stack(&self, from: &Context, limit: usize, halt: &Halt) -> Result<Vec<Frame>> {
        self.here()?;
        Ok(self.core.images.bound.during(halt, || walk::scan(self, from, limit, halt)))
    }

    fn stored_event(&self) -> Result<Option<StoredEvent>> {
        self.here()?;
        if let Some(only) = &self.header_only {
            return Ok(only.event.clone());
        }
        Ok(match &self.side {
            Side::User(process) => process.event(),
            Side::Kernel(kernel) => kernel.event(),
            Side::Image => None,
        })
    }
    fn bug_check(&self) -> Result<Option<BugCheck>> {
        self.here()?;
        if let Some(only) = &self.header_only {
            return Ok(Some(only.bug_check.clone()));
        }
        let Side::Kernel(kernel) = &self.side else { return Ok(None) };
        Ok(kernel.bug_check().map(|check| BugCheck { driver: self.bug_check_driver(), ..check }))
    }

    fn read_own(&self, address: u64, buffer: &mut [u8]) -> ReadOutcome {
        self.core.read_raw(Space::Virtual, address, buffer)
    }

    fn read_image_file(&self, base: u64, rva: u32, buffer: &mut [u8]) -> Option<usize> {
        let module = self.core.module_at(base).filter(|module| module.base == base)?;
        let image = self.core.images.of(&module)?;
        Some(image.file.read_rva_at(rva, base, buffer))
    }

    fn region(&self, address: u64) -> Result<Region> {
        self.here()?;
        let address = self.narrow(address);
        Ok(match &self.side {
            Side::User(process) => process.region(address),
            Side::Kernel(kernel) => kernel.region(address),
            Side::Image => match self.core.module_at(address) {
                Some(module) => Region {
                    base: module.base,
                    size: module.size,
                    allocation_base: Some(module.base),
                    state: RegionState::Committed,
                    protect: None,
                    usage: Some(format!("Image {}", module.name)),
                },
                None => {
                    let page = unknown_page(address);
                    let above = self.core.modules().iter().map(|m| m.base).filter(|&b| b > address).min();
                    Region { size: above.unwrap_or(u64::MAX) - page.base, ..page }
                }
            },
        })
    }

    fn symbol_at(&self, address: u64) -> Result<Option<SymbolHit>> {
        self.symbols.symbol_at(self.narrow(address))
    }
    fn resolve(&self, name: &str) -> Result<Vec<SymbolHit>> {
        // Inside a call with a bound of its own, that one holds too.
        self.symbols.resolve(name, &self.core.images.bound.lookup(RESOLVE_BUDGET))
    }
    fn find_symbols(&self, pattern: &str, limit: usize, halt: &Halt) -> Result<Vec<SymbolHit>> {
        self.symbols.find(pattern, limit, halt)
    }
    fn source_line(&self, address: u64) -> Result<Option<SourceLine>> {
        self.symbols.line_at(self.narrow(address))
    }
    fn type_layout(&self, name: &str) -> Result<TypeLayout> {
        self.symbols.type_layout(name)
    }
    fn find_types(&self, pattern: &str, limit: usize) -> Result<Vec<String>> {
        self.symbols.find_types(pattern, limit)
    }
    fn variable_type(&self, name: &str) -> Result<Option<(String, TypeRef)>> {
        self.symbols.variable_type(name)
    }
    fn locals(&self, frame: &Frame) -> Result<Vec<Local>> {
        let exact = frame.found == target::Found::Context;
        self.symbols.locals(frame, if exact { frame.ip } else { frame.ip.saturating_sub(1) })
    }

    fn disassemble(&self, address: u64, count: usize) -> Result<Vec<Instruction>> {
        self.here()?;
        let address = self.narrow(address);
        let name = |at: u64| {
            let hit = self.symbols.symbol_at(at).ok().flatten()?;
            Some(match hit.displacement {
                0 => hit.qualified(),
                displacement => format!("{}+{displacement:#x}", hit.qualified()),
            })
        };
        Ok(code::disassemble_memory(self.machine_at(address), self, address, count, Some(&name)))
    }
    fn function_bounds(&self, address: u64) -> Result<Option<(u64, u64)>> {
        let address = self.narrow(address);
        Ok(self.symbols.function_bounds(address).or_else(|| walk::bounds_from_unwind_data(self, address)))
    }
    fn evaluate(&self, expression: &str, halt: &Halt) -> Result<u64> {
        self.here()?;
        let scope = expression::TargetScope::new(self, halt);
        self.core.images.bound.during(halt, || expression::evaluate(expression, &scope)).map_err(|error| {
            match error.unresolved() {
                Some(name) => target::TargetError::failed_because(
                    "unresolved_symbol",
                    expression::why_unresolved(self, name),
                ),
                None => error.into(),
            }
        })
    }

    fn physical(&self) -> Option<&dyn Physical> {
        matches!(self.core.raw, RawMemory::Paged(_)).then_some(self as &dyn Physical)
    }

    fn write(&self) -> Option<&dyn target::Write> {
        self.live.as_ref().map(|_| self as &dyn target::Write)
    }
    fn run(&self) -> Option<&dyn target::Run> {
        self.live.as_ref().map(|_| self as &dyn target::Run)
    }
    fn breakpoints(&self) -> Option<&dyn target::Breakpoints> {
        self.live.as_ref().map(|_| self as &dyn target::Breakpoints)
    }

    fn release(&self) -> Result<target::Ending> {
        match &self.live {
            Some(live) => self.let_go(live),
            None => Ok(target::Ending::Closed),
        }
    }
}

impl Physical for NativeTarget {
    fn translate(&self, address: u64) -> Result<u64> {
        let RawMemory::Paged(translator) = &self.core.raw else {
            return Err(TargetError::unsupported("wrong_target_kind", "this dump has no page tables"));
        };
        let root = match self.core.user_root() {
            user if user != 0 && address >> 63 == 0 => user,
            _ => translator.system_root(),
        };
        let mapping =
            translator.translate(root, address).map_err(|why| target::ReadError { address, why })?;
        Ok(mapping.physical)
    }
}

pub(crate) fn unknown_page(address: u64) -> Region {
    Region {
        base: address & !0xfff,
        size: 0x1000,
        allocation_base: None,
        state: RegionState::Unknown,
        protect: None,
        usage: None,
    }
}
