//! Rows of spec 40 section 12.2 that are about more than the set of codes.

use super::*;
use analysis_ioctl::map::RecoveredBy;

const X64: [&str; 4] = ["x64-gcc-o0", "x64-gcc-o2", "x64-gcc-os", "x64-clang"];

/// D02: the hole is no code, and every code decodes as `neither`, `any`.
#[test]
fn d02_the_hole_of_a_dense_switch() {
    for build in BUILDS {
        let map = driver_map(build, "d02");
        assert!(!codes(&map).contains(&0x22_2013), "{build}");
        assert!(
            map.codes.iter().all(|row| row.method == "neither" && row.required_access == "any"),
            "{build}"
        );
    }
}

/// D03: bit tests part the codes between two handlers.
#[test]
fn d03_bit_tests_have_two_handlers() {
    for build in BUILDS {
        let map = driver_map(build, "d03");
        let handler = |code| row(&map, code).handler.as_ref().map(|h| h.address);
        let first: BTreeSet<_> = [0x22_2400, 0x22_2404, 0x22_240c, 0x22_2410, 0x22_2418].map(handler).into();
        let second: BTreeSet<_> = [0x22_2408, 0x22_2414].map(handler).into();
        assert_eq!((first.len(), second.len()), (1, 1), "{build}");
        assert_ne!(first, second, "{build}");
        let bits = map.codes.iter().flat_map(|r| &r.sites).filter(|s| s.recovered == RecoveredBy::BitTest);
        assert!(bits.count() >= 5, "{build}");
    }
}

/// D05: patterns beside the 96 codes, through a table of pointers.
#[test]
fn d05_patterns_of_a_pointer_table() {
    for build in BUILDS {
        let map = driver_map(build, "d05");
        assert_eq!(map.code_count, 96, "{build}");
        let rows: BTreeSet<(u32, u32)> = map.patterns.iter().map(|p| (p.mask.0, p.value.0)).collect();
        let wanted = (0..6).map(|k| (0xffff_3ffc, 0x22_2000 + 4 * k)).collect();
        assert_eq!(rows, wanted, "{build}");
    }
}

/// D08: the table's size and what of it is followed.
#[test]
fn d08_entries_of_a_two_level_table() {
    let map = driver_map("x64-clang", "d08");
    let table = map.tables.first().unwrap();
    assert_eq!((table.entries, table.followed, table.form.as_str()), (21, 5, "byte_map"));
}

/// D12: codes are found behind the inner call, which is named.
#[test]
fn d12_codes_come_through_an_inner_routine() {
    for build in ["x64-gcc-o0", "x64-clang", "x86-gcc", "arm64-clang"] {
        let map = driver_map(build, "d12");
        assert_eq!(map.code_count, 4, "{build}");
        if build == "x64-gcc-o0" {
            assert!(map.codes.iter().all(|r| r.sites.iter().all(|s| !s.via.is_empty())), "{build}: {map:?}");
            assert!(map.codes.iter().all(|r| r.dispatch_rva.is_some()), "{build}");
        }
    }
}

/// D12: what is not followed is said.
#[test]
fn d12_calls_that_are_not_followed_are_said() {
    let image = driver("x64-gcc-o0", "d12").unwrap();
    let map = map(&image, &MapRequest { descend: false, ..first_request("x64-gcc-o0", "d12") });
    assert!(codes(&map).is_empty() && !map.untracked.is_empty() && !map.complete, "{map:?}");
}

/// D15: nothing proves where the cached stack location comes from.
#[test]
fn d15_a_cached_stack_location_proves_nothing() {
    for build in BUILDS {
        let map = driver_map(build, "d15");
        assert_eq!(codes(&map), [0x22_2003, 0x22_2007, 0x9c40_2004].into(), "{build}");
        assert!(!map.code_proved, "{build}");
        assert!(map.codes.iter().all(|r| r.sites.iter().all(|s| !s.proved)), "{build}");
        assert_eq!(map.unproved_count, 3, "{build}");
    }
}

