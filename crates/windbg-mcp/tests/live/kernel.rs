//! `attach_kernel` over DbgEng: the rows of spec 10 section 11.4 about it. The row of the native
//! engine's silent peer is with that engine.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use kd_sim::{Listen, Scenario, Simulator};
use serde_json::{Value, json};
use supervisor::Config;

use crate::bench::{Bench, bench, bench_with, kill, number, program, root, runs, within};

/// Ends a controller that a failed test leaves behind.
struct Kept(u64);

impl Drop for Kept {
    fn drop(&mut self) {
        if runs(self.0) {
            kill(self.0);
        }
    }
}

/// A pipe server that never says a word, and its pipe.
struct SilentPipe(Child, String);

impl SilentPipe {
    fn start(bench: &Bench) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name =
            format!(r"\\.\pipe\silent-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let mut wine = Command::new("wine");
        wine.arg(program("silent_pipe.exe")).arg(&name);
        wine.env("WINEPREFIX", bench.prefix()).env("WINEDEBUG", "-all");
        let mut child = wine.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut said = String::new();
        let mut output = std::io::BufReader::new(child.stdout.as_mut().unwrap());
        std::io::BufRead::read_line(&mut output, &mut said).unwrap();
        assert!(said.starts_with("listening"), "{said:?}");
        Self(child, name)
    }
}

