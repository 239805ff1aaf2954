//! The rows of spec 10 section 11.2, against real worker processes.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod rig;

use std::time::{Duration, Instant};

use rig::{config, exists, kill, rig, rig_with, script, until};
use serde_json::json;
use supervisor::Config;
use tools::{Category, OpenRequest};

#[tokio::test]
async fn open_call_end() {
    let rig = rig();
    let session = rig.open().await;
    let pid = rig.row(&session).await.engine_pid.unwrap();
    assert_eq!(rig.line(None, "echo").await.unwrap(), "hello");
    assert_eq!(rig.line(Some(&session), "echo").await.unwrap(), "hello");
    let ended = rig.client.sessions().end(None).await.unwrap();
    assert_eq!((ended.ending.as_str(), ended.released, ended.worker_terminated), ("closed", true, false));
    assert!(!exists(pid), "no worker and no zombie");
    assert!(rig.rows().await.is_empty());
}

#[tokio::test]
async fn garbage_on_stdout_leaves_the_reply_intact_and_reaches_the_log() {
    let rig = rig();
    let noisy = script(json!({ "noisy": [{ "print": "garbage" }, { "say": "reply" }] }));
    let session = rig.open_script(noisy).await.unwrap();
    assert_eq!(rig.line(None, "noisy").await.unwrap(), "reply");
    // Unterminated, so it becomes a line when the worker's stderr ends or a newline comes.
    rig.client.sessions().end(Some(&session)).await.unwrap();
    until(Duration::from_secs(5), async || rig.log(&session).await.contains("garbage")).await;
}

#[tokio::test]
async fn an_unparsable_line_closes_that_session_only() {
    let healthy = rig();
    let other = healthy.open().await;
    let mut bad = config();
    bad.worker_env.push(("WINDBG_MCP_TEST_WORKER".into(), "unparsable".into()));
    let rig = rig_with(bad);
    let error = rig.open_script(script(json!({}))).await.unwrap_err();
    assert_eq!(error.category, Category::WorkerLost);
    assert_eq!(error.extra["target"], "no");
    assert!(error.message.contains("from another build"), "{}", error.message);
    assert!(rig.rows().await.is_empty());
    assert_eq!(healthy.line(Some(&other), "echo").await.unwrap(), "hello");
}

#[tokio::test]
async fn a_worker_of_another_build_is_refused_and_both_are_named() {
    let mut other = config();
    other.worker_env.push(("WINDBG_MCP_TEST_BUILD".into(), "9.9.9+other".into()));
    let rig = rig_with(other);
    let error = rig.open_script(script(json!({}))).await.unwrap_err();
    assert!(error.message.contains("9.9.9+other"), "{}", error.message);
    assert!(error.message.contains(&channel::build()), "{}", error.message);
    assert_eq!(error.reason.as_deref(), Some("no_worker"));
}

#[tokio::test]
async fn workers_that_never_start_are_said_to() {
    for (mode, says) in [("stillborn", "the engine DLL is missing"), ("mute", "not ready within 1 s")] {
        let ready = Duration::from_secs(if mode == "mute" { 1 } else { 30 });
        let mut broken = Config { worker_ready: ready, ..config() };
        broken.worker_env.push(("WINDBG_MCP_TEST_WORKER".into(), mode.into()));
        let error = rig_with(broken).open_script(script(json!({}))).await.unwrap_err();
        assert!(error.message.contains(says), "{mode}: {}", error.message);
    }
    let missing = Config { worker: Some("/nonexistent/worker".into()), ..config() };
    let error = rig_with(missing).open_script(script(json!({}))).await.unwrap_err();
    assert!(error.message.contains("/nonexistent/worker"), "{}", error.message);
}

