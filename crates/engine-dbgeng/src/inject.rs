//! Breaking into a live process under Wine.
//!
//! `SetInterrupt` makes the engine create a thread in the target that runs into an `int3`. Wine has
//! that thread created by one of the target's own threads, often by one that is just reporting a
//! breakpoint from inside its SIGTRAP handler, and the new thread inherits the signal mask of that
//! handler: SIGTRAP blocked, so its `int3` ends the whole process. (Seen with Wine 8.0: signal 5
//! delivered to the new thread with its handler reset; `docs/dbgeng.md` says how to see it.)
//!
//! So the thread made here runs into nothing. It starts in `ntdll!RtlExitUserThread`, and its creation
//! is the event that stops the target, if a break is still wanted when the event arrives. One that
//! arrives late is passed over without a trace.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use windows::Win32::Foundation::{CloseHandle, HANDLE};
use windows::Win32::System::LibraryLoader::{GetModuleHandleW, GetProcAddress};
use windows::Win32::System::Threading::{
    IsWow64Process, OpenProcess, PROCESS_CREATE_THREAD, PROCESS_QUERY_INFORMATION, PROCESS_VM_OPERATION,
    PROCESS_VM_READ, PROCESS_VM_WRITE,
};
use windows::core::{BOOL, PCSTR, s, w};

/// `THREAD_CREATE_FLAGS_SKIP_THREAD_ATTACH` (ntpsapi.h): no DLL of the target hears of the thread.
const SKIP_THREAD_ATTACH: u32 = 2;
/// `THREAD_ALL_ACCESS` (winnt.h).
const ALL_ACCESS: u32 = 0x001f_ffff;

type CreateThread = unsafe extern "system" fn(
    *mut HANDLE,
    u32,
    *const c_void,
    HANDLE,
    *const c_void,
    *const c_void,
    u32,
    usize,
    usize,
    usize,
    *const c_void,
) -> i32;

/// Shared by the watchdog, which makes the thread, and the event callback, which meets it. Lock-free:
/// the callback must not wait for the watchdog, which waits for the target.
#[derive(Debug)]
pub(crate) struct Injection {
    create: u64,
    start: u64,
    wanted: AtomicBool,
    hit: AtomicBool,
}

impl Injection {
    /// `None` where `SetInterrupt` does it well, which is on Windows.
    pub(crate) fn where_needed() -> Option<Arc<Self>> {
        crate::wine::version()?;
        let create = in_ntdll(s!("NtCreateThreadEx"))?;
        let start = in_ntdll(s!("RtlExitUserThread"))?;
        Some(Arc::new(Self { create, start, wanted: AtomicBool::new(false), hit: AtomicBool::new(false) }))
    }

    pub(crate) fn want(&self, wanted: bool) {
        self.wanted.store(wanted, Ordering::SeqCst);
    }

    /// Whether the creation of a thread that begins at `start` is to stop the target.
    pub(crate) fn meets(&self, start: u64) -> bool {
        let stops = start == self.start && self.wanted.swap(false, Ordering::SeqCst);
        if stops {
            self.hit.store(true, Ordering::SeqCst);
        }
        stops
    }

    /// Whether the last stop was such a thread's; asked once.
    pub(crate) fn take_hit(&self) -> bool {
        self.hit.swap(false, Ordering::SeqCst)
    }

    /// Makes the thread. Returns when a thread of the target has seen to it, which may be only after
    /// the target was resumed.
    pub(crate) fn reach(&self, pid: u32) -> bool {
        let access = PROCESS_CREATE_THREAD
            | PROCESS_QUERY_INFORMATION
            | PROCESS_VM_OPERATION
            | PROCESS_VM_READ
            | PROCESS_VM_WRITE;
        // SAFETY: integers only; the handle is closed below.
        let Ok(process) = (unsafe { OpenProcess(access, false, pid) }) else { return false };
        let made = self.same_ntdll(process) && self.create_in(process);
        // SAFETY: opened above and not used again.
        let _ = unsafe { CloseHandle(process) };
        made
    }

    /// Code addresses of this process's ntdll mean nothing in one of other bitness.
    fn same_ntdll(&self, process: HANDLE) -> bool {
        let mut wow64 = BOOL(0);
        // SAFETY: the handle is open, the pointer is to a local.
        unsafe { IsWow64Process(process, &mut wow64) }
            .is_ok_and(|()| cfg!(target_pointer_width = "32") || !wow64.as_bool())
    }

    fn create_in(&self, process: HANDLE) -> bool {
        let mut thread = HANDLE::default();
        // SAFETY: `create` is ntdll's NtCreateThreadEx, which has this signature (ntpsapi.h); pointers
        // are to a local or null, and the start address is of ntdll, which the target has, too.
        let status = unsafe {
            let create: CreateThread = std::mem::transmute(self.create as usize);
            create(
                &mut thread,
                ALL_ACCESS,
                std::ptr::null(),
                process,
                self.start as usize as *const c_void,
                std::ptr::null(),
                SKIP_THREAD_ATTACH,
                0,
                0,
                0,
                std::ptr::null(),
            )
        };
        if status < 0 {
            tracing::warn!("no thread to break in with: NTSTATUS {:#010x}", status.cast_unsigned());
            return false;
        }
        // SAFETY: a handle of this process, not used again.
        let _ = unsafe { CloseHandle(thread) };
        true
    }
}

/// An export of this process's ntdll, which lies at the same place in every process of its bitness.
pub(crate) fn in_ntdll(name: PCSTR) -> Option<u64> {
    // SAFETY: constant names; ntdll is never unloaded.
    unsafe { GetProcAddress(GetModuleHandleW(w!("ntdll.dll")).ok()?, name) }.map(|at| at as usize as u64)
}
