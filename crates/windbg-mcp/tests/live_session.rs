//! A live program under DbgEng, from launch to its end, through the tools: what a client does. Runs
//! with `WINDBG_MCP_LAB=1`, which the full test command sets after making the lab.

#![allow(clippy::unwrap_used, clippy::expect_used)]
#![cfg(unix)]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use differential::Lab;
use serde_json::{Value, json};
use supervisor::{Client, Config, Supervisor};
use tokio_util::sync::CancellationToken;
use tools::Surface;

struct Bench {
    supervisor: Arc<Supervisor>,
    client: Arc<Client>,
    surface: Surface,
    lab: Lab,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The lab, or why this test does not run.
fn bench() -> Option<Bench> {
    if std::env::var("WINDBG_MCP_LAB").is_err() {
        test_data::not_run("lab absent (cargo xtask lab, cargo xtask wine-worker, WINDBG_MCP_LAB=1)");
        return None;
    }
    // This program supervises, so it says what the worker says.
    channel::identify(env!("WINDBG_MCP_BUILD"));
    let lab = Lab::of(&root()).unwrap();
    let supervisor = Supervisor::new(Config {
        engine_dir: Some(lab.engine_dir.clone()),
        wine_worker: Some(lab.worker.clone()),
        worker_env: vec![("WINEPREFIX".to_owned(), lab.prefix.display().to_string())],
        ..Config::default()
    });
    let names: Vec<&str> = tools::all().iter().map(|entry| entry.name).collect();
    Some(Bench { client: supervisor.client("stdio"), supervisor, surface: Surface::of(&names), lab })
}

/// A program of `fixtures/src/live` as Wine sees it.
fn program(name: &str) -> String {
    format!("Z:{}", root().join("target/live").join(name).display()).replace('/', "\\")
}

impl Bench {
    async fn call(&self, tool: &str, args: Value) -> Result<Value, Value> {
        let args = args.as_object().cloned();
        let call = self.client.call(tool, args, &self.surface, None, CancellationToken::new());
        let answer = call.await.unwrap();
        let structured = answer.structured.unwrap_or_else(|| json!({ "text": answer.text }));
        if answer.is_error { Err(structured["error"].clone()) } else { Ok(structured) }
    }
    async fn ok(&self, tool: &str, args: Value) -> Value {
        self.call(tool, args.clone()).await.unwrap_or_else(|error| panic!("{tool} {args}: {error:#}"))
    }
    async fn refused(&self, tool: &str, args: Value) -> Value {
        match self.call(tool, args.clone()).await {
            Err(error) => error,
            Ok(answer) => panic!("{tool} {args} was not refused: {answer:#}"),
        }
    }
    async fn launch(&self, name: &str, arguments: &str) -> Value {
        let prefix = self.lab.prefix.display().to_string();
        let symbols = root().join("target/live").display().to_string();
        let line = format!("\"{}\" {arguments}", program(name));
        let asked = json!({ "command_line": line, "wine_prefix": prefix, "symbol_path": symbols });
        self.ok("launch", asked).await
    }
    async fn register(&self, name: &str) -> u64 {
        let registers = self.ok("registers", json!({})).await;
        let rows = registers["registers"].as_array().unwrap();
        let row = rows.iter().find(|row| row["name"] == name).unwrap();
        number(&row["value"])
    }
    async fn ids(&self) -> Vec<u64> {
        let all = self.ok("breakpoints", json!({})).await;
        all["breakpoints"].as_array().unwrap().iter().map(|row| row["id"].as_u64().unwrap()).collect()
    }
}

fn number(value: &Value) -> u64 {
    u64::from_str_radix(value.as_str().unwrap().trim_start_matches("0x"), 16).unwrap()
}

#[tokio::test]
async fn launched_watched_stepped_run_and_ended() {
    let Some(bench) = bench() else { return };
    let opened = bench.launch("victim.exe", "3 1").await;
    assert_eq!((&opened["kind"], &opened["engine"]), (&json!("launch"), &json!("dbgeng")), "{opened:#}");
    let can = opened["summary"]["can"].to_string();
    assert!(["run", "step", "breakpoints", "watch"].iter().all(|word| can.contains(word)), "{can}");

    // By name, and its argument through registers.
    let set = bench.ok("set_breakpoint", json!({ "expression": "victim!poke" })).await;
    let poke = set["breakpoint"]["address"].clone();
    let stop = bench.ok("go", json!({})).await;
    assert_eq!(stop["reason"]["kind"], "breakpoint", "{stop:#}");
    assert_eq!((&stop["reason"]["breakpoint"], &stop["stopped_at"]), (&set["breakpoint"]["id"], &poke));
    assert_eq!(stop["module"], "victim");
    assert!(stop["symbol"].as_str().unwrap().contains("poke"), "{stop:#}");
    let watched = bench.register("rcx").await;
    assert_eq!(bench.register("rdx").await, 0, "the first value");
    let frames = bench.ok("backtrace", json!({})).await;
    assert!(frames["frames"][1]["symbol"].as_str().unwrap().contains("work"), "{frames:#}");

    // A watch on the global it writes: the stop is behind the write.
    let cleared = bench.ok("clear_breakpoints", json!({ "ids": [set["breakpoint"]["id"], 99] })).await;
    assert_eq!(cleared["missing"], json!([99]));
    let watch = json!({ "expression": "victim!g_watch", "watch": { "access": "write", "size": 4 } });
    let data = bench.ok("set_breakpoint", watch.clone()).await;
    assert_eq!(number(&data["breakpoint"]["address"]), watched);
    let stop = bench.ok("go", json!({})).await;
    assert_eq!(stop["reason"]["kind"], "data_breakpoint", "{stop:#}");
    let again = bench.ok("set_breakpoint", watch).await;
    assert_eq!(again["replaced"], json!([data["breakpoint"]["id"]]));
    bench.ok("clear_breakpoints", json!({ "all": true })).await;

    // A step moves by the length disassemble says.
    let code = bench.ok("disassemble", json!({ "count": 1 })).await;
    let length = code["instructions"][0]["bytes"].as_str().unwrap().len() as u64 / 2;
    let returning = code["instructions"][0]["text"].as_str().unwrap().starts_with("ret");
    let before = number(&code["start"]);
    let stop = bench.ok("step_over", json!({})).await;
    assert_eq!(stop["reason"]["kind"], "step", "{stop:#}");
    assert!(returning || number(&stop["stopped_at"]) == before + length, "{stop:#}");

    // To the next arrival, and to one that never comes.
    let answer = bench.ok("run_to_address", json!({ "address": "victim!poke" })).await;
    assert_eq!((&answer["verdict"], &answer["stopped_at"]), (&json!("hit"), &poke), "{answer:#}");
    assert_eq!(bench.register("rdx").await, 1);
    let stop = bench.ok("step_into", json!({})).await;
    assert_eq!(stop["reason"]["kind"], "step");
    assert!(bench.ids().await.is_empty());

    let stop = bench.ok("go", json!({})).await;
    assert_eq!((&stop["target_gone"], &stop["reason"]["kind"]), (&json!(true), &json!("exited")), "{stop:#}");
    assert_eq!(stop["reason"]["exit_code"], "0x00000007");
    assert_eq!(bench.refused("registers", json!({})).await["category"], "stale_session");
    let ended = bench.ok("end_session", json!({})).await;
    assert_eq!(ended["target_left_running"], false, "{ended:#}");
    bench.supervisor.shutdown().await;
}

#[tokio::test]
async fn runs_async_refuses_meanwhile_and_breaks_in() {
    let Some(bench) = bench() else { return };
    bench.launch("spin.exe", "").await;
    let main = bench.ok("threads", json!({})).await["threads"][0]["system_id"].clone();
    let run = bench.ok("continue_async", json!({})).await;
    assert_eq!(run["running"], true, "{run:#}");
    let execution = json!({ "execution": run["execution"] });
    let refused = bench.refused("registers", json!({})).await;
    assert_eq!(refused["category"], "target_running");
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(bench.ok("break_in", execution.clone()).await["requested"], true);
    let waited = bench.ok("wait_for_stop", execution.clone()).await;
    let stop = &waited["stop"];
    assert_eq!(
        (&stop["interrupted"], &stop["reason"]["kind"]),
        (&json!(true), &json!("break_in")),
        "{stop:#}"
    );
    assert_eq!(stop["thread"], main, "{stop:#}");
    assert!(stop.get("break_thread").is_some() && stop["break_thread"] != main, "{stop:#}");
    assert_eq!(bench.ok("wait_for_stop", execution).await["stop"], *stop, "read, not taken");

    // Its own bound; then it steps and goes as before, and no break is left over.
    let run = bench.ok("continue_async", json!({ "max_run_ms": 300 })).await;
    let waited = bench.ok("wait_for_stop", json!({ "execution": run["execution"] })).await;
    let stop = &waited["stop"];
    assert_eq!((&stop["timed_out"], &stop["bound_ms"]), (&json!(true), &json!(300)), "{stop:#}");
    assert!(stop.get("break_thread").is_some(), "{stop:#}");
    assert_eq!(stop["thread"], main);
    let began = Instant::now();
    let stop = bench.ok("go", json!({ "timeout_ms": 500 })).await;
    assert!(stop["timed_out"] == true && began.elapsed() >= Duration::from_millis(450), "{stop:#}");

    // Ending a run of an hour does not wait for it.
    bench.ok("continue_async", json!({ "max_run_ms": 3_600_000 })).await;
    let began = Instant::now();
    let ended = bench.ok("end_session", json!({})).await;
    assert!(ended["released"] == true && began.elapsed() < Duration::from_secs(5), "{ended:#}");
    bench.supervisor.shutdown().await;
}

#[tokio::test]
async fn the_poison_table_is_refused_and_nothing_is_left_of_it() {
    let Some(bench) = bench() else { return };
    bench.launch("victim.exe", "1 1").await;
    let write = |address: &str, size: u32| json!({ "expression": address, "watch": { "access": "write", "size": size } });
    for (args, category) in [
        (json!({ "expression": "victim!nosuch" }), "debugger"),
        (json!({ "expression": "0x10" }), "debugger"),
        (json!({ "expression": "nosuch" }), "debugger"),
        (write("victim!g_watch+1", 4), "invalid_argument"),
        (write("victim!g_watch", 3), "invalid_argument"),
        (json!({ "expression": "victim!poke", "command": "r; .kill" }), "invalid_argument"),
    ] {
        let error = bench.refused("set_breakpoint", args.clone()).await;
        assert_eq!(error["category"], category, "{args}: {error:#}");
        assert!(bench.ids().await.is_empty(), "{args}");
    }
    for offset in 0..4 {
        bench.ok("set_breakpoint", write(&format!("victim!g_other+{:x}", offset * 4), 4)).await;
    }
    let error = bench.refused("set_breakpoint", write("victim!g_watch", 4)).await;
    assert_eq!(error["reason"], "no_hardware_slot", "{error:#}");
    assert_eq!(bench.ids().await.len(), 4);
    let replaced = bench.ok("set_breakpoint", write("victim!g_other", 4)).await;
    assert_eq!(replaced["replaced"].as_array().unwrap().len(), 1, "{replaced:#}");
    bench.ok("clear_breakpoints", json!({ "all": true })).await;
    let deferred = bench.ok("set_breakpoint", json!({ "expression": "nope!x" })).await;
    assert_eq!(deferred["breakpoint"]["deferred"], true, "{deferred:#}");
    // A condition that holds at the second call only.
    let conditional = json!({ "expression": "victim!poke", "condition": "@rdx == 0" });
    bench.ok("set_breakpoint", conditional).await;
    let stop = bench.ok("go", json!({})).await;
    assert_eq!(stop["reason"]["kind"], "breakpoint", "{stop:#}");
    let stop = bench.ok("go", json!({})).await;
    assert_eq!(stop["target_gone"], true, "{stop:#}");
    bench.supervisor.shutdown().await;
}

/// Ends the program whatever becomes of the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn attached_to_and_left_running() {
    let Some(bench) = bench() else { return };
    let prefix = bench.lab.prefix.display().to_string();
    let mut wine = Command::new("wine");
    wine.arg(root().join("target/live/spin.exe")).env("WINEPREFIX", &prefix).env("WINEDEBUG", "-all");
    let mut running = Running(wine.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let pid = loop {
        let refused = bench.refused("attach_process", json!({ "wine_prefix": prefix })).await;
        let message = refused["message"].as_str().unwrap();
        let found = message.split([';', ',', '\n', ':']).find(|part| part.contains("spin.exe"));
        if let Some(found) = found {
            let digits: String = found.chars().filter(char::is_ascii_digit).collect();
            break digits.parse::<u64>().unwrap_or_else(|_| panic!("{message}"));
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(running.0.try_wait().unwrap().is_none(), "{message}");
    };
    let opened = bench.ok("attach_process", json!({ "pid": pid, "wine_prefix": prefix })).await;
    assert_eq!(opened["kind"], "process", "{opened:#}");
    let run = bench.ok("continue_async", json!({ "max_run_ms": 60_000 })).await;
    bench.ok("break_in", json!({ "execution": run["execution"] })).await;
    bench.ok("wait_for_stop", json!({ "execution": run["execution"] })).await;
    let ended = bench.ok("end_session", json!({})).await;
    assert_eq!(
        (&ended["ending"], &ended["target_left_running"]),
        (&json!("detached"), &json!(true)),
        "{ended:#}"
    );
    bench.supervisor.shutdown().await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(running.0.try_wait().unwrap().is_none(), "it lives");
}

/// On the first resume of a launch a break that comes before the wait kills the target (spec 10
/// section 9.4); one that comes at once must not.
#[tokio::test]
async fn a_break_right_after_the_first_resume_is_a_stop() {
    let Some(bench) = bench() else { return };
    for _ in 0..4 {
        bench.launch("spin.exe", "").await;
        let run = bench.ok("continue_async", json!({})).await;
        let execution = json!({ "execution": run["execution"] });
        bench.ok("break_in", execution.clone()).await;
        let waited = bench.ok("wait_for_stop", execution).await;
        assert_eq!(waited["stop"]["interrupted"], true, "{waited:#}");
        let stop = bench.ok("go", json!({ "timeout_ms": 300 })).await;
        assert_eq!(stop["timed_out"], true, "the break is not delivered twice: {stop:#}");
        assert_eq!(bench.ok("end_session", json!({})).await["ending"], "terminated");
    }
    bench.supervisor.shutdown().await;
}

/// A step over a call whose inside has a breakpoint with a condition that does not hold.
#[tokio::test]
async fn a_step_over_passes_a_condition_that_does_not_hold() {
    let Some(bench) = bench() else { return };
    bench.launch("victim.exe", "3 1").await;
    bench.ok("run_to_address", json!({ "address": "victim!work" })).await;
    let inside = json!({ "expression": "victim!poke", "condition": "@rdx == 77" });
    bench.ok("set_breakpoint", inside).await;
    // To the call of poke, an instruction at a time.
    for _ in 0..200 {
        let code = bench.ok("disassemble", json!({ "count": 1 })).await;
        let text = code["instructions"][0]["text"].as_str().unwrap().to_owned();
        let length = code["instructions"][0]["bytes"].as_str().unwrap().len() as u64 / 2;
        let before = number(&code["start"]);
        let stop = bench.ok("step_over", json!({ "timeout_ms": 5000 })).await;
        assert_eq!(stop["reason"]["kind"], "step", "{text}: {stop:#}");
        if text.starts_with("call") && text.contains("poke") {
            assert_eq!(number(&stop["stopped_at"]), before + length, "{text}: {stop:#}");
            assert_eq!(bench.ids().await.len(), 1);
            bench.supervisor.shutdown().await;
            return;
        }
    }
    panic!("no call of poke was met");
}
