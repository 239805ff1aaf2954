//! Runs nobody waits for (spec 10 section 7.7), named after the rows of section 11.3.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod rig;

use std::time::{Duration, Instant};

use rig::{Rig, config, exists, rig, rig_with, script, until};
use serde_json::{Value, json};
use supervisor::Config;
use tokio_util::sync::CancellationToken;
use tools::sessions::{StartedRun, WaitedRun};
use tools::{Category, Surface, ToolError};

/// A live process: what each resume does, in order; the last for ever.
fn live(runs: Value) -> Value {
    let mut live = script(json!({}));
    live["runs"] = runs;
    live["threads"] = json!(2);
    live
}

/// Moves until it is broken in.
fn spin() -> Value {
    json!([{ "steps": [{ "sleep": { "ms": 600_000 } }], "break_thread": 2 }])
}

/// Stops by itself after `ms`.
fn stops_after(ms: u64) -> Value {
    json!([{ "steps": [{ "sleep": { "ms": ms } }], "stop": { "breakpoint": { "id": 3 } }, "ip": "0x0000000000002000" }])
}

impl Rig {
    async fn go(&self, session: &str, max_run_ms: u64) -> Result<StartedRun, ToolError> {
        self.client.sessions().continue_async(Some(session), Duration::from_millis(max_run_ms)).await
    }
    async fn wait(&self, session: Option<&str>, execution: &str, ms: u64) -> Result<WaitedRun, ToolError> {
        self.client.sessions().wait_for_stop(session, execution, Duration::from_millis(ms)).await
    }
    async fn break_in(&self, execution: &str) -> Result<(bool, String), ToolError> {
        let done = self.client.sessions().break_in(None, execution).await?;
        Ok((done.requested, done.detail))
    }
    /// How often the target was resumed.
    async fn resumes(&self, session: &str) -> usize {
        let history = self.line(Some(session), "history").await.unwrap();
        history.lines().filter(|line| ["g", "p", "t"].contains(line)).count()
    }
}

async fn call(rig: &Rig, name: &str, args: Value) -> (bool, Value, String) {
    let names: Vec<&str> = tools::all().iter().map(|entry| entry.name).collect();
    let surface = Surface::of(&names);
    let args = args.as_object().cloned();
    let answer = rig.client.call(name, args, &surface, None, CancellationToken::new()).await.unwrap();
    (answer.is_error, answer.structured.unwrap_or_default(), answer.text)
}

#[tokio::test]
async fn milestone_sent_no_reply_returns_at_once() {
    let rig = rig();
    // It moves, and nothing is heard of it for a long time.
    let session = rig.open_script(live(json!([{ "steps": [{ "deaf": { "ms": 3000 } }] }]))).await.unwrap();
    let began = Instant::now();
    let started = rig.go(&session, 60_000).await.unwrap();
    assert!(began.elapsed() < Duration::from_millis(500), "{:?}", began.elapsed());
    assert!(started.running && started.moved && started.execution.starts_with("exec-"), "{started:?}");
    assert!(started.breaks_in_ms.is_some_and(|ms| (55_000..=60_000).contains(&ms)), "{started:?}");
}

#[tokio::test]
async fn registers_during_a_run_are_refused_with_the_handle() {
    let rig = rig();
    let session = rig.open_script(live(spin())).await.unwrap();
    let run = rig.go(&session, 60_000).await.unwrap();
    let began = Instant::now();
    for (tool, args) in [
        ("registers", json!({})),
        ("execute", json!({ "command": "r" })),
        ("go", json!({})),
        ("set_symbol_path", json!({ "network": false })),
    ] {
        let (is_error, structured, text) = call(&rig, tool, args).await;
        assert!(is_error && structured["error"]["category"] == "target_running", "{tool}: {text}");
        assert!(text.contains(&run.execution), "{text}");
        assert_eq!(structured["execution"], run.execution.as_str());
        assert_eq!(structured["error"]["next"], json!(["wait_for_stop", "break_in"]));
    }
    assert!(began.elapsed() < Duration::from_millis(400), "{:?}", began.elapsed());
    let row = rig.row(&session).await;
    let execution = row.execution.unwrap();
    assert!(!execution.stopped && execution.execution == run.execution && row.busy.is_none());
    rig.break_in(&run.execution).await.unwrap();
    assert!(rig.wait(None, &run.execution, 5000).await.unwrap().stop.is_some());
    assert!(rig.line(Some(&session), "echo").await.is_ok(), "after the stop everything is served again");
}

