//! Where the kernel and its debugger data are, without any symbols.

use dump::KdDebuggerData;
use pe::{MappedImage, Pe};
use target::{Machine, MemoryExt, Module};

use super::{kernel_dump, known, live_pages};
use crate::core::Core;
use crate::raw::RawMemory;

/// Largest block worth reading (`dump::kdbg::MAX_SIZE`), and the least that decodes.
const KDBG_SIZE: usize = 0x400;
/// Offsets in the block whose values the dump header repeats.
const LOADED_MODULES: usize = 0x48;
const ACTIVE_PROCESSES: usize = 0x50;

/// The debugger data block: from a triage dump, from memory, or decoded from a running kernel's.
pub(super) fn debugger_data(core: &Core, limitations: &mut Vec<String>) -> Option<KdDebuggerData> {
    if let Some(live) = live_pages(core) {
        let origin = live.kernel.origin();
        return match of_list(core, origin.debugger_data_list, origin.kernel_base) {
            Ok(kdbg) => Some(kdbg),
            Err(why) => {
                limitations.push(format!("without the kernel's debugger data: {why}"));
                None
            }
        };
    }
    let dump = kernel_dump(core)?;
    if let Some(kdbg) = dump.debugger_data() {
        return Some(kdbg);
    }
    choose_levels(core);
    let header = dump.header();
    let address = header.kd_debugger_data_block?;
    let (bytes, stopped) = core.read_prefix(address, KDBG_SIZE);
    if let Some(kdbg) = KdDebuggerData::parse(&bytes) {
        return Some(kdbg);
    }
    let known = header.ps_loaded_module_list.zip(header.ps_active_process_head);
    if let Some((modules, processes)) = known
        && let Some(kdbg) = decode(&bytes, modules, processes)
    {
        return Some(kdbg);
    }
    limitations.push(match stopped {
        Some(why) => format!("the kernel's debugger data block at {address:#x} cannot be read: {why}"),
        None => {
            format!("the kernel's debugger data block at {address:#x} is encoded and could not be decoded")
        }
    });
    None
}

/// The block that a live kernel's list of debugger data begins with (spec 71 section 7.2).
fn of_list(core: &Core, list: u64, kernel_base: u64) -> Result<KdDebuggerData, String> {
    if list == 0 {
        return Err("the target names no list of it".to_owned());
    }
    let block = core.read_u64(list).map_err(|error| format!("its list is not readable: {error}"))?;
    let (bytes, stopped) = core.read_prefix(block, KDBG_SIZE);
    let Some(kdbg) = KdDebuggerData::parse(&bytes) else {
        return Err(match stopped {
            Some(why) => format!("the block at {block:#x} is not readable: {why}"),
            None => format!("what is at {block:#x} is no such block"),
        });
    };
    if kdbg.kern_base() != Some(kernel_base) {
        return Err(format!("the block at {block:#x} is of another kernel than the one at {kernel_base:#x}"));
    }
    let links = |offset: usize| kdbg.quad(offset) == Some(list);
    if !(links(0) && links(8)) {
        return Err(format!("the block at {block:#x} does not link back to its list"));
    }
    Ok(kdbg)
}

/// A processor with 57-bit addresses walks five levels: whichever depth reaches the kernel's own
/// data is the right one.
fn choose_levels(core: &Core) {
    let (RawMemory::Paged(translator), Some(dump)) = (&core.raw, kernel_dump(core)) else { return };
    if core.machine != Machine::X64 {
        return;
    }
    let header = dump.header();
    let probes = [header.ps_loaded_module_list, header.kd_debugger_data_block, header.ps_active_process_head];
    let reachable = || probes.iter().flatten().any(|&address| core.read_u64(address).is_ok());
    if !reachable() {
        translator.set_five_levels(true);
        if !reachable() {
            translator.set_five_levels(false);
        }
    }
}

