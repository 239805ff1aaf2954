//! A target made of what a test says: memory, modules, threads, symbols, and command lines with
//! delays, failures, panics and worse behind them.
//!
//! ```
//! use target::scripted::ScriptedTarget;
//! use target::{Machine, MemoryExt as _, Target as _};
//!
//! let target = ScriptedTarget::new(Machine::X64)
//!     .with_module("nt", 0x1000, 0x1000)
//!     .with_memory(0x1000, *b"MZ")
//!     .with_symbol("nt", "KeBugCheckEx", 0x1010);
//! assert_eq!(target.read_u16(0x1000).unwrap(), 0x5a4d);
//! assert_eq!(target.symbol_at(0x1014).unwrap().unwrap().displacement, 4);
//! ```

mod builder;
mod live;
mod script;
mod writable;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::capability::{Breakpoint, Command, CommandOutput};
use crate::*;

pub use live::{ScriptRun, ScriptStop};
pub use script::{Played, Script, ScriptBytes, ScriptEnding, ScriptFile, ScriptModule, Step, play};

/// The scripted target. Everything not set is absent, and says so.
#[derive(Debug)]
pub struct ScriptedTarget {
    facts: Facts,
    memory: RegionMemory,
    modules: Vec<Module>,
    unloaded: Vec<UnloadedModule>,
    threads: Vec<Thread>,
    contexts: BTreeMap<u32, Context>,
    processes: Vec<Process>,
    kernel_threads: Vec<KernelThread>,
    symbols: Vec<SymbolHit>,
    types: Vec<TypeLayout>,
    instructions: BTreeMap<u64, Instruction>,
    frames: Vec<Frame>,
    values: BTreeMap<String, u64>,
    event: Option<StoredEvent>,
    bug_check: Option<BugCheck>,
    failures: BTreeMap<&'static str, TargetError>,
    commands: BTreeMap<String, Vec<Step>>,
    release: Vec<Step>,
    ending: Ending,
    runs: Vec<ScriptRun>,
    resumes: Cell<usize>,
    breakpoints: RefCell<Vec<Breakpoint>>,
    next_breakpoint: Cell<u32>,
    /// Where the selected thread stands since the last run that said so.
    ip: Cell<Option<u64>>,
    gone: Cell<bool>,
    selection: Cell<Selection>,
    paths: RefCell<SymbolPaths>,
    history: RefCell<Vec<String>>,
    identity: RefCell<Identity>,
    writable: Option<writable::FileMemory>,
}

impl ScriptedTarget {
    fn fails(&self, method: &str) -> Result<()> {
        if self.gone.get() {
            return Err(TargetError::Gone("the process exited".to_owned()));
        }
        self.failures.get(method).map_or(Ok(()), |error| Err(error.clone()))
    }

    fn selecting(&self, id: u32) -> Selection {
        if self.facts.kind.is_kernel() {
            Selection { processor: Some(id), ..Selection::default() }
        } else {
            Selection { thread: Some(id), ..Selection::default() }
        }
    }

    fn selected(&self) -> Option<u32> {
        let selection = self.selection.get();
        if self.facts.kind.is_kernel() { selection.processor } else { selection.thread }
    }

    fn known(&self, id: u32) -> Result<()> {
        let found = self.threads.iter().any(|thread| thread.system_id == id);
        if found { Ok(()) } else { Err(absent("such thread")) }
    }

    fn frame_at(&self, context: &Context) -> Frame {
        Frame {
            ip: context.ip(),
            sp: context.sp(),
            found: Found::Context,
            inline: false,
            attribution: self.attribute(context.ip()),
            symbol: self.symbol_at(context.ip()).ok().flatten(),
            source: None,
            context: Some(Box::new(context.clone())),
            return_address: 0,
        }
    }
}

fn absent(what: &str) -> TargetError {
    TargetError::failed(format!("this scripted target has no {what}"))
}

impl Memory for ScriptedTarget {
    fn read(&self, space: Space, address: u64, buffer: &mut [u8]) -> ReadOutcome {
        match self.writable.as_ref().filter(|file| file.holds(address)) {
            Some(file) => file.read(address, buffer),
            None => self.memory.read(space, address, buffer),
        }
    }
}

impl Target for ScriptedTarget {
    fn facts(&self) -> &Facts {
        &self.facts
    }
    fn identity(&self) -> Identity {
        self.identity.borrow().clone()
    }
    fn identify(&self) -> Result<Identity> {
        self.fails("identify")?;
        Ok(self.identity())
    }
    fn aim_at(&self, aim: &str) -> Result<()> {
        self.fails("aim_at")?;
        aim.clone_into(&mut self.identity.borrow_mut().aim);
        Ok(())
    }
    fn abilities(&self) -> Vec<Ability> {
        let execute = (!self.commands.is_empty()).then_some(Ability::Execute);
        let live = [Ability::Run, Ability::Step, Ability::Breakpoints, Ability::Watch];
        let live = live.into_iter().filter(|_| !self.runs.is_empty());
        let write = self.writable.as_ref().map(|_| Ability::Write);
        live.chain(write).chain(execute).collect()
    }