#[tokio::test]
async fn a_stop_with_nobody_waiting_is_read_and_not_taken() {
    let rig = rig();
    let session = rig.open_script(live(stops_after(100))).await.unwrap();
    let run = rig.go(&session, 60_000).await.unwrap();
    until(Duration::from_secs(5), async || rig.row(&session).await.execution.unwrap().stopped).await;
    let first = rig.wait(Some(&session), &run.execution, 1000).await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    let second = rig.wait(None, &run.execution, 0).await.unwrap();
    assert_eq!(first, second);
    assert!((90..2000).contains(&first.running_for_ms), "{first:?}");
    let stop = serde_json::to_value(first.stop.unwrap()).unwrap();
    assert_eq!(stop["reason"], json!({ "kind": "breakpoint", "breakpoint": 3 }));
    assert_eq!(stop["stopped_at"], "0x0000000000002000");
    assert_eq!(first.breaks_in_ms, None);
    assert!(!rig.break_in(&run.execution).await.unwrap().0);
}

#[tokio::test]
async fn wait_for_stop_of_zero_only_looks() {
    let rig = rig();
    let session = rig.open_script(live(spin())).await.unwrap();
    let run = rig.go(&session, 60_000).await.unwrap();
    let began = Instant::now();
    let seen = rig.wait(None, &run.execution, 0).await.unwrap();
    assert!(
        seen.stop.is_none() && seen.breaks_in_ms.is_some() && began.elapsed() < Duration::from_millis(300)
    );
    // One deadline for the whole call.
    let seen = rig.wait(None, &run.execution, 200).await.unwrap();
    assert!(seen.stop.is_none() && began.elapsed() >= Duration::from_millis(200));
}

#[tokio::test]
async fn a_resume_queued_behind_a_job_is_barred_by_break_in() {
    let rig = rig();
    let session = rig.open_script(live(spin())).await.unwrap();
    let job = rig.spawn_line(&session, "deaf3");
    rig.until_busy(&session, 0).await;
    let runner = {
        let (client, session) = (rig.client.clone(), session.clone());
        tokio::spawn(async move {
            client.sessions().continue_async(Some(&session), Duration::from_secs(60)).await
        })
    };
    until(Duration::from_secs(2), async || rig.row(&session).await.execution.is_some()).await;
    let row = rig.row(&session).await.execution.unwrap();
    assert_eq!((row.running_for_ms, row.breaks_in_ms), (0, Some(60_000)), "a queued run has its whole bound");
    // The slot is claimed: nothing passes although nothing moves yet.
    let refused = rig.line(Some(&session), "echo").await.unwrap_err();
    assert_eq!(refused.category, Category::TargetRunning);
    assert!(rig.break_in(&row.execution).await.unwrap().0);
    assert_eq!(job.await.unwrap().unwrap(), "done");
    let error = runner.await.unwrap().unwrap_err();
    assert_eq!(error.category, Category::Interrupted);
    assert_eq!(rig.wait(None, &row.execution, 1000).await.unwrap_err().category, Category::Interrupted);
    assert_eq!(rig.resumes(&session).await, 0);
}

#[tokio::test]
async fn break_in_for_a_replaced_run_is_stale() {
    let rig = rig();
    let session = rig.open_script(live(stops_after(20))).await.unwrap();
    let first = rig.go(&session, 60_000).await.unwrap();
    assert!(rig.wait(None, &first.execution, 5000).await.unwrap().stop.is_some());
    let second = rig.go(&session, 60_000).await.unwrap();
    assert_ne!(first.execution, second.execution);
    for session in [Some(session.as_str()), None] {
        let error = rig.client.sessions().break_in(session, &first.execution).await.unwrap_err();
        assert_eq!(error.category, Category::StaleSession);
        let error = rig.wait(session, &first.execution, 0).await.unwrap_err();
        assert_eq!(error.category, Category::StaleSession);
    }
    assert!(rig.wait(None, &second.execution, 5000).await.unwrap().stop.is_some());
}

