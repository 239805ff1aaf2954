//! `exception_triage`: a user-mode fault as fields.

use std::sync::Arc;

use analysis_status::{StatusSpace, decode, exception_name, fast_fail_name};
use target::{
    Address, Attribution, Code, Context, ContextOf, ExceptionRecord, FrameInfo, Halt, Machine, Module,
    RegionState, Result, StoredEvent, Target, TargetError, TargetExt as _, View,
};

use crate::bucket::{BucketSpace, failure_hash};
use crate::buried_throw::{self, Buried};
use crate::exception_verdict;
use crate::fault;
use crate::frames::{self, Walk};
use crate::heap_record;
use crate::kinds::{FAIL_FAST, kind_of};
use crate::recursion;
use crate::result::{
    AccessInfo, AddressClass, Analysis, AnalysisSource, Clr, ExceptionInfo, ExceptionKind, ExceptionTriage,
    FailFast, HresultConfidence, Operation, Provenance, ThrownSearch, Verdict, WilFailure,
};
use crate::stowed;
use crate::summary;
use crate::teb::{self, Teb};
use crate::thrown::decode_throw;
use crate::user_bucket::{self, ClassHints};
use crate::{ExceptionParams, MAX_FRAMES};

/// Frames looked at for a cycle when a stack overflowed.
const RECURSION_FRAMES: usize = 1024;

/// Triages a user-mode exception. Refuses kernel targets, and targets without an exception record.
pub fn exception_triage(
    target: &dyn Target,
    params: &ExceptionParams,
    halt: &Halt,
) -> Result<ExceptionTriage> {
    let event = admit(target, params)?;
    let context = crash_context(target, &event);
    let walk = context.as_ref().map_or_else(Walk::empty, |c| frames::walk(target, c, params.frames, halt));
    let modules = target.modules().unwrap_or_default();
    let teb = teb_of(target, &event);
    let case = Case { target, params, halt, event: &event, context, walk, modules, teb };
    Ok(case.triage())
}

fn admit(target: &dyn Target, params: &ExceptionParams) -> Result<StoredEvent> {
    if params.frames == 0 || params.frames > MAX_FRAMES {
        return Err(TargetError::InvalidArgument(format!(
            "frames is {}; it must be from 1 to {MAX_FRAMES}",
            params.frames
        )));
    }
    let kind = target.facts().kind;
    if kind.is_kernel() {
        return Err(TargetError::unsupported(
            "wrong_target_kind",
            "this is a kernel session, and a kernel crash dump stores no exception event: triage its bug check",
        ));
    }
    target.stored_event()?.ok_or_else(|| {
        let last = if kind.is_live() {
            "the target's last event is not an exception"
        } else {
            "the dump was written without an exception record, for a snapshot or a hang; its threads and stacks \
             are there to look at"
        };
        TargetError::failed_because("no_exception", format!("no exception recorded: {last}"))
    })
}

/// The stored context, else that of the thread the event names.
fn crash_context(target: &dyn Target, event: &StoredEvent) -> Option<Context> {
    event.context.clone().or_else(|| {
        let of = event.thread.map_or(ContextOf::Selected, ContextOf::Thread);
        target.context(of, View::Default).ok().flatten()
    })
}

fn teb_of(target: &dyn Target, event: &StoredEvent) -> Teb {
    let Ok(threads) = target.threads() else { return Teb::default() };
    let thread = match event.thread {
        Some(id) => threads.iter().find(|t| t.system_id == id),
        None => threads.iter().find(|t| t.event).or_else(|| threads.first()),
    };
    thread.and_then(|t| t.teb).map_or_else(Teb::default, |teb| teb::read(target, teb))
}

struct Case<'a> {
    target: &'a dyn Target,
    params: &'a ExceptionParams,
    halt: &'a Halt,
    event: &'a StoredEvent,
    context: Option<Context>,
    walk: Walk,
    modules: Arc<[Module]>,
    teb: Teb,
}

