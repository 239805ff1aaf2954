//! What names mean: the interface the evaluator asks, and its implementation over any target.

use target::{Context, ContextOf, Halt, MemoryExt, Result, Target, TargetError, TargetExt, View};

/// Names and memory. `Ok(None)` means "no such name"; an error means "could not ask".
pub trait Scope {
    /// A register by name, no `@`, any case.
    fn register(&self, name: &str) -> Result<Option<u64>>;
    /// A pseudo-register by name without its `$` (`ip`, `t0`), lower case.
    fn pseudo(&self, name: &str) -> Result<Option<u64>>;
    /// A symbol `module!name` or `name`, or a module's base by its name alone.
    fn symbol(&self, name: &str) -> Result<Option<u64>>;
    /// `size` (1, 2, 4, 8) bytes of memory, little-endian, zero-extended.
    fn read(&self, address: u64, size: u8) -> Result<u64>;
    /// 4 or 8.
    fn pointer_size(&self) -> u8;
}

/// The selected thread of a target, or another context in its place.
pub struct TargetScope<'a> {
    target: &'a dyn Target,
    context: Option<&'a Context>,
    user: Option<&'a [u64; 20]>,
    halt: &'a Halt,
}

impl<'a> TargetScope<'a> {
    /// Registers of the selected thread or processor.
    #[must_use]
    pub fn new(target: &'a dyn Target, halt: &'a Halt) -> Self {
        Self { target, context: None, user: None, halt }
    }
    /// Registers of this context instead (`.cxr`, `.frame /r`).
    #[must_use]
    pub fn with_context(self, context: Option<&'a Context>) -> Self {
        Self { context, ..self }
    }
    /// Values of `$t0` to `$t19`; all zero otherwise.
    #[must_use]
    pub fn with_user_registers(self, values: &'a [u64; 20]) -> Self {
        Self { user: Some(values), ..self }
    }

    fn with<T>(&self, ask: impl FnOnce(&Context) -> Result<T>) -> Result<T> {
        if let Some(context) = self.context {
            return ask(context);
        }
        match self.target.context(ContextOf::Selected, View::Default)? {
            Some(context) => ask(&context),
            None => Err(TargetError::failed_because("no_context", "there are no registers on this target")),
        }
    }

    fn return_address(&self) -> Result<Option<u64>> {
        self.with(|context| {
            let stack = self.target.stack(context, 1, self.halt)?;
            Ok(stack.frames.iter().find(|f| !f.inline).map(|f| f.return_address))
        })
    }

    fn selected_thread(&self) -> Result<Option<target::Thread>> {
        let selection = self.target.selection();
        let threads = self.target.threads()?;
        let kernel = self.target.facts().kind.is_kernel();
        let wanted = if kernel { selection.processor } else { selection.thread };
        Ok(threads.iter().find(|t| Some(t.system_id) == wanted).cloned())
    }

    fn thread_pseudo(&self, name: &str) -> Result<Option<u64>> {
        let kernel = self.target.facts().kind.is_kernel();
        if kernel {
            let thread = self.target.current_kernel_thread()?;
            return Ok(match name {
                "thread" => Some(thread.object),
                "proc" => Some(thread.process),
                "tid" => thread.tid,
                "tpid" => thread.pid,
                "teb" => thread.teb,
                _ => self.target.process(thread.process)?.peb,
            });
        }
        let process = self.target.facts().process.as_ref();
        Ok(match name {
            "peb" | "proc" => process.and_then(|p| p.peb),
            "tpid" => process.and_then(|p| p.pid).map(u64::from),
            "tid" => self.selected_thread()?.map(|t| u64::from(t.system_id)),
            _ => self.selected_thread()?.and_then(|t| t.teb),
        })
    }

    fn bug_pseudo(&self, name: &str) -> Result<Option<u64>> {
        let Some(bug) = self.target.bug_check()? else { return Ok(None) };
        Ok(match name {
            "bug_code" => Some(u64::from(bug.code)),
            "bug_param1" => Some(bug.parameters[0]),
            "bug_param2" => Some(bug.parameters[1]),
            "bug_param3" => Some(bug.parameters[2]),
            _ => Some(bug.parameters[3]),
        })
    }
}