#[tokio::test]
async fn kill_9_during_a_call_is_worker_lost_at_once_and_others_live() {
    let rig = rig();
    let victim = rig.open().await;
    let other = rig.open().await;
    let pid = rig.row(&victim).await.engine_pid.unwrap();
    let call = rig.spawn_line(&victim, "deaf3");
    rig.until_busy(&victim, 0).await;
    let began = Instant::now();
    kill(pid);
    let error = call.await.unwrap().unwrap_err();
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    assert_eq!(error.category, Category::WorkerLost);
    assert!(error.message.contains("SIGKILL") && error.message.contains("scripted"), "{}", error.message);
    assert_eq!(error.session_id.as_deref(), Some(victim.as_str()));
    let row = rig.row(&victim).await;
    assert_eq!((row.state.as_str(), row.live), ("closed", false));
    assert_eq!(rig.line(Some(&other), "echo").await.unwrap(), "hello");
    let again = rig.line(Some(&victim), "echo").await.unwrap_err();
    assert_eq!(again.category, Category::StaleSession);
    assert!(again.message.contains("worker lost"), "{}", again.message);
    let ended = rig.client.sessions().end(Some(&victim)).await.unwrap();
    assert!(!ended.released && !ended.worker_terminated && ended.ending == "closed");
    assert_eq!(rig.client.sessions().end(Some(&victim)).await.unwrap_err().category, Category::StaleSession);
    rig.open().await;
    until(Duration::from_secs(2), async || !exists(pid)).await;
}

#[tokio::test]
async fn a_panic_costs_its_job() {
    let rig = rig();
    let session =
        rig.open_script(script(json!({ "bad": [{ "panic": "index out of bounds" }] }))).await.unwrap();
    let error = rig.line(None, "bad").await.unwrap_err();
    assert_eq!(error.category, Category::Internal);
    assert!(error.message.contains("index out of bounds at "), "{}", error.message);
    assert!(error.message.contains("script.rs:"), "{}", error.message);
    assert_eq!(rig.line(None, "echo").await.unwrap(), "hello");
    until(Duration::from_secs(2), async || rig.log(&session).await.contains("error worker::panics panic:"))
        .await;
}

#[tokio::test]
async fn a_panicking_opener_leaves_nothing() {
    let rig = rig();
    let error = rig.open_script(json!({ "open": [{ "panic": "bad header" }] })).await.unwrap_err();
    assert_eq!((error.category, &error.extra["target"]), (Category::Internal, &json!("no")));
    assert!(rig.rows().await.is_empty());
}

#[tokio::test]
async fn a_crash_says_what_the_process_died_of() {
    let rig = rig();
    for (steps, says) in [
        (json!(["abort"]), "SIGABRT"),
        (json!([{ "exit": 3 }]), "exit status: 3"),
        (json!(["overflow"]), "its stack overflowed"),
    ] {
        rig.open_script(script(json!({ "die": steps }))).await.unwrap();
        let error = rig.line(None, "die").await.unwrap_err();
        assert_eq!(error.category, Category::WorkerLost);
        assert!(error.message.contains(says), "{says}: {}", error.message);
    }
}

#[tokio::test]
async fn a_worker_at_its_memory_bound_says_so() {
    let mut small = config();
    small.worker_env.push(("WINDBG_MCP_WORKER_MEMORY_MB".into(), "64".into()));
    let rig = rig_with(small);
    let grow = script(
        json!({ "grow": [{ "allocate": { "mib": 100 } }], "some": [{ "allocate": { "mib": 20 } }, { "say": "ok" }] }),
    );
    rig.open_script(grow).await.unwrap();
    assert_eq!(rig.line(None, "some").await.unwrap(), "ok");
    let error = rig.line(None, "grow").await.unwrap_err();
    assert_eq!((error.category, error.reason.as_deref()), (Category::WorkerLost, Some("memory_bound")));
    assert!(error.message.contains("memory bound"), "{}", error.message);
}

#[tokio::test]
async fn without_a_variable_the_bound_is_below_a_gibibyte() {
    let rig = rig();
    rig.open_script(script(json!({ "grow": [{ "allocate": { "mib": 800 } }] }))).await.unwrap();
    assert_eq!(rig.line(None, "grow").await.unwrap_err().reason.as_deref(), Some("memory_bound"));
}

