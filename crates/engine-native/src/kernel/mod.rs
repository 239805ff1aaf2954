//! A kernel as a dump holds it: its debugger data, modules, processors, processes and threads
//! (spec 80 sections 6, 7 and 9).

mod discover;
mod layout;
mod modules;
mod processes;
mod regions;
mod threads;
mod user_modules;

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use dump::{KdDebuggerData, KernelDump};
use target::{
    BugCheck, Context, ContextSource, Machine, MemoryExt, Module, Result, StoredEvent, TargetError, Thread,
    UnloadedModule,
};

use crate::core::Core;
use crate::raw::RawMemory;

/// Processors looked at at most; Windows serves 2,048.
const MAX_PROCESSORS: u32 = 4096;

/// What a kernel dump says beyond memory.
pub(crate) struct KernelState {
    core: Rc<Core>,
    pub(crate) kdbg: Option<KdDebuggerData>,
    /// Kernel modules; those of a process come and go with the selection.
    modules: Vec<Module>,
    user_modules: RefCell<HashMap<u64, Vec<Module>>>,
    /// Base of the kernel image, if found.
    pub(crate) nt_base: Option<u64>,
    pub(crate) threads: Arc<[Thread]>,
    pub(crate) unloaded: Arc<[UnloadedModule]>,
    /// Why there is no module list, if there is none.
    pub(crate) modules_error: Option<TargetError>,
    pub(crate) limitations: Vec<String>,
    /// PRCB addresses by processor number.
    prcbs: Vec<Option<u64>>,
    /// The processor the dump was made on.
    pub(crate) crash_processor: u32,
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
            Ok(list) => (modules::named(&core, list, nt_base), None),
            Err(error) => {
                limitations.push(format!("the list of loaded modules cannot be read: {error}"));
                (Vec::new(), Some(error))
            }
        };
        core.set_modules(list.clone());
        let unloaded = modules::unloaded(&core, kdbg.as_ref());
        let mut state = Self {
            core,
            kdbg,
            modules: list,
            user_modules: RefCell::default(),
            nt_base,
            threads: Arc::default(),
            unloaded: unloaded.into(),
            modules_error,
            limitations,
            prcbs: Vec::new(),
            crash_processor: 0,
            layout: RefCell::default(),
            event: OnceCell::new(),
        };
        state.find_processors();
        state
    }

    pub(crate) fn dump(&self) -> Option<&KernelDump> {
        kernel_dump(&self.core)
    }

    fn find_processors(&mut self) {
        let declared = self.dump().map_or(0, |d| d.header().processors).min(MAX_PROCESSORS);
        let array = self.kdbg.as_ref().and_then(KdDebuggerData::ki_processor_block);
        self.prcbs = (0..u64::from(declared))
            .map(|n| {
                let entry = array?.checked_add(8 * n)?;
                self.core.read_u64(entry).ok().filter(|&prcb| prcb != 0)
            })
            .collect();
        // A triage dump may hold the crashing processor's block without the array.
        if let Some(triage) = self.dump().and_then(KernelDump::triage)
            && let Some(prcb) = triage.prcb
            && !self.prcbs.contains(&Some(prcb))
        {
            let number = self.prcb_number(prcb).unwrap_or(0) as usize;
            if let Some(slot) = self.prcbs.get_mut(number) {
                *slot = Some(prcb);
            }
        }
        self.crash_processor = self.find_crash_processor();
        let crash_thread = self.dump().and_then(KernelDump::triage).and_then(|t| t.thread);
        self.threads = (0..declared)
            .map(|n| Thread {
                index: n,
                system_id: n,
                processor: Some(n),
                thread_object: self
                    .current_thread_of(n)
                    .or(crash_thread.filter(|_| n == self.crash_processor)),
                event: n == self.crash_processor,
                ..Thread::default()
            })
            .collect();
    }

    fn prcb_number(&self, prcb: u64) -> Option<u32> {
        let offset = self.kdbg.as_ref()?.offset_prcb_number()?;
        self.core.read_u32(prcb.checked_add(u64::from(offset))?).ok().filter(|&n| n < MAX_PROCESSORS)
    }

    /// Spec 80 section 9: the processor whose context is the header's, else the one whose thread's
    /// stack holds the header's stack pointer.
    fn find_crash_processor(&self) -> u32 {
        if let Some(prcb) = self.dump().and_then(KernelDump::triage).and_then(|t| t.prcb)
            && let Some(number) = self.prcb_number(prcb)
        {
            return number;
        }
        let Some(header) = self.header_context() else { return 0 };
        let count = u32::try_from(self.prcbs.len()).unwrap_or(0);
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
        let prcb = (*self.prcbs.get(processor as usize)?)?;
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
        let prcb = (*self.prcbs.get(processor as usize)?)?;
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
        if processor as usize >= self.threads.len() {
            return Err(TargetError::InvalidArgument(format!(
                "there is no processor {processor}: the dump has {}",
                self.threads.len()
            )));
        }
        // The header's context may be the exception's (bug check 0x7E), which is long past when the
        // processor stops; what the processor saved is where it stood. The event keeps the header's.
        let own =
            self.prcb_context(processor).filter(|c| is_kernel_address(c.ip()) && is_kernel_address(c.sp()));
        if own.is_none() && processor == self.crash_processor {
            return Ok(self.header_context());
        }
        Ok(own.or_else(|| self.prcb_context(processor)))
    }

    /// The exception record of the header; of a bug check usually a break instruction.
    pub(crate) fn event(&self) -> Option<StoredEvent> {
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

    pub(crate) fn bug_check(&self) -> Option<BugCheck> {
        let header = self.dump()?.header();
        Some(BugCheck { code: header.bug_check_code, parameters: header.bug_check_parameters, driver: None })
    }

    /// Bounds of the kernel stack that holds `sp`, from the threads on the processors.
    pub(crate) fn stack_bounds(&self, sp: u64) -> Option<(u64, u64)> {
        self.threads
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
        RawMemory::Paged(translator) => Some(&translator.physical().0),
        RawMemory::Blocks(dump) => Some(dump),
        _ => None,
    }
}
