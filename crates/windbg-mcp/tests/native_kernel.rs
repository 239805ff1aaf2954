//! `attach_kernel` on the native engine, end to end: the served tools over a simulated kernel. Needs
//! nothing of Microsoft's.

#![allow(clippy::unwrap_used, clippy::expect_used)]
#![cfg(unix)]

mod mcp;

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use kd_sim::{Listen, Scenario, Simulator};
use mcp::{Client, Era, fixture};
use serde_json::{Value, json};

const ERA: Era = Era::Handshake("2025-06-18");

fn fixtures() -> std::path::PathBuf {
    fixture("crash.dmp").parent().unwrap().to_owned()
}

fn simulator() -> Simulator {
    Simulator::start(&Scenario::default().with_fixtures(&fixtures()), &Listen::local()).unwrap()
}

fn attach(client: &mut Client, connection: &str) -> Value {
    let folder = fixtures().display().to_string();
    client.ok(
        "attach_kernel",
        json!({ "connection": connection, "engine": "native", "symbol_path": folder, "image_path": folder }),
    )
}

/// A refusal: its error, and what it says of the target beside it.
fn refused(client: &mut Client, asked: Value) -> (Value, Value) {
    let answer = client.call("attach_kernel", asked);
    assert_eq!(answer["isError"], true, "{answer:#}");
    (answer["structuredContent"]["error"].clone(), answer["structuredContent"]["target"].clone())
}

fn execute(client: &mut Client, command: &str) -> String {
    let answer = client.call("execute", json!({ "command": command }));
    assert_ne!(answer["isError"], true, "{command}: {answer:#}");
    answer["content"][0]["text"].as_str().unwrap().to_owned()
}

fn hex(address: u64) -> String {
    format!("{address:#018x}")
}

#[test]
fn a_kernel_is_looked_into_stopped_stepped_and_let_go() {
    let simulator = simulator();
    let mut client = Client::start(ERA);
    let opened = attach(&mut client, simulator.connection());
    assert_eq!((&opened["kind"], &opened["engine"]), (&json!("kernel"), &json!("native")), "{opened:#}");
    assert_eq!(opened["summary"]["processors"], 1, "{opened:#}");
    let can = opened["summary"]["can"].as_array().unwrap();
    for ability in ["run", "step", "breakpoints", "watch", "write"] {
        assert!(can.contains(&json!(ability)), "{ability}: {opened:#}");
    }

    let registers = client.ok("registers", json!({}));
    let rows = registers["registers"].as_array().unwrap();
    let value = |name: &str| rows.iter().find(|row| row["name"] == name).unwrap()["value"].clone();
    assert_eq!(value("rip"), hex(Scenario::CODE));
    assert_eq!(value("rbx"), hex(0x3333));
    let modules = client.ok("modules", json!({}));
    let names: Vec<&Value> = modules["modules"].as_array().unwrap().iter().map(|m| &m["name"]).collect();
    assert!(names.contains(&&json!("nt")) && names.contains(&&json!("faultdrv")), "{modules:#}");
    let memory = client.ok("read_memory", json!({ "address": hex(Scenario::CODE), "size": 8 }));
    assert!(memory.to_string().contains("9048c7c0"), "{memory:#}");
    let code = client.ok("disassemble", json!({ "address": hex(Scenario::CODE), "count": 3 }));
    assert!(code.to_string().contains("nop"), "{code:#}");
    let stack = client.ok("backtrace", json!({}));
    assert_eq!(stack["frames"][0]["address"], hex(Scenario::CODE), "{stack:#}");
    let symbol = execute(&mut client, "? nt!KeBugCheckEx");
    assert!(symbol.contains("fffff803`21"), "{symbol}");
    assert_eq!(client.ok("threads", json!({}))["kind"], "processors");

    let place = Scenario::CODE + 0x17;
    let set = client.ok("set_breakpoint", json!({ "expression": hex(place) }));
    let stop = client.ok("go", json!({ "timeout_ms": 20_000 }));
    assert_eq!(
        (&stop["stopped_at"], &stop["reason"]["kind"], &stop["processor"]),
        (&json!(hex(place)), &json!("breakpoint"), &json!(0)),
        "{stop:#}"
    );
    assert_eq!(stop["reason"]["breakpoint"], set["breakpoint"]["id"]);
    let step = client.ok("step_into", json!({}));
    assert_eq!(step["stopped_at"], hex(place + 4), "{step:#}");
    let run = client.ok("run_to_address", json!({ "address": hex(Scenario::CODE + 0x20) }));
    assert_eq!(run["verdict"], "hit", "{run:#}");
    let listed = client.ok("breakpoints", json!({}));
    assert_eq!(listed["breakpoints"].as_array().unwrap().len(), 1, "{listed:#}");
    execute(&mut client, &format!("eb {:x} 1 2", Scenario::STACK - 0x200));
    assert_eq!(simulator.with_machine(|machine| machine.read(Scenario::STACK - 0x200, 2)), [1, 2]);
    execute(&mut client, "r rbx=55");
    assert_eq!(simulator.with_machine(|machine| machine.registers(0).unwrap().general(3)), 0x55);
    let processes = execute(&mut client, "!process 0 0");
    assert!(processes.contains("orders.exe"), "{processes}");
    client.ok("clear_breakpoints", json!({ "all": true }));

    let run = client.ok("continue_async", json!({}));
    let execution = json!({ "execution": run["execution"] });
    let refused = client.err("registers", json!({}));
    assert_eq!(refused["category"], "target_running", "{refused:#}");
    client.ok("break_in", execution.clone());
    let stopped = client.ok("wait_for_stop", execution)["stop"].clone();
    assert_eq!(
        (&stopped["reason"]["kind"], &stopped["interrupted"]),
        (&json!("break_in"), &json!(true)),
        "{stopped:#}"
    );

    let ended = client.ok("end_session", json!({}));
    assert_eq!(
        (&ended["released"], &ended["ending"], &ended["target_left_running"]),
        (&json!(true), &json!("resumed_and_detached"), &json!(true)),
        "{ended:#}"
    );
    assert!(simulator.running());
    assert_eq!(simulator.with_machine(|machine| machine.breakpoints()), 0);
}

