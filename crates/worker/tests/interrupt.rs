//! The rows of spec 10 section 11.3 that need no asynchronous run, against real worker processes.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod rig;

use std::time::{Duration, Instant};

use rig::{rig, script};
use serde_json::json;
use tools::Category;
use tools::sessions::InterruptOutcome;

#[tokio::test]
async fn nothing_running() {
    let rig = rig();
    let session = rig.open().await;
    let interrupted = rig.client.sessions().interrupt(None).await.unwrap();
    assert_eq!(interrupted.outcome, InterruptOutcome::NothingRunning);
    assert_eq!((interrupted.session_id, interrupted.job), (session, None));
    assert_eq!(rig.line(None, "nap").await.unwrap(), "rested", "a break without a job is kept for none");
}

#[tokio::test]
async fn a_break_is_answered_while_the_job_runs_and_cuts_only_it() {
    let rig = rig();
    let slow = script(json!({ "slow": [
        { "say": "a" }, { "sleep": { "ms": 10_000 } },
    ], "deaf": [{ "deaf": { "ms": 1500 } }, { "say": "whole" }] }));
    let session = rig.open_script(slow).await.unwrap();
    let call = rig.spawn_line(&session, "deaf");
    rig.until_busy(&session, 0).await;
    let began = Instant::now();
    let interrupted = rig.client.sessions().interrupt(Some(&session)).await.unwrap();
    assert!(began.elapsed() < Duration::from_millis(200), "{:?}", began.elapsed());
    assert_eq!(interrupted.outcome, InterruptOutcome::Raised);
    assert_eq!(interrupted.job.as_deref(), Some("scripted"));
    assert!(!call.is_finished(), "answered while the job runs");
    let again = rig.client.sessions().interrupt(Some(&session)).await.unwrap();
    assert_eq!(again.outcome, InterruptOutcome::AlreadyPending);
    assert_eq!(call.await.unwrap().unwrap(), "whole", "a job that never polls ends by itself");

    let call = rig.spawn_line(&session, "slow");
    rig.until_busy(&session, 0).await;
    let began = Instant::now();
    rig.client.sessions().interrupt(None).await.unwrap();
    let text = call.await.unwrap().unwrap();
    assert!(began.elapsed() < Duration::from_secs(1));
    assert_eq!(text, "a[cut: interrupted]", "what was reached is kept");
    assert_eq!(rig.line(None, "nap").await.unwrap(), "rested");
}

#[tokio::test]
async fn a_failing_job_that_was_interrupted_says_interrupted() {
    let rig = rig();
    let lines = script(json!({ "fails": [{ "deaf": { "ms": 500 } }, { "fail": "half a list" }] }));
    let session = rig.open_script(lines).await.unwrap();
    let call = rig.spawn_line(&session, "fails");
    rig.until_busy(&session, 0).await;
    rig.client.sessions().interrupt(None).await.unwrap();
    let error = call.await.unwrap().unwrap_err();
    assert_eq!(error.category, Category::Interrupted);
    assert!(error.message.contains("half a list") && !error.message.contains("retry"), "{}", error.message);
}

#[tokio::test]
async fn an_ended_session_cannot_be_interrupted() {
    let rig = rig();
    let session = rig.open().await;
    rig.client.sessions().end(None).await.unwrap();
    let error = rig.client.sessions().interrupt(Some(&session)).await.unwrap_err();
    assert_eq!(error.category, Category::StaleSession);
}

/// A cheap source of varied delays; the sequence is the same in every run.
struct Delays(u64);

impl Delays {
    fn next(&mut self, below_us: u64) -> Duration {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        Duration::from_micros((self.0 >> 33) % below_us)
    }
}

/// An interrupt that lands as a job ends never cuts the next one: whatever was cut, an interrupt
/// said `raised` while it ran.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_break_never_reaches_the_next_job() {
    let rig = rig();
    let lines = script(json!({
        "short": [{ "sleep": { "ms": 1 } }, { "say": "whole" }],
        "next": [{ "sleep": { "ms": 2 } }, { "say": "whole" }],
    }));
    let session = rig.open_script(lines).await.unwrap();
    let mut delays = Delays(42);
    let (mut cut, mut missed) = (0, 0);
    for round in 0..1000 {
        let short = rig.spawn_line(&session, "short");
        tokio::time::sleep(delays.next(4000)).await;
        let interrupted = rig.client.sessions().interrupt(Some(&session)).await.unwrap();
        let next = rig.line(Some(&session), "next").await.unwrap();
        let short = short.await.unwrap().unwrap();
        assert_eq!(next, "whole", "round {round}: the next job was cut");
        match interrupted.outcome {
            InterruptOutcome::Raised => cut += 1,
            InterruptOutcome::NothingRunning => {
                missed += 1;
                assert_eq!(short, "whole", "round {round}: cut by nothing");
            }
            other => panic!("round {round}: {other:?}"),
        }
    }
    assert!(cut > 50 && missed > 50, "the race was not run: {cut} cut, {missed} missed");
}
