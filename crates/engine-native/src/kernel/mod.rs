//! A kernel as a dump holds it: its debugger data, modules, processors, processes and threads
//! (spec 80 sections 6, 7 and 9).

mod discover;
mod layout;
mod modules;
mod processes;
mod regions;
mod threads;
mod user_modules;

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use dump::{KdDebuggerData, KernelDump};
use target::{
    BugCheck, Context, ContextSource, Machine, MemoryExt, Module, Result, StoredEvent, TargetError, Thread,
    UnloadedModule,
};

use crate::core::Core;
use crate::live::{KernelEvent, LivePages};
use crate::raw::{Pages, RawMemory};

/// Processors looked at at most; Windows serves 2,048.
const MAX_PROCESSORS: u32 = 4096;

/// What is known of a kernel before any of it is read: from a dump's header, or from a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Known {
    pub(crate) kernel_base: Option<u64>,
    pub(crate) loaded_modules: Option<u64>,
    pub(crate) active_processes: Option<u64>,
    pub(crate) processors: u32,
}

/// What a kernel says beyond memory.
pub(crate) struct KernelState {
    core: Rc<Core>,
    pub(crate) kdbg: Option<KdDebuggerData>,
    /// Kernel modules; those of a process come and go with the selection.
    modules: RefCell<Vec<Module>>,
    user_modules: RefCell<HashMap<u64, Vec<Module>>>,
    /// Base of the kernel image, if found.
    pub(crate) nt_base: Option<u64>,
    threads: RefCell<Option<Arc<[Thread]>>>,
    unloaded: RefCell<Option<Arc<[UnloadedModule]>>>,
    /// Why there is no module list, if there is none.
    modules_error: RefCell<Option<TargetError>>,
    pub(crate) limitations: Vec<String>,
    /// PRCB addresses by processor number.
    prcbs: RefCell<Vec<Option<u64>>>,
    /// The processor the dump was made on, or a live target stopped on.
    event_processor: Cell<u32>,
    layout: RefCell<Option<Rc<layout::Layout>>>,
    event: OnceCell<Option<StoredEvent>>,
}

impl KernelState {
    /// Finds everything that needs no symbols; sets the module list of `core`.
    pub(crate) fn new(core: Rc<Core>) -> Self {
        let mut limitations = Vec::new();
        let kdbg = discover::debugger_data(&core, &mut limitations);
        let found = modules::loaded(&core, kdbg.as_ref(), &mut limitations);
        let nt_base = discover::kernel_base(&core, kdbg.as_ref(), found.as_ref().ok());
        let (list, modules_error) = match found {
            Ok(list) => (modules::named(&core, list, nt_base, &[]), None),
            Err(error) => {
                limitations.push(format!("the list of loaded modules cannot be read: {error}"));
                (Vec::new(), Some(error))
            }
        };
        core.set_modules(list.clone());
        let state = Self {
            core,
            kdbg,
            modules: RefCell::new(list),
            user_modules: RefCell::default(),
            nt_base,
            threads: RefCell::default(),
            unloaded: RefCell::default(),
            modules_error: RefCell::new(modules_error),
            limitations,
            prcbs: RefCell::default(),
            event_processor: Cell::new(0),
            layout: RefCell::default(),
            event: OnceCell::new(),
        };
        state.find_processors();
        state
    }

    /// A live kernel stopped again: what was read of it is no longer so. `modules`: its list is another.
    pub(crate) fn stopped_again(&self, modules: bool) {
        *self.threads.borrow_mut() = None;
        self.user_modules.borrow_mut().clear();
        if modules {
            *self.unloaded.borrow_mut() = None;
            self.read_modules();
        }
        self.find_processors();
    }

    /// Reads the module list again; what was known of a module that is still there is kept.
    fn read_modules(&self) {
        let found = modules::loaded(&self.core, self.kdbg.as_ref(), &mut Vec::new());
        match found {
            Ok(list) => {
                let list = modules::named(&self.core, list, self.nt_base, &self.modules.borrow());
                self.core.set_modules(list.clone());
                *self.modules.borrow_mut() = list;
                *self.modules_error.borrow_mut() = None;
            }
            Err(error) => *self.modules_error.borrow_mut() = Some(error),
        }
    }

