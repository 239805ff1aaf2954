//! Runs, steps and run-to on scripted processes: whose stop it was, and what is left behind.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::cell::Cell;
use std::sync::atomic::Ordering;
use std::time::Duration;

use control::{Control, ReasonKind, RunTo, Runs, StopRecord, Verdict, Wanted, list, run, run_to, set};
use target::capability::Resume;
use target::scripted::{ScriptRun, ScriptStop, ScriptedTarget, Step};
use target::{
    Address, Context, ContextSource, Flow, Halt, HexBytes, Instruction, Machine, Result, Target, TargetError,
    Thread,
};

const SECOND: Duration = Duration::from_secs(1);

fn instruction(address: u64, length: usize, flow: Flow, text: &str) -> Instruction {
    let (target, data_address) = (None, None);
    Instruction {
        address,
        bytes: HexBytes(vec![0x90; length]),
        text: Some(text.to_owned()),
        target,
        flow,
        data_address,
    }
}

fn live(runs: Vec<ScriptRun>) -> ScriptedTarget {
    let context = |ip| {
        let mut context = Context::new(Machine::X64, ContextSource::Live);
        context.set_ip(ip);
        context.set_sp(0x9000);
        Some(context)
    };
    ScriptedTarget::new(Machine::X64)
        .with_module("victim", 0x1000, 0x1000)
        .with_memory(0x1000, vec![0x90; 0x1000])
        .with_symbol("victim", "poke", 0x1100)
        .with_instruction(instruction(0x1000, 5, Flow::Call, "call victim!poke"))
        .with_thread(Thread { system_id: 1, event: true, ..Thread::default() }, context(0x1000))
        .with_thread(Thread { system_id: 9, ..Thread::default() }, context(0x7000))
        .with_runs(runs)
}

fn to(ip: u64, stop: ScriptStop) -> ScriptRun {
    ScriptRun { ip: Some(Address(ip)), stop, ..ScriptRun::default() }
}

fn sleeping(steps: Vec<Step>) -> ScriptRun {
    ScriptRun { steps, ..ScriptRun::default() }
}

struct Bench {
    target: ScriptedTarget,
    runs: Runs,
    halt: Halt,
    moved: Cell<u32>,
}

