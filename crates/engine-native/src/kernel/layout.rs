//! Offsets of process and thread structures: from types where there are any, else found in the
//! dump's own data (lists that must pass through known objects). Never by build number.

use target::{MemoryExt, TypeLayout};

use super::KernelState;
use crate::symbolize::Symbolizer;

/// Offsets that `KDDEBUGGER_DATA64` does not have. `None`: not known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(super) process_id: Option<u64>,
    pub(super) process_links: Option<u64>,
    pub(super) process_name: Option<u64>,
    pub(super) process_parent: Option<u64>,
    pub(super) process_wow64: Option<u64>,
    pub(super) process_exit_time: Option<u64>,
    /// `KPROCESS.ThreadListHead` and `KTHREAD.ThreadListEntry`.
    pub(super) thread_list: Option<u64>,
    pub(super) thread_links: Option<u64>,
    /// `ETHREAD.Cid`.
    pub(super) client_id: Option<u64>,
    pub(super) wait_irql: Option<u64>,
}

/// `KPROCESS.ThreadListHead` of every 64-bit Windows since Vista.
const THREAD_LIST_HEAD: u64 = 0x30;
/// Where structures are searched when the debugger data gives no size.
const DEFAULT_SIZE: u64 = 0x1000;
const MAX_LINKS: usize = 0x1_0000;

impl Layout {
    fn from_types(symbols: &Symbolizer) -> Self {
        let layout = |name: &str| symbols.type_layout(&format!("nt!{name}")).ok();
        let process = layout("_EPROCESS");
        let kprocess = layout("_KPROCESS");
        let thread = layout("_ETHREAD");
        let kthread = layout("_KTHREAD");
        let field = |of: &Option<TypeLayout>, name: &str| {
            of.as_ref().and_then(|l| l.fields.iter().find(|f| f.name == name)).map(|f| f.offset)
        };
        Self {
            process_id: field(&process, "UniqueProcessId"),
            process_links: field(&process, "ActiveProcessLinks"),
            process_name: field(&process, "ImageFileName"),
            process_parent: field(&process, "InheritedFromUniqueProcessId"),
            process_wow64: field(&process, "WoW64Process").or(field(&process, "Wow64Process")),
            process_exit_time: field(&process, "ExitTime"),
            thread_list: field(&kprocess, "ThreadListHead"),
            thread_links: field(&kthread, "ThreadListEntry"),
            client_id: field(&thread, "Cid"),
            wait_irql: field(&kthread, "WaitIrql"),
        }
    }

    /// What is missing comes from `other`.
    fn or(self, other: Self) -> Self {
        Self {
            process_id: self.process_id.or(other.process_id),
            process_links: self.process_links.or(other.process_links),
            process_name: self.process_name.or(other.process_name),
            process_parent: self.process_parent.or(other.process_parent),
            process_wow64: self.process_wow64.or(other.process_wow64),
            process_exit_time: self.process_exit_time.or(other.process_exit_time),
            thread_list: self.thread_list.or(other.thread_list),
            thread_links: self.thread_links.or(other.thread_links),
            client_id: self.client_id.or(other.client_id),
            wait_irql: self.wait_irql.or(other.wait_irql),
        }
    }
}

impl KernelState {
    /// The layout, worked out once per set of symbols.
    pub(crate) fn layout(&self, symbols: &Symbolizer) -> std::rc::Rc<Layout> {
        if let Some(layout) = self.layout.borrow().as_ref() {
            return std::rc::Rc::clone(layout);
        }
        let mut layout = Layout::from_types(symbols);
        if layout.process_links.is_none() || layout.thread_links.is_none() {
            layout = layout.or(self.discovered());
        }
        let layout = std::rc::Rc::new(layout);
        *self.layout.borrow_mut() = Some(std::rc::Rc::clone(&layout));
        layout
    }

    /// Symbols changed: work it out again.
    pub(crate) fn forget_layout(&self) {
        *self.layout.borrow_mut() = None;
    }

    fn discovered(&self) -> Layout {
        let mut layout = Layout::default();
        let thread = self.threads().iter().find_map(|t| t.thread_object);
        let process = thread.and_then(|t| self.process_of_thread(t));
        if let Some(process) = process {
            layout.process_links = self.links_through(process).or_else(|| self.links_by_shape(process));
            // The id has stood right before the links since Vista.
            layout.process_id = layout.process_links.and_then(|o| o.checked_sub(8));
            layout.process_name = self.system_name(process, &layout);
        }
        if let (Some(process), Some(thread)) = (process, thread) {
            layout.thread_list = Some(THREAD_LIST_HEAD);
            layout.thread_links = self.thread_links_through(process, thread);
            let pid = layout.process_id.and_then(|o| self.core.read_u64(process.checked_add(o)?).ok());
            layout.client_id = pid.and_then(|pid| self.client_id_of(thread, pid));
        }
        let kdbg = self.kdbg.as_ref();
        layout.process_parent =
            kdbg.and_then(|k| k.offset_eprocess_parent_cid()).filter(|&o| o != 0).map(u64::from);
        layout
    }