    pub(crate) fn dump(&self) -> Option<&KernelDump> {
        kernel_dump(&self.core)
    }

    pub(crate) fn modules_error(&self) -> Option<TargetError> {
        self.modules_error.borrow().clone()
    }

    pub(crate) fn event_processor(&self) -> u32 {
        self.event_processor.get()
    }

    /// Unloaded drivers, newest last.
    pub(crate) fn unloaded(&self) -> Arc<[UnloadedModule]> {
        let read = || modules::unloaded(&self.core, self.kdbg.as_ref()).into();
        Arc::clone(self.unloaded.borrow_mut().get_or_insert_with(read))
    }

    fn find_processors(&self) {
        let declared = known(&self.core).processors.min(MAX_PROCESSORS);
        let complete = {
            let prcbs = self.prcbs.borrow();
            prcbs.len() == declared as usize && prcbs.iter().all(Option::is_some)
        };
        if !complete {
            let array = self.kdbg.as_ref().and_then(KdDebuggerData::ki_processor_block);
            let read = |n: u64| {
                let entry = array?.checked_add(8 * n)?;
                self.core.read_u64(entry).ok().filter(|&prcb| prcb != 0)
            };
            *self.prcbs.borrow_mut() = (0..u64::from(declared)).map(read).collect();
        }
        // A triage dump may hold the crashing processor's block without the array.
        if let Some(triage) = self.dump().and_then(KernelDump::triage)
            && let Some(prcb) = triage.prcb
            && !self.prcbs.borrow().contains(&Some(prcb))
        {
            let number = self.prcb_number(prcb).unwrap_or(0) as usize;
            if let Some(slot) = self.prcbs.borrow_mut().get_mut(number) {
                *slot = Some(prcb);
            }
        }
        self.event_processor.set(self.find_event_processor());
    }

    /// The processors, and what runs on each.
    pub(crate) fn threads(&self) -> Arc<[Thread]> {
        if let Some(threads) = self.threads.borrow().as_ref() {
            return Arc::clone(threads);
        }
        let crash_thread = self.dump().and_then(KernelDump::triage).and_then(|t| t.thread);
        let event = self.event_processor.get();
        let threads: Arc<[Thread]> = (0..self.processors())
            .map(|n| Thread {
                index: n,
                system_id: n,
                processor: Some(n),
                thread_object: self.current_thread_of(n).or(crash_thread.filter(|_| n == event)),
                event: n == event,
                ..Thread::default()
            })
            .collect();
        *self.threads.borrow_mut() = Some(Arc::clone(&threads));
        threads
    }

    pub(crate) fn processors(&self) -> u32 {
        u32::try_from(self.prcbs.borrow().len()).unwrap_or(0)
    }

    fn prcb_of(&self, processor: u32) -> Option<u64> {
        *self.prcbs.borrow().get(processor as usize)?
    }

    /// What the stop says runs there is what the processor's own block says, or this is why not.
    pub(crate) fn thread_disagrees(&self) -> Option<String> {
        let stop = live_pages(&self.core)?.kernel.stop().filter(|stop| stop.thread != 0)?;
        let offset = self.kdbg.as_ref()?.offset_prcb_current_thread()?;
        let at = self.prcb_of(stop.processor)?.checked_add(u64::from(offset))?;
        let thread = self.core.read_u64(at).ok().filter(|&thread| thread != stop.thread)?;
        Some(format!(
            "the stop names thread {:#x} on processor {}, its processor block {thread:#x}",
            stop.thread, stop.processor
        ))
    }

    fn prcb_number(&self, prcb: u64) -> Option<u32> {
        let offset = self.kdbg.as_ref()?.offset_prcb_number()?;
        self.core.read_u32(prcb.checked_add(u64::from(offset))?).ok().filter(|&n| n < MAX_PROCESSORS)
    }

