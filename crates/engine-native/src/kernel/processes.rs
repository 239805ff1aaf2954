//! Processes of a kernel dump.

use std::collections::HashSet;

use target::{Halt, MemoryExt, Process, Result, TargetError};

use super::KernelState;
use super::layout::Layout;
use crate::symbolize::Symbolizer;

/// `EPROCESS.ImageFileName` (15 characters and a NUL's room).
const NAME_LENGTH: usize = 15;
const MAX_PROCESSES: usize = 0x1_0000;
/// `DISPATCHER_HEADER.Type` of a process and a thread.
const PROCESS_OBJECT: u8 = 3;

impl KernelState {
    /// All processes on the active list; where it cannot be followed, the current one.
    pub(crate) fn processes(&self, symbols: &Symbolizer, halt: &Halt) -> Result<Vec<Process>> {
        let layout = self.layout(symbols);
        let walked = match (self.process_list_head(), layout.process_links) {
            (Some(head), Some(links)) => self.walk_processes(head, links, &layout, halt)?,
            _ => Vec::new(),
        };
        if !walked.is_empty() {
            return Ok(walked);
        }
        let current = self
            .current_thread_of(self.event_processor())
            .or_else(|| self.threads().iter().find_map(|t| t.thread_object))
            .and_then(|t| self.process_of_thread(t))
            .ok_or_else(|| {
                TargetError::failed_because(
                    "no_processes",
                    "the dump does not show which processes there were",
                )
            })?;
        Ok(vec![self.process(current, symbols)?])
    }

    fn walk_processes(&self, head: u64, links: u64, layout: &Layout, halt: &Halt) -> Result<Vec<Process>> {
        let mut out = Vec::new();
        let mut seen = HashSet::from([head]);
        let Ok(mut link) = self.core.read_u64(head) else { return Ok(out) };
        while link != head && out.len() < MAX_PROCESSES && seen.insert(link) {
            halt.check("walking the processes")?;
            let Some(process) = link.checked_sub(links).and_then(|object| self.read_process(object, layout))
            else {
                break;
            };
            out.push(process);
            match self.core.read_u64(link) {
                Ok(next) => link = next,
                Err(_) => break,
            }
        }
        Ok(out)
    }

    /// One process by EPROCESS.
    pub(crate) fn process(&self, object: u64, symbols: &Symbolizer) -> Result<Process> {
        let kind = self.core.read_u8(object)?;
        if kind & 0x7f != PROCESS_OBJECT {
            return Err(TargetError::InvalidArgument(format!(
                "{object:#x} is no process: its object type is {kind}, not {PROCESS_OBJECT}"
            )));
        }
        self.read_process(object, &self.layout(symbols)).ok_or_else(|| {
            TargetError::failed_because(
                "no_types",
                format!(
                    "the process at {object:#x} cannot be read: its layout is not known; put symbols of nt on the symbol path"
                ),
            )
        })
    }

    fn read_process(&self, object: u64, layout: &Layout) -> Option<Process> {
        let long = |offset: Option<u64>| self.core.read_u64(object.checked_add(offset?)?).ok();
        let name =
            layout.process_name.and_then(|o| self.core.read_c_string(object.checked_add(o)?, NAME_LENGTH));
        let kdbg = self.kdbg.as_ref();
        let offset = |field: Option<u16>| field.filter(|&o| o != 0).map(u64::from);
        Some(Process {
            object,
            pid: long(layout.process_id)?,
            parent_pid: long(layout.process_parent),
            name: name.map(|n| String::from_utf8_lossy(&n).into_owned()).unwrap_or_default(),
            directory_table_base: self.directory_table_base(object)?,
            peb: long(offset(kdbg.and_then(|k| k.offset_eprocess_peb()))).filter(|&p| p != 0),
            wow64: long(layout.process_wow64).is_some_and(|p| p != 0),
            exited: long(layout.process_exit_time).is_some_and(|t| t != 0),
        })
    }

    /// `KPROCESS.DirectoryTableBase`.
    pub(crate) fn directory_table_base(&self, process: u64) -> Option<u64> {
        let offset = self.kdbg.as_ref().and_then(|k| k.offset_eprocess_directory_table_base());
        let offset = offset.filter(|&o| o != 0).unwrap_or(0x28);
        self.core.read_u64(process.checked_add(u64::from(offset))?).ok().filter(|&root| root != 0)
    }

    /// `KTHREAD.ApcState.Process`.
    pub(crate) fn process_of_thread(&self, thread: u64) -> Option<u64> {
        let offset = self.kdbg.as_ref()?.offset_kthread_apc_process().filter(|&o| o != 0)?;
        self.core.read_u64(thread.checked_add(u64::from(offset))?).ok().filter(|&p| p != 0)
    }
}
