//! Speed and memory of whole sessions, side by side in one run: process start to triage over stdio,
//! peak memory on a large dump, latency of small reads. Prints a table; asserts nothing.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../tests/stdio/mod.rs"]
mod stdio;

use std::path::{Path, PathBuf};
use std::time::Instant;

use serde_json::json;
use stdio::Server;

const RUNS: usize = 21;
/// Runs of each engine on a dump.
const ENGINE_RUNS: usize = 5;

/// The bundled dump and every unpacked user dump of the shared data.
fn user_dumps() -> Vec<PathBuf> {
    let mut dumps = vec![test_data::fixture("crash.dmp")];
    let mut folders: Vec<PathBuf> = test_data::shared().into_iter().map(|data| data.join("user")).collect();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "dmp") {
                dumps.push(path);
            }
        }
    }
    dumps.sort();
    dumps
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn triage(path: &Path) -> f64 {
    let started = Instant::now();
    let mut server = Server::start();
    server.call("open_dump", json!({ "path": path }));
    server.call("exception_triage", json!({}));
    started.elapsed().as_secs_f64() * 1e3
}

fn bench_triage() {
    println!("process start to triage over stdio, {RUNS} runs (bar: 60 ms warm)");
    println!("{:<48} {:>9} {:>9} {:>9}", "dump", "min ms", "median", "max");
    for path in user_dumps() {
        triage(&path);
        let mut times: Vec<f64> = (0..RUNS).map(|_| triage(&path)).collect();
        let middle = median(&mut times);
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        println!("{name:<48} {:>9.1} {middle:>9.1} {:>9.1}", times[0], times[times.len() - 1]);
    }
}

/// Both engines on the same dumps, side by side; and how soon a worker under Wine is ready.
fn bench_engines() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let lab = match root.canonicalize().map(|root| differential::Lab::of(&root)) {
        Ok(Ok(lab)) => lab,
        _ => return println!("\nengines side by side: not run (cargo xtask lab)"),
    };
    let engine = |path: &Path, engine: &str| {
        let started = Instant::now();
        let mut server = Server::start_with(lab.environment());
        server.call("open_dump", json!({ "path": path, "engine": engine }));
        let opened = started.elapsed().as_secs_f64() * 1e3;
        server.call("exception_triage", json!({}));
        (opened, started.elapsed().as_secs_f64() * 1e3)
    };
    println!("\nengines side by side, process start to triage, medians of {ENGINE_RUNS} runs (bar: 6 times)");
    println!("{:<48} {:>9} {:>9} {:>7}", "dump", "native", "dbgeng", "times");
    let (mut ratios, mut ready) = (Vec::new(), Vec::new());
    for path in user_dumps() {
        engine(&path, "dbgeng");
        let (mut native, mut dbgeng) = (Vec::new(), Vec::new());
        for _ in 0..ENGINE_RUNS {
            native.push(engine(&path, "native").1);
            let (opened, triaged) = engine(&path, "dbgeng");
            ready.push(opened);
            dbgeng.push(triaged);
        }
        let (native, dbgeng) = (median(&mut native), median(&mut dbgeng));
        ratios.push(dbgeng / native);
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        println!("{name:<48} {native:>9.1} {dbgeng:>9.1} {:>7.1}", dbgeng / native);
    }
    println!("median: {:.1} times", median(&mut ratios));
    println!(
        "a worker under Wine with its dump open: median {:.0} ms (bar: ready in 1,500 ms)",
        median(&mut ready)
    );
}

/// Registers of a process that is stopped under the DbgEng worker.
fn bench_registers() {
    let root = test_data::fixture("").join("..").canonicalize().unwrap();
    let program = root.join("target/live/victim.exe");
    let (Ok(lab), true) = (differential::Lab::of(&root), program.is_file()) else {
        return println!("\nregisters of a live process: not run (cargo xtask lab)");
    };
    let mut server = Server::start_with(lab.environment());
    let program = program.display().to_string().replace('/', "\\");
    let launched = server.call("launch", json!({ "command_line": format!("Z:{program} 3 1") }));
    assert_ne!(launched["isError"], true, "{launched}");
    let mut times: Vec<f64> = (0..1000)
        .map(|_| {
            let started = Instant::now();
            let answer = server.call("registers", json!({}));
            let elapsed = started.elapsed().as_secs_f64() * 1e3;
            assert_ne!(answer["isError"], true, "{answer}");
            elapsed
        })
        .collect();
    let p50 = median(&mut times);
    println!(
        "\n1,000 registers of a stopped process: p50 {p50:.3} ms, p95 {:.3} ms (bar: p50 2 ms)",
        times[949]
    );
    server.call("end_session", json!({}));
}

