//! What an opened file holds, by address.

use dump::{KernelDump, Minidump, UserFull};
use pe::FileImage;
use target::{Machine, Memory, ReadOutcome, Space, Unreadable};

use crate::images::FileBytes;
use crate::live::{self, LivePages};
use crate::paging::{PhysicalMemory, Translator};

/// The kinds of files and how each is addressed.
pub(crate) enum RawMemory {
    Minidump(Minidump),
    UserFull(UserFull),
    /// A kernel with page tables: of a dump, or live.
    Paged(Translator<Pages>),
    /// A triage dump: virtual blocks only.
    Blocks(KernelDump),
    /// A bare image at its base.
    Image {
        file: FileImage<FileBytes>,
        base: u64,
    },
    /// Header facts only.
    Nothing,
}

/// The physical memory of a kernel.
pub(crate) enum Pages {
    Dump(KernelDump),
    Live(LivePages),
}

impl PhysicalMemory for Pages {
    fn read_physical(&self, address: u64, buffer: &mut [u8]) -> ReadOutcome {
        match self {
            Self::Dump(dump) => dump.read_physical(address, buffer),
            Self::Live(live) => live.read_physical(address, buffer),
        }
    }
}

impl RawMemory {
    /// Fills `buffer` from its start. `user_root` is the DirectoryTableBase for user addresses.
    pub(crate) fn read(&self, space: Space, address: u64, user_root: u64, buffer: &mut [u8]) -> ReadOutcome {
        if buffer.is_empty() {
            return ReadOutcome::complete(0);
        }
        let no_space = ReadOutcome::stopped(0, Unreadable::NoSuchSpace);
        match (self, space) {
            (Self::Minidump(dump), Space::Virtual) => dump.read(space, address, buffer),
            (Self::UserFull(dump), Space::Virtual) => dump.read(space, address, buffer),
            (Self::Paged(t), Space::Virtual) => match t.physical() {
                Pages::Dump(_) => read_virtual(t, address, user_root, buffer),
                Pages::Live(live) => live::read_virtual(t, live, address, user_root, buffer),
            },
            (Self::Paged(t), Space::Root(root)) => t.read(root, address, buffer),
            (Self::Paged(t), Space::Physical) => match t.physical() {
                Pages::Dump(dump) => dump.read_physical(address, buffer),
                Pages::Live(live) => live.read_uncached(address, buffer),
            },
            (Self::Blocks(dump), Space::Virtual) => dump.read_virtual(address, buffer),
            (Self::Image { file, base }, Space::Virtual) => read_file_image(file, *base, address, buffer),
            (Self::Nothing, _) => ReadOutcome::stopped(0, Unreadable::NotInDump),
            _ => no_space,
        }
    }

    /// `(start, size)` of each stretch of virtual memory the file holds, ascending; `None` where
    /// page tables decide.
    pub(crate) fn regions(&self) -> Option<Vec<(u64, u64)>> {
        match self {
            Self::Minidump(dump) => Some(dump.memory_regions()),
            Self::UserFull(dump) => Some(dump.memory_regions()),
            Self::Blocks(dump) => Some(dump.triage().map(|t| t.regions()).unwrap_or_default()),
            Self::Image { file, base } => Some(vec![(*base, u64::from(file.pe().size_of_image))]),
            Self::Nothing => Some(Vec::new()),
            Self::Paged(_) => None,
        }
    }
}

/// Kernel addresses through the kernel's tables, user addresses through the selected process's. What
/// the kernel's tables lack may be session space, which only processes of the session map.
fn read_virtual(
    translator: &Translator<Pages>,
    address: u64,
    user_root: u64,
    buffer: &mut [u8],
) -> ReadOutcome {
    let system = translator.system_root();
    if !is_kernel_half(address) && user_root != 0 {
        return translator.read(user_root, address, buffer);
    }
    let outcome = translator.read(system, address, buffer);
    let in_session = outcome.stopped == Some(Unreadable::NotPresent) && user_root & !0xfff != system;
    match address.checked_add(outcome.read as u64) {
        Some(hole) if in_session && user_root != 0 && is_kernel_half(hole) => {
            let more = translator.read(user_root, hole, &mut buffer[outcome.read..]);
            ReadOutcome { read: outcome.read + more.read, stopped: more.stopped }
        }
        _ => outcome,
    }
}

/// Both machines put the kernel into the upper half; tagged ARM64 pointers still have bit 55.
pub(crate) fn is_kernel_half(address: u64) -> bool {
    address >> 55 & 1 == 1
}

fn read_file_image(file: &FileImage<FileBytes>, base: u64, address: u64, buffer: &mut [u8]) -> ReadOutcome {
    let rva = address.checked_sub(base).and_then(|rva| u32::try_from(rva).ok());
    let Some(rva) = rva.filter(|&rva| rva < file.pe().size_of_image) else {
        return ReadOutcome::stopped(0, Unreadable::NotInDump);
    };
    let read = file.read_rva_at(rva, base, buffer);
    if read >= buffer.len() {
        ReadOutcome::complete(buffer.len())
    } else {
        ReadOutcome::stopped(read, Unreadable::NotInDump)
    }
}

/// The machine a DirectoryTableBase is walked as.
pub(crate) fn translator(dump: KernelDump, machine: Machine, root: u64) -> RawMemory {
    RawMemory::Paged(Translator::new(Pages::Dump(dump), machine, root))
}

/// The memory of a live kernel; its root is set at every stop.
pub(crate) fn live_memory(live: LivePages, machine: Machine) -> RawMemory {
    RawMemory::Paged(Translator::new(Pages::Live(live), machine, 0))
}
