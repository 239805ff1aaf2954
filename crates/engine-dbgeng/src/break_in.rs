//! The thread that a break injects into a live process (spec 10 section 9.6): it starts in
//! `ntdll!DbgUiRemoteBreakin` and stops in `ntdll!DbgBreakPoint`. One whose stop came too late for the
//! run it was meant for arrives in a later one, or in the one after that.

use std::ffi::c_void;

use target::capability::StopReason;
use target::{ExceptionRecord, MemoryExt, SymbolHit, TargetExt};
use windows::Win32::Foundation::HANDLE;
use windows::core::s;

use crate::engine::{DbgEng, EngineResult, Origin};
use crate::inject::in_ntdll;
use crate::run::{BREAKPOINT, Before, Event};

const INT3: u8 = 0xcc;
/// `ThreadQuerySetWin32StartAddress` (`THREADINFOCLASS`, winternl.h).
const START_ADDRESS: u32 = 9;

impl DbgEng {
    /// Whether the breakpoint exception `record` is the stop of an injected thread.
    pub(crate) fn is_break_in(&self, event: &Event, record: &ExceptionRecord, before: &Before) -> bool {
        if self.origin == Origin::Kernel {
            // No thread is made there: the processor that hears the break runs into the kernel's own.
            return self.at_kernel_break(record.address);
        }
        // A new process's own first stop looks the same.
        if !before.processes.contains(&event.process) || !self.at_break_point(record.address) {
            return false;
        }
        match (self.start_address(event.thread), in_ntdll(s!("DbgUiRemoteBreakin"))) {
            (Some(start), Some(break_in)) if start == break_in => true,
            // Another ntdll's (32-bit code under a 64-bit debugger): a thread that was not there before.
            _ => self.is_new(event.thread, before),
        }
    }

    /// The engine gives an ended thread's id to the next one, so both ids count.
    fn is_new(&self, id: u32, before: &Before) -> bool {
        let now = self.thread_ids().unwrap_or_default();
        now.iter().find(|thread| thread.0 == id).is_some_and(|thread| !before.threads.contains(thread))
    }

    fn at_break_point(&self, address: u64) -> bool {
        let at = self.read_symbol_at(address).ok().flatten();
        at.is_some_and(|hit| hit.displacement <= 1 && hit.name.eq_ignore_ascii_case("DbgBreakPoint"))
            || self
                .export_address("ntdll", "DbgBreakPoint")
                .is_some_and(|break_point| address.wrapping_sub(break_point) <= 1)
    }

    fn export_address(&self, module: &str, name: &str) -> Option<u64> {
        let module = self.module_named(module).ok().flatten()?;
        let image = pe::MappedImage::new(self, module.base);
        let header = pe::Pe::parse(&image).ok()?;
        let export = header.exports(&image).into_iter().find(|e| e.name.as_deref() == Some(name))?;
        module.base.checked_add(u64::from(export.rva()?))
    }

    /// Where a thread of the process began.
    fn start_address(&self, thread: u32) -> Option<u64> {
        let handle = self.on_thread(thread, || {
            // SAFETY: no arguments.
            unsafe { self.system.GetCurrentThreadHandle() }.said("ask for the thread's handle")
        });
        // The engine's own handle, which it closes.
        started_at(HANDLE(handle.ok()? as *mut c_void))
    }

    /// Whether a kernel's breakpoint exception is the stop that was asked for: where nobody can name the
    /// place, one that is no break instruction of the kernel's own.
    pub(crate) fn is_asked_break(&self, reason: &StopReason) -> bool {
        let StopReason::Exception { record, .. } = reason else { return false };
        self.origin == Origin::Kernel
            && BREAKPOINT.contains(&record.code)
            && (self.symbol_hit(record.address).is_none() || self.read_u8(record.address) != Ok(INT3))
    }

    fn symbol_hit(&self, address: u64) -> Option<SymbolHit> {
        self.read_symbol_at(address).ok().flatten()
    }

    fn at_kernel_break(&self, address: u64) -> bool {
        let at = self.symbol_hit(address);
        let named = |name: &str| {
            ["DbgBreakPointWithStatus", "RtlpBreakWithStatusInstruction"]
                .iter()
                .any(|known| name.eq_ignore_ascii_case(known))
        };
        at.is_some_and(|hit| hit.displacement <= 1 && named(&hit.name))
    }

    /// Makes the thread current again that was before the run; when that one has ended (that of an
    /// attach does), the first that is not the injected one.
    pub(crate) fn leave_break_thread(&self, before: &Before) {
        if self.origin == Origin::Kernel {
            // The processor that stopped is the one to look at, and the engine steps off its break.
            return;
        }
        self.step_past_break();
        // SAFETY: no arguments.
        let injected = unsafe { self.system.GetCurrentThreadId() }.ok();
        let now = self.thread_ids().unwrap_or_default();
        let same = |id: u32| before.threads.iter().any(|thread| thread.0 == id && now.contains(thread));
        let another = || now.iter().map(|thread| thread.0).find(|&id| Some(id) != injected);
        if let Some(thread) = before.current.filter(|&id| same(id)).or_else(another) {
            // SAFETY: integers only.
            let _ = unsafe { self.system.SetCurrentThreadId(thread) };
        }
    }

    /// The engine steps off a break instruction on the current thread only; with another one made
    /// current the injected thread would run into it again.
    fn step_past_break(&self) {
        // SAFETY: no arguments.
        let Ok(ip) = (unsafe { self.registers.GetInstructionOffset() }) else { return };
        if self.read_u8(self.narrow(ip)) != Ok(INT3) {
            return;
        }
        let past = self.narrow(ip).wrapping_add(1);
        let set = |name| target::Write::set_register(self, name, past);
        if let Err(error) = set("rip").or_else(|_| set("eip")) {
            tracing::warn!("the break-in thread stays at its break instruction: {error}");
        }
    }
}

fn started_at(thread: HANDLE) -> Option<u64> {
    type Query = unsafe extern "system" fn(HANDLE, u32, *mut c_void, u32, *mut u32) -> i32;
    let query = in_ntdll(s!("NtQueryInformationThread"))?;
    let mut start = 0usize;
    // SAFETY: the export has this signature (winternl.h), and the buffer is as long as said.
    let status = unsafe {
        let query: Query = std::mem::transmute(query as usize);
        let size = u32::try_from(size_of::<usize>()).unwrap_or(0);
        query(thread, START_ADDRESS, (&raw mut start).cast(), size, std::ptr::null_mut())
    };
    (status >= 0).then_some(start as u64)
}
