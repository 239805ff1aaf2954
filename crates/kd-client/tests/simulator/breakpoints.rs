use std::time::Duration;

use control::ReasonKind;
use kd_sim::{Hex, ProcessorState, Scenario};
use target::capability::{Access, Breakpoint, Resume};
use target::{ContextOf, MemoryExt, Target, View};

use super::{attached, run, simulator};

const LONG: Duration = Duration::from_secs(30);
const CODE: u64 = Scenario::CODE;

fn at(address: u64) -> Breakpoint {
    Breakpoint { address: Some(address), enabled: true, pass_count: 1, ..Breakpoint::default() }
}

fn watch(address: u64, access: Access, size: u8) -> Breakpoint {
    Breakpoint { watch: Some((access, size)), ..at(address) }
}

fn ip(target: &dyn Target) -> u64 {
    target.context(ContextOf::Selected, View::Default).unwrap().unwrap().ip()
}

fn rbx(target: &dyn Target) -> u64 {
    target.context(ContextOf::Selected, View::Default).unwrap().unwrap().by_name("rbx").unwrap()
}

#[test]
fn a_breakpoint_is_hit_left_and_hit_again() {
    let simulator = simulator(&Scenario::default());
    let target = attached(&simulator);
    let (place, original) = (CODE + 0x17, target.read_array::<4>(CODE + 0x17).unwrap());
    let set = target.breakpoints().unwrap().add(&at(place)).unwrap();
    assert_eq!(target.read_array::<4>(place).unwrap(), original);
    for round in 0..3 {
        let stop = run(target.as_ref(), Resume::Go, LONG);
        let reason = stop.reason.unwrap();
        assert_eq!((reason.kind, reason.breakpoint), (ReasonKind::Breakpoint, Some(set.id)));
        assert_eq!((ip(target.as_ref()), rbx(target.as_ref())), (place, 0x3333 + round));
        assert_eq!(target.read_array::<4>(place).unwrap(), original, "reads show the target's own byte");
        assert_eq!(simulator.with_machine(|m| m.read(place, 4)), original, "and it is its own");
    }
    let listed = target.breakpoints().unwrap().list().unwrap();
    assert_eq!(listed[0].hits, Some(3));
    let stepped = run(target.as_ref(), Resume::StepInto, LONG);
    assert_eq!((stepped.reason.unwrap().kind, ip(target.as_ref())), (ReasonKind::Step, CODE + 0x1b));
    target.breakpoints().unwrap().remove(set.id).unwrap();
    assert!(run(target.as_ref(), Resume::Go, Duration::from_millis(200)).timed_out);
    assert!(target.breakpoints().unwrap().remove(set.id).is_err());
}

#[test]
fn passes_conditions_and_single_shots() {
    let simulator = simulator(&Scenario::default());
    let target = attached(&simulator);
    let breakpoints = target.breakpoints().unwrap();
    breakpoints.add(&Breakpoint { pass_count: 3, one_shot: true, ..at(CODE + 0x17) }).unwrap();
    run(target.as_ref(), Resume::Go, LONG);
    assert_eq!(rbx(target.as_ref()), 0x3333 + 2, "the third arrival");
    assert!(breakpoints.list().unwrap().is_empty(), "it was to stop once");
    let condition = Some("@rbx == 0x3338".to_owned());
    breakpoints.add(&Breakpoint { condition, ..at(CODE + 0x1b) }).unwrap();
    run(target.as_ref(), Resume::Go, LONG);
    assert_eq!((ip(target.as_ref()), rbx(target.as_ref())), (CODE + 0x1b, 0x3338));
}

#[test]
fn a_breakpoint_that_cannot_be_inserted_is_refused_when_it_is_set() {
    let simulator = simulator(&Scenario::default());
    let target = attached(&simulator);
    let breakpoints = target.breakpoints().unwrap();
    assert!(breakpoints.add(&at(0xffff_f000_0000_0000)).is_err());
    let with_command = Breakpoint { command: Some("r".into()), ..at(CODE) };
    assert_eq!(breakpoints.add(&with_command).unwrap_err().category().0, "unsupported");
    assert!(breakpoints.add(&watch(CODE + 1, Access::Write, 4)).is_err());
    assert!(breakpoints.list().unwrap().is_empty());
    for number in 0..4 {
        breakpoints.add(&watch(CODE + 0x80 + 8 * number, Access::Write, 8)).unwrap();
    }
    let fifth = breakpoints.add(&watch(CODE + 0xa8, Access::Write, 8)).unwrap_err();
    assert_eq!(fifth.category(), ("debugger", Some("no_hardware_slot")));
    assert_eq!(breakpoints.list().unwrap().len(), 4);
}

#[test]
fn a_write_on_another_processor_is_seen() {
    let mut scenario = Scenario::with_processors(2);
    let stack = Hex(Scenario::STACK - 0x1_0000);
    scenario.processors[0].rip = Hex(CODE + 0x40);
    scenario.processors[1] = ProcessorState { rip: Hex(CODE), registers: [("rsp".to_owned(), stack)].into() };
    let simulator = simulator(&scenario);
    let target = attached(&simulator);
    let set = target.breakpoints().unwrap().add(&watch(CODE + 0x80, Access::Write, 8)).unwrap();
    let stop = run(target.as_ref(), Resume::Go, LONG);
    let reason = stop.reason.unwrap();
    assert_eq!((reason.kind, reason.breakpoint), (ReasonKind::DataBreakpoint, Some(set.id)));
    assert_eq!((stop.processor, ip(target.as_ref())), (Some(1), CODE + 0x17));
    assert_eq!(target.read_u64(CODE + 0x80).unwrap(), 0x1235);
    let again = run(target.as_ref(), Resume::Go, LONG);
    assert_eq!(again.reason.unwrap().kind, ReasonKind::DataBreakpoint);
    target.breakpoints().unwrap().remove(set.id).unwrap();
    assert!(run(target.as_ref(), Resume::Go, Duration::from_millis(300)).timed_out);
    for processor in 0..2 {
        let dr = simulator.with_machine(|m| m.special_registers(processor).unwrap().dr);
        assert_eq!(dr, [0; 4], "processor {processor}");
    }
}

#[test]
fn code_is_watched_without_being_touched() {
    let simulator = simulator(&Scenario::default());
    let target = attached(&simulator);
    let set = target.breakpoints().unwrap().add(&watch(CODE + 0x20, Access::Execute, 1)).unwrap();
    for round in 0..2 {
        let stop = run(target.as_ref(), Resume::Go, LONG);
        assert_eq!(stop.reason.unwrap().breakpoint, Some(set.id));
        assert_eq!((ip(target.as_ref()), rbx(target.as_ref())), (CODE + 0x20, 0x3333 + round));
    }
}
