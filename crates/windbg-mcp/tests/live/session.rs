//! What a client does with a live program, from launch or attach to its end.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::bench::{bench, number};

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

/// A condition that holds at the first call only.
#[tokio::test]
async fn a_condition_stops_only_where_it_holds() {
    let Some(bench) = bench() else { return };
    bench.launch("victim.exe", "3 1").await;
    let conditional = json!({ "expression": "victim!poke", "condition": "@rdx == 0" });
    bench.ok("set_breakpoint", conditional).await;
    let stop = bench.ok("go", json!({})).await;
    assert_eq!(stop["reason"]["kind"], "breakpoint", "{stop:#}");
    let stop = bench.ok("go", json!({})).await;
    assert_eq!(stop["target_gone"], true, "{stop:#}");
    bench.supervisor.shutdown().await;
}

#[tokio::test]
async fn attached_to_and_left_running() {
    let Some(bench) = bench() else { return };
    let (mut running, pid) = bench.spin().await;
    let prefix = bench.lab.prefix.display().to_string();
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
    assert!(running.lives(), "it lives");
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
