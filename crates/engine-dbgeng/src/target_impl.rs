//! [`Target`] over the engine.

use std::sync::Arc;

use target::{
    Ability, Breakpoints, BugCheck, Command, Context, ContextOf, DataModel, Ending, Facts, Frame, Halt,
    Identity, Instruction, KernelThread, ListedRegister, Local, Memory, Module, Process, ReadOutcome, Region,
    Reloaded, Result, Run, Selection, SourceLine, Space, Stack, StoredEvent, SymbolHit, SymbolPaths,
    SymbolStatus, Target, TargetError, Thread, TypeLayout, UnloadedModule, Unreadable, View, Write,
};
use windows::core::HSTRING;

use crate::engine::{DbgEng, EngineResult, engine_symbol_path};

impl Memory for DbgEng {
    fn read(&self, space: Space, address: u64, buffer: &mut [u8]) -> ReadOutcome {
        if buffer.is_empty() {
            return ReadOutcome::complete(0);
        }
        if self.here().is_err() {
            return ReadOutcome::stopped(0, Unreadable::Refused);
        }
        let read = match space {
            Space::Virtual if self.image.is_some() => self.read_image(address, buffer),
            Space::Virtual => self.read_pages(self.narrow(address), buffer),
            Space::Physical => {
                let mut read = 0;
                // SAFETY: the buffer is as long as said.
                let outcome = unsafe {
                    self.spaces.ReadPhysical(
                        address,
                        buffer.as_mut_ptr().cast(),
                        u32::try_from(buffer.len()).unwrap_or(u32::MAX),
                        Some(&mut read),
                    )
                };
                if outcome.is_ok() { (read as usize).min(buffer.len()) } else { 0 }
            }
            Space::Root(_) => return ReadOutcome::stopped(0, Unreadable::NoSuchSpace),
        };
        if read == buffer.len() {
            ReadOutcome::complete(read)
        } else {
            let why = if self.is_live() { Unreadable::Refused } else { Unreadable::NotInDump };
            ReadOutcome::stopped(read, why)
        }
    }
}

impl DbgEng {
    /// The base of an image session's only module. Not from the module list: that is read through here.
    fn image_base(&self) -> Option<u64> {
        // SAFETY: an integer only.
        unsafe { self.symbols.GetModuleByIndex(0) }.ok()
    }

    /// Of an image session the engine reads memory with holes, and some versions stale bytes: the file
    /// is read instead.
    fn read_image(&self, address: u64, buffer: &mut [u8]) -> usize {
        let (Some(image), Some(base)) = (&self.image, self.image_base()) else { return 0 };
        let rva = address.checked_sub(base).and_then(|rva| u32::try_from(rva).ok());
        rva.map_or(0, |rva| image.read_rva_at(rva, base, buffer))
    }
}

fn no_threads() -> TargetError {
    TargetError::unsupported("wrong_target_kind", "an image has no threads, registers or stacks")
}

impl Target for DbgEng {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn identity(&self) -> Identity {
        Identity { generation: self.generation.get(), aim: self.aim.clone() }
    }

    fn identify(&self) -> Result<Identity> {
        self.read_identity()
    }

    fn image_facts(&self) -> Option<target::ImageFacts> {
        let image = self.image.as_ref()?;
        Some(image.facts(self.image_base().unwrap_or(image.pe().image_base)))
    }

    fn aim_at(&self, aim: &str) -> Result<()> {
        self.alive()?;
        self.select_aim(aim)
    }

    fn abilities(&self) -> Vec<Ability> {
        let mut abilities = vec![Ability::Execute, Ability::Dx];
        if self.is_live() {
            abilities.extend([
                Ability::Run,
                Ability::Step,
                Ability::Breakpoints,
                Ability::Watch,
                Ability::Write,
            ]);
        }
        abilities
    }

