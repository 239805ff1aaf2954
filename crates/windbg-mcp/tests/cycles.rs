//! Launch and end, over and over: nothing is left behind and nothing grows.
//! `WINDBG_MCP_CYCLES` asks for more or fewer.

#![allow(clippy::unwrap_used, clippy::expect_used)]
#![cfg(unix)]

// A program of its own, because it counts what this process has open, and what runs in the lab's prefix.
#[allow(dead_code)]
#[path = "live/bench.rs"]
mod bench;
mod stdio;

use std::path::Path;

use serde_json::json;

/// Open files and threads of this process, which supervises, and its resident size in pages.
fn own() -> (usize, usize, u64) {
    let count = |folder: &str| std::fs::read_dir(folder).map_or(0, Iterator::count);
    let resident = std::fs::read_to_string("/proc/self/statm").unwrap();
    let resident = resident.split(' ').nth(1).unwrap().parse().unwrap();
    (count("/proc/self/fd"), count("/proc/self/task"), resident)
}

/// Unix processes of Wine's in `prefix`, its servers and services aside, and open files of its server.
fn wine(prefix: &Path) -> (usize, usize) {
    let wanted = format!("WINEPREFIX={}", prefix.display());
    let (mut programs, mut files) = (0, 0);
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let of = |file: &str| std::fs::read(entry.path().join(file)).unwrap_or_default();
        if !of("environ").split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes()) {
            continue;
        }
        let line = String::from_utf8_lossy(&of("cmdline")).into_owned();
        if line.contains("wineserver") {
            files += std::fs::read_dir(entry.path().join("fd")).map_or(0, Iterator::count);
        } else if line.contains("thrower.exe") || line.contains("windbg-mcp.exe") {
            programs += 1;
        }
    }
    (programs, files)
}

#[tokio::test]
async fn two_hundred_cycles_of_launch_and_end_leave_nothing_behind() {
    let Some(bench) = bench::bench() else { return };
    let prefix = std::path::PathBuf::from(bench.prefix());
    let cycles: u32 = std::env::var("WINDBG_MCP_CYCLES").ok().and_then(|n| n.parse().ok()).unwrap_or(200);
    let cycle = async |run: bool| {
        bench.launch("thrower.exe", "quit 0").await;
        if run {
            assert_eq!(bench.ok("go", json!({})).await["target_gone"], true);
        }
        bench.ok("end_session", json!({})).await;
    };
    // Wine's server stays as long as a program does.
    bench.launch("spin.exe", "").await;
    // What is made once is made.
    for index in 0..10 {
        cycle(index % 2 == 0).await;
    }
    let settle = async || tokio::time::sleep(std::time::Duration::from_millis(1500)).await;
    settle().await;
    let (before, before_wine) = (own(), wine(&prefix));
    for index in 0..cycles {
        cycle(index % 2 == 0).await;
    }
    settle().await;
    let (after, after_wine) = (own(), wine(&prefix));
    println!("{cycles} cycles: {before:?} {before_wine:?}, then {after:?} {after_wine:?}");
    assert!(after.0 <= before.0 + 2, "open files: {} then {}", before.0, after.0);
    assert!(after.1 <= before.1 + 2, "threads: {} then {}", before.1, after.1);
    // 4 MiB over all of them: a leak of a session's worth would show.
    assert!(after.2 <= before.2 + 1024, "resident pages: {} then {}", before.2, after.2);
    assert!(before_wine.0 > 0 && before_wine.1 > 0, "nothing was counted");
    assert!(after_wine.0 <= before_wine.0, "Wine's programs: {} then {}", before_wine.0, after_wine.0);
    assert!(
        after_wine.1 <= before_wine.1 + 8,
        "files of Wine's server: {} then {}",
        before_wine.1,
        after_wine.1
    );
    bench.supervisor.shutdown().await;
}