fn peak_kib(pid: u64) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find(|line| line.starts_with("VmHWM:"))?.split_whitespace().nth(1)?.parse().ok()
}

fn bench_memory() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.dmp");
    large_dump(&path);
    let mut server = Server::start();
    server.call("open_dump", json!({ "path": path }));
    server.call("exception_triage", json!({}));
    server.call("execute", json!({ "command": "s -a 10000000 L?0fffffff nothere; lm; ~*k" }));
    let status = server.call("session_status", json!({}));
    let pid = status["structuredContent"]["sessions"][0]["engine_pid"].as_u64();
    let size = std::fs::metadata(&path).map_or(0, |m| m.len());
    println!(
        "\npeak of a worker on a {} MB dump: {} MB (bar: 150 MB; mapped pages count)",
        size / 1_000_000,
        pid.and_then(peak_kib).unwrap_or(0) / 1000
    );
}

fn large_dump(path: &Path) {
    dumpforge::user::large(path, 100 << 20).unwrap();
}

fn bench_reads() {
    let mut server = Server::start();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.dmp");
    large_dump(&path);
    server.call("open_dump", json!({ "path": path }));
    let mut times: Vec<f64> = (0..1000u64)
        .map(|index| {
            let address = format!("{:#x}", 0x1000_0000 + index * 4096);
            let started = Instant::now();
            let answer = server.call("read_memory", json!({ "address": address, "size": 4096 }));
            let elapsed = started.elapsed().as_secs_f64() * 1e3;
            assert_eq!(answer["structuredContent"]["read_size"], 4096, "{answer}");
            elapsed
        })
        .collect();
    let p50 = median(&mut times);
    println!("\n1,000 read_memory of 4 KiB: p50 {p50:.3} ms, p95 {:.3} ms (bar: p50 1 ms)", times[949]);
}

/// The same page of `modules` with the redaction rules on and off, with and without a transcript.
fn bench_egress() {
    let Some(data) = test_data::shared() else { return };
    let dump = data.join("kernel/triage_x64_19041_7e.dmp");
    let folder = tempfile::tempdir().unwrap();
    let (rules, transcript) = (folder.path().join("rules.toml"), folder.path().join("t.jsonl"));
    let sets = r#"builtin = ["user_paths", "tokens", "private_keys", "mail", "ipv4", "ipv6"]"#;
    std::fs::write(&rules, sets).unwrap();
    println!("\n1,000 pages of modules, about 12 KB (bars: rules cost 5 %, a record 0.05 ms)");
    for (name, variable) in [
        ("plain", None),
        ("with --redact", Some(("WINDBG_MCP_REDACT", rules.clone()))),
        ("with a transcript", Some(("WINDBG_MCP_TRANSCRIPT", transcript.clone()))),
        ("plain again", None),
    ] {
        let environment = variable.map(|(name, path)| (name.to_owned(), path.into_os_string()));
        let mut server = Server::start_with(environment.into_iter().collect());
        server.call("open_dump", json!({ "path": dump }));
        let page = json!({ "limit": 36, "filter": "*" });
        let bytes = server.call("modules", page.clone())["structuredContent"].to_string().len();
        let mut times: Vec<f64> = (0..1000)
            .map(|_| {
                let started = Instant::now();
                server.call("modules", page.clone());
                started.elapsed().as_secs_f64() * 1e3
            })
            .collect();
        println!("{name:<20} {bytes:>7} bytes  p50 {:.3} ms", median(&mut times));
    }
}

fn main() {
    bench_egress();
    bench_triage();
    bench_engines();
    bench_registers();
    bench_memory();
    bench_reads();
}
