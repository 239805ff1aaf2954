//! The bound every long operation runs under: a deadline and a break flag, polled between pages,
//! frames and symbols, at least every 20 ms in waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::error::TargetError;

/// Why an operation should stop now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    Deadline,
    Interrupted,
}

/// A deadline and a break flag. Cheap to clone; the flag is shared.
#[derive(Clone, Debug)]
pub struct Halt {
    deadline: Option<Instant>,
    flag: Arc<AtomicBool>,
}

impl Halt {
    /// Never stops by itself.
    #[must_use]
    pub fn unbounded() -> Self {
        Self { deadline: None, flag: Arc::default() }
    }
    #[must_use]
    pub fn within(budget: Duration) -> Self {
        Self { deadline: Instant::now().checked_add(budget), flag: Arc::default() }
    }
    /// The same flag under an earlier or equal deadline.
    #[must_use]
    pub fn at_most(&self, budget: Duration) -> Self {
        let own = Instant::now().checked_add(budget);
        let deadline = match (self.deadline, own) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        Self { deadline, flag: Arc::clone(&self.flag) }
    }
    /// The flag, for whoever may raise a break from another thread.
    #[must_use]
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.flag)
    }
    #[must_use]
    pub fn with_flag(flag: Arc<AtomicBool>, budget: Option<Duration>) -> Self {
        Self { deadline: budget.and_then(|b| Instant::now().checked_add(b)), flag }
    }
    /// Why to stop, if it is time to.
    #[must_use]
    pub fn stop(&self) -> Option<Stop> {
        if self.flag.load(Ordering::Relaxed) {
            return Some(Stop::Interrupted);
        }
        match self.deadline {
            Some(at) if Instant::now() >= at => Some(Stop::Deadline),
            _ => None,
        }
    }
    /// [`Self::stop`] as an error naming what was being done.
    pub fn check(&self, doing: &'static str) -> Result<(), TargetError> {
        match self.stop() {
            None => Ok(()),
            Some(Stop::Interrupted) => Err(TargetError::Interrupted),
            Some(Stop::Deadline) => Err(TargetError::Deadline(doing)),
        }
    }
    /// What is left, `None` when unbounded.
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        self.deadline.map(|at| at.saturating_duration_since(Instant::now()))
    }
}
