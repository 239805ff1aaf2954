//! Threads, contexts, the stored event and the bug check, as the engine answers them.

use std::ffi::c_void;

use target::{
    BugCheck, Context, ContextOf, ContextSource, DumpFormat, Machine, Result, Selection, StoredEvent,
    TargetError, Thread, View,
};
use windows::Win32::System::Diagnostics::Debug::Extensions::{
    DEBUG_EVENT_EXCEPTION, DEBUG_LAST_EVENT_INFO_EXCEPTION,
};

use crate::engine::{DbgEng, EngineResult};
use crate::facts;
use crate::run::Detail;

/// More threads than this are not listed: the engine's arrays are sized by its own count.
const THREADS: u32 = 65_536;

impl DbgEng {
    /// Engine thread ids and system ids, in index order.
    pub(crate) fn thread_ids(&self) -> Result<Vec<(u32, u32)>> {
        // SAFETY: no arguments.
        let count = unsafe { self.system.GetNumberThreads() }.said("count threads")?.min(THREADS);
        let mut ids = vec![0; count as usize];
        let mut system_ids = vec![0; count as usize];
        // SAFETY: both arrays hold `count` entries.
        unsafe {
            self.system.GetThreadIdsByIndex(0, count, Some(ids.as_mut_ptr()), Some(system_ids.as_mut_ptr()))
        }
        .said("list threads")?;
        Ok(ids.into_iter().zip(system_ids).collect())
    }

    /// Runs `action` with another engine thread current; restores on errors too.
    pub(crate) fn on_thread<T>(&self, id: u32, action: impl FnOnce() -> Result<T>) -> Result<T> {
        // SAFETY: integers only.
        let before = unsafe { self.system.GetCurrentThreadId() }.said("read the current thread")?;
        if before == id {
            return action();
        }
        // SAFETY: integers only.
        unsafe { self.system.SetCurrentThreadId(id) }.said("select a thread")?;
        let result = action();
        // SAFETY: integers only.
        unsafe { self.system.SetCurrentThreadId(before) }.said("select the thread again")?;
        result
    }

    /// Runs `action` with the engine looking at the target as `machine`.
    pub(crate) fn as_machine<T>(&self, machine: Machine, action: impl FnOnce() -> Result<T>) -> Result<T> {
        // SAFETY: no arguments.
        let effective = unsafe { self.control.GetEffectiveProcessorType() }.said("read the machine")?;
        let wanted = u32::from(machine.image_machine());
        if wanted == effective {
            return action();
        }
        // SAFETY: integers only.
        unsafe { self.control.SetEffectiveProcessorType(wanted) }.said("switch the machine")?;
        let result = action();
        // SAFETY: integers only.
        unsafe { self.control.SetEffectiveProcessorType(effective) }.said("switch the machine back")?;
        result
    }

    /// Takes over what the engine has selected: after opening, a stop or a raw command.
    pub(crate) fn sync_selection(&self) {
        // SAFETY: no arguments.
        let (current, system_id) =
            unsafe { (self.system.GetCurrentThreadId().ok(), self.system.GetCurrentThreadSystemId().ok()) };
        let selection = if self.facts.kind.is_kernel() {
            let ids = self.thread_ids().unwrap_or_default();
            let index = ids.iter().position(|(id, _)| Some(*id) == current);
            Selection { processor: index.and_then(|i| u32::try_from(i).ok()), ..Selection::default() }
        } else {
            Selection { thread: system_id, ..Selection::default() }
        };
        self.selection.set(selection);
    }

