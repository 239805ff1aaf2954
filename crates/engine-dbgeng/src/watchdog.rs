//! The only thread besides the engine's that calls into DbgEng, and only to raise a break: it turns
//! a [`Halt`] or a run's bound into `SetInterrupt`, and parks while nothing is running.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use target::{Halt, Stop};
use windows::Win32::System::Diagnostics::Debug::Extensions::{DEBUG_INTERRUPT_ACTIVE, IDebugControl4};
use windows::core::{HRESULT, Interface};

/// How often a halt flag, which nobody signals, is looked at while something runs.
const LOOK: Duration = Duration::from_millis(10);

/// A break that arrives while the engine steps off a breakpoint, as it does at the start of a resume,
/// kills the process under Wine: so none is raised earlier than this. The first resume of a launch
/// takes longest (spec 10 section 9.4).
const HOLD: Duration = Duration::from_millis(20);
const FIRST_HOLD: Duration = Duration::from_millis(50);

/// Which engine call is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watched {
    /// One that does not let the target move.
    Call,
    Resume {
        first_of_launch: bool,
    },
}

impl Watched {
    fn hold(self) -> Option<Duration> {
        match self {
            Self::Call => None,
            Self::Resume { first_of_launch: true } => Some(FIRST_HOLD),
            Self::Resume { first_of_launch: false } => Some(HOLD),
        }
    }
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
    not_before: Option<Instant>,
    requested: bool,
    raised: Option<Cause>,
}

impl Armed {
    fn due(&self, now: Instant) -> Option<Cause> {
        if self.raised.is_some() || self.not_before.is_some_and(|at| now < at) {
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
            return Duration::from_secs(3600);
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

impl Breaker {
    /// The target has just stopped, or is about to go on: no break for a moment.
    pub(crate) fn hold(&self) {
        if let Some(armed) = &mut self.0.lock().armed {
            let until = Instant::now() + HOLD;
            armed.not_before = Some(armed.not_before.map_or(until, |at| at.max(until)));
        }
    }
}

/// One per engine.
pub(crate) struct Watchdog {
    shared: Arc<Shared>,
    control: IDebugControl4,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    pub(crate) fn start(control: &IDebugControl4) -> std::io::Result<Self> {
        let shared = Arc::<Shared>::default();
        let (watched, raiser) = (Arc::clone(&shared), Raiser(control.clone()));
        let thread = std::thread::Builder::new()
            .name("dbgeng-watchdog".to_owned())
            .spawn(move || watch(&watched, &raiser))?;
        Ok(Self { shared, control: control.clone(), thread: Some(thread) })
    }

    pub(crate) fn breaker(&self) -> Breaker {
        Breaker(Arc::clone(&self.shared))
    }

    /// Watches one engine call.
    pub(crate) fn during<T>(
        &self,
        halt: &Halt,
        bound: Option<Duration>,
        watched: Watched,
        call: impl FnOnce() -> T,
    ) -> (T, Option<Cause>) {
        let now = Instant::now();
        self.shared.lock().armed = Some(Armed {
            halt: halt.clone(),
            bound: bound.and_then(|b| now.checked_add(b)),
            not_before: watched.hold().map(|hold| now + hold),
            requested: false,
            raised: None,
        });
        self.shared.changed.notify_all();
        let result = call();
        let raised = self.shared.lock().armed.take().and_then(|armed| armed.raised);
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

fn watch(shared: &Shared, raiser: &Raiser) {
    let mut state = shared.lock();
    while !state.ended {
        let now = Instant::now();
        state = match &mut state.armed {
            None => shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            Some(armed) => {
                if let Some(cause) = armed.due(now) {
                    // Under the lock: the operation cannot end in between, so the break cannot reach
                    // the next one.
                    if raiser.raise() {
                        armed.raised = Some(cause);
                    }
                }
                let sleep = armed.sleep(now);
                shared.changed.wait_timeout(state, sleep).unwrap_or_else(PoisonError::into_inner).0
            }
        };
    }
}
