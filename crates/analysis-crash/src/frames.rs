//! Walking from a context, and which frame is whose (spec 60 sections 1.7 and 2.3).

use target::{Context, Found, Frame, FrameInfo, Halt, Machine, Module, Stop, Target, WalkEnd};

/// A walked stack as results carry it.
pub(crate) struct Walk {
    pub(crate) frames: Vec<Frame>,
    pub(crate) infos: Vec<FrameInfo>,
    /// The stack went on.
    pub(crate) truncated: bool,
    pub(crate) stopped: Option<Stop>,
    limitations: Vec<String>,
}

impl Walk {
    pub(crate) fn empty() -> Self {
        Self { frames: vec![], infos: vec![], truncated: false, stopped: None, limitations: vec![] }
    }

    fn new(frames: Vec<Frame>, end: WalkEnd, limitations: Vec<String>) -> Self {
        let infos = frames.iter().enumerate().map(|(index, frame)| FrameInfo::new(index, frame)).collect();
        let stopped = match end {
            WalkEnd::Deadline => Some(Stop::Deadline),
            WalkEnd::Interrupted => Some(Stop::Interrupted),
            _ => None,
        };
        Self { frames, infos, truncated: end == WalkEnd::Limit || stopped.is_some(), stopped, limitations }
    }

    /// The walk's limitations, and the one that some frames are guesses.
    pub(crate) fn limitations(&self) -> Vec<String> {
        let mut out = self.limitations.clone();
        let scanned = self.frames.iter().filter(|f| f.found == Found::Scan).count();
        if scanned != 0 {
            out.push(format!(
                "{scanned} of {} frames were found by looking for return addresses on the stack (found: scan): \
                 guesses.",
                self.infos.len()
            ));
        }
        out
    }
}

/// Fewer walked frames than this, with the end of the stack not reached, and stack words are looked at.
const FEW: usize = 3;
/// Guesses listed where not more than twice as many frames are asked for; else half of these.
const GUESSES: usize = 16;

/// Walks from `from`; where the walk was lost early, appends scanned frames, each marked as such.
pub(crate) fn walk(target: &dyn Target, from: &Context, limit: usize, halt: &Halt) -> Walk {
    let stack = match target.stack(from, limit, halt) {
        Ok(stack) => stack,
        Err(error) => {
            let mut walk = Walk::empty();
            walk.limitations.push(format!("The stack could not be walked: {error}."));
            walk.stopped = halt.stop();
            return walk;
        }
    };
    let (mut frames, limitations) = (stack.frames, stack.limitations);
    let physical = frames.iter().filter(|f| !f.inline).count();
    // A stack of one frame is the end of no real stack: the function was taken for a leaf.
    let lost = match stack.end {
        WalkEnd::Lost(_) | WalkEnd::NoProgress => physical < FEW,
        WalkEnd::Outermost => physical < 2,
        WalkEnd::Limit | WalkEnd::Deadline | WalkEnd::Interrupted => false,
    };
    if lost && limit > frames.len() {
        append_scan(target, from, limit, &mut frames, halt);
    }
    Walk::new(frames, stack.end, limitations)
}

fn append_scan(target: &dyn Target, from: &Context, limit: usize, frames: &mut Vec<Frame>, halt: &Halt) {
    let highest = frames.last().map_or(0, |f| f.sp);
    let limit = limit.min(frames.len().saturating_add(GUESSES.max(limit / 2)));
    // Twice as many as there is room for: words that repeat are left out.
    let Ok(found) = target.scan_stack(from, 2 * limit, halt) else { return };
    for mut frame in found {
        if frame.sp < highest || frames.iter().any(|f| f.ip == frame.ip) || frames.len() >= limit {
            continue;
        }
        // A call returns into its function; the start of one is a pointer to it.
        if target.symbol_at(frame.ip).ok().flatten().is_some_and(|hit| hit.displacement == 0) {
            continue;
        }
        frame.found = Found::Scan;
        frames.push(frame);
    }
}

