//! Listings over every committed driver and the shared ones.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod driver_image;

use code::record::Transfer;
use code_flow::{Blocks, ImageIndex, NoTables, Structural, function_at, listing};
use driver_image::{all_drivers, driver, open};
use target::Halt;

#[test]
fn every_driver_lists_without_holes() {
    let drivers = all_drivers();
    assert!(drivers.len() > 60, "{}", drivers.len());
    for path in drivers {
        let image = open(&path);
        let index = ImageIndex::build(&image, &Halt::unbounded());
        assert!(index.coverage.stopped.is_none() && !index.coverage.cap_hit, "{}", path.display());
        let entry = image.base + u64::from(image.pe.entry_point);
        let mut starts: Vec<u64> = index
            .references()
            .filter(|r| {
                r.kind == code_flow::XrefKind::Call
                    && r.standing == code_flow::Standing::InFunction
                    && image.is_executable(r.target)
            })
            .map(|r| r.target)
            .collect();
        starts.push(entry);
        starts.sort_unstable();
        starts.dedup();
        for start in starts {
            let found = listing(&image, start, &Structural, &Halt::unbounded());
            let name = format!("{} {start:#x}", path.display());
            assert!(found.blind.is_empty(), "{name}: blind {:x?}", found.blind);
            assert!(found.overlaps.is_empty(), "{name}: overlaps {:x?}", found.overlaps);
            assert!(found.caps.is_empty(), "{name}");
            let blocks = Blocks::of(&found);
            let in_blocks: usize = blocks.blocks.iter().map(|b| b.instructions.len()).sum();
            assert_eq!(in_blocks, found.instructions.len(), "{name}: every instruction in one block");
            assert_eq!(blocks.reverse_post_order().len(), blocks.blocks.len(), "{name}");
            let ends = found
                .instructions
                .values()
                .any(|i| matches!(i.transfer, Transfer::Return | Transfer::Jump(_) | Transfer::Trap));
            assert!(ends || !found.external_edges.is_empty() || !found.no_return_calls.is_empty(), "{name}");
            assert_eq!(function_at(&image, start), Some(start), "{name}");
        }
    }
}

/// D02's dense switch: the table is found in every build that has one.
#[test]
fn dense_switches_resolve() {
    for build in ["x64-gcc-o0", "x64-gcc-o2", "x64-clang", "x86-gcc", "x86-clang", "arm64-clang"] {
        let image = open(&driver(build, "d02"));
        let index = ImageIndex::build(&image, &Halt::unbounded());
        assert_eq!(index.unresolved_jumps, 0, "{build}");
        assert_eq!(index.coverage.blind, 0, "{build}");
        let tables = index.references().filter(|r| r.kind == code_flow::XrefKind::Table).count();
        assert!(tables >= 9, "{build}: {tables}");
    }
}

/// D08 and D09: MSVC's two-level table, RVAs, offsets from the table; the 8-byte decoy is refused.
#[test]
fn msvc_tables_resolve_and_the_decoy_does_not() {
    for (id, resolved) in [("d08", true), ("d09", true), ("d09b", true), ("d09c", false)] {
        let image = open(&driver("x64-clang", id));
        let index = ImageIndex::build(&image, &Halt::unbounded());
        assert_eq!(index.unresolved_jumps == 0, resolved, "{id}");
    }
}

#[test]
fn without_tables_the_cases_are_missing_and_said_so() {
    let image = open(&driver("x64-clang", "d08"));
    let index = ImageIndex::build(&image, &Halt::unbounded());
    let jump = index.references().find(|r| r.kind == code_flow::XrefKind::Table).unwrap().at;
    let entry = function_at(&image, jump).unwrap();
    let without = listing(&image, entry, &NoTables, &Halt::unbounded());
    let with = listing(&image, entry, &Structural, &Halt::unbounded());
    assert_eq!(without.unresolved.len(), 1);
    assert!(with.unresolved.is_empty());
    assert!(with.instructions.len() > without.instructions.len());
}