    pub(crate) fn apply_selection(&self, wanted: Selection) -> Result<()> {
        let kernel = self.facts.kind.is_kernel();
        let thread = match (wanted.thread, wanted.processor, kernel) {
            (Some(_), _, true) => {
                return Err(TargetError::unsupported(
                    "wrong_target_kind",
                    "user threads are selected by system id on user targets only",
                ));
            }
            (_, Some(_), false) => {
                return Err(TargetError::unsupported(
                    "wrong_target_kind",
                    "processors and kernel processes are selected on kernel targets only",
                ));
            }
            (Some(thread), None, false) => self.engine_thread(ContextOf::Thread(thread))?,
            (None, Some(processor), true) => self.engine_thread(ContextOf::Processor(processor))?,
            (None, None, _) => None,
        };
        if let Some(process) = wanted.process {
            self.process_record(process)?;
        }
        if let Some(thread) = thread {
            // SAFETY: integers only.
            unsafe { self.system.SetCurrentThreadId(thread) }.said("select the thread")?;
        }
        if wanted.process != self.selection.get().process {
            // Zero is the current thread's own process.
            // SAFETY: integers only.
            unsafe { self.system.SetImplicitProcessDataOffset(wanted.process.unwrap_or(0)) }
                .said("select the process")?;
            self.forget();
        }
        self.selection.set(wanted);
        Ok(())
    }

    pub(crate) fn list_threads(&self) -> Result<Vec<Thread>> {
        let kernel = self.facts.kind.is_kernel();
        // Of a user dump without an event the engine makes one up.
        let eventful = kernel || self.is_live() || self.read_event()?.is_some();
        let event = if eventful { self.event_thread() } else { None };
        // SAFETY: no arguments.
        let process =
            unsafe { self.system.GetCurrentProcessSystemId() }.ok().filter(|&id| id != facts::NO_ID);
        let mut rows = Vec::new();
        for (index, (id, system_id)) in self.thread_ids()?.into_iter().enumerate() {
            let index = u32::try_from(index).unwrap_or(u32::MAX);
            // SAFETY: no arguments; each answers for the thread selected here.
            let (teb, object) = self
                .on_thread(id, || unsafe {
                    Ok((
                        self.system.GetCurrentThreadTeb().ok(),
                        self.system.GetCurrentThreadDataOffset().ok(),
                    ))
                })
                .unwrap_or((None, None));
            rows.push(Thread {
                index,
                system_id: if kernel { index } else { system_id },
                process_id: if kernel { None } else { process },
                processor: kernel.then_some(index),
                teb: if kernel { None } else { teb.filter(|&t| t != 0) },
                thread_object: if kernel { object.filter(|&o| o != 0) } else { None },
                event: Some(id) == event,
                ..Thread::default()
            });
        }
        Ok(rows)
    }

    /// Engine id of the thread the last event happened on.
    fn event_thread(&self) -> Option<u32> {
        // SAFETY: no arguments.
        unsafe { self.system.GetEventThread() }.ok()
    }

    pub(crate) fn engine_thread(&self, of: ContextOf) -> Result<Option<u32>> {
        let wanted = match of {
            ContextOf::Selected => match (self.selection.get().thread, self.selection.get().processor) {
                (Some(thread), _) => thread,
                (_, Some(processor)) => return self.engine_thread(ContextOf::Processor(processor)),
                (None, None) => return Ok(None),
            },
            ContextOf::Thread(_) if self.facts.kind.is_kernel() => {
                return Err(TargetError::unsupported(
                    "wrong_target_kind",
                    "user threads do not exist on a kernel target; name a processor",
                ));
            }
            ContextOf::Thread(system_id) => system_id,
            ContextOf::Processor(_) if !self.facts.kind.is_kernel() => {
                return Err(TargetError::unsupported(
                    "wrong_target_kind",
                    "processors exist on kernel targets only",
                ));
            }
            ContextOf::Processor(processor) => {
                let ids = self.thread_ids()?;
                let found = ids.get(processor as usize).map(|(id, _)| *id);
                return found.map(Some).ok_or_else(|| {
                    TargetError::InvalidArgument(format!("there is no processor {processor}"))
                });
            }
            ContextOf::KernelThread(_) => {
                return Err(TargetError::unsupported(
                    "kernel_thread_context",
                    "DbgEng gives contexts of processors; name one, or use the native engine",
                ));
            }
        };
        self.thread_ids()?
            .into_iter()
            .find(|(_, system_id)| *system_id == wanted)
            .map(|(id, _)| Some(id))
            .ok_or_else(|| TargetError::InvalidArgument(format!("there is no thread {wanted:#x} ({wanted})")))
    }