    fn modules(&self) -> Result<Arc<[Module]>> {
        self.here()?;
        if let Some(modules) = &*self.modules.borrow() {
            return Ok(Arc::clone(modules));
        }
        let modules: Arc<[Module]> = self.read_modules()?.into();
        *self.modules.borrow_mut() = Some(Arc::clone(&modules));
        Ok(modules)
    }

    fn unloaded_modules(&self) -> Result<Arc<[UnloadedModule]>> {
        self.here()?;
        Ok(self.read_unloaded()?.into())
    }

    fn resync(&self) -> Result<()> {
        self.alive()?;
        if self.is_live() {
            // SAFETY: the string lives for the call.
            unsafe { self.symbols.ReloadWide(&HSTRING::from("")) }.said("reload the module list")?;
        }
        self.forget();
        Ok(())
    }

    fn symbol_status(&self, base: u64, load: bool) -> Result<SymbolStatus> {
        self.here()?;
        self.read_symbol_status(base, load)
    }

    fn symbol_paths(&self) -> SymbolPaths {
        self.paths.borrow().clone()
    }

    fn set_symbol_paths(&self, paths: SymbolPaths) -> Result<()> {
        self.here()?;
        // SAFETY: the strings live for the calls.
        unsafe {
            self.symbols
                .SetSymbolPathWide(&HSTRING::from(engine_symbol_path(&paths)))
                .said("set the symbol path")?;
            self.symbols
                .SetImagePathWide(&HSTRING::from(paths.images.as_str()))
                .said("set the image path")?;
        }
        *self.paths.borrow_mut() = paths;
        // SAFETY: the string lives for the call.
        unsafe { self.symbols.ReloadWide(&HSTRING::from("")) }.said("look for symbols again")?;
        self.forget();
        Ok(())
    }

    fn reload(&self, pattern: Option<&str>, force: bool) -> Result<Reloaded> {
        self.here()?;
        let glob = pattern.map(symbols::glob::Glob::new);
        let modules = self.modules()?;
        let wanted =
            |m: &&Module| glob.as_ref().is_none_or(|g| g.matches(&m.name) || g.matches(&m.image_name));
        let named: Vec<&Module> = modules.iter().filter(wanted).collect();
        if let (true, Some(pattern)) = (named.is_empty(), pattern) {
            return Err(TargetError::failed_because(
                "no_such_module",
                format!("no loaded module is called {pattern}"),
            ));
        }
        let flag = if force { "/f " } else { "" };
        let arguments: Vec<String> = match pattern {
            None => vec![flag.trim().to_owned()],
            Some(_) => named.iter().map(|m| format!("{flag}{}", m.image_name)).collect(),
        };
        for argument in arguments {
            // SAFETY: the string lives for the call.
            unsafe { self.symbols.ReloadWide(&HSTRING::from(argument)) }.said("reload symbols")?;
        }
        self.pdbs.borrow_mut().clear();
        self.forget();
        Ok(Reloaded { modules: named.len() })
    }

    fn threads(&self) -> Result<Arc<[Thread]>> {
        self.here()?;
        if self.image.is_some() {
            return Ok(Arc::default());
        }
        Ok(self.list_threads()?.into())
    }

    fn processes(&self, halt: &Halt) -> Result<Vec<Process>> {
        self.here()?;
        self.list_processes(halt)
    }

    fn kernel_threads(&self, process: u64, halt: &Halt) -> Result<Vec<KernelThread>> {
        self.here()?;
        self.list_kernel_threads(process, halt)
    }

    fn current_kernel_thread(&self) -> Result<KernelThread> {
        self.here()?;
        if !self.facts.kind.is_kernel() {
            return Err(TargetError::unsupported(
                "wrong_target_kind",
                "kernel threads exist on kernel targets only",
            ));
        }
        // SAFETY: no arguments.
        let (object, process) = unsafe {
            (
                self.system.GetCurrentThreadDataOffset().said("read the current thread")?,
                self.system.GetCurrentProcessDataOffset().said("read the current process")?,
            )
        };
        Ok(KernelThread { processor: self.selection.get().processor, ..self.kernel_thread(object, process) })
    }

