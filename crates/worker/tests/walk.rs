//! A random walk over everything a client can do at once, with workers dying in between: whatever
//! happens, every call is answered in time, the limits hold and nothing is left behind.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod rig;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use rig::{Rig, config, exists, kill, rig_with, script};
use serde_json::{Value, json};
use supervisor::Config;
use tools::{Category, OpenRequest};

/// The walk is the same in every run; how its steps meet is not.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from((self.0 >> 33) % sides as u64).unwrap()
    }
}

fn scripts() -> Vec<Value> {
    let lines = json!({
        "panic": [{ "panic": "walked into" }],
        "deaf": [{ "deaf": { "ms": 700 } }, { "say": "x" }],
        "die": ["abort"],
        "print": [{ "print": "noise" }, { "say": "x" }],
        "short": [{ "sleep": { "ms": 3 } }, { "say": "x" }],
    });
    let mut late = script(lines.clone());
    late["load"] = json!([{ "deaf": { "ms": 600 } }]);
    let mut sticky = script(lines.clone());
    sticky["release"] = json!([{ "deaf": { "ms": 1500 } }]);
    vec![
        script(lines),
        late,
        sticky,
        json!({ "open": [{ "fail": "no such file" }] }),
        json!({ "load": [{ "fail": "half open" }] }),
        json!({ "open": ["abort"] }),
    ]
}

const LINES: [&str; 8] = ["echo", "short", "short", "panic", "deaf", "die", "print", "nap"];
const EXPECTED: [Category; 8] = [
    Category::Internal,
    Category::Debugger,
    Category::Timeout,
    Category::Interrupted,
    Category::NotRun,
    Category::StaleSession,
    Category::WorkerLost,
    Category::Capacity,
];

async fn walk(
    rig: Rig,
    seed: u64,
    steps: usize,
    handles: Arc<Mutex<Vec<String>>>,
    pids: Arc<Mutex<Vec<u32>>>,
) {
    let (mut dice, scripts) = (Dice(seed), scripts());
    for step in 0..steps {
        let known = handles.lock().unwrap().clone();
        let some = (!known.is_empty() && dice.roll(4) > 0).then(|| known[dice.roll(known.len())].clone());
        let some = some.as_deref();
        let sessions = rig.client.sessions();
        let act = dice.roll(10);
        let result = match act {
            0..2 => {
                let script = scripts[dice.roll(scripts.len())].to_string();
                let opened = sessions.open(OpenRequest::Scripted { script }).await;
                if let Ok(opened) = &opened {
                    handles.lock().unwrap().push(opened.session_id.clone());
                }
                opened.map(drop)
            }
            2..6 => rig.line(some, LINES[dice.roll(LINES.len())]).await.map(drop),
            6 => sessions.interrupt(some).await.map(drop),
            7 => sessions.end(some).await.map(drop),
            8 => {
                let line = rig.line(some, "deaf");
                // A caller that walks away.
                let _ = tokio::time::timeout(Duration::from_millis(20), line).await;
                Ok(())
            }
            _ => {
                let rows = rig.rows().await;
                if let Some(pid) = rows.get(dice.roll(8)).and_then(|row| row.engine_pid) {
                    kill(pid);
                }
                Ok(())
            }
        };
        if let Err(error) = result {
            assert!(EXPECTED.contains(&error.category), "seed {seed}, step {step}, act {act}: {error:?}");
        }
        let rows = rig.rows().await;
        pids.lock().unwrap().extend(rows.iter().filter_map(|row| row.engine_pid));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_call_is_answered_and_nothing_is_left_behind() {
    let timeout = Duration::from_secs(1);
    let grace = Duration::from_secs(1);
    let rig =
        rig_with(Config { call_timeout: timeout, release_grace: grace, shutdown_grace: grace, ..config() });
    let (handles, pids) = (Arc::<Mutex<Vec<String>>>::default(), Arc::<Mutex<Vec<u32>>>::default());
    // A soak sets more.
    let steps = std::env::var("WINDBG_MCP_TEST_STEPS").ok().and_then(|s| s.parse().ok()).unwrap_or(60);
    let mut walkers = tokio::task::JoinSet::new();
    for seed in 1..=4 {
        let own = Rig { supervisor: Arc::clone(&rig.supervisor), client: Arc::clone(&rig.client) };
        walkers.spawn(walk(own, seed, steps, Arc::clone(&handles), Arc::clone(&pids)));
    }
    // Far above what the bounds on single calls add up to.
    let walked = tokio::time::timeout(Duration::from_secs(120 + 3 * steps as u64), async {
        while let Some(walker) = walkers.join_next().await {
            walker.unwrap();
        }
    });
    walked.await.unwrap();
    // It still serves: ending what is there makes room for one more.
    for row in rig.rows().await {
        let _ = rig.client.sessions().end(Some(&row.session_id)).await;
    }
    assert!(rig.rows().await.is_empty());
    rig.open().await;
    assert_eq!(rig.line(None, "echo").await.unwrap(), "hello");
    rig.supervisor.shutdown().await;
    let mut pids = pids.lock().unwrap().clone();
    pids.sort_unstable();
    pids.dedup();
    assert!(pids.len() > 10, "hardly anything was opened: {pids:?}");
    let left: Vec<u32> = pids.into_iter().filter(|&pid| exists(pid)).collect();
    assert!(left.is_empty(), "left behind: {left:?}");
}
