//! The only thread besides the engine's that calls into DbgEng, and only to raise a break: it turns
//! a [`Halt`] or a run's bound into `SetInterrupt`, and parks while nothing is running.

use std::cell::Cell;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use target::{Halt, Stop};
use windows::Win32::System::Diagnostics::Debug::Extensions::{DEBUG_INTERRUPT_ACTIVE, IDebugControl4};
use windows::core::{HRESULT, Interface};

use crate::inject::Injection;

/// How often a halt flag, which nobody signals, is looked at while something runs.
const LOOK: Duration = Duration::from_millis(10);

/// A break by thread ([`Injection`]) that has not stopped the target by then is followed by
/// `SetInterrupt`: the engine may be busy with a breakpoint's own command.
const ESCALATE: Duration = Duration::from_secs(5);

/// Which engine call is watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Watched {
    /// One that does not let the target move.
    Call,
    /// One that does.
    Resume {
        /// System ids of the processes that move.
        processes: Vec<u32>,
        /// The break that was raised before and whose stop has not come.
        raised: Option<Cause>,
    },
}

/// Who filed a break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The operation's own bound.
    Bound,
    /// The halt's deadline.
    Deadline,
    /// The halt's flag or a [`Breaker`].
    Request,
}

/// What the watchdog watches.
struct Armed {
    halt: Halt,
    bound: Option<Instant>,
    watched: Watched,
    requested: bool,
    raised: Option<Cause>,
    /// When a break by thread is given up on.
    escalate: Option<Instant>,
    /// Tells this call from the next.
    serial: u64,
}

impl Armed {
    fn due(&self, now: Instant) -> Option<Cause> {
        if self.raised.is_some() {
            return None;
        }
        match self.halt.stop() {
            Some(Stop::Interrupted) => return Some(Cause::Request),
            Some(Stop::Deadline) => return Some(Cause::Deadline),
            None => {}
        }
        if self.requested {
            return Some(Cause::Request);
        }
        self.bound.is_some_and(|at| now >= at).then_some(Cause::Bound)
    }

    fn sleep(&self, now: Instant) -> Duration {
        if self.raised.is_some() {
            let until = self.escalate.map(|at| at.saturating_duration_since(now));
            return until.unwrap_or(Duration::from_secs(3600)).max(Duration::from_millis(1));
        }
        let until_bound = self.bound.map_or(LOOK, |at| at.saturating_duration_since(now));
        until_bound.min(LOOK).max(Duration::from_millis(1))
    }
}

#[derive(Default)]
struct State {
    armed: Option<Armed>,
    ended: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `SetInterrupt` is the one call DbgEng documents as callable from any thread.
struct Raiser(IDebugControl4);
// SAFETY: only SetInterrupt is called through it, which dbgeng.h allows from every thread; the
// reference count of DbgEng's objects is interlocked.
unsafe impl Send for Raiser {}

impl Raiser {
    fn raise(&self) -> bool {
        // SAFETY: an integer argument.
        unsafe { self.0.SetInterrupt(DEBUG_INTERRUPT_ACTIVE) }.is_ok()
    }
}

/// Breaks in from any thread. A break reaches the operation that is running when it arrives, or
/// nothing.
#[derive(Clone)]
pub struct Breaker(Arc<Shared>);

impl Breaker {
    /// Asks for a break; `false` when nothing is running.
    pub fn raise(&self) -> bool {
        let mut state = self.0.lock();
        let Some(armed) = &mut state.armed else { return false };
        armed.requested = true;
        self.0.changed.notify_all();
        true
    }
}

/// One per engine.
pub(crate) struct Watchdog {
    shared: Arc<Shared>,
    control: IDebugControl4,
    injection: Option<Arc<Injection>>,
    serial: Cell<u64>,
    thread: Option<JoinHandle<()>>,
}

/// Moves the bound of the call that is watched.
#[derive(Clone)]
pub(crate) struct Bound(Arc<Shared>);

impl Bound {
    /// A break is raised so long from now.
    pub(crate) fn within(&self, time: Duration) {
        if let Some(armed) = self.0.lock().armed.as_mut() {
            armed.bound = Instant::now().checked_add(time);
        }
        self.0.changed.notify_all();
    }
}

impl Watchdog {
    pub(crate) fn bound(&self) -> Bound {
        Bound(Arc::clone(&self.shared))
    }

