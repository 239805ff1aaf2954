//! The queue and the interrupt state, under one lock (spec 10 section 1.7): a break reaches the job
//! that was running when it arrived, or nothing.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use channel::{Interrupt, OPEN_ID};
use serde_json::Value;

/// What the engine thread is asked for.
#[derive(Debug, PartialEq)]
pub(crate) enum Work {
    Open(Value),
    Run { operation: String, args: Value },
    End,
}

/// A queued request.
#[derive(Debug)]
pub(crate) struct Queued {
    pub(crate) id: u64,
    pub(crate) work: Work,
    pub(crate) patience: Option<Duration>,
    pub(crate) arrived: Instant,
}

/// A job the engine thread took.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) queued: Queued,
    /// This job's own break flag; nothing else ever shares it.
    pub(crate) flag: Arc<AtomicBool>,
    /// An interrupt named it before it began.
    pub(crate) barred: bool,
}

#[derive(Debug)]
struct Running {
    id: u64,
    name: String,
    flag: Arc<AtomicBool>,
    raised: bool,
    /// It let the target move.
    pumping: bool,
    /// A batch, and when it will be over.
    finish_by: Option<Instant>,
    /// A batch in its cleanup: no break reaches it.
    sealed: bool,
    /// It waits for a kernel that has not answered: a break would get lost.
    unreachable: bool,
}

impl Running {
    fn raise(&mut self) {
        if self.sealed {
            return;
        }
        self.flag.store(true, Ordering::Relaxed);
        self.raised = true;
    }
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<Queued>,
    running: Option<Running>,
    /// Never pruned by order: ids are given before the queue's order is known, and a bar for a
    /// finished job may come after one for a queued job. Ids are not reused, so a stale one is inert.
    barred: HashSet<u64>,
    tearing_down: bool,
    /// The session is to end: jobs ahead of that still run, but none may let the target run on.
    ending: bool,
    /// A teardown was announced: no batch begins any more.
    abandoned: bool,
    /// The announcement that was told to wait for the running batch.
    promised: Option<u64>,
    released: bool,
    /// A remote kernel is controlled from here.
    kernel: bool,
    /// It is kept when the supervisor goes.
    preserved: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Jobs {
    state: Mutex<State>,
    changed: Condvar,
}

/// Bars kept; the supervisor bars at most what it queued, and far less is ever queued.
const BARS: usize = 65_536;

impl Jobs {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn push(&self, queued: Queued) {
        self.state().queue.push_back(queued);
        self.changed.notify_all();
    }

