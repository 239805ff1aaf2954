//! Small memory dumps: the structures of the crash, its stack, and blocks of memory.

use crate::bytes::{low32, pad_to, put, put16, put32, put64, utf16};
use crate::debugger_data::KDBG_SIZE;
use crate::kernel::KernelForge;
use crate::kernel_write::DumpType;

const BLOCK: usize = 0x2000;

/// Appends bytes 8-aligned and says where.
fn append(out: &mut Vec<u8>, bytes: &[u8]) -> u32 {
    pad_to(out, 8);
    let at = low32(out.len());
    out.extend(bytes);
    at
}

pub(crate) fn build(forge: &KernelForge) -> Vec<u8> {
    let mut out = forge.header(DumpType::Triage, &[]);
    out.resize(BLOCK + 0x80, 0);
    let field = |out: &mut Vec<u8>, offset: usize, value: u32| put32(out, BLOCK + offset, value);
    field(&mut out, 0x0c, 0x348);
    field(&mut out, 0x10, 0xf00);
    let mm = mm_information();
    let at = append(&mut out, &mm);
    field(&mut out, 0x14, at);
    let at = append(&mut out, &unloaded(forge));
    field(&mut out, 0x18, at);
    if let Some(processor) = forge.processors.first() {
        let layout = &forge.layout;
        let process = forge.processes[processor.process].object;
        for (offset, address, size) in [
            (0x1c, processor.prcb, layout.prcb_size),
            (0x20, process, layout.eprocess_size),
            (0x24, processor.thread, layout.ethread_size),
        ] {
            let at = append(&mut out, &forge.read(address, usize::from(size)));
            field(&mut out, offset, at);
        }
        let top = processor.context.sp();
        let stack = forge.read(top, stack_left(forge, processor.thread, top));
        let at = append(&mut out, &stack);
        field(&mut out, 0x28, at);
        field(&mut out, 0x2c, low32(stack.len()));
        put64(&mut out, BLOCK + 0x48, top);
    }
    let (list, names) = drivers(forge, &mut out);
    field(&mut out, 0x30, list);
    field(&mut out, 0x34, low32(forge.drivers.len()));
    field(&mut out, 0x38, names.0);
    field(&mut out, 0x3c, names.1);
    field(&mut out, 0x44, u32::MAX);
    let at = append(&mut out, &forge.debugger_data());
    field(&mut out, 0x70, at);
    field(&mut out, 0x74, KDBG_SIZE.into());
    let (list, count) = blocks(forge, &mut out);
    field(&mut out, 0x78, list);
    field(&mut out, 0x7c, count);
    let at = append(&mut out, b"TRGD");
    field(&mut out, 0x08, at);
    let size = low32(out.len());
    field(&mut out, 0x04, size);
    out
}

/// Bytes from the stack pointer to the thread's stack base.
fn stack_left(forge: &KernelForge, thread: u64, top: u64) -> usize {
    let base = forge.read(thread + u64::from(forge.layout.kthread_stack_base), 8);
    let base = base.iter().rev().fold(0u64, |value, byte| value << 8 | u64::from(*byte));
    usize::try_from(base.saturating_sub(top)).unwrap_or(0)
}

fn mm_information() -> Vec<u8> {
    let mut out = vec![0; 0x50];
    put32(&mut out, 0, 1);
    put32(&mut out, 4, 0x50);
    for (index, value) in
        [0x10_0000u64, 0x200, 0x20_0000, 0x8000, 0x1000, 0x1200, 0x8000].into_iter().enumerate()
    {
        put64(&mut out, 0x18 + 8 * index, value);
    }
    out
}

fn unloaded(forge: &KernelForge) -> Vec<u8> {
    let mut out = (forge.unloaded.len() as u64).to_le_bytes().to_vec();
    for (name, start, end) in &forge.unloaded {
        let mut record = vec![0; 0x38];
        let text = utf16(name);
        put16(&mut record, 0, (text.len() & 0xffff) as u16);
        put(&mut record, 0x10, &text[..text.len().min(24)]);
        put64(&mut record, 0x28, *start);
        put64(&mut record, 0x30, *end);
        out.extend(record);
    }
    out
}

/// The driver list, then the names: offset of the list, offset and size of the names.
fn drivers(forge: &KernelForge, out: &mut Vec<u8>) -> (u32, (u32, u32)) {
    const ENTRY: usize = 0x90;
    let list = append(out, &vec![0; ENTRY * forge.drivers.len()]);
    let pool = low32(out.len());
    for (index, driver) in forge.drivers.iter().enumerate() {
        let characters = utf16(&driver.path);
        let mut name = low32(characters.len() / 2).to_le_bytes().to_vec();
        name.extend(characters);
        name.extend([0, 0]);
        let at = append(out, &name);
        let entry = list as usize + ENTRY * index;
        put32(out, entry, at);
        let record = entry + 8;
        put64(out, record + 0x30, driver.base);
        put64(out, record + 0x38, driver.base + u64::from(driver.entry_point));
        put32(out, record + 0x40, driver.size);
        put32(out, record + 0x68, 0x0800_4000);
        put16(out, record + 0x6c, 1);
        put32(out, record + 0x78, driver.checksum);
        put32(out, record + 0x80, driver.timestamp);
    }
    let size = low32(out.len()) - pool;
    (list, (pool, size))
}

/// Data blocks: the processor table, the processors, the saved contexts, and what the test asked for.
fn blocks(forge: &KernelForge, out: &mut Vec<u8>) -> (u32, u32) {
    let mut wanted = vec![(forge.symbol("KiProcessorBlock"), 0x200)];
    wanted.push((forge.symbol("NtBuildLab"), 64));
    for processor in &forge.processors {
        wanted.push((processor.saved_context, low32(target::Context::record_size(forge.machine))));
        wanted.push((processor.pcr, forge.layout.pcr_contained_prcb.into()));
    }
    // The crashing processor's once more: DbgEng looks at addresses from the table in blocks only.
    for processor in &forge.processors {
        wanted.push((processor.prcb, forge.layout.prcb_size.into()));
    }
    wanted.extend(forge.triage_blocks.iter().copied());
    let mut list = Vec::new();
    for (address, size) in wanted {
        let bytes = forge.read(address, size as usize);
        let at = append(out, &bytes);
        list.extend(address.to_le_bytes());
        list.extend(at.to_le_bytes());
        list.extend(low32(bytes.len()).to_le_bytes());
    }
    let count = low32(list.len() / 16);
    (append(out, &list), count)
}
