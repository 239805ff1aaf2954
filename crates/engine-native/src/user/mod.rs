//! A user process as a dump holds it: modules, threads, contexts, the stored event.

mod regions;
mod wow64;

use std::cell::OnceCell;
use std::rc::Rc;
use std::sync::Arc;

use target::{
    Context, ContextSource, ExceptionRecord, Machine, MemoryExt, Module, StoredEvent, Thread, UnloadedModule,
    View, base_name,
};

use crate::core::{Core, identity_in_memory, pdb_in_memory, version_in_memory};
use crate::module_names;
use crate::raw::RawMemory;

/// Threads looked at at most; real processes have a few thousand.
const MAX_THREADS: usize = 65_536;
/// Modules looked at at most.
const MAX_MODULES: usize = 16_384;

/// What a user dump says of its process beyond memory.
pub(crate) struct UserProcess {
    core: Rc<Core>,
    /// x86 code in a 64-bit process.
    pub(crate) wow64: bool,
    pub(crate) threads: Arc<[Thread]>,
    pub(crate) unloaded: Arc<[UnloadedModule]>,
    /// Where a minidump holds each thread's context, in thread order.
    contexts: Vec<dump::minidump::Location>,
    /// The exception as stored.
    exception: Option<Exception>,
    event: OnceCell<Option<StoredEvent>>,
    pub(crate) peb: Option<u64>,
    regions: OnceCell<Option<Vec<dump::minidump::MemoryInfo>>>,
}

struct Exception {
    thread: Option<u32>,
    record: ExceptionRecord,
    first_chance: Option<bool>,
    context: Vec<u8>,
    /// The format has no exception context of its own; the thread's is the one.
    context_is_threads: bool,
}

impl UserProcess {
    /// Reads lists and finds out what the process is; sets the module list of `core`.
    pub(crate) fn new(core: Rc<Core>) -> Self {
        let (modules, unloaded) = match &core.raw {
            RawMemory::Minidump(dump) => (minidump_modules(dump), minidump_unloaded(dump)),
            RawMemory::UserFull(dump) => (full_modules(dump), Vec::new()),
            _ => (Vec::new(), Vec::new()),
        };
        let modules = complete(&core, modules);
        let wow64 = core.machine.pointer_size() == 8
            && modules
                .iter()
                .any(|m| ["wow64", "wow64cpu", "xtajit"].iter().any(|n| m.name.eq_ignore_ascii_case(n)));
        core.set_modules(modules);
        let mut process = Self {
            wow64: wow64 || wow64::cpu_areas_exist(&core, &raw_tebs(&core)),
            threads: Arc::default(),
            unloaded: unloaded.into(),
            contexts: match &core.raw {
                RawMemory::Minidump(dump) => dump.threads().iter().map(|t| t.context).collect(),
                _ => Vec::new(),
            },
            exception: exception(&core),
            event: OnceCell::new(),
            peb: None,
            regions: OnceCell::new(),
            core,
        };
        process.threads = process.read_threads().into();
        process.peb = process.find_peb();
        process
    }

    /// Machine of the default view.
    pub(crate) fn machine(&self) -> Machine {
        if self.wow64 { Machine::X86 } else { self.core.machine }
    }

    pub(crate) fn event_thread(&self) -> Option<u32> {
        self.exception.as_ref().and_then(|e| e.thread)
    }

    fn read_threads(&self) -> Vec<Thread> {
        let event = self.event_thread();
        let mut threads = match &self.core.raw {
            RawMemory::Minidump(dump) => minidump_threads(dump),
            RawMemory::UserFull(dump) => full_threads(dump),
            _ => Vec::new(),
        };
        threads.truncate(MAX_THREADS);
        let mut marked = false;
        for (index, thread) in threads.iter_mut().enumerate() {
            thread.index = u32::try_from(index).unwrap_or(u32::MAX);
            thread.event = !marked && Some(thread.system_id) == event;
            marked |= thread.event;
        }
        threads
    }

    fn thread(&self, id: u32) -> Option<(usize, &Thread)> {
        self.threads.iter().enumerate().find(|(_, t)| t.system_id == id)
    }

    pub(crate) fn has_thread(&self, id: u32) -> bool {
        self.thread(id).is_some()
    }

    /// The 64-bit (or only) context of a thread as recorded.
    fn native_context(&self, index: usize) -> Option<Context> {
        match &self.core.raw {
            RawMemory::Minidump(dump) => {
                let bytes = dump.bytes_at(*self.contexts.get(index)?);
                Context::from_bytes(self.core.machine, bytes, ContextSource::Thread)
            }
            RawMemory::UserFull(dump) => {
                let bytes = dump.threads().get(index)?.context;
                Context::from_bytes(self.core.machine, bytes, ContextSource::Thread)
            }
            _ => None,
        }
    }

