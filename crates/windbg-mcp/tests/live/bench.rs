//! A supervisor in this process, workers under Wine, and how tests call tools.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use differential::Lab;
use serde_json::{Value, json};
use supervisor::{Client, Config, Supervisor};
use tokio_util::sync::CancellationToken;
use tools::Surface;

pub(crate) struct Bench {
    pub(crate) supervisor: Arc<Supervisor>,
    pub(crate) client: Arc<Client>,
    surface: Surface,
    pub(crate) lab: Lab,
}

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The lab, or why this test does not run.
pub(crate) fn bench() -> Option<Bench> {
    bench_with(Config::default())
}

/// With other figures.
pub(crate) fn bench_with(config: Config) -> Option<Bench> {
    lab().map(|lab| bench_over(lab, config))
}

fn lab() -> Option<Lab> {
    if std::env::var("WINDBG_MCP_LAB").is_err() {
        test_data::not_run("lab absent (cargo xtask lab, cargo xtask wine-worker, WINDBG_MCP_LAB=1)");
        return None;
    }
    Some(Lab::of(&root()).unwrap())
}

fn bench_over(lab: Lab, config: Config) -> Bench {
    // This program supervises, so it says what the worker says.
    channel::identify(env!("WINDBG_MCP_BUILD"));
    let supervisor = Supervisor::new(Config {
        engine_dir: Some(lab.engine_dir.clone()),
        wine_worker: Some(lab.worker.clone()),
        worker_env: vec![("WINEPREFIX".to_owned(), lab.prefix.display().to_string())],
        ..config
    });
    let names: Vec<&str> = tools::all().iter().map(|entry| entry.name).collect();
    Bench { client: supervisor.client("stdio"), supervisor, surface: Surface::of(&names), lab }
}

/// With workers of the native engine, for dumps and images.
pub(crate) fn native() -> Option<Bench> {
    let worker = Some(PathBuf::from(crate::stdio::binary()));
    bench_with(Config {
        worker,
        worker_args: vec!["--engine-worker".into(), "--engine=native".into()],
        ..Config::default()
    })
}

/// A program of `fixtures/src/live` as Wine sees it.
pub(crate) fn program(name: &str) -> String {
    format!("Z:{}", root().join("target/live").join(name).display()).replace('/', "\\")
}

