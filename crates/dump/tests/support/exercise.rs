//! Asks an opened file everything there is to ask. Shared by the property tests and the fuzz targets.

use dump::{DumpFile, KernelDump, Minidump, UserFull};

/// Opens `bytes` and reads all of it. Whatever the bytes are, this ends, without a panic.
pub(crate) fn exercise(bytes: &[u8]) {
    match dump::from_bytes(bytes.to_vec()) {
        Ok(DumpFile::Minidump(dump)) => minidump(&dump),
        Ok(DumpFile::UserFull(dump)) => user_full(&dump),
        Ok(DumpFile::Kernel(dump)) => kernel(&dump),
        Ok(DumpFile::Kernel32(dump)) => {
            assert!(dump.drivers.len() <= bytes.len());
            let _ = dump.context_bytes();
        }
        Ok(DumpFile::Image(_)) => {}
        Err(error) => {
            let _ = (error.category(), error.to_string());
        }
    }
}

fn minidump(dump: &Minidump) {
    let mut buffer = [0; 300];
    for stream in dump.streams() {
        let _ = dump.bytes_at(stream.location);
    }
    for thread in dump.threads() {
        let _ = (dump.bytes_at(thread.context), dump.read_memory(thread.stack.start, &mut buffer));
    }
    for (start, size) in dump.memory_regions() {
        let _ = dump.read_memory(start, &mut buffer);
        let _ = dump.read_memory(start.wrapping_add(size).wrapping_sub(9), &mut buffer);
    }
    let _ = (dump.modules(), dump.unloaded_modules(), dump.exception(), dump.thread_infos());
    let _ = (dump.thread_names(), dump.handles(), dump.function_tables().len(), dump.misc_info());
    let _ = (dump.memory_infos(), dump.system_memory_info(), dump.vm_counters(), dump.tokens().len());
    let _ = (dump.comments(), dump.truncated(), dump.memory_size(), dump.has_full_memory());
}

fn user_full(dump: &UserFull) {
    let mut buffer = [0; 300];
    let _ = (dump.threads().len(), dump.modules(), dump.event(), dump.version_strings());
    for region in dump.regions() {
        let _ = dump.read_memory(region.base, &mut buffer);
    }
    let _ = (dump.truncated(), dump.memory_regions());
}

fn kernel(dump: &KernelDump) {
    let mut buffer = [0; 5000];
    let _ = (dump.header().bug_check_base(), dump.header().has_context(), dump.format(), dump.notes());
    let _ = (dump.blobs(), dump.truncated(), dump.debugger_data());
    for address in [0, 0x1000, 0x20_0fff, u64::MAX - 100] {
        let _ = (dump.read_physical(address, &mut buffer), dump.read_virtual(address, &mut buffer));
    }
    if let Some(triage) = dump.triage() {
        for block in triage.blocks.iter().take(100) {
            let _ = dump.read_virtual(block.address, &mut buffer);
        }
        let _ = triage.regions();
    }
    let mut pfn = 0;
    for _ in 0..200 {
        let Some(run) = dump.next_physical_run(pfn) else { break };
        assert!(run.first_pfn >= pfn && run.pages > 0);
        let _ = dump.read_physical(run.first_pfn.saturating_mul(0x1000), &mut buffer);
        pfn = run.first_pfn.saturating_add(run.pages);
    }
}
