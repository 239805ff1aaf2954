//! Breakpoints of a live kernel. Their break instructions are in its memory only while it runs: what
//! is read of a stopped target is its own, and a session that ends leaves nothing behind.

use target::{
    Breakpoints, Halt, Machine, MemoryExt, Result, Target, TargetError,
    capability::{Access, Breakpoint},
};

use super::{Live, SLOTS, Slot};
use crate::kernel::live_pages;
use crate::native_target::NativeTarget;

/// Break instructions a kernel keeps for its debugger (`BREAKPOINT_TABLE_SIZE`).
const MOST_PLACES: usize = 32;
/// Longest an expression may take to look up.
const LOOK_UP: std::time::Duration = std::time::Duration::from_secs(20);

/// One breakpoint and what became of it.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) breakpoint: Breakpoint,
    arrivals: u32,
    /// Its debug address register.
    pub(crate) slot: Option<usize>,
}

/// A break instruction in the target's memory.
#[derive(Clone, Debug)]
pub(crate) struct Inserted {
    pub(crate) address: u64,
    handle: u32,
    original: Vec<u8>,
}

/// All breakpoints of a session.
#[derive(Debug, Default)]
pub(crate) struct Table {
    pub(crate) entries: Vec<Entry>,
    next: u32,
    pub(crate) inserted: Vec<Inserted>,
    /// Stopped once, as they were to.
    pub(crate) forgotten: Vec<u32>,
}

/// Bytes of a break instruction.
pub(crate) fn break_bytes(machine: Machine) -> &'static [u8] {
    if machine == Machine::Arm64 { &[0x00, 0x00, 0x3e, 0xd4] } else { &[0xcc] }
}

impl Table {
    pub(crate) fn shown(&self, id: u32) -> Option<Breakpoint> {
        self.entries.iter().find(|e| e.breakpoint.id == id).map(Entry::shown)
    }

    /// Enabled code breakpoints' addresses, each once.
    pub(crate) fn places(&self) -> Vec<u64> {
        let code = self.entries.iter().filter(|e| e.breakpoint.enabled && e.breakpoint.watch.is_none());
        let mut places: Vec<u64> = code.filter_map(|e| e.breakpoint.address).collect();
        places.sort_unstable();
        places.dedup();
        places
    }

    pub(crate) fn slots(&self) -> [Option<Slot>; SLOTS] {
        let mut slots = [None; SLOTS];
        for entry in &self.entries {
            if let (Some(index), Some((access, size)), Some(address)) =
                (entry.slot, entry.breakpoint.watch, entry.breakpoint.address)
                && let Some(slot) = slots.get_mut(index)
            {
                *slot = Some(Slot { address, access, size });
            }
        }
        slots
    }

    /// It stopped the target: one that was to stop once is to go.
    pub(crate) fn used(&mut self, id: u32) {
        let once = |e: &&Entry| e.breakpoint.id == id && e.breakpoint.one_shot;
        if self.entries.iter().any(|e| once(&e)) {
            self.forgotten.push(id);
        }
    }

    /// The execution reached what `matches`: the breakpoint that stops there. Of several the oldest.
    pub(crate) fn arrived(&mut self, matches: impl Fn(&Entry) -> bool) -> Option<u32> {
        let mut stops = None;
        for entry in self.entries.iter_mut().filter(|e| e.breakpoint.enabled && matches(e)) {
            entry.arrivals = entry.arrivals.saturating_add(1);
            if entry.arrivals >= entry.breakpoint.pass_count.max(1) {
                stops = stops.or(Some(entry.breakpoint.id));
            }
        }
        stops
    }
}

impl Entry {
    fn shown(&self) -> Breakpoint {
        let left = self.breakpoint.pass_count.max(1).saturating_sub(self.arrivals);
        Breakpoint {
            passes_remaining: Some(left.max(1)),
            hits: Some(self.arrivals),
            ..self.breakpoint.clone()
        }
    }
}

impl NativeTarget {
    pub(crate) fn live(&self) -> Result<&Live> {
        self.live.as_ref().ok_or_else(|| {
            TargetError::unsupported(
                "wrong_target_kind",
                "only a live target runs, is written and has breakpoints",
            )
        })
    }