impl Bench {
    fn new(runs: Vec<ScriptRun>) -> Self {
        Self { target: live(runs), runs: Runs::default(), halt: Halt::unbounded(), moved: Cell::new(0) }
    }
    fn with<T>(&mut self, act: impl FnOnce(&mut Control<'_>) -> Result<T>) -> Result<T> {
        let moved = &self.moved;
        let moving = || moved.set(moved.get() + 1);
        act(&mut Control { target: &self.target, runs: &mut self.runs, halt: &self.halt, moving: &moving })
    }
    fn run(&mut self, how: Resume) -> StopRecord {
        self.with(|control| run(control, how, SECOND)).unwrap()
    }
    fn run_to(&mut self, address: u64) -> RunTo {
        self.with(|control| run_to(control, address, Duration::from_millis(100))).unwrap()
    }
    fn raise(&mut self) {
        self.halt.flag().store(true, Ordering::Relaxed);
    }
    fn lower(&mut self) {
        self.halt.flag().store(false, Ordering::Relaxed);
    }
}

fn kind(stop: &StopRecord) -> ReasonKind {
    stop.reason.as_ref().unwrap().kind
}

#[test]
fn a_stop_says_where_and_why() {
    let mut bench = Bench::new(vec![to(0x1104, ScriptStop::Breakpoint { id: 3 })]);
    let stop = serde_json::to_value(bench.run(Resume::Go)).unwrap();
    assert_eq!(stop["command"], "g");
    assert_eq!(stop["stopped_at"], "0x0000000000001104");
    assert_eq!((&stop["module"], &stop["rva"]), (&"victim".into(), &"0x104".into()));
    assert_eq!((&stop["symbol"], &stop["displacement"]), (&"victim!poke".into(), &"0x4".into()));
    assert_eq!(stop["reason"], serde_json::json!({ "kind": "breakpoint", "breakpoint": 3 }));
    assert_eq!(stop["thread"], 1);
    for absent in ["interrupted", "timed_out", "bound_ms", "target_gone", "processor", "break_thread"] {
        assert_eq!(stop.get(absent), None, "{absent}");
    }
    assert_eq!(bench.moved.get(), 1);
}

#[test]
fn its_bound_breaks_it_in() {
    let run = ScriptRun {
        break_thread: Some(9),
        ..sleeping(vec![Step::Say("hi".into()), Step::Sleep { ms: 5000 }])
    };
    let mut bench = Bench::new(vec![run]);
    let stop = bench.with(|control| run_short(control, 50)).unwrap();
    assert!(stop.timed_out && !stop.interrupted, "{stop:?}");
    assert_eq!((stop.bound_ms, stop.thread, stop.break_thread), (Some(50), Some(1), Some(9)));
    assert!(stop.output.starts_with("hi"));
}

fn run_short(control: &mut Control<'_>, ms: u64) -> Result<StopRecord> {
    run(control, Resume::Go, Duration::from_millis(ms))
}

#[test]
fn the_jobs_time_is_a_bound_too() {
    let mut bench = Bench::new(vec![sleeping(vec![Step::Sleep { ms: 5000 }])]);
    bench.halt = Halt::within(Duration::from_millis(60));
    let stop = bench.run(Resume::Go);
    assert!(stop.timed_out && stop.bound_ms.unwrap() <= 60, "{stop:?}");
    // Nothing is left now, and a bound of nothing never reaches an engine.
    let error = bench.with(|control| run_short(control, 1000)).unwrap_err();
    assert!(matches!(error, TargetError::Deadline(_)));
    assert_eq!(bench.target.resumes(), 1);
}

#[test]
fn a_requested_break_is_told_from_the_bound() {
    let mut bench = Bench::new(vec![sleeping(vec![Step::Sleep { ms: 5000 }])]);
    let flag = bench.halt.flag();
    let raiser = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(30));
        flag.store(true, Ordering::Relaxed);
    });
    let stop = bench.run(Resume::Go);
    raiser.join().unwrap();
    assert!(stop.interrupted && !stop.timed_out);
    assert_eq!(kind(&stop), ReasonKind::BreakIn);
}

#[test]
fn the_targets_own_stop_beats_a_break_and_the_break_is_passed_over_later() {
    // The break arrives while it stops by itself (a deaf step does not see it).
    let own = ScriptRun { steps: vec![Step::Deaf { ms: 1 }], ..to(0x1104, ScriptStop::Breakpoint { id: 0 }) };
    let left = to(0x1200, ScriptStop::BreakIn);
    let mut bench = Bench::new(vec![own, left, to(0x1300, ScriptStop::Breakpoint { id: 0 })]);
    bench.raise();
    let stop = bench.run(Resume::Go);
    assert!(!stop.interrupted && kind(&stop) == ReasonKind::Breakpoint, "{stop:?}");
    bench.lower();
    let stop = bench.run(Resume::Go);
    assert_eq!((stop.stopped_at, kind(&stop)), (Some(Address(0x1300)), ReasonKind::Breakpoint));
    assert_eq!(bench.target.resumes(), 3);
}

#[test]
fn a_break_nobody_left_over_is_a_stop() {
    let mut bench = Bench::new(vec![to(0x1200, ScriptStop::BreakIn)]);
    let stop = bench.run(Resume::Go);
    assert_eq!((kind(&stop), stop.interrupted, bench.target.resumes()), (ReasonKind::BreakIn, false, 1));
}