    /// Waits for the next job and claims it.
    pub(crate) fn take(&self) -> Taken {
        let mut state = self.state();
        loop {
            if let Some(queued) = state.queue.pop_front() {
                let flag = Arc::<AtomicBool>::default();
                let barred = state.barred.remove(&queued.id);
                let name = match &queued.work {
                    Work::Open(_) => "open".to_owned(),
                    Work::Run { operation, .. } => operation.clone(),
                    Work::End => "end".to_owned(),
                };
                state.running = Some(Running {
                    id: queued.id,
                    name,
                    flag: Arc::clone(&flag),
                    raised: false,
                    pumping: false,
                    finish_by: None,
                    sealed: false,
                    unreachable: false,
                });
                return Taken { queued, flag, barred };
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The running job is over: whether a break was raised for it.
    pub(crate) fn finish(&self) -> bool {
        self.state().running.take().is_some_and(|running| running.raised)
    }

    /// Breaks the running job, or bars the one named; with the running job's name.
    pub(crate) fn interrupt(&self, job: Option<u64>) -> (Interrupt, Option<(u64, String)>) {
        let mut state = self.state();
        if let Some(id) = job
            && state.running.as_ref().is_none_or(|running| running.id != id)
        {
            if state.barred.len() < BARS {
                state.barred.insert(id);
            }
            return (Interrupt::Barred, None);
        }
        let Some(running) = state.running.as_mut() else { return (Interrupt::NothingRunning, None) };
        let about = Some((running.id, running.name.clone()));
        if running.sealed {
            return (Interrupt::Sealed, about);
        }
        if running.raised {
            return (Interrupt::AlreadyPending, about);
        }
        if running.unreachable {
            return (Interrupt::Unreachable, about);
        }
        running.raise();
        (Interrupt::Raised, about)
    }

    /// Takes a job out of the queue; `false` when it has begun or is over.
    pub(crate) fn cancel(&self, id: u64) -> bool {
        let mut state = self.state();
        let before = state.queue.len();
        state.queue.retain(|queued| queued.id != id || queued.work == Work::End);
        state.queue.len() < before
    }

    /// The session is to end: an opener still at work has nothing to finish for, and a target that
    /// moves is stopped. Other jobs finish.
    pub(crate) fn ending(&self) {
        let mut state = self.state();
        (state.ending, state.abandoned) = (true, true);
        if let Some(running) =
            state.running.as_mut().filter(|running| running.id == OPEN_ID || running.pumping)
        {
            running.raise();
        }
    }

    /// The running job let the target move. Under the one lock with [`Self::ending`], so that either
    /// sees the other.
    pub(crate) fn moving(&self) {
        let mut state = self.state();
        let ending = state.ending || state.tearing_down;
        if let Some(running) = state.running.as_mut() {
            running.pumping = true;
            if ending && !running.raised {
                running.raise();
            }
        }
    }

    /// Whether the session is to end once the queue is done.
    pub(crate) fn is_ending(&self) -> bool {
        self.state().ending
    }

    /// The supervisor is gone: nobody waits for answers, so break what runs, drop what waits and
    /// release; then wait until that happened: as long as a running batch was given, then at most
    /// `grace`.
    pub(crate) fn abandon(&self, grace: Duration) {
        let mut state = self.state();
        (state.tearing_down, state.abandoned) = (true, true);
        state.queue.clear();
        state.queue.push_back(Queued {
            id: u64::MAX,
            work: Work::End,
            patience: None,
            arrived: Instant::now(),
        });
        if let Some(running) = state.running.as_mut()
            && running.name != "end"
        {
            running.raise();
        }
        self.changed.notify_all();
        let finish_by = state.running.as_ref().and_then(|running| running.finish_by);
        if let Some(left) = finish_by.map(|by| by.saturating_duration_since(Instant::now())) {
            let in_batch =
                |state: &mut State| state.running.as_ref().is_some_and(|running| running.finish_by.is_some());
            let waited = self.changed.wait_timeout_while(state, left, in_batch);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(self.changed.wait_timeout_while(state, grace, |state| !state.released));
    }

    /// The target was let go.
    pub(crate) fn released(&self) {
        self.state().released = true;
        self.changed.notify_all();
    }

    /// Whether new jobs must not begin.
    pub(crate) fn tearing_down(&self) -> bool {
        self.state().tearing_down
    }
}

/// Remote kernels (spec 10 section 1.9).
impl Jobs {
    /// The running job took control of a kernel, which has not answered.
    pub(crate) fn claim_kernel(&self) {
        let mut state = self.state();
        state.kernel = true;
        if let Some(running) = state.running.as_mut() {
            running.unreachable = true;
        }
    }

    /// It answered the job `id`.
    pub(crate) fn reach_kernel(&self, id: u64) {
        if let Some(running) = self.state().running.as_mut().filter(|running| running.id == id) {
            running.unreachable = false;
        }
    }

    pub(crate) fn holds_kernel(&self) -> bool {
        self.state().kernel
    }

    pub(crate) fn preserve(&self) {
        self.state().preserved = true;
    }

    pub(crate) fn preserved(&self) -> bool {
        self.state().preserved
    }

    /// Whether this process must not end by itself.
    pub(crate) fn keeps(&self) -> bool {
        let state = self.state();
        state.kernel && !state.released
    }
}

/// Batches. One acquisition of the lock each: a teardown either stops a batch from beginning or is
/// told how long it will take.
impl Jobs {
    /// The teardown `id` is announced; how long the running batch may still take.
    pub(crate) fn announce(&self, id: u64) -> Duration {
        let mut state = self.state();
        state.abandoned = true;
        let Some(running) = state.running.as_mut() else { return Duration::ZERO };
        let Some(finish_by) = running.finish_by else { return Duration::ZERO };
        if !running.raised {
            running.raise();
        }
        state.promised = Some(id);
        finish_by.saturating_duration_since(Instant::now())
    }

    /// The running job is a batch that will be over within this; `false` when it must not begin.
    pub(crate) fn begin_batch(&self, within: Duration) -> bool {
        let mut state = self.state();
        if state.abandoned {
            return false;
        }
        if let Some(running) = state.running.as_mut() {
            running.finish_by = Instant::now().checked_add(within);
        }
        true
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        self.state().abandoned
    }

    /// Whether a break was raised for the running job.
    pub(crate) fn is_raised(&self) -> bool {
        self.state().running.as_ref().is_some_and(|running| running.raised)
    }

    /// No break reaches the running job from here on; whether one had.
    pub(crate) fn seal(&self) -> bool {
        let mut state = self.state();
        let Some(running) = state.running.as_mut() else { return false };
        running.sealed = true;
        running.flag.store(false, Ordering::Relaxed);
        std::mem::take(&mut running.raised)
    }

    /// The batch is over; the announcement that waits for it.
    pub(crate) fn end_batch(&self) -> Option<u64> {
        let mut state = self.state();
        if let Some(running) = state.running.as_mut() {
            (running.finish_by, running.sealed) = (None, false);
        }
        self.changed.notify_all();
        state.promised.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queued(id: u64) -> Queued {
        let work = Work::Run { operation: format!("job {id}"), args: Value::Null };
        Queued { id, work, patience: None, arrived: Instant::now() }
    }

    #[test]
    fn the_table_of_interrupts() {
        let jobs = Jobs::default();
        assert_eq!(jobs.interrupt(None).0, Interrupt::NothingRunning);
        jobs.push(queued(1));
        let taken = jobs.take();
        assert_eq!(jobs.interrupt(Some(2)).0, Interrupt::Barred);
        assert!(!taken.flag.load(Ordering::Relaxed));
        assert_eq!(jobs.interrupt(None), (Interrupt::Raised, Some((1, "job 1".into()))));
        assert!(taken.flag.load(Ordering::Relaxed));
        assert_eq!(jobs.interrupt(Some(1)).0, Interrupt::AlreadyPending);
        assert!(jobs.finish());
        assert_eq!(jobs.interrupt(None).0, Interrupt::NothingRunning);

        jobs.push(queued(2));
        let next = jobs.take();
        assert!(next.barred);
        assert!(!next.flag.load(Ordering::Relaxed), "a break never reaches the next job");
        assert!(!jobs.finish());
    }

    #[test]
    fn an_end_stops_what_moves_and_nothing_else() {
        let jobs = Jobs::default();
        jobs.push(queued(1));
        jobs.push(queued(2));
        let census = jobs.take();
        jobs.ending();
        assert!(!census.flag.load(Ordering::Relaxed));
        jobs.finish();
        // Whoever moves after the end was asked for is stopped at once.
        let late = jobs.take();
        jobs.moving();
        assert!(late.flag.load(Ordering::Relaxed) && jobs.finish());

        let jobs = Jobs::default();
        jobs.push(queued(1));
        let run = jobs.take();
        jobs.moving();
        assert!(!run.flag.load(Ordering::Relaxed));
        jobs.ending();
        assert!(run.flag.load(Ordering::Relaxed));
    }

    #[test]
    fn a_sealed_batch_is_not_broken_and_one_that_waits_does_not_begin() {
        let jobs = Jobs::default();
        jobs.push(queued(1));
        let batch = jobs.take();
        assert!(jobs.begin_batch(Duration::from_secs(60)));
        assert_eq!(jobs.interrupt(None).0, Interrupt::Raised);
        assert!(jobs.is_raised() && jobs.seal(), "what was raised is drained and told");
        assert!(!batch.flag.load(Ordering::Relaxed) && !jobs.is_raised());
        assert_eq!(jobs.interrupt(None), (Interrupt::Sealed, Some((1, "job 1".into()))));
        let within = jobs.announce(9);
        assert!(within > Duration::from_secs(58) && jobs.is_abandoned(), "{within:?}");
        jobs.moving();
        jobs.ending();
        assert!(!batch.flag.load(Ordering::Relaxed), "a teardown does not cut a cleanup either");
        assert_eq!(jobs.end_batch(), Some(9));
        assert!(!jobs.finish());
        assert_eq!(jobs.announce(10), Duration::ZERO);
        jobs.push(queued(2));
        jobs.take();
        assert!(!jobs.begin_batch(Duration::from_secs(60)), "abandoned is for ever");
    }

    #[test]
    fn an_announcement_breaks_a_batch_that_is_not_in_its_cleanup() {
        let jobs = Jobs::default();
        jobs.push(queued(1));
        let batch = jobs.take();
        assert!(jobs.begin_batch(Duration::from_secs(60)));
        assert!(jobs.announce(2) > Duration::ZERO);
        assert!(batch.flag.load(Ordering::Relaxed) && jobs.is_raised() && jobs.is_abandoned());
    }

    /// Never a batch that runs while the teardown was told that there is nothing to wait for.
    #[test]
    fn beginning_and_announcing_exclude_each_other() {
        for _ in 0..200 {
            let jobs = Arc::new(Jobs::default());
            jobs.push(queued(1));
            jobs.take();
            let other = Arc::clone(&jobs);
            let announcing = std::thread::spawn(move || other.announce(2));
            let began = jobs.begin_batch(Duration::from_secs(60));
            let within = announcing.join().unwrap();
            assert_eq!(began, within > Duration::ZERO);
        }
    }

    #[test]
    fn a_batch_is_given_its_time_when_the_supervisor_goes() {
        let jobs = Arc::new(Jobs::default());
        jobs.push(queued(1));
        jobs.take();
        assert!(jobs.begin_batch(Duration::from_secs(30)));
        let engine = Arc::clone(&jobs);
        let thread = std::thread::spawn(move || {
            // Longer than the grace of the release alone.
            std::thread::sleep(Duration::from_millis(300));
            engine.end_batch();
            engine.finish();
            engine.take();
            engine.released();
        });
        let began = Instant::now();
        jobs.abandon(Duration::from_millis(100));
        assert!(began.elapsed() >= Duration::from_millis(280) && began.elapsed() < Duration::from_secs(10));
        thread.join().unwrap();
    }

    #[test]
    fn bars_are_a_set_whatever_their_order() {
        let jobs = Jobs::default();
        jobs.interrupt(Some(7));
        jobs.interrupt(Some(3));
        for id in [3, 5, 7] {
            jobs.push(queued(id));
            assert_eq!(jobs.take().barred, id != 5);
            jobs.finish();
        }
    }

    #[test]
    fn a_kernel_that_has_not_answered_is_unreachable_and_keeps_the_process() {
        let jobs = Jobs::default();
        jobs.push(queued(1));
        let taken = jobs.take();
        assert!(!jobs.keeps());
        jobs.claim_kernel();
        assert_eq!(jobs.interrupt(None).0, Interrupt::Unreachable);
        assert!(!taken.flag.load(Ordering::Relaxed) && jobs.keeps());
        jobs.reach_kernel(2);
        assert_eq!(jobs.interrupt(None).0, Interrupt::Unreachable);
        jobs.reach_kernel(1);
        assert_eq!(jobs.interrupt(None).0, Interrupt::Raised);
        jobs.finish();
        jobs.released();
        assert!(!jobs.keeps());
    }

    #[test]
    fn cancel_takes_only_what_has_not_begun() {
        let jobs = Jobs::default();
        jobs.push(queued(1));
        jobs.push(queued(2));
        let taken = jobs.take();
        assert_eq!(taken.queued.id, 1);
        assert!(!jobs.cancel(1));
        assert!(jobs.cancel(2));
        assert!(!jobs.cancel(2));
    }

    #[test]
    fn abandoning_breaks_and_waits_for_the_release() {
        let jobs = Arc::new(Jobs::default());
        jobs.push(queued(1));
        jobs.push(queued(2));
        let taken = jobs.take();
        let engine = Arc::clone(&jobs);
        let thread = std::thread::spawn(move || {
            while !taken.flag.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            engine.finish();
            let next = engine.take();
            engine.released();
            next.queued.work
        });
        jobs.abandon(Duration::from_secs(5));
        assert_eq!(thread.join().unwrap(), Work::End);
        assert!(jobs.tearing_down());
    }
}