impl Scope for TargetScope<'_> {
    fn register(&self, name: &str) -> Result<Option<u64>> {
        let machine = self.context.map_or(self.target.facts().machine, |c| c.machine);
        if !Context::is_register(machine, name) {
            return Ok(None);
        }
        self.with(|context| match context.by_name(name) {
            Some(value) => Ok(Some(value)),
            None => Err(TargetError::failed_because(
                "register_unavailable",
                format!("{name} is not available in this context"),
            )),
        })
    }

    fn pseudo(&self, name: &str) -> Result<Option<u64>> {
        if let Some(index) = name.strip_prefix('t').and_then(|n| n.parse::<usize>().ok()) {
            if index >= 20 || name.len() > 3 {
                return Ok(None);
            }
            return Ok(Some(self.user.map_or(0, |values| values[index])));
        }
        match name {
            "ip" | "scopeip" => self.with(|c| Ok(Some(c.ip()))),
            "csp" => self.with(|c| Ok(Some(c.sp()))),
            "retreg" => self.register("$retreg"),
            "ra" => self.return_address(),
            "eventip" => Ok(self.target.stored_event()?.map(|e| e.record.address)),
            "exr_code" => Ok(self.target.stored_event()?.map(|e| u64::from(e.record.code))),
            "ptrsize" => Ok(Some(u64::from(self.pointer_size()))),
            "pagesize" => Ok(Some(0x1000)),
            "peb" | "teb" | "tid" | "tpid" | "thread" | "proc" => self.thread_pseudo(name),
            "bug_code" | "bug_param1" | "bug_param2" | "bug_param3" | "bug_param4" => self.bug_pseudo(name),
            _ => Ok(None),
        }
    }

    fn symbol(&self, name: &str) -> Result<Option<u64>> {
        self.halt.check("evaluating")?;
        if !name.contains('!') {
            if let Some(module) = self.target.module_named(name)? {
                return Ok(Some(module.base));
            }
        } else if name.split('!').next().is_none_or(str::is_empty) {
            return Ok(None);
        }
        Ok(self.target.resolve(name)?.first().map(|hit| hit.address.wrapping_add(hit.displacement)))
    }

    fn read(&self, address: u64, size: u8) -> Result<u64> {
        let address = if self.pointer_size() == 4 { address & 0xffff_ffff } else { address };
        Ok(match size {
            1 => u64::from(self.target.read_u8(address)?),
            2 => u64::from(self.target.read_u16(address)?),
            4 => u64::from(self.target.read_u32(address)?),
            _ => self.target.read_u64(address)?,
        })
    }

    fn pointer_size(&self) -> u8 {
        self.context.map_or(self.target.facts().machine, |c| c.machine).pointer_size()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluate;
    use target::scripted::ScriptedTarget;
    use target::{BugCheck, ContextSource, KernelThread, Machine, ProcessFacts, TargetKind, Thread, reg};

    fn context() -> Context {
        let mut context = Context::new(Machine::X64, ContextSource::Thread);
        context.set_ip(0x40_1010);
        context.set_sp(0x3000);
        context.set(reg::RAX, 0x1234);
        context
    }

    fn user() -> ScriptedTarget {
        let thread = Thread { system_id: 0x200, teb: Some(0x7000), ..Thread::default() };
        ScriptedTarget::new(Machine::X64)
            .with_facts(|f| {
                f.process =
                    Some(ProcessFacts { pid: Some(0x788), peb: Some(0x6000), ..ProcessFacts::default() });
            })
            .with_module("app", 0x40_0000, 0x5000)
            .with_symbol("app", "main", 0x40_1000)
            .with_thread(thread, Some(context()))
            .with_memory(0x3000, 0x40_2000u64.to_le_bytes())
    }

    #[test]
    fn names_of_a_user_target() {
        let (target, halt) = (user(), Halt::unbounded());
        let values = std::array::from_fn(|n| n as u64 * 16);
        let scope = TargetScope::new(&target, &halt).with_user_registers(&values);
        for (text, expected) in [
            ("app", 0x40_0000),
            ("app!main+4", 0x40_1004),
            ("@rax", 0x1234),
            ("al", 0x34),
            ("@$ip", 0x40_1010),
            ("@$csp", 0x3000),
            ("@$retreg", 0x1234),
            ("poi(@rsp)", 0x40_2000),
            ("@$peb", 0x6000),
            ("@$teb", 0x7000),
            ("@$tid", 0x200),
            ("@$tpid", 0x788),
            ("@$ptrsize", 8),
            ("@$t3", 0x30),
        ] {
            assert_eq!(evaluate(text, &scope), Ok(expected), "{text}");
        }
        for text in ["@rbx", "@$t20", "@$bug_code", "app!none", "!main", "nosuch", "@xyz"] {
            assert!(evaluate(text, &scope).is_err(), "{text}");
        }
        let unavailable = evaluate("@rbx", &scope).unwrap_err();
        assert_eq!(TargetError::from(unavailable).category(), ("debugger", Some("register_unavailable")));
    }

    #[test]
    fn another_context_takes_the_threads_place() {
        let (target, halt) = (user(), Halt::unbounded());
        let mut other = Context::new(Machine::X86, ContextSource::ContextRecord);
        other.set(reg::RAX, 0xffff_ffff);
        let scope = TargetScope::new(&target, &halt).with_context(Some(&other));
        assert_eq!(evaluate("@eax", &scope), Ok(0xffff_ffff));
        assert_eq!(evaluate("@$ptrsize", &scope), Ok(4));
        assert!(evaluate("@rax", &scope).is_err(), "the context is a 32-bit one");
    }

    #[test]
    fn names_of_a_kernel_target() {
        let thread = KernelThread {
            object: 0x8000,
            process: 0x9000,
            tid: Some(0x58),
            pid: Some(4),
            processor: Some(0),
            state: None,
            wait_reason: None,
            irql: None,
            stack_base: None,
            stack_limit: None,
            teb: None,
        };
        let target = ScriptedTarget::new(Machine::X64)
            .with_facts(|f| f.kind = TargetKind::KernelDump)
            .with_thread(Thread::default(), Some(context()))
            .with_kernel_thread(thread)
            .with_bug_check(BugCheck { code: 0x7e, parameters: [1, 2, 3, 4], driver: None });
        let halt = Halt::unbounded();
        let scope = TargetScope::new(&target, &halt);
        for (text, expected) in [
            ("@$thread", 0x8000),
            ("@$proc", 0x9000),
            ("@$tid", 0x58),
            ("@$bug_code", 0x7e),
            ("@$bug_param4", 4),
        ] {
            assert_eq!(evaluate(text, &scope), Ok(expected), "{text}");
        }
        assert!(evaluate("@$teb", &scope).is_err());
    }

    #[test]
    fn a_break_is_heard() {
        let target = user();
        let halt = Halt::unbounded();
        halt.flag().store(true, std::sync::atomic::Ordering::Relaxed);
        let error = evaluate("app!main", &TargetScope::new(&target, &halt)).unwrap_err();
        assert_eq!(TargetError::from(error), TargetError::Interrupted);
    }
}