#[tokio::test]
async fn end_session_during_a_run_releases_at_once() {
    let rig = rig();
    let session = rig.open_script(live(spin())).await.unwrap();
    let run = rig.go(&session, 3_600_000).await.unwrap();
    let pid = rig.row(&session).await.engine_pid.unwrap();
    let began = Instant::now();
    let ended = rig.client.sessions().end(Some(&session)).await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    assert!(ended.released && !ended.worker_terminated && ended.ending == "terminated", "{ended:?}");
    assert_eq!(ended.target_left_running, Some(false));
    until(Duration::from_secs(5), async || !exists(pid)).await;
    // The stop is still there to be read.
    let seen = rig.wait(Some(&session), &run.execution, 0).await.unwrap();
    assert!(seen.stop.unwrap().interrupted);
}

#[tokio::test]
async fn end_session_with_a_resume_still_queued() {
    let rig = rig();
    let session = rig.open_script(live(spin())).await.unwrap();
    let job = rig.spawn_line(&session, "deaf3");
    rig.until_busy(&session, 0).await;
    let runner = {
        let (client, session) = (rig.client.clone(), session.clone());
        tokio::spawn(async move {
            client.sessions().continue_async(Some(&session), Duration::from_secs(3600)).await
        })
    };
    until(Duration::from_secs(2), async || rig.row(&session).await.execution.is_some()).await;
    let ended = rig.client.sessions().end(Some(&session)).await.unwrap();
    assert!(ended.released, "{ended:?}");
    assert_eq!(job.await.unwrap().unwrap(), "done");
    assert_eq!(runner.await.unwrap().unwrap_err().category, Category::StaleSession);
}

#[tokio::test]
async fn a_second_continue_async_is_refused() {
    let rig = rig();
    let session = rig.open_script(live(spin())).await.unwrap();
    let run = rig.go(&session, 60_000).await.unwrap();
    let error = rig.go(&session, 60_000).await.unwrap_err();
    assert_eq!(error.category, Category::TargetRunning);
    assert!(error.message.contains(&run.execution), "{}", error.message);
}

#[tokio::test]
async fn max_run_breaks_it_in() {
    let rig = rig();
    let session = rig.open_script(live(spin())).await.unwrap();
    let run = rig.go(&session, 300).await.unwrap();
    let stop = rig.wait(None, &run.execution, 5000).await.unwrap().stop.unwrap();
    assert!(stop.timed_out && !stop.interrupted, "{stop:?}");
    assert_eq!((stop.bound_ms, stop.break_thread, stop.thread), (Some(300), Some(2), Some(1)));
    let (is_error, structured, text) = call(&rig, "step_into", json!({ "timeout_ms": 50 })).await;
    assert!(!is_error && structured["timed_out"] == true, "{text}");
}

#[tokio::test]
async fn a_run_that_never_moves_says_so() {
    let rig = rig();
    let session = rig.open_script(live(json!([{ "moves": false, "stop": "break_in" }]))).await.unwrap();
    let started = rig.go(&session, 1000).await.unwrap();
    assert!(!started.running && !started.moved, "{started:?}");
}

#[tokio::test]
async fn a_failed_resume_is_this_calls_error_and_stays_readable() {
    let rig = rig();
    let runs = json!([{ "moves": false, "steps": [{ "fail": "no such luck" }] }]);
    let session = rig.open_script(live(runs)).await.unwrap();
    let error = rig.go(&session, 1000).await.unwrap_err();
    assert_eq!((error.category, error.session_id.as_deref()), (Category::Debugger, Some(session.as_str())));
    let execution = rig.row(&session).await.execution.unwrap();
    assert!(execution.stopped);
    let again = rig.wait(None, &execution.execution, 0).await.unwrap_err();
    assert!(again.message.contains("no such luck"), "{}", again.message);
}

#[tokio::test]
async fn a_dump_does_not_run() {
    let rig = rig();
    let session = rig.open().await;
    let error = rig.go(&session, 1000).await.unwrap_err();
    assert_eq!((error.category, error.reason.as_deref()), (Category::Unsupported, Some("not_live")));
    assert!(rig.line(Some(&session), "echo").await.is_ok(), "a refused run leaves the slot free");
}

