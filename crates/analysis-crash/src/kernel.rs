//! `crash_triage`: a bug check as fields.

use std::time::Duration;

use analysis_status::{base_code, bug_check_name, is_live_dump, parameter_notes};
use target::{
    Address, BugCheck, Code, Context, ContextOf, FrameInfo, Halt, KernelThread, MemoryExt as _, Module,
    Result, Stop, Target, TargetError, View,
};

use crate::bucket::{BucketSpace, failure_hash};
use crate::crash_verdict;
use crate::ext_output;
use crate::fault::{self, Fault};
use crate::fault_context::{self, FaultContext};
use crate::frames::{self, Walk};
use crate::kernel_bucket::{Blame, is_own_ip, kernel_bucket};
use crate::leads::{self, Leads};
use crate::process;
use crate::result::{Analysis, AnalysisSource, BugCheckInfo, ContextOrigin, CrashTriage, Verdict};
use crate::{Analyzer, CrashParams, MAX_FRAMES};

/// Watchdog codes whose culprit is not expected on the crashing stack.
fn is_watchdog(base: u32, p1: u64) -> bool {
    matches!(base, 0x9f | 0x101 | 0x1ca | 0x1d5 | 0x1db) || (base == 0x133 && p1 == 1)
}

/// Triages a kernel bug check. Refuses user-mode targets, and kernel targets without a bug check.
pub fn crash_triage(target: &dyn Target, params: &CrashParams, halt: &Halt) -> Result<CrashTriage> {
    let bug = admit(target, params)?;
    let base = base_code(bug.code);
    let modules = target.modules().unwrap_or_default();
    let thread = target.current_kernel_thread().ok();
    let own = target.context(ContextOf::Selected, View::Default).ok().flatten();
    let (fault_context, walk) =
        stack(target, base, &bug, thread.as_ref(), own, &modules, params.frames, halt);
    let faulting = frames::faulting(target.facts().machine, &walk.infos, &modules);
    let name = thread.as_ref().and_then(|t| process::name_of(target, t.process));
    let mut triage = CrashTriage {
        verdict: Verdict::unknown(),
        bug_check: bug_check_info(&bug, base),
        process_name: name.as_ref().map(|(name, _)| name.clone()),
        thread: thread.as_ref().map(|t| process::thread_row(target, t)),
        context_source: fault_context.origin,
        faulting_frame: faulting.and_then(|i| walk.infos.get(i).cloned()),
        faulting_frame_note: faulting.is_none().then(|| no_frame_note(base, &bug, &walk)),
        frames: walk.infos.clone(),
        frames_truncated: walk.truncated,
        analysis: Analysis::default(),
        ext_analysis: None,
        limitations: walk.limitations(),
    };
    let case = Case { target, base, bug: &bug, thread: thread.as_ref(), modules: &modules, params, halt };
    let leads = case.analyse(&mut triage, &fault_context, &walk, name.is_some_and(|(_, cut)| cut));
    triage.ext_analysis = extension(target, params, halt);
    triage.verdict = crash_verdict::of_crash(&triage, &leads);
    Ok(triage)
}

fn admit(target: &dyn Target, params: &CrashParams) -> Result<BugCheck> {
    if params.frames == 0 || params.frames > MAX_FRAMES {
        return Err(TargetError::InvalidArgument(format!(
            "frames is {}; it must be from 1 to {MAX_FRAMES}",
            params.frames
        )));
    }
    let kind = target.facts().kind;
    if !kind.is_kernel() {
        return Err(TargetError::unsupported(
            "wrong_target_kind",
            "this is a user-mode session, so there is no bug check: triage its exception",
        ));
    }
    admit_analyzer(target, params)?;
    match target.bug_check()? {
        Some(bug) if bug.code != 0 => Ok(bug),
        _ if kind.is_live() => Err(TargetError::failed_because(
            "no_bug_check",
            "this live kernel has not crashed: its bug-check code is 0",
        )),
        _ => Err(TargetError::failed_because(
            "no_bug_check",
            "this kernel dump is not a crash dump: its bug-check code is 0",
        )),
    }
}

fn admit_analyzer(target: &dyn Target, params: &CrashParams) -> Result<()> {
    match params.analyzer {
        Some(_) if !params.analyze => Err(TargetError::InvalidArgument(
            "analyzer chooses an analysis and analyze is false; leave one of them out".into(),
        )),
        Some(Analyzer::Ext | Analyzer::Both) if target.command().is_none() => Err(TargetError::unsupported(
            "no_ext",
            "analyzer ext is Microsoft's !analyze, which this engine does not have; use native or auto here, or open \
             the dump with engine dbgeng",
        )),
        _ => Ok(()),
    }
}

