//! What is written last: `KDDEBUGGER_DATA64` and the variables it points at.

use target::Machine;

use crate::bytes::{low32, put, put16, put32, put64};
use crate::kernel::KernelForge;
use crate::paging::{AddressSpace, PAGE};

pub(crate) const KDBG_SIZE: u16 = 0x380;

impl KernelForge {
    /// Writes what depends on everything else: debugger data, bug check, unloaded drivers, and the
    /// kernel half of all address spaces.
    pub fn finish(&mut self) {
        let (code, parameters) = self.bug_check;
        let mut data = Vec::new();
        put64(&mut data, 0, code.into());
        for (index, parameter) in parameters.into_iter().enumerate() {
            put64(&mut data, 8 + 8 * index, parameter);
        }
        self.write(self.symbol("KiBugCheckData"), &data);
        self.write_u64(self.symbol("KeNumberProcessors"), self.processors.len() as u64);
        for (name, value) in [
            ("MmHighestUserAddress", 0x7fff_fffe_ffff),
            ("MmSystemRangeStart", 0xffff_8000_0000_0000),
            ("MmUserProbeAddress", 0x7fff_ffff_0000),
        ] {
            self.write_u64(self.symbol(name), value);
        }
        if !self.unloaded.is_empty() {
            self.write_unloaded();
        }
        let block = self.debugger_data();
        let block = match self.encode {
            None => block,
            Some((never, always)) => {
                self.write_u64(self.symbol("KiWaitNever"), never);
                self.write_u64(self.symbol("KiWaitAlways"), always);
                encode(&block, never, always, self.symbol("KdpDataBlockEncoded"))
            }
        };
        self.write(self.symbol("KdDebuggerDataBlock"), &block);
        let spaces: Vec<AddressSpace> = self.processes.iter().skip(1).map(|p| p.space).collect();
        for space in spaces {
            space.share_kernel_half(&mut self.memory, &self.system);
        }
    }

    fn write_unloaded(&mut self) {
        let array = self.allocate(50 * 0x28);
        for (index, (name, start, end)) in self.unloaded.clone().into_iter().enumerate().take(50) {
            let mut record = self.unicode_string(&name);
            put64(&mut record, 0x10, start);
            put64(&mut record, 0x18, end);
            put64(&mut record, 0x20, self.system_time);
            self.write(array + 0x28 * index as u64, &record);
        }
        self.write_u64(self.symbol("MmUnloadedDrivers"), array);
        let count = low32(self.unloaded.len().min(50));
        self.write(self.symbol("MmLastUnloadedDriver"), &count.to_le_bytes());
    }

    /// `KDDEBUGGER_DATA64`, plain.
    pub(crate) fn debugger_data(&self) -> Vec<u8> {
        let l = &self.layout;
        let own = self.symbol("KdDebuggerDataBlock");
        let mut out = vec![0; usize::from(KDBG_SIZE)];
        put64(&mut out, 0, own);
        put64(&mut out, 8, own);
        put(&mut out, 0x10, b"KDBG");
        put32(&mut out, 0x14, KDBG_SIZE.into());
        put64(&mut out, 0x18, self.kernel_base);
        for (offset, name) in [
            (0x48, "PsLoadedModuleList"),
            (0x50, "PsActiveProcessHead"),
            (0x58, "PspCidTable"),
            (0x88, "KiBugCheckData"),
            (0xc0, "MmPfnDatabase"),
            (0x1c8, "MmHighestUserAddress"),
            (0x1d0, "MmSystemRangeStart"),
            (0x1d8, "MmUserProbeAddress"),
            (0x208, "NtBuildLab"),
            (0x218, "KiProcessorBlock"),
            (0x220, "MmUnloadedDrivers"),
            (0x228, "MmLastUnloadedDriver"),
        ] {
            put64(&mut out, offset, self.symbol(name));
        }
        put64(&mut out, 0x138, PAGE);
        let halves = [
            (0x298, l.kthread_next_processor),
            (0x29a, l.kthread_teb),
            (0x29c, l.kthread_kernel_stack),
            (0x29e, l.kthread_initial_stack),
            (0x2a0, l.kthread_apc_process),
            (0x2a2, l.kthread_state),
            (0x2a8, l.eprocess_size),
            (0x2aa, l.eprocess_peb),
            (0x2ac, l.eprocess_parent),
            (0x2ae, l.kprocess_directory_table_base),
            (0x2b0, l.prcb_size),
            (0x2b4, l.prcb_current_thread),
            (0x2bc, l.prcb_context_frame),
            (0x2be, l.prcb_number),
            (0x2c0, l.ethread_size),
            (0x2e0, l.pcr_size),
            (0x2e2, l.pcr_self),
            (0x2e4, l.pcr_current_prcb),
            (0x2e6, l.pcr_contained_prcb),
            (0x2f2, l.prcb_special_registers),
            (0x338, l.prcb_context),
            (0x340, l.kthread_stack_limit),
            (0x344, l.kthread_stack_base),
            (0x350, l.prcb_idle_thread),
            (0x35c, l.kthread_wait_reason),
        ];
        for (offset, value) in halves {
            put16(&mut out, offset, value);
        }
        if self.machine == Machine::X64 {
            let selectors = [0x10, 0x18, 0, 0x33, 0x2b, 0, 0, 0x40, 0x23, 0x53];
            for (index, value) in selectors.into_iter().enumerate() {
                put16(&mut out, 0x2f4 + 2 * index, value);
            }
        }
        put64(&mut out, 0x360, self.pte_base);
        out
    }
}

/// The transform of a running kernel's debugger data (spec 80 section 7.2), inverted.
fn encode(plain: &[u8], never: u64, always: u64, address: u64) -> Vec<u8> {
    let quads = plain.chunks_exact(8).flat_map(|quad| {
        let value = quad.iter().rev().fold(0u64, |value, byte| value << 8 | u64::from(*byte));
        let turned = (value ^ always).swap_bytes() ^ address;
        (turned.rotate_right((never & 0x3f) as u32) ^ never).to_le_bytes()
    });
    quads.collect()
}
