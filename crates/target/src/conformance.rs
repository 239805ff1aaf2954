//! What every engine must hold to, whatever it opened (spec 10 section 8): run [`check`] on a target
//! and expect no failure. The checks ask only what the target itself says it has, so the same suite
//! fits a dump, an image and, later, a live target.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::{
    Context, ContextOf, Found, Halt, MemoryExt, Selection, Space, SymbolState, Target, TargetError,
    TargetExt, TargetKind, Unreadable, View, WalkEnd,
};

/// A rule the target broke.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The rule, in a few words.
    pub rule: &'static str,
    /// What was seen.
    pub detail: String,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.rule, self.detail)
    }
}

#[derive(Default)]
struct Report {
    failures: Vec<Failure>,
}

impl Report {
    fn expect(&mut self, rule: &'static str, holds: bool, detail: impl FnOnce() -> String) {
        if !holds {
            self.failures.push(Failure { rule, detail: detail() });
        }
    }
    fn value<T, E: std::fmt::Display>(&mut self, rule: &'static str, result: Result<T, E>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                self.failures.push(Failure { rule, detail: error.to_string() });
                None
            }
        }
    }
}

/// Rows looked at per list, to keep the suite fast on large targets.
const ROWS: usize = 64;

/// Runs every rule; an empty answer means that the target conforms.
#[must_use]
pub fn check(target: &dyn Target) -> Vec<Failure> {
    let mut report = Report::default();
    facts(target, &mut report);
    modules(target, &mut report);
    let current = target.context(ContextOf::Selected, View::Default);
    let current = report.value("the selected context answers", current).flatten();
    threads_and_selection(target, &mut report);
    reads(target, &mut report);
    if let Some(context) = &current {
        instruction_pointer(target, context, &mut report);
        stack(target, context, &mut report);
        halts(target, context, &mut report);
    }
    symbols(target, current.as_ref(), &mut report);
    events(target, &mut report);
    kinds(target, current.as_ref(), &mut report);
    report.failures
}

fn facts(target: &dyn Target, report: &mut Report) {
    let facts = target.facts();
    report.expect(
        "a target's facts and identity do not change",
        target.identity() == target.identity(),
        || format!("{:?} then {:?}", target.identity(), target.identity()),
    );
    report.expect("a dump has dump facts", facts.dump.is_some() == is_dump(facts.kind), || {
        format!("{:?} with {:?}", facts.kind, facts.dump)
    });
    report.expect("wow64 is an x86 target", !facts.wow64 || facts.machine.pointer_size() == 4, || {
        format!("{:?}", facts.machine)
    });
    let limitations_speak = facts.limitations.iter().all(|l| !l.trim().is_empty());
    report.expect("limitations are sentences", limitations_speak, || format!("{:?}", facts.limitations));
    let replay = is_dump(facts.kind) || facts.kind == TargetKind::Image;
    report.expect(
        "a dump neither runs nor is written",
        !replay || (target.run().is_none() && target.write().is_none() && target.breakpoints().is_none()),
        || format!("{:?}", target.abilities()),
    );
    report.expect(
        "abilities agree with capabilities",
        target.run().is_some() == target.abilities().contains(&crate::Ability::Run)
            && target.write().is_some() == target.abilities().contains(&crate::Ability::Write)
            && target.breakpoints().is_some() == target.abilities().contains(&crate::Ability::Breakpoints),
        || format!("{:?}", target.abilities()),
    );
}

fn is_dump(kind: TargetKind) -> bool {
    matches!(kind, TargetKind::UserDump | TargetKind::KernelDump)
}

