//! A process's exit code, asked of the system: an event callback for the process's end makes the
//! engine's wait fail under Wine, and the engine forgets the code with the process.

use windows::Win32::Foundation::{CloseHandle, HANDLE};
use windows::Win32::System::Threading::{
    GetExitCodeProcess, OpenProcess, PROCESS_QUERY_LIMITED_INFORMATION, PROCESS_SYNCHRONIZE,
    WaitForSingleObject,
};

/// `STILL_ACTIVE` (minwinbase.h).
const STILL_ACTIVE: u32 = 259;
/// How long the system may take to end a process the debugger let go of, in milliseconds.
const SETTLE: u32 = 500;

/// A handle that outlives the debug session.
pub(crate) struct ExitCode(HANDLE);

impl ExitCode {
    pub(crate) fn of(pid: u32) -> Option<Self> {
        // SAFETY: integers only; the handle is closed on drop.
        unsafe { OpenProcess(PROCESS_QUERY_LIMITED_INFORMATION | PROCESS_SYNCHRONIZE, false, pid) }
            .ok()
            .map(Self)
    }

    /// `None` while it runs.
    pub(crate) fn read(&self) -> Option<u32> {
        let mut code = 0;
        // SAFETY: the handle is open, the pointer is to a local.
        unsafe { GetExitCodeProcess(self.0, &mut code) }.ok()?;
        (code != STILL_ACTIVE).then_some(code)
    }

    /// The code of a process that is ending.
    pub(crate) fn settled(&self) -> Option<u32> {
        self.read().or_else(|| {
            // SAFETY: the handle is open.
            unsafe { WaitForSingleObject(self.0, SETTLE) };
            self.read()
        })
    }
}

impl Drop for ExitCode {
    fn drop(&mut self) {
        // SAFETY: the handle is this object's own and not used again.
        let _ = unsafe { CloseHandle(self.0) };
    }
}
