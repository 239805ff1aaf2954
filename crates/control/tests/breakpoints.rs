//! The rules of breakpoints, row by row of spec 10 section 7.3's table: what is refused leaves the
//! inventory as it was.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use control::{Wanted, clear, list, set};
use target::capability::{Access, Breakpoint};
use target::scripted::{ScriptRun, ScriptedTarget};
use target::{Breakpoints as _, Halt, Machine, TargetError, TargetKind, Thread};

fn live() -> ScriptedTarget {
    ScriptedTarget::new(Machine::X64)
        .with_module("victim", 0x1000, 0x2000)
        .with_memory(0x1000, vec![0x90; 0x2000])
        .with_symbol("victim", "poke", 0x1100)
        .with_symbol("victim", "g_watch", 0x2100)
        .with_value("victim+0x100", 0x1100)
        .with_thread(Thread { system_id: 7, ..Thread::default() }, None)
        .with_runs(vec![ScriptRun::default()])
}

fn at(expression: &str) -> Wanted {
    Wanted { expression: Some(expression.to_owned()), pass_count: 1, ..Wanted::default() }
}

fn watch(expression: &str, access: Access, size: u8) -> Wanted {
    Wanted { watch: Some((access, size)), ..at(expression) }
}

fn ids(target: &ScriptedTarget) -> Vec<u32> {
    list(target).unwrap().iter().map(|b| b.id).collect()
}

fn refused(target: &ScriptedTarget, wanted: &Wanted) -> (&'static str, String) {
    let before = list(target).unwrap();
    let error = set(target, wanted, &Halt::unbounded()).unwrap_err();
    assert_eq!(list(target).unwrap(), before, "the inventory is unchanged");
    (error.category().0, error.to_string())
}

#[test]
fn a_symbol_becomes_an_address() {
    let target = live();
    let change = set(&target, &at("victim!poke"), &Halt::unbounded()).unwrap();
    let set = serde_json::to_value(&change.breakpoint).unwrap();
    assert_eq!(set["address"], "0x0000000000001100");
    assert_eq!(
        (&set["module"], &set["rva"], &set["kind"]),
        (&"victim".into(), &"0x100".into(), &"code".into())
    );
    assert_eq!(set.get("deferred"), None);
    assert_eq!(change.breakpoints.unwrap().len(), 1);
}

#[test]
fn a_loaded_module_without_the_symbol_is_refused() {
    let (category, message) = refused(&live(), &at("victim!nosuch"));
    assert_eq!(category, "debugger");
    assert!(message.contains("victim is loaded") && message.contains("only its exports"), "{message}");
}

#[test]
fn unreadable_code_is_refused() {
    let (category, message) = refused(&live(), &at("0x9000"));
    assert_eq!(category, "debugger");
    assert!(message.contains("0x0000000000009000"), "{message}");
}

#[test]
fn a_fifth_data_breakpoint_is_refused_and_names_the_four() {
    let target = live();
    for address in ["0x2000", "0x2008", "0x2010", "0x2018"] {
        set(&target, &watch(address, Access::Write, 8), &Halt::unbounded()).unwrap();
    }
    let (category, message) = refused(&target, &watch("0x2020", Access::Write, 8));
    assert_eq!(category, "debugger");
    assert!(message.contains("0, 1, 2, 3"), "{message}");
    // One that takes the place of another needs no slot more.
    let change = set(&target, &watch("0x2008", Access::Write, 8), &Halt::unbounded()).unwrap();
    assert_eq!(change.replaced, [1]);
    set(&target, &at("victim!poke"), &Halt::unbounded()).unwrap();
}

#[test]
fn an_unqualified_unknown_name_is_told_how_to_wait() {
    let (category, message) = refused(&live(), &at("nosuch"));
    assert_eq!(category, "debugger");
    assert!(message.contains("module!nosuch"), "{message}");
}

#[test]
fn a_misaligned_watch_is_refused() {
    let (category, message) = refused(&live(), &watch("0x2101", Access::Write, 4));
    assert_eq!(category, "invalid_argument");
    assert!(message.contains("0x0000000000002100"), "{message}");
    set(&live(), &watch("0x2101", Access::Write, 1), &Halt::unbounded()).unwrap();
}

#[test]
fn sizes_and_accesses_that_do_not_exist() {
    for (access, size) in [(Access::Write, 3), (Access::Write, 0), (Access::Execute, 4), (Access::Io, 1)] {
        assert_eq!(
            refused(&live(), &watch("0x2000", access, size)).0,
            "invalid_argument",
            "{access:?} {size}"
        );
    }
    let narrow = ScriptedTarget::new(Machine::X86).with_runs(vec![ScriptRun::default()]);
    assert_eq!(refused(&narrow, &watch("0x2000", Access::Write, 8)).0, "invalid_argument");
    let kernel = live().with_facts(|facts| facts.kind = TargetKind::Kernel);
    set(&kernel, &watch("0x60", Access::Io, 1), &Halt::unbounded()).unwrap();
}