    pub(crate) fn start(control: &IDebugControl4) -> std::io::Result<Self> {
        let shared = Arc::<Shared>::default();
        let injection = Injection::where_needed();
        let (watched, raiser, by_thread) = (Arc::clone(&shared), Raiser(control.clone()), injection.clone());
        let thread = std::thread::Builder::new()
            .name("dbgeng-watchdog".to_owned())
            .spawn(move || watch(&watched, &raiser, by_thread.as_deref()))?;
        Ok(Self { shared, control: control.clone(), injection, serial: Cell::new(0), thread: Some(thread) })
    }

    /// How running processes are broken into where `SetInterrupt` is no good.
    pub(crate) fn injection(&self) -> Option<&Arc<Injection>> {
        self.injection.as_ref()
    }

    pub(crate) fn breaker(&self) -> Breaker {
        Breaker(Arc::clone(&self.shared))
    }

    /// Watches one engine call. What raised a break, if anything did.
    pub(crate) fn during<T>(
        &self,
        halt: &Halt,
        bound: Option<Duration>,
        watched: Watched,
        call: impl FnOnce() -> T,
    ) -> (T, Option<Cause>) {
        let now = Instant::now();
        let raised = match watched {
            Watched::Resume { raised, .. } => raised,
            Watched::Call => None,
        };
        let serial = self.serial.get().wrapping_add(1);
        self.serial.set(serial);
        self.shared.lock().armed = Some(Armed {
            halt: halt.clone(),
            bound: bound.and_then(|b| now.checked_add(b)),
            watched,
            requested: false,
            raised,
            escalate: None,
            serial,
        });
        if let Some(injection) = self.injection.as_ref().filter(|_| raised.is_some()) {
            injection.want(true);
        }
        self.shared.changed.notify_all();
        let result = call();
        let raised = self.shared.lock().armed.take().and_then(|armed| armed.raised);
        if let Some(injection) = &self.injection {
            injection.want(false);
        }
        (result, raised)
    }

    /// Eats breaks the engine did not consume; says whether there was one.
    pub(crate) fn drain(&self) -> bool {
        let mut any = false;
        for _ in 0..16 {
            // `windows` folds S_FALSE (nothing pending) into success, so the raw answer is asked for.
            // SAFETY: the interface pointer is valid; GetInterrupt takes no arguments.
            let answer: HRESULT =
                unsafe { (Interface::vtable(&self.control).GetInterrupt)(Interface::as_raw(&self.control)) };
            if answer != HRESULT(0) {
                break;
            }
            any = true;
        }
        any
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.shared.lock().ended = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn watch(shared: &Shared, raiser: &Raiser, injection: Option<&Injection>) {
    let mut state = shared.lock();
    while !state.ended {
        let now = Instant::now();
        let Some(armed) = &mut state.armed else {
            state = shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            continue;
        };
        if armed.escalate.is_some_and(|at| now >= at) {
            armed.escalate = None;
            raiser.raise();
        }
        if let Some(cause) = armed.due(now) {
            match (injection, &armed.watched) {
                (Some(injection), Watched::Resume { processes, .. }) if !processes.is_empty() => {
                    let processes = processes.clone();
                    armed.raised = Some(cause);
                    armed.escalate = Some(now + ESCALATE);
                    state = by_thread(shared, state, raiser, injection, &processes);
                    continue;
                }
                // Under the lock: the operation cannot end in between, so the break cannot reach the
                // next one.
                _ if raiser.raise() => armed.raised = Some(cause),
                _ => {}
            }
        }
        let sleep = armed.sleep(now);
        state = shared.changed.wait_timeout(state, sleep).unwrap_or_else(PoisonError::into_inner).0;
    }
}

/// Not under the lock, because it may wait for the target, and the engine's thread may have to resume
/// that first. A break that comes too late for its operation this way stops nothing.
fn by_thread<'a>(
    shared: &'a Shared,
    state: MutexGuard<'a, State>,
    raiser: &Raiser,
    injection: &Injection,
    processes: &[u32],
) -> MutexGuard<'a, State> {
    injection.want(true);
    let serial = state.armed.as_ref().map(|armed| armed.serial);
    drop(state);
    let made = processes.iter().any(|&pid| injection.reach(pid));
    let state = shared.lock();
    if !made && state.armed.as_ref().map(|armed| armed.serial) == serial {
        raiser.raise();
    }
    state
}
