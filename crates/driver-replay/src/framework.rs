//! Which framework a driver is written for, and how a KMDF client binds to it, from the file alone.

use std::collections::{HashMap, VecDeque};

use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};
use pe::{ImageSourceExt, ImportedDll, Section};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use target::{Address, Machine};

use crate::entries::EntryKind;
use crate::image::PlacedImage;
use crate::record::Bind;

/// What gave a framework away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Tell {
    /// Imports `WdfVersionBind` or `WdfVersionBindClass` from `WdfLdr.sys`.
    BindImport,
    /// Every major function lies in the framework's image (only a live driver object shows it).
    DispatchTable,
    /// The code asked about is the framework's own.
    FrameworkImage,
    FilterManager,
    Ndis,
    Storport,
    Portcls,
}

/// A framework that was recognised. That none was says nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Framework {
    /// `kmdf`, `filter_manager`, `ndis`, `storport`, `portcls`.
    pub name: String,
    pub tells: Vec<Tell>,
    pub note: String,
}

/// Names, from the imports.
#[must_use]
pub fn framework_of(imports: &[ImportedDll]) -> Option<Framework> {
    let imports_any = |library: Option<&str>, names: &[&str]| {
        imports
            .iter()
            .filter(|dll| library.is_none_or(|l| dll.name.eq_ignore_ascii_case(l)))
            .flat_map(|dll| &dll.imports)
            .filter_map(|import| import.name.as_deref())
            .any(|name| names.iter().any(|n| n.eq_ignore_ascii_case(name)))
    };
    let framework = |name: &str, tell, note: &str| {
        Some(Framework { name: name.to_owned(), tells: vec![tell], note: note.to_owned() })
    };
    // Both halves: the library alone matches the framework itself, the name alone can be anybody's.
    if imports_any(Some("WdfLdr.sys"), &["WdfVersionBind", "WdfVersionBindClass"]) {
        return framework(
            "kmdf",
            Tell::BindImport,
            "a KMDF client: requests arrive at queue callbacks, not at the dispatch table",
        );
    }
    if imports_any(Some("fltmgr.sys"), &["FltRegisterFilter"]) {
        return framework(
            "filter_manager",
            Tell::FilterManager,
            "a minifilter: its operation callbacks see requests to file systems; messages from user mode \
             come through communication ports, which are not analysed",
        );
    }
    if imports_any(
        None,
        &["NdisMRegisterMiniportDriver", "NdisFRegisterFilterDriver", "NdisRegisterProtocolDriver"],
    ) {
        return framework(
            "ndis",
            Tell::Ndis,
            "an NDIS driver: its handlers are registered with NDIS and not analysed",
        );
    }
    if imports_any(None, &["StorPortInitialize"]) {
        return framework(
            "storport",
            Tell::Storport,
            "a Storport miniport: requests arrive as SRBs, not analysed",
        );
    }
    if imports_any(None, &["PcAddAdapterDevice", "PcInitializeAdapterDriver"]) {
        return framework(
            "portcls",
            Tell::Portcls,
            "an audio adapter driver: requests go to port class drivers",
        );
    }
    None
}

/// Most bytes of an image that are searched.
const MAX_SEARCH: usize = 64 << 20;
/// Plausible numbers of framework functions.
const FUNCTIONS: std::ops::RangeInclusive<u32> = 100..=1024;

/// `WDF_BIND_INFO` at `address`, checked.
pub(crate) fn bind_at(image: &PlacedImage, address: u64) -> Option<Bind> {
    let rva = image.rva(address)?;
    let bytes = image.bytes.as_ref();
    let wide = image.pe.is_64;
    let size = bytes.u32(rva)?;
    let at = |wide_offset: u32, narrow: u32| rva.checked_add(if wide { wide_offset } else { narrow });
    let pointer = |rva: u32| if wide { bytes.u64(rva) } else { bytes.u32(rva).map(u64::from) };
    let version = [0, 4, 8].map(|i| at(0x10 + i, 8 + i).and_then(|rva| bytes.u32(rva)));
    let [Some(major), Some(minor), Some(build)] = version else { return None };
    let function_count = bytes.u32(at(0x1c, 0x14)?)?;
    let table = pointer(at(0x20, 0x18)?)?;
    let sizes = if wide { 0x30..=0x80 } else { 0x20..=0x60 };
    if !sizes.contains(&size) || !FUNCTIONS.contains(&function_count) || !image.contains(table) {
        return None;
    }
    Some(Bind {
        address: Address(address),
        version: format!("{major}.{minor}.{build}"),
        function_count,
        function_table: Address(table),
        table_is_pointer: table_is_pointer(image, table, function_count),
    })
}