    pub(crate) fn read_context(&self, of: ContextOf, view: View) -> Result<Option<Context>> {
        let thread = self.engine_thread(of)?;
        if of == ContextOf::Selected
            && let Some(stored) = self.event_context(thread, view)?
        {
            return Ok(Some(stored));
        }
        match thread {
            Some(id) => self.on_thread(id, || self.current_context(view)),
            None => self.current_context(view),
        }
    }

    /// The registers stored with a dump's exception, for the thread that raised it.
    pub(crate) fn event_context(&self, thread: Option<u32>, view: View) -> Result<Option<Context>> {
        if self.facts.dump.is_none() || self.facts.kind.is_kernel() || thread != self.event_thread() {
            return Ok(None);
        }
        let Some(stored) = self.read_event()?.and_then(|e| e.context) else { return Ok(None) };
        let serves = match (self.facts.wow64, view) {
            (false, _) | (true, View::Default) => true,
            (true, View::Native) => stored.machine == Machine::X64,
            (true, View::Wow64) => stored.machine == Machine::X86,
        };
        Ok(serves.then_some(stored))
    }

    /// An exception of 32-bit code may be recorded with the 64-bit registers: the 32-bit ones then.
    fn narrowed(&self, thread: u32, stored: Context) -> Context {
        if !self.facts.wow64 || stored.machine == Machine::X86 {
            return stored;
        }
        match self.on_thread(thread, || self.current_context(View::Wow64)) {
            Ok(Some(mut narrow)) if narrow.ip() == stored.ip() => {
                narrow.source = ContextSource::Exception;
                narrow
            }
            _ => stored,
        }
    }

    /// The context of the engine's current thread, as the machine of `view`.
    pub(crate) fn current_context(&self, view: View) -> Result<Option<Context>> {
        if !self.facts.wow64 {
            return self.machine_context(self.facts.machine);
        }
        if view == View::Native {
            return self.machine_context(Machine::X64);
        }
        let wide = self.machine_context(Machine::X64)?;
        // Where 32-bit registers were not saved the engine cuts the 64-bit ones in half.
        let halved = |c: &Context| {
            wide.as_ref().is_some_and(|w| w.ip() > u64::from(u32::MAX) && w.ip() & 0xffff_ffff == c.ip())
        };
        match self.machine_context(Machine::X86)?.filter(|c| !halved(c)) {
            Some(context) => Ok(Some(context)),
            None if view == View::Default => Ok(wide),
            None => Ok(None),
        }
    }

    fn machine_context(&self, machine: Machine) -> Result<Option<Context>> {
        let mut bytes = vec![0u8; Context::record_size(machine)];
        let size = u32::try_from(bytes.len()).unwrap_or(0);
        let read = self.as_machine(machine, || {
            // SAFETY: the buffer is as long as said.
            Ok(unsafe { self.advanced.GetThreadContext(bytes.as_mut_ptr().cast::<c_void>(), size) })
        });
        let read = matches!(read, Ok(Ok(())));
        let mut context = if read { Context::from_bytes(machine, &bytes, self.recorded_as()) } else { None };
        if let Some(context) = &mut context {
            self.floating(context);
        }
        // The engine answers zeros for 32-bit registers a WoW64 dump does not hold.
        Ok(context.filter(|c| !(self.facts.wow64 && machine == Machine::X86 && c.sp() == 0)))
    }

    /// Where the engine has a thread's registers from.
    fn recorded_as(&self) -> ContextSource {
        match (self.is_live(), self.facts.kind.is_kernel()) {
            (true, _) => ContextSource::Live,
            (false, true) => ContextSource::Prcb,
            (false, false) => ContextSource::Thread,
        }
    }