impl Drop for SilentPipe {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn dbgeng(connection: &str) -> Value {
    json!({ "connection": connection, "engine": "dbgeng" })
}

fn short() -> Option<Bench> {
    bench_with(Config { call_timeout: Duration::from_secs(3), ..Config::default() })
}

async fn row(bench: &Bench, session: &Value) -> Value {
    bench.ok("session_status", json!({ "session_id": session })).await["sessions"][0].clone()
}

/// Attaches to a peer that never answers; the session and its worker.
async fn unresolved(bench: &Bench, connection: &str) -> (Value, Kept) {
    let began = Instant::now();
    let (text, error) = bench.said("attach_kernel", dbgeng(connection)).await;
    let error = error.expect_err(&text);
    assert!(began.elapsed() >= Duration::from_secs(3), "{error:#}");
    assert_eq!(error["category"], "recovery_required", "{error:#}");
    let row = row(bench, &error["session_id"]).await;
    assert_eq!(
        (&row["state"], &row["kind"], &row["engine"], &row["live"]),
        (&json!("kernel_unresolved"), &json!("kernel"), &json!("dbgeng"), &json!(true)),
        "{row:#}"
    );
    let pid = row["engine_pid"].as_u64().unwrap();
    assert!(runs(pid), "{row:#}");
    (error["session_id"].clone(), Kept(pid))
}

/// A dump opens and works; each wait of 3 s may be too short for Wine's start, and is joined.
async fn a_dump_session_works(bench: &Bench) {
    let dump = root().join("fixtures/crash.dmp");
    let mut opened = Err(Value::Null);
    for _ in 0..20 {
        opened = bench.call("open_dump", json!({ "path": dump, "engine": "dbgeng" })).await;
        if !matches!(&opened, Err(error) if error["category"] == "timeout") {
            break;
        }
    }
    let opened = opened.unwrap();
    bench.ok("modules", json!({ "limit": 3 })).await;
    bench.ok("end_session", json!({ "session_id": opened["session_id"] })).await;
}

/// All of the row, on a peer that never answers; `again` is `connection` spelled another way.
async fn the_silent_row(bench: &Bench, connection: &str, again: &str) {
    let (session, kept) = unresolved(bench, connection).await;
    let pid = kept.0;
    let on = json!({ "session_id": session });
    a_dump_session_works(bench).await;
    for tool in ["interrupt", "registers", "go", "modules"] {
        let refused = bench.refused(tool, on.clone()).await;
        assert_eq!(refused["category"], "recovery_required", "{tool}: {refused:#}");
    }
    let (text, ended) = bench.said("end_session", on.clone()).await;
    assert_eq!(
        ended.unwrap(),
        json!({ "status": "ok", "session_id": session, "ending": "preserved", "released": false,
            "worker_terminated": false, "recovery_required": true })
    );
    assert!(text.contains("is preserved") && text.contains("kernel_handoff_pid"), "{text}");
    assert!(runs(pid));
    let began = Instant::now();
    let taken = bench.refused("attach_kernel", dbgeng(again)).await;
    assert_eq!((&taken["category"], &taken["reason"]), (&json!("capacity"), &json!("endpoint_taken")));
    assert!(began.elapsed() < Duration::from_secs(2), "nothing was dialled");

    let handoff = |pid: u64| json!({ "session_id": session, "kernel_handoff_pid": pid });
    for wrong in [handoff(pid + 1), json!({ "kernel_handoff_pid": pid })] {
        assert_eq!(bench.refused("end_session", wrong).await["category"], "invalid_argument");
    }
    assert!(runs(pid), "a wrong pid ends nothing");
    let (text, ended) = bench.said("end_session", handoff(pid)).await;
    let ended = ended.unwrap();
    assert_eq!(
        (&ended["released"], &ended["worker_terminated"], &ended["recovery_required"], &ended["ending"]),
        (&json!(false), &json!(true), &json!(true), &json!("handed_off")),
        "{ended:#}"
    );
    assert!(text.contains("Nothing was detached"), "{text}");
    assert!(!runs(pid), "seen from outside");
    assert_eq!(row(bench, &session).await["state"], "closed");
    // The endpoint is free: it is dialled again.
    let (session, kept) = unresolved(bench, again).await;
    bench.ok("end_session", json!({ "session_id": session, "kernel_handoff_pid": kept.0 })).await;
    bench.supervisor.shutdown().await;
}

#[tokio::test]
async fn silent_pipe_call_timeout_3_s() {
    let Some(bench) = short() else { return };
    let pipe = SilentPipe::start(&bench);
    let (plain, other) = (&pipe.1, pipe.1.replace("pipe", "PIPE"));
    the_silent_row(&bench, &format!("com:pipe,port={plain}"), &format!("COM:port={other},pipe")).await;
}

/// The same with no pipe at all: nobody answers on a TCP port.
#[tokio::test]
async fn silent_tcp_peer_call_timeout_3_s() {
    let Some(bench) = short() else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (plain, other) =
        (format!("com:ipport={port},port=127.0.0.1"), format!("com:ipport={port},port=LOCALHOST"));
    the_silent_row(&bench, &plain, &other).await;
}

#[tokio::test]
async fn missing_pipe_and_bogus_x_1_are_target_no() {
    let Some(bench) = bench() else { return };
    for (connection, category) in [
        (r"com:pipe,port=\\.\pipe\nobody-made-it", "debugger"),
        ("bogus:x=1", "invalid_argument"),
        ("net:port=50000,kye=q1w2.e3r4.t5y6.u7i8", "invalid_argument"),
        ("unix:path=/run/nobody", "unsupported"),
    ] {
        let args = dbgeng(connection).as_object().cloned();
        let answer = bench.answer("attach_kernel", args).await;
        let structured = answer.structured.unwrap();
        assert_eq!(structured["target"], "no", "{structured:#}");
        assert_eq!(structured["error"]["category"], category, "{structured:#}");
        assert!(!structured.to_string().contains("q1w2"), "{structured:#}");
        if category == "debugger" {
            assert!(answer.text.contains("0x80070002"), "{}", answer.text);
        }
    }
    assert_eq!(bench.ok("session_status", json!({})).await["sessions"], json!([]));
    bench.supervisor.shutdown().await;
}

/// While it waits: said so, not to be interrupted. The supervisor that goes leaves the controller.
#[tokio::test]
async fn a_parked_attach_is_said_to_wait_and_outlives_its_supervisor() {
    let Some(bench) = bench_with(Config { shutdown_grace: Duration::from_secs(2), ..Config::default() })
    else {
        return;
    };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let connection = format!("com:ipport={},port=127.0.0.1", listener.local_addr().unwrap().port());
    let second = bench.same_client();
    let opening = tokio::spawn(async move { second.call("attach_kernel", dbgeng(&connection)).await });
    let mut found = Value::Null;
    let until = Instant::now() + Duration::from_secs(60);
    while found["state"] != "attaching" && Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(100)).await;
        found = bench.ok("session_status", json!({})).await["sessions"][0].clone();
    }
    assert_eq!(
        (&found["state"], &found["waits_indefinitely"]),
        (&json!("attaching"), &json!(true)),
        "{found:#}"
    );
    assert!(found.get("interruptible").is_none(), "{found:#}");
    let on = json!({ "session_id": found["session_id"] });
    let interrupted = bench.ok("interrupt", on).await;
    assert_eq!(interrupted["outcome"], "unreachable", "{interrupted:#}");
    let kept = Kept(found["engine_pid"].as_u64().unwrap());
    bench.supervisor.shutdown().await;
    opening.abort();
    drop(bench);
    assert!(!within(Duration::from_secs(2), || !runs(kept.0)).await, "the controller is left as it is");
    kill(kept.0);
    assert!(within(Duration::from_secs(5), || !runs(kept.0)).await);
}

