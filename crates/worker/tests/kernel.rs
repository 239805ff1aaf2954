//! The rules of spec 10 section 1.9, against real worker processes whose kernel is a script. Every
//! worker that a rule keeps is ended by its test.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod rig;

use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use connection_string::Connection;
use rig::{Rig, config, exists, kill, rig_with, script, until};
use serde_json::{Value, json};
use supervisor::Config;
use tools::live_opening::KernelRequest;
use tools::sessions::InterruptOutcome;
use tools::{Category, EngineChoice, OpenRequest, ToolError};
use transcript::{Recorder, Settings, Start};

const PIPE: &str = r"com:pipe,port=\\.\pipe\kd";

/// Supervisor and workers whose kernel does what `script` says. The file lives as long as the rig.
struct Bench {
    rig: Rig,
    /// What is kept outlives this, for a test that looks.
    leave: bool,
    _script: tempfile::NamedTempFile,
}

impl std::ops::Deref for Bench {
    type Target = Rig;
    fn deref(&self) -> &Rig {
        &self.rig
    }
}

fn bench(kernel: &Value, config: Config) -> Bench {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), kernel.to_string()).unwrap();
    let mut config = config;
    config.worker_env.push(("WINDBG_MCP_TEST_KERNEL".into(), file.path().display().to_string()));
    Bench { rig: rig_with(config), leave: false, _script: file }
}

/// Ends what a failed test leaves.
impl Drop for Bench {
    fn drop(&mut self) {
        if self.leave {
            return;
        }
        let sessions = self.rig.client.sessions();
        let mut context = Context::from_waker(Waker::noop());
        if let Poll::Ready(Ok(page)) = sessions.status(None).as_mut().poll(&mut context) {
            page.sessions.into_iter().filter_map(|row| row.engine_pid).for_each(kill);
        }
    }
}

fn request(connection: &str) -> OpenRequest {
    OpenRequest::Kernel(KernelRequest {
        connection: Connection::parse(connection).unwrap(),
        engine: EngineChoice::Auto,
        symbol_path: None,
        image_path: None,
        network: false,
    })
}

impl Bench {
    async fn attach(&self, connection: &str) -> Result<String, ToolError> {
        self.client.sessions().open(request(connection)).await.map(|opened| opened.session_id)
    }

    async fn pid(&self, session: &str) -> u32 {
        self.row(session).await.engine_pid.unwrap()
    }

    /// Gives up what a rule kept.
    async fn clean_up(&self, session: &str) {
        let pid = self.pid(session).await;
        let ended = self.client.sessions().hand_off(session, pid).await.unwrap();
        assert!(!ended.released && ended.worker_terminated && ended.recovery_required, "{ended:?}");
        assert!(!exists(pid), "seen gone before it is said");
        assert_eq!(self.row(session).await.state, "closed");
    }

    async fn is_unresolved(&self, session: &str, why: &str) {
        let row = self.row(session).await;
        assert_eq!(
            (row.state.as_str(), row.live, row.kind.as_deref()),
            ("kernel_unresolved", true, Some("kernel"))
        );
        assert!(row.why.as_deref().unwrap().contains(why), "{:?}", row.why);
        assert!(exists(row.engine_pid.unwrap()), "its worker is kept");
    }
}

fn short(seconds: u64) -> Config {
    Config { call_timeout: Duration::from_secs(seconds), ..config() }
}

