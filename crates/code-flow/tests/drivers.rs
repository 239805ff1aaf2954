//! Specification 40, section 12.2: D25, D26, D29, D30 on the committed drivers.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod driver_image;

use std::collections::BTreeMap;
use std::rc::Rc;

use code_flow::{
    CodeImage, HopKind, ImageIndex, ImportUse, Search, Standing, Structural, XrefKind, data_pointers, reach,
};
use driver_image::{driver, marks, open};
use target::Halt;

#[test]
fn d25_letters_are_not_port_io() {
    let image = open(&driver("x64-clang", "d25"));
    let [rdmsr, port, lonely, letters] = marks(&image)[..4] else { panic!() };
    let index = ImageIndex::build(&image, &Halt::unbounded());
    let in_function: Vec<u64> =
        index.privileged.iter().filter(|p| p.standing == Standing::InFunction).map(|p| p.at).collect();
    assert_eq!(in_function, [rdmsr, port]);
    assert_eq!(index.privileged_counts[0], 2);
    let gaps: Vec<u64> =
        index.privileged.iter().filter(|p| p.standing == Standing::NoUnwindEntry).map(|p| p.at).collect();
    assert!(gaps.contains(&lonely) && gaps.contains(&(lonely + 1)), "cli and sti of code nobody calls");
    assert!(gaps.contains(&letters), "the letter l decodes as insb");
    assert_eq!(index.privileged_counts[1], gaps.len());
    assert_eq!(index.privileged_counts[2], 0);
    assert!(index.coverage.is_complete(), "{:?}", index.coverage);
}

#[test]
fn d26_every_way_to_call_an_import() {
    let image = open(&driver("x64-clang", "d26"));
    let [direct, thunk, again, tail, register, not_this, taken, _] = marks(&image)[..8] else { panic!() };
    let index = ImageIndex::build(&image, &Halt::unbounded());
    let sites = |name: &str, how: ImportUse| -> Vec<u64> {
        let slot = image.imports().slots.iter().find(|s| s.name.as_deref() == Some(name)).unwrap().slot;
        index.uses(slot).filter(|s| s.how == how).map(|s| s.at).collect()
    };
    assert_eq!(sites("ExAllocatePoolWithTag", ImportUse::Called), [direct]);
    assert_eq!(sites("ExFreePoolWithTag", ImportUse::Called), [thunk, again]);
    assert_eq!(sites("MmMapIoSpace", ImportUse::Called), [register]);
    assert_eq!(sites("MmUnmapIoSpace", ImportUse::Called), [tail]);
    assert_eq!(sites("PsLookupProcessByProcessId", ImportUse::Read), [taken]);
    assert!(sites("PsLookupProcessByProcessId", ImportUse::Called).is_empty());
    assert!(index.imports.iter().all(|site| site.at != not_this), "another path gives that register");
}

#[test]
fn d29_by_kind_is_exact() {
    let image = open(&driver("x64-clang", "d29"));
    let [wanted, call, jump, branch, switch, take, decoy, init, pointer, _] = marks(&image)[..10] else {
        panic!()
    };
    let index = ImageIndex::build(&image, &Halt::unbounded());
    let mut by_kind: BTreeMap<XrefKind, Vec<u64>> = BTreeMap::new();
    for reference in index.to(wanted) {
        by_kind.entry(reference.kind).or_default().push(reference.at);
    }
    by_kind.insert(XrefKind::DataPointer, data_pointers(&image, wanted).iter().map(|p| p.at).collect());
    let expected = BTreeMap::from([
        (XrefKind::Call, vec![call, init]),
        (XrefKind::Jump, vec![jump]),
        (XrefKind::Branch, vec![branch]),
        (XrefKind::Table, vec![switch]),
        (XrefKind::AddressTaken, vec![take]),
        (XrefKind::DataPointer, vec![pointer]),
    ]);
    assert_eq!(by_kind, expected);
    assert!(index.references().all(|r| !(decoy + 1..decoy + 10).contains(&r.at)));
    assert!(index.coverage.is_complete(), "{:?}", index.coverage);
}

fn search(image: &Rc<CodeImage<'static>>, from: u64, target: u64, depth: usize) -> code_flow::Reached {
    let images = |address: u64| image.contains(address).then(|| Rc::clone(image));
    let search = Search {
        images: &images,
        from,
        target,
        max_functions: 256,
        max_depth: depth,
        tables: &Structural,
        cross_image: false,
        halt: &Halt::unbounded(),
    };
    reach(&search).unwrap()
}

#[test]
fn d30_verdicts_and_excuses() {
    let image = Rc::new(open(&driver("x64-clang", "d30")));
    let marks = marks(&image);
    let [direct, tail, by_table, by_pointer, case_a, case_b, recursive, deep, _, chain, ..] = marks[..]
    else {
        panic!()
    };
    let dispatch = image.base + u64::from(image.regions().at(image.rva(case_a).unwrap()).unwrap().begin);
    let from = |start, target| search(&image, start, target, 32);

    let found = from(dispatch, direct);
    assert!(found.reachable && found.started_at.is_none());
    assert_eq!(found.path.iter().map(|hop| hop.kind).collect::<Vec<_>>(), [HopKind::Call]);
    let found = from(dispatch, tail);
    assert_eq!(found.path.iter().map(|hop| hop.kind).collect::<Vec<_>>(), [HopKind::Call, HopKind::TailJump]);
    assert!(from(dispatch, by_table).reachable, "through the switch, then a recursive routine");
    assert!(from(dispatch, recursive).reachable);
    let inside = from(dispatch, direct + 2);
    assert!(inside.reachable && inside.target_in_listing);
    assert_eq!(inside.containing_function, Some(direct));

    let pointer = search(&image, dispatch, by_pointer, 64);
    assert!(!pointer.reachable);
    assert!(pointer.unresolved_count > 0 && !pointer.bound_hit && pointer.blind_stops == 0);

    let case = from(case_a, direct);
    assert!(case.reachable);
    assert_eq!(case.started_at, Some(case_a));
    let sibling = from(case_b, direct);
    assert!(!sibling.reachable, "a sibling case does not lead to it");
    assert_eq!(sibling.started_at, Some(case_b));
    let between = from(case_a + 1, direct);
    assert!(between.from_not_boundary && between.reachable);

    let bounded = search(&image, dispatch, deep, 32);
    assert!(!bounded.reachable && bounded.bound_hit, "40 calls deep");
    let found = search(&image, dispatch, deep, 64);
    assert!(found.reachable);
    assert_eq!(found.path.len(), 42, "Chain, 40 links, Deep");
    assert_eq!(found.path[0].callee, chain);
}

#[test]
fn d30_recipe_names_the_gate() {
    let image = Rc::new(open(&driver("x64-clang", "d30")));
    let marks = marks(&image);
    let (direct, case_a, gate) = (marks[0], marks[4], marks[8]);
    let found = search(&image, case_a, direct, 32);
    let first = &found.functions[0];
    let steps = code_flow::recipe::recipe(&first.listing, &first.blocks, case_a, found.path[0].site).unwrap();
    assert_eq!(steps.len(), 1);
    assert_eq!((steps[0].site, steps[0].taken), (gate, false));
    assert_eq!(steps[0].compares.as_ref().unwrap().value, Some(8));
}
