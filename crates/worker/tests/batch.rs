//! `debug_batch` through supervisor and worker: what a session does around a batch (spec 20 sections
//! 2.5 and 2.10). The target's memory is a file, so that a second reader says what is in it.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod rig;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rig::{Rig, config, kill, rig, rig_with, script};
use serde_json::{Value, json};
use supervisor::Config;
use tokio_util::sync::CancellationToken;
use tools::Surface;
use tools::sessions::InterruptOutcome;

const AT: &str = "0x0000000000100000";

/// A target whose memory from [`AT`] on is a file of 64 bytes of 0x11, with a thread to run.
struct Bench {
    rig: Rig,
    session: String,
    file: PathBuf,
    _folder: tempfile::TempDir,
}

async fn bench_with(rig: Rig, commands: Value, runs: Value) -> Bench {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("memory");
    std::fs::write(&file, [0x11; 64]).unwrap();
    let mut live = script(commands);
    live["runs"] = runs;
    live["threads"] = json!(1);
    live["writable"] = json!({ "address": AT, "path": file });
    let session = rig.open_script(live).await.unwrap();
    Bench { rig, session, file, _folder: folder }
}

async fn bench(commands: Value) -> Bench {
    bench_with(rig(), commands, json!([{ "steps": [{ "sleep": { "ms": 600_000 } }] }])).await
}

fn memory(file: &Path) -> Vec<u8> {
    std::fs::read(file).unwrap()
}

