//! Whole calls: a tool by name through admission, its place, and the answer's two halves.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod rig;

use std::io::Write as _;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use rig::{Rig, config, rig, rig_with, script, until};
use serde_json::{Map, Value, json};
use supervisor::{CallFailure, CallResult, Config, ProgressSink};
use tokio_util::sync::CancellationToken;
use tools::Surface;

fn object(value: Value) -> Option<Map<String, Value>> {
    match value {
        Value::Object(map) => Some(map),
        _ => None,
    }
}

async fn call(rig: &Rig, name: &str, args: Value) -> CallResult {
    let surface = Surface::all();
    let answer = rig.client.call(name, object(args), &surface, None, CancellationToken::new()).await.unwrap();
    let structured = answer.structured.as_ref();
    if answer.is_error {
        let structured = structured.unwrap();
        assert_eq!(structured["status"], "error");
        assert_eq!(structured["error"]["message"], answer.text.as_str());
    } else if let Some(structured) = structured {
        assert_eq!(structured["status"], "ok");
    }
    answer
}

fn file(script: &Value) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(script.to_string().as_bytes()).unwrap();
    file
}

#[derive(Default)]
struct Heard(Mutex<Vec<(f64, String)>>);

#[async_trait]
impl ProgressSink for Heard {
    async fn progress(&self, elapsed: f64, message: &str) {
        self.0.lock().unwrap().push((elapsed, message.to_owned()));
    }
}

#[tokio::test]
async fn open_inspect_end_by_name() {
    let rig = rig();
    let mut commands = script(json!({}));
    commands["modules"] = json!([{ "name": "app", "base": "0x0000000140000000", "size": 4096 }]);
    commands["memory"] = json!([{ "address": "0x0000000140000000", "bytes": "4d5a9000" }]);
    let file = file(&commands);
    let opened = call(&rig, "open_dump", json!({ "path": file.path() })).await;
    assert!(!opened.is_error, "{}", opened.text);
    let session = opened.structured.unwrap()["session_id"].as_str().unwrap().to_owned();
    assert!(opened.text.contains(&session), "{}", opened.text);

    let modules = call(&rig, "modules", json!({})).await;
    assert!(modules.text.contains("app"), "{}", modules.text);
    let read =
        call(&rig, "read_memory", json!({ "address": "0x140000000", "size": 4, "session_id": session }))
            .await;
    assert!(read.structured.unwrap().to_string().contains("4d5a9000"));

    let status = call(&rig, "session_status", json!({})).await;
    let row = &status.structured.unwrap()["sessions"][0];
    assert_eq!((row["session_id"].as_str(), row["state"].as_str()), (Some(session.as_str()), Some("open")));
    let log = call(&rig, "server_log", json!({ "level": "debug" })).await;
    assert!(!log.is_error, "{}", log.text);
    assert!(!call(&rig, "end_session", json!({})).await.is_error);

    let stale = call(&rig, "modules", json!({ "session_id": session })).await;
    let error = &stale.structured.unwrap()["error"];
    assert_eq!(
        (error["category"].as_str(), error["session_id"].as_str()),
        (Some("stale_session"), Some(session.as_str()))
    );
}

#[tokio::test]
async fn refusals_before_any_session() {
    let rig = rig();
    let surface = Surface::of(&["session_status", "modules"]);
    let token = CancellationToken::new;
    let unknown = rig.client.call("modulez", None, &surface, None, token()).await.unwrap_err();
    assert_eq!(unknown, CallFailure::UnknownTool { name: "modulez".into(), near: vec!["modules"] });
    let unserved = rig.client.call("execute", None, &surface, None, token()).await.unwrap();
    assert_eq!(unserved.structured.unwrap()["error"]["category"], "not_served");
    let bad = call(&rig, "modules", json!({ "limit": "many", "fliter": "nt" })).await;
    assert_eq!(bad.structured.unwrap()["error"]["category"], "invalid_argument");
    assert!(bad.text.contains("fliter") && bad.text.contains("limit"), "{}", bad.text);
    let none = call(&rig, "modules", json!({})).await;
    assert_eq!(none.structured.unwrap()["error"]["category"], "stale_session");
}

