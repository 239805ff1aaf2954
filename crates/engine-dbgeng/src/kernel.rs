//! Processes and threads of a kernel dump: the engine has no call for them without its extension
//! DLLs, so the kernel's lists are walked with the layouts of its PDB.

use std::collections::HashSet;

use target::{Halt, KernelThread, MemoryExt, Process, Result, Target, TargetError, TypeLayout};

use crate::engine::{DbgEng, EngineResult};

const MAX_LINKS: usize = 0x1_0000;
/// `EPROCESS.ImageFileName`.
const NAME_LENGTH: usize = 15;
/// `DISPATCHER_HEADER.Type` of a process.
const PROCESS_OBJECT: u8 = 3;

fn offset(of: &TypeLayout, name: &str) -> Option<u64> {
    of.fields.iter().find(|f| f.name == name).map(|f| f.offset)
}

impl DbgEng {
    fn kernel_layout(&self, name: &str) -> Result<TypeLayout> {
        if !self.facts.kind.is_kernel() {
            return Err(TargetError::unsupported(
                "wrong_target_kind",
                "this is no kernel target; open a kernel dump for processes, kernel threads and processors",
            ));
        }
        self.layout(&format!("nt!{name}")).map_err(|_| {
            TargetError::unsupported(
                "no_types",
                format!(
                    "DbgEng lists no processes and the symbols of nt have no {name}; set a symbol path with its PDB, or open the dump with the native engine"
                ),
            )
        })
    }

    fn field(&self, object: u64, of: &TypeLayout, name: &str) -> Option<u64> {
        self.read_u64(object.checked_add(offset(of, name)?)?).ok()
    }

    /// Objects on the list at `head`, linked at `links` bytes into each.
    fn list(&self, head: u64, links: u64, halt: &Halt) -> Result<Vec<u64>> {
        let mut seen = HashSet::from([head]);
        let mut out = Vec::new();
        let mut link = self.read_u64(head)?;
        while link != head && out.len() < MAX_LINKS && seen.insert(link) {
            halt.check("walking a list of the kernel")?;
            out.extend(link.checked_sub(links));
            match self.read_u64(link) {
                Ok(next) => link = next,
                Err(_) => break,
            }
        }
        Ok(out)
    }

    pub(crate) fn list_processes(&self, halt: &Halt) -> Result<Vec<Process>> {
        let layout = self.kernel_layout("_EPROCESS")?;
        let head = self.resolve_name("nt!PsActiveProcessHead")?.first().map(|hit| hit.address);
        let walked = match (head, offset(&layout, "ActiveProcessLinks")) {
            (Some(head), Some(links)) => self.list(head, links, halt).unwrap_or_default(),
            _ => Vec::new(),
        };
        let processes: Vec<Process> = walked.iter().filter_map(|&p| self.process_record(p).ok()).collect();
        if !processes.is_empty() {
            return Ok(processes);
        }
        // SAFETY: no arguments.
        let current =
            unsafe { self.system.GetCurrentProcessDataOffset() }.said("read the current process")?;
        Ok(vec![self.process_record(current)?])
    }

    pub(crate) fn process_record(&self, object: u64) -> Result<Process> {
        let layout = self.kernel_layout("_EPROCESS")?;
        let kind = self.read_u8(object)?;
        if kind & 0x7f != PROCESS_OBJECT {
            return Err(TargetError::InvalidArgument(format!(
                "{object:#x} is no process: its object type is {kind}, not {PROCESS_OBJECT}"
            )));
        }
        let kprocess = self.kernel_layout("_KPROCESS").ok();
        let root = kprocess.as_ref().and_then(|k| self.field(object, k, "DirectoryTableBase"));
        let name = offset(&layout, "ImageFileName")
            .and_then(|at| self.read_c_string(object.checked_add(at)?, NAME_LENGTH));
        let wow64 = self
            .field(object, &layout, "WoW64Process")
            .or_else(|| self.field(object, &layout, "Wow64Process"));
        Ok(Process {
            object,
            pid: self.field(object, &layout, "UniqueProcessId").unwrap_or(0),
            parent_pid: self.field(object, &layout, "InheritedFromUniqueProcessId"),
            name: name.map(|n| String::from_utf8_lossy(&n).into_owned()).unwrap_or_default(),
            directory_table_base: root.or_else(|| self.read_u64(object.checked_add(0x28)?).ok()).unwrap_or(0),
            peb: self.field(object, &layout, "Peb").filter(|&p| p != 0),
            wow64: wow64.is_some_and(|p| p != 0),
            exited: self.field(object, &layout, "ExitTime").is_some_and(|t| t != 0),
        })
    }

    pub(crate) fn list_kernel_threads(&self, process: u64, halt: &Halt) -> Result<Vec<KernelThread>> {
        self.process_record(process)?;
        let kprocess = self.kernel_layout("_KPROCESS")?;
        let kthread = self.kernel_layout("_KTHREAD")?;
        let (Some(head), Some(links)) =
            (offset(&kprocess, "ThreadListHead"), offset(&kthread, "ThreadListEntry"))
        else {
            return Err(TargetError::unsupported(
                "no_types",
                "the symbols of nt do not say how threads are linked",
            ));
        };
        let objects = self.list(process.wrapping_add(head), links, halt)?;
        Ok(objects.into_iter().map(|object| self.kernel_thread(object, process)).collect())
    }

    pub(crate) fn kernel_thread(&self, object: u64, process: u64) -> KernelThread {
        let kthread = self.kernel_layout("_KTHREAD").ok();
        let ethread = self.kernel_layout("_ETHREAD").ok();
        let of = |name: &str| kthread.as_ref().and_then(|k| self.field(object, k, name));
        let byte = |name: &str| {
            let at = object.checked_add(offset(kthread.as_ref()?, name)?)?;
            self.read_u8(at).ok()
        };
        let client = ethread.as_ref().and_then(|e| object.checked_add(offset(e, "Cid")?));
        KernelThread {
            object,
            process,
            tid: client.and_then(|at| self.read_u64(at.checked_add(8)?).ok()),
            pid: client.and_then(|at| self.read_u64(at).ok()),
            processor: self.processor_running(object),
            state: byte("State"),
            wait_reason: byte("WaitReason"),
            irql: byte("WaitIrql"),
            stack_base: of("StackBase"),
            stack_limit: of("StackLimit"),
            teb: of("Teb").filter(|&t| t != 0),
        }
    }

    fn processor_running(&self, object: u64) -> Option<u32> {
        self.threads().ok()?.iter().find(|t| t.thread_object == Some(object)).and_then(|t| t.processor)
    }
}