#[tokio::test]
async fn an_opener_that_parks_holds_up_nobody() {
    let rig = rig();
    let client = rig.client.clone();
    let parked = json!({ "load": [{ "sleep": { "ms": 60_000 } }] });
    let parked = OpenRequest::Scripted { script: parked.to_string() };
    let opening = tokio::spawn(async move { client.sessions().open(parked).await });
    until(Duration::from_secs(5), async || rig.rows().await.iter().any(|row| row.state == "attaching")).await;
    let began = Instant::now();
    let session = rig.open().await;
    assert_eq!(rig.line(Some(&session), "echo").await.unwrap(), "hello");
    rig.client.sessions().end(Some(&session)).await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    let rows = rig.rows().await;
    assert_eq!(rows.len(), 1);
    assert_eq!((rows[0].state.as_str(), rows[0].busy.is_some()), ("attaching", true));
    // Ending it breaks the opener, so nothing has to be killed.
    let ended = rig.client.sessions().end(Some(&rows[0].session_id)).await.unwrap();
    assert!(ended.released && !ended.worker_terminated, "{ended:?}");
    assert_eq!(opening.await.unwrap().unwrap_err().category, Category::Interrupted);
}

#[tokio::test]
async fn a_fifth_open_reclaims_the_session_idle_longest() {
    let rig = rig();
    let mut sessions = Vec::new();
    for _ in 0..4 {
        sessions.push(rig.open().await);
    }
    let pid = rig.row(&sessions[1]).await.engine_pid.unwrap();
    rig.line(Some(&sessions[0]), "echo").await.unwrap();
    let fifth = rig.open().await;
    until(Duration::from_secs(5), async || rig.rows().await.len() == 4).await;
    let row = rig.row(&sessions[1]).await;
    assert_eq!(row.state, "closed");
    assert!(row.why.unwrap().starts_with("reclaimed"));
    until(Duration::from_secs(20), async || !exists(pid)).await;
    assert_eq!(rig.line(Some(&fifth), "echo").await.unwrap(), "hello");
    assert_eq!(rig.line(Some(&sessions[0]), "echo").await.unwrap(), "hello");
}

#[tokio::test]
async fn four_busy_sessions_are_a_full_house() {
    let rig = rig();
    let mut calls = Vec::new();
    for _ in 0..4 {
        let session = rig.open().await;
        calls.push((session.clone(), rig.spawn_line(&session, "work")));
        rig.until_busy(&session, 0).await;
    }
    let error = rig.open_script(script(json!({}))).await.unwrap_err();
    assert_eq!((error.category, &error.extra["target"]), (Category::Capacity, &json!("no")));
    assert_eq!(error.message.matches("busy with scripted").count(), 4, "{}", error.message);
    for (session, call) in calls {
        rig.client.sessions().interrupt(Some(&session)).await.unwrap();
        assert_eq!(call.await.unwrap().unwrap(), "a[cut: interrupted]");
    }
    assert_eq!(rig.rows().await.len(), 4, "nothing was closed");
}

#[tokio::test]
async fn a_failed_fifth_open_costs_nothing() {
    let rig = rig();
    for _ in 0..4 {
        rig.open().await;
    }
    let failing = json!({ "open": [{ "fail": "no such file: /x.dmp" }] });
    let error = rig.open_script(failing).await.unwrap_err();
    assert_eq!((error.category, &error.extra["target"]), (Category::Debugger, &json!("no")));
    assert_eq!(error.session_id, None);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(rig.rows().await.iter().filter(|row| row.state == "open").count(), 4);
}

