//! The worker's memory bound: a hostile dump costs its session, not the machine.
//!
//! The bound is on the heap, in bytes asked for. Mapped dumps and PDBs are not counted: they are
//! the file's own pages and the system can drop them. What runs into it ends the worker, which says
//! so on stderr; the supervisor reads that and tells the caller.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Without a bound of its own a worker may hold this much; with what [`limit_data`] adds it stays
/// within 1 GiB.
const DEFAULT_MIB: usize = 768;
/// Overrides it, in MiB.
const VARIABLE: &str = "WINDBG_MCP_WORKER_MEMORY_MB";

static HELD: AtomicUsize = AtomicUsize::new(0);
static BOUND: AtomicUsize = AtomicUsize::new(usize::MAX);

/// The system's allocator, counting; refuses past the bound. Install it in the binary with
/// `#[global_allocator]`; until the worker role sets a bound it only counts.
pub struct BoundedAllocator;

impl BoundedAllocator {
    /// Bytes held now.
    #[must_use]
    pub fn held() -> usize {
        HELD.load(Ordering::Relaxed)
    }

    fn admit(size: usize) -> bool {
        let before = HELD.fetch_add(size, Ordering::Relaxed);
        if before.saturating_add(size) <= BOUND.load(Ordering::Relaxed) {
            return true;
        }
        HELD.fetch_sub(size, Ordering::Relaxed);
        false
    }
}

// SAFETY: every call is the system allocator's with the same arguments; a refusal is the null that
// GlobalAlloc's contract allows.
unsafe impl GlobalAlloc for BoundedAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !Self::admit(layout.size()) {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's promise about `layout` is passed on.
        let block = unsafe { System.alloc(layout) };
        if block.is_null() {
            HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        }
        block
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if !Self::admit(layout.size()) {
            return std::ptr::null_mut();
        }
        // SAFETY: as above.
        let block = unsafe { System.alloc_zeroed(layout) };
        if block.is_null() {
            HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        }
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: `block` came from the system allocator with `layout`.
        unsafe { System.dealloc(block, layout) };
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        let growth = new_size.saturating_sub(layout.size());
        if growth > 0 && !Self::admit(growth) {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's promises are passed on.
        let moved = unsafe { System.realloc(block, layout, new_size) };
        if moved.is_null() {
            HELD.fetch_sub(growth, Ordering::Relaxed);
        } else {
            HELD.fetch_sub(layout.size().saturating_sub(new_size), Ordering::Relaxed);
        }
        moved
    }
}

/// Sets this process's bound from the variable or the default.
pub(crate) fn bound() {
    let mib = std::env::var(VARIABLE).map_or(DEFAULT_MIB, |value| {
        let asked = value.trim().parse().ok().filter(|mib| (16..=1 << 20).contains(mib));
        asked.unwrap_or_else(|| {
            tracing::warn!("{VARIABLE} is {value:?}, not 16 to 1048576; the bound is {DEFAULT_MIB} MiB");
            DEFAULT_MIB
        })
    });
    let bytes = mib.saturating_mul(1 << 20);
    BOUND.store(bytes, Ordering::Relaxed);
    limit_data(bytes);
}

/// The system's own bound on private writable memory, a backstop for what the allocator does not
/// see (stacks, a C library's heap) and for a binary that did not install it. Linux counts
/// read-only file mappings apart; a quarter is left for fragmentation and the engine's stack.
#[cfg(target_os = "linux")]
fn limit_data(bytes: usize) {
    let soft = bytes.saturating_add(bytes / 4).saturating_add(crate::engine::STACK) as libc::rlim_t;
    let mut now = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `now` is a valid rlimit for both calls.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_DATA, &raw mut now) != 0 {
            return;
        }
        now.rlim_cur = soft.min(now.rlim_max);
        if libc::setrlimit(libc::RLIMIT_DATA, &raw const now) != 0 {
            tracing::warn!("no bound on this worker's memory from the system");
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn limit_data(_: usize) {}
