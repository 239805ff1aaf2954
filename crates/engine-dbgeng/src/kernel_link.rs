//! The kernel of another machine: the link to it, its first stop, and letting go of it.
//!
//! Until the target answers, the engine sits in a wait that nothing ends (`SetInterrupt` succeeds and
//! does nothing, spec 10 section 9.4), and ending the process neither resumes nor releases a target. So
//! once the link is taken the engine is let go of by [`DbgEng::let_kernel_go`] or not at all: on every
//! failure in between it is kept, and whoever runs this decides about its process.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use target::{Halt, Result, TargetError};
use windows::Win32::Foundation::E_FAIL;
use windows::Win32::System::Diagnostics::Debug::Extensions::{
    DEBUG_ATTACH_KERNEL_CONNECTION, DEBUG_END_ACTIVE_DETACH, DEBUG_STATUS_BREAK, DEBUG_STATUS_GO,
    DEBUG_STATUS_NO_DEBUGGEE,
};
use windows::core::{HRESULT, HSTRING};

use crate::engine::{DbgEng, EngineResult, OpenError, Origin, explain};
use crate::open::{Milestone, OpenOptions, wait};
use crate::output::Collected;
use crate::watchdog::{Cause, Watched};

/// A target that has answered and does not stop is broken into after so long.
const FIRST_STOP: Duration = Duration::from_secs(60);
/// A resumed target that owes no stop any more is quiet for so long, twice.
const QUIET: Duration = Duration::from_millis(1500);
/// Stops that are drained at most beside one a processor.
const SPARE_STOPS: u32 = 2;

/// What is dialled.
pub struct KernelLink<'a> {
    /// As the engine takes it, key and all.
    pub connection: &'a str,
    /// The same without its key, for messages.
    pub aim: &'a str,
    /// Called, on the engine's thread, when the kernel has answered.
    pub connected: Arc<dyn Fn() + Send + Sync>,
}

/// Takes the link and waits, for ever, until its kernel is stopped; one that answers and does not stop is
/// broken into after 60 s.
///
/// # Errors
/// [`OpenError::NotDialled`] before the link was taken; nothing is held then. Later failures leave the
/// engine holding on to the target, on purpose.
pub fn attach_kernel(
    link: KernelLink<'_>,
    options: &OpenOptions,
    on: &dyn Fn(Milestone),
    halt: &Halt,
) -> std::result::Result<DbgEng, OpenError> {
    let aim = link.aim.to_owned();
    let mut engine = DbgEng::create(&options.engine, &options.paths, aim.clone(), Origin::Kernel)?;
    engine.arm_initial_break()?;
    // The engine uses the string again when it reconnects.
    let text = Box::leak(Box::new(HSTRING::from(link.connection)));
    // SAFETY: the string lives as long as this process.
    if let Err(error) = unsafe { engine.client.AttachKernelWide(DEBUG_ATTACH_KERNEL_CONNECTION, &*text) } {
        engine.released.set(true);
        let reason = match error.code() {
            E_FAIL => format!("the link could not be made; is anybody there? ({:#010x})", E_FAIL.0),
            _ => explain(&error),
        };
        return Err(OpenError::NotDialled { aim, reason });
    }
    on(Milestone::Committed);
    let settled = engine.wait_for_kernel(link.connected, halt).and_then(|()| engine.settle());
    if let Err(error) = settled {
        // Dropping it would end the session passively, its target as it is.
        std::mem::forget(engine);
        return Err(error);
    }
    on(Milestone::Opened);
    Ok(engine)
}

impl DbgEng {
    fn wait_for_kernel(
        &self,
        connected: Arc<dyn Fn() + Send + Sync>,
        halt: &Halt,
    ) -> std::result::Result<(), OpenError> {
        let no_stop = |reason: String| OpenError::NoFirstStop { aim: self.aim.clone(), reason };
        let bound = self.watchdog.bound();
        self.output.lock().unwrap_or_else(PoisonError::into_inner).when_connected =
            Some(Arc::new(move || {
                bound.within(FIRST_STOP);
                connected();
            }));
        let watched = Watched::Resume { processes: Vec::new(), raised: None };
        let (answer, _) = self.watchdog.during(halt, None, watched, || wait(&self.control, u32::MAX));
        self.watchdog.drain();
        let said = Collected::take(&self.output);
        if answer != HRESULT(0) {
            let error = windows::core::Error::from(answer);
            return Err(no_stop(format!("{}{}", explain(&error), last_line(&said))));
        }
        match self.status() {
            DEBUG_STATUS_BREAK => Ok(()),
            status => {
                Err(no_stop(format!("the target is in state {status}, not stopped{}", last_line(&said))))
            }
        }
    }

    /// Removes what was set, drains the stops the target still owes, resumes it and ends the session
    /// with the engine's own detach.
    pub(crate) fn let_kernel_go(&self) -> Result<()> {
        if self.status() == DEBUG_STATUS_NO_DEBUGGEE {
            return Ok(());
        }
        self.remove_all_breakpoints();
        self.drain_stops()?;
        // SAFETY: integers only.
        unsafe { self.client.EndSession(DEBUG_END_ACTIVE_DETACH) }
            .said("resume and detach from the kernel")?;
        match self.status() {
            DEBUG_STATUS_NO_DEBUGGEE => Ok(()),
            status => Err(TargetError::failed(format!(
                "DbgEng still holds the kernel after its detach, in state {status}"
            ))),
        }
    }

    /// One quiet window is not enough: a slow break looks like freedom.
    fn drain_stops(&self) -> Result<()> {
        // SAFETY: no arguments.
        let processors = unsafe { self.control.GetNumberProcessors() }.unwrap_or(1);
        let mut quiet = 0;
        for _ in 0..processors.min(256) + SPARE_STOPS + 2 {
            self.set_status(DEBUG_STATUS_GO)?;
            let watched = Watched::Resume { processes: Vec::new(), raised: None };
            let (answer, raised) = self
                .watchdog
                .during(&Halt::unbounded(), Some(QUIET), watched, || wait(&self.control, u32::MAX));
            self.watchdog.drain();
            if answer != HRESULT(0) {
                let error = windows::core::Error::from(answer);
                return Err(TargetError::failed(format!("the kernel did not resume: {}", explain(&error))));
            }
            // Cut at its bound it ran all the time.
            quiet = if raised == Some(Cause::Bound) { quiet + 1 } else { 0 };
            if quiet == 2 {
                return Ok(());
            }
        }
        Err(TargetError::failed("the kernel stops again each time it is resumed"))
    }
}

fn last_line(said: &str) -> String {
    let line = said.lines().rev().map(str::trim).find(|line| !line.is_empty());
    line.map(|line| format!("; it said: {line}")).unwrap_or_default()
}
