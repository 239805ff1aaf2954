use std::sync::atomic::Ordering;
use std::time::Duration;

use control::{Control, ReasonKind, Runs, Verdict};
use kd_sim::Scenario;
use target::capability::Resume;
use target::{ContextOf, Halt, Target, View};

use super::{attached, halt, run, simulator};

const LONG: Duration = Duration::from_secs(30);
const CODE: u64 = Scenario::CODE;

fn ip(target: &dyn Target) -> u64 {
    target.context(ContextOf::Selected, View::Default).unwrap().unwrap().ip()
}

fn register(target: &dyn Target, name: &str) -> Option<u64> {
    target.context(ContextOf::Selected, View::Default).unwrap().unwrap().by_name(name)
}

#[test]
fn steps_go_one_instruction_and_into_calls() {
    let simulator = simulator(&Scenario::default());
    let target = attached(&simulator);
    let expected = [CODE + 1, CODE + 8, CODE + 0xb, CODE + 0x20, CODE + 0x21];
    for next in expected {
        let stop = run(target.as_ref(), Resume::StepInto, LONG);
        assert_eq!(stop.reason.unwrap().kind, ReasonKind::Step);
        assert_eq!(stop.processor, Some(0));
        assert_eq!(ip(target.as_ref()), next);
    }
    assert_eq!(register(target.as_ref(), "rax"), Some(0x1235));
}

#[test]
fn a_register_that_was_set_is_what_the_step_uses() {
    let simulator = simulator(&Scenario::default());
    let target = attached(&simulator);
    let write = target.write().unwrap();
    write.set_register("rip", CODE + 8).unwrap();
    write.set_register("rax", 0x41).unwrap();
    run(target.as_ref(), Resume::StepInto, LONG);
    assert_eq!((ip(target.as_ref()), register(target.as_ref(), "rax")), (CODE + 0xb, Some(0x42)));
}

#[test]
fn a_call_is_stepped_over() {
    let simulator = simulator(&Scenario::default());
    let target = attached(&simulator);
    target.write().unwrap().set_register("rip", CODE + 0xb).unwrap();
    let stop = run(target.as_ref(), Resume::StepOver, LONG);
    assert_eq!((stop.reason.unwrap().kind, ip(target.as_ref())), (ReasonKind::Step, CODE + 0x10));
    assert_eq!(simulator.with_machine(|m| m.breakpoints()), 0, "what stood behind the call is gone");
    assert!(target.breakpoints().unwrap().list().unwrap().is_empty());
}

#[test]
fn a_run_ends_at_its_bound() {
    let simulator = simulator(&Scenario::default());
    let target = attached(&simulator);
    let stop = run(target.as_ref(), Resume::Go, Duration::from_millis(300));
    assert!(stop.timed_out && !stop.interrupted);
    assert_eq!(stop.reason.unwrap().kind, ReasonKind::BreakIn);
    let ours = ip(target.as_ref());
    assert!((CODE..CODE + 0x30).contains(&ours), "{ours:#x}");
    // And nothing that was read before is taken for the present.
    assert_eq!(simulator.with_machine(|m| m.registers(0).unwrap().rip()), ours);
}

#[test]
fn a_run_is_broken_into_on_request() {
    let simulator = simulator(&Scenario::default());
    let target = attached(&simulator);
    let halt = Halt::within(LONG);
    let flag = halt.flag();
    let raised = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        flag.store(true, Ordering::Relaxed);
    });
    let mut runs = Runs::default();
    let mut control = Control { target: target.as_ref(), runs: &mut runs, halt: &halt, moving: &|| {} };
    let stop = control::run(&mut control, Resume::Go, LONG).unwrap();
    raised.join().unwrap();
    assert!(stop.interrupted && !stop.timed_out);
    assert_eq!(stop.reason.unwrap().kind, ReasonKind::BreakIn);
}

#[test]
fn a_run_to_an_address_arrives_there_every_time() {
    let simulator = simulator(&Scenario::default());
    let target = attached(&simulator);
    let (mut runs, halt) = (Runs::default(), halt());
    for _ in 0..3 {
        let mut control = Control { target: target.as_ref(), runs: &mut runs, halt: &halt, moving: &|| {} };
        let run = control::run_to(&mut control, CODE + 0x17, LONG).unwrap();
        assert_eq!((run.verdict, run.processor), (Verdict::Hit, Some(0)));
    }
    assert_eq!(register(target.as_ref(), "rbx"), Some(0x3333 + 2));
    assert!(target.breakpoints().unwrap().list().unwrap().is_empty());
}

#[test]
fn a_break_instruction_of_the_targets_own_is_left_behind() {
    use kd_sim::{Code, Hex};
    // nop; int3; inc rax; jmp $
    let code = Code { address: Hex(CODE), bytes: "90cc48ffc0ebfe".into() };
    let simulator = simulator(&Scenario { code: vec![code], ..Scenario::default() });
    let target = attached(&simulator);
    let stop = run(target.as_ref(), Resume::Go, LONG);
    let exception = stop.reason.unwrap().exception.unwrap();
    assert_eq!((exception.code.0, exception.address.0), (0x8000_0003, CODE + 1));
    let stepped = run(target.as_ref(), Resume::StepInto, LONG);
    assert_eq!((stepped.reason.unwrap().kind, ip(target.as_ref())), (ReasonKind::Step, CODE + 2));
    target.write().unwrap().set_register("rip", CODE).unwrap();
    run(target.as_ref(), Resume::Go, LONG);
    let on = run(target.as_ref(), Resume::Go, Duration::from_millis(200));
    assert!(on.timed_out);
    assert_eq!(ip(target.as_ref()), CODE + 5);
}