    /// Spec 80 section 9: the processor whose context is the header's, else the one whose thread's
    /// stack holds the header's stack pointer.
    fn find_event_processor(&self) -> u32 {
        if let Some(live) = live_pages(&self.core) {
            return live.kernel.stop().map_or(0, |stop| stop.processor);
        }
        if let Some(prcb) = self.dump().and_then(KernelDump::triage).and_then(|t| t.prcb)
            && let Some(number) = self.prcb_number(prcb)
        {
            return number;
        }
        let Some(header) = self.header_context() else { return 0 };
        let count = self.processors();
        let same = (0..count)
            .find(|&n| self.prcb_context(n).is_some_and(|c| c.ip() == header.ip() && c.sp() == header.sp()));
        same.or_else(|| {
            (0..count).find(|&n| {
                let bounds = self.current_thread_of(n).and_then(|t| self.thread_stack(t));
                bounds.is_some_and(|(low, high)| (low..high).contains(&header.sp()))
            })
        })
        .unwrap_or(0)
    }

    /// KTHREAD of what runs on a processor.
    pub(crate) fn current_thread_of(&self, processor: u32) -> Option<u64> {
        // Where it stopped a live target says so itself, as long as it stands there.
        let stop = live_pages(&self.core).and_then(|live| live.kernel.stop());
        if let Some(stop) = stop.filter(|stop| stop.processor == processor && stop.thread != 0) {
            return Some(stop.thread);
        }
        let prcb = self.prcb_of(processor)?;
        let offset = self.kdbg.as_ref()?.offset_prcb_current_thread()?;
        self.core.read_u64(prcb.checked_add(u64::from(offset))?).ok().filter(|&t| t != 0)
    }

    fn header_context(&self) -> Option<Context> {
        let dump = self.dump()?;
        if !dump.header().has_context() {
            return None;
        }
        Context::from_bytes(self.core.machine, dump.context_bytes(), ContextSource::Header)
    }

    /// The context the crash saved for a processor, else its saved processor state.
    fn prcb_context(&self, processor: u32) -> Option<Context> {
        let prcb = self.prcb_of(processor)?;
        let kdbg = self.kdbg.as_ref()?;
        let saved = kdbg
            .offset_prcb_context()
            .filter(|&o| o != 0)
            .and_then(|o| self.core.read_u64(prcb.checked_add(u64::from(o))?).ok())
            .filter(|&p| p != 0)
            .and_then(|p| self.context_at(p));
        saved.or_else(|| {
            let offset = kdbg.offset_prcb_proc_state_context().filter(|&o| o != 0)?;
            self.context_at(prcb.checked_add(u64::from(offset))?)
        })
    }

    fn context_at(&self, address: u64) -> Option<Context> {
        let (bytes, _) = self.core.read_prefix(address, Context::record_size(self.core.machine));
        Context::from_bytes(self.core.machine, &bytes, ContextSource::Prcb).filter(|c| c.ip() != 0)
    }

    /// Registers of a processor. `Err`: no such processor. `Ok(None)`: the dump lacks them.
    pub(crate) fn processor_context(&self, processor: u32) -> Result<Option<Context>> {
        if processor >= self.processors() {
            let what = if self.dump().is_some() { "dump" } else { "target" };
            return Err(TargetError::InvalidArgument(format!(
                "there is no processor {processor}: the {what} has {}",
                self.processors()
            )));
        }
        if let Some(live) = live_pages(&self.core) {
            return live.kernel.context(processor).map(Some);
        }
        // The header's context may be the exception's (bug check 0x7E), which is long past when the
        // processor stops; what the processor saved is where it stood. The event keeps the header's.
        let own =
            self.prcb_context(processor).filter(|c| is_kernel_address(c.ip()) && is_kernel_address(c.sp()));
        if own.is_none() && processor == self.event_processor.get() {
            return Ok(self.header_context());
        }
        Ok(own.or_else(|| self.prcb_context(processor)))
    }

    /// The exception record of the header; of a bug check usually a break instruction.
    pub(crate) fn event(&self) -> Option<StoredEvent> {
        if let Some(live) = live_pages(&self.core) {
            return self.live_event(live);
        }
        let make = || {
            let record = self.dump()?.header().exception.clone()?;
            Some(StoredEvent {
                thread: None,
                record,
                first_chance: None,
                context: self.header_context(),
                context_invalid: false,
            })
        };
        self.event.get_or_init(make).clone()
    }

