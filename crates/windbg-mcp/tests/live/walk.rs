//! Spec 10 section 11.3: a randomised walk over raw commands and typed tools of a launched program.
//! After every step the session answers or says that it is gone; it never comes back, and the server
//! serves. `WINDBG_MCP_WALK_STEPS` asks for a longer soak, `WINDBG_MCP_WALK_SEED` for another walk.

use std::time::Duration;

use serde_json::{Value, json};

use crate::bench::{Bench, bench};

const RAW: [&str; 20] = [
    "g",
    "p",
    "t",
    "r",
    "k",
    "lm",
    "~*k",
    "bp victim!poke",
    "bp victim!nosuch",
    "bl",
    "bc *",
    "gu",
    "dd @rsp",
    "u",
    "!nosuch",
    ".detach",
    "q",
    ".kill",
    ".restart",
    "bp victim!work \"r; gc\"; g",
];

fn typed(choice: u64) -> (&'static str, Value) {
    match choice {
        0 => ("go", json!({ "timeout_ms": 300 })),
        1 => ("step_over", json!({ "timeout_ms": 300 })),
        2 => ("step_into", json!({ "timeout_ms": 300 })),
        3 => ("registers", json!({})),
        4 => ("backtrace", json!({})),
        5 => ("set_breakpoint", json!({ "expression": "victim!poke" })),
        6 => ("set_breakpoint", json!({ "expression": "victim!nosuch" })),
        7 => ("clear_breakpoints", json!({ "all": true })),
        8 => ("run_to_address", json!({ "address": "victim!poke", "timeout_ms": 300 })),
        9 => ("continue_async", json!({ "max_run_ms": 200 })),
        10 => ("interrupt", json!({})),
        _ => ("end_session", json!({})),
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

fn setting(name: &str, ordinary: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(ordinary)
}

/// How far a session has come: it only ever goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    Held,
    /// The process ended or was let go of; the session is to be ended.
    Gone,
    Ended,
}

async fn state(bench: &Bench, session: &Value) -> State {
    let status = bench.ok("session_status", json!({ "session_id": session })).await;
    let row = &status["sessions"][0];
    match (row["live"] == true, row["target_gone"] == true || row["state"] == "retired") {
        (false, _) => State::Ended,
        (true, true) => State::Gone,
        (true, false) => State::Held,
    }
}

#[tokio::test]
async fn a_randomised_command_walk_with_a_fixed_seed() {
    let Some(bench) = bench() else { return };
    let (steps, seed) = (setting("WINDBG_MCP_WALK_STEPS", 120), setting("WINDBG_MCP_WALK_SEED", 0x5eed));
    let mut random = Random(seed | 1);
    let (mut session, mut was) =
        (bench.launch("victim.exe", "200 1").await["session_id"].clone(), State::Held);
    let mut launches = 1;
    for step in 0..steps {
        let (tool, args) = if random.below(2) == 0 {
            // What ends the session is rare, so that a walk gets somewhere.
            let rare = random.below(6) == 0;
            let choice = random.below(if rare { RAW.len() as u64 } else { 15 });
            ("execute", json!({ "command": RAW[usize::try_from(choice).unwrap()] }))
        } else {
            let rare = random.below(8) == 0;
            typed(random.below(if rare { 12 } else { 11 }))
        };
        let call = bench.call(tool, args.clone());
        let answer = tokio::time::timeout(Duration::from_secs(90), call).await;
        let answer =
            answer.unwrap_or_else(|_| panic!("seed {seed:#x} step {step}: {tool} {args} did not answer"));
        if let Err(error) = &answer {
            let category = error["category"].as_str().unwrap();
            let expected = [
                "debugger",
                "stale_session",
                "target_running",
                "interrupted",
                "invalid_argument",
                "not_run",
                "unsupported",
            ];
            assert!(expected.contains(&category), "seed {seed:#x} step {step}: {tool} {args}: {error:#}");
        }
        let now = state(&bench, &session).await;
        assert!(now >= was, "seed {seed:#x} step {step}: {tool} {args}: {was:?} became {now:?}");
        was = now;
        if let Ok(run) = &answer
            && now == State::Held
            && tool == "continue_async"
        {
            // A run that is over is waited for; what it came to is as it may.
            let execution = run["execution"].clone();
            let wait =
                bench.call("wait_for_stop", json!({ "execution": execution, "timeout_ms": 5000 })).await;
            assert!(wait.is_ok_and(|waited| waited.get("stop").is_some()), "step {step}");
        }
        // A target that is gone says so, and says it again.
        if now == State::Gone {
            let error = bench.refused("registers", json!({ "session_id": session })).await;
            assert_eq!(
                error["category"], "stale_session",
                "seed {seed:#x} step {step}: {tool} {args}: {error:#}"
            );
            bench.ok("end_session", json!({ "session_id": session })).await;
            was = State::Ended;
        }
        if was == State::Ended {
            session = bench.launch("victim.exe", "200 1").await["session_id"].clone();
            (was, launches) = (State::Held, launches + 1);
        }
    }
    println!("{steps} steps over {launches} programs");
    bench.supervisor.shutdown().await;
}