    fn modules(&self) -> Result<Arc<[Module]>> {
        self.fails("modules")?;
        Ok(self.modules.as_slice().into())
    }
    fn unloaded_modules(&self) -> Result<Arc<[UnloadedModule]>> {
        self.fails("unloaded_modules")?;
        Ok(self.unloaded.as_slice().into())
    }
    fn resync(&self) -> Result<()> {
        self.fails("resync")
    }
    fn symbol_status(&self, base: u64, _: bool) -> Result<SymbolStatus> {
        self.fails("symbol_status")?;
        let module = self.modules.iter().find(|module| module.base == base);
        let module = module.ok_or_else(|| absent("module at that base"))?;
        let any = self.symbols.iter().any(|hit| hit.module == module.name);
        Ok(SymbolStatus {
            state: if any { SymbolState::Export } else { SymbolState::None },
            pdb: module.pdb.clone(),
            file: any.then(|| "scripted".to_owned()),
            unmatched: false,
            note: None,
        })
    }
    fn symbol_paths(&self) -> SymbolPaths {
        self.paths.borrow().clone()
    }
    fn set_symbol_paths(&self, paths: SymbolPaths) -> Result<()> {
        self.fails("set_symbol_paths")?;
        *self.paths.borrow_mut() = paths;
        Ok(())
    }
    fn reload(&self, pattern: Option<&str>, _: bool) -> Result<Reloaded> {
        self.fails("reload")?;
        let named = |module: &&Module| pattern.is_none_or(|p| module.name.eq_ignore_ascii_case(p));
        Ok(Reloaded { modules: self.modules.iter().filter(named).count() })
    }

    fn threads(&self) -> Result<Arc<[Thread]>> {
        self.fails("threads")?;
        Ok(self.threads.as_slice().into())
    }
    fn processes(&self, halt: &Halt) -> Result<Vec<Process>> {
        self.fails("processes")?;
        halt.check("listing processes")?;
        Ok(self.processes.clone())
    }
    fn kernel_threads(&self, process: u64, halt: &Halt) -> Result<Vec<KernelThread>> {
        self.fails("kernel_threads")?;
        halt.check("listing threads")?;
        Ok(self.kernel_threads.iter().filter(|thread| thread.process == process).cloned().collect())
    }
    fn current_kernel_thread(&self) -> Result<KernelThread> {
        self.fails("current_kernel_thread")?;
        let processor = self.selection.get().processor;
        let running = self.kernel_threads.iter().find(|thread| thread.processor == processor);
        running.cloned().ok_or_else(|| absent("thread on that processor"))
    }
    fn process(&self, object: u64) -> Result<Process> {
        self.fails("process")?;
        let process = self.processes.iter().find(|process| process.object == object);
        process.cloned().ok_or_else(|| absent("process there"))
    }

    fn selection(&self) -> Selection {
        self.selection.get()
    }
    fn select(&self, selection: Selection) -> Result<()> {
        self.fails("select")?;
        [selection.thread, selection.processor].into_iter().flatten().try_for_each(|id| self.known(id))?;
        self.selection.set(selection);
        Ok(())
    }

    fn context(&self, of: ContextOf, view: View) -> Result<Option<Context>> {
        self.fails("context")?;
        if view == View::Wow64 && !self.facts.wow64 {
            return Err(TargetError::unsupported("wrong_target_kind", "this process has no 32-bit side"));
        }
        let id = match of {
            ContextOf::Selected => self.selected(),
            ContextOf::Thread(id) | ContextOf::Processor(id) => Some(id),
            ContextOf::KernelThread(object) => {
                let thread = self.kernel_threads.iter().find(|thread| thread.object == object);
                thread.ok_or_else(|| absent("such thread"))?.processor
            }
        };
        if let Some(id) = id {
            self.known(id)?;
        }
        let mut context = id.and_then(|id| self.contexts.get(&id)).cloned();
        if let (Some(context), Some(ip)) = (&mut context, self.ip.get())
            && id == self.selected()
        {
            context.set_ip(ip);
        }
        Ok(context)
    }
    fn stack(&self, from: &Context, limit: usize, halt: &Halt) -> Result<Stack> {
        self.fails("stack")?;
        if let Some(stop) = halt.stop() {
            let end = if stop == Stop::Interrupted { WalkEnd::Interrupted } else { WalkEnd::Deadline };
            return Ok(Stack { frames: Vec::new(), end, limitations: Vec::new() });
        }
        let mut frames = self.frames.clone();
        if frames.is_empty() {
            frames.push(self.frame_at(from));
        }
        // The limit counts physical frames; inline ones come before the frame they share.
        let physical = frames.iter().enumerate().filter(|(_, frame)| !frame.inline);
        let kept = physical.take(limit).last().map_or(0, |(index, _)| index + 1);
        let end = if frames.len() > kept { WalkEnd::Limit } else { WalkEnd::Outermost };
        frames.truncate(kept);
        Ok(Stack { frames, end, limitations: Vec::new() })
    }
    fn scan_stack(&self, _: &Context, _: usize, _: &Halt) -> Result<Vec<Frame>> {
        self.fails("scan_stack")?;
        Ok(Vec::new())
    }

