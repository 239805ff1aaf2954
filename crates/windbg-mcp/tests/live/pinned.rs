//! Spec 10 section 11.4, a test per row, in the order of its table. The row of the native `kd:` opener
//! is with the KD transport; the 32-bit minidump's is in `tests/dbgeng.rs`.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use supervisor::Config;

use crate::bench::{bench, bench_with, native, number, root};

const ENDLESS: &str = ".for (r $t0=0; @$t0<0x7fffffff; r $t0=@$t0+1) {}";

#[tokio::test]
async fn launch_victim_then_current_location() {
    let Some(bench) = bench() else { return };
    let opened = bench.launch("victim.exe", "").await;
    assert_eq!(opened["kind"], "launch");
    let here = bench.ok("current_location", json!({})).await;
    assert_eq!(here["location_state"], "mapped", "{here:#}");
    assert_eq!(here["coordinate"]["module"], "ntdll", "{here:#}");
    // Before main: what main writes first is still nothing.
    let other = bench.ok("read_memory", json!({ "address": "victim!g_other", "size": 4 })).await;
    assert_eq!(other["data"], "00000000");
    bench.supervisor.shutdown().await;
}

#[tokio::test]
async fn set_breakpoint_poke_go_backtrace_registers() {
    let (Some(bench), Some(native)) = (bench(), native()) else { return };
    native.open(&root().join("target/live/victim.exe"), "native").await;
    let code = native.ok("disassemble", json!({ "address": "victim!poke", "count": 1 })).await;
    let rva = code["instructions"][0]["rva"].clone();
    native.supervisor.shutdown().await;
    bench.launch("victim.exe", "").await;
    let (id, _) = bench.breakpoint("victim!poke").await;
    let stop = bench.ok("go", json!({})).await;
    assert_eq!((&stop["reason"]["kind"], &stop["reason"]["breakpoint"]), (&json!("breakpoint"), &id));
    let frame = bench.ok("backtrace", json!({})).await["frames"][0].clone();
    assert_eq!((&frame["module"], &frame["rva"]), (&json!("victim"), &rva), "{frame:#}");
    assert_eq!(bench.register("rdx").await, 0);
    bench.supervisor.shutdown().await;
}

#[tokio::test]
async fn step_over_and_step_into_move_by_the_length_disassemble_reported() {
    let Some(bench) = bench() else { return };
    bench.launch("victim.exe", "").await;
    bench.ok("run_to_address", json!({ "address": "victim!work" })).await;
    for tool in ["step_over", "step_into"] {
        let code = bench.ok("disassemble", json!({ "count": 1 })).await["instructions"][0].clone();
        let length = code["bytes"].as_str().unwrap().len() as u64 / 2;
        let stop = bench.ok(tool, json!({})).await;
        assert_eq!(stop["reason"]["kind"], "step", "{stop:#}");
        assert_eq!(number(&stop["stopped_at"]), number(&code["address"]) + length, "{code:#} {stop:#}");
    }
    bench.supervisor.shutdown().await;
}

#[tokio::test]
async fn watch_g_watch_write_4_go_is_a_data_breakpoint_just_after_the_store() {
    let Some(bench) = bench() else { return };
    bench.launch("victim.exe", "").await;
    let watch = json!({ "expression": "victim!g_watch", "watch": { "access": "write", "size": 4 } });
    let set = bench.ok("set_breakpoint", watch).await;
    let code = bench.ok("disassemble", json!({ "address": "victim!poke", "count": 2 })).await;
    let stop = bench.ok("go", json!({})).await;
    assert_eq!(stop["reason"]["kind"], "data_breakpoint", "{stop:#}");
    assert_eq!(stop["reason"]["breakpoint"], set["breakpoint"]["id"]);
    assert_eq!(stop["stopped_at"], code["instructions"][1]["address"], "{code:#}");
    bench.supervisor.shutdown().await;
}

/// Every row of section 7.3's table, each refused, and the program then runs.
#[tokio::test]
async fn each_row_of_the_poison_table() {
    let Some(bench) = bench() else { return };
    bench.launch("victim.exe", "").await;
    let (id, _) = bench.breakpoint("victim!work").await;
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
        assert_eq!(bench.ids().await, [id.as_u64().unwrap()], "{args}");
    }
    for offset in 0..4 {
        bench.ok("set_breakpoint", write(&format!("victim!g_other+{:x}", offset * 4), 4)).await;
    }
    let before = bench.ids().await;
    let error = bench.refused("set_breakpoint", write("victim!g_watch", 4)).await;
    assert_eq!(error["reason"], "no_hardware_slot", "{error:#}");
    assert_eq!(bench.ids().await, before);
    // One that is replaced frees its slot first.
    let replaced = bench.ok("set_breakpoint", write("victim!g_other", 4)).await;
    assert_eq!(replaced["replaced"].as_array().unwrap().len(), 1, "{replaced:#}");
    let stop = bench.ok("go", json!({})).await;
    assert_eq!(stop["reason"]["breakpoint"], id, "{stop:#}");
    bench.supervisor.shutdown().await;
}