impl Case<'_> {
    fn triage(self) -> ExceptionTriage {
        let record = &self.event.record;
        let stored = self.event.context.is_some() || self.event.context_invalid;
        let mut triage = ExceptionTriage {
            verdict: Verdict::unknown(),
            exception: self.exception_info(),
            kind: kind_of(record),
            summary: None,
            access: None,
            fail_fast: None,
            failure: None,
            thrown: None,
            thrown_search: ThrownSearch::NotNeeded,
            throw_frames: vec![],
            clr: None,
            stowed: vec![],
            heap: None,
            recursion: None,
            last_error: self.teb.last_error.map(|code| decode(code, StatusSpace::Win32)),
            last_status: self.teb.last_status.map(|code| decode(code, StatusSpace::Ntstatus)),
            frames: self.walk.infos.clone(),
            frames_truncated: self.walk.truncated,
            stored_crash_context: stored,
            frames_from_stored_context: self.event.context.is_some() && !self.walk.infos.is_empty(),
            process_name: self.process_name(),
            thread_id: self.event.thread,
            analysis: Analysis::default(),
            limitations: self.limitations(stored),
        };
        self.by_kind(&mut triage);
        triage.summary = summary::summary(self.target, &triage, record);
        self.analyse(&mut triage);
        let own_code = self.is_own_code(&triage);
        triage.verdict = exception_verdict::of_exception(&triage, own_code);
        triage
    }

    fn exception_info(&self) -> ExceptionInfo {
        let record = &self.event.record;
        ExceptionInfo {
            code: Code(record.code),
            name: exception_name(record.code).map(str::to_owned),
            decoded: decode(record.code, StatusSpace::Ntstatus),
            address: Address(record.address),
            address_symbol: summary::symbol_of(self.target, record.address),
            flags: Code(record.flags),
            noncontinuable: record.flags & 1 != 0,
            first_chance: self.event.first_chance,
            parameters: record.parameters.iter().copied().map(Address).collect(),
            nested_record: (record.nested != 0).then_some(Address(record.nested)),
        }
    }

    fn process_name(&self) -> Option<String> {
        let named =
            self.target.facts().process.as_ref().and_then(|p| p.name.clone()).filter(|n| !n.is_empty());
        // The program's own image is the first module of a process.
        named.or_else(|| self.modules.first().map(|m| m.image_name.clone()))
    }

    fn limitations(&self, stored: bool) -> Vec<String> {
        let mut out = self.walk.limitations();
        if self.event.context_invalid {
            out.push("The context stored with the exception does not validate and was not used.".into());
        } else if stored && self.walk.infos.is_empty() {
            out.push(
                "A context is stored with the exception but no frame could be walked from it: usually the faulting \
                 module's image, and so its unwind data, is not at hand."
                    .into(),
            );
        }
        let machine = self.machine();
        let strays = self.walk.infos.iter().skip(1).filter(|f| f.module.is_none()).count();
        if strays != 0 && machine != Machine::X86 {
            out.push(
                "Frames behind the first were walked without the images' unwind data; supply the binaries before \
                 reading them."
                    .into(),
            );
        }
        out
    }

    fn machine(&self) -> Machine {
        self.context.as_ref().map_or(self.target.facts().machine, |c| c.machine)
    }

    fn by_kind(&self, triage: &mut ExceptionTriage) {
        let record = &self.event.record;
        let first = record.parameters.first().copied();
        match triage.kind {
            ExceptionKind::AccessViolation | ExceptionKind::InPageError | ExceptionKind::GuardPage => {
                triage.access = self.access(record);
            }
            ExceptionKind::StackOverflow => {
                triage.access = self.access(record);
                triage.recursion = self.recursion();
            }
            ExceptionKind::FailFast => self.fail_fast(triage, record),
            ExceptionKind::HeapCorruption => {
                triage.heap = first.and_then(|at| heap_record::read(self.target, at));
            }
            ExceptionKind::CppThrow => {
                triage.thrown = decode_throw(self.target, &record.parameters, Provenance::Reported);
                let rust =
                    triage.thrown.as_ref().is_some_and(|t| t.catchable_as.iter().any(|n| n == "rust_panic"));
                if rust {
                    triage.kind = ExceptionKind::RustPanic;
                }
            }
            ExceptionKind::ClrException => triage.clr = self.clr(record),
            ExceptionKind::Stowed => {
                let wide = self.target.facts().machine.pointer_size() == 8;
                if let (Some(array), Some(&count)) = (first, record.parameters.get(1)) {
                    triage.stowed = stowed::read(self.target, array, count, wide);
                }
            }
            _ => {}
        }
    }

    fn access(&self, record: &ExceptionRecord) -> Option<AccessInfo> {
        let operation = fault::operation(*record.parameters.first()?);
        let address = *record.parameters.get(1)?;
        let (mut class, mut words) = fault::classify(self.target, address, None);
        if self.on_stack(address) {
            class = AddressClass::Stack;
            words = "on the thread's stack".into();
        }
        let mut access = AccessInfo {
            operation,
            address: Address(address),
            class,
            effective_address: None,
            non_canonical: false,
            instruction: self.instruction(operation),
            place: summary::place_words(class, &words),
            io_status: (record.code == 0xc000_0006)
                .then(|| {
                    record.parameters.get(2).map(|s| decode((*s & 0xffff_ffff) as u32, StatusSpace::Ntstatus))
                })
                .flatten(),
        };
        // The processor gives no address with the fault of a non-canonical one: Windows records all ones.
        if address == u64::MAX
            && operation == Operation::Read
            && let Some(context) = &self.context
            && let Some(computed) = fault::of_instruction(self.target, context)
            && !code::is_canonical(context.machine, computed.address)
        {
            access.effective_address = Some(Address(computed.address));
            access.non_canonical = true;
            access.class = AddressClass::NonCanonical;
            access.operation = computed.operation;
            access.place = None;
        }
        Some(access)
    }

    /// In the stack's bounds, or without a TEB in the stored memory around the stack pointer.
    fn on_stack(&self, address: u64) -> bool {
        if let Some((limit, base)) = self.teb.stack_limit.zip(self.teb.stack_base) {
            return (limit..base).contains(&address);
        }
        let Some(sp) = self.context.as_ref().map(Context::sp).filter(|sp| *sp != 0) else { return false };
        let inside = |r: &target::Region| (r.base..r.base.saturating_add(r.size)).contains(&sp);
        address >= 0x10000
            && self.target.attribute(address) == (Attribution::NoModule { unloaded: None })
            && self.target.region(address).is_ok_and(|r| r.state == RegionState::Committed && inside(&r))
    }

    fn instruction(&self, operation: Operation) -> Option<String> {
        if operation == Operation::Execute {
            return None;
        }
        let ip = self.context.as_ref()?.ip();
        self.target.disassemble(ip, 1).ok()?.into_iter().next()?.text
    }

    fn recursion(&self) -> Option<crate::result::Recursion> {
        let context = self.context.as_ref()?;
        let stack = self.target.stack(context, RECURSION_FRAMES, self.halt).ok()?;
        recursion::find(&stack.frames, |frame| FrameInfo::new(0, frame).place())
    }

    fn fail_fast(&self, triage: &mut ExceptionTriage, record: &ExceptionRecord) {
        let subcode = (record.code == FAIL_FAST).then(|| record.parameters.first().copied()).flatten();
        triage.fail_fast = Some(FailFast {
            subcode,
            subcode_name: subcode.and_then(fast_fail_name).map(str::to_owned),
            gs_cookie: matches!(subcode, Some(0 | 2)),
        });
        // Exactly three parameters are WIL's shape; two or four are not.
        if let (FAIL_FAST, [_, hresult, line]) = (record.code, record.parameters.as_slice())
            && let Some(hresult) = failed_hresult(*hresult)
        {
            triage.failure = Some(WilFailure {
                hresult: decode(hresult, StatusSpace::Hresult),
                line: *line,
                file: None,
                function: None,
                message: None,
                confidence: HresultConfidence::Convention,
            });
        }
        if subcode == Some(7) && record.parameters.len() == 1 {
            let buried = self.buried_throw();
            triage.thrown_search = buried.search;
            triage.thrown = buried.thrown;
            triage.throw_frames = buried.frames;
        }
    }

    fn buried_throw(&self) -> Buried {
        if !self.params.scan_stack {
            return Buried::nothing(ThrownSearch::Declined);
        }
        buried_throw::search(
            self.target,
            self.machine(),
            &self.walk.frames,
            self.teb.stack_base,
            self.params.frames,
            self.halt,
        )
    }

    fn clr(&self, record: &ExceptionRecord) -> Option<Clr> {
        let hresult = decode((*record.parameters.first()? & 0xffff_ffff) as u32, StatusSpace::Hresult);
        let base = (record.parameters.len() == 5).then(|| record.parameters[4]).filter(|b| *b != 0);
        let module = base.and_then(|b| self.target.module_at(b).ok().flatten()).map(|m| m.image_name);
        Some(Clr { hresult, runtime_module: module, runtime_base: base.map(Address) })
    }

    fn analyse(&self, triage: &mut ExceptionTriage) {
        let order = user_bucket::follow_up_order(&triage.frames, &self.modules, triage.kind);
        let choices: Vec<&FrameInfo> = order.iter().filter_map(|&i| triage.frames.get(i)).collect();
        let names: Vec<(&str, Option<&str>)> =
            choices.iter().map(|f| (f.module.as_deref().unwrap_or(""), frames::function_of(f))).collect();
        let (frame, owner) = match self.params.owners.choose(&names) {
            Some((index, owner)) => (choices.get(index).copied(), Some(owner)),
            None => (None, None),
        };
        let module = frame.and_then(|f| self.modules.iter().find(|m| m.contains(f.address.0)));
        let class = user_bucket::class(triage, self.class_hints(triage));
        let (bucket, form) = user_bucket::bucket(
            &class,
            triage.exception.code.0,
            module.map(|m| m.image_name.as_str()),
            frame.and_then(frames::function_of),
        );
        triage.analysis = Analysis {
            ran: true,
            source: Some(AnalysisSource::Native),
            truncated: self.walk.stopped.is_some() || self.halt.stop().is_some(),
            problem_class: Some(class),
            failure_id_hash: Some(failure_hash(BucketSpace::User, &bucket)),
            failure_bucket_id: Some(bucket),
            symbol_name: frame.map(FrameInfo::place),
            module_name: module.map(|m| m.name.clone()),
            image_name: module.map(|m| m.image_name.clone()),
            image_timestamp: module.filter(|m| m.timestamp != 0).map(|m| format!("{:08x}", m.timestamp)),
            followup: owner,
            stack_command: Some(if triage.frames_from_stored_context { ".ecxr ; k" } else { "k" }.into()),
            bucket_form: Some(form),
            ..Analysis::default()
        };
    }

    fn class_hints(&self, triage: &ExceptionTriage) -> ClassHints {
        let Some(access) = &triage.access else { return ClassHints::default() };
        let address = access.address.0;
        let below_stack =
            self.teb.stack_limit.is_some_and(|limit| address < limit && limit - address <= 0x1000);
        let no_execute = self.target.region(address).is_ok_and(|region| {
            // PAGE_EXECUTE* are bits 4 to 7.
            matches!(region.state, RegionState::Committed | RegionState::Valid)
                && region.protect.is_some_and(|p| p & 0xf0 == 0)
        });
        // A stack page is never executable.
        ClassHints { no_execute: no_execute || access.class == AddressClass::Stack, below_stack }
    }

    /// Whether the first frame is in an image of the program rather than of the system; `None` without
    /// a module.
    fn is_own_code(&self, triage: &ExceptionTriage) -> Option<bool> {
        let first = triage.frames.first()?;
        let module = self.modules.iter().find(|m| m.contains(first.address.0))?;
        let path = module.image_path.to_ascii_lowercase().replace('/', "\\");
        let system = ["\\windows\\system32\\", "\\windows\\syswow64\\"].iter().any(|dir| path.contains(dir));
        Some(!system && !user_bucket::is_runtime(&module.image_name))
    }
}

/// A sign-extended or plain failed HRESULT.
fn failed_hresult(value: u64) -> Option<u32> {
    let low = (value & 0xffff_ffff) as u32;
    (matches!(value >> 32, 0 | 0xffff_ffff) && low & 0x8000_0000 != 0).then_some(low)
}
