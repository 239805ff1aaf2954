//! The process and thread a bug check happened in (spec 60 section 1.6).

use target::{Address, KernelThread, MemoryExt as _, Target, base_name};

use crate::layout::{offset, pointer};
use crate::result::{CrashThread, Lead};

/// Name of a process object, and whether it may be cut to 15 characters.
pub(crate) fn name_of(target: &dyn Target, process: u64) -> Option<(String, bool)> {
    if let Some(name) = audit_name(target, process) {
        return Some((name, false));
    }
    let found = target.process(process).ok()?;
    if found.name.is_empty() {
        return (found.pid == 0).then(|| ("Idle".to_owned(), false));
    }
    let cut = matches!(found.name.chars().count(), 14 | 15);
    Some((found.name, cut))
}

/// `EPROCESS.SeAuditProcessCreationInfo.ImageFileName->Name`, last component: the full name.
fn audit_name(target: &dyn Target, process: u64) -> Option<String> {
    let at = offset(target, "_EPROCESS", "SeAuditProcessCreationInfo")?;
    let information = pointer(target, process.checked_add(at)?).filter(|&p| p != 0)?;
    let path = target.read_unicode_string(information, target.facts().machine.pointer_size()).ok()?;
    let name = base_name(&path);
    (!name.is_empty() && name.chars().all(|c| !c.is_control())).then(|| name.to_owned())
}

/// The result row of the crashing thread.
pub(crate) fn thread_row(target: &dyn Target, thread: &KernelThread) -> CrashThread {
    let cpu = thread.processor.or_else(|| target.selection().processor);
    let pid = thread.pid.or_else(|| target.process(thread.process).ok().map(|process| process.pid));
    CrashThread { ethread: Address(thread.object), pid, tid: thread.tid, irql: thread.irql, cpu }
}

/// The lead that warns of a cut name.
pub(crate) fn truncated_lead(name: &str) -> Lead {
    Lead {
        kind: "name_truncated".into(),
        text: format!("The process name {name} comes from a 15-byte field and may be cut."),
        address: None,
        module: None,
    }
}
