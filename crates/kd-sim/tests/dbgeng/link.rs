//! Attaching, and letting go.

use std::time::Duration;

use kd_api::Api;
use kd_sim::{Direction, Scenario};

use crate::debugger::{Case, Debugger, address, has};

pub(crate) const CASES: &[Case] = &[
    ("connect", connect),
    ("attach_to_a_running_machine", running),
    ("no_reply_where_none_is_due", no_reply),
    ("detach_resumes", detach),
];

fn connect() {
    let debugger = Debugger::attach(&Scenario::default());
    has(&debugger.said, "Connected to Windows 10 19041 x64 target");
    has(&debugger.said, &format!("Kernel base = 0x{}", address(Scenario::KERNEL_BASE)));
    has(&debugger.said, "Break instruction exception");
    let modules = debugger.run("lm");
    has(&modules, &address(Scenario::KERNEL_BASE));
}

fn running() {
    let scenario = Scenario { running: true, ..Scenario::default() };
    let debugger = Debugger::attach_with(&scenario, Some(Duration::from_secs(2)));
    has(&debugger.said, "Break instruction exception");
    assert!(debugger.report().summary.break_ins >= 1, "{:?}", debugger.report().summary);
}

fn no_reply() {
    let debugger = Debugger::attach(&Scenario::default());
    let report = debugger.report();
    assert_eq!(report.summary.requests.get(&Api::CLEAR_ALL_INTERNAL.0), Some(&1));
    let replies = report
        .frames
        .iter()
        .filter(|f| f.dir == Direction::FromTarget && f.api == Some(Api::CLEAR_ALL_INTERNAL.0));
    assert_eq!(replies.count(), 0);
    let ids: Vec<_> = report
        .frames
        .iter()
        .filter(|f| f.dir == Direction::FromDebugger && f.kind == Some(2))
        .map(|f| f.id)
        .collect();
    assert!(ids.windows(2).all(|pair| pair[0] != pair[1]), "a request was seen twice: {ids:x?}");
    assert!(report.summary.unknown.is_empty(), "{:?}", report.summary);
}

fn detach() {
    let debugger = Debugger::attach(&Scenario::default());
    debugger.run(&format!("bp {:#x}", Scenario::CODE + 0x20));
    debugger.run("g");
    debugger.run("r rbx=77");
    debugger.run("qd");
    let report = debugger.report();
    for api in [Api::SET_CONTEXT, Api::WRITE_CONTROL_SPACE, Api::CONTINUE2] {
        assert!(report.summary.requests.contains_key(&api.0), "{api:?} {:?}", report.summary);
    }
    let last = report.frames.iter().rev().find(|f| f.api == Some(Api::CONTINUE2.0)).unwrap();
    assert_eq!(&last.hex[0x20..0x28], "02000100");
    assert!(debugger.simulator.running());
    assert_eq!(debugger.simulator.with_machine(|m| m.breakpoints()), 0);
    assert_eq!(debugger.simulator.with_machine(|m| m.read(Scenario::CODE + 0x20, 1)), [0x51]);
}
