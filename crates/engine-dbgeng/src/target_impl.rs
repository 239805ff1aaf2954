//! [`Target`] over the engine.

use std::sync::Arc;

use target::{
    Ability, BugCheck, Context, ContextOf, Ending, Facts, Frame, Halt, Identity, Instruction, KernelThread, Local,
    Memory, Module, Process, ReadOutcome, Region, RegionState, Reloaded, Result, Selection, SourceLine,
    Space, Stack, StoredEvent, SymbolHit, SymbolPaths, SymbolStatus, Target, TargetError, Thread, TypeLayout,
    UnloadedModule, Unreadable, View,
};
use windows::Win32::System::Diagnostics::Debug::Extensions::{
    DEBUG_END_ACTIVE_DETACH, DEBUG_MODNAME_IMAGE, DEBUG_MODULE_PARAMETERS, DEBUG_OUTCTL_THIS_CLIENT,
};
use windows::Win32::System::Memory::MEMORY_BASIC_INFORMATION64;
use windows::core::HSTRING;

use crate::engine::{DbgEng, EngineResult, engine_symbol_path};
use crate::names;
use crate::output::Collected;

impl Memory for DbgEng {
    fn read(&self, space: Space, address: u64, buffer: &mut [u8]) -> ReadOutcome {
        let read = match space {
            Space::Virtual => self.read_pages(address, buffer),
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
            ReadOutcome::stopped(read, Unreadable::Refused)
        }
    }
}

fn native_only<T>(what: &str) -> Result<T> {
    Err(TargetError::unsupported("native_only", format!("{what} is served by the native engine; open it with engine native")))
}

impl Target for DbgEng {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn identity(&self) -> Identity {
        Identity { generation: self.generation.get(), aim: self.aim.clone() }
    }

    fn abilities(&self) -> Vec<Ability> {
        vec![Ability::Execute]
    }

    fn modules(&self) -> Result<Arc<[Module]>> {
        if let Some(modules) = &*self.modules.borrow() {
            return Ok(Arc::clone(modules));
        }
        let modules: Arc<[Module]> = self.read_modules()?.into();
        *self.modules.borrow_mut() = Some(Arc::clone(&modules));
        Ok(modules)
    }

    fn unloaded_modules(&self) -> Result<Arc<[UnloadedModule]>> {
        let (mut loaded, mut unloaded) = (0, 0);
        // SAFETY: both pointers are to locals.
        unsafe { self.symbols.GetNumberModules(&mut loaded, &mut unloaded) }.said("count modules")?;
        let mut rows = Vec::new();
        for index in loaded..loaded.saturating_add(unloaded.min(10_000)) {
            let mut parameters = DEBUG_MODULE_PARAMETERS::default();
            // SAFETY: one entry is asked for and there is room for one; the name buffers live for the call.
            let name = unsafe {
                self.symbols.GetModuleParameters(1, None, index, &mut parameters).said("read a module")?;
                names::wide(|buffer, size| {
                    self.symbols.GetModuleNameStringWide(DEBUG_MODNAME_IMAGE, index, 0, buffer, size)
                })
            };
            rows.push(UnloadedModule {
                image_name: name.unwrap_or_default(),
                base: self.narrow(parameters.Base),
                size: u64::from(parameters.Size),
                timestamp: parameters.TimeDateStamp,
                checksum: parameters.Checksum,
            });
        }
        Ok(rows.into())
    }

    fn resync(&self) -> Result<()> {
        // SAFETY: the string lives for the call.
        unsafe { self.symbols.ReloadWide(&HSTRING::from("")) }.said("reload the module list")?;
        *self.modules.borrow_mut() = None;
        Ok(())
    }

    fn symbol_status(&self, base: u64, load: bool) -> Result<SymbolStatus> {
        self.read_symbol_status(base, load)
    }

    fn symbol_paths(&self) -> SymbolPaths {
        self.paths.borrow().clone()
    }

    fn set_symbol_paths(&self, paths: SymbolPaths) -> Result<()> {
        // SAFETY: the strings live for the calls.
        unsafe {
            self.symbols
                .SetSymbolPathWide(&HSTRING::from(engine_symbol_path(&paths)))
                .said("set the symbol path")?;
            self.symbols.SetImagePathWide(&HSTRING::from(paths.images.as_str())).said("set the image path")?;
        }
        *self.paths.borrow_mut() = paths;
        self.resync()
    }

    fn reload(&self, pattern: Option<&str>, force: bool) -> Result<Reloaded> {
        let argument = format!("{}{}", if force { "/f " } else { "" }, pattern.unwrap_or(""));
        // SAFETY: the string lives for the call.
        unsafe { self.symbols.ReloadWide(&HSTRING::from(argument.trim())) }.said("reload symbols")?;
        *self.modules.borrow_mut() = None;
        Ok(Reloaded { modules: self.modules()?.len() })
    }

    fn threads(&self) -> Result<Arc<[Thread]>> {
        Ok(self.list_threads()?.into())
    }

    fn processes(&self, _halt: &Halt) -> Result<Vec<Process>> {
        native_only("the process list of a kernel dump")
    }

    fn kernel_threads(&self, _process: u64, _halt: &Halt) -> Result<Vec<KernelThread>> {
        native_only("the thread list of a kernel process")
    }