#[tokio::test]
async fn two_opens_race_for_the_last_places() {
    for _ in 0..5 {
        let rig = rig();
        let mut sessions = Vec::new();
        for _ in 0..4 {
            sessions.push(rig.open().await);
        }
        let call = rig.spawn_line(&sessions[0], "deaf3");
        rig.until_busy(&sessions[0], 0).await;
        let (one, two) = tokio::join!(rig.open_script(script(json!({}))), rig.open_script(script(json!({}))));
        let (one, two) = (one.unwrap(), two.unwrap());
        until(Duration::from_secs(5), async || rig.rows().await.len() <= 4).await;
        for session in [&one, &two] {
            assert_eq!(rig.line(Some(session), "echo").await.unwrap(), "hello", "handed out, then reclaimed");
        }
        assert_eq!(rig.row(&sessions[0]).await.state, "open", "a busy session was reclaimed");
        call.await.unwrap().unwrap();
        rig.supervisor.shutdown().await;
    }
}

#[tokio::test]
async fn a_failure_after_the_commit_keeps_the_session() {
    let rig = rig();
    let error = rig.open_script(json!({ "load": [{ "fail": "the wait ran out" }] })).await.unwrap_err();
    assert_eq!((error.category, &error.extra["target"]), (Category::Debugger, &json!("yes")));
    let session = error.session_id.unwrap();
    assert!(error.message.contains("do not open it again"), "{}", error.message);
    assert_eq!(rig.row(&session).await.state, "open");
    assert_eq!(rig.line(Some(&session), "echo").await.unwrap_err().category, Category::StaleSession);
    assert!(rig.client.sessions().end(Some(&session)).await.unwrap().released);
}

#[tokio::test]
async fn an_ended_handle_is_stale_and_remembered_for_eight_more() {
    let rig = rig();
    let first = rig.open().await;
    rig.client.sessions().end(Some(&first)).await.unwrap();
    let error = rig.line(Some(&first), "echo").await.unwrap_err();
    assert_eq!(error.category, Category::StaleSession);
    assert!(error.message.contains("ended on request"), "{}", error.message);
    for closed in 0..8 {
        assert!(!rig.client.sessions().status(Some(&first)).await.unwrap().unknown_handle, "after {closed}");
        let next = rig.open().await;
        rig.client.sessions().end(Some(&next)).await.unwrap();
    }
    assert!(rig.client.sessions().status(Some(&first)).await.unwrap().unknown_handle);
    let error = rig.line(None, "echo").await.unwrap_err();
    assert_eq!((error.category, error.next), (Category::StaleSession, vec!["open_dump".to_owned()]));
}

#[tokio::test]
async fn another_clients_handle_is_as_if_never_issued() {
    let rig = rig();
    let session = rig.open().await;
    let stranger = rig.supervisor.client("stranger");
    let theirs = stranger.sessions().operate(Some(&session), "scripted", json!({})).await.unwrap_err();
    let never = stranger.sessions().operate(Some("sess-0123"), "scripted", json!({})).await.unwrap_err();
    assert_eq!(theirs.message.replace(&session, "X"), never.message.replace("sess-0123", "X"));
    assert!(stranger.sessions().status(Some(&session)).await.unwrap().unknown_handle);
    assert!(stranger.sessions().status(None).await.unwrap().sessions.is_empty());
}

#[tokio::test]
async fn a_timed_out_job_goes_on_and_one_behind_it_is_not_run() {
    let rig = rig_with(Config { call_timeout: Duration::from_secs(2), ..config() });
    let session = rig.open().await;
    let a = rig.spawn_line(&session, "deaf3");
    rig.until_busy(&session, 0).await;
    let b = rig.spawn_line(&session, "echo");
    let error = a.await.unwrap().unwrap_err();
    assert_eq!(error.category, Category::Timeout);
    assert!(
        error.message.contains("same call again") && error.next.contains(&"interrupt".to_owned()),
        "{error:?}"
    );
    assert_eq!(b.await.unwrap().unwrap_err().category, Category::NotRun);
    assert!(rig.row(&session).await.busy.is_some(), "the late answer keeps the session busy");
    until(Duration::from_secs(5), async || rig.row(&session).await.busy.is_none()).await;
    assert_eq!(rig.line(None, "history").await.unwrap(), "deaf3", "B never ran");
}