    fn process_size(&self) -> u64 {
        let size = self.kdbg.as_ref().and_then(|k| k.size_eprocess());
        size.filter(|&s| s != 0).map_or(DEFAULT_SIZE, u64::from)
    }

    fn thread_size(&self) -> u64 {
        let size = self.kdbg.as_ref().and_then(|k| k.size_ethread());
        size.filter(|&s| s != 0).map_or(DEFAULT_SIZE, u64::from)
    }

    /// The list of active processes passes through `process`: where it does is the links' offset.
    fn links_through(&self, process: u64) -> Option<u64> {
        let head = self.process_list_head()?;
        self.offset_on_list(head, process, self.process_size())
    }

    fn thread_links_through(&self, process: u64, thread: u64) -> Option<u64> {
        self.offset_on_list(process.checked_add(THREAD_LIST_HEAD)?, thread, self.thread_size())
    }

    /// Follows the list at `head` until a link lies inside `[object, object + size)`.
    fn offset_on_list(&self, head: u64, object: u64, size: u64) -> Option<u64> {
        let mut link = self.core.read_u64(head).ok()?;
        for _ in 0..MAX_LINKS {
            if link == head {
                return None;
            }
            if let Some(offset) = link.checked_sub(object).filter(|&o| o < size && o != 0) {
                return Some(offset);
            }
            link = self.core.read_u64(link).ok()?;
        }
        None
    }

    /// In a triage dump the list cannot be followed, but its shape can be seen: an id (a small
    /// multiple of four) before two kernel pointers, an id the thread's client id repeats.
    fn links_by_shape(&self, process: u64) -> Option<u64> {
        let thread = self.threads().iter().find_map(|t| t.thread_object)?;
        let head = self.process_list_head();
        let kernel = |p: u64| p >> 47 == 0x1_ffff && p.is_multiple_of(8);
        (0x100..self.process_size().saturating_sub(0x18)).step_by(8).find_map(|offset| {
            let at = process.checked_add(offset)?;
            let (id, next, back) = (
                self.core.read_u64(at).ok()?,
                self.core.read_u64(at + 8).ok()?,
                self.core.read_u64(at + 16).ok()?,
            );
            let an_id = id != 0 && id < 1 << 24 && id.is_multiple_of(4);
            // The System process is the list's first.
            let first = id != 4 || head.is_none_or(|h| back == h);
            (an_id && kernel(next) && kernel(back) && first && self.client_id_of(thread, id).is_some())
                .then_some(offset + 8)
        })
    }

    /// `{process id, thread id}` in the thread, the process id being `pid`.
    fn client_id_of(&self, thread: u64, pid: u64) -> Option<u64> {
        (0x200..self.thread_size().saturating_sub(0x10)).step_by(8).find(|&offset| {
            let Some(at) = thread.checked_add(offset) else { return false };
            let id = self.core.read_u64(at + 8).unwrap_or(0);
            self.core.read_u64(at) == Ok(pid) && id != 0 && id < 1 << 24 && id.is_multiple_of(4)
        })
    }

    /// Where process 4 calls itself `System`.
    fn system_name(&self, current: u64, layout: &Layout) -> Option<u64> {
        let (id, links) = (layout.process_id?, layout.process_links?);
        let is_system = |p: u64| p.checked_add(id).is_some_and(|at| self.core.read_u64(at) == Ok(4));
        let system = if is_system(current) {
            current
        } else {
            let first = self.core.read_u64(self.process_list_head()?).ok()?.checked_sub(links)?;
            Some(first).filter(|&p| is_system(p))?
        };
        let (bytes, _) =
            self.core.read_prefix(system, usize::try_from(self.process_size()).unwrap_or(0x1000));
        let start = usize::try_from(links).ok()?;
        let found =
            bytes.get(start..)?.windows(8).position(|w| w == b"System\0\0" || w == b"System\0\x02")?;
        Some(links + found as u64)
    }

    pub(crate) fn process_list_head(&self) -> Option<u64> {
        let stated = super::known(&self.core).active_processes;
        stated.or_else(|| self.kdbg.as_ref().and_then(|k| k.ps_active_process_head()))
    }
}