#[tokio::test]
async fn set_breakpoint_nope_x_is_deferred_and_go_succeeds() {
    let Some(bench) = bench() else { return };
    bench.launch("victim.exe", "").await;
    let set = bench.ok("set_breakpoint", json!({ "expression": "nope!x" })).await;
    assert_eq!(set["breakpoint"]["deferred"], true, "{set:#}");
    let stop = bench.ok("go", json!({})).await;
    assert_eq!((&stop["target_gone"], &stop["reason"]["kind"]), (&json!(true), &json!("exited")), "{stop:#}");
    bench.supervisor.shutdown().await;
}

#[tokio::test]
async fn the_same_location_twice_replaces_the_first() {
    let Some(bench) = bench() else { return };
    bench.launch("victim.exe", "").await;
    let (first, _) = bench.breakpoint("victim!poke").await;
    let set = bench.ok("set_breakpoint", json!({ "expression": "victim!poke" })).await;
    assert_eq!(set["replaced"], json!([first]), "{set:#}");
    assert_eq!(bench.ids().await.len(), 1);
    bench.supervisor.shutdown().await;
}

#[tokio::test]
async fn clear_breakpoints_0_and_99() {
    let Some(bench) = bench() else { return };
    bench.launch("victim.exe", "").await;
    let (id, _) = bench.breakpoint("victim!poke").await;
    assert_eq!(id, 0);
    let cleared = bench.ok("clear_breakpoints", json!({ "ids": [0, 99] })).await;
    assert_eq!((&cleared["removed"], &cleared["missing"]), (&json!([0]), &json!([99])), "{cleared:#}");
    assert_eq!(cleared["remaining"], json!([]));
    bench.supervisor.shutdown().await;
}

/// Hit, the next arrival, a stop in between, a place never reached, the process's end; the inventory
/// is the same after each.
#[tokio::test]
async fn run_to_address_in_all_its_verdicts() {
    let Some(bench) = bench() else { return };
    bench.launch("victim.exe", "4 1").await;
    let (between, _) = bench.breakpoint("victim!work").await;
    let inventory = bench.ok("breakpoints", json!({})).await;
    let to = |address: &str, timeout: u64| json!({ "address": address, "timeout_ms": timeout });
    let run = async |address: &str, timeout: u64| {
        let answer = bench.ok("run_to_address", to(address, timeout)).await;
        if answer["verdict"] != "target_gone" {
            assert_eq!(bench.ok("breakpoints", json!({})).await, inventory, "{answer:#}");
        }
        answer
    };
    let answer = run("victim!poke", 10_000).await;
    assert_eq!(
        (&answer["verdict"], &answer["reason"]["breakpoint"]),
        (&json!("stopped_elsewhere"), &between)
    );
    let answer = run("victim!poke", 10_000).await;
    assert_eq!(answer["verdict"], "hit", "{answer:#}");
    assert_eq!(bench.register("rdx").await, 0);
    // At the address already: off it, and to the next arrival.
    let answer = run("victim!poke", 10_000).await;
    assert_eq!((answer["verdict"].as_str(), bench.register("rdx").await), (Some("hit"), 1), "{answer:#}");
    let answer = run("victim!main", 10_000).await;
    assert_eq!(answer["verdict"], "target_gone", "{answer:#}");
    assert_eq!(bench.refused("breakpoints", json!({})).await["category"], "stale_session");
    bench.ok("end_session", json!({})).await;

    // A permanent one at the address is a hit as well; one that is never reached runs into its time.
    bench.launch("spin.exe", "").await;
    let answer = bench.ok("run_to_address", to("spin!main", 10_000)).await;
    assert_eq!(answer["verdict"], "hit", "{answer:#}");
    let answer = bench.ok("run_to_address", to("spin!main", 500)).await;
    assert_eq!(answer["verdict"], "timeout", "{answer:#}");
    assert_eq!(bench.ids().await.len(), 0);
    let refused = bench.refused("run_to_address", to("0x10", 500)).await;
    assert_eq!(refused["category"], "debugger", "{refused:#}");
    assert_eq!(bench.ids().await.len(), 0);
    bench.supervisor.shutdown().await;
}

#[tokio::test]
async fn go_to_exit() {
    let Some(bench) = bench() else { return };
    bench.launch("victim.exe", "").await;
    let stop = bench.ok("go", json!({})).await;
    assert_eq!((&stop["target_gone"], &stop["reason"]["kind"]), (&json!(true), &json!("exited")), "{stop:#}");
    assert_eq!(stop["reason"]["exit_code"], "0x00000007");
    assert!(stop["output"].as_str().unwrap().contains("victim begins"), "{stop:#}");
    assert_eq!(bench.refused("registers", json!({})).await["category"], "stale_session");
    let ended = bench.ok("end_session", json!({})).await;
    assert_eq!(ended["target_left_running"], false, "{ended:#}");
    bench.supervisor.shutdown().await;
}