/// The whole row of the silent pipe, with a script for the pipe.
#[tokio::test]
async fn a_timed_out_opener_is_unresolved_for_good() {
    let bench = bench(&json!({ "load": [{ "deaf": { "ms": 4000 } }] }), short(2));
    let error = bench.attach(PIPE).await.unwrap_err();
    assert_eq!((error.category, &error.extra["target"]), (Category::RecoveryRequired, &json!("pending")));
    let session = error.session_id.clone().unwrap();
    let pid = bench.pid(&session).await;
    assert!(error.message.contains(&pid.to_string()), "{}", error.message);
    bench.is_unresolved(&session, "no answer within 2 s").await;

    // Others work, and it is nobody's current session.
    let other = bench.open().await;
    assert_eq!(bench.line(None, "echo").await.unwrap(), "hello");
    bench.client.sessions().end(Some(&other)).await.unwrap();
    assert_eq!(bench.line(None, "echo").await.unwrap_err().category, Category::StaleSession);

    for refused in [
        bench.line(Some(&session), "echo").await.map(drop),
        bench.client.sessions().interrupt(Some(&session)).await.map(drop),
        bench.client.sessions().continue_async(Some(&session), Duration::from_secs(1)).await.map(drop),
        bench.client.sessions().wait_for_stop(Some(&session), "exec-1", Duration::ZERO).await.map(drop),
        bench.client.sessions().break_in(Some(&session), "exec-1").await.map(drop),
    ] {
        assert_eq!(refused.unwrap_err().category, Category::RecoveryRequired);
    }
    for _ in 0..2 {
        let ended = bench.client.sessions().end(Some(&session)).await.unwrap();
        assert_eq!(
            (ended.ending.as_str(), ended.released, ended.worker_terminated, ended.recovery_required),
            ("preserved", false, false, true)
        );
    }
    let taken = bench.attach(r"com:PIPE,port=\\LOCALHOST\pipe\KD").await.unwrap_err();
    assert_eq!((taken.category, &taken.extra["target"]), (Category::Capacity, &json!("no")));
    assert_eq!(taken.session_id, None);
    let of_another = bench.supervisor.client("second").sessions().open(request(PIPE)).await.unwrap_err();
    assert_eq!(of_another.category, Category::Capacity);
    assert!(!of_another.message.contains(&session), "{}", of_another.message);

    // The late success changes nothing.
    tokio::time::sleep(Duration::from_secs(3)).await;
    bench.is_unresolved(&session, "no answer within 2 s").await;
    assert_eq!(bench.line(Some(&session), "echo").await.unwrap_err().category, Category::RecoveryRequired);

    let wrong = bench.client.sessions().hand_off(&session, pid + 1).await.unwrap_err();
    assert_eq!(wrong.category, Category::InvalidArgument);
    assert!(exists(pid));
    bench.clean_up(&session).await;
    let row = bench.row(&session).await;
    assert!(row.why.unwrap().starts_with("handed off"));
    let again = bench.client.sessions().hand_off(&session, pid).await.unwrap_err();
    assert_eq!(again.category, Category::StaleSession);
    // The endpoint is free.
    let second = bench.attach(PIPE).await.unwrap_err();
    assert_eq!(second.category, Category::RecoveryRequired, "{second:?}");
    bench.clean_up(&second.session_id.unwrap()).await;
}

#[tokio::test]
async fn an_attach_waits_and_is_said_to() {
    let bench = bench(&json!({ "load": [{ "deaf": { "ms": 3000 } }] }), config());
    let client = bench.client.clone();
    let opening = tokio::spawn(async move { client.sessions().open(request(PIPE)).await });
    until(Duration::from_secs(10), async || bench.rows().await.iter().any(|row| row.state == "attaching"))
        .await;
    let row = bench.rows().await.remove(0);
    assert!(row.waits_indefinitely && !row.interruptible, "{row:?}");
    let interrupted = bench.client.sessions().interrupt(Some(&row.session_id)).await.unwrap();
    assert_eq!(interrupted.outcome, InterruptOutcome::Unreachable);
    let not_yet =
        bench.client.sessions().hand_off(&row.session_id, row.engine_pid.unwrap()).await.unwrap_err();
    assert_eq!(not_yet.category, Category::InvalidArgument, "it is not unresolved");
    let session = opening.await.unwrap().unwrap().session_id;
    let row = bench.row(&session).await;
    assert_eq!((row.state.as_str(), row.waits_indefinitely), ("open", false));
    let ended = bench.client.sessions().end(Some(&session)).await.unwrap();
    assert!(ended.released && !ended.recovery_required, "{ended:?}");
    assert_eq!(bench.row(&session).await.state, "closed");
    assert!(!exists(row.engine_pid.unwrap()));
    let again = bench.attach(PIPE).await.unwrap();
    assert!(bench.client.sessions().end(Some(&again)).await.unwrap().released, "the endpoint was free");
}

#[tokio::test]
async fn a_failure_before_the_link_was_taken_leaves_nothing() {
    let bench = bench(&json!({ "open": [{ "fail": "no such pipe" }] }), config());
    for _ in 0..2 {
        let error = bench.attach(PIPE).await.unwrap_err();
        assert_eq!((error.category, &error.extra["target"]), (Category::Debugger, &json!("no")), "{error:?}");
        assert!(bench.rows().await.is_empty());
    }
}

#[tokio::test]
async fn an_attach_without_a_confirmed_first_stop_is_unresolved() {
    let bench = bench(&json!({ "load": [{ "fail": "it ran on" }] }), config());
    let error = bench.attach(PIPE).await.unwrap_err();
    assert_eq!((error.category, &error.extra["target"]), (Category::RecoveryRequired, &json!("yes")));
    let session = error.session_id.unwrap();
    bench.is_unresolved(&session, "it ran on").await;
    bench.clean_up(&session).await;
}

