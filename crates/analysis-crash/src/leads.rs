//! What the arguments of a bug check point at (spec 60 section 2.4). Every lead is best-effort: an
//! unreadable structure is a missing lead.

use analysis_status::{StatusSpace, decode, fast_fail_name, heap_failure_name};
use target::{Address, Attribution, BugCheck, FrameInfo, Halt, MemoryExt as _, Target, TargetExt as _};

use crate::device::{BlockedIrp, blocked_irp};
use crate::frames::{self, Walk};
use crate::layout::{c_text, offset, pointer, tag_text};
use crate::result::Lead;
use crate::whea;

/// The leads, and what of them the bucket needs.
#[derive(Default)]
pub(crate) struct Leads {
    pub(crate) rows: Vec<Lead>,
    pub(crate) pool_tag: Option<String>,
    /// The driver a power IRP waits in, and the PDO's.
    pub(crate) blocked: Option<BlockedIrp>,
    /// Module of the display driver (0x116 and its kin).
    pub(crate) owner_module: Option<String>,
    pub(crate) whea: Option<whea::Summary>,
    /// Image of the terminated process (0xEF, 0xF4).
    pub(crate) terminated: Option<String>,
    pub(crate) io_status: Option<u32>,
}

impl Leads {
    fn add(&mut self, kind: &str, text: String, address: Option<u64>, module: Option<String>) {
        self.rows.push(Lead { kind: kind.to_owned(), text, address: address.map(Address), module });
    }
}

/// Collects the leads of `base` (the code without modifier bits).
pub(crate) fn collect(target: &dyn Target, base: u32, bug: &BugCheck, halt: &Halt) -> Leads {
    let mut leads = Leads::default();
    match base {
        0x9f => power(target, bug, &mut leads, halt),
        0x116 | 0x117 | 0x141 => owner(target, bug.parameters[1], &mut leads),
        0x124 => {
            if let Some(summary) = whea::read(target, bug.parameters[1]) {
                leads.add("whea_record", summary.text(), Some(bug.parameters[1]), None);
                leads.whea = Some(summary);
            }
            let (high, low) = (bug.parameters[2], bug.parameters[3]);
            if high != 0 || low != 0 {
                leads.add("mci_status", whea::machine_check_status(high, low), None, None);
            }
        }
        0xc4 if bug.parameters[0] >= 0x20000 => {
            if let Some(text) = c_text(target, bug.parameters[1], 512) {
                leads.add("verifier_rule", format!("Rule {:#x}: {text}", bug.parameters[0]), None, None);
            }
        }
        0x13a => {
            if let Some(name) = heap_failure_name(bug.parameters[0]) {
                leads.add("heap_failure", format!("Kind of heap damage: {name}."), None, None);
            }
        }
        0x139 => {
            if let Some(name) = fast_fail_name(bug.parameters[0]) {
                leads.add("fast_fail", format!("Fast-fail code: FAST_FAIL_{name}."), None, None);
            }
        }
        0xef | 0xf4 => terminated(target, base, bug, &mut leads),
        _ => {}
    }
    pool(target, base, bug, &mut leads);
    statuses(base, bug, &mut leads);
    parameters_in_modules(target, base, bug, &mut leads);
    leads
}

fn power(target: &dyn Target, bug: &BugCheck, leads: &mut Leads, halt: &Halt) {
    if bug.parameters[0] != 3 {
        return;
    }
    let Some(blocked) = blocked_irp(target, bug.parameters[3], bug.parameters[1], halt) else { return };
    let driver = blocked.driver.clone().unwrap_or_else(|| "a driver whose name is not readable".into());
    let text = format!("The IRP ({}) waits in {driver}.", blocked.function());
    leads.add("blocked_irp_driver", text, Some(bug.parameters[3]), blocked.module.clone());
    if !blocked.stack.is_empty() {
        let text = format!("Device stack from the PDO up: {}.", blocked.stack.join(", "));
        leads.add("device_stack", text, Some(bug.parameters[1]), None);
    }
    if let Some(path) = &blocked.instance_path {
        leads.add("device_instance", path.clone(), None, None);
    }
    leads.blocked = Some(blocked);
}

/// The module that a pointer of a display time-out points into.
fn owner(target: &dyn Target, pointer: u64, leads: &mut Leads) {
    if let Attribution::Module { name, rva, .. } = target.attribute(pointer) {
        let text = format!("The display driver's owner tag points at {name}+{rva:#x}.");
        leads.add("owner_tag", text, Some(pointer), Some(name.clone()));
        leads.owner_module = Some(name);
    }
}