#[tokio::test]
async fn a_failed_open_carries_what_exists() {
    let rig = rig();
    let missing = call(&rig, "open_dump", json!({ "path": "/nowhere/x.dmp" })).await;
    let structured = missing.structured.unwrap();
    assert_eq!(
        (structured["target"].as_str(), structured["error"]["category"].as_str()),
        (Some("no"), Some("debugger"))
    );
    assert!(missing.text.contains("/nowhere/x.dmp"), "{}", missing.text);
    let no_worker = rig_with(Config { worker: Some("/nonexistent/worker".into()), ..config() });
    let args = object(json!({ "path": "/x.dmp" }));
    let surface = Surface::all();
    let failure = no_worker.client.call("open_dump", args, &surface, None, CancellationToken::new()).await;
    assert!(matches!(failure, Err(CallFailure::NoWorker(why)) if why.contains("/nonexistent/worker")));
}

#[tokio::test]
async fn progress_of_an_open_in_order_with_heartbeats() {
    let rig = rig_with(Config { heartbeat: Duration::from_millis(200), ..config() });
    let file = file(&json!({ "open": [{ "sleep": { "ms": 500 } }], "load": [{ "sleep": { "ms": 100 } }] }));
    let heard = Arc::new(Heard::default());
    let args = object(json!({ "path": file.path() }));
    let sink = Some(heard.clone() as Arc<dyn ProgressSink>);
    let answer = rig.client.call("open_dump", args, &Surface::all(), sink, CancellationToken::new()).await;
    assert!(!answer.unwrap().is_error);
    let heard = heard.0.lock().unwrap();
    let at = |words: &str| {
        heard
            .iter()
            .position(|(_, text)| text.contains(words))
            .unwrap_or_else(|| panic!("{words}: {heard:?}"))
    };
    assert!(at("engine worker started (pid") < at("still running"));
    assert!(at("still running") < at("the target exists"));
    assert!(at("the target exists") < at("the target is loaded"));
    assert!(heard.windows(2).all(|pair| pair[0].0 < pair[1].0), "{heard:?}");
}

#[tokio::test]
async fn a_cancelled_call_returns_at_once_and_the_session_goes_on() {
    let rig = rig();
    let file = file(&json!({ "load": [{ "deaf": { "ms": 1500 } }] }));
    let cancel = CancellationToken::new();
    let cancelling = cancel.clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(500)).await;
        cancelling.cancel();
    });
    let began = Instant::now();
    let args = object(json!({ "path": file.path() }));
    let answer = rig.client.call("open_dump", args.clone(), &Surface::all(), None, cancel).await.unwrap();
    assert!(answer.is_error && began.elapsed() < Duration::from_millis(1200), "{:?}", began.elapsed());
    assert_eq!(answer.structured.unwrap()["target"], "pending");
    let again = call(&rig, "open_dump", json!({ "path": file.path() })).await;
    assert!(!again.is_error, "{}", again.text);
    assert_eq!(rig.rows().await.len(), 1, "the same open was joined");
}

#[tokio::test]
async fn symbol_settings_are_remembered_for_one_client() {
    let rig = rig();
    let set =
        call(&rig, "set_symbol_path", json!({ "symbol_path": "/symbols", "for_new_sessions": true })).await;
    assert!(!set.is_error, "{}", set.text);
    let remembered = rig.client.sessions().remembered_symbols().await.unwrap();
    assert_eq!(remembered.symbol_path.as_deref(), Some("/symbols"));
    assert_eq!(rig.supervisor.client("other").sessions().remembered_symbols().await, None);
}

#[tokio::test]
async fn a_worker_that_floods_its_stderr_is_drained_at_a_bounded_rate() {
    let rig = rig();
    let flood = script(json!({ "flood": [{ "print": "x\n".repeat(5000) }, { "say": "ok" }] }));
    let session = rig.open_script(flood).await.unwrap();
    assert_eq!(rig.line(None, "flood").await.unwrap(), "ok");
    rig.client.sessions().end(Some(&session)).await.unwrap();
    until(Duration::from_secs(5), async || {
        rig.log(&session).await.contains("lines of this worker's output were dropped")
    })
    .await;
    let filed = rig.log(&session).await.matches("worker::stderr x").count();
    assert!(filed <= 400, "{filed}");
}

#[tokio::test]
async fn round_trips_are_quick() {
    let rig = rig();
    rig.open().await;
    let mut took = Vec::new();
    for _ in 0..300 {
        let began = Instant::now();
        rig.line(None, "echo").await.unwrap();
        took.push(began.elapsed());
    }
    took.sort();
    println!("round trip p50 {:?}, p99 {:?}", took[150], took[297]);
    assert!(took[150] < Duration::from_millis(10), "{:?}", took[150]);
}