    fn stored_event(&self) -> Result<Option<StoredEvent>> {
        self.fails("stored_event")?;
        Ok(self.event.clone())
    }
    fn bug_check(&self) -> Result<Option<BugCheck>> {
        self.fails("bug_check")?;
        Ok(self.bug_check.clone())
    }

    fn region(&self, address: u64) -> Result<Region> {
        self.fails("region")?;
        let readable = self.memory.read_u8(address).is_ok();
        Ok(Region {
            base: address & !0xfff,
            size: 0x1000,
            allocation_base: None,
            state: if readable { RegionState::Committed } else { RegionState::Unknown },
            protect: None,
            usage: None,
        })
    }

    fn symbol_at(&self, address: u64) -> Result<Option<SymbolHit>> {
        self.fails("symbol_at")?;
        let Attribution::Module { name, .. } = self.attribute(address) else { return Ok(None) };
        let mut own = self.symbols.iter().rev().filter(|hit| hit.module == name);
        let hit = own.find(|hit| hit.address <= address);
        Ok(hit.map(|hit| SymbolHit { displacement: address - hit.address, ..hit.clone() }))
    }
    fn resolve(&self, name: &str) -> Result<Vec<SymbolHit>> {
        self.fails("resolve")?;
        let (module, symbol) = name.split_once('!').map_or((None, name), |(m, s)| (Some(m), s));
        let hits = self.symbols.iter().filter(|hit| {
            hit.name == symbol && module.is_none_or(|module| hit.module.eq_ignore_ascii_case(module))
        });
        Ok(hits.cloned().collect())
    }
    fn find_symbols(&self, pattern: &str, limit: usize, halt: &Halt) -> Result<Vec<SymbolHit>> {
        self.fails("find_symbols")?;
        halt.check("looking for symbols")?;
        let hits = self.symbols.iter().filter(|hit| wildcard(pattern, &hit.qualified()));
        Ok(hits.take(limit).cloned().collect())
    }
    fn source_line(&self, _: u64) -> Result<Option<SourceLine>> {
        self.fails("source_line")?;
        Ok(None)
    }
    fn type_layout(&self, name: &str) -> Result<TypeLayout> {
        self.fails("type_layout")?;
        let bare = name.split_once('!').map_or(name, |(_, bare)| bare);
        let layout = self.types.iter().find(|layout| layout.name == bare);
        layout.cloned().ok_or_else(|| absent(&format!("type {name}")))
    }
    fn find_types(&self, pattern: &str, limit: usize) -> Result<Vec<String>> {
        self.fails("find_types")?;
        let names = self.types.iter().map(|layout| format!("{}!{}", layout.module, layout.name));
        Ok(names.filter(|name| wildcard(pattern, name)).take(limit).collect())
    }
    fn locals(&self, _: &Frame) -> Result<Vec<Local>> {
        self.fails("locals")?;
        Ok(Vec::new())
    }

    fn disassemble(&self, address: u64, count: usize) -> Result<Vec<Instruction>> {
        self.fails("disassemble")?;
        let rows: Vec<Instruction> =
            self.instructions.range(address..).take(count).map(|(_, row)| row.clone()).collect();
        if rows.is_empty() && count > 0 { Err(absent("code there")) } else { Ok(rows) }
    }
    fn function_bounds(&self, _: u64) -> Result<Option<(u64, u64)>> {
        self.fails("function_bounds")?;
        Ok(None)
    }
    fn evaluate(&self, expression: &str, halt: &Halt) -> Result<u64> {
        self.fails("evaluate")?;
        halt.check("evaluating an expression")?;
        let text = expression.trim();
        if let Some(value) = self.values.get(text) {
            return Ok(*value);
        }
        if let Some(hit) = self.resolve(text)?.first() {
            return Ok(hit.address);
        }
        if let Some(module) = self.module_named(text)? {
            return Ok(module.base);
        }
        let register = self.context(ContextOf::Selected, View::Default)?.and_then(|c| c.by_name(text));
        let digits = text.trim_start_matches("0x").replace('`', "");
        register
            .or_else(|| u64::from_str_radix(&digits, 16).ok())
            .ok_or_else(|| TargetError::failed(format!("cannot evaluate {text:?}")))
    }