#[tokio::test]
async fn two_breaks_are_one() {
    let rig = rig();
    // Deaf for a while after the break: the second comes while the first is pending.
    let runs = json!([{ "steps": [{ "deaf": { "ms": 600 } }, { "sleep": { "ms": 60_000 } }] }]);
    let session = rig.open_script(live(runs)).await.unwrap();
    let run = rig.go(&session, 60_000).await.unwrap();
    let first = rig.break_in(&run.execution).await.unwrap();
    let second = rig.break_in(&run.execution).await.unwrap();
    assert!(first.0 && second.0 && second.1.contains("before"), "{first:?} {second:?}");
    let stop = rig.wait(None, &run.execution, 5000).await.unwrap().stop.unwrap();
    assert!(stop.interrupted && !stop.timed_out);
    assert_eq!(rig.resumes(&session).await, 1);
}

#[tokio::test]
async fn a_worker_lost_during_a_run_is_what_the_wait_answers() {
    let rig = rig();
    let session =
        rig.open_script(live(json!([{ "steps": [{ "sleep": { "ms": 200 } }, "abort"] }]))).await.unwrap();
    let run = rig.go(&session, 60_000).await.unwrap();
    let error = rig.wait(None, &run.execution, 10_000).await.unwrap_err();
    assert_eq!(error.category, Category::WorkerLost);
    let row = rig.row(&session).await;
    assert!(row.state == "closed" && row.execution.unwrap().stopped);
}

#[tokio::test]
async fn the_targets_end_is_a_stop_and_the_session_stays_until_it_is_ended() {
    let rig = rig();
    let runs = json!([{ "steps": [{ "say": "bye" }], "stop": { "exited": { "code": 7 } } }]);
    let session = rig.open_script(live(runs)).await.unwrap();
    let run = rig.go(&session, 60_000).await.unwrap();
    let stop = rig.wait(None, &run.execution, 5000).await.unwrap().stop.unwrap();
    assert!(stop.target_gone && stop.stopped_at.is_none() && stop.output == "bye");
    assert!(rig.row(&session).await.target_gone);
    let (_, structured, _) = call(&rig, "registers", json!({ "session_id": session })).await;
    assert_eq!(structured["error"]["category"], "stale_session");
    assert!(rig.client.sessions().end(Some(&session)).await.unwrap().released);
}

#[tokio::test]
async fn a_running_session_is_never_reclaimed() {
    let rig = rig_with(Config { sessions: 1, ..config() });
    let session = rig.open_script(live(spin())).await.unwrap();
    let run = rig.go(&session, 60_000).await.unwrap();
    let refused = rig.open_script(script(json!({}))).await.unwrap_err();
    assert_eq!(refused.category, Category::Capacity);
    assert!(refused.message.contains(&format!("running as {}", run.execution)), "{}", refused.message);
    rig.break_in(&run.execution).await.unwrap();
    rig.wait(None, &run.execution, 5000).await.unwrap();
    rig.open().await;
}

#[tokio::test]
async fn an_answer_kept_from_before_a_run_is_not_given_after_it() {
    let rig = rig_with(Config { call_timeout: Duration::from_millis(800), ..config() });
    let session = rig.open_script(live(stops_after(10))).await.unwrap();
    // Its caller gives up; its answer is kept for whoever asks the same.
    let lost = rig.line(Some(&session), "deaf3").await.unwrap_err();
    assert_eq!(lost.category, Category::Timeout);
    until(Duration::from_secs(5), async || rig.row(&session).await.busy.is_none()).await;
    let run = rig.go(&session, 60_000).await.unwrap();
    until(Duration::from_secs(5), async || rig.row(&session).await.execution.unwrap().stopped).await;
    assert!(rig.wait(None, &run.execution, 0).await.unwrap().stop.is_some());
    let began = Instant::now();
    let again = rig.line(Some(&session), "deaf3").await.unwrap_err();
    assert_eq!(again.category, Category::Timeout, "it was asked anew");
    assert!(began.elapsed() >= Duration::from_millis(700));
}

