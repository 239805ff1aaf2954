//! 450 random batches, each cut at a random moment: by an interrupt, the session's end, the client's
//! leave, or the supervisor's death. (50 more run on DbgEng: `windbg-mcp/tests/batch_lab.rs`.)
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod cuts;
mod rig;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use channel::{OPEN_ID, Op, Request, encode};
use cuts::{Plan, Random, SIZE, Spelling};
use rig::{Rig, config, rig_with};
use serde_json::{Value, json};
use supervisor::Config;
use tokio_util::sync::CancellationToken;
use tools::Surface;
use transcript::{Recorder, Settings, Start};

const AT: u64 = 0x10_0000;

fn original() -> Vec<u8> {
    (0..SIZE).map(|at| u8::try_from(at * 7 % 251).unwrap()).collect()
}

fn patch(slot: u64) -> String {
    format!("patch {slot:x}")
}

fn unpatch(slot: u64) -> String {
    format!("unpatch {slot:x}")
}

fn nap(ms: u64) -> Value {
    json!({ "op": "command", "command": format!("nap {ms}") })
}

/// Everything a plan can say.
fn script(file: &Path) -> Value {
    let mut commands = json!({ "bad": [{ "fail": "no such symbol" }] });
    for ms in 0..16 {
        commands[format!("nap {ms}")] = json!([{ "sleep": { "ms": ms } }]);
    }
    for slot in (0..SIZE as u64).step_by(8) {
        let at = AT + slot;
        let was: String =
            original()[slot as usize..slot as usize + 4].iter().map(|b| format!("{b:02x}")).collect();
        let poke = |bytes: &str| json!([{ "poke": { "address": format!("{at:#018x}"), "bytes": bytes } }]);
        commands[patch(at)] = poke("90909090");
        commands[unpatch(at)] = poke(&was);
    }
    json!({ "commands": commands, "writable": { "address": format!("{AT:#018x}"), "path": file } })
}

fn plan(random: &mut Random) -> Plan {
    let spelling = Spelling { patch: &patch, unpatch: &unpatch, nap: &nap, bad: "bad" };
    Plan::random(random, AT, &spelling)
}

struct Memory {
    file: PathBuf,
    folder: tempfile::TempDir,
}

impl Memory {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("memory");
        std::fs::write(&file, original()).unwrap();
        Self { file, folder }
    }
    fn read(&self) -> Vec<u8> {
        std::fs::read(&self.file).unwrap()
    }
    /// The last batch the transcript tells of.
    fn told(&self) -> Option<Value> {
        let text = std::fs::read_to_string(self.folder.path().join("t.jsonl")).unwrap_or_default();
        let mut records = text.lines().rev().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        records.find(|record| record["event"] == "batch")
    }
    fn recorder(&self) -> Arc<Recorder> {
        let start = Start { version: "0".into(), engines: vec![], surface: "all".into() };
        Arc::new(Recorder::open(Settings::at(self.folder.path().join("t.jsonl")), start).unwrap())
    }
}

async fn call(rig: &Rig, args: Value) -> Value {
    let (args, surface) = (args.as_object().cloned(), Surface::all());
    let call = rig.client.call("debug_batch", args, &surface, None, CancellationToken::new());
    call.await.unwrap().structured.unwrap_or_default()
}

#[derive(Clone, Copy, PartialEq)]
enum Cut {
    Interrupt,
    End,
    Leave,
}