fn bug_check_info(bug: &BugCheck, base: u32) -> BugCheckInfo {
    BugCheckInfo {
        code: Code(bug.code),
        base_code: (base != bug.code).then_some(Code(base)),
        name: bug_check_name(bug.code).map(str::to_owned),
        parameters: bug.parameters.map(Address),
        parameter_notes: parameter_notes(bug.code, &bug.parameters),
        live_dump: is_live_dump(bug.code),
        driver: bug.driver.clone().filter(|d| !d.is_empty()),
    }
}

/// The context by the code's rule and the stack from it.
#[allow(clippy::too_many_arguments)]
fn stack(
    target: &dyn Target,
    base: u32,
    bug: &BugCheck,
    thread: Option<&KernelThread>,
    own: Option<Context>,
    modules: &[Module],
    limit: usize,
    halt: &Halt,
) -> (FaultContext, Walk) {
    let mut fault = fault_context::choose(target, base, bug, thread, own);
    let Some(context) = fault.context.clone() else { return (fault, Walk::empty()) };
    let mut walk = frames::walk(target, &context, limit, halt);
    let own_context = matches!(fault.origin, ContextOrigin::CrashContext | ContextOrigin::Selected);
    if own_context
        && fault_context::trap_frame_is_on_stack(base)
        && let Some((at, trapped)) =
            fault_context::trap_frame_on_stack(target, base, bug, &walk.frames, &context, thread, modules)
    {
        let better = frames::walk(target, &trapped, limit, halt);
        if !better.frames.is_empty() {
            walk = better;
            fault.context = Some(trapped);
            fault.origin = ContextOrigin::TrapFrameOnStack;
            fault.at = Some(at);
        }
    }
    (fault, walk)
}

fn no_frame_note(base: u32, bug: &BugCheck, walk: &Walk) -> String {
    let Some(innermost) = walk.infos.first() else {
        return match walk.stopped {
            Some(_) => {
                "No frame was walked: the call was cut short; nothing here is a finding about the crash."
                    .into()
            }
            None => "No frame was walked: there is no context or no stack in the target.".into(),
        };
    };
    let mut note = match walk.infos.len() {
        1 => format!("The only frame, {}, is in no driver.", innermost.place()),
        frames => {
            format!("None of the {frames} frames is in a driver; the innermost is {}.", innermost.place())
        }
    };
    if walk.truncated {
        note.push_str(" The stack goes on: a driver may lie past the cap; ask for more frames.");
    }
    if is_watchdog(base, bug.parameters[0]) {
        note.push_str(
            " With this code the culprit is not expected on this stack: look at the arguments and leads.",
        );
    }
    note
}

/// Budget below which `auto` leaves the extension alone.
const EXTENSION_BUDGET: Duration = Duration::from_secs(15);

/// Microsoft's analysis, where asked for or where there is one and time for it.
fn extension(target: &dyn Target, params: &CrashParams, halt: &Halt) -> Option<Analysis> {
    let time = halt.remaining().is_none_or(|left| left > EXTENSION_BUDGET);
    let wanted = match params.analyzer.unwrap_or_default() {
        Analyzer::Native => false,
        Analyzer::Auto => params.analyze && time,
        Analyzer::Ext | Analyzer::Both => true,
    };
    (wanted && halt.stop().is_none()).then(|| ext_output::run(target, halt))?
}

/// The variable the kernel keeps beside the dump's header, where it is readable and says otherwise.
fn header_mismatch(target: &dyn Target, bug: &BugCheck) -> Option<String> {
    let width = target.facts().machine.pointer_size();
    let at = target.resolve("nt!KiBugCheckData").ok()?.first()?.address;
    let word = |index: u64| target.read_pointer(at.checked_add(index * u64::from(width))?, width).ok();
    let code = u32::try_from(word(0)? & 0xffff_ffff).ok().filter(|c| *c != 0)?;
    let parameters = [word(1)?, word(2)?, word(3)?, word(4)?];
    let same = base_code(code) == base_code(bug.code) && parameters == bug.parameters;
    (!same).then(|| {
        format!(
            "KiBugCheckData holds {} with other values than the dump's header; the header is reported.",
            Code(code)
        )
    })
}

/// One analysis run.
struct Case<'a> {
    target: &'a dyn Target,
    base: u32,
    bug: &'a BugCheck,
    thread: Option<&'a KernelThread>,
    modules: &'a [Module],
    params: &'a CrashParams,
    halt: &'a Halt,
}

