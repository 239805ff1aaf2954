//! The lab, its servers, and a process that is looked at from outside.

use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use differential::Lab;
use serde_json::{Value, json};

use crate::mcp::{Client, Era};

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The lab, or why this test does not run.
pub(crate) fn lab() -> Option<Lab> {
    if std::env::var("WINDBG_MCP_LAB").is_err() {
        test_data::not_run("lab absent (cargo xtask lab, cargo xtask wine-worker, WINDBG_MCP_LAB=1)");
        return None;
    }
    Some(Lab::of(&root()).unwrap())
}

/// A server with the lab's engine, keeping a transcript.
pub(crate) fn server(lab: &Lab, transcript: &Path, call_timeout: u32) -> Client {
    let mut command = Command::new(env!("CARGO_BIN_EXE_windbg-mcp"));
    command
        .envs(lab.environment())
        .env("WINDBG_MCP_TRANSCRIPT", transcript)
        .env("WINDBG_MCP_CALL_TIMEOUT_SECS", call_timeout.to_string())
        .env_remove("WINDBG_MCP_ENGINE");
    let mut client = Client::of(command, Era::Handshake("2025-11-25"));
    client.greet();
    client
}

/// Batches a transcript tells of.
pub(crate) fn told(transcript: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(transcript).unwrap_or_default();
    let records = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    records.filter(|record| record["event"] == "batch").collect()
}

/// A Unix path as Wine sees it.
pub(crate) fn windows(path: &Path) -> String {
    format!("Z:{}", path.display()).replace('/', "\\")
}

/// The process whose command line has `word`; of a program started through a wrapper, the one that has
/// its image.
fn find(word: &str) -> Option<u32> {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.into_iter().find(|pid| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        let image = maps
            .lines()
            .any(|line| line.ends_with(".exe") && (line.contains(word) || line.contains("/victim.exe")));
        image && String::from_utf8_lossy(&line).contains(word)
    })
}

pub(crate) fn within(limit: Duration, mut done: impl FnMut() -> bool) -> bool {
    let until = Instant::now() + limit;
    while Instant::now() < until {
        if done() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    done()
}

/// `victim 0` under a name of its own: it sleeps for ever.
pub(crate) struct Process {
    child: Child,
    folder: tempfile::TempDir,
    pub(crate) name: String,
    unix: u32,
}

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A word no other test's process has on its command line.
pub(crate) fn mark() -> String {
    format!("batchee{}x{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A copy of the victim under a name of its own.
fn copy() -> (tempfile::TempDir, String) {
    let name = mark();
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(root().join("target/live/victim.exe"), folder.path().join(format!("{name}.exe"))).unwrap();
    (folder, name)
}

impl Process {
    pub(crate) fn start(lab: &Lab) -> Self {
        let (folder, name) = copy();
        let mut wine = Command::new("wine");
        wine.arg(folder.path().join(format!("{name}.exe"))).arg("0");
        wine.env("WINEPREFIX", &lab.prefix).env("WINEDEBUG", "-all").stdin(Stdio::null());
        let child = wine.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let mut found = None;
        assert!(within(Duration::from_secs(30), || {
            found = find(&format!("{name}.exe"));
            found.is_some()
        }));
        let unix = found.unwrap();
        Self { child, folder, name, unix }
    }

    /// Its Windows id, from the list a call without one is refused with.
    pub(crate) fn pid(&self, client: &mut Client, lab: &Lab) -> u64 {
        let mut pid = None;
        within(Duration::from_secs(30), || {
            let refused = client.err("attach_process", json!({ "wine_prefix": lab.prefix }));
            let message = refused["message"].as_str().unwrap().to_owned();
            let part = message
                .split([';', ',', '\n', ':'])
                .find(|part| part.contains(&self.name))
                .map(str::to_owned);
            let digits =
                part.and_then(|part| part.split_whitespace().find_map(|word| word.parse::<u64>().ok()));
            pid = digits;
            pid.is_some()
        });
        pid.unwrap_or_else(|| panic!("{} is not listed", self.name))
    }

    pub(crate) fn attach(&self, client: &mut Client, lab: &Lab) -> String {
        let pid = self.pid(client, lab);
        let opened = client.ok("attach_process", json!({ "pid": pid, "wine_prefix": lab.prefix }));
        opened["session_id"].as_str().unwrap().to_owned()
    }

    /// What is at `address` now, read past every debugger.
    pub(crate) fn read(&self, address: u64, size: usize) -> Vec<u8> {
        memory(self.unix, address, size)
    }

    pub(crate) fn lives(&mut self) -> bool {
        self.folder.path().is_dir()
            && PathBuf::from(format!("/proc/{}/maps", self.unix)).exists()
            && self.child.try_wait().unwrap().is_none()
    }
}

/// Bytes of a process by its Unix id.
pub(crate) fn memory(pid: u32, address: u64, size: usize) -> Vec<u8> {
    let mut file = std::fs::File::open(format!("/proc/{pid}/mem")).unwrap();
    file.seek(SeekFrom::Start(address)).unwrap();
    let mut bytes = vec![0; size];
    file.read_exact(&mut bytes).unwrap();
    bytes
}

/// The Unix id of the launched victim that has `mark` on its command line.
pub(crate) fn launched(mark: &str) -> u32 {
    let mut found = None;
    within(Duration::from_secs(10), || {
        found = find(mark);
        found.is_some()
    });
    found.unwrap()
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-9", &self.unix.to_string()]).status();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn number(value: &Value) -> u64 {
    u64::from_str_radix(value.as_str().unwrap().trim_start_matches("0x"), 16).unwrap()
}

/// What an expression is worth in the current session.
pub(crate) fn value(client: &mut Client, expression: &str) -> u64 {
    let report = client.ok("debug_batch", json!({ "steps": [{ "op": "eval", "expr": expression }] }));
    number(&report["steps"][0]["value"])
}

/// A batch's report, whether or not it is marked as an error.
pub(crate) fn batch(client: &mut Client, args: Value) -> Value {
    let result = client.call("debug_batch", args.clone());
    let report = result["structuredContent"].clone();
    assert_eq!(report["status"], "ok", "{args:#}: {report:#}");
    let good = report["committed"] == true && report["rollback_complete"] == true;
    assert_eq!(result["isError"] == true, !good, "{report:#}");
    assert!(result["content"][0]["text"].as_str().unwrap().starts_with("BATCH: "));
    report
}