fn terminated(target: &dyn Target, base: u32, bug: &BugCheck, leads: &mut Leads) {
    let object = if base == 0xef { bug.parameters[0] } else { bug.parameters[1] };
    let is_process = if base == 0xef { bug.parameters[1] == 0 } else { bug.parameters[0] == 3 };
    if !is_process {
        leads.add("terminated_thread", "A thread of a critical process ended.".into(), Some(object), None);
        return;
    }
    let by_object = crate::process::name_of(target, object).map(|(name, _)| name);
    let name = by_object.or_else(|| (base == 0xf4).then(|| c_text(target, bug.parameters[2], 16)).flatten());
    let status = offset(target, "_EPROCESS", "ExitStatus")
        .and_then(|at| object.checked_add(at))
        .and_then(|at| target.read_u32(at).ok());
    let mut text = format!("The process that ended: {}", name.as_deref().unwrap_or("name not readable"));
    if let Some(status) = status.filter(|s| *s != 0 && *s != 0x103) {
        let info = decode(status, StatusSpace::Ntstatus);
        text.push_str(&format!(", exit status {} {}", info.value, info.symbolic.unwrap_or_default()));
        leads.io_status = Some(status);
    }
    leads.add("terminated_process", text.trim_end().to_owned() + ".", Some(object), None);
    leads.terminated = name;
}

/// The pool header in front of a block: its tag is as it was read, garbage if the header is damaged.
fn pool(target: &dyn Target, base: u32, bug: &BugCheck, leads: &mut Leads) {
    let [p1, p2, p3, p4] = bug.parameters;
    let (block, is_header) = match (base, p1) {
        // Freed with a wrong tag: parameter 3 is the tag it was allocated with.
        (0xc2, 0xa) => {
            leads.pool_tag = u32::try_from(p3).ok().map(tag_text);
            return;
        }
        (0xc2, 7) => (p4, false),
        (0xc2, 1 | 2 | 4) => (p2, true),
        (0xc2, 6) => (p3, true),
        (0xc2, _) => (p2, false),
        (0x19, _) => (p2, true),
        (0xc1 | 0xc5 | 0xc6 | 0xd5 | 0xd6, _) => (p1, false),
        (0x13a, _) => (p3, false),
        _ => return,
    };
    let header = if is_header { Some(block) } else { block.checked_sub(0x10) };
    let Some(header) = header.filter(|h| frames::is_kernel_half(target.facts().machine, *h)) else { return };
    // POOL_HEADER of 64-bit systems: the tag is the second 32-bit word.
    let Some(tag) = header.checked_add(4).and_then(|at| target.read_u32(at).ok()).filter(|t| *t != 0) else {
        return;
    };
    let tag = tag_text(tag);
    leads.add(
        "pool_header",
        format!("Pool tag '{tag}' in the header at {}.", Address(header)),
        Some(header),
        None,
    );
    leads.pool_tag = Some(tag);
}

fn statuses(base: u32, bug: &BugCheck, leads: &mut Leads) {
    let [p1, p2, _, _] = bug.parameters;
    let value = match base {
        0x7b | 0xed | 0x7a => p2,
        0x77 if p1 != 0 && p1 != 1 => p1,
        0x24 => return,
        _ => return,
    };
    let code = (value & 0xffff_ffff) as u32;
    if code == 0 {
        return;
    }
    let info = decode(code, StatusSpace::Ntstatus);
    if let Some(name) = info.best_effort {
        leads.add("status", format!("Status {}: {name}", info.value), None, None);
        leads.io_status = Some(code);
    }
}

/// Any parameter inside a loaded or unloaded module.
fn parameters_in_modules(target: &dyn Target, base: u32, bug: &BugCheck, leads: &mut Leads) {
    // Encoded values, tags and counts that look like pointers by chance.
    if matches!(base, 0x109 | 0xf7) {
        return;
    }
    for (index, &value) in bug.parameters.iter().enumerate() {
        if value < 0x1_0000
            || leads.rows.iter().any(|l| l.address == Some(Address(value)) && l.module.is_some())
        {
            continue;
        }
        let kind = format!("parameter_{}", index + 1);
        match target.attribute(value) {
            Attribution::Module { name, .. } => {
                let place = target.describe(value);
                leads.add(
                    &kind,
                    format!("Parameter {} points at {place}.", index + 1),
                    Some(value),
                    Some(name),
                );
            }
            Attribution::NoModule { unloaded: Some(name) } => {
                let text = format!("Parameter {} points into the unloaded module {name}.", index + 1);
                leads.add(&kind, text, Some(value), Some(name));
            }
            _ => {}
        }
    }
}

/// Where another thread or processor that the bug check names stands: the hung processor's routine, or
/// the first driver on the stack of the thread that holds the PnP lock.
pub(crate) fn hung_lead(
    target: &dyn Target,
    base: u32,
    ip: u64,
    walk: &Walk,
    candidate: Option<&FrameInfo>,
) -> Option<Lead> {
    let (kind, what) = match base {
        0x9f => ("pnp_lock_holder", "The thread that holds the PnP lock is in"),
        0x101 => ("hung_at", "The processor that does not respond was at"),
        0xea => ("hung_at", "The stuck thread was at"),
        _ => return None,
    };
    let frame = candidate.or_else(|| walk.infos.first());
    let (place, address, module) = match frame {
        Some(frame) => (frame.place(), frame.address.0, frame.module.clone()),
        None => (target.describe(ip), ip, None),
    };
    Some(Lead {
        kind: kind.into(),
        text: format!("{what} {place}."),
        address: Some(Address(address)),
        module,
    })
}

/// Reads a pointer that must be in the kernel's half.
pub(crate) fn kernel_pointer(target: &dyn Target, address: u64) -> Option<u64> {
    pointer(target, address).filter(|p| frames::is_kernel_half(target.facts().machine, *p))
}