/// Undoes the encoding of a running kernel without its keys. Each u64 is
/// `bswap(rotl(q ^ N, N & 63) ^ A) ^ W` with constants N, A and W, so the XOR of two of them
/// depends on the rotation alone: two values that the header repeats give the rotation, and one of
/// them all others.
fn decode(encoded: &[u8], modules: u64, processes: u64) -> Option<KdDebuggerData> {
    let quad = |offset: usize| {
        encoded.get(offset..offset + 8).and_then(|b| b.try_into().ok()).map(u64::from_le_bytes)
    };
    let (first, second) = (quad(LOADED_MODULES)?, quad(ACTIVE_PROCESSES)?);
    let fits = |rotation: &u32| (first ^ second).rotate_left(*rotation).swap_bytes() == modules ^ processes;
    (0..64).filter(fits).find_map(|rotation| {
        let plain: Vec<u8> = encoded
            .chunks_exact(8)
            .flat_map(|q| {
                let q = u64::from_le_bytes(q.try_into().unwrap_or_default());
                ((q ^ first).rotate_left(rotation).swap_bytes() ^ modules).to_le_bytes()
            })
            .collect();
        KdDebuggerData::parse(&plain).filter(|k| k.ps_active_process_head() == Some(processes))
    })
}

/// Base of the kernel image: as the debugger data says, else the first module's, else the image
/// that holds `PsLoadedModuleList`.
pub(super) fn kernel_base(
    core: &Core,
    kdbg: Option<&KdDebuggerData>,
    list: Option<&Vec<Module>>,
) -> Option<u64> {
    kdbg.and_then(KdDebuggerData::kern_base)
        .or_else(|| known(core).kernel_base)
        .or_else(|| list.and_then(|l| l.first()).map(|m| m.base))
        .or_else(|| scan_back(core, kernel_dump(core)?.header().ps_loaded_module_list?))
}

/// Pages below a kernel variable, down to the image's headers.
fn scan_back(core: &Core, from: u64) -> Option<u64> {
    const MAX_PAGES: u64 = 32 << 20 >> 12;
    let start = from & !0xfff;
    (0..MAX_PAGES).map_while(|n| start.checked_sub(n << 12)).find(|&base| {
        core.read_u16(base) == Ok(0x5a4d) && {
            let image = MappedImage::new(core, base);
            let name = Pe::parse(&image).ok().and_then(|pe| pe.export_name(&image));
            name.is_some_and(|n| n.to_ascii_lowercase().starts_with("nt"))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_encoded_block_is_decoded_by_what_the_header_repeats() {
        let mut plain = vec![0u8; 0x380];
        plain[0x10..0x14].copy_from_slice(b"KDBG");
        plain[0x14..0x18].copy_from_slice(&0x380u32.to_le_bytes());
        let put = |bytes: &mut Vec<u8>, at: usize, value: u64| {
            bytes[at..at + 8].copy_from_slice(&value.to_le_bytes())
        };
        put(&mut plain, 0x18, 0xffff_f804_7ba0_0000);
        put(&mut plain, LOADED_MODULES, 0xffff_f804_7c62_a390);
        put(&mut plain, ACTIVE_PROCESSES, 0xffff_f804_7c61_e0a0);
        let (never, always, address) = (0x1f2e_3d4c_5b6a_7989u64, 0x1234u64, 0xffff_f804_7c00_1000u64);
        let encode = |quad: &[u8]| {
            let value = u64::from_le_bytes(quad.try_into().unwrap());
            (((value ^ always).swap_bytes() ^ address).rotate_right((never & 0x3f) as u32) ^ never)
                .to_le_bytes()
        };
        let encoded: Vec<u8> = plain.chunks_exact(8).flat_map(encode).collect();
        assert!(KdDebuggerData::parse(&encoded).is_none());
        let decoded = decode(&encoded, 0xffff_f804_7c62_a390, 0xffff_f804_7c61_e0a0).unwrap();
        assert_eq!(decoded, KdDebuggerData::parse(&plain).unwrap());
        assert!(decode(&encoded, 0xffff_f804_7c62_a391, 0xffff_f804_7c61_e0a0).is_none());
    }
}