#[tokio::test]
async fn execute_t_ends_with_the_position_line_and_bp_g_says_where() {
    let Some(bench) = bench() else { return };
    bench.launch("victim.exe", "").await;
    let last =
        |text: &str| text.trim_end().trim_end_matches('`').trim_end().lines().last().unwrap().to_owned();
    let text = bench.execute("t").await;
    assert!(last(&text).starts_with("the target is stopped at ntdll!"), "{text}");
    let text = bench.execute("bp victim!poke; g").await;
    assert!(last(&text).starts_with("the target is stopped at victim!poke"), "{text}");
    bench.supervisor.shutdown().await;
}

#[tokio::test]
async fn execute_of_an_endless_loop_and_interrupt() {
    let Some(bench) = bench() else { return };
    let opened = bench.launch("victim.exe", "").await;
    let session = json!({ "session_id": opened["session_id"] });
    let began = Instant::now();
    let (ran, interrupted) = tokio::join!(bench.said("execute", json!({ "command": ENDLESS })), async {
        tokio::time::sleep(Duration::from_millis(700)).await;
        bench.ok("interrupt", session).await
    });
    assert_eq!(interrupted["outcome"], "raised", "{interrupted:#}");
    assert!(began.elapsed() < Duration::from_secs(20));
    let text = ran.0;
    ran.1.unwrap_or_else(|error| panic!("{error:#}"));
    assert!(text.contains("partial"), "{text}");
    let reached = bench.execute("? @$t0").await;
    let value = reached.split("= ").nth(1).unwrap().split_whitespace().next().unwrap().replace('`', "");
    let value = u64::from_str_radix(&value, 16).unwrap();
    assert!(value > 1 && value < 0x7fff_ffff, "{reached}");
    bench.supervisor.shutdown().await;
}

/// With a short call timeout in place of the row's 20 s.
#[tokio::test]
async fn execute_of_an_endless_loop_is_cut_by_the_bound_before_the_callers_timeout() {
    let Some(bench) = bench_with(Config { call_timeout: Duration::from_secs(30), ..Config::default() })
    else {
        return;
    };
    bench.launch("victim.exe", "").await;
    let began = Instant::now();
    let (text, outcome) = bench.said("execute", json!({ "command": ENDLESS })).await;
    outcome.unwrap_or_else(|error| panic!("{error:#}"));
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    assert!(text.contains("stopped before its end"), "{text}");
    assert_eq!(
        bench.register("rip").await,
        number(&bench.ok("current_location", json!({})).await["address"])
    );
    bench.supervisor.shutdown().await;
}

#[tokio::test]
async fn attach_to_spin_end_session_leaves_it_running() {
    let Some(bench) = bench() else { return };
    let (mut running, pid) = bench.spin().await;
    let opened = bench.ok("attach_process", json!({ "pid": pid, "wine_prefix": bench.prefix() })).await;
    assert_eq!(opened["kind"], "process");
    let ended = bench.ok("end_session", json!({})).await;
    assert_eq!(
        (&ended["ending"], &ended["target_left_running"]),
        (&json!("detached"), &json!(true)),
        "{ended:#}"
    );
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(running.lives());
    bench.supervisor.shutdown().await;
}

#[tokio::test]
async fn attach_to_spin_kill_the_client_instead_leaves_it_running() {
    let Some(bench) = bench() else { return };
    let (mut running, pid) = bench.spin().await;
    let mut server = crate::stdio::Server::start_with(bench.lab.environment());
    let answer = server.call("attach_process", json!({ "pid": pid, "wine_prefix": bench.prefix() }));
    assert_eq!(answer["structuredContent"]["kind"], "process", "{answer:#}");
    let worker =
        server.call("session_status", json!({}))["structuredContent"]["sessions"][0]["engine_pid"].clone();
    // Kills it, as a client that is killed takes its server along.
    drop(server);
    let gone = crate::bench::within(Duration::from_secs(6), || !crate::bench::runs(worker.as_u64().unwrap()));
    assert!(gone.await, "the worker {worker} is still there");
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(running.lives());
    bench.supervisor.shutdown().await;
}

/// A debugger that dies takes what it debugs along: that is the system's rule, on Wine as on Windows.
#[tokio::test]
async fn attach_to_spin_kill_9_the_worker() {
    let Some(bench) = bench() else { return };
    let (mut running, pid) = bench.spin().await;
    let opened = bench.ok("attach_process", json!({ "pid": pid, "wine_prefix": bench.prefix() })).await;
    let session = json!({ "session_id": opened["session_id"] });
    let status = async || bench.ok("session_status", session.clone()).await["sessions"][0].clone();
    let worker = status().await["engine_pid"].as_u64().unwrap();
    crate::bench::kill(worker);
    assert!(crate::bench::within(Duration::from_secs(10), || !running.lives()).await, "spin lives on");
    let until = Instant::now() + Duration::from_secs(10);
    let mut row: Value = status().await;
    while row["state"] != "closed" && Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(50)).await;
        row = status().await;
    }
    assert_eq!(row["state"], "closed", "{row:#}");
    assert!(row["why"].as_str().unwrap().contains("worker lost"), "{row:#}");
    bench.supervisor.shutdown().await;
}