    /// The exception a live target stands at.
    fn live_event(&self, live: &LivePages) -> Option<StoredEvent> {
        let stop = live.kernel.stop()?;
        let KernelEvent::Exception { record, first_chance } = stop.event else { return None };
        Some(StoredEvent {
            thread: None,
            record,
            first_chance: Some(first_chance),
            context: live.kernel.context(stop.processor).ok(),
            context_invalid: false,
        })
    }

    /// `KiBugcheckData`: code and parameters, zero until there is a bug check.
    fn live_bug_check(&self) -> Option<BugCheck> {
        let at = self.kdbg.as_ref()?.ki_bugcheck_data()?;
        let word = |n: u64| self.core.read_u64(at.checked_add(8 * n)?).ok();
        let code = u32::try_from(word(0)? & 0xffff_ffff).ok().filter(|&code| code != 0)?;
        Some(BugCheck { code, parameters: [word(1)?, word(2)?, word(3)?, word(4)?], driver: None })
    }

    pub(crate) fn bug_check(&self) -> Option<BugCheck> {
        if live_pages(&self.core).is_some() {
            return self.live_bug_check();
        }
        let header = self.dump()?.header();
        Some(BugCheck { code: header.bug_check_code, parameters: header.bug_check_parameters, driver: None })
    }

    /// Bounds of the kernel stack that holds `sp`, from the threads on the processors.
    pub(crate) fn stack_bounds(&self, sp: u64) -> Option<(u64, u64)> {
        self.threads()
            .iter()
            .filter_map(|t| self.thread_stack(t.thread_object?))
            .find(|(low, high)| (*low..*high).contains(&sp))
    }

    /// `KTHREAD.StackLimit` and `StackBase`.
    pub(crate) fn thread_stack(&self, thread: u64) -> Option<(u64, u64)> {
        let kdbg = self.kdbg.as_ref()?;
        let read = |offset: Option<u32>| {
            self.core.read_u64(thread.checked_add(u64::from(offset.filter(|&o| o != 0)?))?).ok()
        };
        let (low, high) = (read(kdbg.offset_kthread_stack_limit())?, read(kdbg.offset_kthread_stack_base())?);
        (low < high && high - low <= 1 << 24).then_some((low, high))
    }

    /// DirectoryTableBase of the process that a processor's thread is attached to.
    pub(crate) fn root_of_processor(&self, processor: u32) -> Option<u64> {
        let thread = self.current_thread_of(processor)?;
        let process = self.process_of_thread(thread)?;
        self.directory_table_base(process)
    }

    pub(crate) fn is_paged(&self) -> bool {
        matches!(self.core.raw, RawMemory::Paged(_))
    }

    pub(crate) fn machine(&self) -> Machine {
        self.core.machine
    }
}

fn is_kernel_address(address: u64) -> bool {
    address >> 47 == 0x1_ffff
}

/// The kernel dump behind `core`.
pub(crate) fn kernel_dump(core: &Core) -> Option<&KernelDump> {
    match &core.raw {
        RawMemory::Paged(translator) => match translator.physical() {
            Pages::Dump(dump) => Some(dump),
            Pages::Live(_) => None,
        },
        RawMemory::Blocks(dump) => Some(dump),
        _ => None,
    }
}

/// The live kernel behind `core`.
pub(crate) fn live_pages(core: &Core) -> Option<&LivePages> {
    match &core.raw {
        RawMemory::Paged(translator) => match translator.physical() {
            Pages::Live(live) => Some(live),
            Pages::Dump(_) => None,
        },
        _ => None,
    }
}

/// What is known of the kernel behind `core` without reading it.
fn known(core: &Core) -> Known {
    if let Some(live) = live_pages(core) {
        let origin = live.kernel.origin();
        return Known {
            kernel_base: Some(origin.kernel_base).filter(|&base| base != 0),
            loaded_modules: Some(origin.loaded_modules).filter(|&list| list != 0),
            active_processes: None,
            processors: live.kernel.stop().map_or(0, |stop| stop.processors),
        };
    }
    let Some(header) = kernel_dump(core).map(KernelDump::header) else { return Known::default() };
    Known {
        kernel_base: None,
        loaded_modules: header.ps_loaded_module_list,
        active_processes: header.ps_active_process_head,
        processors: header.processors,
    }
}