    /// A thread's own context. `None`: no such thread. `Some(None)`: it has none of that kind.
    pub(crate) fn thread_context(&self, id: u32, view: View) -> Option<Option<Context>> {
        let (index, thread) = self.thread(id)?;
        let native = self.native_context(index);
        if !self.wow64 || view == View::Native {
            return Some(if view == View::Wow64 { None } else { native });
        }
        let narrow = wow64::context(&self.core, thread.teb, native.as_ref());
        Some(match view {
            View::Wow64 => narrow,
            _ => narrow.or(native),
        })
    }

    /// The stored event, its context validated (spec 80 section 3.2).
    pub(crate) fn event(&self) -> Option<StoredEvent> {
        self.event.get_or_init(|| self.exception.as_ref().map(|e| self.validated(e))).clone()
    }

    fn validated(&self, exception: &Exception) -> StoredEvent {
        let mut event = StoredEvent {
            thread: exception.thread,
            record: exception.record.clone(),
            first_chance: exception.first_chance,
            context: None,
            context_invalid: false,
        };
        if self.machine().pointer_size() == 4 {
            event.record.address &= 0xffff_ffff;
            event.record.nested &= 0xffff_ffff;
            event.record.parameters.iter_mut().for_each(|p| *p &= 0xffff_ffff);
        }
        if exception.context_is_threads {
            event.context = exception.thread.and_then(|t| self.thread_context(t, View::Default).flatten());
            return event;
        }
        if exception.context.is_empty() {
            return event;
        }
        let parsed = if self.wow64 {
            wow64::exception_context(&exception.context, self.core.machine)
        } else {
            Context::from_bytes(self.core.machine, &exception.context, ContextSource::Exception)
        };
        match parsed {
            Some(context) if self.holds_up(&context) => event.context = Some(context),
            _ => event.context_invalid = true,
        }
        event
    }

    /// Whether a stored exception context can be the thread's: only 64-bit dumps of 32-bit
    /// processes are known to hold garbage, so only those are doubted.
    fn holds_up(&self, context: &Context) -> bool {
        if !self.wow64 {
            return true;
        }
        let selector = context.get(target::reg::CS);
        let user_code = matches!(selector, Some(0x23 | 0x33));
        user_code && (self.core.module_at(context.ip()).is_some() || self.core.read_u8(context.ip()).is_ok())
    }

    /// What the debugger shows for the selected thread: the exception's context on the thread that
    /// raised it.
    pub(crate) fn shown_context(&self, id: u32, view: View) -> Option<Option<Context>> {
        let own = self.thread_context(id, view)?;
        if self.event_thread() != Some(id) {
            return Some(own);
        }
        let stored = self.event().and_then(|e| e.context);
        let fits = stored.filter(|c| match view {
            View::Default => true,
            View::Native => c.machine == self.core.machine,
            View::Wow64 => c.machine == Machine::X86,
        });
        Some(fits.or(own))
    }

    /// What a caller would assume and cannot have.
    pub(crate) fn limitations(&self) -> Vec<String> {
        let mut out = Vec::new();
        let missing =
            |t: &&Thread| self.wow64 && self.thread_context(t.system_id, View::Wow64).flatten().is_none();
        let count = self.threads.iter().filter(missing).count();
        if count > 0 {
            out.push(format!(
                "32-bit context not in dump: {count} of {} threads were in 64-bit code and only their 64-bit registers are there",
                self.threads.len()
            ));
        }
        if self.event().is_some_and(|e| e.context_invalid) {
            out.push(
                "the context stored with the exception is not valid; the thread's own registers are used"
                    .to_owned(),
            );
        }
        out
    }

    fn find_peb(&self) -> Option<u64> {
        let teb = self.threads.iter().find_map(|t| t.teb.filter(|&teb| teb != 0))?;
        let (offset, size) = if self.core.machine.pointer_size() == 8 { (0x60, 8) } else { (0x30, 4) };
        let peb = self.core.read_pointer(teb.checked_add(offset)?, size).ok().filter(|&peb| peb != 0);
        if self.wow64 {
            return wow64::peb32(&self.core, teb).or(peb);
        }
        peb
    }

    /// Lowest and one-past-highest address of the stack that holds `sp`, from the TEBs.
    pub(crate) fn stack_bounds(&self, sp: u64) -> Option<(u64, u64)> {
        self.threads.iter().find_map(|t| {
            let teb = t.teb.filter(|&teb| teb != 0)?;
            let wide = self.core.machine.pointer_size() == 8;
            let native = stack_of_teb(&self.core, teb, wide);
            let narrow = || {
                let teb32 = if self.wow64 { wow64::teb32(&self.core, teb)? } else { return None };
                stack_of_teb(&self.core, teb32, false)
            };
            let holds = |(low, high): &(u64, u64)| (*low..*high).contains(&sp);
            native.filter(holds).or_else(|| narrow().filter(holds))
        })
    }
}