/// Finds the binding by the name `KmdfLibrary` it points to.
#[must_use]
pub fn static_bind(image: &PlacedImage) -> Option<Bind> {
    let wanted: Vec<u8> = "KmdfLibrary\0".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let sections: Vec<(u64, Vec<u8>)> = sections(image, |_| true).collect();
    let width = image.pointer() as usize;
    let strings: Vec<u64> = sections
        .iter()
        .flat_map(|(start, bytes)| {
            let starts = (0..bytes.len().saturating_sub(wanted.len() - 1)).step_by(2);
            let hits = starts.filter(|&i| bytes[i..].starts_with(&wanted)).take(8);
            hits.map(|i| start + i as u64).collect::<Vec<_>>()
        })
        .collect();
    for (start, bytes) in &sections {
        for (index, chunk) in bytes.chunks_exact(width).enumerate() {
            let mut word = [0; 8];
            word[..width].copy_from_slice(chunk);
            if !strings.contains(&u64::from_le_bytes(word)) {
                continue;
            }
            let at = start + (index * width) as u64;
            if let Some(bind) = at.checked_sub(width as u64).and_then(|start| bind_at(image, start)) {
                return Some(bind);
            }
        }
    }
    None
}

/// Executable sections with their bytes.
fn code(image: &PlacedImage) -> impl Iterator<Item = (u64, Vec<u8>)> {
    sections(image, Section::is_executable)
}

/// Where the sections that are `wanted` begin, and their bytes: [`MAX_SEARCH`] of them in all, for
/// sections may lie over each other and each say it is as large as the image.
fn sections(image: &PlacedImage, wanted: impl Fn(&Section) -> bool) -> impl Iterator<Item = (u64, Vec<u8>)> {
    let mut left = MAX_SEARCH;
    image.pe.sections.iter().filter(move |section| wanted(section)).map(move |section| {
        let inside = image.pe.size_of_image.saturating_sub(section.rva);
        let size = section.virtual_size.max(section.raw_size).min(inside) as usize;
        let bytes = image.bytes.prefix(section.rva, size.min(left));
        left -= bytes.len();
        (image.base.wrapping_add(u64::from(section.rva)), bytes)
    })
}

/// The address of a memory operand without registers.
fn absolute(instruction: &Instruction) -> Option<u64> {
    let memory = (0..instruction.op_count()).any(|i| instruction.op_kind(i) == OpKind::Memory);
    let plain = instruction.memory_base() == Register::None || instruction.is_ip_rel_memory_operand();
    (memory && plain && instruction.memory_index() == Register::None)
        .then(|| instruction.memory_displacement64())
}

/// Whether code loads the pointer at `table` rather than calling through an array there.
fn table_is_pointer(image: &PlacedImage, table: u64, count: u32) -> bool {
    let end = table.saturating_add(u64::from(count) * u64::from(image.pointer()));
    let (mut loads, mut calls) = (0u32, 0u32);
    for (start, bytes) in code(image) {
        if image.machine == Machine::Arm64 {
            loads += arm64_loads(start, &bytes, table);
            continue;
        }
        let bits = if image.pe.is_64 { 64 } else { 32 };
        let mut decoder = Decoder::with_ip(bits, &bytes, start, DecoderOptions::NONE);
        let mut instruction = Instruction::default();
        while decoder.can_decode() {
            decoder.decode_out(&mut instruction);
            let Some(address) = absolute(&instruction) else { continue };
            match instruction.mnemonic() {
                Mnemonic::Mov if address == table && instruction.op1_kind() == OpKind::Memory => loads += 1,
                Mnemonic::Call | Mnemonic::Jmp if (table + 1..end).contains(&address) => calls += 1,
                _ => {}
            }
        }
    }
    loads > 0 && calls == 0
}