fn modules(target: &dyn Target, report: &mut Report) {
    // A list that cannot be had must say why; that is an answer.
    let modules = match target.modules() {
        Ok(modules) => modules,
        Err(error) => {
            report.expect("a missing module list says why", !error.to_string().is_empty(), String::new);
            return;
        }
    };
    let again = target.modules();
    report.expect("the module list is stable", again.as_ref().is_ok_and(|m| **m == *modules), || {
        "two calls differ".to_owned()
    });
    for module in modules.iter() {
        report.expect("a module has a name", !module.name.is_empty(), || format!("{:#x}", module.base));
        report.expect(
            "a module's name can qualify a symbol",
            !module.name.contains(['!', ' ', '\\', '/', '.', '-', '+']),
            || module.name.clone(),
        );
        report.expect("a module does not wrap", module.base.checked_add(module.size).is_some(), || {
            module.name.clone()
        });
        report.expect("image names carry no folder", !module.image_name.contains(['\\', '/']), || {
            module.image_name.clone()
        });
    }
    let mut sorted: Vec<_> = modules.iter().filter(|m| m.size > 0).collect();
    sorted.sort_by_key(|m| m.base);
    for pair in sorted.windows(2) {
        report.expect("modules do not overlap", pair[0].end() <= pair[1].base, || {
            format!("{} and {}", pair[0].name, pair[1].name)
        });
    }
    for module in modules.iter().take(ROWS) {
        let same = modules.iter().filter(|m| m.name == module.name).count();
        report.expect("module names are unique", same == 1, || format!("{} x{same}", module.name));
        let found = target.module_named(&module.name).ok().flatten();
        report.expect("a module is found by its name", found.is_some_and(|m| m.base == module.base), || {
            module.name.clone()
        });
        if module.size > 0 {
            let inside = target.module_at(module.base + module.size / 2).ok().flatten();
            report.expect(
                "an address inside is attributed",
                inside.is_some_and(|m| m.base == module.base),
                || module.name.clone(),
            );
        }
        let unasked = target.symbol_status(module.base, false);
        if let Some(status) = report.value("symbol status of a module", unasked) {
            let has = !matches!(status.state, SymbolState::None | SymbolState::Deferred);
            report.expect("symbols in use have a source", !has || status.file.is_some(), || {
                format!("{}: {status:?}", module.name)
            });
        }
    }
}

fn threads_and_selection(target: &dyn Target, report: &mut Report) {
    let before = target.selection();
    let threads = match target.threads() {
        Ok(threads) => threads,
        Err(_) => return,
    };
    for (index, thread) in threads.iter().enumerate() {
        report.expect("thread indices are dense", thread.index as usize == index, || {
            format!("row {index} has index {}", thread.index)
        });
    }
    let events = threads.iter().filter(|t| t.event).count();
    report.expect("at most one thread raised the event", events <= 1, || format!("{events}"));
    let kernel = target.facts().kind.is_kernel();
    for thread in threads.iter().take(ROWS) {
        let of =
            if kernel { ContextOf::Processor(thread.system_id) } else { ContextOf::Thread(thread.system_id) };
        let context = target.context(of, View::Default);
        report.value("the context of a listed thread answers", context);
        report.expect("reading a thread's context keeps the selection", target.selection() == before, || {
            format!("{:?} became {:?}", before, target.selection())
        });
    }
    let bogus = 0xfff0_fff1;
    for (of, what) in [(ContextOf::Thread(bogus), "thread"), (ContextOf::Processor(bogus), "processor")] {
        let refused = target.context(of, View::Default);
        report.expect("a context of something that does not exist is refused", refused.is_err(), || {
            format!("{what} {bogus:#x} gave {refused:?}")
        });
    }
    let wrong = Selection { thread: Some(bogus), processor: Some(bogus), process: Some(1) };
    report.expect("selecting what does not exist is refused", target.select(wrong).is_err(), String::new);
    report.expect("a refused selection changes nothing", target.selection() == before, || {
        format!("{:?} became {:?}", before, target.selection())
    });
    for thread in threads.iter().take(4) {
        let other = if kernel {
            Selection { processor: Some(thread.system_id), ..before }
        } else {
            Selection { thread: Some(thread.system_id), ..before }
        };
        report.value("a listed thread can be selected", target.select(other));
        report.value("the old selection can be restored", target.select(before));
    }
    report.expect("the selection was restored", target.selection() == before, || {
        format!("{:?} became {:?}", before, target.selection())
    });
}

fn reads(target: &dyn Target, report: &mut Report) {
    let mut buffer = [0xa5u8; 32];
    let end = target.read(Space::Virtual, u64::MAX - 3, &mut buffer);
    report.expect("a read past the end of the space stops", end.stopped.is_some() && end.read <= 4, || {
        format!("{end:?}")
    });
    let empty = target.read(Space::Virtual, 0, &mut []);
    report.expect("an empty read is complete", empty.read == 0 && empty.stopped.is_none(), || {
        format!("{empty:?}")
    });
    let Ok(modules) = target.modules() else { return };
    for module in modules.iter().take(ROWS) {
        let (bytes, stopped) = target.read_prefix(module.base, 0x400);
        report.expect("a short read says why", (bytes.len() == 0x400) == stopped.is_none(), || {
            format!("{}: {} bytes, {stopped:?}", module.name, bytes.len())
        });
        if bytes.len() < 2 {
            continue;
        }
        let mut pieces = Vec::new();
        for offset in (0..bytes.len()).step_by(7) {
            let want = (bytes.len() - offset).min(7);
            pieces.extend(target.read_prefix(module.base + offset as u64, want).0);
        }
        report.expect("a read in pieces gives the same bytes", pieces == bytes, || module.name.clone());
    }
}