impl Bench {
    async fn call(&self, name: &str, args: Value) -> (bool, Value, String) {
        call(&self.rig, name, args).await
    }
    fn spawn(&self, args: Value) -> tokio::task::JoinHandle<(bool, Value, String)> {
        let rig = Rig {
            supervisor: std::sync::Arc::clone(&self.rig.supervisor),
            client: std::sync::Arc::clone(&self.rig.client),
        };
        tokio::spawn(async move { call(&rig, "debug_batch", args).await })
    }
    fn byte(&self) -> u8 {
        memory(&self.file)[0]
    }
    async fn until_patched(&self) {
        rig::until(Duration::from_secs(10), async || self.byte() == 0x90).await;
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
}

async fn call(rig: &Rig, name: &str, args: Value) -> (bool, Value, String) {
    let (args, surface) = (args.as_object().cloned(), Surface::all());
    let call = rig.client.call(name, args, &surface, None, CancellationToken::new());
    let answer = call.await.unwrap();
    (answer.is_error, answer.structured.unwrap_or_default(), answer.text)
}

fn patch() -> Value {
    json!({ "op": "write_memory", "address": AT, "bytes": "90" })
}

fn command(text: &str) -> Value {
    json!({ "op": "command", "command": text })
}

#[tokio::test]
async fn a_batch_commits_and_its_writes_come_back() {
    let bench = bench(json!({ "look": ["say_history"] })).await;
    let steps = json!([
        patch(),
        { "op": "read_memory", "address": AT, "size": 2, "expect": [{ "check": "bytes", "equals": "9011" }] },
    ]);
    let (is_error, report, text) = bench.call("debug_batch", json!({ "steps": steps })).await;
    assert!(!is_error && report["outcome"] == "committed" && report["rollback"] == "complete", "{report:#}");
    assert_eq!(
        (report["status"].as_str(), report["restores"][0]["result"].as_str()),
        (Some("ok"), Some("ok"))
    );
    assert!(text.starts_with("BATCH: COMMITTED"), "{text}");
    assert_eq!(bench.byte(), 0x11);
    let kept =
        json!({ "steps": [{ "op": "write_memory", "address": AT, "bytes": "90", "restore": "never" }] });
    let (is_error, report, _) = bench.call("debug_batch", kept).await;
    assert!(!is_error && report["rollback"] == "not_supplied", "{report:#}");
    assert_eq!(bench.byte(), 0x90);
}

#[tokio::test]
async fn a_batch_that_did_not_commit_is_an_answer_marked_as_an_error() {
    let bench = bench(json!({ "bad": [{ "fail": "no such symbol" }] })).await;
    let (is_error, report, text) =
        bench.call("debug_batch", json!({ "steps": [patch(), command("bad")] })).await;
    assert!(is_error && report["status"] == "ok", "{report:#}");
    assert_eq!((&report["outcome"], &report["at"]), (&json!("failed"), &json!(2)), "{text}");
    assert_eq!(bench.byte(), 0x11);
}

#[tokio::test]
async fn what_is_refused_never_reaches_the_engine() {
    let bench = bench(json!({})).await;
    for (args, said) in [
        (json!({ "steps": [command("echo")], "aways": [] }), "did you mean \"always\"?"),
        (json!({ "steps": [{ "op": "eval", "expr": "1", "expct": [] }] }), "did you mean \"expect\"?"),
        (json!({ "steps": [{ "op": "eval", "expr": "1", "size": 4 }] }), "\"size\" belongs to read_memory"),
        (json!({ "steps": [] }), "steps has 0 entries"),
        (json!({ "steps": [command("echo {{x}}")] }), "{{x}}"),
        (json!({ "steps": [command("echo")], "timeout_ms": 1999 }), "timeout_ms"),
    ] {
        let (is_error, answer, text) = bench.call("debug_batch", args.clone()).await;
        assert!(is_error && answer["error"]["category"] == "invalid_argument", "{args}: {text}");
        assert!(text.contains(said), "{args}: {text}");
    }
    let history = bench.rig.line(Some(&bench.session), "history").await.unwrap();
    assert_eq!(history, "", "no line ran before this one");
}

#[tokio::test]
async fn an_interrupt_cuts_the_step_and_not_the_cleanup() {
    let bench = bench(json!({})).await;
    let running = bench
        .spawn(json!({ "steps": [patch(), command("work"), command("echo")], "always": [command("nap")] }));
    bench.until_patched().await;
    let raised = bench.rig.client.sessions().interrupt(Some(&bench.session)).await.unwrap();
    assert_eq!(raised.outcome, InterruptOutcome::Raised);
    tokio::time::sleep(Duration::from_millis(100)).await;
    // The nap takes 300 ms.
    let sealed = bench.rig.client.sessions().interrupt(Some(&bench.session)).await.unwrap();
    assert_eq!((sealed.outcome, sealed.job.as_deref()), (InterruptOutcome::Sealed, Some("debug_batch")));
    let (is_error, report, _) = running.await.unwrap();
    assert!(is_error && report["outcome"] == "interrupted" && report["at"] == 2, "{report:#}");
    assert_eq!(report["always"][0]["output"], "rested", "{report:#}");
    assert_eq!((&report["rollback"], bench.byte()), (&json!("complete"), 0x11));
    assert_eq!(report["steps"][1]["cut_short"], true);
    assert_eq!(
        bench.rig.line(Some(&bench.session), "echo").await.unwrap(),
        "hello",
        "nothing is left of the break"
    );
}

#[tokio::test]
async fn ending_a_session_waits_for_the_cleanup() {
    let bench = bench(json!({ "clean": [{ "deaf": { "ms": 700 } }, { "say": "clean" }] })).await;
    let running = bench.spawn(json!({
        "steps": [patch(), { "op": "resume", "command": "run" }],
        "always": [command("clean")],
    }));
    bench.until_patched().await;
    let began = Instant::now();
    let ended = bench.rig.client.sessions().end(Some(&bench.session)).await.unwrap();
    assert_eq!(bench.byte(), 0x11, "it returns only after the restore");
    assert!(began.elapsed() >= Duration::from_millis(600) && began.elapsed() < Duration::from_secs(15));
    assert!(ended.released && !ended.worker_terminated, "{ended:?}");
    let (_, report, _) = running.await.unwrap();
    assert_eq!(
        (&report["rollback"], &report["always"][0]["output"]),
        (&json!("complete"), &json!("clean")),
        "{report:#}"
    );
}

#[tokio::test]
async fn ending_a_session_cuts_a_wait_and_names_the_teardown() {
    let bench = bench(json!({ "run": ["go"] })).await;
    let running = bench.spawn(json!({ "steps": [patch(), { "op": "resume", "command": "run" }] }));
    bench.until_patched().await;
    let began = Instant::now();
    bench.rig.client.sessions().end(Some(&bench.session)).await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(10), "not the minute it may wait");
    let (_, report, _) = running.await.unwrap();
    assert_eq!((&report["outcome"], &report["at"]), (&json!("abandoned"), &json!(2)), "{report:#}");
    assert_eq!(bench.byte(), 0x11);
    let log = bench.rig.log(&bench.session).await;
    assert!(log.is_empty() || !log.contains("killed"), "{log}");
}