    fn process(&self, object: u64) -> Result<Process> {
        self.here()?;
        self.process_record(object)
    }

    fn selection(&self) -> Selection {
        self.selection.get()
    }

    fn select(&self, selection: Selection) -> Result<()> {
        self.here()?;
        if self.image.is_some() && selection != Selection::default() {
            return Err(no_threads());
        }
        self.apply_selection(selection)
    }

    fn context(&self, of: ContextOf, view: View) -> Result<Option<Context>> {
        self.alive()?;
        match (&self.image, of) {
            (Some(_), ContextOf::Selected) => Ok(None),
            (Some(_), _) => Err(no_threads()),
            (None, _) => self.read_context(of, view),
        }
    }

    fn listed_registers(&self, of: ContextOf, view: View, all: bool) -> Result<Option<Vec<ListedRegister>>> {
        self.alive()?;
        if self.image.is_some() {
            return Ok(None);
        }
        self.list_registers(of, view, all)
    }

    fn stack(&self, from: &Context, limit: usize, halt: &Halt) -> Result<Stack> {
        self.here()?;
        self.walk(from, limit, halt)
    }

    fn scan_stack(&self, from: &Context, limit: usize, halt: &Halt) -> Result<Vec<Frame>> {
        self.here()?;
        self.scan(from, limit, halt)
    }

    fn stored_event(&self) -> Result<Option<StoredEvent>> {
        self.here()?;
        if self.image.is_some() {
            return Ok(None);
        }
        self.read_event()
    }

    fn bug_check(&self) -> Result<Option<BugCheck>> {
        self.here()?;
        self.read_bug_check()
    }

    fn region(&self, address: u64) -> Result<Region> {
        self.here()?;
        self.read_region(self.narrow(address))
    }

    fn symbol_at(&self, address: u64) -> Result<Option<SymbolHit>> {
        self.here()?;
        self.read_symbol_at(self.narrow(address))
    }

    fn resolve(&self, name: &str) -> Result<Vec<SymbolHit>> {
        self.here()?;
        self.resolve_name(name)
    }

    fn find_symbols(&self, pattern: &str, limit: usize, halt: &Halt) -> Result<Vec<SymbolHit>> {
        self.here()?;
        self.match_symbols(pattern, limit, halt)
    }

    fn source_line(&self, address: u64) -> Result<Option<SourceLine>> {
        self.here()?;
        self.read_line(self.narrow(address))
    }

    fn type_layout(&self, name: &str) -> Result<TypeLayout> {
        self.here()?;
        self.layout(name)
    }

    fn find_types(&self, pattern: &str, limit: usize) -> Result<Vec<String>> {
        self.here()?;
        self.match_types(pattern, limit)
    }

    fn locals(&self, frame: &Frame) -> Result<Vec<Local>> {
        self.here()?;
        self.read_locals(frame)
    }

    fn disassemble(&self, address: u64, count: usize) -> Result<Vec<Instruction>> {
        self.here()?;
        self.instructions(self.narrow(address), count)
    }

    fn function_bounds(&self, address: u64) -> Result<Option<(u64, u64)>> {
        self.here()?;
        Ok(self.bounds(self.narrow(address)))
    }

    fn evaluate(&self, expression: &str, halt: &Halt) -> Result<u64> {
        self.here()?;
        self.evaluate_bounded(expression, halt).map(|value| self.narrow(value))
    }

    fn write(&self) -> Option<&dyn Write> {
        self.is_live().then_some(self as &dyn Write)
    }
    fn run(&self) -> Option<&dyn Run> {
        self.is_live().then_some(self as &dyn Run)
    }
    fn breakpoints(&self) -> Option<&dyn Breakpoints> {
        self.is_live().then_some(self as &dyn Breakpoints)
    }
    fn command(&self) -> Option<&dyn Command> {
        Some(self)
    }
    fn data_model(&self) -> Option<&dyn DataModel> {
        Some(self)
    }

    fn release(&self) -> Result<Ending> {
        self.let_go()
    }
}
