use std::time::Duration;

use control::ReasonKind;
use kd_sim::{Hex, Occurrence, Scenario, Scripted};
use target::TargetExt;
use target::capability::{Breakpoint, Resume};

use super::{attached, run, simulator};

const LONG: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_millis(500);

fn with(events: impl IntoIterator<Item = Occurrence>) -> kd_sim::Simulator {
    let events = events.into_iter().map(|what| Scripted { at: 1, what }).collect();
    simulator(&Scenario { events, ..Scenario::default() })
}

#[test]
fn what_the_target_prints_is_the_runs_output() {
    let simulator = with([Occurrence::Print("hello from the kernel\n".into())]);
    let target = attached(&simulator);
    let stop = run(target.as_ref(), Resume::Go, SHORT);
    assert!(stop.output.contains("hello from the kernel"), "{}", stop.output);
}

#[test]
fn a_question_gets_an_empty_line_and_the_target_goes_on() {
    let simulator = with([Occurrence::GetString { prompt: "continue? ".into(), most: 8 }]);
    let target = attached(&simulator);
    let stop = run(target.as_ref(), Resume::Go, Duration::from_secs(2));
    assert!(stop.output.contains("continue?") && stop.output.contains("empty one"), "{}", stop.output);
    assert!(stop.timed_out);
    assert!(simulator.running() || target.modules().is_ok());
}

#[test]
fn no_file_of_this_machine_is_served() {
    let simulator = with([Occurrence::File(r"\??\C:\Windows\system32\drivers\new.sys".into())]);
    let target = attached(&simulator);
    run(target.as_ref(), Resume::Go, Duration::from_secs(1));
    let answered = simulator.with_machine(|m| m.files().to_vec());
    assert_eq!(answered.len(), 1);
    assert_eq!(answered[0].status, 0xc000_000f);
}

#[test]
fn a_command_from_the_target_is_shown_and_not_run() {
    let simulator = with([Occurrence::CommandString(".shell echo owned".into())]);
    let target = attached(&simulator);
    let stop = run(target.as_ref(), Resume::Go, LONG);
    assert_eq!(stop.reason.unwrap().kind, ReasonKind::Unknown);
    assert!(stop.output.contains(".shell echo owned") && stop.output.contains("not done"), "{}", stop.output);
}

#[test]
fn a_driver_that_loads_is_a_module_and_what_waited_for_it_is_placed() {
    let path = r"\SystemRoot\system32\drivers\later.sys";
    let base = Hex(0xffff_f803_7000_0000);
    let simulator = with([Occurrence::Load { path: path.into(), base, size: 0x3000 }]);
    let target = attached(&simulator);
    assert!(target.module_named("later").unwrap().is_none());
    let waiting = Breakpoint {
        expression: Some("later+0x1000".into()),
        enabled: true,
        pass_count: 1,
        ..Breakpoint::default()
    };
    let set = target.breakpoints().unwrap().add(&waiting).unwrap();
    assert_eq!(set.address, None);
    let stop = run(target.as_ref(), Resume::Go, SHORT);
    assert!(stop.timed_out, "it goes on by itself: {stop:?}");
    assert!(stop.output.contains("later.sys"), "{}", stop.output);
    assert_eq!(target.module_named("later").unwrap().unwrap().base, base.0);
    let placed = target.breakpoints().unwrap().list().unwrap();
    assert_eq!(placed[0].address, Some(base.0 + 0x1000));
}

#[test]
fn a_bug_check_is_told_with_its_parameters() {
    let parameters = [Hex(1), Hex(2), Hex(3), Hex(0xffff_f803_2100_1000)];
    let simulator = with([Occurrence::BugCheck { code: 0xd1, parameters }]);
    let target = attached(&simulator);
    assert_eq!(target.bug_check().unwrap(), None);
    let stop = run(target.as_ref(), Resume::Go, LONG);
    assert_eq!(stop.reason.unwrap().kind, ReasonKind::Exception);
    let check = target.bug_check().unwrap().unwrap();
    assert_eq!((check.code, check.parameters), (0xd1, parameters.map(|p| p.0)));
}

#[test]
fn a_target_that_restarts_is_gone() {
    let simulator = with([Occurrence::Reboot]);
    let target = attached(&simulator);
    let place = Breakpoint { address: Some(Scenario::CODE + 0x48), enabled: true, ..Breakpoint::default() };
    target.breakpoints().unwrap().add(&place).unwrap();
    let stop = run(target.as_ref(), Resume::Go, LONG);
    assert!(stop.target_gone);
    assert!(stop.output.contains("restarts"), "{}", stop.output);
    let error = target.modules().unwrap_err();
    assert_eq!(error.category().0, "stale_session");
    assert_eq!(target.release().unwrap(), target::Ending::Closed);
}

#[test]
fn a_target_that_falls_silent_does_not_hold_the_run_for_ever() {
    let simulator = with([Occurrence::Silence]);
    let target = attached(&simulator);
    let mut runs = control::Runs::default();
    let halt = super::halt();
    let mut control =
        control::Control { target: target.as_ref(), runs: &mut runs, halt: &halt, moving: &|| {} };
    let error = control::run(&mut control, Resume::Go, SHORT).unwrap_err();
    assert_eq!(error.category(), ("debugger", Some("break_in_unanswered")));
    assert_eq!(target.modules().unwrap_err().category().0, "target_running");
}