    fn current_kernel_thread(&self) -> Result<KernelThread> {
        // SAFETY: no arguments.
        let (object, process) = unsafe {
            (
                self.system.GetCurrentThreadDataOffset().said("read the current thread")?,
                self.system.GetCurrentProcessDataOffset().said("read the current process")?,
            )
        };
        Ok(KernelThread {
            object,
            process,
            tid: None,
            pid: None,
            processor: self.selection.get().processor,
            state: None,
            wait_reason: None,
            irql: None,
            stack_base: None,
            stack_limit: None,
            teb: None,
        })
    }

    fn process(&self, _object: u64) -> Result<Process> {
        native_only("a kernel process's record")
    }

    fn selection(&self) -> Selection {
        self.selection.get()
    }

    fn select(&self, selection: Selection) -> Result<()> {
        if let Some(thread) = selection.thread {
            self.read_context(ContextOf::Thread(thread), View::Default)?;
        }
        if let Some(processor) = selection.processor {
            self.read_context(ContextOf::Processor(processor), View::Default)?;
        }
        if let Some(process) = selection.process {
            // SAFETY: integers only.
            unsafe { self.system.SetImplicitProcessDataOffset(process) }.said("select a process")?;
        }
        self.selection.set(selection);
        Ok(())
    }

    fn context(&self, of: ContextOf, view: View) -> Result<Option<Context>> {
        self.read_context(of, view)
    }

    fn stack(&self, from: &Context, limit: usize, halt: &Halt) -> Result<Stack> {
        self.walk(from, limit, halt)
    }

    fn scan_stack(&self, _from: &Context, _limit: usize, _halt: &Halt) -> Result<Vec<Frame>> {
        Ok(Vec::new())
    }

    fn stored_event(&self) -> Result<Option<StoredEvent>> {
        self.read_event()
    }

    fn bug_check(&self) -> Result<Option<BugCheck>> {
        self.read_bug_check()
    }

    fn region(&self, address: u64) -> Result<Region> {
        let mut info = MEMORY_BASIC_INFORMATION64::default();
        // SAFETY: the pointer is to a local.
        unsafe { self.spaces.QueryVirtual(self.widen(address), &mut info) }.said("query a page")?;
        let state = match info.State.0 {
            0x1000 => RegionState::Committed,
            0x2000 => RegionState::Reserved,
            0x10000 => RegionState::Free,
            _ => RegionState::Unknown,
        };
        Ok(Region {
            base: info.BaseAddress,
            size: info.RegionSize,
            allocation_base: Some(info.AllocationBase),
            state,
            protect: Some(info.Protect.0),
            usage: None,
        })
    }

    fn symbol_at(&self, address: u64) -> Result<Option<SymbolHit>> {
        self.read_symbol_at(address)
    }

    fn resolve(&self, name: &str) -> Result<Vec<SymbolHit>> {
        self.resolve_name(name)
    }

    fn find_symbols(&self, pattern: &str, limit: usize, _halt: &Halt) -> Result<Vec<SymbolHit>> {
        self.match_symbols(pattern, limit)
    }

    fn source_line(&self, address: u64) -> Result<Option<SourceLine>> {
        self.read_line(address)
    }

    fn type_layout(&self, name: &str) -> Result<TypeLayout> {
        self.layout(name)
    }

    fn find_types(&self, pattern: &str, limit: usize) -> Result<Vec<String>> {
        self.match_types(pattern, limit)
    }

    fn locals(&self, _frame: &Frame) -> Result<Vec<Local>> {
        native_only("a frame's locals")
    }

    fn disassemble(&self, address: u64, count: usize) -> Result<Vec<Instruction>> {
        let mut at = address;
        let mut rows = Vec::new();
        while rows.len() < count {
            let Some((instruction, next)) = self.decode(at)? else { break };
            let stop = instruction.text.is_none();
            rows.push(instruction);
            if stop {
                break;
            }
            at = next;
        }
        Ok(rows)
    }

    fn function_bounds(&self, _address: u64) -> Result<Option<(u64, u64)>> {
        Ok(None)
    }

    fn evaluate(&self, expression: &str, _halt: &Halt) -> Result<u64> {
        self.evaluate_masm(expression).map(|value| self.narrow(value))
    }

    fn command(&self) -> Option<&dyn target::Command> {
        Some(self)
    }

    fn release(&self) -> Result<Ending> {
        // SAFETY: integers only.
        unsafe { self.client.EndSession(DEBUG_END_ACTIVE_DETACH) }.said("close the dump")?;
        Ok(Ending::Closed)
    }
}

impl target::Command for DbgEng {
    fn execute(&self, line: &str, _halt: &Halt) -> Result<target::capability::CommandOutput> {
        Collected::take(&self.output);
        // SAFETY: the string lives for the call.
        let result = unsafe { self.control.ExecuteWide(DEBUG_OUTCTL_THIS_CLIENT, &HSTRING::from(line), 0) };
        let text = Collected::take(&self.output);
        *self.modules.borrow_mut() = None;
        match result {
            Err(error) if text.trim().is_empty() => Err(error).said("run the command"),
            _ => Ok(target::capability::CommandOutput { text, cut_short: false }),
        }
    }
}