#[tokio::test]
async fn a_timed_out_call_is_unresolved_and_its_late_answer_changes_nothing() {
    let bench = bench(&script(json!({})), short(2));
    let session = bench.attach(PIPE).await.unwrap();
    assert_eq!(bench.line(None, "echo").await.unwrap(), "hello");
    let error = bench.line(None, "deaf3").await.unwrap_err();
    assert_eq!((error.category, error.session_id.as_deref()), (Category::RecoveryRequired, Some(&*session)));
    tokio::time::sleep(Duration::from_secs(2)).await;
    bench.is_unresolved(&session, "no answer within 2 s").await;
    assert_eq!(bench.line(Some(&session), "deaf3").await.unwrap_err().category, Category::RecoveryRequired);
    bench.clean_up(&session).await;
}

#[tokio::test]
async fn a_release_that_is_refused_or_takes_too_long_is_unresolved() {
    for (release, why) in [
        (json!([{ "fail": "the target answers nothing" }]), "refused: the target answers nothing"),
        (json!([{ "panic": "in the middle" }]), "refused: in the middle"),
        (json!([{ "deaf": { "ms": 60_000 } }]), "within 1 s"),
    ] {
        let mut kernel = script(json!({}));
        kernel["release"] = release;
        let bench = bench(&kernel, Config { release_grace: Duration::from_secs(1), ..config() });
        let session = bench.attach(PIPE).await.unwrap();
        let ended = bench.client.sessions().end(Some(&session)).await.unwrap();
        assert_eq!(
            (ended.ending.as_str(), ended.released, ended.recovery_required),
            ("preserved", false, true)
        );
        bench.is_unresolved(&session, why).await;
        bench.clean_up(&session).await;
    }
}

/// Whoever asks while the release is on its way is refused at once.
#[tokio::test]
async fn calls_behind_the_end_are_refused_and_jobs_ahead_finish() {
    let mut kernel = script(json!({}));
    kernel["release"] = json!([{ "deaf": { "ms": 500 } }]);
    let bench = bench(&kernel, config());
    let session = bench.attach(PIPE).await.unwrap();
    let ahead = bench.spawn_line(&session, "nap");
    bench.until_busy(&session, 0).await;
    let sessions = bench.client.sessions();
    let (ended, behind) = tokio::join!(sessions.end(Some(&session)), async {
        tokio::time::sleep(Duration::from_millis(400)).await;
        bench.line(Some(&session), "echo").await
    });
    assert!(ended.unwrap().released);
    assert_eq!(behind.unwrap_err().category, Category::StaleSession);
    assert_eq!(ahead.await.unwrap().unwrap(), "rested");
}

#[tokio::test]
async fn reclaim_never_picks_an_unresolved_controller() {
    let bench = bench(&json!({ "load": [{ "fail": "it ran on" }] }), Config { sessions: 2, ..config() });
    let session = bench.attach(PIPE).await.unwrap_err().session_id.unwrap();
    let first = bench.open().await;
    let second = bench.open().await;
    until(Duration::from_secs(10), async || bench.row(&first).await.state == "closed").await;
    assert_eq!(bench.row(&second).await.state, "open");
    bench.is_unresolved(&session, "it ran on").await;
    // With nothing else to take, there is no place.
    let busy = bench.spawn_line(&second, "work");
    bench.until_busy(&second, 0).await;
    let full = bench.open_script(script(json!({}))).await.unwrap_err();
    assert_eq!(full.category, Category::Capacity);
    assert!(full.message.contains(&session), "{}", full.message);
    bench.client.sessions().interrupt(Some(&second)).await.unwrap();
    busy.await.unwrap().unwrap();
    bench.clean_up(&session).await;
}

#[tokio::test]
async fn an_idle_kernel_that_is_reclaimed_is_released_or_kept() {
    for refused in [false, true] {
        let mut kernel = script(json!({}));
        if refused {
            kernel["release"] = json!([{ "fail": "not now" }]);
        }
        let bench = bench(&kernel, Config { sessions: 1, ..config() });
        let session = bench.attach(PIPE).await.unwrap();
        let pid = bench.pid(&session).await;
        bench.open().await;
        let state = if refused { "kernel_unresolved" } else { "closed" };
        until(Duration::from_secs(10), async || bench.row(&session).await.state == state).await;
        if refused {
            bench.is_unresolved(&session, "not now").await;
            bench.clean_up(&session).await;
        } else {
            until(Duration::from_secs(10), async || !exists(pid)).await;
            assert!(bench.row(&session).await.why.unwrap().contains("reclaimed"));
        }
    }
}

#[tokio::test]
async fn a_cancelled_handoff_goes_on() {
    let bench = bench(&json!({ "load": [{ "fail": "it ran on" }] }), config());
    let session = bench.attach(PIPE).await.unwrap_err().session_id.unwrap();
    let pid = bench.pid(&session).await;
    let sessions = bench.client.sessions();
    // Asked once, then dropped.
    let asked = tokio::time::timeout(Duration::ZERO, sessions.hand_off(&session, pid)).await;
    assert!(asked.is_err() || asked.unwrap().is_ok());
    until(Duration::from_secs(10), async || bench.row(&session).await.state == "closed").await;
    assert!(!exists(pid));
}