#[tokio::test]
async fn a_call_that_outlived_its_caller_is_joined_then_collected_once() {
    let rig = rig_with(Config { call_timeout: Duration::from_secs(2), ..config() });
    let session = rig.open().await;
    assert_eq!(rig.line(None, "deaf3").await.unwrap_err().category, Category::Timeout);
    // Joins what runs.
    assert_eq!(rig.line(Some(&session), "deaf3").await.unwrap(), "done");
    assert_eq!(rig.line(None, "history").await.unwrap(), "deaf3", "run once");
    // Runs again, since that answer was collected; this time the answer waits for its collector.
    assert_eq!(rig.line(None, "deaf3").await.unwrap_err().category, Category::Timeout);
    until(Duration::from_secs(5), async || rig.row(&session).await.busy.is_none()).await;
    let began = Instant::now();
    assert_eq!(rig.line(None, "deaf3").await.unwrap(), "done");
    assert!(began.elapsed() < Duration::from_millis(500));
    assert_eq!(rig.line(None, "history").await.unwrap().matches("deaf3").count(), 2);
}

#[tokio::test]
async fn an_abandoned_open_is_joined_by_the_same_open() {
    let rig = rig_with(Config { call_timeout: Duration::from_secs(2), ..config() });
    let slow = json!({ "load": [{ "deaf": { "ms": 3500 } }] });
    let error = rig.open_script(slow.clone()).await.unwrap_err();
    assert_eq!((error.category, &error.extra["target"]), (Category::Timeout, &json!("pending")));
    let pending = error.session_id.unwrap();
    assert_eq!(rig.open_script(slow).await.unwrap(), pending);
    assert_eq!(rig.rows().await.len(), 1);
}

#[tokio::test]
async fn a_dropped_wait_takes_a_queued_job_back() {
    let rig = rig();
    let session = rig.open().await;
    let a = rig.spawn_line(&session, "nap");
    rig.until_busy(&session, 0).await;
    let b = rig.spawn_line(&session, "echo");
    rig.until_busy(&session, 1).await;
    b.abort();
    assert_eq!(a.await.unwrap().unwrap(), "rested");
    assert_eq!(rig.line(None, "history").await.unwrap(), "nap");
}

#[tokio::test]
async fn a_bound_is_sized_from_what_is_left() {
    let rig = rig_with(Config { call_timeout: Duration::from_secs(4), ..config() });
    let session = rig.open().await;
    let fresh: u64 = rig.line(None, "remaining").await.unwrap().parse().unwrap();
    let nap = rig.spawn_line(&session, "nap");
    rig.until_busy(&session, 0).await;
    let queued: u64 = rig.line(None, "remaining").await.unwrap().parse().unwrap();
    nap.await.unwrap().unwrap();
    assert!((2000..=3000).contains(&fresh), "4 s less a quarter: {fresh}");
    assert!(queued + 100 <= fresh, "{queued} of {fresh} after waiting for 300 ms");
}

#[tokio::test]
async fn ending_lets_jobs_ahead_run_and_refuses_those_behind() {
    let rig = rig();
    let session = rig.open().await;
    let ahead = rig.spawn_line(&session, "nap");
    rig.until_busy(&session, 0).await;
    let sessions = rig.client.sessions();
    let id = session.clone();
    let end = tokio::spawn(async move { sessions.end(Some(&id)).await });
    until(Duration::from_secs(1), async || rig.row(&session).await.state == "closed").await;
    assert_eq!(rig.line(Some(&session), "echo").await.unwrap_err().category, Category::StaleSession);
    assert_eq!(ahead.await.unwrap().unwrap(), "rested");
    assert!(end.await.unwrap().unwrap().released);
}

