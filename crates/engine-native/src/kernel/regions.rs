//! Page state of a kernel target.

use target::{Region, RegionState, Unreadable};

use super::KernelState;
use crate::native_target::unknown_page;
use crate::raw::RawMemory;

const PAGE_READONLY: u32 = 0x02;
const PAGE_READWRITE: u32 = 0x04;
const PAGE_EXECUTE_READ: u32 = 0x20;
const PAGE_EXECUTE_READWRITE: u32 = 0x40;

impl KernelState {
    pub(crate) fn region(&self, address: u64) -> Region {
        let mut region = match &self.core.raw {
            RawMemory::Paged(translator) => {
                let user = self.core.user_root();
                let root = if address >> 63 == 0 && user != 0 { user } else { translator.system_root() };
                match translator.translate(root, address) {
                    Ok(mapping) => Region {
                        base: address & !(mapping.page_size - 1),
                        size: mapping.page_size,
                        allocation_base: None,
                        state: RegionState::Valid,
                        protect: (!mapping.transition).then_some(
                            match (mapping.executable, mapping.writable) {
                                (false, false) => PAGE_READONLY,
                                (false, true) => PAGE_READWRITE,
                                (true, false) => PAGE_EXECUTE_READ,
                                (true, true) => PAGE_EXECUTE_READWRITE,
                            },
                        ),
                        usage: None,
                    },
                    Err(Unreadable::PagedOut { .. } | Unreadable::DemandZero) => {
                        Region { state: RegionState::Committed, ..unknown_page(address) }
                    }
                    Err(_) => unknown_page(address),
                }
            }
            _ => match self.core.region_at(address) {
                Some((base, size)) => {
                    Region { base, size, state: RegionState::Valid, ..unknown_page(address) }
                }
                None => {
                    let (base, size) = self.core.hole_around(address);
                    Region { base, size, ..unknown_page(address) }
                }
            },
        };
        region.usage = self.usage(address);
        region
    }

    fn usage(&self, address: u64) -> Option<String> {
        if let Some(module) = self.core.module_at(address) {
            return Some(format!("Image {}", module.name));
        }
        let threads = self.threads();
        let thread = threads.iter().find(|t| {
            let bounds = t.thread_object.and_then(|o| self.thread_stack(o));
            bounds.is_some_and(|(low, high)| (low..high).contains(&address))
        })?;
        Some(format!("Stack of the thread on processor {}", thread.system_id))
    }
}
