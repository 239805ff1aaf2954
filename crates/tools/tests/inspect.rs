//! The inspect tools over a scripted target: what each says of the ordinary and of the odd.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use serde_json::{Value, json};
use target::scripted::ScriptedTarget;
use target::{
    Attribution, Context, ContextSource, Flow, Found, Frame, Guid, Halt, HexBytes, Instruction, Machine,
    Module, PdbIdentity, Silent, Target, TargetError, TargetKind, Thread, UnloadedModule, reg,
};
use tools::tool::Run;
use tools::{Category, Job, Surface, ToolError, admit};

const BASE: u64 = 0x1_4000_0000;

fn run_within(target: &dyn Target, tool: &str, args: Value, halt: &Halt) -> Result<Value, ToolError> {
    let entry = tools::find(tool).unwrap();
    let admission = admit(entry, args.as_object().cloned())?;
    let Run::Worker(run) = entry.run else { panic!("{tool} is no worker tool") };
    let mut commands = command::Session::new();
    let data = run(
        &mut Job {
            target,
            halt,
            progress: &Silent,
            commands: &mut commands,
            runs: &mut control::Runs::default(),
            kept: &mut tools::Kept::default(),
        },
        admission.args,
    )?;
    // Whatever was answered can be rendered and holds its schema.
    assert!(!entry.render(&data, &Surface::all()).unwrap().is_empty());
    if let Some(schema) = entry.output_schema() {
        let mut answer = data.clone();
        answer["status"] = json!("ok");
        jsonschema::validate(schema, &answer).unwrap();
    }
    Ok(data)
}

fn run(target: &dyn Target, tool: &str, args: Value) -> Value {
    run_within(target, tool, args, &Halt::unbounded()).unwrap()
}

fn refuse(target: &dyn Target, tool: &str, args: Value) -> ToolError {
    run_within(target, tool, args, &Halt::unbounded()).unwrap_err()
}

fn text(tool: &str, data: &Value) -> String {
    tools::find(tool).unwrap().render(data, &Surface::all()).unwrap()
}

fn module(name: &str, base: u64) -> Module {
    Module {
        name: name.to_owned(),
        image_name: format!("{name}.exe"),
        image_path: format!("C:\\app\\{name}.exe"),
        base,
        size: 0x3000,
        timestamp: 0x5f00_0001,
        checksum: 7,
        pdb: Some(PdbIdentity { guid: Guid([1; 16]), age: 2, name: format!("{name}.pdb") }),
        user_mode: None,
        file_version: Some([1, 2, 3, 4]),
    }
}

fn context(ip: u64) -> Context {
    let mut context = Context::new(Machine::X64, ContextSource::Exception);
    context.set_ip(ip);
    context.set_sp(0x7000);
    context.set(reg::RAX, 0x1122_3344_5566_7788);
    context
}

fn thread(id: u32) -> Thread {
    Thread { index: 0, system_id: id, event: true, ..Thread::default() }
}

fn program() -> ScriptedTarget {
    ScriptedTarget::new(Machine::X64)
        .with_module_record(module("app", BASE))
        .with_symbol("app", "main", BASE + 0x1000)
        .with_memory(BASE + 0x1000, [0x90, 0xc3, 0xcc])
        .with_thread(thread(41), Some(context(BASE + 0x1001)))
}

