//! The exec tools over a scripted process: what they answer, in both halves.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use serde_json::{Value, json};
use target::scripted::{ScriptRun, ScriptStop, ScriptedTarget, Step};
use target::{Address, Code, Context, ContextSource, Halt, Machine, Silent, Target, TargetError, Thread};
use tools::tool::Run;
use tools::{Category, Job, Surface, ToolError, admit};

fn everything() -> Surface {
    let names: Vec<&str> = tools::all().iter().map(|entry| entry.name).collect();
    Surface::of(&names)
}

fn call(target: &dyn Target, tool: &str, args: Value) -> Result<(Value, String), ToolError> {
    let entry = tools::find(tool).unwrap();
    let admission = admit(entry, args.as_object().cloned())?;
    let Run::Worker(run) = entry.run else { panic!("{tool} is no worker tool") };
    let (mut commands, mut runs) = (command::Session::new(), control::Runs::default());
    let halt = Halt::unbounded();
    let mut job = Job {
        target,
        halt: &halt,
        progress: &Silent,
        commands: &mut commands,
        runs: &mut runs,
        kept: &mut tools::Kept::default(),
    };
    let data = run(&mut job, admission.args)?;
    let text = entry.render(&data, &everything()).unwrap();
    if let Some(schema) = entry.output_schema() {
        let mut answer = data.clone();
        answer["status"] = json!("ok");
        jsonschema::validate(schema, &answer).unwrap();
    }
    Ok((data, text))
}

fn live(runs: Vec<ScriptRun>) -> ScriptedTarget {
    let mut context = Context::new(Machine::X64, ContextSource::Live);
    context.set_ip(0x1000);
    ScriptedTarget::new(Machine::X64)
        .with_module("victim", 0x1000, 0x2000)
        .with_memory(0x1000, vec![0x90; 0x2000])
        .with_symbol("victim", "poke", 0x1100)
        .with_symbol("victim", "g_watch", 0x2100)
        .with_thread(Thread { system_id: 1, event: true, ..Thread::default() }, Some(context))
        .with_thread(Thread { system_id: 9, ..Thread::default() }, None)
        .with_runs(runs)
}

fn to(ip: u64, stop: ScriptStop) -> ScriptRun {
    ScriptRun { ip: Some(Address(ip)), stop, ..ScriptRun::default() }
}

#[test]
fn a_go_to_a_breakpoint() {
    let target = live(vec![ScriptRun {
        steps: vec![Step::Say("Breakpoint 0 hit\n".into())],
        ..to(0x1104, ScriptStop::Breakpoint { id: 0 })
    }]);
    let (set, text) = call(&target, "set_breakpoint", json!({ "expression": "victim!poke" })).unwrap();
    assert_eq!(set["breakpoint"]["address"], "0x0000000000001100");
    assert_eq!(text, "Set breakpoint 0, code, 0x0000000000001100 victim+0x100 victim!poke (0 hits).");
    let (stop, text) = call(&target, "go", json!({})).unwrap();
    assert_eq!(stop["reason"], json!({ "kind": "breakpoint", "breakpoint": 0 }));
    assert_eq!(
        text,
        "g: stopped at 0x0000000000001104 victim!poke+0x4 (victim+0x104) on thread 1: breakpoint 0.\n\
         Printed meanwhile:\nBreakpoint 0 hit"
    );
}

#[test]
fn steps_say_what_they_were() {
    let target = live(vec![to(0x1005, ScriptStop::Step)]);
    for (tool, command) in [("step_over", "p"), ("step_into", "t")] {
        let (stop, text) = call(&target, tool, json!({})).unwrap();
        assert_eq!(stop["command"], command);
        assert!(text.starts_with(&format!("{command}: stopped at 0x0000000000001005")), "{text}");
    }
}

#[test]
fn every_kind_of_stop_is_told_apart_in_words() {
    let access =
        ScriptStop::Exception { code: Code(0xc000_0005), address: Address(0x1004), first_chance: true };
    let cases = [
        (to(0x1004, access), json!({}), "exception 0xc0000005 at 0x0000000000001004, first chance"),
        (
            to(0x1004, ScriptStop::Exited { code: Some(7) }),
            json!({}),
            "the target is gone: it exited with 0x00000007",
        ),
        (to(0x1004, ScriptStop::ModuleLoad { name: "x.dll".into() }), json!({}), "x.dll loaded"),
        (
            ScriptRun {
                steps: vec![Step::Sleep { ms: 5000 }],
                break_thread: Some(9),
                ..to(0x1004, ScriptStop::Step)
            },
            json!({ "timeout_ms": 30 }),
            "30 ms passed and the target was broken in",
        ),
    ];
    for (run, args, words) in cases {
        let (_, text) = call(&live(vec![run]), "go", args).unwrap();
        assert!(text.contains(words), "{text}");
    }
}

#[test]
fn run_to_address_answers_a_verdict() {
    let target = live(vec![to(0x1100, ScriptStop::NewestBreakpoint)]);
    let (answer, text) = call(&target, "run_to_address", json!({ "address": "victim!poke" })).unwrap();
    assert_eq!((&answer["verdict"], &answer["timeout_ms"]), (&json!("hit"), &json!(60_000)));
    assert_eq!(answer["target"], "0x0000000000001100");
    assert!(text.starts_with("Hit after "), "{text}");
    let elsewhere = live(vec![to(0x1050, ScriptStop::DataBreakpoint { id: 2 })]);
    let (answer, text) = call(&elsewhere, "run_to_address", json!({ "address": "victim!poke" })).unwrap();
    assert_eq!(answer["verdict"], "stopped_elsewhere");
    assert!(text.contains("data breakpoint 2"), "{text}");
    let error = call(&elsewhere, "run_to_address", json!({ "address": "victim!pokes" })).unwrap_err();
    assert!(error.message.contains("near names: victim!poke"), "{}", error.message);
}