/// Whether the address is in the kernel's half.
pub(crate) fn is_kernel_half(machine: Machine, address: u64) -> bool {
    match machine {
        Machine::X86 | Machine::Arm32 => address >= 0x8000_0000,
        Machine::X64 | Machine::Arm64 => address >> 63 == 1,
    }
}

/// File name without its extension, lower case.
pub(crate) fn stem(image: &str) -> String {
    let lower = target::base_name(image).to_ascii_lowercase();
    match lower.rsplit_once('.') {
        Some((stem, _)) if !stem.is_empty() => stem.to_owned(),
        _ => lower,
    }
}

const KERNEL_IMAGES: [&str; 10] = [
    "nt", "ntoskrnl", "ntkrnlmp", "ntkrnlpa", "ntkrpamp", "hal", "halmacpi", "halacpi", "halaacpi", "halx86",
];
const PASS_THROUGH: [&str; 5] = ["wdf01000", "wdfldr", "verifier", "vrfcore", "verifierext"];

/// What a frame is to the question "whose fault".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Kernel,
    /// KMDF and Driver Verifier are on the stack for somebody else.
    PassThrough,
    /// User mode, or below the system-call boundary.
    User,
    LookupFailed,
    Candidate,
}

/// Names compare exactly and in any case: `halcyon.sys` is not the HAL.
pub(crate) fn standing(machine: Machine, frame: &FrameInfo, modules: &[Module]) -> Standing {
    if !is_kernel_half(machine, frame.address.0) {
        return Standing::User;
    }
    if frame.attribution_failed {
        return Standing::LookupFailed;
    }
    let Some(name) = &frame.module else { return Standing::Candidate };
    let module = modules.iter().find(|m| m.contains(frame.address.0));
    if module.is_some_and(|m| m.user_mode == Some(true)) {
        return Standing::User;
    }
    let names = [name.to_ascii_lowercase(), module.map(|m| stem(&m.image_name)).unwrap_or_default()];
    if names.iter().any(|n| KERNEL_IMAGES.contains(&n.as_str())) {
        Standing::Kernel
    } else if names.iter().any(|n| PASS_THROUGH.contains(&n.as_str())) {
        Standing::PassThrough
    } else {
        Standing::Candidate
    }
}

/// Index of the faulting driver frame: walked frames first, scanned ones only when those name none.
pub(crate) fn faulting(machine: Machine, frames: &[FrameInfo], modules: &[Module]) -> Option<usize> {
    let first = |scanned: bool| {
        frames
            .iter()
            .enumerate()
            .filter(|(_, f)| (f.found == Found::Scan) == scanned)
            .map(|(index, f)| (index, standing(machine, f, modules)))
            .take_while(|(_, s)| *s != Standing::User)
            .find(|(_, s)| *s == Standing::Candidate)
            .map(|(index, _)| index)
    };
    first(false).or_else(|| first(true))
}

/// Function of a frame's symbol, without the module.
pub(crate) fn function_of(frame: &FrameInfo) -> Option<&str> {
    frame.symbol.as_deref().and_then(|s| s.split_once('!')).map(|(_, function)| function)
}

/// Bug-check plumbing: never the follow-up.
pub(crate) fn is_plumbing(frame: &FrameInfo) -> bool {
    const PREFIXES: [&str; 12] = [
        "KeBugCheck",
        "KiBugCheck",
        "KiFastFail",
        "KiException",
        "KiPageFault",
        "KiTrap",
        "RtlpHeap",
        "RtlpHp",
        "ExFreePool",
        "ExAllocatePool",
        "Vf",
        "KiRaiseSecurityCheckFailure",
    ];
    let in_kernel =
        frame.module.as_deref().is_some_and(|m| KERNEL_IMAGES.contains(&m.to_ascii_lowercase().as_str()));
    let Some(function) = function_of(frame).filter(|_| in_kernel) else { return false };
    PREFIXES.iter().any(|p| function.starts_with(p))
        || (function.starts_with("Mm") && function[2..].contains("Fault"))
}

