//! Letting go of the target: a dump is closed, a launched process ends, an attached one goes on.

use target::{Ending, Result};
use windows::Win32::System::Diagnostics::Debug::Extensions::{
    DEBUG_END_ACTIVE_DETACH, DEBUG_END_ACTIVE_TERMINATE, DEBUG_STATUS_NO_DEBUGGEE,
};

use crate::engine::{DbgEng, EngineResult, Origin};

impl DbgEng {
    pub(crate) fn let_go(&self) -> Result<Ending> {
        if self.released.replace(true) {
            return Ok(self.ending());
        }
        match &self.origin {
            Origin::Dump => {
                // SAFETY: integers only.
                unsafe { self.client.EndSession(DEBUG_END_ACTIVE_DETACH) }.said("close the dump")?;
            }
            Origin::Launched => {
                if self.status() != DEBUG_STATUS_NO_DEBUGGEE {
                    // SAFETY: no arguments, integers only.
                    unsafe {
                        let _ = self.client.TerminateProcesses();
                        self.client.EndSession(DEBUG_END_ACTIVE_TERMINATE)
                    }
                    .said("end the process")?;
                }
            }
            Origin::Attached(pids) => self.detach(pids)?,
            Origin::Kernel => {
                if let Err(error) = self.let_kernel_go() {
                    self.released.set(false);
                    return Err(error);
                }
            }
        }
        Ok(self.ending())
    }

    /// A raw command may have let go of it before, one way or the other: the process itself tells.
    fn ending(&self) -> Ending {
        let earlier = self.gone.borrow().is_some();
        match &self.origin {
            Origin::Dump => Ending::Closed,
            Origin::Launched if earlier && self.exited_with().is_none() => Ending::Detached,
            Origin::Launched => Ending::Terminated,
            Origin::Attached(_) if earlier && self.exited_with().is_some() => Ending::Closed,
            Origin::Attached(_) => Ending::Detached,
            Origin::Kernel if earlier => Ending::Closed,
            Origin::Kernel => Ending::ResumedAndDetached,
        }
    }

    /// `EndSession` has one flag for all processes, and passively ends them; so each attached one is
    /// detached by itself first. Breakpoints go before: a patched `int3` kills the process later.
    fn detach(&self, attached: &[u32]) -> Result<()> {
        if self.status() == DEBUG_STATUS_NO_DEBUGGEE {
            return Ok(());
        }
        self.remove_all_breakpoints();
        let mut outcome = Ok(());
        for (id, pid) in self.processes_here() {
            // SAFETY: integers only.
            let result = unsafe {
                self.system.SetCurrentProcessId(id).and_then(|()| {
                    if attached.contains(&pid) {
                        self.client.DetachCurrentProcess()
                    } else {
                        self.client.TerminateCurrentProcess()
                    }
                })
            };
            outcome = outcome.and(result.said(&format!("detach from process {pid}")));
        }
        // SAFETY: integers only.
        let ended = unsafe { self.client.EndSession(DEBUG_END_ACTIVE_DETACH) };
        if self.status() != DEBUG_STATUS_NO_DEBUGGEE {
            outcome = outcome.and(ended.said("end the session"));
        }
        outcome
    }

    /// None of a kernel's: no thread is made in its processes.
    pub(crate) fn pids_here(&self) -> Vec<u32> {
        if self.origin == Origin::Kernel {
            return Vec::new();
        }
        self.processes_here().into_iter().map(|(_, pid)| pid).collect()
    }

    /// `(engine id, system id)` of the processes in the session.
    pub(crate) fn processes_here(&self) -> Vec<(u32, u32)> {
        // SAFETY: no arguments.
        let count = unsafe { self.system.GetNumberProcesses() }.unwrap_or(0).min(4096);
        let (mut ids, mut pids) = (vec![0; count as usize], vec![0; count as usize]);
        // SAFETY: both arrays hold `count` entries.
        let read = unsafe {
            self.system.GetProcessIdsByIndex(0, count, Some(ids.as_mut_ptr()), Some(pids.as_mut_ptr()))
        };
        if read.is_err() {
            return Vec::new();
        }
        ids.into_iter().zip(pids).collect()
    }
}
