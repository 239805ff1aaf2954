//! Threads, contexts, the stored event and the bug check, as the engine answers them.

use std::ffi::c_void;

use target::{
    BugCheck, Context, ContextOf, ContextSource, ExceptionRecord, Machine, Result, StoredEvent, TargetError, Thread,
    View,
};
use windows::Win32::System::Diagnostics::Debug::Extensions::{
    DEBUG_EVENT_EXCEPTION, DEBUG_LAST_EVENT_INFO_EXCEPTION,
};

use crate::engine::{DbgEng, EngineResult, machine_of};

/// More threads than this are not listed: the engine's arrays are sized by its own count.
const THREADS: u32 = 65_536;

impl DbgEng {
    /// Engine thread ids and system ids, in index order.
    fn thread_ids(&self) -> Result<Vec<(u32, u32)>> {
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
        // SAFETY: integers only.
        unsafe { self.system.SetCurrentThreadId(id) }.said("select a thread")?;
        let result = action();
        // SAFETY: integers only.
        unsafe { self.system.SetCurrentThreadId(before) }.said("select the thread again")?;
        result
    }

    pub(crate) fn list_threads(&self) -> Result<Vec<Thread>> {
        let kernel = self.facts.kind.is_kernel();
        // SAFETY: no arguments.
        let event = unsafe { self.system.GetEventThread() }.ok();
        let mut rows = Vec::new();
        for (index, (id, system_id)) in self.thread_ids()?.into_iter().enumerate() {
            let index = u32::try_from(index).unwrap_or(u32::MAX);
            // SAFETY: no arguments; each answers for the thread selected here.
            let (teb, object) = self
                .on_thread(id, || unsafe {
                    Ok((self.system.GetCurrentThreadTeb().ok(), self.system.GetCurrentThreadDataOffset().ok()))
                })
                .unwrap_or((None, None));
            rows.push(Thread {
                index,
                system_id: if kernel { index } else { system_id },
                process_id: self.facts.process.as_ref().and_then(|p| p.pid),
                processor: kernel.then_some(index),
                teb: if kernel { None } else { teb },
                thread_object: if kernel { object } else { None },
                event: Some(id) == event,
                ..Thread::default()
            });
        }
        Ok(rows)
    }

    fn engine_thread(&self, of: ContextOf) -> Result<Option<u32>> {
        let wanted = match of {
            ContextOf::Selected => match (self.selection.get().thread, self.selection.get().processor) {
                (Some(thread), _) => thread,
                (_, Some(processor)) => return self.engine_thread(ContextOf::Processor(processor)),
                (None, None) => return Ok(None),
            },
            ContextOf::Thread(system_id) => system_id,
            ContextOf::Processor(processor) => {
                // SAFETY: integers only.
                return unsafe { self.system.GetThreadIdByProcessor(processor) }
                    .map(Some)
                    .map_err(|_| TargetError::InvalidArgument(format!("there is no processor {processor}")));
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
            .ok_or_else(|| TargetError::InvalidArgument(format!("there is no thread {wanted:#x}")))
    }

    pub(crate) fn read_context(&self, of: ContextOf, view: View) -> Result<Option<Context>> {
        match self.engine_thread(of)? {
            Some(id) => self.on_thread(id, || self.current_context(view)),
            None => self.current_context(view),
        }
    }

    /// The context of the engine's current thread, as the effective machine of `view`.
    fn current_context(&self, view: View) -> Result<Option<Context>> {
        // SAFETY: no arguments.
        let effective = unsafe { self.control.GetEffectiveProcessorType() }.said("read the machine")?;
        let wanted = match view {
            View::Native => Some(Machine::X64).filter(|_| self.facts.wow64),
            View::Wow64 => Some(Machine::X86).filter(|_| self.facts.wow64),
            View::Default => None,
        };
        let machine = wanted.or_else(|| machine_of(effective)).unwrap_or(self.facts.machine);
        let switched = u32::from(machine.image_machine()) != effective;
        if switched {
            // SAFETY: integers only.
            unsafe { self.control.SetEffectiveProcessorType(u32::from(machine.image_machine())) }
                .said("switch the machine")?;
        }
        let mut bytes = vec![0u8; Context::record_size(machine)];
        // SAFETY: the buffer is as long as said.
        let read = unsafe {
            self.advanced.GetThreadContext(bytes.as_mut_ptr().cast::<c_void>(), u32::try_from(bytes.len()).unwrap_or(0))
        };
        if switched {
            // SAFETY: integers only.
            unsafe { self.control.SetEffectiveProcessorType(effective) }.said("switch the machine back")?;
        }
        Ok(read.ok().and_then(|()| Context::from_bytes(machine, &bytes, ContextSource::Live)))
    }

    pub(crate) fn read_event(&self) -> Result<Option<StoredEvent>> {
        let mut info = DEBUG_LAST_EVENT_INFO_EXCEPTION::default();
        let size = u32::try_from(size_of_val(&info)).unwrap_or(0);
        let (mut kind, mut process, mut thread) = (0, 0, 0);
        let mut context = vec![0u8; 0x1000];
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
            return Ok(None);
        }
        context.truncate(context_used as usize);
        let parsed = Context::from_bytes(self.facts.machine, &context, ContextSource::Exception);
        let system_id = self.thread_ids()?.into_iter().find(|(id, _)| *id == thread).map(|(_, system)| system);
        let record = info.ExceptionRecord;
        let count = (record.NumberParameters as usize).min(record.ExceptionInformation.len());
        let narrow = |value: u64| if self.facts.machine == Machine::X86 { value & 0xffff_ffff } else { value };
        Ok(Some(StoredEvent {
            thread: system_id,
            record: ExceptionRecord {
                code: record.ExceptionCode.0.cast_unsigned(),
                flags: record.ExceptionFlags,
                nested: narrow(record.ExceptionRecord),
                address: narrow(record.ExceptionAddress),
                parameters: record.ExceptionInformation[..count].iter().copied().map(narrow).collect(),
            },
            first_chance: Some(info.FirstChance != 0),
            context_invalid: parsed.is_none() && !context.is_empty(),
            context: parsed,
        }))
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
        Ok((code != 0).then_some(BugCheck { code, parameters: p, driver: None }))
    }
}
