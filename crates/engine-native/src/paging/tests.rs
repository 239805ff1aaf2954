use std::cell::Cell;
use std::collections::BTreeMap;

use proptest::prelude::*;
use target::{Machine, ReadOutcome, Unreadable};

use super::{PAGE_SIZE, PhysicalMemory, SoftwareLayout, Translator};

#[derive(Default)]
struct Frames {
    pages: BTreeMap<u64, Vec<u8>>,
    next: u64,
    reads: Cell<u64>,
}

impl PhysicalMemory for Frames {
    fn read_physical(&self, address: u64, buffer: &mut [u8]) -> ReadOutcome {
        self.reads.set(self.reads.get() + 1);
        let Some(page) = self.pages.get(&(address >> 12)) else {
            return ReadOutcome::stopped(0, Unreadable::NotInDump);
        };
        let offset = usize::try_from(address & 0xfff).unwrap();
        let count = buffer.len().min(page.len() - offset);
        buffer[..count].copy_from_slice(&page[offset..offset + count]);
        if count == buffer.len() {
            ReadOutcome::complete(count)
        } else {
            ReadOutcome::stopped(count, Unreadable::NotInDump)
        }
    }
}

impl Frames {
    fn page(&mut self) -> u64 {
        self.next += 1;
        self.pages.insert(self.next, vec![0; 0x1000]);
        self.next
    }
    fn set(&mut self, frame: u64, index: u64, value: u64) {
        let at = usize::try_from(index * 8).unwrap();
        self.pages.get_mut(&frame).unwrap()[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }
    fn get(&self, frame: u64, index: u64) -> u64 {
        let at = usize::try_from(index * 8).unwrap();
        u64::from_le_bytes(self.pages[&frame][at..at + 8].try_into().unwrap())
    }
    /// Writes `leaf` as the entry of `address` at `level`, making tables on the way.
    fn put(&mut self, root: u64, levels: u32, address: u64, level: u32, table_bits: u64, leaf: u64) {
        let mut table = root;
        for at in (level + 1..=levels).rev() {
            let index = address >> (12 + 9 * (at - 1)) & 0x1ff;
            let entry = self.get(table, index);
            table = if entry == 0 {
                let next = self.page();
                self.set(table, index, next << 12 | table_bits);
                next
            } else {
                entry >> 12 & 0xf_ffff_ffff
            };
        }
        self.set(table, address >> (12 + 9 * (level - 1)) & 0x1ff, leaf);
    }
}

const KERNEL: u64 = 0xffff_a580_0010_0000;

#[test]
fn pages_of_every_size_and_state() {
    let mut frames = Frames::default();
    let root = frames.page();
    let data = frames.page();
    frames.pages.get_mut(&data).unwrap()[..4].copy_from_slice(b"DATA");
    frames.put(root, 4, KERNEL, 1, 0x63, data << 12 | 0x63 | 1 << 63);
    frames.put(root, 4, KERNEL + 0x1000, 1, 0x63, data << 12 | 0x800);
    frames.put(root, 4, KERNEL + 0x2000, 1, 0x63, 0x1234 << 32 | 2 << 12 | 0x80);
    frames.put(root, 4, KERNEL + 0x3000, 1, 0x63, 0x80);
    frames.put(root, 4, KERNEL + 0x4000, 1, 0x63, 0xffff_ffff << 32 | 0x400);
    frames.put(root, 4, 0xffff_a580_4000_0000, 2, 0x63, 0x4000_0000 | 0x1000 | 0xe3);
    frames.put(root, 4, 0xffff_a600_0000_0000, 3, 0x63, 0x1_4000_0000 | 0x1000 | 0xe3);
    let t = Translator::new(frames, Machine::X64, root << 12 | 2);
    let at = |address| t.translate(root << 12 | 2, address);
    let plain = at(KERNEL + 5).unwrap();
    assert_eq!((plain.physical, plain.executable, plain.writable), (data << 12 | 5, false, true));
    assert!(at(KERNEL + 0x1000).unwrap().transition);
    assert_eq!(at(KERNEL + 0x2000), Err(Unreadable::PagedOut { file: 2, offset: 0x1234 }));
    assert_eq!(at(KERNEL + 0x3000), Err(Unreadable::DemandZero));
    assert_eq!(at(KERNEL + 0x4000), Err(Unreadable::NotPresent));
    let large = at(0xffff_a580_4012_3456).unwrap();
    assert_eq!((large.physical, large.page_size), (0x4012_3456, 0x20_0000));
    let huge = at(0xffff_a600_1234_5678).unwrap();
    assert_eq!((huge.physical, huge.page_size), (0x1_5234_5678, 0x4000_0000));
    assert_eq!(at(0x1234_5678_0000_0000), Err(Unreadable::NonCanonical));
    let mut bytes = [0; 4];
    assert_eq!(t.read(root << 12, KERNEL + 0x1000, &mut bytes).stopped, None);
    assert_eq!(&bytes, b"DATA");
    let mut long = [0; 0x1800];
    let outcome = t.read(root << 12, KERNEL + 0x1000, &mut long);
    assert_eq!(outcome.read, 0x1000);
    assert!(matches!(outcome.stopped, Some(Unreadable::PagedOut { .. })));
}

#[test]
fn a_missing_table_is_not_an_absent_page() {
    let mut frames = Frames::default();
    let root = frames.page();
    frames.set(root, KERNEL >> 39 & 0x1ff, 0x7777_0000 | 0x63);
    let t = Translator::new(frames, Machine::X64, root << 12);
    assert_eq!(t.translate(root << 12, KERNEL), Err(Unreadable::PageTableMissing { level: 3 }));
    assert_eq!(t.translate(root << 12, 0), Err(Unreadable::NotPresent));
    assert_eq!(t.translate(0x9_9999_0000, 0), Err(Unreadable::PageTableMissing { level: 4 }));
}

#[test]
fn prototype_entries_are_followed_through_the_system_root() {
    let mut frames = Frames::default();
    let (root, user_root) = (frames.page(), frames.page());
    let (holder, data, moved) = (frames.page(), frames.page(), frames.page());
    let pool = 0xffff_8a00_0000_0000u64;
    frames.put(root, 4, pool, 1, 0x63, holder << 12 | 0x63);
    frames.set(holder, 1, data << 12 | 1);
    frames.set(holder, 2, moved << 12 | 0x800);
    frames.set(holder, 3, 0x55 << 32 | 1 << 12);
    let proto = |index: u64| (pool + 8 * index) << 16 | 0x400;
    for index in 1..=3 {
        frames.put(user_root, 4, 0x1_0000 + 0x1000 * index, 1, 0x67, proto(index));
    }
    let t = Translator::new(frames, Machine::X64, root << 12);
    let at = |index: u64| t.translate(user_root << 12, 0x1_0010 + 0x1000 * index);
    assert_eq!(at(1).unwrap().physical, data << 12 | 0x10);
    assert_eq!(at(2).unwrap().physical, moved << 12 | 0x10);
    assert_eq!(at(3), Err(Unreadable::PagedOut { file: 1, offset: 0x55 }));
}

#[test]
fn swizzled_entries_and_tables_in_transition() {
    let mut frames = Frames::default();
    let root = frames.page();
    let (table, data) = (frames.page(), frames.page());
    let mask = 0x0000_2000_0000_0000u64;
    frames.put(root, 4, KERNEL, 2, 0x63, table << 12 | 0x800 | mask);
    frames.set(table, KERNEL >> 12 & 0x1ff, data << 12 | 0x800 | mask);
    frames.set(table, (KERNEL >> 12 & 0x1ff) + 1, 0x77 << 32 | mask);
    frames.set(table, (KERNEL >> 12 & 0x1ff) + 2, mask);
    let t = Translator::new(frames, Machine::X64, root << 12);
    t.set_software_layout(Some(SoftwareLayout { invalid_mask: mask, ..SoftwareLayout::x64() }));
    assert_eq!(t.translate(root << 12, KERNEL).unwrap().physical, data << 12);
    assert_eq!(
        t.translate(root << 12, KERNEL + PAGE_SIZE),
        Err(Unreadable::PagedOut { file: 0, offset: 0x77 })
    );
    assert_eq!(t.translate(root << 12, KERNEL + 2 * PAGE_SIZE), Err(Unreadable::DemandZero));
}

#[test]
fn five_levels() {
    let mut frames = Frames::default();
    let root = frames.page();
    let data = frames.page();
    let address = 0xff12_3456_789a_b000u64;
    frames.put(root, 5, address, 1, 0x63, data << 12 | 0x63);
    let t = Translator::new(frames, Machine::X64, root << 12);
    assert_eq!(t.translate(root << 12, address), Err(Unreadable::NonCanonical));
    t.set_five_levels(true);
    assert_eq!(t.translate(root << 12, address).unwrap().physical, data << 12);
}

#[test]
fn arm64_halves_blocks_and_tags() {
    let mut frames = Frames::default();
    let root = frames.page();
    let data = frames.page();
    let kernel = 0xffff_f801_bcb3_0000u64;
    frames.put(root, 4, kernel, 1, 3, data << 12 | 3);
    frames.put(root, 4, 0x7ff6_0000_0000, 2, 3, 0x8020_0000 | 1);
    let t = Translator::new(frames, Machine::Arm64, root << 12);
    assert_eq!(t.translate(root << 12, kernel + 8).unwrap().physical, data << 12 | 8);
    // A signed return address: bit 55 still says kernel.
    assert_eq!(t.translate(root << 12, 0x00d7_f801_bcb3_0008).unwrap().physical, data << 12 | 8);
    let block = t.translate(root << 12, 0x7ff6_0012_3456).unwrap();
    assert_eq!((block.physical, block.page_size), (0x8032_3456 & !0x20_0000 | 0x20_0000, 0x20_0000));
    assert_eq!(t.translate(root << 12, kernel + 0x1000), Err(Unreadable::NotPresent));
}

#[test]
fn translations_are_cached() {
    let mut frames = Frames::default();
    let root = frames.page();
    let data = frames.page();
    frames.put(root, 4, KERNEL, 1, 0x63, data << 12 | 0x63);
    let t = Translator::new(frames, Machine::X64, root << 12);
    t.translate(root << 12, KERNEL).unwrap();
    let reads = t.physical().reads.get();
    t.translate(root << 12, KERNEL + 0x10).unwrap();
    assert_eq!(t.physical().reads.get(), reads);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    /// Any bytes as page tables: an answer, never a panic or a loop.
    #[test]
    fn hostile_tables(entries in proptest::collection::vec(any::<u64>(), 512), address: u64, arm: bool) {
        let mut frames = Frames::default();
        for frame in 1..4u64 {
            frames.page();
            for (index, entry) in entries.iter().enumerate() {
                let aimed = entry & !0x000f_ffff_ffff_f000 | (1 + (entry >> 12 & 3)) << 12;
                frames.set(frame, index as u64, if entry & 0x10 == 0 { aimed } else { *entry });
            }
        }
        let machine = if arm { Machine::Arm64 } else { Machine::X64 };
        let t = Translator::new(frames, machine, 0x1000);
        let mut buffer = [0; 0x3000];
        let outcome = t.read(0x1000, address, &mut buffer);
        prop_assert!(outcome.read <= buffer.len());
        t.set_five_levels(true);
        t.read(0x2000, address, &mut buffer);
    }
}