#[test]
fn current_location_has_four_states() {
    let here = run(&program(), "current_location", json!({}));
    assert_eq!(here["location_state"], "mapped");
    assert_eq!((&here["symbol"], &here["displacement"]), (&json!("app!main"), &json!("0x1")));
    assert_eq!(here["thread"], 41);
    assert!(here.get("processor").is_none());
    let at = &here["coordinate"];
    assert_eq!((&at["module"], &at["rva"]), (&json!("app"), &json!("0x1001")));
    assert_eq!(at["identity"]["pdb"]["age"], 2);

    let stray = ScriptedTarget::new(Machine::X64).with_thread(thread(1), Some(context(0x10)));
    assert_eq!(run(&stray, "current_location", json!({}))["location_state"], "unmapped");
    let blind = program().failing("modules", TargetError::failed("no list"));
    assert_eq!(run(&blind, "current_location", json!({}))["location_state"], "attribution_failed");
    let none = ScriptedTarget::new(Machine::X64).with_thread(thread(1), None);
    let answer = run(&none, "current_location", json!({}));
    assert_eq!(answer["location_state"], "context_unavailable");
    assert!(answer.get("address").is_none());
}

#[test]
fn a_register_that_was_not_recorded_is_unavailable_and_not_zero() {
    let answer = run(&program(), "registers", json!({}));
    let rows = answer["registers"].as_array().unwrap();
    let row = |name: &str| rows.iter().find(|row| row["name"] == name).unwrap();
    assert_eq!(row("rax")["value"], "0x1122334455667788");
    assert_eq!(row("rbx"), &json!({ "name": "rbx", "kind": "unavailable" }));
    assert_eq!(answer["source"], "exception");
    let names: Vec<&str> = rows.iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!(names[..5], ["rax", "rcx", "rdx", "rbx", "rsp"]);
    assert_eq!(names.len(), 34);
    let all = run(&program(), "registers", json!({ "all": true }));
    let eax = all["registers"].as_array().unwrap().iter().find(|row| row["name"] == "eax").unwrap().clone();
    assert_eq!((&eax["value"], &eax["subregister"]), (&json!("0x0000000055667788"), &json!(true)));
    let none = ScriptedTarget::new(Machine::X64).with_thread(thread(1), None);
    assert_eq!(run(&none, "registers", json!({}))["registers"], json!([]));
}

#[test]
fn a_thread_that_is_not_there_is_refused_with_those_that_are() {
    let error = refuse(&program(), "registers", json!({ "thread": 5 }));
    assert_eq!((error.category, error.reason.as_deref()), (Category::Debugger, Some("no_such_thread")));
    assert!(error.message.contains("no thread 5") && error.message.contains("41"), "{error}");
}

#[test]
fn a_read_keeps_what_came_before_a_hole() {
    let target = program();
    let answer = run(&target, "read_memory", json!({ "address": "app!main", "size": 16 }));
    assert_eq!((&answer["data"], &answer["read_size"]), (&json!("90c3cc"), &json!(3)));
    assert_eq!((&answer["stopped"], &answer["why"]), (&json!("unreadable"), &json!("not_in_dump")));
    assert_eq!(answer["stopped_at"], "0x0000000140001003");
    let error = refuse(&target, "read_memory", json!({ "address": "app" }));
    assert_eq!(error.category, Category::Debugger);
    assert!(error.message.contains("0x0000000140000000") && error.message.contains("app"), "{error}");
    let error = refuse(&target, "read_memory", json!({ "address": "0xfffffffffffffff8", "size": 16 }));
    assert_eq!(error.category, Category::InvalidArgument);
    assert!(
        refuse(&target, "read_memory", json!({ "address": "0xfffffffffffffff0", "size": 16 })).category
            == Category::Debugger
    );
}

#[test]
fn a_read_stops_between_pages_when_it_is_told_to() {
    let target = program().with_memory(0x10_0000, vec![7; 0x4000]);
    let halt = Halt::unbounded();
    halt.flag().store(true, std::sync::atomic::Ordering::Relaxed);
    // The address itself must not need the time that is gone.
    let target = target.with_value("there", 0x10_0000);
    let answer = run_within(&target, "read_memory", json!({ "address": "there", "size": 16384 }), &halt);
    assert_eq!(answer.unwrap_err().category, Category::Interrupted);
    let at = json!({
        "module": "big", "image_name": "big.exe", "rva": "0x0",
        "identity": { "timestamp": 0x5f00_0001, "size": 0x4000 }
    });
    let mut record = module("big", 0x10_0000);
    (record.size, record.pdb) = (0x4000, None);
    let target = program().with_module_record(record).with_memory(0x10_0000, vec![7; 0x4000]);
    let args = json!({ "coordinate": at, "size": 16384, "session_id": "s" });
    let answer = run_within(&target, "read_memory", args, &halt).unwrap();
    assert_eq!((&answer["stopped"], &answer["read_size"]), (&json!("interrupted"), &json!(0x1000)));
}

