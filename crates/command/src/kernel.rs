//! `!process`, `!thread`, `.process`, `.thread`.

use target::{ContextOf, KernelThread, Process, Result, Selection, TargetError, View};

use crate::events;
use crate::run::{FRAMES, Run, usage};
use crate::stack::{Columns, stack_text};

/// Detail bits of `!process` and `!thread`.
const WITH_THREADS: u64 = 2;
const WITH_STACKS: u64 = 4;

const STATES: [&str; 10] = [
    "INITIALIZED",
    "READY",
    "RUNNING",
    "STANDBY",
    "TERMINATED",
    "WAIT",
    "TRANSITION",
    "DEFERRED READY",
    "GATE WAIT",
    "WAITING FOR PROCESS IN SWAP",
];
/// `KWAIT_REASON` (wdm.h).
const WAIT_REASONS: [&str; 40] = [
    "Executive",
    "FreePage",
    "PageIn",
    "PoolAllocation",
    "DelayExecution",
    "Suspended",
    "UserRequest",
    "WrExecutive",
    "WrFreePage",
    "WrPageIn",
    "WrPoolAllocation",
    "WrDelayExecution",
    "WrSuspended",
    "WrUserRequest",
    "WrEventPair",
    "WrQueue",
    "WrLpcReceive",
    "WrLpcReply",
    "WrVirtualMemory",
    "WrPageOut",
    "WrRendezvous",
    "WrKeyedEvent",
    "WrTerminated",
    "WrProcessInSwap",
    "WrCpuRateControl",
    "WrCalloutStack",
    "WrKernel",
    "WrResource",
    "WrPushLock",
    "WrMutex",
    "WrQuantumEnd",
    "WrDispatchInt",
    "WrPreempted",
    "WrYieldExecution",
    "WrFastMutex",
    "WrGuardedMutex",
    "WrRundown",
    "WrAlertByThreadId",
    "WrDeferredPreempt",
    "WrPhysicalFault",
];

fn kernel_only(run: &Run<'_>, command: &str) -> Result<()> {
    if run.target.facts().kind.is_kernel() {
        return Ok(());
    }
    Err(TargetError::unsupported("wrong_target_kind", format!("{command} needs a kernel target")))
}

/// Words that are switches (`/p /r`) left out: they say which tables to use, and there is one choice.
fn operands(arguments: &str) -> Vec<&str> {
    arguments.split_whitespace().filter(|w| !w.starts_with('/')).collect()
}

/// `!process [ADDRESS|PID|-1|0] [FLAGS] [NAME]`.
pub(crate) fn process(run: &mut Run<'_>, arguments: &str) -> Result<()> {
    kernel_only(run, "!process")?;
    let words = operands(arguments);
    let number = |n: usize| words.get(n).filter(|w| **w != "-1").map(|w| run.evaluate(w)).transpose();
    let which = number(0)?;
    let flags = number(1)?.unwrap_or(if which == Some(0) { 0 } else { WITH_THREADS | WITH_STACKS });
    let name = words.get(2).map(|n| n.to_ascii_lowercase());
    let all = which == Some(0);
    let chosen: Vec<Process> = match which {
        Some(0) => run.target.processes(run.halt)?,
        None => vec![run.target.process(current_process(run)?)?],
        // A small number is a process id, as WinDbg takes it.
        Some(pid) if pid < 0x1_0000_0000 => {
            run.target.processes(run.halt)?.into_iter().filter(|p| p.pid == pid).collect()
        }
        Some(object) => vec![run.target.process(object)?],
    };
    if all {
        run.say("**** NT ACTIVE PROCESS DUMP ****");
    }
    let fits = |p: &Process| name.as_ref().is_none_or(|n| p.name.to_ascii_lowercase() == *n);
    let mut any = false;
    for process in chosen.iter().filter(|p| fits(p)) {
        any = true;
        run.check()?;
        print_process(run, process);
        if flags & (WITH_THREADS | WITH_STACKS) != 0 {
            threads_of(run, process, flags)?;
        }
        run.say("");
    }
    if any {
        return Ok(());
    }
    Err(TargetError::failed_because("no_process", format!("no process fits '!process {arguments}'")))
}

fn print_process(run: &mut Run<'_>, process: &Process) {
    let notation = run.notation();
    let peb = process.peb.unwrap_or(0);
    let parent = process.parent_pid.map(|p| format!("  ParentCid: {p:04x}")).unwrap_or_default();
    let exited = if process.exited { "  (exited)" } else { "" };
    let wow64 = if process.wow64 { "  (WoW64)" } else { "" };
    run.say(format!("PROCESS {}", notation.digits(process.object)));
    run.say(format!("    Cid: {:04x}    Peb: {}{parent}", process.pid, notation.digits(peb)));
    run.say(format!("    DirBase: {:08x}", process.directory_table_base));
    run.say(format!("    Image: {}{wow64}{exited}", process.name));
}

fn threads_of(run: &mut Run<'_>, process: &Process, flags: u64) -> Result<()> {
    let threads = run.target.kernel_threads(process.object, run.halt)?;
    run.say("");
    for thread in &threads {
        run.check()?;
        print_thread(run, thread, "        ");
        if flags & WITH_STACKS != 0 {
            print_stack(run, thread, "        ")?;
        }
    }
    if threads.is_empty() {
        run.say("        No active threads");
    }
    Ok(())
}