#[tokio::test]
async fn a_kept_worker_that_dies_frees_its_endpoint() {
    let bench = bench(&json!({ "load": [{ "fail": "it ran on" }] }), config());
    let session = bench.attach(PIPE).await.unwrap_err().session_id.unwrap();
    kill(bench.pid(&session).await);
    until(Duration::from_secs(10), async || bench.row(&session).await.state == "closed").await;
    let ended = bench.client.sessions().end(Some(&session)).await.unwrap();
    assert_eq!((ended.ending.as_str(), ended.released), ("closed", false));
    let next = bench.attach(PIPE).await.unwrap_err();
    assert_eq!(next.category, Category::RecoveryRequired, "it was dialled again: {next:?}");
    bench.clean_up(&next.session_id.unwrap()).await;
}

/// The supervisor goes, its own worker with it; the kept one stays, and ends when it is told to.
#[tokio::test]
async fn a_shutdown_leaves_what_it_cannot_release_and_releases_the_rest() {
    for kernel in [
        json!({ "load": [{ "fail": "it ran on" }] }),
        json!({ "release": [{ "fail": "not now" }] }),
        json!({ "release": [{ "deaf": { "ms": 60_000 } }] }),
    ] {
        let mut bench = bench(&kernel, Config { shutdown_grace: Duration::from_secs(1), ..config() });
        bench.leave = true;
        let attached = bench.attach(PIPE).await;
        let session = attached.unwrap_or_else(|error| error.session_id.unwrap());
        let other = bench.open().await;
        let (kept, released) = (bench.pid(&session).await, bench.pid(&other).await);
        let began = Instant::now();
        bench.supervisor.shutdown().await;
        assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
        assert!(!exists(released));
        drop(bench);
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert!(exists(kept), "{kernel}");
        kill(kept);
    }
}

/// A client that leaves while it waits has not said that anything is wrong: the same open waits on.
#[tokio::test]
async fn a_cancelled_opener_can_be_joined() {
    let bench = bench(&json!({ "load": [{ "deaf": { "ms": 2000 } }] }), config());
    let client = bench.client.clone();
    let waiting = tokio::spawn(async move { client.sessions().open(request(PIPE)).await });
    until(Duration::from_secs(10), async || bench.rows().await.iter().any(|row| row.state == "attaching"))
        .await;
    waiting.abort();
    let _ = waiting.await;
    let session = bench.attach(PIPE).await.unwrap();
    assert_eq!(bench.rows().await.len(), 1);
    assert!(bench.client.sessions().end(Some(&session)).await.unwrap().released);
}

/// A key is handed in once and is nowhere afterwards: answers, status, log, transcript, refusals.
#[tokio::test]
async fn a_key_is_shown_nowhere() {
    const KEY: &str = "k1zq.k2zq.k3zq.k4zq";
    let folder = tempfile::tempdir().unwrap();
    let start = Start { version: "0".into(), engines: vec![], surface: "all".into() };
    let recorder = Recorder::open(Settings::at(folder.path().join("t.jsonl")), start).unwrap();
    let transcript = Some(std::sync::Arc::new(recorder));
    let bench = bench(&json!({ "load": [{ "fail": "it ran on" }] }), Config { transcript, ..config() });
    let surface = tools::Surface::all();
    let mut seen = String::new();
    let mut unresolved = String::new();
    for connection in [
        format!("net:port=50000,key={KEY},target=vm"),
        format!("NET:KEY={KEY},port=50000"),
        format!("net:port=50000,{KEY}"),
        format!("net:port=50000,key={KEY}x.y"),
        format!("bogus:key={KEY}"),
        format!("net:port=50000, key={KEY}"),
    ] {
        let args = json!({ "connection": connection }).as_object().cloned();
        let cancel = tokio_util::sync::CancellationToken::new();
        let answer = bench.client.call("attach_kernel", args, &surface, None, cancel).await.unwrap();
        assert!(answer.is_error);
        let structured = answer.structured.unwrap();
        if let Some(session) = structured["error"]["session_id"].as_str() {
            session.clone_into(&mut unresolved);
        }
        seen.push_str(&format!("{} {structured}\n", answer.text));
    }
    let row = bench.row(&unresolved).await;
    assert_eq!(row.target, "net:port=50000,key=***,target=vm");
    seen.push_str(&format!("{row:?} {}", bench.log(&unresolved).await));
    let written = std::fs::read_to_string(folder.path().join("t.jsonl")).unwrap();
    assert!(written.contains("attach_kernel") && written.contains("key=***"), "{written}");
    seen.push_str(&written);
    for group in KEY.split('.') {
        assert!(!seen.contains(group), "{seen}");
    }
    bench.clean_up(&unresolved).await;
}
