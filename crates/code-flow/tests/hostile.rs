//! D31 and the rest of what is hostile: headers that lie, code made to confuse, pages that are gone.
//! Everything is refused or recorded, nothing panics, nothing runs away.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod driver_image;

use code_flow::{
    Blocks, CodeImage, ImageIndex, Origin, PageRead, PageSource, Structural, data_pointers, listing,
    mitigations,
};
use driver_image::{
    AtBase, CODE, CONSTANT, DATA, Part, all_drivers, build, driver, module, open, open_bytes,
};
use pe::{FileImage, ImageSource};
use proptest::prelude::*;
use target::Halt;

const BASE: u64 = 0x1_4000_0000;

/// Everything that reads an image.
fn exercise(image: &CodeImage<'_>) -> ImageIndex {
    let halt = Halt::unbounded();
    let index = ImageIndex::build(image, &halt);
    assert!(index.coverage.scanned_bytes <= 16 << 20);
    assert!(index.coverage.scanned.len() <= 256 && index.coverage.unreadable.len() <= 256);
    let sum: usize = index.privileged_counts.iter().sum();
    assert!(index.privileged.len() <= sum);
    let entry = image.base + u64::from(image.pe.entry_point);
    let mut starts: Vec<u64> = image.starts().sure.iter().copied().take(8).collect();
    starts.push(entry);
    for start in starts {
        let found = listing(image, start, &Structural, &halt);
        assert!(found.instructions.len() <= 65_536);
        let blocks = Blocks::of(&found);
        assert_eq!(blocks.reverse_post_order().len(), blocks.blocks.len());
        for step in blocks.blocks.iter().take(4).flat_map(|b| b.instructions.last().copied()) {
            let _ = code_flow::recipe::recipe(&found, &blocks, start, step);
        }
    }
    let _ = (mitigations(image), data_pointers(image, entry), code_flow::wdf::wdf_table(image));
    index
}

#[test]
fn sections_that_lie() {
    let text = [0xc3; 16];
    let part = |name, rva, size, what| Part(name, rva, size, what, &text);
    // Past the image: recorded as unreadable, not skipped.
    let image = open_bytes("past", build(0x3000, &[part(".text", 0x1000, 0x8000, CODE)], &[])).unwrap();
    let index = exercise(&image);
    assert_eq!(index.coverage.unreadable_bytes, 0x6000);
    assert!(!index.coverage.is_complete());
    // Wholly outside, and one whose end wraps.
    let parts = [
        part(".text", 0x1000, 16, CODE),
        part("far", 0x9000_0000, 16, CODE),
        part("w", 0xffff_f000, 0x2000, CODE),
    ];
    let image = open_bytes("outside", build(0x3000, &parts, &[])).unwrap();
    let index = exercise(&image);
    assert_eq!(index.coverage.scanned_bytes, 16);
    assert_eq!(index.coverage.unreadable.len(), 2);
    // Overlapping: no byte is decoded twice.
    let parts = [part("a", 0x1000, 0x1000, CODE), part("b", 0x1800, 0x1000, CODE)];
    let index = exercise(&open_bytes("overlap", build(0x4000, &parts, &[])).unwrap());
    assert_eq!(index.coverage.scanned_bytes, 0x1800);
    // More than the loader takes.
    let many: Vec<Part<'_>> = (0..97).map(|i| part("s", 0x1000 + i * 0x1000, 16, CODE)).collect();
    let mut bytes = build(0x80_0000, &many[..80], &[]);
    bytes[0x86] = 97;
    assert!(open_bytes("many", bytes).err().unwrap().contains("97 sections"));
}

#[test]
fn a_huge_section_is_cut_and_said_so() {
    let parts = [Part(".text", 0x1000, 0x4000_0000, CODE, &[0xc3])];
    let image = open_bytes("huge", build(0x4100_0000, &parts, &[])).unwrap();
    let index = exercise(&image);
    assert_eq!(index.coverage.caps, ["code_bytes"]);
    assert!(!index.coverage.is_complete());
}