#[test]
fn a_condition_that_does_not_hold_goes_on() {
    let hit = || to(0x1100, ScriptStop::Breakpoint { id: 0 });
    let mut bench = Bench::new(vec![hit(), hit(), to(0x1200, ScriptStop::BreakIn)]);
    let wanted = |condition: &str| Wanted {
        expression: Some("victim!poke".into()),
        condition: Some(condition.into()),
        ..Wanted::default()
    };
    set(&bench.target, &wanted("0"), &Halt::unbounded()).unwrap();
    assert_eq!(bench.run(Resume::Go).stopped_at, Some(Address(0x1200)));

    let mut bench = Bench::new(vec![hit()]);
    set(&bench.target, &wanted("1"), &Halt::unbounded()).unwrap();
    assert_eq!(kind(&bench.run(Resume::Go)), ReasonKind::Breakpoint);

    // What cannot be told stops, and says why.
    let mut bench = Bench::new(vec![hit()]);
    set(&bench.target, &wanted("nosuch!x"), &Halt::unbounded()).unwrap();
    let stop = bench.run(Resume::Go);
    assert!(stop.output.contains("has no value here"), "{stop:?}");

    // For ever is its bound.
    let mut bench = Bench::new(vec![hit()]);
    set(&bench.target, &wanted("0"), &Halt::unbounded()).unwrap();
    let stop = bench.with(|control| run_short(control, 20)).unwrap();
    assert!(stop.timed_out && kind(&stop) == ReasonKind::BreakIn);
}

#[test]
fn a_step_over_passes_conditions_inside_the_call() {
    let inside = to(0x1100, ScriptStop::Breakpoint { id: 0 });
    let mut bench = Bench::new(vec![inside, to(0x1005, ScriptStop::NewestBreakpoint)]);
    let wanted =
        Wanted { expression: Some("victim!poke".into()), condition: Some("0".into()), ..Wanted::default() };
    set(&bench.target, &wanted, &Halt::unbounded()).unwrap();
    let stop = bench.run(Resume::StepOver);
    assert_eq!((kind(&stop), stop.stopped_at), (ReasonKind::Step, Some(Address(0x1005))));
    assert_eq!(list(&bench.target).unwrap().len(), 1);
}

#[test]
fn the_end_is_a_stop_without_a_place() {
    let mut bench = Bench::new(vec![ScriptRun {
        steps: vec![Step::Say("bye".into())],
        ..to(0x1000, ScriptStop::Exited { code: Some(7) })
    }]);
    let stop = bench.run(Resume::Go);
    assert!(stop.target_gone && stop.stopped_at.is_none() && stop.output == "bye");
    assert_eq!(stop.reason.unwrap().exit_code.unwrap().0, 7);
    let error = bench.target.modules().unwrap_err();
    assert_eq!(error.category().0, "stale_session");
}

#[test]
fn a_dump_does_not_run() {
    let dump = ScriptedTarget::new(Machine::X64);
    let (mut runs, halt) = (Runs::default(), Halt::unbounded());
    let mut control = Control { target: &dump, runs: &mut runs, halt: &halt, moving: &|| {} };
    for error in [
        run(&mut control, Resume::Go, SECOND).unwrap_err(),
        run_to(&mut control, 0x1000, SECOND).unwrap_err(),
    ] {
        assert_eq!(error.category(), ("unsupported", Some("not_live")));
        assert!(error.to_string().contains("dbgeng"), "{error}");
    }
}

