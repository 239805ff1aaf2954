//! Page state of a user process.

use dump::minidump::MemoryInfo;
use target::{Region, RegionState};

use super::UserProcess;
use crate::raw::RawMemory;

const MEM_COMMIT: u32 = 0x1000;
const MEM_RESERVE: u32 = 0x2000;
const MEM_FREE: u32 = 0x1_0000;
const PAGE_EXECUTE_ANY: u32 = 0xf0;

impl UserProcess {
    fn infos(&self) -> Option<&[MemoryInfo]> {
        let read = || {
            let mut infos = match &self.core.raw {
                RawMemory::Minidump(dump) => dump.memory_infos(),
                RawMemory::UserFull(dump) => Some(dump.regions()),
                _ => None,
            }?;
            infos.sort_by_key(|i| i.base);
            Some(infos)
        };
        self.regions.get_or_init(read).as_deref()
    }

    fn info_at(&self, address: u64) -> Option<&MemoryInfo> {
        let infos = self.infos()?;
        let after = infos.partition_point(|i| i.base <= address);
        infos.get(after.checked_sub(1)?).filter(|i| address - i.base < i.size)
    }

    /// Whether code may run at `address`, from the recorded page protection.
    pub(crate) fn is_executable(&self, address: u64) -> Option<bool> {
        let info = self.info_at(address)?;
        Some(info.state == MEM_COMMIT && info.protect & PAGE_EXECUTE_ANY != 0)
    }

    pub(crate) fn region(&self, address: u64) -> Region {
        let usage = self.usage(address);
        if let Some(info) = self.info_at(address) {
            let state = match info.state {
                MEM_COMMIT => RegionState::Committed,
                MEM_RESERVE => RegionState::Reserved,
                MEM_FREE => RegionState::Free,
                _ => RegionState::Unknown,
            };
            return Region {
                base: info.base,
                size: info.size,
                allocation_base: (state != RegionState::Free).then_some(info.allocation_base),
                state,
                protect: (state == RegionState::Committed).then_some(info.protect),
                usage,
            };
        }
        // Without an address map only what the dump holds is known to exist.
        let held = self.core.region_at(address);
        let (base, size, state) = match held {
            Some((base, size)) => (base, size, RegionState::Committed),
            // What is known of this page need not hold for the rest of the hole.
            None if usage.is_some() => (address & !0xfff, 0x1000, RegionState::Unknown),
            None => {
                let (base, size) = self.core.hole_around(address);
                (base, size, RegionState::Unknown)
            }
        };
        Region { base, size, allocation_base: None, state, protect: None, usage }
    }

    fn usage(&self, address: u64) -> Option<String> {
        if let Some(module) = self.core.module_at(address) {
            return Some(format!("Image {}", module.name));
        }
        if self.peb == Some(address & !0xfff) {
            return Some("PEB".to_owned());
        }
        for thread in self.threads.iter() {
            let Some(teb) = thread.teb else { continue };
            if (teb..teb.saturating_add(0x2000)).contains(&address) {
                return Some(format!("TEB of thread {:x}", thread.system_id));
            }
        }
        // From the TEBs, or where those are not in the dump, the allocation a thread's sp lies in.
        let bounds = self.stack_bounds(address);
        let allocation = self.info_at(address).map(|i| i.allocation_base);
        let owner = self.threads.iter().find(|t| {
            let context = self.thread_context(t.system_id, target::View::Native).flatten();
            let Some(sp) = context.map(|c| c.sp()) else { return false };
            bounds.is_some_and(|(low, high)| (low..high).contains(&sp))
                || (allocation.is_some() && self.info_at(sp).map(|i| i.allocation_base) == allocation)
        });
        match (owner, bounds) {
            (Some(thread), _) => Some(format!("Stack of thread {:x}", thread.system_id)),
            (None, Some(_)) => Some("Stack".to_owned()),
            (None, None) => None,
        }
    }
}
