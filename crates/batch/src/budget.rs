//! A batch's time (spec 20 section 2.5): half of it, at most 30 s, is kept for the cleanup.

use std::time::Duration;

/// No step gets less: a bound of zero means "for ever" to some engines.
pub const FLOOR_MS: u64 = 1000;
pub(crate) const FLOOR: Duration = Duration::from_millis(FLOOR_MS);
const DEFAULT: Duration = Duration::from_secs(120);
const LEAST: Duration = Duration::from_millis(2 * FLOOR_MS);
const MOST_RESERVE: Duration = Duration::from_secs(30);

/// The deadlines of a batch, measured from its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    pub total: Duration,
    /// No step begins after this.
    pub steps_deadline: Duration,
    /// No cleanup step begins after this.
    pub always_deadline: Duration,
}

/// There is not enough of the caller's time left to run and to clean up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "not begun: {left_ms} ms of the call's time were left and a batch takes at least 2000 ms, half of which is kept \
     for its cleanup. Nothing was read and nothing changed; call again when the session is idle"
)]
pub struct TooLittle {
    pub left_ms: u64,
}

impl Budget {
    /// `left` is what remains of the caller's patience with the headroom taken off, measured when the
    /// batch leaves the queue; `None` when nobody's patience ends.
    ///
    /// # Errors
    /// [`TooLittle`]: below 2000 ms nothing is run.
    pub fn of(timeout_ms: Option<u64>, left: Option<Duration>) -> Result<Self, TooLittle> {
        let asked = timeout_ms.map_or(DEFAULT, Duration::from_millis);
        let total = left.map_or(asked, |left| left.min(asked));
        if total < LEAST {
            return Err(TooLittle { left_ms: u64::try_from(total.as_millis()).unwrap_or(u64::MAX) });
        }
        let reserve = MOST_RESERVE.min(total / 2);
        Ok(Self { total, steps_deadline: total - reserve, always_deadline: total })
    }
}

/// What a step may take, its block ending at `deadline`.
pub(crate) fn step_budget(deadline: Duration, elapsed: Duration) -> Duration {
    deadline.saturating_sub(elapsed).max(FLOOR)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn the_reserve_is_taken_up_front() {
        let budget = Budget::of(Some(60_000), None).unwrap();
        assert_eq!(
            (budget.total, budget.steps_deadline, budget.always_deadline),
            (seconds(60), seconds(30), seconds(60))
        );
        let budget = Budget::of(Some(4000), Some(seconds(100))).unwrap();
        assert_eq!((budget.total, budget.steps_deadline), (seconds(4), seconds(2)));
        assert_eq!(Budget::of(None, None).unwrap().total, seconds(120));
        assert_eq!(
            Budget::of(Some(120_000), Some(Duration::from_millis(7500))).unwrap().total.as_millis(),
            7500
        );
    }

    #[test]
    fn below_two_floors_nothing_is_run() {
        assert_eq!(Budget::of(None, Some(Duration::from_millis(1999))), Err(TooLittle { left_ms: 1999 }));
        assert!(Budget::of(None, Some(seconds(2))).is_ok());
    }

    #[test]
    fn a_step_never_gets_nothing() {
        assert_eq!(step_budget(seconds(30), seconds(10)), seconds(20));
        assert_eq!(step_budget(seconds(30), seconds(31)), FLOOR);
    }
}