#[test]
fn import_directories_that_lie() {
    let text = [0xc3];
    let image = |rdata: &[u8], directory: (usize, u32, u32)| {
        let parts = [Part(".text", 0x1000, 1, CODE, &text), Part(".rdata", 0x2000, 0x1000, CONSTANT, rdata)];
        open_bytes("imports", build(0x3000, &parts, &[directory])).unwrap()
    };
    let half = image(&[0; 64], (1, 0x2ff0, 40));
    assert!(half.imports().slots.is_empty());
    assert!(half.imports().problem.as_deref().unwrap().contains("past the image"));
    let absent = image(&[0; 64], (1, 0xffff_fff0, 40));
    assert!(absent.imports().problem.is_some());
    exercise(&absent);
    // One library whose lookup table is its own descriptor, for ever.
    let mut rdata = vec![1u8; 0x1000];
    for (at, value) in [(0, 0x2000u32), (12, 0x2100), (16, 0x2000)] {
        rdata[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }
    let own = image(&rdata, (1, 0x2000, 40));
    assert!(own.imports().problem.is_some(), "{:?}", own.imports().slots.len());
}

/// D26: by ordinal; without a lookup table; one name a thousand times.
#[test]
fn imports_of_every_kind() {
    let mut rdata = vec![0u8; 0x6000];
    let put =
        |rdata: &mut Vec<u8>, at: usize, bytes: &[u8]| rdata[at..at + bytes.len()].copy_from_slice(bytes);
    let word = |value: u32| value.to_le_bytes();
    // Descriptors: (lookup, name, slots).
    for (index, (lookup, name, slots)) in
        [(0x2100u32, 0x2080u32, 0x2140u32), (0, 0x2090, 0x2180), (0x3000, 0x20a0, 0x5000)]
            .into_iter()
            .enumerate()
    {
        put(&mut rdata, index * 20, &word(lookup));
        put(&mut rdata, index * 20 + 12, &word(name));
        put(&mut rdata, index * 20 + 16, &word(slots));
    }
    put(&mut rdata, 0x80, b"a.sys\0");
    put(&mut rdata, 0x90, b"b.sys\0");
    put(&mut rdata, 0xa0, b"c.sys\0");
    put(&mut rdata, 0xb0, b"\0\0MmMapIoSpace\0");
    put(&mut rdata, 0x100, &(1u64 << 63 | 7).to_le_bytes());
    put(&mut rdata, 0x108, &0x20b0u64.to_le_bytes());
    put(&mut rdata, 0x180, &0x20b0u64.to_le_bytes());
    for index in 0..1000 {
        put(&mut rdata, 0x1000 + index * 8, &0x20b0u64.to_le_bytes());
    }
    let parts = [Part(".text", 0x1000, 1, CODE, &[0xc3]), Part(".rdata", 0x2000, 0x6000, DATA, &rdata)];
    let image = open_bytes("kinds", build(0x8000, &parts, &[(1, 0x2000, 80)])).unwrap();
    let imports = image.imports();
    assert_eq!(imports.problem, None);
    assert_eq!(imports.slots.len(), 2 + 1 + 1000);
    assert_eq!(imports.ordinal_imports, 1);
    assert_eq!(imports.slots[0].ordinal, Some(7));
    let of =
        |library: &str| imports.slots.iter().filter(|s| s.library == library && s.name.is_some()).count();
    assert_eq!((of("a.sys"), of("b.sys"), of("c.sys")), (1, 1, 1000));
    assert_eq!(imports.at_slot(BASE + 0x2180).unwrap().name.as_deref(), Some("MmMapIoSpace"));
    assert!(imports.unnamed_libraries.is_empty(), "in a file the slots still hold the names");
}

#[test]
fn overlapping_instructions_and_opaque_predicates() {
    // jmp into the last byte of itself: eb ff | ff c0 (inc eax); xor eax,eax; jz over a byte that
    // swallows the next instruction; a call of its own middle.
    let text = [
        0xeb, 0xff, 0xc0, 0x31, 0xc0, 0x74, 0x01, 0xe8, 0xb8, 0xc3, 0x90, 0x90, 0x90, 0xe8, 0xf8, 0xff, 0xff,
        0xff, 0xc3,
    ];
    let image =
        open_bytes("overlaps", build(0x2000, &[Part(".text", 0x1000, text.len() as u32, CODE, &text)], &[]))
            .unwrap();
    let index = exercise(&image);
    assert!(index.coverage.stopped.is_none());
    let found = listing(&image, BASE + 0x1000, &Structural, &Halt::unbounded());
    assert!(!found.overlaps.is_empty());
    let blocks = Blocks::of(&found);
    let known: usize = blocks.blocks.iter().map(|b| b.instructions.len()).sum();
    assert!(known >= found.instructions.len());
}

/// cmp ecx, LIMIT; ja ret; lea rdx, [table]; movsxd rcx, [rdx+rcx*4]; add rcx, rdx; jmp rcx; ret.
fn switch(limit: u32) -> Vec<u8> {
    let mut text = vec![0x81, 0xf9];
    text.extend_from_slice(&limit.to_le_bytes());
    text.extend_from_slice(&[0x77, 0x10, 0x48, 0x8d, 0x15]);
    text.extend_from_slice(&(0x2000i32 - 0x100f).to_le_bytes());
    text.extend_from_slice(&[0x48, 0x63, 0x0c, 0x8a, 0x48, 0x01, 0xd1, 0xff, 0xe1, 0xc3]);
    text
}

#[test]
fn a_table_of_a_million_slots_is_not_resolved() {
    for (limit, resolved) in [(7, true), (4095, true), (4096, false), (1_000_000, false), (u32::MAX, false)] {
        let text = switch(limit);
        let table: Vec<u8> = (0..4096).flat_map(|_| (-0x1000i32 + 0x18).to_le_bytes()).collect();
        let parts = [
            Part(".text", 0x1000, text.len() as u32, CODE, &text),
            Part(".rdata", 0x2000, 0x4000, CONSTANT, &table),
        ];
        let image = open_bytes("switch", build(0x10000, &parts, &[])).unwrap();
        let found = listing(&image, BASE + 0x1000, &Structural, &Halt::unbounded());
        assert_eq!(found.unresolved.is_empty(), resolved, "{limit}: {:?}", found.unresolved);
        assert_eq!(found.tables.len(), usize::from(resolved));
    }
    // A table in memory that can be written proves nothing.
    let text = switch(3);
    let table: Vec<u8> = (0..4).flat_map(|_| (-0x1000i32 + 0x18).to_le_bytes()).collect();
    let parts =
        [Part(".text", 0x1000, text.len() as u32, CODE, &text), Part(".data", 0x2000, 0x100, DATA, &table)];
    let image = open_bytes("writable", build(0x3000, &parts, &[])).unwrap();
    let found = listing(&image, BASE + 0x1000, &Structural, &Halt::unbounded());
    assert_eq!(found.unresolved.len(), 1);
}

/// Names of another image, as a live kernel has them.
struct Kernel;

impl code_flow::Names for Kernel {
    fn nearest(&self, _: u64) -> Option<(String, u64)> {
        None
    }
    fn functions(&self, _: u64, _: u64) -> Vec<u64> {
        Vec::new()
    }
    fn bound(&self, address: u64) -> Option<(String, String)> {
        let name = match address - BASE {
            0x10_0000 => "_guard_retpoline_switchtable_jump_rcx",
            0x10_1000 => "ExAllocatePool2",
            _ => return None,
        };
        Some(("ntoskrnl.exe".to_owned(), name.to_owned()))
    }
}

/// The loader of a live kernel makes `jmp rcx` a direct jump to a thunk.
#[test]
fn a_switch_behind_a_retpoline_resolves() {
    let mut text = switch(7);
    let jump = text.len() - 3;
    text.truncate(jump);
    text.push(0xe9);
    text.extend_from_slice(&(0x10_0000i32 - (0x1000 + jump as i32 + 5)).to_le_bytes());
    text.push(0xc3);
    // The branch over the table goes three bytes further.
    text[7] += 3;
    let table: Vec<u8> = (0..8).flat_map(|_| (-0x1000i32 + jump as i32 + 5).to_le_bytes()).collect();
    let parts = [
        Part(".text", 0x1000, text.len() as u32, CODE, &text),
        Part(".rdata", 0x2000, 0x100, CONSTANT, &table),
    ];
    let image = open_bytes("retpoline", build(0x3000, &parts, &[])).unwrap().with_names(Box::new(Kernel));
    let found = listing(&image, BASE + 0x1000, &Structural, &Halt::unbounded());
    assert_eq!(found.tables.len(), 1, "{:?} {:?}", found.unresolved, found.external_edges);
    assert!(found.external_edges.is_empty());
    let blocks = Blocks::of(&found);
    assert!(
        blocks
            .blocks
            .iter()
            .any(|block| block.successors.iter().any(|(_, e)| matches!(e, code_flow::Edge::Table(0))))
    );
}

#[test]
fn a_routine_without_end_is_capped() {
    let text = vec![0x90; 0x2_0000];
    let image =
        open_bytes("flood", build(0x3_0000, &[Part(".text", 0x1000, 0x2_0000, CODE, &text)], &[])).unwrap();
    let found = listing(&image, BASE + 0x1000, &Structural, &Halt::unbounded());
    assert_eq!(found.instructions.len(), 65_536);
    assert_eq!(found.caps, ["listing_instructions"]);
    exercise(&image);
}

/// An image some of whose pages are gone.
struct Holes(AtBase, Vec<u32>);

impl PageSource for Holes {
    fn read_page(&self, rva: u32, buffer: &mut [u8]) -> PageRead {
        let gone = self.1.contains(&(rva / 0x1000));
        let read = if gone { 0 } else { self.0.read_rva(rva, buffer) };
        PageRead { read, origin: Origin::Target }
    }
}

fn with_holes(id: &str, pages: &[u32]) -> CodeImage<'static> {
    let file = FileImage::new(std::fs::read(driver("x64-clang", id)).unwrap()).unwrap();
    let (base, size) = (file.pe().image_base, u64::from(file.pe().size_of_image));
    let source = Holes(AtBase(file, base), pages.to_vec());
    CodeImage::open(&module(id, base, size), Box::new(source)).unwrap()
}

