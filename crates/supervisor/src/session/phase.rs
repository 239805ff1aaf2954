//! Where a session stands (spec 10 section 2).

/// Where a session stands; only ever moves down this list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    Opening,
    Attaching,
    Open,
    Retired,
    /// What its target does is not known; its worker is kept.
    KernelUnresolved,
    Failed,
    Closed,
}

impl Phase {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Opening => "opening",
            Self::Attaching => "attaching",
            Self::Open => "open",
            Self::Retired => "retired",
            Self::KernelUnresolved => "kernel_unresolved",
            Self::Failed => "failed",
            Self::Closed => "closed",
        }
    }
    pub(crate) fn live(self) -> bool {
        self <= Self::KernelUnresolved
    }
}
