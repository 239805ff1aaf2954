//! What a target must be able to do, and what is said of one that cannot.

use target::{Breakpoints, Result, Run, Target, TargetError, TargetKind};

fn refusal(target: &dyn Target, what: &str) -> TargetError {
    let (kind, reason) = match target.facts().kind {
        TargetKind::UserDump | TargetKind::KernelDump => ("a dump", "not_live"),
        TargetKind::Image => ("an image", "not_live"),
        TargetKind::LocalKernel => ("the kernel the debugger itself runs on", "local_kernel"),
        TargetKind::Process | TargetKind::Kernel | TargetKind::Trace => ("this target", "not_served"),
    };
    let message =
        format!("{kind} {what}; a live process or a remote kernel can, a process through the dbgeng engine");
    TargetError::unsupported(reason, message)
}

/// How `target` runs.
///
/// # Errors
/// `unsupported`, naming what could run.
pub fn run_of(target: &dyn Target) -> Result<&dyn Run> {
    target.run().ok_or_else(|| refusal(target, "cannot be run or stepped"))
}

/// The breakpoints of `target`.
///
/// # Errors
/// `unsupported`, naming what could have some.
pub fn breakpoints_of(target: &dyn Target) -> Result<&dyn Breakpoints> {
    target.breakpoints().ok_or_else(|| refusal(target, "takes no breakpoints"))
}