fn print_thread(run: &mut Run<'_>, thread: &KernelThread, indent: &str) {
    let notation = run.notation();
    let id = |id: Option<u64>| id.map_or("????".to_owned(), |n| format!("{n:04x}"));
    let state = match thread.state {
        Some(2) => match thread.processor {
            Some(processor) => format!("RUNNING on processor {processor}"),
            None => "RUNNING".to_owned(),
        },
        Some(5) => {
            let reason = thread.wait_reason.and_then(|r| WAIT_REASONS.get(usize::from(r)).copied());
            format!("WAIT: ({})", reason.unwrap_or("unknown reason"))
        }
        Some(state) => STATES.get(usize::from(state)).map_or(format!("state {state}"), |s| (*s).to_owned()),
        None => "(state not readable)".to_owned(),
    };
    run.say(format!(
        "{indent}THREAD {}  Cid {}.{}  Teb: {} {state}",
        notation.digits(thread.object),
        id(thread.pid),
        id(thread.tid),
        notation.digits(thread.teb.unwrap_or(0))
    ));
}

fn print_stack(run: &mut Run<'_>, thread: &KernelThread, indent: &str) -> Result<()> {
    match run.target.context(ContextOf::KernelThread(thread.object), View::Default) {
        Ok(Some(context)) => {
            let stack = run.target.stack(&context, FRAMES, run.halt)?;
            let text = stack_text(run.target, &stack, Columns::default());
            for line in text.lines() {
                run.say(format!("{indent}{line}"));
            }
        }
        Ok(None) => run.say(format!("{indent}(no registers are recorded for it)")),
        Err(error) if crate::session::is_stop(&error) => return Err(error),
        Err(error) => run.say(format!("{indent}({error})")),
    }
    run.say("");
    Ok(())
}

fn current_process(run: &Run<'_>) -> Result<u64> {
    match run.target.selection().process {
        Some(object) => Ok(object),
        None => match run.target.current_kernel_thread()?.process {
            0 => Err(TargetError::failed_because(
                "no_process",
                "the dump does not show which process the current thread belongs to",
            )),
            object => Ok(object),
        },
    }
}

/// `!thread [ADDRESS] [FLAGS]`.
pub(crate) fn thread(run: &mut Run<'_>, arguments: &str) -> Result<()> {
    kernel_only(run, "!thread")?;
    let words = operands(arguments);
    let current = run.target.current_kernel_thread();
    let thread = match words.first().filter(|w| **w != "-1") {
        None => current?,
        Some(word) => {
            let object = run.evaluate(word)?;
            match current {
                Ok(thread) if thread.object == object => thread,
                _ => find_thread(run, object)?,
            }
        }
    };
    let flags = words.get(1).map(|w| run.evaluate(w)).transpose()?.unwrap_or(WITH_STACKS | WITH_THREADS);
    print_thread(run, &thread, "");
    if let Ok(process) = run.target.process(thread.process) {
        let object = run.notation().digits(process.object);
        run.say(format!("Owning Process            {object}       Image:         {}", process.name));
    }
    if let (Some(base), Some(limit)) = (thread.stack_base, thread.stack_limit) {
        let notation = run.notation();
        run.say(format!("Stack Base {} Limit {}", notation.digits(base), notation.digits(limit)));
    }
    if flags & WITH_STACKS != 0 { print_stack(run, &thread, "") } else { Ok(()) }
}

fn find_thread(run: &Run<'_>, object: u64) -> Result<KernelThread> {
    for process in run.target.processes(run.halt)? {
        run.check()?;
        let threads = run.target.kernel_threads(process.object, run.halt).unwrap_or_default();
        if let Some(thread) = threads.into_iter().find(|t| t.object == object) {
            return Ok(thread);
        }
    }
    Err(TargetError::failed_because(
        "no_thread",
        format!("{} is no thread of any process found", run.notation().address(object)),
    ))
}

/// `.process [/p] [/r] [ADDRESS|0]`: shows or sets whose user half is seen.
pub(crate) fn dot_process(run: &mut Run<'_>, arguments: &str) -> Result<()> {
    if !run.target.facts().kind.is_kernel() {
        let peb = run.target.facts().process.as_ref().and_then(|p| p.peb);
        let shown = peb.map_or("not known".to_owned(), |p| run.notation().address(p));
        run.say(format!("Implicit process is now {shown}"));
        return Ok(());
    }
    if let Some(word) = operands(arguments).first() {
        let object = run.evaluate(word)?;
        let process = (object != 0).then_some(object);
        run.target.select(Selection { process, ..run.target.selection() })?;
        run.session.reset_scope();
    }
    let current = run.notation().address(current_process(run)?);
    run.say(format!("Implicit process is now {current}"));
    Ok(())
}

/// `.thread [/p] [/r] [ADDRESS|0]`: the registers of another kernel thread, until reset.
pub(crate) fn dot_thread(run: &mut Run<'_>, arguments: &str) -> Result<()> {
    if arguments.split_whitespace().any(|w| w.eq_ignore_ascii_case("/w")) {
        return Err(usage(".thread /w is not served: ask for the other view of a thread instead"));
    }
    if !run.target.facts().kind.is_kernel() {
        run.session.reset_scope();
        let teb = run.evaluate("$teb")?;
        run.say(format!("Implicit thread is now {}", run.notation().address(teb)));
        return Ok(());
    }
    let object = match operands(arguments).first() {
        Some(word) => run.evaluate(word)?,
        None => 0,
    };
    if object == 0 {
        run.session.reset_scope();
        let current = run.target.current_kernel_thread()?.object;
        run.say(format!("Implicit thread is now {}", run.notation().address(current)));
        return Ok(());
    }
    let context = events::context_of(run, ContextOf::KernelThread(object))?.ok_or_else(|| {
        TargetError::failed_because("no_context", "no registers are recorded for this thread")
    })?;
    run.session.context = Some(context);
    run.session.frame = 0;
    run.say(format!("Implicit thread is now {}", run.notation().address(object)));
    Ok(())
}