/// Indices of the frames that may be followed up, best first: candidates by the rule of the faulting
/// frame that are no plumbing, then kernel functions that are none.
pub(crate) fn follow_up_order(
    machine: Machine,
    frames: &[FrameInfo],
    modules: &[Module],
    first_is_bug_check: bool,
) -> Vec<usize> {
    let mut candidates = Vec::new();
    let mut kernel = Vec::new();
    let mut scanned = Vec::new();
    for (index, frame) in frames.iter().enumerate() {
        if is_plumbing(frame) || (index == 0 && first_is_bug_check && frame.symbol.is_none()) {
            continue;
        }
        match standing(machine, frame, modules) {
            Standing::User => break,
            // A frame without a module names nobody to follow up.
            Standing::Candidate if frame.module.is_none() => {}
            Standing::Candidate if frame.found == Found::Scan => scanned.push(index),
            Standing::Candidate => candidates.push(index),
            Standing::Kernel if frame.found != Found::Scan => kernel.push(index),
            _ => {}
        }
    }
    candidates.extend(scanned);
    candidates.extend(kernel);
    candidates
}

#[cfg(test)]
mod tests {
    use super::*;
    use target::{Address, Rva};

    const BASE: u64 = 0xffff_f800_0000_0000;

    fn frame(index: u32, module: Option<&str>, function: Option<&str>) -> FrameInfo {
        FrameInfo {
            index,
            address: Address(BASE + 0x1654 + u64::from(index)),
            sp: None,
            module: module.map(str::to_owned),
            rva: module.map(|_| Rva(0x1654)),
            symbol: module.zip(function).map(|(m, f)| format!("{m}!{f}")),
            displacement: None,
            source: None,
            inline: false,
            found: Found::Unwind,
            attribution_failed: false,
            unloaded_module: None,
        }
    }
    fn stack(names: &[Option<&str>]) -> Vec<FrameInfo> {
        names.iter().enumerate().map(|(i, n)| frame(i as u32, *n, None)).collect()
    }

    #[test]
    fn the_rule_of_the_faulting_frame() {
        let find = |frames: &[FrameInfo]| faulting(Machine::X64, frames, &[]);
        assert_eq!(find(&stack(&[Some("nt"), Some("nt"), Some("nt"), Some("Drv")])), Some(3));
        assert_eq!(find(&stack(&[Some("nt"), Some("NT"), Some("hal")])), None);
        assert_eq!(find(&stack(&[Some("nt"), Some("Wdf01000"), Some("MyDriver")])), Some(2));
        assert_eq!(find(&stack(&[Some("nt"), Some("halcyon")])), Some(1), "a name is compared whole");
        assert_eq!(find(&stack(&[Some("nt"), None, Some("Drv")])), Some(1), "no module is a finding");
        let mut failed = stack(&[Some("nt"), None, Some("Drv")]);
        failed[1].attribution_failed = true;
        assert_eq!(find(&failed), Some(2), "a failed lookup is none");
        let mut user = stack(&[Some("nt"), Some("app"), Some("Drv")]);
        user[1].address = Address(0x7ff6_0000_1000);
        assert_eq!(find(&user), None, "nothing below the system-call boundary");
        let mut scanned = stack(&[Some("nt"), Some("ghost"), Some("Drv")]);
        scanned[1].found = Found::Scan;
        assert_eq!(find(&scanned), Some(2), "a walked frame before a guessed one");
    }

    #[test]
    fn follow_up_may_be_the_kernels() {
        let frames = vec![
            frame(0, Some("nt"), Some("KeBugCheckEx")),
            frame(1, Some("nt"), Some("MiAccessFault")),
            frame(2, Some("nt"), Some("CmpCreateKeyBody")),
        ];
        assert_eq!(follow_up_order(Machine::X64, &frames, &[], true), [1, 2]);
        let mut driver = frames.clone();
        driver.push(frame(3, Some("ndis"), Some("NdisQueueIoWorkItem")));
        assert_eq!(follow_up_order(Machine::X64, &driver, &[], true)[0], 3);
        assert!(is_plumbing(&frame(0, Some("nt"), Some("MmAccessFault"))));
        assert!(is_plumbing(&frame(0, Some("nt"), Some("VfBugCheck"))));
        assert!(!is_plumbing(&frame(0, Some("drv"), Some("KeBugCheckHelper"))));
    }
}