    fn write(&self) -> Option<&dyn Write> {
        self.writable.as_ref().map(|_| self as &dyn Write)
    }
    fn run(&self) -> Option<&dyn Run> {
        (!self.runs.is_empty()).then_some(self)
    }
    fn breakpoints(&self) -> Option<&dyn Breakpoints> {
        (!self.runs.is_empty()).then_some(self)
    }
    fn command(&self) -> Option<&dyn Command> {
        (!self.commands.is_empty()).then_some(self)
    }

    fn release(&self) -> Result<Ending> {
        script::play(&self.release, &self.history.borrow(), &Halt::unbounded())?;
        Ok(self.ending)
    }
}

impl Command for ScriptedTarget {
    fn execute(&self, line: &str, halt: &Halt) -> Result<CommandOutput> {
        self.drive(line, std::time::Duration::MAX, &|| {}, halt).map(|driven| driven.output)
    }

    fn drive(
        &self,
        line: &str,
        wait: std::time::Duration,
        on_moving: &dyn Fn(),
        halt: &Halt,
    ) -> Result<Driven> {
        self.fails("execute")?;
        let steps = self.commands.get(line).ok_or_else(|| absent(&format!("command {line:?}")))?;
        let before = self.history.borrow().clone();
        self.history.borrow_mut().push(line.to_owned());
        let halt = halt.at_most(wait);
        let mut driven = Driven::default();
        for step in steps {
            if matches!(step, Step::Go) {
                let stop = self.resume(capability::Resume::Go, wait, on_moving, &halt)?;
                driven.output.text.push_str(&stop.output);
                driven.stop = Some(stop);
                continue;
            }
            self.affect(step)?;
            let played = script::play(std::slice::from_ref(step), &before, &halt)?;
            driven.output.text.push_str(&played.text);
            if played.cut_short {
                driven.output.cut_short = true;
                break;
            }
        }
        Ok(driven)
    }
}

/// `*` and `?`, any case.
fn wildcard(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.to_lowercase().into_bytes(), text.to_lowercase().into_bytes());
    let (mut p, mut t, mut star) = (0, 0, None);
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(&c) if c == b'?' || c == text[t] => {
                p += 1;
                t += 1;
            }
            _ => match star {
                Some((at, from)) => {
                    star = Some((at, from + 1));
                    p = at + 1;
                    t = from + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|&c| c == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn target() -> ScriptedTarget {
        let mut context = Context::new(Machine::X64, ContextSource::Exception);
        context.set_ip(0x1010);
        context.set_sp(0x9000);
        let thread = Thread { system_id: 7, event: true, ..Thread::default() };
        ScriptedTarget::new(Machine::X64)
            .with_module("app", 0x1000, 0x1000)
            .with_memory(0x1000, vec![0x90; 0x1000])
            .with_memory(0x9000, vec![0; 0x100])
            .with_symbol("app", "main", 0x1008)
            .with_instruction(Instruction {
                address: 0x1010,
                bytes: HexBytes(vec![0x90]),
                text: Some("nop".into()),
                target: None,
                flow: Flow::Next,
                data_address: None,
            })
            .with_thread(thread, Some(context))
            .with_command(
                "slow",
                vec![Step::Say("a".into()), Step::Sleep { ms: 10_000 }, Step::Say("b".into())],
            )
    }

    #[test]
    fn conforms() {
        let failures = conformance::check(&target());
        assert!(failures.is_empty(), "{failures:#?}");
    }

    #[test]
    fn a_halt_cuts_a_command_and_keeps_its_output() {
        let target = target();
        let output = target.command().unwrap().execute("slow", &Halt::within(Duration::from_millis(20)));
        let output = output.unwrap();
        assert!(output.cut_short);
        assert!(output.text.starts_with('a') && !output.text.contains('b'), "{}", output.text);
    }

    #[test]
    fn a_failing_method_is_not_an_empty_one() {
        let target = target().failing("modules", TargetError::failed("no list"));
        assert_eq!(target.attribute(0x1010), Attribution::LookupFailed);
        assert_eq!(target.module_at(0x1010).unwrap_err().to_string(), "no list");
    }

    #[test]
    fn wildcards() {
        assert!(wildcard("app!m*n", "app!main") && wildcard("*", "") && wildcard("a?p*", "APP!x"));
        assert!(!wildcard("app!n*", "app!main") && !wildcard("?", ""));
    }
}