/// D16: a decoy at the same offset never borrows the code's proof.
#[test]
fn d16_a_decoy_stays_unproved() {
    for build in BUILDS {
        let map = driver_map(build, "d16");
        assert!(row(&map, 0x22_2004).sites.iter().any(|s| s.proved), "{build}");
        if let Some(decoy) = map.codes.iter().find(|r| r.code.0 == 0x22_200b) {
            assert!(decoy.sites.iter().all(|s| !s.proved), "{build}");
            assert!(!map.code_proved);
        }
    }
}

/// D17: half a code is a pattern, not a code.
#[test]
fn d17_a_narrow_compare_is_a_pattern() {
    for build in X64 {
        let map = driver_map(build, "d17");
        assert_eq!(map.code_count, 0, "{build}: {:?}", map.codes.first());
        let pattern = map.patterns.first().unwrap_or_else(|| panic!("{build}: no pattern"));
        assert_eq!((pattern.mask.0, pattern.value.0, pattern.count), (0xffff, 0x2003, 65_536), "{build}");
        assert!(!pattern.listed);
    }
}

/// D20: run-time pointers are said to be unresolved.
#[test]
fn d20_runtime_pointers_are_unresolved() {
    for build in BUILDS {
        let map = driver_map(build, "d20");
        assert!(!map.unresolved.is_empty() && !map.complete, "{build}");
    }
}

/// An image whose section `PAGEHOLE` is not readable.
struct Holed(pe::FileImage<Vec<u8>>);

impl pe::ImageSource for Holed {
    fn read_rva(&self, rva: u32, buffer: &mut [u8]) -> usize {
        let hole = self.0.pe().sections.iter().find(|s| s.name.starts_with("PAGEHOLE")).unwrap();
        let end = hole.rva + 0x1000;
        if (hole.rva..end).contains(&rva) {
            return 0;
        }
        let room = if rva < hole.rva { (hole.rva - rva) as usize } else { buffer.len() };
        let count = room.min(buffer.len());
        self.0.read_rva(rva, &mut buffer[..count])
    }
}

/// D21: with a page of code gone, codes before it are kept and the map says it is blind.
#[test]
fn d21_a_hole_is_not_the_end_of_the_list() {
    for build in BUILDS {
        let bytes = std::fs::read(path(build, "d21")).unwrap();
        let request = first_request(build, "d21");
        let file = pe::FileImage::new(bytes).unwrap();
        let module = module(&file);
        let image = CodeImage::open(&module, Box::new(Whole(Holed(file), Origin::ImageFile))).unwrap();
        let map = map(&image, &request);
        assert!(map.blind > 0, "{build}: {map:?}");
        assert!(!map.complete, "{build}");
        let known = codes(&map);
        assert!([0x22_2003, 0x22_2007, 0x22_200b].iter().all(|c| known.contains(c)), "{build}: {known:x?}");
        assert!(
            known.iter().all(|c| [0x22_2003, 0x22_2007, 0x22_200b, 0x22_2400, 0x22_2404].contains(c)),
            "{build}"
        );
    }
}

/// D22: the list is cut, the count is not.
#[test]
fn d22_a_flood_is_counted_exactly() {
    let image = driver("x64-clang", "d22").unwrap();
    let request = MapRequest { max_codes: 100, ..first_request("x64-clang", "d22") };
    let map = map(&image, &request);
    assert_eq!((map.code_count, map.codes.len()), (5000, 100));
    assert!(map.coverage.cap_hit && !map.complete);
}

/// D23: facts of a data flow that did not settle are stronger than the truth, so none is told.
#[test]
fn d23_an_unsettled_flow_tells_nothing() {
    for build in BUILDS {
        let image = driver(build, "d23").unwrap();
        let usual = first_request(build, "d23");
        let settled = map(&image, &usual);
        assert!(settled.complete && settled.code_count == 3, "{build}: {settled:?}");
        let map = map(&image, &MapRequest { sweeps: 1, ..usual });
        assert!(map.unsettled && !map.complete, "{build}: {map:?}");
        assert!(map.codes.iter().all(|row| row.sites.iter().all(|site| !site.proved)), "{:?}", map.codes);
        assert!(map.default.is_none() && map.patterns.is_empty() && map.tables.is_empty(), "{build}");
    }
}