    /// Puts break instructions at `places`; all or none.
    pub(crate) fn insert_all(&self, live: &Live, places: &[u64]) -> Result<()> {
        for &address in places {
            if live.table.borrow().inserted.iter().any(|i| i.address == address) {
                continue;
            }
            if let Err(error) = self.insert_one(live, address) {
                self.take_out_all(live);
                return Err(TargetError::failed_because(
                    "breakpoint_not_inserted",
                    format!(
                        "the target did not move: no breakpoint can be inserted at {address:#018x} ({error})"
                    ),
                ));
            }
        }
        Ok(())
    }

    fn insert_one(&self, live: &Live, address: u64) -> Result<()> {
        let length = break_bytes(self.core.machine).len();
        let (original, _) = self.core.read_prefix(address, length);
        let handle = live.kernel.insert(address)?;
        live.table.borrow_mut().inserted.push(Inserted { address, handle, original });
        Ok(())
    }

    /// Takes all out. One that stays is hidden from reads and tried again at the next stop.
    pub(crate) fn take_out_all(&self, live: &Live) -> Vec<u64> {
        let inserted = std::mem::take(&mut live.table.borrow_mut().inserted);
        let mut stuck = Vec::new();
        for place in inserted {
            if let Err(error) = live.kernel.take_out(place.handle) {
                tracing::warn!(address = place.address, %error, "a breakpoint could not be taken out");
                stuck.push(place);
            }
        }
        if let Some(pages) = live_pages(&self.core) {
            pages.mask(stuck.iter().map(|place| (place.address, place.original.clone())).collect());
        }
        let addresses = stuck.iter().map(|place| place.address).collect();
        live.table.borrow_mut().inserted = stuck;
        addresses
    }

    /// Whether one could be inserted; leaves none.
    fn try_insert(&self, live: &Live, address: u64) -> Result<()> {
        let table = live.table.borrow();
        if !table.places().contains(&address) && table.places().len() >= MOST_PLACES {
            return Err(TargetError::failed_because(
                "no_breakpoint_slot",
                format!(
                    "a kernel keeps {MOST_PLACES} breakpoints for its debugger, and all are in use; clear one first"
                ),
            ));
        }
        drop(table);
        let handle = live.kernel.insert(address).map_err(|error| {
            TargetError::failed_because(
                "breakpoint_not_inserted",
                format!("the target inserts no breakpoint at {address:#018x}: {error}"),
            )
        })?;
        live.kernel.take_out(handle)
    }

    /// Looks again for the places of breakpoints whose module was not loaded.
    pub(crate) fn resolve_deferred(&self, live: &Live) {
        let waiting: Vec<(u32, String)> = live
            .table
            .borrow()
            .entries
            .iter()
            .filter(|e| e.breakpoint.address.is_none())
            .filter_map(|e| Some((e.breakpoint.id, e.breakpoint.expression.clone()?)))
            .collect();
        for (id, expression) in waiting {
            let Ok(address) = self.evaluate(&expression, &Halt::within(LOOK_UP)) else { continue };
            if self.core.read_u8(address).is_err() {
                continue;
            }
            let mut table = live.table.borrow_mut();
            let entry = table.entries.iter_mut().find(|e| e.breakpoint.id == id);
            if let Some(entry) = entry.filter(|e| e.breakpoint.watch.is_none()) {
                entry.breakpoint.address = Some(address);
            }
        }
    }

    fn refuse(&self, live: &Live, wanted: &Breakpoint) -> Result<()> {
        live.stopped()?;
        if wanted.command.is_some() {
            return Err(TargetError::unsupported(
                "needs_engine",
                "the native engine runs no commands at breakpoints; engine dbgeng does",
            ));
        }
        if wanted.watch.is_some() && self.core.machine != Machine::X64 {
            return Err(TargetError::unsupported(
                "foreign_architecture",
                "the native engine sets hardware breakpoints on x64 only; engine dbgeng may set this one",
            ));
        }
        if wanted.watch.is_some() && wanted.address.is_none() {
            return Err(TargetError::failed_because(
                "module_not_loaded",
                "a hardware breakpoint needs an address now; set it once its module is loaded",
            ));
        }
        Ok(())
    }