impl Case<'_> {
    fn analyse(
        &self,
        triage: &mut CrashTriage,
        context: &FaultContext,
        walk: &Walk,
        name_cut: bool,
    ) -> Leads {
        if !self.params.analyze {
            triage.analysis.note = Some(
                "The analysis was not asked for (analyze: false): pool tag, bucket and leads come from it."
                    .into(),
            );
            return Leads::default();
        }
        if self.halt.stop() == Some(Stop::Interrupted) {
            let unwalked = if triage.frames.is_empty() {
                " Nothing here is a finding about the crash; triage again without interrupting."
            } else {
                ""
            };
            triage.analysis.truncated = true;
            triage.analysis.note = Some(format!("Interrupted before the analysis.{unwalked}"));
            return Leads::default();
        }
        let mut leads = leads::collect(self.target, self.base, self.bug, self.halt);
        let fault = fault::of_bug_check(
            self.target,
            self.base,
            self.bug,
            context.record.as_ref(),
            context.context.as_ref(),
        );
        if let Some(fault) = &fault {
            leads.rows.insert(0, fault::address_lead(self.target, fault, self.thread));
        }
        // The dump's own context is in the bug check itself; only another thread's says where it hangs.
        if context.note.is_some() && context.origin == ContextOrigin::Selected {
            let hung_at = context.context.as_ref().map_or(0, Context::ip);
            leads.rows.extend(leads::hung_lead(
                self.target,
                self.base,
                hung_at,
                walk,
                triage.faulting_frame.as_ref(),
            ));
        }
        if name_cut && let Some(name) = &triage.process_name {
            leads.rows.push(process::truncated_lead(name));
        }
        self.fill(triage, context, walk, fault.as_ref(), &leads);
        leads
    }

    fn fill(
        &self,
        triage: &mut CrashTriage,
        context: &FaultContext,
        walk: &Walk,
        fault: Option<&Fault>,
        leads: &Leads,
    ) {
        let (frame, owner) = self.follow_up(context, walk);
        let blame = self.blame(frame, leads);
        // Code that belongs to an image and cannot be read is pageable code touched at raised IRQL.
        let paged_ip =
            fault.is_some_and(|f| is_own_ip(f) && self.modules.iter().any(|m| m.contains(f.address)));
        let bucket = kernel_bucket(self.base, self.bug, &blame, leads, paged_ip);
        let image = self.modules.iter().find(|m| Some(&m.name) == blame.module.as_ref());
        let stack_command = match (context.origin, context.at) {
            (ContextOrigin::ContextRecord, Some(at)) => format!(".cxr {at:#x} ; k"),
            (ContextOrigin::TrapFrame | ContextOrigin::TrapFrameOnStack, Some(at)) => {
                format!(".trap {at:#x} ; k")
            }
            _ => "k".to_owned(),
        };
        let own_frame = frame.filter(|f| f.module == blame.module);
        triage.analysis = Analysis {
            ran: true,
            source: Some(AnalysisSource::Native),
            truncated: walk.stopped.is_some() || self.halt.stop().is_some(),
            note: self.note(context),
            problem_class: Some(bucket.class),
            failure_id_hash: Some(failure_hash(BucketSpace::Kernel, &bucket.id)),
            failure_bucket_id: Some(bucket.id),
            symbol_name: own_frame.map(FrameInfo::place),
            module_name: blame.module,
            image_name: blame.image,
            image_timestamp: image.filter(|m| m.timestamp != 0).map(|m| format!("{:08x}", m.timestamp)),
            pool_tag: leads.pool_tag.clone(),
            followup: owner,
            stack_command: Some(stack_command),
            leads: leads.rows.clone(),
            bucket_form: Some(bucket.form),
            ..Analysis::default()
        };
    }

    fn note(&self, context: &FaultContext) -> Option<String> {
        let notes: Vec<String> =
            context.note.iter().cloned().chain(header_mismatch(self.target, self.bug)).collect();
        (!notes.is_empty()).then(|| notes.join(" "))
    }

    /// The frame to follow up and its owner.
    fn follow_up<'w>(
        &self,
        context: &FaultContext,
        walk: &'w Walk,
    ) -> (Option<&'w FrameInfo>, Option<String>) {
        let first_is_bug_check = matches!(context.origin, ContextOrigin::CrashContext);
        let machine = self.target.facts().machine;
        let order = frames::follow_up_order(machine, &walk.infos, self.modules, first_is_bug_check);
        let choices: Vec<&FrameInfo> = order.iter().filter_map(|&i| walk.infos.get(i)).collect();
        let names: Vec<(&str, Option<&str>)> =
            choices.iter().map(|f| (f.module.as_deref().unwrap_or(""), frames::function_of(f))).collect();
        match self.params.owners.choose(&names) {
            Some((index, owner)) => (choices.get(index).copied(), Some(owner)),
            None => (None, None),
        }
    }

    /// The blamed module: what the arguments name goes before the stack.
    fn blame(&self, frame: Option<&FrameInfo>, leads: &Leads) -> Blame {
        let by_argument =
            leads.owner_module.clone().or_else(|| leads.blocked.as_ref().and_then(|b| b.module.clone()));
        let module = by_argument.clone().or_else(|| frame.and_then(|f| f.module.clone()));
        let image = module
            .as_ref()
            .and_then(|name| self.modules.iter().find(|m| &m.name == name))
            .map(|m| m.image_name.clone());
        let function = frame.filter(|f| f.module == module).and_then(frames::function_of).map(str::to_owned);
        Blame { module, image, function }
    }
}