#[test]
fn a_name_that_is_not_there_is_met_with_near_ones_and_a_cut_look_up_with_not_run() {
    let target = program().with_symbol("app", "mainloop", BASE + 0x1100);
    let error = refuse(&target, "disassemble", json!({ "address": "app!mainly" }));
    assert!(error.message.contains("app!main"), "{error}");
    let halt = Halt::within(Duration::ZERO);
    let error = run_within(&target, "disassemble", json!({ "address": "app!main" }), &halt).unwrap_err();
    assert_eq!(error.category, Category::NotRun);
}

#[test]
fn a_coordinate_that_two_modules_answer_is_ambiguous() {
    let target = program().with_module_record(module("app", BASE + 0x10_0000));
    let at = run(&program(), "current_location", json!({}))["coordinate"].clone();
    let error = refuse(&target, "read_memory", json!({ "coordinate": at, "size": 1, "session_id": "s" }));
    assert_eq!(error.reason.as_deref(), Some("module_ambiguous"));
    assert_eq!(error.extra["coordinate"]["problem"], "module_ambiguous");
}

fn frame(ip: u64, inline: bool) -> Frame {
    Frame {
        ip,
        sp: 0x7000,
        found: Found::Unwind,
        inline,
        attribution: Attribution::NoModule { unloaded: (ip == 3).then(|| "gone.sys".to_owned()) },
        symbol: None,
        source: None,
        context: None,
        return_address: 0,
    }
}

#[test]
fn inline_frames_are_rows_and_are_not_counted() {
    let frames = vec![frame(1, true), frame(1, false), frame(2, true), frame(2, false), frame(3, false)];
    let target = program().with_frames(frames);
    let rows = |limit: u32| {
        let answer = run(&target, "backtrace", json!({ "frames": limit }));
        (answer["frames"].as_array().unwrap().len(), answer["frames_truncated"] == true)
    };
    assert_eq!(rows(3), (5, false));
    assert_eq!(rows(2), (4, true));
    assert_eq!(rows(1), (2, true));
    let all = run(&target, "backtrace", json!({}));
    assert_eq!(all["frames"][4]["unloaded_module"], "gone.sys");
    assert!(text("backtrace", &all).contains("<unloaded gone.sys>"));
}

#[test]
fn missing_symbols_are_named_once_with_the_path_that_has_them() {
    let mut stray = frame(BASE + 0x10, false);
    stray.attribution = Attribution::Module { name: "app".into(), base: BASE, rva: 0x10 };
    let bare = ScriptedTarget::new(Machine::X64)
        .with_module_record(module("app", BASE))
        .with_thread(thread(1), Some(context(BASE + 0x10)))
        .with_frames(vec![stray.clone(), stray]);
    let answer = run(&bare, "backtrace", json!({}));
    let notes = answer["limitations"].as_array().unwrap();
    assert_eq!(notes.len(), 1);
    assert!(notes[0].as_str().unwrap().contains("app: ") && notes[0].as_str().unwrap().contains("msdl"));
    bare.set_symbol_paths(target::SymbolPaths { symbols: "srv**https://h/s".into(), ..Default::default() })
        .unwrap();
    assert!(run(&bare, "backtrace", json!({})).get("limitations").is_none());
}