    fn free_slot(&self, live: &Live) -> Result<usize> {
        let (slots, taken) = (live.table.borrow().slots(), live.kernel.taken_slots());
        (0..SLOTS).find(|&n| slots[n].is_none() && !taken[n]).ok_or_else(|| {
            let message = "the processor's 4 hardware slots are in use; clear a breakpoint of them first";
            TargetError::failed_because("no_hardware_slot", message)
        })
    }
}

impl Breakpoints for NativeTarget {
    fn add(&self, wanted: &Breakpoint) -> Result<Breakpoint> {
        let live = self.live()?;
        self.refuse(live, wanted)?;
        let address = match (wanted.address, &wanted.expression) {
            (Some(address), _) => Some(address),
            (None, Some(expression)) => self.evaluate(expression, &Halt::within(LOOK_UP)).ok(),
            (None, None) => None,
        };
        let slot = match (wanted.watch, address) {
            (Some((access, size)), Some(address)) => {
                check_watch(access, size, address)?;
                Some(self.free_slot(live)?)
            }
            (None, Some(address)) => {
                self.try_insert(live, address)?;
                None
            }
            _ => None,
        };
        let mut table = live.table.borrow_mut();
        let id = table.next;
        table.next = table.next.wrapping_add(1);
        let breakpoint = Breakpoint { id, address, ..wanted.clone() };
        table.entries.push(Entry { breakpoint, arrivals: 0, slot });
        drop(table);
        if slot.is_some() {
            self.write_slots(live)
                .inspect_err(|_| live.table.borrow_mut().entries.retain(|e| e.breakpoint.id != id))?;
        }
        let missing = || TargetError::failed("the breakpoint is gone again");
        live.table.borrow().shown(id).ok_or_else(missing)
    }

    fn remove(&self, id: u32) -> Result<()> {
        let live = self.live()?;
        live.stopped()?;
        let mut table = live.table.borrow_mut();
        let at = table.entries.iter().position(|e| e.breakpoint.id == id);
        let at = at.ok_or_else(|| TargetError::InvalidArgument(format!("there is no breakpoint {id}")))?;
        let gone = table.entries.remove(at);
        drop(table);
        if gone.slot.is_some() {
            self.write_slots(live)?;
        }
        let stuck = self.take_out_all(live);
        match gone.breakpoint.address.filter(|address| stuck.contains(address)) {
            Some(address) => Err(TargetError::failed(format!(
                "breakpoint {id} is no longer kept, but the target did not take its break instruction at \
                 {address:#018x} out; it is tried again at every stop"
            ))),
            None => Ok(()),
        }
    }

    fn list(&self) -> Result<Vec<Breakpoint>> {
        Ok(self.live()?.table.borrow().entries.iter().map(Entry::shown).collect())
    }
}

impl NativeTarget {
    /// Tells every processor what its hardware breakpoints are now.
    pub(crate) fn write_slots(&self, live: &Live) -> Result<()> {
        let slots = live.table.borrow().slots();
        live.kernel.set_slots(&slots)
    }

    /// Whether something of ours stops at `ip` before its instruction ran: a break instruction to be
    /// inserted there, or an armed execute slot.
    pub(crate) fn stops_at(&self, live: &Live, ip: u64) -> bool {
        let table = live.table.borrow();
        let executes = |e: &Entry| {
            e.breakpoint.enabled
                && e.breakpoint.address == Some(ip)
                && matches!(e.breakpoint.watch, None | Some((Access::Execute, _)))
        };
        table.entries.iter().any(executes)
    }
}

fn check_watch(access: Access, size: u8, address: u64) -> Result<()> {
    let fits = match access {
        Access::Execute => size == 1,
        _ => matches!(size, 1 | 2 | 4 | 8),
    };
    if fits && address.is_multiple_of(u64::from(size)) {
        return Ok(());
    }
    Err(TargetError::InvalidArgument(format!(
        "no processor watches {size} bytes at {address:#018x}: 1, 2, 4 or 8 at a multiple of it, 1 of code"
    )))
}