#[test]
fn data_breakpoints_replace_and_are_listed() {
    let target = live(vec![ScriptRun::default()]);
    let watch = json!({ "expression": "victim!g_watch", "watch": { "access": "write", "size": 4 } });
    call(&target, "set_breakpoint", watch.clone()).unwrap();
    let (again, text) = call(&target, "set_breakpoint", watch).unwrap();
    assert_eq!(again["replaced"], json!([0]));
    assert!(text.contains("It took the place of 0."), "{text}");
    let deferred = json!({
        "expression": "nope!x", "pass_count": 3, "thread": 9, "condition": "@rcx", "command": "k; gc"
    });
    let (set, text) = call(&target, "set_breakpoint", deferred).unwrap();
    assert_eq!(set["breakpoint"]["deferred"], true);
    assert!(
        text.contains("deferred until its module loads; arrival 3, 3 to go; thread 9; if @rcx"),
        "{text}"
    );
    let (all, text) = call(&target, "breakpoints", json!({})).unwrap();
    assert_eq!((&all["enabled"], &all["deferred"]), (&json!(2), &json!(1)));
    assert!(text.contains("write 4") && text.ends_with("2 enabled, 1 deferred."), "{text}");
    let (cleared, text) = call(&target, "clear_breakpoints", json!({ "ids": [1, 99] })).unwrap();
    assert_eq!((&cleared["removed"], &cleared["missing"]), (&json!([1]), &json!([99])));
    assert!(text.starts_with("Removed 1. Not there: 99."), "{text}");
    let (_, text) = call(&target, "clear_breakpoints", json!({ "all": true })).unwrap();
    assert!(text.ends_with("There are no breakpoints."), "{text}");
}

#[test]
fn a_refused_breakpoint_names_what_is_near() {
    let target = live(vec![ScriptRun::default()]);
    let error = call(&target, "set_breakpoint", json!({ "expression": "victim!pok" })).unwrap_err();
    assert_eq!((error.category, error.reason.as_deref()), (Category::Debugger, Some("no_such_symbol")));
    assert!(error.message.contains("near names: victim!poke"), "{}", error.message);
}

#[test]
fn what_cannot_be_cleared_is_an_error_with_the_same_fields() {
    let stuck = live(vec![ScriptRun::default()]).failing("remove_breakpoint", TargetError::failed("stuck"));
    call(&stuck, "set_breakpoint", json!({ "expression": "victim!poke" })).unwrap();
    let error = call(&stuck, "clear_breakpoints", json!({ "ids": [0, 5] })).unwrap_err();
    assert_eq!(error.category, Category::Debugger);
    assert_eq!(error.extra["failed"], json!([{ "id": 0, "error": "stuck" }]));
    assert_eq!((&error.extra["missing"], &error.extra["removed"]), (&json!([5]), &json!([])));
    assert_eq!(error.extra["remaining"].as_array().unwrap().len(), 1);
}

#[test]
fn a_coordinate_is_the_same_address() {
    let target = live(vec![ScriptRun::default()]);
    let at = json!({
        "module": "victim", "image_name": "victim.dll", "rva": "0x100",
        "identity": { "timestamp": 0, "size": 0x2000 }
    });
    let (set, _) = call(&target, "set_breakpoint", json!({ "coordinate": at, "session_id": "s" })).unwrap();
    assert_eq!(set["breakpoint"]["address"], "0x0000000000001100");
    let mut past = at.clone();
    past["rva"] = json!("0x1ffe");
    let watch = json!({ "access": "write", "size": 4 });
    let args = json!({ "coordinate": past, "session_id": "s", "watch": watch });
    let error = call(&target, "set_breakpoint", args).unwrap_err();
    assert_eq!(error.extra["coordinate"]["problem"], "out_of_range");
}

#[test]
fn dumps_are_refused_by_every_one_of_them() {
    let dump = ScriptedTarget::new(Machine::X64);
    for (tool, args) in [
        ("go", json!({})),
        ("step_over", json!({})),
        ("step_into", json!({})),
        ("run_to_address", json!({ "address": "0x1000" })),
        ("set_breakpoint", json!({ "expression": "0x1000" })),
        ("breakpoints", json!({})),
        ("clear_breakpoints", json!({ "all": true })),
    ] {
        let error = call(&dump, tool, args).unwrap_err();
        assert_eq!(
            (error.category, error.reason.as_deref()),
            (Category::Unsupported, Some("not_live")),
            "{tool}"
        );
        assert!(error.message.starts_with("a dump ") && error.next.contains(&"launch".to_owned()), "{tool}");
    }
    let error = call(&dump, "dx", json!({ "expression": "1" })).unwrap_err();
    assert_eq!(error.category, Category::Unsupported);
}

#[test]
fn what_runs_commands_retires_the_handle() {
    let retires =
        |args: Value| admit(tools::find("dx").unwrap(), args.as_object().cloned()).unwrap().retires_handle;
    assert!(retires(json!({ "expression": "Debugger.Utility.Control.EXECUTEcommand(\"k\")" })));
    assert!(!retires(json!({ "expression": "@$cursession" })));
}
