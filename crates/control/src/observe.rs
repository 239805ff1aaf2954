//! Breakpoints whose hits are looked at in passing: the target goes on at once, nobody sees a stop,
//! and nobody's inventory lists them.

use std::any::Any;

use target::capability::Breakpoint;
use target::{Result, Target};

use crate::run::Runs;
use crate::targets::breakpoints_of;

/// What looks at the hits of one breakpoint.
pub trait Observer: Any + Send {
    /// The target stands at the breakpoint and goes on afterwards: only read it.
    fn hit(&mut self, target: &dyn Target);
    fn as_any(&self) -> &dyn Any;
    fn as_any_mut(&mut self) -> &mut dyn Any;
}

/// An observer and the breakpoint it has.
pub(crate) struct Observed {
    pub(crate) breakpoint: u32,
    address: u64,
    observer: Box<dyn Observer>,
}

impl std::fmt::Debug for Observed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Observed").field("breakpoint", &self.breakpoint).finish_non_exhaustive()
    }
}

impl Runs {
    /// Sets a breakpoint at `address` whose hits only `observer` sees; the breakpoint's id.
    ///
    /// # Errors
    /// `Unsupported`; there is another breakpoint at that address; the engine's own.
    pub fn observe(&mut self, target: &dyn Target, address: u64, observer: Box<dyn Observer>) -> Result<u32> {
        let breakpoints = breakpoints_of(target)?;
        if let Some(other) = breakpoints.list()?.iter().find(|other| other.address == Some(address)) {
            return Err(target::TargetError::failed_because(
                "breakpoint_there",
                format!(
                    "breakpoint {} is at {address:#x} already and would hide the hits; clear it first",
                    other.id
                ),
            ));
        }
        let wanted =
            Breakpoint { address: Some(address), enabled: true, pass_count: 1, ..Breakpoint::default() };
        let breakpoint = breakpoints.add(&wanted)?.id;
        self.observed.push(Observed { breakpoint, address, observer });
        Ok(breakpoint)
    }

    /// The observer of a breakpoint, if it is of that kind.
    #[must_use]
    pub fn observer<T: Observer>(&self, breakpoint: u32) -> Option<&T> {
        let found = self.observed.iter().find(|observed| observed.breakpoint == breakpoint)?;
        found.observer.as_any().downcast_ref()
    }
    /// The same, to change it.
    pub fn observer_mut<T: Observer>(&mut self, breakpoint: u32) -> Option<&mut T> {
        let found = self.observed.iter_mut().find(|observed| observed.breakpoint == breakpoint)?;
        found.observer.as_any_mut().downcast_mut()
    }
    /// Breakpoints with observers of that kind.
    pub fn observers<T: Observer>(&self) -> impl Iterator<Item = (u32, &T)> {
        self.observed.iter().filter_map(|o| o.observer.as_any().downcast_ref().map(|own| (o.breakpoint, own)))
    }
    /// Breakpoints nobody set by hand.
    #[must_use]
    pub fn hidden(&self) -> Vec<u32> {
        self.observed.iter().map(|observed| observed.breakpoint).collect()
    }

    /// Removes the breakpoint and its observer; whether there was one.
    ///
    /// # Errors
    /// The engine's own; the observer is gone in any case.
    pub fn stop_observing(&mut self, target: &dyn Target, breakpoint: u32) -> Result<bool> {
        let Some(at) = self.observed.iter().position(|observed| observed.breakpoint == breakpoint) else {
            return Ok(false);
        };
        self.observed.remove(at);
        breakpoints_of(target)?.remove(breakpoint).map(|()| true)
    }

    /// Shows a hit to its observer; false when the breakpoint has none.
    pub(crate) fn hit(&mut self, target: &dyn Target, breakpoint: u32) -> bool {
        let here = crate::location::pointers(target).map(|(ip, _)| ip);
        match self.observed.iter_mut().find(|observed| observed.breakpoint == breakpoint) {
            Some(observed) if here.is_none_or(|ip| ip == observed.address) => {
                observed.observer.hit(target);
                true
            }
            _ => false,
        }
    }
}