impl Bench {
    /// Another client of the same supervisor.
    pub(crate) fn second_client(&self) -> Bench {
        Bench {
            supervisor: Arc::clone(&self.supervisor),
            client: self.supervisor.client("second"),
            surface: self.surface.clone(),
            lab: self.lab.clone(),
        }
    }
    /// The same client once more, for a task of its own.
    pub(crate) fn same_client(&self) -> Bench {
        Bench { client: Arc::clone(&self.client), ..self.second_client() }
    }
    pub(crate) async fn answer(
        &self,
        tool: &str,
        args: Option<serde_json::Map<String, Value>>,
    ) -> supervisor::CallResult {
        let call = self.client.call(tool, args, &self.surface, None, CancellationToken::new());
        call.await.unwrap()
    }
    /// The text half and the structured one, or the error.
    pub(crate) async fn said(&self, tool: &str, args: Value) -> (String, Result<Value, Value>) {
        let answer = self.answer(tool, args.as_object().cloned()).await;
        let structured = answer.structured.unwrap_or_else(|| json!({ "text": answer.text }));
        let outcome = if answer.is_error { Err(structured["error"].clone()) } else { Ok(structured) };
        (answer.text, outcome)
    }
    pub(crate) async fn call(&self, tool: &str, args: Value) -> Result<Value, Value> {
        self.said(tool, args).await.1
    }
    pub(crate) async fn ok(&self, tool: &str, args: Value) -> Value {
        self.call(tool, args.clone()).await.unwrap_or_else(|error| panic!("{tool} {args}: {error:#}"))
    }
    pub(crate) async fn refused(&self, tool: &str, args: Value) -> Value {
        match self.call(tool, args.clone()).await {
            Err(error) => error,
            Ok(answer) => panic!("{tool} {args} was not refused: {answer:#}"),
        }
    }
    /// The text of a raw command.
    pub(crate) async fn execute(&self, command: &str) -> String {
        let (text, outcome) = self.said("execute", json!({ "command": command })).await;
        outcome.unwrap_or_else(|error| panic!("{command}: {error:#}"));
        text
    }
    pub(crate) fn prefix(&self) -> String {
        self.lab.prefix.display().to_string()
    }
    pub(crate) async fn launch(&self, name: &str, arguments: &str) -> Value {
        let symbols = root().join("target/live").display().to_string();
        let line = format!("\"{}\" {arguments}", program(name));
        let asked = json!({ "command_line": line, "wine_prefix": self.prefix(), "symbol_path": symbols });
        self.ok("launch", asked).await
    }
    pub(crate) async fn open(&self, path: &Path, engine: &str) -> Value {
        let near = path.parent().unwrap();
        let asked = json!({ "path": path, "engine": engine, "symbol_path": near, "image_path": near });
        self.ok("open_dump", asked).await
    }
    pub(crate) async fn register(&self, name: &str) -> u64 {
        let registers = self.ok("registers", json!({})).await;
        let rows = registers["registers"].as_array().unwrap();
        let row = rows.iter().find(|row| row["name"] == name).unwrap();
        number(&row["value"])
    }
    pub(crate) async fn ids(&self) -> Vec<u64> {
        let all = self.ok("breakpoints", json!({})).await;
        all["breakpoints"].as_array().unwrap().iter().map(|row| row["id"].as_u64().unwrap()).collect()
    }
    /// Sets a code breakpoint; its id and address.
    pub(crate) async fn breakpoint(&self, expression: &str) -> (Value, Value) {
        let set = self.ok("set_breakpoint", json!({ "expression": expression })).await;
        (set["breakpoint"]["id"].clone(), set["breakpoint"]["address"].clone())
    }
    /// `spin.exe` under a name of its own, started outside of any debugger, and Wine's pid of it.
    pub(crate) async fn spin(&self) -> (Running, u64) {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("t{}n{}.exe", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let folder = tempfile::tempdir().unwrap();
        let copy = folder.path().join(&name);
        std::fs::copy(root().join("target/live/spin.exe"), &copy).unwrap();
        let mut wine = Command::new("wine");
        wine.arg(copy).env("WINEPREFIX", self.prefix()).env("WINEDEBUG", "-all");
        let child = wine.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let mut running = Running(child, folder);
        loop {
            assert!(running.lives(), "{name} did not start");
            let refused = self.refused("attach_process", json!({ "wine_prefix": self.prefix() })).await;
            let message = refused["message"].as_str().unwrap();
            assert!(message.contains(".exe"), "no list of processes: {message}");
            if let Some(part) = message.split([';', ',', '\n', ':']).find(|part| part.contains(&name)) {
                let without = part.replace(&name, "");
                let digits: String = without.chars().filter(char::is_ascii_digit).collect();
                return (running, digits.parse().unwrap_or_else(|_| panic!("{message}")));
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}

/// Ends the program whatever becomes of the test.
pub(crate) struct Running(Child, #[allow(dead_code)] tempfile::TempDir);

impl Running {
    pub(crate) fn lives(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn number(value: &Value) -> u64 {
    let text = value.as_str().unwrap_or_else(|| panic!("{value} is no number in text"));
    u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap()
}

pub(crate) fn kill(pid: u64) {
    assert!(Command::new("kill").args(["-KILL", &pid.to_string()]).status().unwrap().success());
}

/// Whether the Unix process is there and no zombie.
pub(crate) fn runs(pid: u64) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

pub(crate) async fn within(limit: Duration, mut done: impl FnMut() -> bool) -> bool {
    let until = std::time::Instant::now() + limit;
    while std::time::Instant::now() < until {
        if done() {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    done()
}