/// `NT_TIB.StackLimit` and `StackBase`. The limit is where the guard page was; below it the stack
/// may still be readable, so the whole allocation down to the guard counts as seen.
fn stack_of_teb(core: &Core, teb: u64, wide: bool) -> Option<(u64, u64)> {
    let size = if wide { 8 } else { 4 };
    let base = core.read_pointer(teb.checked_add(size)?, u8::try_from(size).ok()?).ok()?;
    let limit = core.read_pointer(teb.checked_add(2 * size)?, u8::try_from(size).ok()?).ok()?;
    (limit < base && base - limit <= 1 << 30).then_some((limit, base))
}

fn raw_tebs(core: &Core) -> Vec<u64> {
    let tebs: Vec<u64> = match &core.raw {
        RawMemory::Minidump(dump) => dump.threads().iter().map(|t| t.teb).collect(),
        RawMemory::UserFull(dump) => dump.threads().iter().map(|t| t.teb).collect(),
        _ => Vec::new(),
    };
    tebs.into_iter().filter(|&teb| teb != 0).take(64).collect()
}

fn nonzero(value: u64) -> Option<u64> {
    (value != 0).then_some(value)
}

fn minidump_threads(dump: &dump::Minidump) -> Vec<Thread> {
    let names = dump.thread_names();
    let infos = dump.thread_infos();
    let pid = dump.misc_info().and_then(|m| m.process_id);
    let rows = dump.threads().into_iter().map(|t| Thread {
        system_id: t.id,
        process_id: pid,
        teb: nonzero(t.teb),
        name: names.iter().find(|n| n.thread == t.id).map(|n| n.name.clone()),
        suspend_count: Some(t.suspend_count),
        priority: Some(t.priority),
        start_address: infos.iter().find(|i| i.thread == t.id).and_then(|i| nonzero(i.start_address)),
        ..Thread::default()
    });
    rows.collect()
}

fn full_threads(dump: &dump::UserFull) -> Vec<Thread> {
    let pid = dump.event().map(|e| e.process);
    let rows = dump.threads().into_iter().map(|t| Thread {
        system_id: t.id,
        process_id: pid,
        teb: nonzero(t.teb),
        suspend_count: Some(t.suspend_count),
        priority: Some(t.priority),
        ..Thread::default()
    });
    rows.collect()
}

fn minidump_modules(dump: &dump::Minidump) -> Vec<Module> {
    let rows = dump.modules().into_iter().take(MAX_MODULES).map(|m| Module {
        name: String::new(),
        image_name: base_name(&m.name).to_owned(),
        image_path: m.name,
        base: m.base,
        size: u64::from(m.size),
        timestamp: m.timestamp,
        checksum: m.checksum,
        pdb: m.pdb,
        user_mode: None,
        file_version: m.file_version,
    });
    rows.collect()
}

fn full_modules(dump: &dump::UserFull) -> Vec<Module> {
    let rows = dump.modules().into_iter().take(MAX_MODULES).map(|m| Module {
        name: String::new(),
        image_name: base_name(&m.name).to_owned(),
        image_path: m.name,
        base: m.base,
        size: u64::from(m.size),
        timestamp: 0,
        checksum: 0,
        pdb: None,
        user_mode: None,
        file_version: None,
    });
    rows.collect()
}

fn minidump_unloaded(dump: &dump::Minidump) -> Vec<UnloadedModule> {
    let rows = dump.unloaded_modules().into_iter().take(MAX_MODULES).map(|m| UnloadedModule {
        image_name: base_name(&m.name).to_owned(),
        base: m.base,
        size: u64::from(m.size),
        timestamp: m.timestamp,
        checksum: m.checksum,
    });
    rows.collect()
}

/// Fills in what the list lacks from headers in memory, and gives names.
fn complete(core: &Core, mut modules: Vec<Module>) -> Vec<Module> {
    for module in &mut modules {
        if module.size != 0 && module.timestamp != 0 && module.pdb.is_some() {
            continue;
        }
        let Some(pe) = identity_in_memory(core, module.base) else { continue };
        if module.size == 0 {
            module.size = u64::from(pe.size_of_image);
        }
        if module.timestamp == 0 {
            module.timestamp = pe.timestamp;
            module.checksum = pe.checksum;
        }
        if module.pdb.is_none() {
            module.pdb = pdb_in_memory(core, module, &pe);
        }
        if module.file_version.is_none() {
            module.file_version = version_in_memory(core, module, &pe);
        }
    }
    module_names::assign(&mut modules);
    modules
}

fn exception(core: &Core) -> Option<Exception> {
    match &core.raw {
        RawMemory::Minidump(dump) => {
            let stored = dump.exception()?;
            Some(Exception {
                thread: Some(stored.thread),
                record: stored.record,
                first_chance: None,
                context: dump.bytes_at(stored.context).to_vec(),
                context_is_threads: false,
            })
        }
        RawMemory::UserFull(dump) => {
            let event = dump.event()?;
            Some(Exception {
                thread: Some(event.thread),
                record: event.exception,
                first_chance: Some(event.first_chance),
                context: Vec::new(),
                context_is_threads: true,
            })
        }
        _ => None,
    }
}
