//! A kernel's memory: what debuggers look for, and nothing else.

use target::{Context, Machine, reg};

use crate::bytes::{low16, put, put16, put32, put64, utf16};
use crate::image::{Image, stand_in_kernel};
use crate::layout::Layout;
use crate::paging::{AddressSpace, Mapping, PhysicalMemory};
use crate::stack::{BuiltStack, FrameSpec, StackBuilder};

/// A process of the forge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessHandle(usize);

/// What a thread is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadState {
    /// On a processor; its context is the processor's.
    Running { processor: u32 },
    /// Switched out: its stack begins with a `KSWITCH_FRAME` (x64).
    Waiting { reason: u8 },
}

#[derive(Clone, Debug)]
pub(crate) struct Process {
    pub(crate) object: u64,
    pub(crate) space: AddressSpace,
    threads: Vec<u64>,
    peb: u64,
    user_modules: Vec<u64>,
    next_user: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Processor {
    pub(crate) number: u32,
    pub(crate) pcr: u64,
    pub(crate) prcb: u64,
    pub(crate) thread: u64,
    pub(crate) process: usize,
    pub(crate) context: Context,
    /// Where the crash context was stored.
    pub(crate) saved_context: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Driver {
    pub(crate) base: u64,
    pub(crate) size: u32,
    pub(crate) entry_point: u32,
    pub(crate) checksum: u32,
    pub(crate) timestamp: u32,
    pub(crate) path: String,
    pub(crate) exception: (u32, u32),
    pub(crate) entry: u64,
}

/// Builds a kernel.
#[derive(Clone, Debug)]
pub struct KernelForge {
    pub machine: Machine,
    pub layout: Layout,
    pub memory: PhysicalMemory,
    /// The system address space, whose kernel half all processes share.
    pub system: AddressSpace,
    pub kernel_base: u64,
    pub kernel: Image,
    /// As written into the header; triage dumps add 0x10000000 where Windows does.
    pub bug_check: (u32, [u64; 4]),
    /// FILETIME and 100 ns units.
    pub system_time: u64,
    pub up_time: u64,
    pub comment: String,
    /// Keys `KiWaitNever` and `KiWaitAlways`: the debugger data block is written encoded.
    pub encode: Option<(u64, u64)>,
    /// Secondary data behind the memory: tag and bytes.
    pub blobs: Vec<([u8; 16], Vec<u8>)>,
    /// Extra `(address, size)` blocks of a triage dump.
    pub triage_blocks: Vec<(u64, u32)>,
    /// Frames of zeros that are in the dump besides those that were written: file sizes for free.
    pub zero_frames: std::ops::Range<u64>,
    /// Base of the page-table self-map in the debugger data; 0 for none.
    pub pte_base: u64,
    pub(crate) drivers: Vec<Driver>,
    pub(crate) unloaded: Vec<(String, u64, u64)>,
    pub(crate) processes: Vec<Process>,
    pub(crate) processors: Vec<Processor>,
    pool: u64,
    next_stack: u64,
}

const KERNEL: u64 = 0xffff_f803_2100_0000;
const POOL: u64 = 0xffff_a580_0000_0000;
const STACKS: u64 = 0xffff_b800_0001_0000;
const STACK_SIZE: u32 = 0x6000;
const STACK_STEP: u64 = 0x1_0000;
const PCRS: u64 = 0xffff_f803_2000_0000;
const PCR_STEP: u64 = 0x2_0000;
const USER_IMAGES: u64 = 0x7ff6_0000_0000;
const PEBS: u64 = 0x5f_0000_0000;
const MAX_PROCESSORS: u32 = 64;

impl KernelForge {
    /// A kernel with the stand-in nt, the System process (pid 4) and no processor yet.
    #[must_use]
    pub fn new(machine: Machine) -> Self {
        Self::with_kernel(machine, stand_in_kernel(machine), KERNEL)
    }

    /// A kernel around another nt image. Its `symbols` must name the variables that the stand-in has.
    #[must_use]
    pub fn with_kernel(machine: Machine, kernel: Image, base: u64) -> Self {
        Self::with_levels(machine, kernel, base, 4)
    }

    /// An x64 kernel with five levels of page tables (CR4.LA57 set).
    #[must_use]
    pub fn with_five_levels() -> Self {
        Self::with_levels(Machine::X64, stand_in_kernel(Machine::X64), KERNEL, 5)
    }

    fn with_levels(machine: Machine, kernel: Image, base: u64, levels: u32) -> Self {
        let mut memory = PhysicalMemory::new(0x200);
        let system = AddressSpace::new(&mut memory, machine, levels);
        let mut forge = Self {
            machine,
            layout: Layout::of(machine),
            memory,
            system,
            kernel_base: base,
            kernel: kernel.clone(),
            bug_check: (0, [0; 4]),
            system_time: 0x01d7_07f2_3dbb_3399,
            up_time: 600 * 10_000_000,
            comment: String::new(),
            encode: None,
            blobs: Vec::new(),
            triage_blocks: Vec::new(),
            zero_frames: 0..0,
            pte_base: 0xffff_fd80_0000_0000,
            drivers: Vec::new(),
            unloaded: Vec::new(),
            processes: Vec::new(),
            processors: Vec::new(),
            pool: POOL,
            next_stack: STACKS,
        };
        forge.add_driver(&kernel, base, r"\SystemRoot\system32\ntoskrnl.exe");
        forge.add_process("System", 4);
        forge
    }

    /// Address of one of nt's variables or functions.
    #[must_use]
    pub fn symbol(&self, name: &str) -> u64 {
        self.kernel_base + u64::from(self.kernel.rva(name))
    }

    /// Writes kernel memory, mapping pages as needed.
    pub fn write(&mut self, address: u64, bytes: &[u8]) {
        self.system.write(&mut self.memory, address, bytes);
    }
    pub fn write_u64(&mut self, address: u64, value: u64) {
        self.write(address, &value.to_le_bytes());
    }
    #[must_use]
    pub fn read(&self, address: u64, length: usize) -> Vec<u8> {
        self.system.read(&self.memory, address, length)
    }
    /// Maps a kernel page in any way; its first frame, if it has one.
    pub fn map(&mut self, address: u64, how: Mapping) -> Option<u64> {
        self.system.map(&mut self.memory, address, how)
    }
    /// Zeroed kernel memory, 16-aligned.
    pub fn allocate(&mut self, size: u64) -> u64 {
        let address = self.pool;
        self.pool += size.next_multiple_of(16);
        let zeros = vec![0; usize::try_from(size).unwrap_or(0)];
        self.write(address, &zeros);
        address
    }

    /// A `UNICODE_STRING` and its characters.
    pub fn unicode_string(&mut self, text: &str) -> Vec<u8> {
        let characters = utf16(text);
        let buffer = self.allocate(characters.len() as u64 + 2);
        self.write(buffer, &characters);
        unicode_header(characters.len(), buffer)
    }

    /// Maps an image and puts it on the loaded module list.
    pub fn add_driver(&mut self, image: &Image, base: u64, path: &str) {
        self.write(base, &image.mapped_at(base));
        let entry = self.allocate(0xa0);
        let driver = Driver {
            base,
            size: image.size,
            entry_point: image.entry_point,
            checksum: image.checksum,
            timestamp: image.timestamp,
            path: path.into(),
            exception: image.exception_directory,
            entry,
        };
        let name = target::base_name(path).to_owned();
        let (full, short) = (self.unicode_string(path), self.unicode_string(&name));
        let record = loader_entry(&driver, &full, &short);
        self.write(entry + 0x10, &record[0x10..]);
        self.drivers.push(driver);
        let ring: Vec<u64> = self.drivers.iter().map(|d| d.entry).collect();
        let head = self.symbol("PsLoadedModuleList");
        self.link(head, &ring);
    }

    pub fn add_unloaded_driver(&mut self, name: &str, start: u64, end: u64) {
        self.unloaded.push((name.into(), start, end));
    }

    /// Links list entries behind a head.
    fn link(&mut self, head: u64, entries: &[u64]) {
        let ring: Vec<u64> = std::iter::once(head).chain(entries.iter().copied()).collect();
        for (index, &entry) in ring.iter().enumerate() {
            let next = ring[(index + 1) % ring.len()];
            let previous = ring[(index + ring.len() - 1) % ring.len()];
            self.write_u64(entry, next);
            self.write_u64(entry + 8, previous);
        }
    }

    /// A process with its own address space; all but System have a PEB.
    pub fn add_process(&mut self, name: &str, pid: u64) -> ProcessHandle {
        let space = if self.processes.is_empty() {
            self.system
        } else {
            AddressSpace::new(&mut self.memory, self.machine, self.system.levels)
        };
        let object = self.allocate(u64::from(self.layout.eprocess_size));
        let layout = self.layout.clone();
        let at = |offset: u16| object + u64::from(offset);
        let peb = if self.processes.is_empty() { 0 } else { PEBS + 0x1000 * self.processes.len() as u64 };
        self.write(object, &[3]);
        // The low bits of CR3 are flags, as on real machines.
        let flags = if self.machine == Machine::X64 { 2 } else { 0 };
        self.write_u64(at(layout.kprocess_directory_table_base), space.root | flags);
        self.write_u64(at(layout.eprocess_unique_process_id), pid);
        self.write_u64(at(layout.eprocess_parent), if pid == 4 { 0 } else { 4 });
        self.write_u64(at(layout.eprocess_peb), peb);
        let short: Vec<u8> = name.bytes().take(14).chain([0]).collect();
        self.write(at(layout.eprocess_image_file_name), &short);
        self.processes.push(Process {
            object,
            space,
            threads: Vec::new(),
            peb,
            user_modules: Vec::new(),
            next_user: USER_IMAGES,
        });
        let handle = ProcessHandle(self.processes.len() - 1);
        self.link(at(layout.kprocess_thread_list_head), &[]);
        self.link(at(layout.eprocess_thread_list_head), &[]);
        let links = u64::from(layout.eprocess_active_process_links);
        let entries: Vec<u64> = self.processes.iter().map(|p| p.object + links).collect();
        let head = self.symbol("PsActiveProcessHead");
        self.link(head, &entries);
        if peb != 0 {
            self.write_user(handle, peb, &[0; 0x800]);
            self.link_user_modules(handle);
        } else {
            let pointer = self.symbol("PsInitialSystemProcess");
            self.write_u64(pointer, object);
        }
        handle
    }

    #[must_use]
    pub fn system_process(&self) -> ProcessHandle {
        ProcessHandle(0)
    }
    /// EPROCESS.
    #[must_use]
    pub fn process_object(&self, process: ProcessHandle) -> u64 {
        self.processes[process.0].object
    }
    #[must_use]
    pub fn process_space(&self, process: ProcessHandle) -> AddressSpace {
        self.processes[process.0].space
    }
    /// Writes a process's user memory.
    pub fn write_user(&mut self, process: ProcessHandle, address: u64, bytes: &[u8]) {
        let space = self.processes[process.0].space;
        space.write(&mut self.memory, address, bytes);
    }

    /// Maps an image into a process and puts it on its loader lists; its base.
    pub fn add_user_module(&mut self, process: ProcessHandle, image: &Image, path: &str) -> u64 {
        let base = self.processes[process.0].next_user;
        self.processes[process.0].next_user += u64::from(image.size).next_multiple_of(0x1_0000);
        self.write_user(process, base, &image.mapped_at(base));
        let slot = self.processes[process.0].user_modules.len() as u64;
        // An entry and its names take half a page behind the PEB's.
        let entry = self.processes[process.0].peb + 0x10_0000 + 0x800 * slot;
        let driver = Driver {
            base,
            size: image.size,
            entry_point: image.entry_point,
            checksum: image.checksum,
            timestamp: image.timestamp,
            path: path.into(),
            exception: (0, 0),
            entry,
        };
        let name = target::base_name(path);
        let (full, short) = (utf16(path), utf16(name));
        self.write_user(process, entry + 0x200, &full);
        self.write_user(process, entry + 0x600, &short);
        let record = loader_entry(
            &driver,
            &unicode_header(full.len(), entry + 0x200),
            &unicode_header(short.len(), entry + 0x600),
        );
        self.write_user(process, entry, &record);
        self.processes[process.0].user_modules.push(entry);
        self.link_user_modules(process);
        base
    }

    /// PEB.Ldr and its three lists.
    fn link_user_modules(&mut self, process: ProcessHandle) {
        let (peb, entries) = {
            let process = &self.processes[process.0];
            (process.peb, process.user_modules.clone())
        };
        let loader = peb + 0x400;
        self.write_user(process, peb + 0x18, &loader.to_le_bytes());
        if let Some(&first) = entries.first() {
            let base = self.processes[process.0].space.read(&self.memory, first + 0x30, 8);
            self.write_user(process, peb + 0x10, &base);
        }
        self.write_user(process, loader, &[0x58, 0, 0, 0, 1]);
        for (list, link) in [(0x10, 0), (0x20, 0x10), (0x30, 0x20)] {
            let ring: Vec<u64> =
                std::iter::once(loader + list).chain(entries.iter().map(|e| e + link)).collect();
            for (index, &entry) in ring.iter().enumerate() {
                let next = ring[(index + 1) % ring.len()];
                let previous = ring[(index + ring.len() - 1) % ring.len()];
                self.write_user(process, entry, &next.to_le_bytes());
                self.write_user(process, entry + 8, &previous.to_le_bytes());
            }
        }
    }

    /// A thread with a kernel stack of these frames (innermost first). Of a waiting one the first
    /// frame is where the switch returns to.
    pub fn add_thread(
        &mut self,
        process: ProcessHandle,
        tid: u64,
        state: ThreadState,
        frames: &[FrameSpec],
    ) -> (u64, BuiltStack) {
        let low = self.next_stack;
        self.next_stack += STACK_STEP;
        let builder = StackBuilder::new(self.machine, low, STACK_SIZE);
        let mut stack = builder.build(frames, 0);
        let mut kernel_stack = stack.context.sp();
        if let ThreadState::Waiting { .. } = state {
            kernel_stack = stack.context.sp() - 0x40;
            let at = usize::try_from(kernel_stack - low).unwrap_or(0);
            put64(&mut stack.bytes, at + 0x30, stack.context.get(reg::RBP).unwrap_or(0));
            put64(&mut stack.bytes, at + 0x38, stack.context.ip());
        }
        self.write(low, &stack.bytes);
        let thread = self.allocate(u64::from(self.layout.ethread_size));
        self.write_thread(thread, process, tid, state, [low, kernel_stack]);
        if let ThreadState::Running { processor } = state {
            self.add_processor(processor, thread, process, &stack.context);
        }
        (thread, stack)
    }

    fn write_thread(
        &mut self,
        thread: u64,
        process: ProcessHandle,
        tid: u64,
        state: ThreadState,
        [low, kernel_stack]: [u64; 2],
    ) {
        let layout = self.layout.clone();
        let owner = self.processes[process.0].object;
        let high = low + u64::from(STACK_SIZE);
        let at = |offset: u16| thread + u64::from(offset);
        self.write(thread, &[6]);
        self.write_u64(at(layout.kthread_initial_stack), high - 0x50);
        self.write_u64(at(layout.kthread_stack_limit), low);
        self.write_u64(at(layout.kthread_stack_base), high);
        self.write_u64(at(layout.kthread_kernel_stack), kernel_stack);
        self.write_u64(at(layout.kthread_apc_process), owner);
        self.write_u64(at(layout.kthread_process), owner);
        let (code, reason, processor) = match state {
            ThreadState::Running { processor } => (2, 0, processor),
            ThreadState::Waiting { reason } => (5, reason, 0),
        };
        self.write(at(layout.kthread_state), &[code]);
        self.write(at(layout.kthread_wait_reason), &[reason]);
        self.write(at(layout.kthread_next_processor), &processor.to_le_bytes());
        let pid = self.read(owner + u64::from(layout.eprocess_unique_process_id), 8);
        self.write(at(layout.ethread_cid), &pid);
        self.write_u64(at(layout.ethread_cid) + 8, tid);
        let start = self.symbol("PspSystemThreadStartup");
        self.write_u64(at(layout.ethread_start_address), start);
        self.processes[process.0].threads.push(thread);
        let threads = self.processes[process.0].threads.clone();
        for (head, link) in [
            (layout.kprocess_thread_list_head, layout.kthread_list_entry),
            (layout.eprocess_thread_list_head, layout.ethread_list_entry),
        ] {
            let entries: Vec<u64> = threads.iter().map(|t| t + u64::from(link)).collect();
            self.link(owner + u64::from(head), &entries);
        }
    }

    fn add_processor(&mut self, number: u32, thread: u64, process: ProcessHandle, context: &Context) {
        let layout = self.layout.clone();
        let number = number.min(MAX_PROCESSORS - 1);
        let pcr = PCRS + PCR_STEP * u64::from(number);
        let prcb = pcr + u64::from(layout.pcr_contained_prcb);
        let mut context = context.clone();
        if self.machine == Machine::X64 {
            for (register, value) in [
                (reg::CS, 0x10),
                (reg::SS, 0x18),
                (reg::DS, 0x2b),
                (reg::ES, 0x2b),
                (reg::FS, 0x53),
                (reg::GS, 0x2b),
            ] {
                context.set(register, value);
            }
        }
        self.write(pcr, &vec![0; usize::from(layout.pcr_size) + 0x2000]);
        let at = |offset: u16| prcb + u64::from(offset);
        self.write_u64(pcr + u64::from(layout.pcr_self), pcr);
        if layout.pcr_current_prcb != 0 {
            self.write_u64(pcr + u64::from(layout.pcr_current_prcb), prcb);
        }
        self.write_u64(at(layout.prcb_current_thread), thread);
        self.write_u64(at(layout.prcb_idle_thread), thread);
        self.write(at(layout.prcb_number), &number.to_le_bytes());
        let record = context.to_bytes();
        self.write(at(layout.prcb_context_frame), &record);
        // Crash processing stores the context elsewhere and leaves a pointer.
        let saved_context = if self.machine == Machine::X64 {
            let address = pcr + u64::from(layout.pcr_size) + 0x1000;
            self.write(address, &record);
            address
        } else {
            at(layout.prcb_context_frame)
        };
        self.write_u64(at(layout.prcb_context), saved_context);
        if self.machine == Machine::X64 {
            self.write_special_registers(pcr, at(layout.prcb_special_registers), process);
        }
        let table = self.symbol("KiProcessorBlock");
        self.write_u64(table + 8 * u64::from(number), prcb);
        self.processors.retain(|p| p.number != number);
        self.processors.push(Processor {
            number,
            pcr,
            prcb,
            thread,
            process: process.0,
            context,
            saved_context,
        });
        self.processors.sort_by_key(|p| p.number);
    }

    /// CR0, CR3, CR4, and a GDT with 64-bit code and data segments.
    fn write_special_registers(&mut self, pcr: u64, special: u64, process: ProcessHandle) {
        let root = self.processes[process.0].space.root | 2;
        let la57 = if self.system.levels == 5 { 1 << 12 } else { 0 };
        self.write_u64(special, 0x8005_0033);
        self.write_u64(special + 0x10, root);
        self.write_u64(special + 0x18, 0x35_06f8 | la57);
        let table = pcr + u64::from(self.layout.pcr_size);
        for (selector, descriptor) in [
            (0x10, 0x0020_9b00_0000_0000),
            (0x18, 0x00cf_9300_0000_ffff),
            (0x20, 0x00cf_fb00_0000_ffff),
            (0x28, 0x00cf_f300_0000_ffff),
            (0x30, 0x0020_fb00_0000_0000),
            (0x50, 0x0040_f300_0000_3c00u64),
        ] {
            self.write_u64(table + selector, descriptor);
        }
        self.write(special + 0x56, &0x57u16.to_le_bytes());
        self.write_u64(special + 0x58, table);
        self.write_u64(special + 0xa8, pcr);
    }
}

fn unicode_header(bytes: usize, buffer: u64) -> Vec<u8> {
    let mut out = vec![0; 16];
    put16(&mut out, 0, low16(bytes as u64));
    put16(&mut out, 2, low16(bytes as u64 + 2));
    put64(&mut out, 8, buffer);
    out
}

/// `KLDR_DATA_TABLE_ENTRY`, which begins as the user-mode one.
fn loader_entry(driver: &Driver, full: &[u8], short: &[u8]) -> Vec<u8> {
    let mut out = vec![0; 0xa0];
    put64(&mut out, 0x10, driver.base + u64::from(driver.exception.0));
    put32(&mut out, 0x18, driver.exception.1);
    put64(&mut out, 0x30, driver.base);
    put64(&mut out, 0x38, driver.base + u64::from(driver.entry_point));
    put32(&mut out, 0x40, driver.size);
    put(&mut out, 0x48, full);
    put(&mut out, 0x58, short);
    put32(&mut out, 0x68, 0x0800_4000);
    put16(&mut out, 0x6c, 1);
    put32(&mut out, 0x78, driver.checksum);
    put32(&mut out, 0x9c, driver.timestamp);
    out
}