#[tokio::test]
async fn closing_the_server_during_a_run_leaves_no_worker() {
    let rig = rig();
    let session = rig.open_script(live(spin())).await.unwrap();
    rig.go(&session, 3_600_000).await.unwrap();
    let pid = rig.row(&session).await.engine_pid.unwrap();
    let began = Instant::now();
    rig.supervisor.shutdown().await;
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    until(Duration::from_secs(2), async || !exists(pid)).await;
}

#[tokio::test]
async fn another_clients_run_is_nobodys() {
    let rig = rig();
    let session = rig.open_script(live(spin())).await.unwrap();
    let run = rig.go(&session, 60_000).await.unwrap();
    let other = rig.supervisor.client("other");
    for named in [None, Some(session.as_str())] {
        let error = other.sessions().break_in(named, &run.execution).await.unwrap_err();
        assert_eq!(error.category, Category::StaleSession);
    }
    assert!(!rig.row(&session).await.execution.unwrap().stopped);
}

/// A break bound to a run never cuts the next job, whenever it lands.
#[tokio::test]
async fn a_break_never_lands_on_the_next_job() {
    let rig = rig();
    let session = rig
        .open_script(live(json!([{ "steps": [{ "sleep": { "ms": 1 } }], "stop": "step" }])))
        .await
        .unwrap();
    for round in 0..150_u64 {
        let run = rig.go(&session, 60_000).await.unwrap();
        tokio::time::sleep(Duration::from_micros(round * 17 % 2500)).await;
        let breaking = rig.break_in(&run.execution);
        let waiting = rig.wait(None, &run.execution, 5000);
        let (broken, waited) = tokio::join!(breaking, waiting);
        broken.unwrap();
        assert!(waited.unwrap().stop.is_some());
        assert_eq!(rig.line(Some(&session), "nap0").await.unwrap_err().category, Category::Debugger);
        assert_eq!(rig.line(Some(&session), "echo").await.unwrap(), "hello", "round {round}");
    }
}

#[tokio::test]
async fn the_async_tools_by_name() {
    let rig = rig();
    let session = rig.open_script(live(spin())).await.unwrap();
    let (is_error, started, text) = call(&rig, "continue_async", json!({ "max_run_ms": 60_000 })).await;
    assert!(!is_error && started["running"] == true && started["session_id"] == session.as_str(), "{text}");
    let execution = started["execution"].as_str().unwrap();
    assert!(text.contains(execution) && text.contains("broken in after"), "{text}");
    let (_, waited, text) =
        call(&rig, "wait_for_stop", json!({ "execution": execution, "timeout_ms": 0 })).await;
    assert!(waited.get("stop").is_none() && text.contains("has not stopped"), "{text}");
    let (_, status, text) = call(&rig, "session_status", json!({})).await;
    assert_eq!(status["sessions"][0]["execution"]["stopped"], false);
    assert!(text.contains("has been running for"), "{text}");
    let (_, broken, text) = call(&rig, "break_in", json!({ "execution": execution })).await;
    assert_eq!((&broken["requested"], text), (&json!(true), format!("{execution}: it was asked to stop.")));
    let (_, waited, text) = call(&rig, "wait_for_stop", json!({ "execution": execution })).await;
    assert_eq!(waited["stop"]["interrupted"], true);
    assert!(text.contains("broken in on request"), "{text}");
    let (is_error, structured, _) = call(&rig, "wait_for_stop", json!({ "execution": "exec-1" })).await;
    assert!(is_error && structured["error"]["category"] == "stale_session");
}

#[tokio::test]
async fn end_session_stops_a_blocking_go() {
    let rig = rig();
    let session = rig.open_script(live(spin())).await.unwrap();
    let going = {
        let client = rig.client.clone();
        tokio::spawn(async move {
            let names: Vec<&str> = tools::all().iter().map(|entry| entry.name).collect();
            let args = json!({ "timeout_ms": 15_000 }).as_object().cloned();
            client.call("go", args, &Surface::of(&names), None, CancellationToken::new()).await.unwrap()
        })
    };
    rig.until_busy(&session, 0).await;
    let began = Instant::now();
    assert!(rig.client.sessions().end(Some(&session)).await.unwrap().released);
    assert!(began.elapsed() < Duration::from_secs(2));
    let stop = going.await.unwrap().structured.unwrap();
    assert_eq!(stop["interrupted"], true, "{stop}");
}
