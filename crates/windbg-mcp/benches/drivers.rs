//! Speed of the driver tools on a release build: the surface of a large driver, the codes of every test
//! driver, references over a large image. Prints a table; asserts nothing.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../tests/stdio/mod.rs"]
mod stdio;

use std::path::{Path, PathBuf};
use std::time::Instant;

use serde_json::{Value, json};
use stdio::Server;

const RUNS: usize = 7;

fn root() -> PathBuf {
    test_data::fixture("").join("..").canonicalize().unwrap()
}

/// An image `cargo xtask drivers speed` generated.
fn generated(name: &str) -> Option<PathBuf> {
    let path = root().join("target/drivers/speed").join(name);
    if path.is_file() {
        return Some(path);
    }
    println!("{name}: not run (cargo xtask drivers speed)");
    None
}

fn peak_kib(pid: u64) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find(|line| line.starts_with("VmHWM:"))?.split_whitespace().nth(1)?.parse().ok()
}

struct Timed {
    /// Milliseconds of each run, sorted; the first one of a session each.
    times: Vec<f64>,
    answer: Value,
    peak_mb: u64,
}

/// A tool's first call in sessions of their own, so that nothing is cached.
fn cold(path: &Path, tool: &str, args: &Value) -> Timed {
    let (mut times, mut answer, mut peak_mb) = (Vec::new(), Value::Null, 0);
    for _ in 0..RUNS {
        let mut server = Server::start();
        server.call("open_dump", json!({ "path": path }));
        let started = Instant::now();
        answer = server.call(tool, args.clone());
        times.push(started.elapsed().as_secs_f64() * 1e3);
        let status = server.call("session_status", json!({}));
        let pid = status["structuredContent"]["sessions"][0]["engine_pid"].as_u64();
        peak_mb = peak_mb.max(pid.and_then(peak_kib).unwrap_or(0) / 1000);
    }
    times.sort_by(f64::total_cmp);
    Timed { times, answer: answer["structuredContent"].clone(), peak_mb }
}

fn row(what: &str, timed: &Timed, bar: &str) {
    let failed = timed.answer["error"]["message"].as_str().map(|text| format!("  FAILED: {text}"));
    println!(
        "{what:<44} {:>9.1} {:>9.1} {:>7} MB  {bar}{}",
        timed.times[0],
        timed.times[RUNS / 2],
        timed.peak_mb,
        failed.unwrap_or_default()
    );
}

fn main() {
    println!("first call of a session, {RUNS} sessions");
    println!("{:<44} {:>9} {:>9} {:>10}", "", "min ms", "median", "peak");
    if let Some(path) = generated("large.sys") {
        let timed = cold(&path, "driver_surface", &json!({}));
        row("driver_surface, a generated driver of 1 MB", &timed, "(bar: 1,000 ms, 200 MB)");
        row("driver_hazards of it", &cold(&path, "driver_hazards", &json!({})), "(bar: 500 ms a MB)");
    }
    if let Some(path) = generated("references.dll") {
        let args = json!({ "module": "references", "rva": "0x1000" });
        let timed = cold(&path, "xrefs_to", &args);
        row("xrefs_to, a generated image of 10 MB", &timed, "(bar: 300 ms)");
        println!("  {} references found", timed.answer["site_count"]);
    }
    let drivers = root().join("fixtures/drivers/bin");
    let mut images: Vec<PathBuf> = Vec::new();
    for build in std::fs::read_dir(drivers).unwrap().flatten() {
        images.extend(std::fs::read_dir(build.path()).unwrap().flatten().map(|entry| entry.path()));
    }
    images.retain(|path| path.extension().is_some_and(|extension| extension == "sys"));
    images.sort();
    let mut slowest: Vec<(f64, PathBuf)> = Vec::new();
    for path in images {
        let flood = path.file_stem().is_some_and(|stem| stem == "d22");
        let timed = cold(&path, "ioctl_map", &json!({}));
        let build =
            path.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy().into_owned();
        if flood {
            row(&format!("ioctl_map, D22 {build}, 5,000 codes"), &timed, "(bar: 2,000 ms)");
        } else {
            slowest.push((timed.times[RUNS / 2], path));
        }
    }
    slowest.sort_by(|a, b| b.0.total_cmp(&a.0));
    println!("ioctl_map, {} other builds of test drivers (bar: 50 ms), the slowest:", slowest.len());
    for (median, path) in slowest.iter().take(5) {
        println!("  {median:>9.1}  {}", path.display());
    }
}