/// A kernel that answers: read, stepped, run, broken into, stopped by a breakpoint, let go of.
#[tokio::test]
async fn a_simulated_kernel_from_attach_to_detach() {
    let Some(bench) = bench() else { return };
    let simulator = Simulator::start(&Scenario::default(), &Listen::local()).unwrap();
    let opened = bench.ok("attach_kernel", dbgeng(simulator.connection())).await;
    assert_eq!((&opened["kind"], &opened["engine"]), (&json!("kernel"), &json!("dbgeng")), "{opened:#}");
    assert_eq!(opened["summary"]["os"]["build"], 19041, "{opened:#}");
    let modules = bench.ok("modules", json!({})).await;
    let kernel = &modules["modules"][0];
    assert_eq!(
        (&kernel["name"], number(&kernel["start"])),
        (&json!("nt"), Scenario::KERNEL_BASE),
        "{modules:#}"
    );
    let ip = bench.register("rip").await;
    let read = bench.ok("read_memory", json!({ "address": "nt", "size": 2 })).await;
    assert_eq!(read["data"], "4d5a");

    let code = bench.ok("disassemble", json!({ "count": 1 })).await["instructions"][0].clone();
    let stop = bench.ok("step_into", json!({})).await;
    assert_eq!(stop["reason"]["kind"], "step", "{stop:#}");
    let length = code["bytes"].as_str().unwrap().len() as u64 / 2;
    assert_eq!(number(&stop["stopped_at"]), ip + length, "{stop:#}");

    let (id, address) = bench.breakpoint(&format!("{:#x}", Scenario::CODE + 0x20)).await;
    let stop = bench.ok("go", json!({ "timeout_ms": 20_000 })).await;
    assert_eq!(
        (&stop["reason"]["kind"], &stop["reason"]["breakpoint"], &stop["stopped_at"]),
        (&json!("breakpoint"), &id, &address),
        "{stop:#}"
    );
    bench.ok("clear_breakpoints", json!({ "ids": [id] })).await;

    let run = bench.ok("continue_async", json!({})).await;
    assert_eq!(run["running"], true, "{run:#}");
    assert_eq!(bench.refused("registers", json!({})).await["category"], "target_running");
    let execution = json!({ "execution": run["execution"] });
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(simulator.running());
    assert_eq!(bench.ok("break_in", execution.clone()).await["requested"], true);
    let stop = bench.ok("wait_for_stop", execution).await["stop"].clone();
    assert_eq!(
        (&stop["reason"]["kind"], &stop["interrupted"]),
        (&json!("break_in"), &json!(true)),
        "{stop:#}"
    );
    assert!(stop.get("break_thread").is_none(), "{stop:#}");
    let stop = bench.ok("go", json!({ "timeout_ms": 500 })).await;
    assert_eq!(stop["timed_out"], true, "the break is not delivered twice: {stop:#}");

    // Left with a breakpoint set, it is let go of without one.
    bench.breakpoint(&format!("{:#x}", Scenario::CODE + 0x20)).await;
    let ended = bench.ok("end_session", json!({})).await;
    assert_eq!(
        (&ended["ending"], &ended["released"], &ended["target_left_running"]),
        (&json!("resumed_and_detached"), &json!(true), &json!(true)),
        "{ended:#}"
    );
    assert!(ended.get("recovery_required").is_none());
    assert!(simulator.running(), "seen on the other end");
    assert_eq!(simulator.with_machine(|machine| machine.breakpoints()), 0);
    // And attached to again.
    let again = bench.ok("attach_kernel", dbgeng(simulator.connection())).await;
    assert_eq!(again["kind"], "kernel");
    bench.supervisor.shutdown().await;
    assert!(simulator.running(), "a shutdown lets go of it too");
}

/// A target that dies under its debugger: the next call that needs it runs out of time.
#[tokio::test]
async fn a_kernel_that_falls_silent_is_unresolved() {
    let Some(bench) = bench() else { return };
    let simulator = Simulator::start(&Scenario::default(), &Listen::local()).unwrap();
    let opened = bench.ok("attach_kernel", dbgeng(simulator.connection())).await;
    let kept = Kept(row(&bench, &opened["session_id"]).await["engine_pid"].as_u64().unwrap());
    drop(simulator);
    let ended = bench.ok("end_session", json!({ "session_id": opened["session_id"] })).await;
    assert_eq!((&ended["released"], &ended["recovery_required"]), (&json!(false), &json!(true)), "{ended:#}");
    let pid = row(&bench, &opened["session_id"]).await["engine_pid"].as_u64().unwrap();
    assert_eq!((pid, runs(pid)), (kept.0, true));
    bench.ok("end_session", json!({ "session_id": opened["session_id"], "kernel_handoff_pid": pid })).await;
    assert!(!runs(pid));
    bench.supervisor.shutdown().await;
}
