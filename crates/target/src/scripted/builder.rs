//! What a scripted target is made of, piece by piece.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use super::{ScriptRun, ScriptedTarget, Step};
use crate::*;

impl ScriptedTarget {
    /// A user dump of `machine` with nothing in it.
    #[must_use]
    pub fn new(machine: Machine) -> Self {
        let dump = DumpFacts {
            format: DumpFormat::UserMinidump,
            container: None,
            time: None,
            uptime_ms: None,
            full_memory: false,
            truncated: false,
            comment: None,
        };
        let facts = Facts {
            kind: TargetKind::UserDump,
            machine,
            wow64: false,
            os: None,
            process: None,
            processors: None,
            dump: Some(dump),
            limitations: Vec::new(),
        };
        Self {
            facts,
            memory: RegionMemory::new(),
            modules: Vec::new(),
            unloaded: Vec::new(),
            threads: Vec::new(),
            contexts: BTreeMap::new(),
            processes: Vec::new(),
            kernel_threads: Vec::new(),
            symbols: Vec::new(),
            types: Vec::new(),
            instructions: BTreeMap::new(),
            frames: Vec::new(),
            values: BTreeMap::new(),
            event: None,
            bug_check: None,
            failures: BTreeMap::new(),
            commands: BTreeMap::new(),
            release: Vec::new(),
            ending: Ending::Closed,
            runs: Vec::new(),
            resumes: Cell::default(),
            breakpoints: RefCell::default(),
            next_breakpoint: Cell::default(),
            ip: Cell::default(),
            gone: Cell::default(),
            selection: Cell::default(),
            paths: RefCell::default(),
            history: RefCell::default(),
            identity: RefCell::new(Identity { generation: 1, aim: "scripted".to_owned() }),
            writable: None,
        }
    }

    /// Edits the facts: kind, version, limitations.
    #[must_use]
    pub fn with_facts(mut self, edit: impl FnOnce(&mut Facts)) -> Self {
        edit(&mut self.facts);
        self
    }
    #[must_use]
    pub fn with_memory(mut self, address: u64, bytes: impl Into<Vec<u8>>) -> Self {
        self.memory.add(address, bytes);
        self
    }
    /// A loaded module `name` with the image `name.dll` (`ntoskrnl.exe` for `nt`).
    #[must_use]
    pub fn with_module(self, name: &str, base: u64, size: u64) -> Self {
        let image = if name == "nt" { "ntoskrnl.exe".to_owned() } else { format!("{name}.dll") };
        self.with_module_record(Module {
            name: name.to_owned(),
            image_name: image.clone(),
            image_path: image,
            base,
            size,
            timestamp: 0,
            checksum: 0,
            pdb: None,
            user_mode: None,
            file_version: None,
        })
    }
    #[must_use]
    pub fn with_module_record(mut self, module: Module) -> Self {
        self.modules.push(module);
        self
    }
    #[must_use]
    pub fn with_unloaded(mut self, module: UnloadedModule) -> Self {
        self.unloaded.push(module);
        self
    }
    /// A thread (or, of a kernel target, a processor); the first is selected.
    #[must_use]
    pub fn with_thread(mut self, thread: Thread, context: Option<Context>) -> Self {
        if self.threads.is_empty() {
            self.selection.set(self.selecting(thread.system_id));
        }
        if let Some(context) = context {
            self.contexts.insert(thread.system_id, context);
        }
        self.threads.push(thread);
        self
    }
    #[must_use]
    pub fn with_process(mut self, process: Process) -> Self {
        self.processes.push(process);
        self
    }
    #[must_use]
    pub fn with_kernel_thread(mut self, thread: KernelThread) -> Self {
        self.kernel_threads.push(thread);
        self
    }
    #[must_use]
    pub fn with_symbol(mut self, module: &str, name: &str, address: u64) -> Self {
        self.symbols.push(SymbolHit {
            module: module.to_owned(),
            name: name.to_owned(),
            raw_name: None,
            address,
            displacement: 0,
            size: None,
            kind: SymbolKind::Function,
        });
        self.symbols.sort_by_key(|hit| hit.address);
        self
    }
    #[must_use]
    pub fn with_type(mut self, layout: TypeLayout) -> Self {
        self.types.push(layout);
        self
    }
    #[must_use]
    pub fn with_instruction(mut self, instruction: Instruction) -> Self {
        self.instructions.insert(instruction.address, instruction);
        self
    }
    /// The frames every stack has, innermost first; without them a stack is its context alone.
    #[must_use]
    pub fn with_frames(mut self, frames: Vec<Frame>) -> Self {
        self.frames = frames;
        self
    }
    /// What an expression evaluates to, beyond numbers, symbols, modules and registers.
    #[must_use]
    pub fn with_value(mut self, expression: &str, value: u64) -> Self {
        self.values.insert(expression.to_owned(), value);
        self
    }
    #[must_use]
    pub fn with_event(mut self, event: StoredEvent) -> Self {
        self.event = Some(event);
        self
    }
    #[must_use]
    pub fn with_bug_check(mut self, bug_check: BugCheck) -> Self {
        self.bug_check = Some(bug_check);
        self
    }
    /// Makes the method of this name (`modules`, `symbol_at`, ...) fail.
    #[must_use]
    pub fn failing(mut self, method: &'static str, error: TargetError) -> Self {
        self.failures.insert(method, error);
        self
    }
    /// What the command line `line` does.
    #[must_use]
    pub fn with_command(mut self, line: &str, steps: Vec<Step>) -> Self {
        self.commands.insert(line.to_owned(), steps);
        self
    }

    /// A live process that does this each time it is resumed; the last goes on for ever.
    #[must_use]
    pub fn with_runs(mut self, runs: Vec<ScriptRun>) -> Self {
        self.runs = runs;
        self.facts.kind = TargetKind::Process;
        self.facts.dump = None;
        self
    }
}