#[test]
fn a_module_that_is_not_loaded_defers() {
    let target = live();
    for expression in ["nope!x", "nope!x+0x10", "nope+0x1654", "nope!ns::f<int>"] {
        let change = set(&target, &at(expression), &Halt::unbounded()).unwrap();
        assert!(change.breakpoint.deferred && change.breakpoint.address.is_none(), "{expression}");
        assert_eq!(change.breakpoint.expression.as_deref(), Some(expression));
    }
    assert_eq!(refused(&target, &watch("nope!x", Access::Write, 4)).0, "debugger");
}

#[test]
fn the_same_place_twice_is_one_breakpoint() {
    let target = live();
    set(&target, &at("victim!poke"), &Halt::unbounded()).unwrap();
    let conditional = Wanted { condition: Some("@rcx == 1".to_owned()), ..at("victim+0x100") };
    let change = set(&target, &conditional, &Halt::unbounded()).unwrap();
    assert_eq!(change.replaced, [0]);
    assert_eq!(ids(&target), [1]);
    // Another kind at the same address is another breakpoint.
    let change = set(&target, &watch("victim!poke", Access::Execute, 1), &Halt::unbounded()).unwrap();
    assert!(change.replaced.is_empty());
    assert_eq!(ids(&target), [1, 2]);
}

#[test]
fn one_that_cannot_be_replaced_leaves_the_old_one() {
    let target = live();
    set(&target, &at("victim!poke"), &Halt::unbounded()).unwrap();
    let stuck = live().failing("remove_breakpoint", TargetError::failed("stuck"));
    set(&stuck, &at("victim!poke"), &Halt::unbounded()).unwrap();
    let error = set(&stuck, &at("victim!poke"), &Halt::unbounded()).unwrap_err();
    assert!(error.to_string().contains("stuck"), "{error}");
}

#[test]
fn threads_and_commands() {
    let target = live();
    let on = |thread| Wanted { thread: Some(thread), ..at("victim!poke") };
    set(&target, &on(7), &Halt::unbounded()).unwrap();
    assert!(refused(&target, &on(8)).1.contains("the target has 7"));
    let running = |command: &str| Wanted { command: Some(command.to_owned()), ..at("victim!poke") };
    assert_eq!(refused(&target, &running("r; .detach")).0, "invalid_argument");
    set(&target, &running(".echo \"q\"; gc"), &Halt::unbounded()).unwrap();
    let once = Wanted { one_shot: true, condition: Some("1".to_owned()), ..at("victim!poke") };
    assert_eq!(refused(&target, &once).0, "invalid_argument");
}

#[test]
fn a_look_up_that_is_cut_sets_nothing() {
    let target = live();
    let error = set(&target, &at("victim!poke"), &Halt::within(std::time::Duration::ZERO)).unwrap_err();
    assert!(matches!(error, TargetError::Deadline(_)));
    assert!(ids(&target).is_empty());
}

#[test]
fn one_that_is_set_when_the_time_runs_out_says_so() {
    let target = live();
    let halt = Halt::unbounded();
    halt.flag().store(true, std::sync::atomic::Ordering::Relaxed);
    let wanted = Wanted { address: Some(0x1100), pass_count: 1, ..Wanted::default() };
    let change = set(&target, &wanted, &halt).unwrap();
    assert!(change.cut_short);
    assert_eq!(ids(&target), [change.breakpoint.id]);
    assert!(!set(&live(), &at("victim!poke"), &Halt::unbounded()).unwrap().cut_short);
}

#[test]
fn a_dump_takes_none() {
    let dump = ScriptedTarget::new(Machine::X64);
    for error in [
        set(&dump, &at("0x1000"), &Halt::unbounded()).unwrap_err(),
        list(&dump).unwrap_err(),
        clear(&dump, None).unwrap_err(),
    ] {
        assert_eq!(error.category(), ("unsupported", Some("not_live")));
    }
}

#[test]
fn clearing_says_what_was_and_what_was_not_there() {
    let target = live();
    for address in [0x1010, 0x1020, 0x1030] {
        target.add(&Breakpoint { address: Some(address), pass_count: 1, ..Breakpoint::default() }).unwrap();
    }
    let cleared = clear(&target, Some(&[0, 99])).unwrap();
    assert_eq!((cleared.removed, cleared.missing), (vec![0], vec![99]));
    assert_eq!(cleared.remaining.len(), 2);
    assert_eq!(clear(&target, None).unwrap().removed, [1, 2]);
    let stuck = live().failing("remove_breakpoint", TargetError::failed("stuck"));
    set(&stuck, &at("victim!poke"), &Halt::unbounded()).unwrap();
    let cleared = clear(&stuck, None).unwrap();
    assert_eq!(cleared.failed[0].error, "stuck");
    assert_eq!(cleared.remaining.len(), 1);
}
