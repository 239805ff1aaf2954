//! Threads of a kernel dump, running and waiting.

use std::collections::HashSet;

use target::{Context, ContextSource, Halt, KernelThread, Machine, MemoryExt, Result, TargetError, reg};

use super::KernelState;
use super::layout::Layout;
use crate::symbolize::Symbolizer;

const MAX_THREADS: usize = 0x1_0000;
const THREAD_OBJECT: u8 = 6;
/// `KSWITCH_FRAME` of x64: rbp, the return address, and where the stack continues.
const SWITCH_RBP: u64 = 0x30;
const SWITCH_RETURN: u64 = 0x38;
const SWITCH_SIZE: u64 = 0x40;
const STATE_WAITING: [u8; 4] = [1, 5, 7, 8];

impl KernelState {
    pub(crate) fn kernel_threads(
        &self,
        process: u64,
        symbols: &Symbolizer,
        halt: &Halt,
    ) -> Result<Vec<KernelThread>> {
        let layout = self.layout(symbols);
        let (Some(head), Some(links)) = (layout.thread_list, layout.thread_links) else {
            return self.running_threads(process, &layout);
        };
        let head = process.wrapping_add(head);
        let mut out = Vec::new();
        let mut seen = HashSet::from([head]);
        let mut link = match self.core.read_u64(head) {
            Ok(link) => link,
            Err(_) => return self.running_threads(process, &layout),
        };
        while link != head && out.len() < MAX_THREADS && seen.insert(link) {
            halt.check("walking the threads")?;
            let Some(thread) = link.checked_sub(links) else { break };
            if self.core.read_u8(thread).is_err() {
                break;
            }
            out.push(self.read_thread(thread, &layout));
            match self.core.read_u64(link) {
                Ok(next) => link = next,
                Err(_) => break,
            }
        }
        if out.is_empty() { self.running_threads(process, &layout) } else { Ok(out) }
    }

    /// Where the list cannot be followed: the threads on the processors.
    fn running_threads(&self, process: u64, layout: &Layout) -> Result<Vec<KernelThread>> {
        let threads = self.threads();
        let running = threads.iter().filter_map(|t| t.thread_object);
        let mine: Vec<KernelThread> = running
            .filter(|&t| self.process_of_thread(t) == Some(process))
            .map(|t| self.read_thread(t, layout))
            .collect();
        if mine.is_empty() {
            return Err(TargetError::failed_because(
                "no_threads",
                format!("the threads of the process at {process:#x} are not in the dump"),
            ));
        }
        Ok(mine)
    }

    pub(crate) fn current_thread(&self, processor: u32, symbols: &Symbolizer) -> Result<KernelThread> {
        let row = self.threads().get(processor as usize).and_then(|t| t.thread_object);
        let thread = row.ok_or_else(|| {
            TargetError::failed_because(
                "no_thread",
                format!("the dump does not show which thread ran on processor {processor}"),
            )
        })?;
        Ok(self.read_thread(thread, &self.layout(symbols)))
    }

    fn read_thread(&self, object: u64, layout: &Layout) -> KernelThread {
        let kdbg = self.kdbg.as_ref();
        let half = |field: Option<u16>| field.filter(|&o| o != 0).map(u64::from);
        let byte = |offset: Option<u64>| self.core.read_u8(object.checked_add(offset?)?).ok();
        let long = |offset: Option<u64>| self.core.read_u64(object.checked_add(offset?)?).ok();
        let (low, high) = self.thread_stack(object).unzip();
        KernelThread {
            object,
            process: self.process_of_thread(object).unwrap_or(0),
            pid: long(layout.client_id),
            tid: long(layout.client_id.map(|o| o + 8)),
            processor: self.processor_of(object),
            state: byte(half(kdbg.and_then(|k| k.offset_kthread_state()))),
            wait_reason: byte(half(kdbg.and_then(|k| k.offset_kthread_wait_reason()))),
            irql: byte(layout.wait_irql),
            stack_base: high,
            stack_limit: low,
            teb: long(half(kdbg.and_then(|k| k.offset_kthread_teb()))).filter(|&t| t != 0),
        }
    }

    fn processor_of(&self, thread: u64) -> Option<u32> {
        self.threads().iter().find(|t| t.thread_object == Some(thread)).and_then(|t| t.processor)
    }

    /// Registers of a thread: its processor's when it runs, else its switch frame's three.
    pub(crate) fn thread_context(&self, thread: u64) -> Result<Option<Context>> {
        let kind = self.core.read_u8(thread)?;
        if kind & 0x7f != THREAD_OBJECT {
            return Err(TargetError::InvalidArgument(format!(
                "{thread:#x} is no thread: its object type is {kind}, not {THREAD_OBJECT}"
            )));
        }
        if let Some(processor) = self.processor_of(thread) {
            return self.processor_context(processor);
        }
        if self.machine() != Machine::X64 {
            return Ok(None);
        }
        let Some(kdbg) = &self.kdbg else { return Ok(None) };
        let field =
            |offset: Option<u16>| offset.filter(|&o| o != 0).map(|o| thread.wrapping_add(u64::from(o)));
        let state = field(kdbg.offset_kthread_state()).and_then(|at| self.core.read_u8(at).ok());
        if state.is_some_and(|s| !STATE_WAITING.contains(&s)) {
            return Ok(None);
        }
        let Some(stack) =
            field(kdbg.offset_kthread_kernel_stack()).and_then(|at| self.core.read_u64(at).ok())
        else {
            return Ok(None);
        };
        // An unreadable stack was swapped out (or is not in the dump): there is no context then.
        Ok(self.switch_frame(stack))
    }

    fn switch_frame(&self, stack: u64) -> Option<Context> {
        let mut context = Context::new(Machine::X64, ContextSource::SwitchFrame);
        let rip = self.core.read_u64(stack.checked_add(SWITCH_RETURN)?).ok().filter(|&rip| rip != 0)?;
        context.set(reg::RIP, rip);
        context.set(reg::RSP, stack.checked_add(SWITCH_SIZE)?);
        if let Ok(rbp) = self.core.read_u64(stack.checked_add(SWITCH_RBP)?) {
            context.set(reg::RBP, rbp);
        }
        Some(context)
    }
}
