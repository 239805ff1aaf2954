//! What the engine holds and where a write would land, from its own state: wrappers hide the command
//! that changes it (`.if (1) {.opendump x}`), so only a reading can tell (spec 20 section 2.8).
//!
//! Measured with DbgEng 10.0.15063: after `.opendump` in a live session everything reads as before but
//! the number of systems, and the switch comes with the next wait; selecting the first system again
//! reads the original's memory.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use target::{Identity, Result, TargetError};

use crate::engine::{DbgEng, EngineResult};
use crate::exit_code::ExitCode;

/// Aims remembered for selecting them again.
const AIMS: usize = 64;

/// What is held, apart from what is selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Holding {
    systems: u32,
    dumps: u32,
    /// Sessions that began or ended, as the engine told its event callbacks.
    events: u64,
}

/// What was read last, and how often it was something else.
#[derive(Debug, Default)]
pub(crate) struct Held {
    seen: Cell<Option<Holding>>,
    changes: Cell<u64>,
    events: Arc<AtomicU64>,
    /// Engine ids of system and process by the aim that named them.
    aims: RefCell<BTreeMap<String, (u32, Option<u32>)>>,
}

impl Held {
    /// `events` is counted up by the event callbacks.
    pub(crate) fn counting(events: Arc<AtomicU64>) -> Self {
        Self { events, ..Self::default() }
    }
}

impl DbgEng {
    pub(crate) fn read_identity(&self) -> Result<Identity> {
        self.alive()?;
        self.refuse_husk()?;
        // SAFETY: no arguments.
        let (systems, dumps) = unsafe {
            (
                self.system.GetNumberSystems().said("count the systems it holds")?,
                self.client.GetNumberDumpFiles().said("count the dumps it holds")?,
            )
        };
        let now = Holding { systems, dumps, events: self.held.events.load(Ordering::Acquire) };
        if self.held.seen.replace(Some(now)).is_some_and(|before| before != now) {
            self.held.changes.set(self.held.changes.get() + 1);
        }
        Ok(Identity { generation: 1 + self.held.changes.get(), aim: self.read_aim()? })
    }

    /// `.kill` and `.restart` leave what reads like the process until the next resume; the system says
    /// that it has ended.
    fn refuse_husk(&self) -> Result<()> {
        if !self.is_live() || self.facts.kind.is_kernel() {
            return Ok(());
        }
        // SAFETY: no arguments.
        let pid = unsafe { self.system.GetCurrentProcessSystemId() };
        match pid.ok().and_then(ExitCode::of).and_then(|process| process.read()) {
            Some(code) => {
                Err(TargetError::Gone(format!("the process ended with exit code {code:#x} ({code})")))
            }
            None => Ok(()),
        }
    }

    /// The selected system, and of a user target the process a write would land in. Never the thread:
    /// that moves at every stop. No process of a kernel target either, for the same reason.
    fn read_aim(&self) -> Result<String> {
        // SAFETY: no arguments.
        let system = unsafe { self.system.GetCurrentSystemId() }.said("read the selected system")?;
        let (mut aim, mut process) = (format!("system {system}"), None);
        if !self.facts.kind.is_kernel() {
            // SAFETY: no arguments.
            let (id, pid, object) = unsafe {
                (
                    self.system.GetCurrentProcessId().said("read the selected process")?,
                    self.system.GetCurrentProcessSystemId().ok(),
                    self.system.GetCurrentProcessDataOffset().ok(),
                )
            };
            process = Some(id);
            let pid = pid.map_or_else(|| "?".to_owned(), |pid| pid.to_string());
            aim.push_str(&format!(", process {pid} ({:#x})", object.unwrap_or(0)));
        }
        let mut aims = self.held.aims.borrow_mut();
        if aims.len() < AIMS || aims.contains_key(&aim) {
            aims.insert(aim.clone(), (system, process));
        }
        Ok(aim)
    }

    pub(crate) fn select_aim(&self, aim: &str) -> Result<()> {
        let known = self.held.aims.borrow().get(aim).copied();
        let (system, process) =
            known.ok_or_else(|| TargetError::failed(format!("the engine was never aimed at {aim} here")))?;
        // SAFETY: integers only.
        unsafe {
            self.system.SetCurrentSystemId(system).said(&format!("select system {system} again"))?;
            if let Some(process) = process {
                self.system.SetCurrentProcessId(process).said("select the process again")?;
            }
        }
        self.forget();
        self.sync_selection();
        Ok(())
    }
}