fn instruction_pointer(target: &dyn Target, context: &Context, report: &mut Report) {
    let halt = Halt::within(Duration::from_secs(10));
    if context.ip() != 0 {
        let evaluated = target.evaluate("@$ip", &halt);
        report.expect("@$ip is the selected context's ip", evaluated == Ok(context.ip()), || {
            format!("{evaluated:?} and {:#x}", context.ip())
        });
    }
    if context.machine.pointer_size() == 4 {
        let wide = [context.ip(), context.sp()].into_iter().chain(context.fp()).find(|v| v >> 32 != 0);
        report.expect("32-bit addresses are zero-extended", wide.is_none(), || format!("{wide:x?}"));
    }
    let there = target.read_u8(context.ip());
    match (there, target.disassemble(context.ip(), 1)) {
        (Ok(_), Ok(rows)) => {
            let first = rows.first();
            report.expect(
                "code that is there disassembles",
                first.is_some_and(|r| r.address == context.ip()),
                || format!("{rows:?}"),
            );
            if let Some(row) = first {
                let bytes = target.read_prefix(row.address, row.bytes.0.len()).0;
                report.expect("an instruction's bytes are the memory's", bytes == row.bytes.0, || {
                    format!("{row:?}")
                });
            }
        }
        (Ok(_), Err(error)) => {
            report.expect("code that is there disassembles", false, || error.to_string());
        }
        (Err(_), rows) => report.expect(
            "code that is not there is not invented",
            rows.as_ref().map_or(true, |r| r.iter().all(|i| i.bytes.0.is_empty())),
            || format!("{rows:?}"),
        ),
    }
}

fn stack(target: &dyn Target, context: &Context, report: &mut Report) {
    let halt = Halt::within(Duration::from_secs(20));
    let Some(stack) = report.value("a stack can be walked", target.stack(context, 32, &halt)) else { return };
    let physical: Vec<_> = stack.frames.iter().filter(|f| !f.inline).collect();
    report.expect(
        "frame 0 is the context's instruction",
        physical.first().is_some_and(|f| f.ip == context.ip()),
        || format!("{:#x} and {:x?}", context.ip(), physical.first().map(|f| f.ip)),
    );
    report.expect(
        "frame 0 was found as the context",
        physical.first().is_some_and(|f| f.found == Found::Context),
        || format!("{:?}", physical.first().map(|f| f.found)),
    );
    report.expect("the limit counts physical frames", physical.len() <= 32, || format!("{}", physical.len()));
    report.expect(
        "a guess is never among walked frames",
        physical.iter().all(|f| f.found != Found::Scan),
        || format!("{:?}", physical.iter().map(|f| f.found).collect::<Vec<_>>()),
    );
    for pair in physical.windows(2) {
        report.expect(
            "stack pointers do not go down",
            pair[1].sp >= pair[0].sp || kernel_to_user(pair),
            || format!("{:#x} then {:#x}", pair[0].sp, pair[1].sp),
        );
    }
    for (index, frame) in stack.frames.iter().enumerate().filter(|(_, f)| f.inline) {
        let outer = stack.frames[index..].iter().find(|f| !f.inline);
        report.expect(
            "an inline frame shares its function's ip",
            outer.is_some_and(|o| o.ip == frame.ip),
            || format!("{frame:?}"),
        );
    }
    let one = target.stack(context, 1, &halt);
    if let Some(one) = report.value("a stack of one frame", one) {
        let count = one.frames.iter().filter(|f| !f.inline).count();
        report.expect("the limit is honoured", count <= 1, || format!("{count} frames"));
        let more = physical.len() > 1;
        report.expect("a stack cut by its limit says so", !more || one.end == WalkEnd::Limit, || {
            format!("{:?}", one.end)
        });
    }
    let again = target.stack(context, 32, &halt);
    report.expect("two walks agree", again.as_ref().is_ok_and(|s| *s == stack), || "they differ".to_owned());
}

fn kernel_to_user(pair: &[&crate::Frame]) -> bool {
    pair[0].sp >> 63 == 1 && pair[1].sp >> 63 == 0
}

fn halts(target: &dyn Target, context: &Context, report: &mut Report) {
    let halt = Halt::unbounded();
    halt.flag().store(true, Ordering::Relaxed);
    match target.stack(context, 32, &halt) {
        Ok(stack) => {
            let said = stack.end == WalkEnd::Interrupted || stack.frames.len() <= 1;
            report.expect("an interrupted walk says so", said, || format!("{:?}", stack.end));
        }
        Err(error) => {
            let interrupted = matches!(&error, TargetError::Interrupted)
                || matches!(&error, TargetError::Unreadable(e) if e.why == Unreadable::Interrupted);
            report.expect("an interrupted walk says so", interrupted, || error.to_string());
        }
    }
    let none = target.find_symbols("*!*", 10, &Halt::within(Duration::ZERO));
    let bounded = match &none {
        Ok(rows) => rows.len() <= 10,
        Err(error) => matches!(error.category().0, "timeout" | "interrupted" | "unsupported" | "debugger"),
    };
    report.expect("a search without time ends", bounded, || format!("{none:?}"));
}