/// The row of spec 10 section 11.4: the same silent peer, native.
#[test]
fn the_same_silent_peer_native() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let connection = format!("com:ipport={},port=127.0.0.1", listener.local_addr().unwrap().port());
    let mut client = Client::start_with(ERA, &[("WINDBG_MCP_CALL_TIMEOUT_SECS", "3")]);
    let asked = json!({ "connection": connection, "engine": "native" });
    let (error, target) = refused(&mut client, asked.clone());
    assert_eq!((&error["category"], &target), (&json!("timeout"), &json!("pending")), "{error:#}");
    let row = client.ok("session_status", json!({}))["sessions"][0].clone();
    assert_eq!((&row["state"], &row["engine"]), (&json!("attaching"), &json!("native")), "{row:#}");
    let other = json!({ "connection": connection.replace("127.0.0.1", "localhost"), "engine": "native" });
    let (taken, _) = refused(&mut client, other);
    assert_eq!(taken["category"], "capacity", "{taken:#}");
    let began = Instant::now();
    let ended = client.ok("end_session", json!({ "session_id": error["session_id"] }));
    assert_eq!((&ended["released"], &ended["ending"]), (&json!(true), &json!("closed")), "{ended:#}");
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
}

/// Between debugger and target, until it is told to lose what the target says.
struct Line {
    connection: String,
    deaf: Arc<AtomicBool>,
}

impl Line {
    fn to(simulator: &Simulator) -> Self {
        let (_, port) = simulator.connection().split_once("ipport=").unwrap();
        let port: u16 = port.split(',').next().unwrap().parse().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connection =
            format!("com:ipport={},port=127.0.0.1,timeout=200", listener.local_addr().unwrap().port());
        let deaf = Arc::new(AtomicBool::new(false));
        let lost = Arc::clone(&deaf);
        std::thread::spawn(move || {
            let (debugger, _) = listener.accept().unwrap();
            let target = TcpStream::connect(("127.0.0.1", port)).unwrap();
            let (mut from, mut to) = (debugger.try_clone().unwrap(), target.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut from, &mut to));
            let (mut from, mut to) = (target, debugger);
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = from.read(&mut bytes) {
                if !lost.load(Ordering::Relaxed) && to.write_all(&bytes[..count]).is_err() {
                    break;
                }
            }
        });
        Self { connection, deaf }
    }
}

/// Spec 10 section 1.9, of the native engine: the worker of a stopped target that does not acknowledge its
/// release is kept, a repeated end tries again, and until then nothing else is asked of it.
#[test]
fn a_stopped_target_that_does_not_acknowledge_its_release_is_kept_until_it_does() {
    let simulator = simulator();
    let line = Line::to(&simulator);
    let mut client = Client::start(ERA);
    let session = attach(&mut client, &line.connection)["session_id"].clone();
    let place = Scenario::CODE + 0x17;
    client.ok("set_breakpoint", json!({ "expression": hex(place) }));
    client.ok("go", json!({ "timeout_ms": 20_000 }));
    line.deaf.store(true, Ordering::Relaxed);
    for _ in 0..2 {
        let ended = client.ok("end_session", json!({ "session_id": session }));
        assert_eq!(
            (&ended["released"], &ended["recovery_required"], &ended["ending"], &ended["worker_terminated"]),
            (&json!(false), &json!(true), &json!("preserved"), &json!(false)),
            "{ended:#}"
        );
        let refused = client.err("registers", json!({ "session_id": session }));
        assert_eq!(refused["category"], "recovery_required", "{refused:#}");
    }
    let row = client.ok("session_status", json!({}))["sessions"][0].clone();
    assert_eq!(row["state"], "kernel_unresolved", "{row:#}");
    line.deaf.store(false, Ordering::Relaxed);
    let began = Instant::now();
    let ended = loop {
        let ended = client.ok("end_session", json!({ "session_id": session }));
        if ended["released"] == true {
            break ended;
        }
        assert!(began.elapsed() < Duration::from_secs(120), "{ended:#}");
    };
    assert_eq!(ended["target_left_running"], true, "{ended:#}");
    assert!(simulator.running());
    assert_eq!(simulator.with_machine(|machine| machine.breakpoints()), 0);
}

#[test]
fn what_the_native_engine_does_not_dial_names_the_engine_that_does() {
    let mut client = Client::start(ERA);
    for connection in
        [r"com:pipe,port=\\.\pipe\kd", "com:port=COM1,baud=115200", "net:port=50000,key=1.2.3.4"]
    {
        let error = client.err("attach_kernel", json!({ "connection": connection, "engine": "native" }));
        assert_eq!(error["category"], "unsupported", "{connection}: {error:#}");
        assert!(error["message"].as_str().unwrap().contains("dbgeng"), "{connection}: {error:#}");
    }
}

#[test]
fn nobody_there_is_said_at_once() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let mut client = Client::start(ERA);
    let asked = json!({ "connection": format!("com:ipport={port},port=127.0.0.1"), "engine": "native" });
    let (error, target) = refused(&mut client, asked);
    assert_eq!((&error["category"], &target), (&json!("debugger"), &json!("no")), "{error:#}");
}