#[tokio::test]
async fn a_batch_that_waits_when_the_session_ends_does_not_begin() {
    let bench = bench(json!({ "slow": [{ "deaf": { "ms": 500 } }] })).await;
    let ahead = bench.rig.spawn_line(&bench.session, "slow");
    bench.rig.until_busy(&bench.session, 0).await;
    let waiting = bench.spawn(json!({ "steps": [patch()] }));
    bench.rig.until_busy(&bench.session, 1).await;
    bench.rig.client.sessions().end(Some(&bench.session)).await.unwrap();
    assert!(ahead.await.unwrap().is_ok());
    let (is_error, answer, text) = waiting.await.unwrap();
    assert!(is_error && answer["error"]["category"] == "not_run", "{text}");
    assert_eq!(bench.byte(), 0x11);
}

#[tokio::test]
async fn the_budget_is_what_the_caller_still_waits() {
    let rig = rig_with(Config { call_timeout: Duration::from_secs(6), ..config() });
    let bench = bench_with(rig, json!({}), json!([])).await;
    let began = Instant::now();
    let running = bench.spawn(json!({ "steps": [patch(), command("work")], "timeout_ms": 120_000 }));
    let (is_error, report, text) = running.await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(6), "the report comes before the caller gives up");
    assert!(is_error && report["outcome"] == "timed_out" && report["at"] == 2, "{text}");
    assert!(report["budget_ms"].as_u64().unwrap() <= 4500, "{report:#}");
    assert_eq!((&report["rollback"], bench.byte()), (&json!("complete"), 0x11));
}

