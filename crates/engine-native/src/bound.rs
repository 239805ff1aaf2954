//! The bound of the call being served, for what it starts on the way: look-ups and downloads.

use std::cell::RefCell;
use std::time::Duration;

use target::Halt;

/// Holds the current call's [`Halt`]; calls that have none are bounded by each look-up's own budget.
#[derive(Default)]
pub(crate) struct CallBound {
    halt: RefCell<Option<Halt>>,
}

impl CallBound {
    /// Runs `work`, whose look-ups stop when `halt` says so.
    pub(crate) fn during<T>(&self, halt: &Halt, work: impl FnOnce() -> T) -> T {
        let outer = self.halt.replace(Some(halt.clone()));
        let result = work();
        self.halt.replace(outer);
        result
    }

    /// The bound of one look-up that may take `budget` at most.
    pub(crate) fn lookup(&self, budget: Duration) -> Halt {
        match self.halt.borrow().as_ref() {
            Some(halt) => halt.at_most(budget),
            None => Halt::within(budget),
        }
    }
}