/// Runs a plan and cuts it; the report, or what the transcript says where the client was gone.
async fn cut(memory: &Memory, plan: &Plan, how: Cut, after: Duration) -> Option<Value> {
    let rig = rig_with(Config { transcript: Some(memory.recorder()), ..config() });
    let session = rig.open_script(script(&memory.file)).await.unwrap();
    let running = {
        let rig = Rig { supervisor: Arc::clone(&rig.supervisor), client: Arc::clone(&rig.client) };
        let args = plan.args.clone();
        tokio::spawn(async move { call(&rig, args).await })
    };
    tokio::time::sleep(after).await;
    match how {
        Cut::Interrupt => {
            rig.client.sessions().interrupt(Some(&session)).await.unwrap();
        }
        Cut::End => {
            rig.client.sessions().end(Some(&session)).await.unwrap();
        }
        Cut::Leave => running.abort(),
    }
    let report = if how == Cut::Leave { None } else { Some(running.await.unwrap()) };
    rig.supervisor.shutdown().await;
    report.or_else(|| memory.told())
}

/// Outcomes of `count` plans, each cut once.
async fn cuts(seed: u64, count: u64, how: Cut) -> BTreeMap<String, usize> {
    let mut outcomes = BTreeMap::new();
    for number in 0..count {
        let mut random = Random::new(seed * 1000 + number);
        let plan = plan(&mut random);
        let after = Duration::from_micros(random.below(45_000));
        let memory = Memory::new();
        let report = cut(&memory, &plan, how, after).await;
        let outcome = match &report {
            Some(report) if report["outcome"].is_string() => {
                let broken = plan.broken(report, &original(), &memory.read());
                assert!(broken.is_empty(), "seed {seed}, plan {number}: {broken:#?}");
                report["outcome"].as_str().unwrap().to_owned()
            }
            // It was not begun, or the worker left before its answer came: nothing is claimed.
            other => {
                let after = memory.read();
                let broken = plan.broken_unreported(&original(), &after);
                assert!(broken.is_empty(), "seed {seed}, plan {number}, {other:?}: {broken:#?}");
                "unreported".to_owned()
            }
        };
        *outcomes.entry(outcome).or_insert(0) += 1;
    }
    println!("{outcomes:?}");
    outcomes
}

#[tokio::test]
async fn interrupted_150_times() {
    let outcomes = cuts(1, 150, Cut::Interrupt).await;
    assert!(outcomes.get("interrupted").is_some_and(|n| *n > 20), "{outcomes:?}");
    assert!(outcomes.get("committed").is_some_and(|n| *n > 5), "{outcomes:?}");
}

#[tokio::test]
async fn ended_100_times() {
    let outcomes = cuts(2, 100, Cut::End).await;
    assert!(outcomes.get("abandoned").is_some_and(|n| *n > 15), "{outcomes:?}");
}

#[tokio::test]
async fn left_100_times() {
    let outcomes = cuts(3, 100, Cut::Leave).await;
    assert!(outcomes.get("abandoned").is_some_and(|n| *n > 15), "{outcomes:?}");
    assert!(outcomes.get("unreported").is_none_or(|n| *n < 20), "{outcomes:?}");
}

/// The supervisor dies without a word: the worker's channel closes.
#[test]
fn orphaned_100_times() {
    for number in 0..100 {
        let mut random = Random::new(4000 + number);
        let plan = plan(&mut random);
        let memory = Memory::new();
        let mut worker = Command::new(env!("CARGO_BIN_EXE_scripted-worker"))
            .env("WINDBG_MCP_TEST_SCRIPTED", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut input = worker.stdin.take().unwrap();
        let open =
            Op::Open { request: json!({ "open": "scripted", "script": script(&memory.file).to_string() }) };
        let run = Op::Run { operation: "debug_batch".into(), args: plan.args.clone() };
        for (id, op) in [(OPEN_ID, open), (1, run)] {
            input.write_all(&encode(&Request { id, op, patience_ms: Some(60_000) }).unwrap()).unwrap();
        }
        // The pipe to its output is never read; it is far from full.
        std::thread::sleep(Duration::from_micros(5_000 + random.below(45_000)));
        drop(input);
        assert!(worker.wait().unwrap().success());
        let broken = plan.broken_unreported(&original(), &memory.read());
        assert!(broken.is_empty(), "plan {number}: {broken:#?}");
    }
}