fn symbols(target: &dyn Target, current: Option<&Context>, report: &mut Report) {
    if let Some(context) = current
        && let Some(Some(hit)) = report.value("symbol_at answers", target.symbol_at(context.ip()))
    {
        report.expect(
            "a symbol is at or before its address",
            hit.address + hit.displacement == context.ip(),
            || format!("{hit:?} for {:#x}", context.ip()),
        );
        let back = target.resolve(&hit.qualified());
        let found = back.as_ref().is_ok_and(|hits| hits.iter().any(|h| h.address == hit.address));
        report.expect("symbol_at and resolve agree", found, || format!("{hit:?} resolves to {back:?}"));
    }
    let nothing = target.resolve("no_such_module_here!no_such_symbol");
    report.expect(
        "a name that is nowhere resolves to nothing",
        nothing.map_or(true, |n| n.is_empty()),
        String::new,
    );
    if let Ok(modules) = target.modules()
        && let Some(module) = modules.first()
    {
        let pattern = format!("{}!*", module.name);
        if let Ok(rows) = target.find_symbols(&pattern, 5, &Halt::within(Duration::from_secs(10))) {
            report.expect("a search keeps to its limit", rows.len() <= 5, || format!("{}", rows.len()));
            report.expect(
                "a search keeps to its module",
                rows.iter().all(|r| r.module == module.name),
                || format!("{rows:?}"),
            );
        }
    }
    let halt = Halt::within(Duration::from_secs(10));
    for text in ["", "no_such_module_here!nothing", "1 +", "poi("] {
        let value = target.evaluate(text, &halt);
        report.expect("nonsense does not evaluate", value.is_err(), || format!("{text:?} gave {value:?}"));
    }
    report.expect("bare digits are hexadecimal", target.evaluate("10", &halt) == Ok(16), || {
        format!("{:?}", target.evaluate("10", &halt))
    });
}

fn events(target: &dyn Target, report: &mut Report) {
    let event = target.stored_event();
    if let Some(Some(event)) = report.value("the stored event answers", event) {
        report.expect(
            "a context is given or invalid, not both",
            !(event.context.is_some() && event.context_invalid),
            || format!("{event:?}"),
        );
        if target.facts().machine.pointer_size() == 4 {
            report.expect(
                "a 32-bit exception address is zero-extended",
                event.record.address >> 32 == 0,
                || format!("{:#x}", event.record.address),
            );
        }
        report.expect("at most 15 exception parameters", event.record.parameters.len() <= 15, || {
            format!("{}", event.record.parameters.len())
        });
    }
    let bug_check = target.bug_check();
    if let Some(check) = report.value("the bug check answers", bug_check) {
        report.expect(
            "only kernels have bug checks",
            check.is_none() || target.facts().kind.is_kernel(),
            || format!("{check:?}"),
        );
    }
    let threads = target.threads().map_or(0, |t| t.len());
    report.expect(
        "an image has no threads",
        target.facts().kind != TargetKind::Image || threads == 0,
        || format!("{threads}"),
    );
}

/// What only kernels have is refused elsewhere, and page state is about the address asked for.
fn kinds(target: &dyn Target, current: Option<&Context>, report: &mut Report) {
    let halt = Halt::within(Duration::from_secs(10));
    if !target.facts().kind.is_kernel() {
        let processes = target.processes(&halt);
        report.expect("only kernels list processes", processes.as_ref().map_or(true, Vec::is_empty), || {
            format!("{processes:?}")
        });
        let thread = target.current_kernel_thread();
        report.expect("only kernels have kernel threads", thread.is_err(), || format!("{thread:?}"));
        let process = target.process(0x1000);
        report.expect("only kernels have process objects", process.is_err(), || format!("{process:?}"));
    }
    let addresses = [current.map(Context::ip), current.map(Context::sp), Some(0x1234_5678)];
    for address in addresses.into_iter().flatten() {
        if let Ok(region) = target.region(address) {
            let holds = address >= region.base && address - region.base < region.size;
            report.expect("a region holds the address asked for", holds, || {
                format!("{address:#x}: {region:x?}")
            });
        }
    }
}
