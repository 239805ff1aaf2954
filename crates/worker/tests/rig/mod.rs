//! A supervisor over scripted workers.
#![allow(dead_code, reason = "every test file uses its own part")]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use supervisor::{Client, Config, Supervisor};
use tools::sessions::{LogQuery, SessionRow};
use tools::{OpenRequest, ToolError};

pub(crate) struct Rig {
    pub(crate) supervisor: Arc<Supervisor>,
    pub(crate) client: Arc<Client>,
}

pub(crate) fn config() -> Config {
    Config {
        worker: Some(PathBuf::from(env!("CARGO_BIN_EXE_scripted-worker"))),
        worker_args: Vec::new(),
        worker_env: vec![("WINDBG_MCP_TEST_SCRIPTED".into(), "1".into())],
        call_timeout: Duration::from_secs(20),
        ..Config::default()
    }
}

pub(crate) fn rig_with(config: Config) -> Rig {
    let supervisor = Supervisor::new(config);
    let client = supervisor.client("stdio");
    Rig { supervisor, client }
}

pub(crate) fn rig() -> Rig {
    rig_with(config())
}

/// A script whose command lines are `commands`.
pub(crate) fn script(commands: Value) -> Value {
    let mut all = json!({
        "echo": [{ "say": "hello" }],
        "history": ["say_history"],
        "remaining": ["say_remaining"],
        "nap": [{ "sleep": { "ms": 300 } }, { "say": "rested" }],
        "work": [{ "say": "a" }, { "sleep": { "ms": 10_000 } }, { "say": "b" }],
        "deaf3": [{ "deaf": { "ms": 3000 } }, { "say": "done" }],
    });
    for (line, steps) in commands.as_object().unwrap() {
        all[line] = steps.clone();
    }
    json!({ "commands": all })
}

impl Rig {
    pub(crate) async fn open_script(&self, script: Value) -> Result<String, ToolError> {
        let request = OpenRequest::Scripted { script: script.to_string() };
        self.client.sessions().open(request).await.map(|opened| opened.session_id)
    }
    pub(crate) async fn open(&self) -> String {
        self.open_script(script(json!({}))).await.unwrap()
    }
    /// What the line prints.
    pub(crate) async fn line(&self, session: Option<&str>, line: &str) -> Result<String, ToolError> {
        let (_, data) = self.client.sessions().operate(session, "scripted", json!({ "line": line })).await?;
        Ok(data["text"].as_str().unwrap().to_owned())
    }
    pub(crate) async fn rows(&self) -> Vec<SessionRow> {
        self.client.sessions().status(None).await.unwrap().sessions
    }
    pub(crate) async fn row(&self, session: &str) -> SessionRow {
        let page = self.client.sessions().status(Some(session)).await.unwrap();
        page.sessions.into_iter().next().unwrap()
    }
    pub(crate) async fn log(&self, session: &str) -> String {
        let query =
            LogQuery { session_id: Some(session.into()), level: "trace".into(), limit: 500, since: None };
        let page = self.client.sessions().log(query).await.unwrap();
        page.records.iter().map(|r| format!("{} {} {}\n", r.level, r.target, r.message)).collect()
    }
    /// A task that runs a line on a session.
    pub(crate) fn spawn_line(
        &self,
        session: &str,
        line: &str,
    ) -> tokio::task::JoinHandle<Result<String, ToolError>> {
        let rig = Rig { supervisor: Arc::clone(&self.supervisor), client: Arc::clone(&self.client) };
        let (session, line) = (session.to_owned(), line.to_owned());
        tokio::spawn(async move { rig.line(Some(&session), &line).await })
    }
    /// Waits until the session's oldest call has this name and `queued` others wait.
    pub(crate) async fn until_busy(&self, session: &str, queued: u32) {
        until(Duration::from_secs(10), async || {
            self.row(session).await.busy.is_some_and(|busy| busy.queued == queued)
        })
        .await;
        // The row says it was submitted; the worker takes it up within this.
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Polls until `holds`; panics after `limit`.
pub(crate) async fn until(limit: Duration, mut holds: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    while !holds().await {
        assert!(began.elapsed() < limit, "still not so after {limit:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Whether a process of this id exists; a zombie counts.
pub(crate) fn exists(pid: u32) -> bool {
    PathBuf::from(format!("/proc/{pid}")).exists()
}

/// Kills a worker; it may be gone already, and its id somebody else's.
pub(crate) fn kill(pid: u32) {
    let image = std::fs::read_link(format!("/proc/{pid}/exe"));
    if !image.is_ok_and(|image| image.ends_with("scripted-worker")) {
        return;
    }
    let mut kill = std::process::Command::new("kill");
    kill.args(["-9", &pid.to_string()]).stderr(std::process::Stdio::null()).status().unwrap();
}