#[tokio::test]
async fn too_little_time_is_not_begun() {
    let rig = rig_with(Config { call_timeout: Duration::from_secs(3), ..config() });
    let bench = bench_with(rig, json!({ "slow": [{ "deaf": { "ms": 1200 } }] }), json!([])).await;
    let ahead = bench.rig.spawn_line(&bench.session, "slow");
    bench.rig.until_busy(&bench.session, 0).await;
    let (is_error, answer, text) = bench.call("debug_batch", json!({ "steps": [patch()] })).await;
    assert!(is_error && answer["error"]["category"] == "not_run", "{text}");
    assert_eq!(bench.byte(), 0x11);
    ahead.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_command_that_can_replace_the_target_retires_the_handle_before_the_batch() {
    let bench = bench(json!({ ".if (1) {.opendump x}": ["replace"] })).await;
    let args = json!({
        "session_id": bench.session,
        "steps": [patch(), command(".if (1) {.opendump x}"), command("echo")],
        "always": [command("echo"), { "op": "resume", "command": "echo" }],
    });
    let (_, report, _) = bench.call("debug_batch", args).await;
    assert_eq!((&report["outcome"], &report["at"]), (&json!("target_replaced"), &json!(2)), "{report:#}");
    assert_eq!(report["steps"][2]["result"], "skipped");
    assert_eq!(
        (&report["always"][0]["result"], &report["always"][1]["result"]),
        (&json!("ok"), &json!("skipped"))
    );
    assert_eq!(
        (&report["rollback"], bench.byte()),
        (&json!("incomplete"), 0x11),
        "the write is aimed as before"
    );
    let named = bench.rig.line(Some(&bench.session), "echo").await.unwrap_err();
    assert_eq!(named.category, tools::Category::StaleSession);
    assert!(bench.rig.line(None, "echo").await.is_ok());
}

/// The faults a step can bring: each costs what it must and no more.
#[tokio::test]
async fn faults_of_a_step() {
    let commands = json!({
        "panic": [{ "panic": "the parser broke" }],
        "gone": [{ "gone": "it exited" }],
        "aim": [{ "aim": "process 2" }],
        "late": [{ "deaf": { "ms": 1200 } }],
    });
    let bench = bench(commands).await;
    let run = async |line: &str, timeout_ms: u64| {
        let args = json!({ "steps": [patch(), command(line), command("echo")], "timeout_ms": timeout_ms });
        let (_, report, _) = bench.call("debug_batch", args).await;
        (report["outcome"].clone(), report["rollback"].clone(), bench.byte(), report)
    };
    let (outcome, rollback, byte, report) = run("panic", 20_000).await;
    assert_eq!((outcome, rollback, byte), (json!("failed"), json!("complete"), 0x11));
    assert!(report["steps"][1]["detail"].as_str().unwrap().contains("the parser broke"));
    let (outcome, rollback, byte, _) = run("gone", 20_000).await;
    assert_eq!((outcome, rollback, byte), (json!("failed"), json!("complete"), 0x11));
    let (outcome, rollback, byte, _) = run("aim", 20_000).await;
    assert_eq!((outcome, rollback, byte), (json!("target_replaced"), json!("complete"), 0x11));
    let (outcome, rollback, byte, report) = run("late", 2000).await;
    assert_eq!((outcome, rollback, byte), (json!("timed_out"), json!("complete"), 0x11));
    assert_eq!(report["at"], 3);
}

/// A worker that dies restores nothing, and nothing says that it did.
#[tokio::test]
async fn a_worker_that_dies_at_a_step_claims_no_rollback() {
    for fault in [json!("abort"), json!({ "exit": 3 })] {
        let bench = bench(json!({ "die": [fault] })).await;
        let (is_error, answer, text) =
            bench.call("debug_batch", json!({ "steps": [patch(), command("die")] })).await;
        assert!(is_error && answer["error"]["category"] == "worker_lost", "{text}");
        assert!(answer.get("rollback").is_none() && bench.byte() == 0x90);
    }
}

#[tokio::test]
async fn a_shutdown_gives_a_running_batch_its_time() {
    let rig = rig_with(Config { shutdown_grace: Duration::from_millis(300), ..config() });
    let commands = json!({ "clean": [{ "deaf": { "ms": 1500 } }] });
    let bench = bench_with(rig, commands, json!([{ "steps": [{ "sleep": { "ms": 600_000 } }] }])).await;
    let running = bench.spawn(json!({ "steps": [patch(), command("work")], "always": [command("clean")] }));
    bench.until_patched().await;
    let pid = bench.rig.row(&bench.session).await.engine_pid.unwrap();
    bench.rig.supervisor.shutdown().await;
    assert_eq!(bench.byte(), 0x11, "five times the grace");
    assert!(!rig::exists(pid));
    drop(running);
    kill(pid);
}

/// The worker alone: its channel closes in the middle of a step.
#[tokio::test]
async fn a_supervisor_that_dies_leaves_no_patch() {
    let bench = bench(json!({ "clean": [{ "deaf": { "ms": 300 } }] })).await;
    let running = bench.spawn(json!({ "steps": [patch(), command("work")], "always": [command("clean")] }));
    bench.until_patched().await;
    let pid = bench.rig.row(&bench.session).await.engine_pid.unwrap();
    // What a dead supervisor leaves: a closed pipe. Dropping the runtime's tasks closes it.
    running.abort();
    let rig = bench.rig;
    rig.supervisor.shutdown().await;
    rig::until(Duration::from_secs(10), async || !rig::exists(pid)).await;
    assert_eq!(memory(&bench.file)[0], 0x11);
}