#[test]
fn a_page_that_is_gone_is_unknown_not_absent() {
    let whole = open(&driver("x64-clang", "d29"));
    let wanted = driver_image::marks(&whole)[0];
    let all = ImageIndex::build(&whole, &Halt::unbounded());
    // INIT is gone, as on a running system.
    let image = with_holes("d29", &[7]);
    let index = exercise(&image);
    assert_eq!(index.to(wanted).count() + 1, all.to(wanted).count());
    assert!(index.coverage.unreadable_bytes > 0 && !index.coverage.is_complete());
    // The code is paged out.
    let image = with_holes("d29", &[1]);
    let index = exercise(&image);
    assert!(!index.coverage.is_complete());
    let found = listing(&image, image.base + 0x1000, &Structural, &Halt::unbounded());
    assert_eq!(found.blind, [image.base + 0x1000]);
    // The import directory is gone.
    let rva = whole.pe.directories[1].0;
    let image = with_holes("d29", &[rva / 0x1000]);
    assert!(image.imports().slots.is_empty() && image.imports().problem.is_some());
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize
    }
}

#[test]
fn mutated_drivers() {
    let drivers: Vec<Vec<u8>> =
        all_drivers().iter().step_by(9).map(|path| std::fs::read(path).unwrap()).collect();
    let mut random = Random(0x5eed);
    let mut opened = 0;
    for round in 0..400 {
        let mut bytes = drivers[round % drivers.len()].clone();
        let area = if round % 2 == 0 { bytes.len().min(0x400) } else { bytes.len() };
        for _ in 0..1 + random.next() % 12 {
            let at = random.next() % area;
            bytes[at] = match random.next() % 4 {
                0 => 0,
                1 => 0xff,
                _ => random.next() as u8,
            };
        }
        if round % 7 == 0 {
            bytes.truncate(random.next() % bytes.len());
        }
        if let Ok(image) = open_bytes("mutated", bytes) {
            opened += 1;
            exercise(&image);
        }
    }
    assert!(opened > 100, "{opened}");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    #[test]
    fn random_code(text in proptest::collection::vec(any::<u8>(), 1..2048), rdata in proptest::collection::vec(any::<u8>(), 0..256)) {
        let parts = [
            Part(".text", 0x1000, text.len() as u32, CODE, &text),
            Part(".rdata", 0x2000, 0x1000, CONSTANT, &rdata),
        ];
        let image = open_bytes("random", build(0x3000, &parts, &[(3, 0x2000, 120)])).unwrap();
        let index = exercise(&image);
        // Every instruction of the references lies in the code, and the same walk gives the same answer.
        prop_assert!(index.references().all(|r| image.contains(r.at)));
        let again = ImageIndex::build(&open_bytes("random", build(0x3000, &parts, &[(3, 0x2000, 120)])).unwrap(), &Halt::unbounded());
        prop_assert!(index.references().eq(again.references()));
        prop_assert_eq!(index.privileged_counts, again.privileged_counts);
    }
}

#[test]
fn a_spent_budget_says_so() {
    let image = open(&driver("x64-clang", "d22"));
    let halt = Halt::within(std::time::Duration::ZERO);
    let index = ImageIndex::build(&image, &halt);
    assert_eq!(index.coverage.stopped, Some(code_flow::Stopped::Deadline));
    assert!(!index.coverage.is_complete());
    let found = listing(&image, image.base + u64::from(image.pe.entry_point), &Structural, &halt);
    assert_eq!(found.stopped, Some(code_flow::Stopped::Deadline));
}