#[tokio::test]
async fn a_worker_that_will_not_let_go_is_killed_after_the_grace() {
    let rig = rig_with(Config { release_grace: Duration::from_secs(1), ..config() });
    let session = rig.open_script(json!({ "release": [{ "deaf": { "ms": 60_000 } }] })).await.unwrap();
    let pid = rig.row(&session).await.engine_pid.unwrap();
    let ended = rig.client.sessions().end(Some(&session)).await.unwrap();
    assert_eq!((ended.ending.as_str(), ended.released, ended.worker_terminated), ("killed", false, true));
    assert!(ended.waited_ms.unwrap() >= 1000);
    assert!(!exists(pid));
}

#[tokio::test]
async fn a_release_that_fails_still_releases() {
    let rig = rig();
    for steps in [json!([{ "fail": "detach failed" }]), json!([{ "panic": "in release" }])] {
        let session = rig.open_script(json!({ "release": steps })).await.unwrap();
        assert!(rig.client.sessions().end(Some(&session)).await.unwrap().released);
    }
}

#[tokio::test]
async fn shutdown_leaves_no_process_even_of_a_stuck_opener() {
    let rig = rig_with(Config { shutdown_grace: Duration::from_secs(2), ..config() });
    rig.open().await;
    let client = rig.client.clone();
    let stuck = json!({ "load": [{ "deaf": { "ms": 60_000 } }] });
    let stuck = OpenRequest::Scripted { script: stuck.to_string() };
    let opening = tokio::spawn(async move { client.sessions().open(stuck).await });
    until(Duration::from_secs(5), async || rig.rows().await.len() == 2).await;
    let pids: Vec<u32> = rig.rows().await.iter().filter_map(|row| row.engine_pid).collect();
    assert_eq!(pids.len(), 2);
    let began = Instant::now();
    rig.supervisor.shutdown().await;
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert!(pids.iter().all(|&pid| !exists(pid)), "workers or zombies are left");
    assert_eq!(opening.await.unwrap().unwrap_err().category, Category::WorkerLost);
    assert!(rig.open_script(script(json!({}))).await.is_err(), "nothing opens after shutdown");
}

#[tokio::test]
async fn a_workers_environment_has_no_secrets() {
    let mut with = config();
    with.worker_env.push(("WINDBG_MCP_ENGINE_DIR".into(), "/dlls".into()));
    let rig = rig_with(with);
    rig.open().await;
    let (_, names) = rig.client.sessions().operate(None, "environment", json!({})).await.unwrap();
    let names: Vec<&str> = names.as_array().unwrap().iter().filter_map(|name| name.as_str()).collect();
    assert!(names.contains(&"PATH") && names.contains(&"WINDBG_MCP_ENGINE_DIR"));
    assert!(
        !names
            .iter()
            .any(|n| n.starts_with("WINDBG_MCP_PROFILE") || n.starts_with("WINDBG_MCP_LISTEN_TOKEN"))
    );
}

#[tokio::test]
async fn long_results_pass_and_too_long_ones_cost_their_call() {
    let rig = rig();
    let long = |count: usize| json!([{ "repeat": { "text": "x", "count": count } }]);
    rig.open_script(script(json!({ "mib": long(1 << 20), "mib33": long(33 << 20) }))).await.unwrap();
    assert_eq!(rig.line(None, "mib").await.unwrap().len(), 1 << 20);
    let error = rig.line(None, "mib33").await.unwrap_err();
    assert_eq!(error.category, Category::Internal);
    assert!(error.message.contains("longer than"), "{}", error.message);
    assert_eq!(rig.line(None, "echo").await.unwrap(), "hello");
}

#[tokio::test]
async fn a_gone_target_is_told_in_the_status() {
    let rig = rig();
    let session =
        rig.open_script(script(json!({ "bye": [{ "gone": "the process exited" }] }))).await.unwrap();
    assert_eq!(rig.line(None, "bye").await.unwrap_err().category, Category::StaleSession);
    let row = rig.row(&session).await;
    assert!(row.target_gone && row.live && row.state == "open");
}
