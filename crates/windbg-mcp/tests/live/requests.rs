//! Requests of a program that has a kernel's structures: read at a stop, and recorded as they arrive.

use serde_json::json;

use crate::bench::bench;

#[tokio::test]
async fn requests_are_read_at_the_dispatch_routine_and_traced_as_they_arrive() {
    let Some(bench) = bench() else { return };
    bench.launch("dispatcher.exe", "20 1").await;
    let dispatch = "dispatcher!DispatchDeviceControl";

    // The driver object, by the register that holds it.
    let ready = bench.ok("set_breakpoint", json!({ "expression": "dispatcher!Ready" })).await;
    bench.ok("go", json!({})).await;
    let driver = bench.ok("driver_object", json!({ "name": "@rcx" })).await;
    assert_eq!(driver["image"]["module"], "dispatcher", "{driver:#}");
    assert_eq!(driver["dispatch"]["groups"][0]["majors"].as_array().unwrap().len(), 28);
    let entry = &driver["dispatch"]["device_control"];
    assert_eq!(entry["symbol"], "DispatchDeviceControl", "{entry:#}");
    let device = driver["devices"]["addresses"][0].as_str().unwrap().to_owned();
    let read = bench.ok("device_object", json!({ "device": device })).await;
    assert_eq!(read["device_type_name"], "FILE_DEVICE_UNKNOWN", "{read:#}");
    assert_eq!(read["driver"]["address"], driver["address"]);
    bench.ok("clear_breakpoints", json!({ "ids": [ready["breakpoint"]["id"]] })).await;

    // A request, by the registers that hold its arguments.
    bench.ok("run_to_address", json!({ "address": dispatch })).await;
    let request = bench.ok("irp_stack", json!({})).await;
    assert_eq!(request["assumed_from"], "rdx", "{request:#}");
    assert!(request.get("warning").is_none(), "{request:#}");
    let parameters = &request["locations"][0]["parameters"];
    assert_eq!((&parameters["code"], &parameters["input"]["length"]), (&json!("0x00222000"), &json!(8)));
    bench.ok("step_into", json!({})).await;
    let warned = bench.ok("irp_stack", json!({ "irp": request["irp"] })).await;
    assert!(warned.get("assumed_from").is_none());

    // Recorded while it runs: no stops, no row in the inventory, a filter, pages.
    let started = bench
        .ok(
            "ioctl_trace",
            json!({ "dispatch": dispatch, "codes": ["0x222007", "0x9c402408"], "capture_input": 7 }),
        )
        .await;
    assert_eq!(started["at"]["symbol"], "DispatchDeviceControl", "{started:#}");
    assert_eq!(bench.ok("breakpoints", json!({})).await["breakpoints"], json!([]));
    let shown = bench.ok("breakpoints", json!({ "include_internal": true })).await;
    assert_eq!(shown["breakpoints"].as_array().unwrap().len(), 1);
    let missing = bench.refused("ioctl_trace", json!({ "action": "read", "trace_id": "trace-99" })).await;
    assert_eq!(missing["reason"], "no_such_trace");
    let middle =
        bench.refused("ioctl_trace", json!({ "dispatch": "dispatcher!DispatchDeviceControl+1" })).await;
    assert_eq!(middle["reason"], "bad_operand", "{middle:#}");
    // The program ends after its rounds: it is stopped before it does.
    bench.ok("run_to_address", json!({ "address": "kernel32!ExitProcess" })).await;
    let page = bench.ok("ioctl_trace", json!({ "action": "read", "limit": 3 })).await;
    assert_eq!(page["records"].as_array().unwrap().len(), 3, "{page:#}");
    assert_eq!(page["records"][0]["code"], "0x00222007");
    assert_eq!(page["records"][1]["decoded"], "CTL_CODE(0x9c40, 0x902, METHOD_BUFFERED, FILE_ANY_ACCESS)");
    assert_eq!(page["records"][1]["input"], "72657175657374");
    assert_eq!((&page["total"], &page["unreadable"], &page["dropped"]), (&json!(40), &json!(0), &json!(0)));
    assert!(page["hits"].as_u64().unwrap() >= 59, "{page:#}");
    let stopped = bench.ok("ioctl_trace", json!({ "action": "stop", "since": page["next_since"] })).await;
    assert_eq!((&stopped["removed"], &stopped["records"][0]["seq"]), (&json!(true), &json!(3)));
    assert!(bench.ids().await.is_empty());
    let ended = bench.ok("end_session", json!({})).await;
    assert_eq!(ended["target_left_running"], false, "{ended:#}");
    bench.supervisor.shutdown().await;
}