/// Every way a run to an address ends, and the inventory before and after.
#[test]
fn run_to_leaves_the_inventory_as_it_was() {
    let cases: Vec<(&str, Vec<ScriptRun>, Option<Verdict>)> = vec![
        ("hit", vec![to(0x1100, ScriptStop::NewestBreakpoint)], Some(Verdict::Hit)),
        ("a permanent one there", vec![to(0x1100, ScriptStop::Breakpoint { id: 0 })], Some(Verdict::Hit)),
        ("in between", vec![to(0x1050, ScriptStop::Breakpoint { id: 0 })], Some(Verdict::StoppedElsewhere)),
        ("unreachable", vec![sleeping(vec![Step::Sleep { ms: 5000 }])], Some(Verdict::Timeout)),
        ("the end", vec![to(0, ScriptStop::Exited { code: None })], Some(Verdict::TargetGone)),
        ("a failed run", vec![sleeping(vec![Step::Fail("no".into())])], None),
    ];
    for (name, runs, verdict) in cases {
        let mut bench = Bench::new(runs);
        let own = Wanted { expression: Some("victim!poke".into()), ..Wanted::default() };
        set(&bench.target, &own, &Halt::unbounded()).unwrap();
        let before = list(&bench.target).unwrap();
        let answer = bench.with(|control| run_to(control, 0x1100, Duration::from_millis(50)));
        assert_eq!(answer.as_ref().ok().map(|a| a.verdict), verdict, "{name}");
        match verdict {
            Some(Verdict::TargetGone) => {}
            _ => assert_eq!(list(&bench.target).unwrap(), before, "{name}"),
        }
        if name == "hit" {
            let reason = answer.unwrap().reason.unwrap();
            assert_eq!(
                (reason.kind, reason.breakpoint),
                (ReasonKind::Breakpoint, None),
                "its id is nobody's"
            );
        }
    }
}

#[test]
fn run_to_where_it_stands_waits_for_the_next_arrival() {
    let mut bench = Bench::new(vec![to(0x1100, ScriptStop::Step), to(0x1000, ScriptStop::NewestBreakpoint)]);
    assert_eq!(bench.run_to(0x1000).verdict, Verdict::Hit);
    assert_eq!(bench.target.resumes(), 2);
    // What stops the step off is the answer.
    let mut bench = Bench::new(vec![to(0x1100, ScriptStop::Breakpoint { id: 5 })]);
    assert_eq!(bench.run_to(0x1000).verdict, Verdict::StoppedElsewhere);
}

#[test]
fn run_to_refuses_what_cannot_be_read() {
    let mut bench = Bench::new(vec![ScriptRun::default()]);
    let error = bench.with(|control| run_to(control, 0xdead_0000, SECOND)).unwrap_err();
    assert_eq!(error.category(), ("debugger", Some("unreadable_code")));
    assert_eq!(bench.target.resumes(), 0);
}

/// Counts hits and remembers where.
#[derive(Default)]
struct Counter {
    hits: Vec<u64>,
}

impl control::Observer for Counter {
    fn hit(&mut self, target: &dyn Target) {
        let context = target.context(target::ContextOf::Selected, target::View::Default).unwrap().unwrap();
        self.hits.push(context.ip());
    }
    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
    fn as_any_mut(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

#[test]
fn observed_hits_are_no_stops_and_in_no_inventory() {
    let hit = || to(0x1100, ScriptStop::Breakpoint { id: 0 });
    let mut bench = Bench::new(vec![hit(), hit(), to(0x1200, ScriptStop::BreakIn)]);
    let id = bench.runs.observe(&bench.target, 0x1100, Box::new(Counter::default())).unwrap();
    assert!(bench.runs.observe(&bench.target, 0x1100, Box::new(Counter::default())).is_err());
    assert_eq!(bench.run(Resume::Go).stopped_at, Some(Address(0x1200)));
    assert_eq!(bench.runs.observer::<Counter>(id).unwrap().hits, [0x1100, 0x1100]);
    let hidden = bench.runs.hidden();
    assert!(control::list_shown(&bench.target, &hidden).unwrap().is_empty());
    assert!(control::clear_shown(&bench.target, None, &hidden).unwrap().removed.is_empty());
    assert_eq!(list(&bench.target).unwrap().len(), 1);
    assert!(bench.runs.stop_observing(&bench.target, id).unwrap());
    assert!(!bench.runs.stop_observing(&bench.target, id).unwrap());
    assert!(list(&bench.target).unwrap().is_empty());
}
