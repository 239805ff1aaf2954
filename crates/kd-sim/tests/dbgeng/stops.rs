//! Breakpoints, break-ins and what a machine tells by itself.

use std::time::{Duration, Instant};

use kd_api::Api;
use kd_sim::{Hex, Occurrence, Scenario, Scripted};

use crate::debugger::{Case, Debugger, address, has};

pub(crate) const CASES: &[Case] = &[
    ("breakpoint", breakpoint),
    ("breakpoint_needs_query_memory", breakpoint_refused),
    ("hardware_breakpoint", hardware),
    ("write_watch", watch),
    ("break_in", break_in),
    ("print_and_load", print_and_load),
    ("file_request", file),
    ("bug_check", bug_check),
    ("command_string", command_string),
];

fn breakpoint() {
    let debugger = Debugger::attach(&Scenario::default());
    let at = Scenario::CODE + 0x20;
    debugger.run(&format!("bp {at:#x}"));
    let said = debugger.run("g");
    has(&said, "Breakpoint 0 hit");
    has(&debugger.run("r rip"), &format!("rip={at:016x}"));
    has(&debugger.run("u rip l1"), "push    rcx");
    has(&debugger.run("g"), "Breakpoint 0 hit");
}

fn breakpoint_refused() {
    let refused = vec![Hex(Api::QUERY_MEMORY.0.into())];
    let debugger = Debugger::attach(&Scenario { refused, ..Scenario::default() });
    let said = debugger.run(&format!("bp {:#x}", Scenario::CODE + 0x20));
    has(&said, "Invalid breakpoint address");
}

fn hardware() {
    let debugger = Debugger::attach(&Scenario::default());
    let at = Scenario::CODE + 0x21;
    debugger.run(&format!("ba e1 {at:#x}"));
    has(&debugger.run("g"), "Breakpoint 0 hit");
    has(&debugger.run("r rip"), &format!("rip={at:016x}"));
    let report = debugger.report();
    let go = report.frames.iter().rev().find(|f| f.api == Some(Api::CONTINUE2.0)).unwrap();
    let dr7 = u8::from_str_radix(&go.hex[0x30..0x32], 16).unwrap();
    assert_ne!(dr7 & 3, 0, "DR7 in {}", go.hex);
}

fn watch() {
    let debugger = Debugger::attach(&Scenario::default());
    debugger.run(&format!("ba w8 {:#x}", Scenario::CODE + 0x80));
    has(&debugger.run("g"), "Breakpoint 0 hit");
    has(&debugger.run("r rip"), &format!("rip={:016x}", Scenario::CODE + 0x17));
}

fn break_in() {
    let debugger = Debugger::attach(&Scenario::default());
    debugger.interrupt_after(Duration::from_secs(1));
    let began = Instant::now();
    has(&debugger.run("g"), "Break instruction exception");
    println!("stopped after {:?}", began.elapsed());
    assert!(debugger.report().summary.break_ins >= 1);
}

fn print_and_load() {
    let base = 0xffff_f803_7000_0000;
    let events = vec![
        Scripted { at: 1, what: Occurrence::Print("hello from the machine\n".into()) },
        Scripted {
            at: 1,
            what: Occurrence::Load { path: r"\SystemRoot\late.sys".into(), base: Hex(base), size: 0x4000 },
        },
    ];
    let debugger = Debugger::attach(&Scenario { events, ..Scenario::default() });
    debugger.run("sxe ld");
    let said = debugger.run("g");
    has(&said, "hello from the machine");
    has(&debugger.run("lm"), &address(base));
    has(&debugger.run("lm"), "late");
}

fn file() {
    let events = vec![Scripted { at: 1, what: Occurrence::File(r"\SystemRoot\x.sys".into()) }];
    let debugger = Debugger::attach(&Scenario { events, ..Scenario::default() });
    debugger.interrupt_after(Duration::from_secs(1));
    debugger.run("g");
    let answered = debugger.simulator.with_machine(|m| m.files().to_vec());
    assert_eq!(answered, [kd_api::FileReply::failure(kd_api::NO_SUCH_FILE)]);
}

fn bug_check() {
    let parameters = [Hex(1), Hex(2), Hex(3), Hex(0xffff_f803_2100_1000)];
    let events = vec![Scripted { at: 1, what: Occurrence::BugCheck { code: 0xd1, parameters } }];
    let folder = test_data::fixture("ntkrnlmp.exe").parent().unwrap().to_owned();
    let debugger = Debugger::attach(&Scenario { events, ..Scenario::default() }.with_fixtures(&folder));
    debugger.with_symbols();
    debugger.run("g");
    has(&debugger.run("dq nt!KiBugCheckData l2"), "00000000`000000d1 00000000`00000001");
    has(&debugger.run(".bugcheck"), "Bugcheck code 000000D1");
}

/// DbgEng runs what a target tells it to; our own client must not.
fn command_string() {
    let events = vec![Scripted { at: 1, what: Occurrence::CommandString(".echo told by the target".into()) }];
    let debugger = Debugger::attach(&Scenario { events, ..Scenario::default() });
    debugger.interrupt_after(Duration::from_secs(2));
    has(&debugger.run("g"), "told by the target");
}