/// D32: a fast-I/O routine is a second entry with a set of its own; its lengths count, and what it
/// answers FALSE to is left to the other entry.
#[test]
fn d32_fast_io_is_a_way_of_its_own() {
    for build in BUILDS {
        let found = replayed(std::fs::read(path(build, "d32")).unwrap());
        let kinds: Vec<EntryKind> = found.entries.iter().map(|entry| entry.kind).collect();
        assert_eq!(kinds, [EntryKind::Wdm, EntryKind::FastIo], "{build}");
        let image = driver(build, "d32").unwrap();
        let fast = map(&image, &request(&found.entries[1], None));
        assert_eq!(codes(&fast), [0x22_2003, 0x22_2400, 0x22_2404, 0x22_e40c].into(), "{build}: {fast:?}");
        assert!(fast.complete && fast.code_proved, "{build}: {fast:?}");
        assert!(fast.codes.iter().all(|r| r.sites.iter().all(|s| s.verified == Some(true))), "{build}");
        let sized = row(&fast, 0x22_e40c);
        assert_eq!((sized.in_range.and_then(|r| r.min), sized.out_size), (Some(24), Some(8)), "{build}");
        let handlers = [0x22_2003, 0x22_2400].map(|code| row(&fast, code).handler.clone().map(|h| h.address));
        assert!(handlers[0].is_some() && handlers[0] == handlers[1], "{build}: {handlers:?}");
        let wdm = map(&image, &request(&found.entries[0], None));
        assert_eq!(codes(&wdm), [0x22_2003, 0x22_2007, 0x9c40_a004].into(), "{build}: {wdm:?}");
    }
}

/// D28: KMDF callbacks and their codes, with the table as an array and as a pointer.
#[test]
fn d28_framework_callbacks() {
    for id in ["d28", "d28b"] {
        for build in BUILDS {
            let Some(image) = driver(build, id) else { continue };
            let found = replayed(std::fs::read(path(build, id)).unwrap());
            let of = |kind| {
                let entry = found.entries.iter().find(|e| e.kind == kind);
                let entry = entry.unwrap_or_else(|| panic!("{build}/{id}: no {kind:?} in {found:?}"));
                map(&image, &request(entry, found.bind.as_ref()))
            };
            let control = of(EntryKind::WdfDeviceControl);
            assert_eq!(
                codes(&control),
                [0x22_2003, 0x22_200e, 0x9c40_2011].into(),
                "{build}/{id}: {control:?}"
            );
            assert!(control.code_proved, "{build}/{id}");
            let context = of(EntryKind::WdfInCallerContext);
            assert_eq!(codes(&context), [0x22_e003].into(), "{build}/{id}: {context:?}");
        }
    }
}

/// D06b: forty entries searched in a loop: each is found, its handler named, its round checked.
#[test]
fn d06b_a_table_searched_in_a_loop() {
    let mut scanned = 0;
    for build in BUILDS {
        let map = driver_map(build, "d06b");
        if !map.complete {
            continue;
        }
        assert_eq!(map.code_count, 40, "{build}");
        scanned += 1;
        let sites = map.codes.iter().flat_map(|row| &row.sites);
        assert!(sites.clone().all(|site| site.recovered == RecoveredBy::TableScan), "{build}");
        assert!(sites.clone().all(|site| site.verified == Some(true)), "{build}");
        let handlers: BTreeSet<_> =
            map.codes.iter().filter_map(|r| r.handler.as_ref().map(|h| h.address)).collect();
        assert!(handlers.len() > 1, "{build}: {handlers:?}");
    }
    assert!(scanned >= 4, "{scanned} builds");
}