    pub(crate) fn read_event(&self) -> Result<Option<StoredEvent>> {
        if self.is_live() {
            return Ok(self.live_event());
        }
        let mut info = DEBUG_LAST_EVENT_INFO_EXCEPTION::default();
        let size = u32::try_from(size_of_val(&info)).unwrap_or(0);
        let (mut kind, mut process, mut thread) = (0, 0, 0);
        let mut context = vec![0u8; 0x4000];
        let mut context_used = 0;
        // SAFETY: every buffer lives for the call and is as long as said.
        let stored = unsafe {
            self.control.GetStoredEventInformation(
                &mut kind,
                &mut process,
                &mut thread,
                Some(context.as_mut_ptr().cast()),
                u32::try_from(context.len()).unwrap_or(0),
                Some(&mut context_used),
                Some((&raw mut info).cast()),
                size,
                None,
            )
        };
        if stored.is_err() || kind != DEBUG_EVENT_EXCEPTION {
            // A full dump of the old format holds its event as a debugger would have seen it.
            let legacy = self.facts.dump.as_ref().is_some_and(|d| d.format == DumpFormat::UserFullLegacy);
            return Ok(if legacy { self.live_event() } else { None });
        }
        context.truncate(context_used as usize);
        let parsed = self.stored_context(&context).map(|stored| self.narrowed(thread, stored));
        let system_id =
            self.thread_ids()?.into_iter().find(|(id, _)| *id == thread).map(|(_, system)| system);
        Ok(Some(StoredEvent {
            thread: system_id,
            record: self.exception_record(&info.ExceptionRecord),
            // A minidump does not say; the engine then answers zero.
            first_chance: None,
            context_invalid: parsed.is_none() && !context.is_empty(),
            context: parsed,
        }))
    }

    /// The stored record is of the machine its size and flags say, which of a WoW64 process may be
    /// either.
    fn stored_context(&self, bytes: &[u8]) -> Option<Context> {
        let parse = |machine| Context::from_bytes(machine, bytes, ContextSource::Exception);
        if self.facts.wow64 {
            return if bytes.len() >= Context::record_size(Machine::X64) {
                parse(Machine::X64)
            } else {
                parse(Machine::X86)
            };
        }
        parse(self.facts.machine)
    }

    fn live_event(&self) -> Option<StoredEvent> {
        let event = self.last_event()?;
        let Detail::Exception(record, first_chance) = event.detail else { return None };
        let system_id =
            self.thread_ids().ok()?.into_iter().find(|(id, _)| *id == event.thread).map(|(_, s)| s);
        let context = self.on_thread(event.thread, || self.current_context(View::Default)).ok().flatten();
        Some(StoredEvent {
            thread: system_id,
            record,
            first_chance: Some(first_chance),
            context,
            context_invalid: false,
        })
    }

    pub(crate) fn read_bug_check(&self) -> Result<Option<BugCheck>> {
        if !self.facts.kind.is_kernel() {
            return Ok(None);
        }
        let mut code = 0;
        let mut p = [0u64; 4];
        let [p1, p2, p3, p4] = &mut p;
        // SAFETY: all pointers are to locals.
        unsafe { self.control.ReadBugCheckData(&mut code, p1, p2, p3, p4) }.said("read the bug check")?;
        Ok((code != 0).then_some(BugCheck { code, parameters: p, driver: self.bug_check_driver() }))
    }

    /// `nt!KiBugCheckDriver`: the driver the kernel blamed.
    fn bug_check_driver(&self) -> Option<String> {
        use target::MemoryExt;
        let symbol = self.resolve_name("nt!KiBugCheckDriver").ok()?;
        let name = self.read_u64(symbol.first()?.address).ok().filter(|&p| p != 0)?;
        self.read_unicode_string(name, 8).ok().filter(|n| !n.is_empty())
    }
}
