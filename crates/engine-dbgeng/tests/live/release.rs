//! Letting go: a launched process ends, an attached one goes on.

use std::process::{Child, Command};
use std::time::Duration;

use engine_dbgeng::DbgEng;
use target::capability::{Resume, StopReason};
use target::{Ending, Halt, Target};

use crate::harness::{at, options, program, resume_within, set};

pub(crate) const CASES: &[crate::harness::Case] = &[
    ("attach_to_spin_then_end_leaves_it_running", attach_then_end),
    ("a_breakpoint_left_set_does_not_kill_after_detach", breakpoints_go_first),
    ("attach_break_in_and_steps", attach_break_in_and_steps),
    ("attach_to_no_process", attach_to_no_process),
    ("dropping_an_attached_target_detaches", dropping_detaches),
    ("launched_ends_with_its_session", launched_ends),
    ("a_raw_detach_leaves_it_running", a_raw_detach),
    ("a_raw_quit_of_an_attached_process", a_raw_quit),
    ("handles_do_not_grow", handles_do_not_grow),
    ("processes_are_listed", processes_are_listed),
];

struct Spin(Child);

impl Spin {
    fn start(name: &str) -> Self {
        let child = Command::new(program(name)).arg("0").spawn().unwrap();
        std::thread::sleep(Duration::from_millis(500));
        Self(child)
    }
    fn attach(&self) -> DbgEng {
        let halt = Halt::within(Duration::from_secs(60));
        engine_dbgeng::attach(self.0.id(), &options(), &|_| {}, &halt)
            .unwrap_or_else(|error| panic!("{error}"))
    }
    /// By its exit code, looked at from outside, after it had time to die.
    fn lives(&mut self) -> bool {
        std::thread::sleep(Duration::from_millis(700));
        self.0.try_wait().unwrap().is_none()
    }
}

impl Drop for Spin {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn attach_then_end() {
    let mut spin = Spin::start("spin.exe");
    let engine = spin.attach();
    assert_eq!(engine.facts().process.as_ref().and_then(|p| p.pid), Some(spin.0.id()));
    assert_eq!(engine.release().unwrap(), Ending::Detached);
    assert!(spin.lives());
}

fn breakpoints_go_first() {
    let mut spin = Spin::start("victim.exe");
    let engine = spin.attach();
    // Sleep is called for ever: an int3 left behind would kill the process at once.
    set(&engine, &at("kernel32!Sleep"));
    let stop = resume_within(&engine, Resume::Go, crate::harness::BOUND);
    assert!(matches!(stop.reason, StopReason::Breakpoint { .. }), "{stop:?}");
    assert_eq!(engine.release().unwrap(), Ending::Detached);
    assert!(spin.lives());
}

fn attach_break_in_and_steps() {
    let mut spin = Spin::start("spin.exe");
    let engine = spin.attach();
    let stop = resume_within(&engine, Resume::Go, Duration::from_millis(300));
    assert!(stop.timed_out && stop.break_thread.is_some(), "{stop:?}");
    assert!(engine.threads().unwrap().len() >= 2);
    assert_eq!(resume_within(&engine, Resume::StepInto, crate::harness::BOUND).reason, StopReason::Step);
    engine.release().unwrap();
    assert!(spin.lives());
}

fn attach_to_no_process() {
    let said = std::cell::Cell::new(0);
    let halt = Halt::within(Duration::from_secs(30));
    let refused = engine_dbgeng::attach(0x7ff0, &options(), &|_| said.set(said.get() + 1), &halt);
    let error = refused.err().expect("there is no such process").to_string();
    assert!(error.contains("0x80070057"), "{error}");
    assert_eq!(said.get(), 0, "nothing was committed");
}

fn dropping_detaches() {
    let mut spin = Spin::start("spin.exe");
    drop(spin.attach());
    assert!(spin.lives());
}

fn launched_ends() {
    let engine = crate::harness::launched("spin.exe", "");
    let pid = engine.facts().process.as_ref().and_then(|p| p.pid).unwrap();
    assert_eq!(engine.release().unwrap(), Ending::Terminated);
    assert_eq!(engine.release().unwrap(), Ending::Terminated, "releasing twice is one release");
    drop(engine);
    let left = engine_dbgeng::processes(&crate::harness::engine_folder()).unwrap();
    assert!(left.iter().all(|(id, _)| *id != pid), "{left:?}");
}

fn a_raw_detach() {
    // It ends by itself, two seconds later.
    let engine = crate::harness::launched("victim.exe", "40 50");
    let output = crate::harness::execute(&engine, ".detach");
    assert!(output.text.contains("was let go of"), "{output:?}");
    assert_eq!(engine.release().unwrap(), Ending::Detached);
    let mut spin = Spin::start("spin.exe");
    let engine = spin.attach();
    crate::harness::execute(&engine, ".detach");
    assert_eq!(engine.release().unwrap(), Ending::Detached);
    assert!(spin.lives());
}

fn a_raw_quit() {
    let mut spin = Spin::start("spin.exe");
    let engine = spin.attach();
    let output = crate::harness::execute(&engine, "q");
    assert!(output.text.contains("holds no target any more"), "{output:?}");
    // Under Wine it lives on, on Windows it ends: the answer is what is so.
    let expected = if spin.lives() { Ending::Detached } else { Ending::Closed };
    assert_eq!(engine.release().unwrap(), expected);
}

fn handles_do_not_grow() {
    let count = || {
        let mut handles = 0;
        // SAFETY: the pseudo handle is always valid, the pointer is to a local.
        unsafe {
            use windows::Win32::System::Threading::{GetCurrentProcess, GetProcessHandleCount};
            GetProcessHandleCount(GetCurrentProcess(), &mut handles).unwrap();
        }
        handles
    };
    let cycle = || {
        assert_eq!(crate::harness::launched("thrower.exe", "quit 0").release().unwrap(), Ending::Terminated)
    };
    (0..3).for_each(|_| cycle());
    let before = count();
    (0..20).for_each(|_| cycle());
    let after = count();
    assert!(after <= before + 5, "{before} handles, then {after}");
}

fn processes_are_listed() {
    let spin = Spin::start("spin.exe");
    let listed = engine_dbgeng::processes(&crate::harness::engine_folder()).unwrap();
    let row = listed.iter().find(|(id, _)| *id == spin.0.id());
    assert!(row.is_some_and(|(_, name)| name.eq_ignore_ascii_case("spin.exe")), "{listed:?}");
}