#[test]
fn modules_are_filtered_shared_out_and_fenced() {
    let mut target = ScriptedTarget::new(Machine::X64);
    for index in 0..80_u64 {
        target = target.with_module(&format!("mod{index}"), 0x10_0000 * (index + 1), 0x1000);
    }
    for index in 0..20_u64 {
        target = target.with_unloaded(UnloadedModule {
            image_name: format!("old{index}.sys"),
            base: 0x9000_0000 + index * 0x1000,
            size: 0x1000,
            timestamp: 0,
            checksum: 0,
        });
    }
    let target = target.with_module("a```b", 0x8000_0000, 0x1000);
    let page = run(&target, "modules", json!({}));
    assert_eq!(
        (page["modules"].as_array().unwrap().len(), page["unloaded"].as_array().unwrap().len()),
        (48, 16)
    );
    assert_eq!((&page["loaded"], &page["unloaded_matched"]), (&json!(81), &json!(20)));
    assert!(text("modules", &page).contains("limit 101 returns all"), "{}", text("modules", &page));
    let odd = run(&target, "modules", json!({ "filter": "```" }));
    assert_eq!((&odd["matched"], &odd["filter"]), (&json!(1), &json!("*```*")));
    assert_eq!(text("modules", &odd).matches("```").count(), 2);
    let none = run(&target, "modules", json!({ "filter": "nonesuch" }));
    assert!(text("modules", &none).contains("only * and ? are wild"));
    let failing = program().failing("resync", TargetError::failed("link down"));
    let page = run(&failing, "modules", json!({ "refresh": true }));
    assert_eq!(page["refresh"], json!({ "synchronized": false, "before": 1, "error": "link down" }));
    assert!(text("modules", &page).starts_with("The list could not be refreshed (link down)"));
    assert_eq!(page["modules"][0]["pdb"]["key"], "010101010101010101010101010101012");
    assert_eq!(page["modules"][0]["version"], "1.2.3.4");
}

/// Spec 10 section 11.5: 200 loaded, 50 unloaded, limit 227.
#[test]
fn the_modules_budget_gives_what_one_half_leaves_to_the_other() {
    let mut target = ScriptedTarget::new(Machine::X64);
    for index in 0..200_u64 {
        target = target.with_module(&format!("mod{index}"), 0x10_0000 * (index + 1), 0x1000);
    }
    for index in 0..50_u64 {
        target = target.with_unloaded(UnloadedModule {
            image_name: format!("old{index}.sys"),
            base: 0x9000_0000 + index * 0x1000,
            size: 0x1000,
            timestamp: 0,
            checksum: 0,
        });
    }
    let page = run(&target, "modules", json!({ "limit": 227 }));
    let rows = |half: &str| page[half].as_array().unwrap().len();
    assert_eq!((rows("modules"), rows("unloaded")), (177, 50));
    assert!(text("modules", &page).contains("limit 250 returns all"), "{}", text("modules", &page));
}

/// A frame in no module has no module and no flag; one whose module could not be looked up has the flag.
#[test]
fn a_frame_in_no_module_and_one_whose_look_up_failed() {
    let mut failed = frame(2, false);
    failed.attribution = Attribution::LookupFailed;
    let target = program().with_frames(vec![frame(1, false), failed]);
    let answer = run(&target, "backtrace", json!({}));
    let (none, unknown) = (&answer["frames"][0], &answer["frames"][1]);
    assert!(none.get("module").is_none() && none.get("attribution_failed").is_none(), "{none}");
    assert!(unknown.get("module").is_none() && unknown["attribution_failed"] == true, "{unknown}");
}