/// `adrp` and `ldr` of exactly `table`.
fn arm64_loads(start: u64, bytes: &[u8], table: u64) -> u32 {
    let mut pages = [None; 32];
    let mut loads = 0;
    for (index, word) in bytes.chunks_exact(4).enumerate() {
        let word = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
        let at = start + 4 * index as u64;
        let (d, n) = ((word & 31) as usize, (word >> 5 & 31) as usize);
        if word & 0x9f00_0000 == 0x9000_0000 {
            let immediate = (word >> 5 & 0x7_ffff) << 2 | word >> 29 & 3;
            let pages_off = i64::from((immediate << 11) as i32 >> 11) << 12;
            pages[d] = Some((at & !0xfff).wrapping_add_signed(pages_off));
        } else if word & 0xffc0_0000 == 0xf940_0000 {
            let address = pages[n].map(|p: u64| p.wrapping_add(u64::from(word >> 10 & 0xfff) * 8));
            loads += u32::from(address == Some(table));
            pages[d] = None;
        } else if word & 0x7c00_0000 == 0x1400_0000 || word & 0xfe00_0000 == 0xd600_0000 {
            pages = [None; 32];
        }
    }
    loads
}

/// A call of `WdfIoQueueCreate`.
pub(crate) struct QueueSite {
    pub(crate) at: u64,
    /// The configuration's dispatch type is manual.
    pub(crate) manual: bool,
    pub(crate) callbacks: Vec<(Address, EntryKind, u8)>,
}

/// Index of `WdfIoQueueCreate`.
const IO_QUEUE_CREATE: u64 = 152;
/// Instructions before a call that are looked at.
const LOOK_BACK: usize = 64;

/// Most sites listed.
const MAX_SITES: usize = 256;

/// Calls of `WdfIoQueueCreate`, each with what the code before it stores into the configuration on the
/// stack. x86 and x64 only. A guess the caller marks as such.
pub(crate) fn queue_sites(image: &PlacedImage, bind: &Bind) -> Vec<QueueSite> {
    if image.machine == Machine::Arm64 {
        return Vec::new();
    }
    let slot = IO_QUEUE_CREATE * u64::from(image.pointer());
    let mut found = Vec::new();
    for (start, bytes) in code(image) {
        let bits = if image.pe.is_64 { 64 } else { 32 };
        let mut recent: VecDeque<Instruction> = VecDeque::new();
        for instruction in Decoder::with_ip(bits, &bytes, start, DecoderOptions::NONE) {
            if calls_slot(&instruction, bind, slot) && found.len() < MAX_SITES {
                found.push(configuration(image, instruction.ip(), &recent));
            }
            if recent.len() == LOOK_BACK {
                recent.pop_front();
            }
            recent.push_back(instruction);
        }
    }
    found
}

fn calls_slot(instruction: &Instruction, bind: &Bind, slot: u64) -> bool {
    if instruction.mnemonic() != Mnemonic::Call || instruction.op0_kind() != OpKind::Memory {
        return false;
    }
    if bind.table_is_pointer {
        return instruction.memory_base() != Register::None && instruction.memory_displacement64() == slot;
    }
    absolute(instruction) == Some(bind.function_table.0.wrapping_add(slot))
}

/// What a store puts where: the base register, the displacement, the value.
type Store = (Register, u64, u64);

