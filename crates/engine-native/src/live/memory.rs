//! Memory of a live kernel: what was read stays until the target moves or is written to.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use target::{ReadOutcome, Unreadable};

use super::LiveKernel;
use crate::paging::{PAGE_SIZE, PhysicalMemory, Translator};
use crate::raw::{Pages, is_kernel_half};

/// Bytes kept together. A link of a serial line's speed makes more at once cost more than it saves.
const BLOCK: u64 = 0x200;
/// Longest request a page is read with (spec 71 section 10).
const CHUNK: u64 = 0x800;
/// Blocks kept of each space: 8 MiB.
const MOST_BLOCKS: usize = 0x4000;

/// The memory of a live kernel, with its cache.
pub(crate) struct LivePages {
    pub(crate) kernel: Rc<dyn LiveKernel>,
    virtual_blocks: RefCell<HashMap<u64, Box<[u8]>>>,
    table_blocks: RefCell<HashMap<u64, Box<[u8]>>>,
    /// Bytes that break instructions of ours stand over.
    masks: RefCell<Vec<(u64, Vec<u8>)>>,
}

impl LivePages {
    pub(crate) fn new(kernel: Rc<dyn LiveKernel>) -> Self {
        Self {
            kernel,
            virtual_blocks: RefCell::default(),
            table_blocks: RefCell::default(),
            masks: RefCell::default(),
        }
    }

    /// What was read is no longer so.
    pub(crate) fn forget(&self) {
        self.virtual_blocks.borrow_mut().clear();
        self.table_blocks.borrow_mut().clear();
    }

    /// Sets what is shown in place of break instructions that could not be taken out.
    pub(crate) fn mask(&self, masks: Vec<(u64, Vec<u8>)>) {
        *self.masks.borrow_mut() = masks;
    }

    /// Virtual memory as the stopped processor sees it.
    pub(crate) fn read_current(&self, address: u64, buffer: &mut [u8]) -> ReadOutcome {
        let read =
            self.cached(&self.virtual_blocks, address, buffer, &|at, out| self.kernel.read_virtual(at, out));
        for (place, original) in self.masks.borrow().iter() {
            for (offset, byte) in original.iter().enumerate() {
                let at = place.wrapping_add(offset as u64).wrapping_sub(address);
                if let Some(shown) = usize::try_from(at).ok().filter(|&at| at < read.read) {
                    buffer[shown] = *byte;
                }
            }
        }
        read
    }

    /// Physical memory as it is: a device's registers are read once, and only those asked for.
    pub(crate) fn read_uncached(&self, address: u64, buffer: &mut [u8]) -> ReadOutcome {
        let mut done = 0;
        while done < buffer.len() {
            let Some(at) = address.checked_add(done as u64) else {
                return ReadOutcome::stopped(done, Unreadable::NonCanonical);
            };
            let count = within_page(at, CHUNK, buffer.len() - done);
            let outcome = self.kernel.read_physical(at, &mut buffer[done..done + count]);
            done += outcome.read.min(count);
            if let Some(why) = outcome.stopped {
                return ReadOutcome::stopped(done, why);
            }
        }
        ReadOutcome::complete(done)
    }

    fn cached(
        &self,
        blocks: &RefCell<HashMap<u64, Box<[u8]>>>,
        address: u64,
        buffer: &mut [u8],
        read: &dyn Fn(u64, &mut [u8]) -> ReadOutcome,
    ) -> ReadOutcome {
        let mut done = 0;
        while done < buffer.len() {
            let Some(at) = address.checked_add(done as u64) else {
                return ReadOutcome::stopped(done, Unreadable::NonCanonical);
            };
            let block = at - at % BLOCK;
            let known = blocks.borrow().get(&block).map(|bytes| {
                let from = usize::try_from(at - block).unwrap_or(0);
                let count = (bytes.len() - from).min(buffer.len() - done);
                buffer[done..done + count].copy_from_slice(&bytes[from..from + count]);
                count
            });
            if let Some(count) = known {
                done += count;
                continue;
            }
            match fetch(blocks, block, buffer.len() - done, read) {
                Fetched::Block => continue,
                Fetched::Nothing(why) if at == block => return ReadOutcome::stopped(done, why),
                Fetched::Nothing(_) | Fetched::Less => {}
            }
            // Not whole blocks: exactly what was asked for, and no more than that is known.
            let count = within_page(at, BLOCK, buffer.len() - done);
            let outcome = read(at, &mut buffer[done..done + count]);
            done += outcome.read.min(count);
            if let Some(why) = outcome.stopped {
                return ReadOutcome::stopped(done, why);
            }
            if outcome.read < count {
                return ReadOutcome::stopped(done, Unreadable::Refused);
            }
        }
        ReadOutcome::complete(done)
    }
}

/// What a request for whole blocks came to.
enum Fetched {
    /// The first is there now.
    Block,
    /// Not one byte of it.
    Nothing(Unreadable),
    Less,
}

/// Reads the block at `block` and, of the same page, as many after it as `wanted` bytes need.
fn fetch(
    blocks: &RefCell<HashMap<u64, Box<[u8]>>>,
    block: u64,
    wanted: usize,
    read: &dyn Fn(u64, &mut [u8]) -> ReadOutcome,
) -> Fetched {
    let whole = (wanted as u64).div_ceil(BLOCK).clamp(1, CHUNK / BLOCK) * BLOCK;
    let length = within_page(block, whole, usize::MAX);
    let mut bytes = vec![0; length];
    let outcome = read(block, &mut bytes);
    let mut kept = blocks.borrow_mut();
    if kept.len() >= MOST_BLOCKS {
        kept.clear();
    }
    let size = usize::try_from(BLOCK).unwrap_or(usize::MAX);
    let complete = outcome.read.min(length) / size;
    for (index, piece) in bytes.chunks_exact(size).take(complete).enumerate() {
        kept.insert(block + BLOCK * index as u64, piece.into());
    }
    match outcome.stopped {
        _ if complete > 0 => Fetched::Block,
        Some(why) if outcome.read == 0 => Fetched::Nothing(why),
        _ => Fetched::Less,
    }
}

/// At most `most` bytes from `at`, not past its page.
fn within_page(at: u64, most: u64, wanted: usize) -> usize {
    let left = PAGE_SIZE - at % PAGE_SIZE;
    usize::try_from(left.min(most)).unwrap_or(usize::MAX).min(wanted)
}

impl PhysicalMemory for LivePages {
    /// Page tables: read often and together.
    fn read_physical(&self, address: u64, buffer: &mut [u8]) -> ReadOutcome {
        self.cached(&self.table_blocks, address, buffer, &|at, out| self.kernel.read_physical(at, out))
    }
}

/// Kernel addresses, and user addresses without a process chosen, as the stopped processor sees them;
/// those of another process through its page tables.
pub(crate) fn read_virtual(
    translator: &Translator<Pages>,
    live: &LivePages,
    address: u64,
    user_root: u64,
    buffer: &mut [u8],
) -> ReadOutcome {
    if is_kernel_half(address) || user_root == 0 {
        return live.read_current(address, buffer);
    }
    translator.read(user_root, address, buffer)
}