#[test]
fn a_kernel_has_processors_for_threads() {
    let mut target =
        ScriptedTarget::new(Machine::X64).with_facts(|facts| facts.kind = TargetKind::KernelDump);
    for number in 0..4 {
        let processor =
            Thread { index: number, system_id: number, processor: Some(number), ..Thread::default() };
        target = target.with_thread(processor, (number < 3).then(|| context(0x10 + u64::from(number))));
    }
    let answer = run(&target, "threads", json!({}));
    assert_eq!((&answer["kind"], &answer["total"]), (&json!("processors"), &json!(4)));
    assert_eq!(answer["threads"][2]["ip"], "0x0000000000000012");
    assert!(answer["threads"][3].get("ip").is_none());
    let cut = run(&target, "threads", json!({ "limit": 2 }));
    assert_eq!(cut["threads"].as_array().unwrap().len(), 2);
    assert!(text("threads", &cut).contains("limit 4 returns all"));
    assert_eq!(run(&target, "current_location", json!({}))["processor"], 0);
    assert_eq!(refuse(&target, "exception_triage", json!({})).reason.as_deref(), Some("wrong_target_kind"));
}

#[test]
fn code_that_ends_says_so() {
    let instruction = |address: u64, bytes: &[u8], text: Option<&str>| Instruction {
        address,
        bytes: HexBytes(bytes.to_vec()),
        text: text.map(ToOwned::to_owned),
        target: None,
        flow: Flow::Next,
        data_address: None,
    };
    let target = program()
        .with_instruction(instruction(
            BASE + 0x1001,
            &[0xb8, 1, 0, 0, 0],
            Some("mov     eax, 00000001`40000000h"),
        ))
        .with_instruction(instruction(BASE + 0x1006, &[0xff], None));
    let answer = run(&target, "disassemble", json!({}));
    let rows = answer["instructions"].as_array().unwrap();
    assert_eq!((rows.len(), &answer["stopped_early"]), (2, &json!(true)));
    assert_eq!(rows[0]["text"], "mov eax, 0000000140000000h");
    assert_eq!((&rows[0]["bytes"], &rows[1]["text"]), (&json!("b801000000"), &json!("???")));
    let one = run(&target, "disassemble", json!({ "count": 1 }));
    assert!(one.get("stopped_early").is_none());
    let nowhere = ScriptedTarget::new(Machine::X64).with_thread(thread(1), None);
    assert_eq!(refuse(&nowhere, "disassemble", json!({})).reason.as_deref(), Some("no_context"));
}

#[test]
fn an_arm64_instruction_is_its_word() {
    let brk = Instruction {
        address: 0x10,
        bytes: HexBytes(vec![0x00, 0x00, 0x20, 0xd4]),
        text: Some("brk #0".into()),
        target: None,
        flow: Flow::Trap,
        data_address: None,
    };
    let target = ScriptedTarget::new(Machine::Arm64).with_instruction(brk);
    let answer = run(&target, "disassemble", json!({ "address": "0x10", "count": 1 }));
    assert_eq!(answer["instructions"][0]["bytes"], "d4200000");
}

#[test]
fn a_failed_reload_leaves_the_path_set() {
    let target = program().failing("reload", TargetError::failed("no such module"));
    let operation = tools::operations::find("set_symbol_path").unwrap();
    let (halt, mut commands) = (Halt::unbounded(), command::Session::new());
    let mut job = Job {
        target: &target,
        halt: &halt,
        progress: &Silent,
        commands: &mut commands,
        runs: &mut control::Runs::default(),
        kept: &mut tools::Kept::default(),
    };
    let set = |job: &mut Job<'_>, path: &str, append: bool| {
        operation(job, json!({ "symbol_path": path, "append": append })).unwrap()
    };
    let first = set(&mut job, "/a", true);
    assert_eq!((&first["path"], &first["reload"]["ok"]), (&json!("/a"), &json!(false)));
    assert_eq!(set(&mut job, "/b", true)["path"], "/b;/a");
    // What is not there is said; a server is not asked.
    let given = set(&mut job, "/nosuch;srv*/nosuch*https://h/s", true);
    assert_eq!(given["missing"], json!(["/nosuch"]));
    assert_eq!(set(&mut job, "/c", false)["path"], "/c");
}