/// Stores of known values: immediates, registers that `lea` or `mov` loaded.
fn stores(recent: &VecDeque<Instruction>) -> Vec<Store> {
    let mut loaded: HashMap<Register, u64> = HashMap::new();
    let mut stores = Vec::new();
    for instruction in recent {
        let immediate = matches!(
            instruction.op1_kind(),
            OpKind::Immediate32 | OpKind::Immediate32to64 | OpKind::Immediate64 | OpKind::Immediate8to32
        );
        match (instruction.mnemonic(), instruction.op0_kind()) {
            (Mnemonic::Lea, OpKind::Register) if instruction.is_ip_rel_memory_operand() => {
                loaded.insert(instruction.op0_register(), instruction.ip_rel_memory_address());
            }
            (Mnemonic::Mov, OpKind::Register) if immediate => {
                loaded.insert(instruction.op0_register().full_register(), instruction.immediate(1));
            }
            (Mnemonic::Mov, OpKind::Memory) => {
                let value = if immediate {
                    Some(instruction.immediate(1))
                } else {
                    loaded.get(&instruction.op1_register().full_register()).copied()
                };
                if let Some(value) = value {
                    stores.push((instruction.memory_base(), instruction.memory_displacement64(), value));
                }
            }
            (_, OpKind::Register) => {
                loaded.remove(&instruction.op0_register().full_register());
            }
            _ => {}
        }
    }
    stores
}

/// Where the configuration lies: what is passed in r8, or pushed third from the last.
fn configuration_place(image: &PlacedImage, recent: &VecDeque<Instruction>) -> Option<(Register, u64)> {
    let lea_of = |register: Register, before: usize| {
        let mut loads = recent.iter().take(before).rev().filter(|i| i.op0_kind() == OpKind::Register);
        let last = loads.find(|i| i.op0_register() == register)?;
        (last.mnemonic() == Mnemonic::Lea).then(|| (last.memory_base(), last.memory_displacement64()))
    };
    if image.pe.is_64 {
        return lea_of(Register::R8, recent.len());
    }
    let mut pushes = recent.iter().enumerate().rev().filter(|(_, i)| i.mnemonic() == Mnemonic::Push);
    let (at, push) = pushes.nth(2)?;
    lea_of(push.op0_register(), at)
}

/// The configuration built before a call.
fn configuration(image: &PlacedImage, at: u64, recent: &VecDeque<Instruction>) -> QueueSite {
    let executable = |address: u64| {
        image.rva(address).and_then(|rva| image.pe.section_at(rva)).is_some_and(|s| s.is_executable())
    };
    let stores = stores(recent);
    let mut site = QueueSite { at, manual: false, callbacks: Vec::new() };
    let Some((base, start)) = configuration_place(image, recent) else { return site };
    for &(other, displacement, value) in &stores {
        let field = displacement.wrapping_sub(start) & 0xffff_ffff;
        if other != base {
            continue;
        }
        site.manual |= field == 4 && value == 3;
        let kind = match (image.pe.is_64, field) {
            (true, 0x28) | (false, 0x1c) => EntryKind::WdfDeviceControl,
            (true, 0x30) | (false, 0x20) => EntryKind::WdfInternalDeviceControl,
            (_, 0x10) => EntryKind::WdfDefault,
            _ => continue,
        };
        if executable(value) {
            let major = if kind == EntryKind::WdfInternalDeviceControl { 0x0f } else { 0x0e };
            site.callbacks.push((Address(value), kind, major));
        }
    }
    site
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::rc::Rc;

    use super::*;

    #[test]
    fn sections_over_each_other_cost_no_more_than_one() {
        let file =
            pe::FileImage::new(std::fs::read(test_data::fixture("drivers/bin/x64-clang/d28.sys")).unwrap())
                .unwrap();
        let mut pe = file.pe().clone();
        pe.size_of_image = 0x7000_0000;
        for section in &mut pe.sections {
            (section.rva, section.virtual_size) = (0x1000, 0x6000_0000);
        }
        struct Endless;
        impl pe::ImageSource for Endless {
            fn read_rva(&self, _: u32, buffer: &mut [u8]) -> usize {
                buffer.len()
            }
        }
        let image = PlacedImage::new(Rc::new(pe), Rc::new(Endless), 0x1_4000_0000, "d28").unwrap();
        assert!(image.pe.sections.len() > 1);
        assert_eq!(sections(&image, |_| true).map(|(_, bytes)| bytes.len()).sum::<usize>(), MAX_SEARCH);
        assert_eq!(static_bind(&image), None);
    }
}
