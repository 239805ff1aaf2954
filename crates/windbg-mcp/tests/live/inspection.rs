//! Spec 10 section 11.5, a test per row, on both engines where both open the target. What no real
//! target shows (a module list that fails, 200 modules, a backtick in a name) is scripted, in
//! `crates/tools/tests/inspect.rs`.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::bench::{Bench, bench, native, number, root};

/// The same dump in both engines; none without the lab.
async fn both_with(path: &Path) -> Vec<(&'static str, Bench)> {
    let (Some(dbgeng), Some(native)) = (bench(), native()) else { return Vec::new() };
    dbgeng.open(path, "dbgeng").await;
    native.open(path, "native").await;
    vec![("dbgeng", dbgeng), ("native", native)]
}

async fn both() -> Vec<(&'static str, Bench)> {
    both_with(&fixture("crash.dmp")).await
}

fn fixture(name: &str) -> PathBuf {
    root().join("fixtures").join(name)
}

async fn close(benches: Vec<(&'static str, Bench)>) {
    for (_, bench) in benches {
        bench.supervisor.shutdown().await;
    }
}

/// Its first session's handle.
async fn session(bench: &Bench) -> Value {
    bench.ok("session_status", json!({})).await["sessions"][0]["session_id"].clone()
}

#[tokio::test]
async fn registers_default_and_all_on_a_live_x64_process() {
    let Some(bench) = bench() else { return };
    bench.launch("victim.exe", "").await;
    let names = async |args: Value| {
        let rows = bench.ok("registers", args).await["registers"].as_array().unwrap().clone();
        rows.iter().map(|row| row["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let default = "rax rcx rdx rbx rsp rbp rsi rdi r8 r9 r10 r11 r12 r13 r14 r15 rip efl cs ds es fs gs ss dr0 \
                   dr1 dr2 dr3 dr6 dr7 fpcw fpsw fptw mxcsr exfrom exto brfrom brto";
    let mut sorted = names(json!({})).await;
    let mut expected: Vec<String> = default.split_whitespace().map(ToOwned::to_owned).collect();
    assert_eq!(sorted.len(), 38);
    sorted.sort_unstable();
    expected.sort_unstable();
    assert_eq!(sorted, expected);
    assert_eq!(names(json!({ "all": true })).await.len(), 345);
    bench.supervisor.shutdown().await;
}

/// `crash.dmp` with four odd numbers in the lanes of xmm0 of its exception's context.
fn with_odd_numbers(folder: &Path) -> PathBuf {
    let mut bytes = std::fs::read(fixture("crash.dmp")).unwrap();
    let word = |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let (streams, directory) = (word(&bytes, 8), word(&bytes, 12));
    let exception = (0..streams).map(|i| directory + 12 * i).find(|&at| word(&bytes, at) == 6).unwrap();
    // MINIDUMP_EXCEPTION_STREAM.ThreadContext, and CONTEXT.Xmm0 of amd64.
    let context = word(&bytes, word(&bytes, exception + 8) + 0xa0 + 4);
    for (lane, value) in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1.5].into_iter().enumerate() {
        let at = context + 0x1a0 + 4 * lane;
        bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }
    let path = folder.join("odd.dmp");
    std::fs::write(&path, bytes).unwrap();
    path
}

#[tokio::test]
async fn a_register_holding_nan_is_non_finite_never_null() {
    let folder = tempfile::tempdir().unwrap();
    let benches = both_with(&with_odd_numbers(folder.path())).await;
    for (engine, bench) in &benches {
        let all = bench.ok("registers", json!({ "all": true })).await;
        let rows = all["registers"].as_array().unwrap();
        let row = |name: &str| {
            rows.iter().find(|row| row["name"] == name).unwrap_or_else(|| panic!("{engine}: {name}"))
        };
        let odd = |name: &str| (row(name)["kind"].clone(), row(name)["value"].clone());
        assert_eq!(odd("xmm0/0"), (json!("non_finite"), json!("nan")), "{engine}");
        assert_eq!(odd("xmm0/1"), (json!("non_finite"), json!("infinity")), "{engine}");
        assert_eq!(odd("xmm0/2"), (json!("non_finite"), json!("negative_infinity")), "{engine}");
        assert_eq!(odd("xmm0/3"), (json!("float"), json!(1.5)), "{engine}");
        assert_eq!(row("xmm0/0")["bytes"], "0000c07f", "{engine}");
        assert!(rows.iter().all(|row| row.get("value") != Some(&Value::Null)), "{engine}");
    }
    close(benches).await;
}

#[tokio::test]
async fn read_memory_over_a_hole_is_partial_and_stops_at_its_page() {
    let benches = both().await;
    let mut answers = Vec::new();
    for (engine, bench) in &benches {
        let read = bench.ok("read_memory", json!({ "address": "@rsp", "size": 0x10_0000 })).await;
        assert_eq!(read["stopped"], "unreadable", "{engine}: {read:#}");
        let (start, size) = (number(&read["address"]), read["read_size"].as_u64().unwrap());
        assert_eq!(number(&read["stopped_at"]), start + size, "{engine}");
        assert_eq!(number(&read["stopped_at"]) % 0x1000, 0, "{engine}");
        answers.push(read["data"].clone());
    }
    assert!(answers.windows(2).all(|pair| pair[0] == pair[1]));
    if let Some(bench) = bench() {
        bench.launch("victim.exe", "").await;
        let victim = bench.ok("modules", json!({ "filter": "victim" })).await["modules"][0].clone();
        let near = json!({ "address": format!("{:#x}", number(&victim["end"]) - 0x10), "size": 0x4000 });
        let read = bench.ok("read_memory", near).await;
        assert_eq!(read["stopped"], "unreadable", "{read:#}");
        assert_eq!(read["stopped_at"], victim["end"]);
        assert_eq!(number(&read["stopped_at"]) % 0x1000, 0);
        bench.supervisor.shutdown().await;
    }
    close(benches).await;
}

#[tokio::test]
async fn read_memory_at_rsp_at_poi_rsp_and_at_a_modules_start() {
    let benches = both().await;
    for (engine, bench) in &benches {
        let at =
            async |address: &str| bench.ok("read_memory", json!({ "address": address, "size": 2 })).await;
        let rsp = bench.register("rsp").await;
        assert_eq!(number(&at("@rsp").await["address"]), rsp, "{engine}");
        let slot = bench.ok("read_memory", json!({ "address": "@rsp", "size": 8 })).await;
        let held = slot["data"].as_str().unwrap();
        let pointer = held
            .as_bytes()
            .chunks(2)
            .rev()
            .map(|pair| std::str::from_utf8(pair).unwrap())
            .collect::<String>();
        let pointer = u64::from_str_radix(&pointer, 16).unwrap();
        let through = bench.call("read_memory", json!({ "address": "poi(@rsp)", "size": 1 })).await;
        match through {
            Ok(read) => assert_eq!(number(&read["address"]), pointer, "{engine}"),
            Err(error) => {
                assert!(
                    error["message"].as_str().unwrap().contains(&format!("{pointer:#018x}")),
                    "{engine}: {error}"
                );
            }
        }
        assert_eq!(at("crash+0").await["data"], "4d5a", "{engine}");
    }
    close(benches).await;
}

#[tokio::test]
async fn arguments_that_are_refused_before_the_engine_is_called() {
    let benches = both().await;
    for (engine, bench) in &benches {
        let here = bench.ok("current_location", json!({})).await["coordinate"].clone();
        for args in [
            json!({ "address": "@rsp", "size": 0 }),
            json!({ "address": "@rsp", "size": 1_048_577 }),
            json!({ "address": "  " }),
            json!({ "address": "0x1;g" }),
            json!({ "address": "@rsp", "coordinate": here, "session_id": session(bench).await }),
            json!({}),
            json!({ "coordinate": here }),
        ] {
            let error = bench.refused("read_memory", args.clone()).await;
            assert_eq!(error["category"], "invalid_argument", "{engine} {args}: {error}");
        }
    }
    close(benches).await;
}

#[tokio::test]
async fn a_coordinate_round_trip_is_the_same_address() {
    let benches = both().await;
    for (engine, bench) in &benches {
        let here = bench.ok("current_location", json!({})).await;
        let args = json!({ "coordinate": here["coordinate"], "size": 1, "session_id": session(bench).await });
        assert_eq!(bench.ok("read_memory", args).await["address"], here["address"], "{engine}");
    }
    close(benches).await;
    let Some(bench) = bench() else { return };
    bench.launch("victim.exe", "").await;
    bench.ok("run_to_address", json!({ "address": "victim!work" })).await;
    let here = bench.ok("current_location", json!({})).await;
    let args = json!({ "coordinate": here["coordinate"], "session_id": session(&bench).await });
    let set = bench.ok("set_breakpoint", args).await;
    assert_eq!(set["breakpoint"]["address"], here["address"], "{set:#}");
    bench.supervisor.shutdown().await;
}

#[tokio::test]
async fn a_coordinate_of_another_image_names_its_problem() {
    let benches = both().await;
    for (engine, bench) in &benches {
        // Symbols first, so that both know the PDB.
        bench.ok("backtrace", json!({})).await;
        let right = bench.ok("current_location", json!({})).await["coordinate"].clone();
        let size = right["identity"]["size"].as_u64().unwrap();
        let changed = |pointer: &str, value: Value| {
            let mut wrong = right.clone();
            *wrong.pointer_mut(pointer).unwrap_or_else(|| panic!("{engine}: {pointer} of {right:#}")) = value;
            wrong
        };
        let one_more = |pointer: &str| json!(right.pointer(pointer).unwrap().as_u64().unwrap() + 1);
        for (wrong, problem) in [
            (changed("/identity/timestamp", one_more("/identity/timestamp")), "image_mismatch"),
            (changed("/identity/size", one_more("/identity/size")), "image_mismatch"),
            (changed("/rva", json!(format!("{size:#x}"))), "out_of_range"),
            (changed("/identity/pdb/age", one_more("/identity/pdb/age")), "pdb_mismatch"),
            (changed("/module", json!("another")), "module_not_loaded"),
        ] {
            let args = json!({ "coordinate": wrong, "size": 1, "session_id": session(bench).await });
            let error = bench.refused("read_memory", args).await;
            assert_eq!(error["category"], "debugger", "{engine} {problem}: {error}");
            assert_eq!(error["reason"], problem, "{engine}: {error:#}");
        }
    }
    close(benches).await;
}

#[tokio::test]
async fn a_breakpoint_under_a_read_shows_the_original_bytes() {
    let Some(bench) = bench() else { return };
    bench.launch("victim.exe", "").await;
    let read = async || bench.ok("read_memory", json!({ "address": "victim!poke", "size": 8 })).await;
    let before = read().await;
    bench.breakpoint("victim!poke").await;
    assert_eq!(read().await["data"], before["data"]);
    bench.ok("go", json!({})).await;
    assert_eq!(read().await["data"], before["data"]);
    bench.supervisor.shutdown().await;
}

#[tokio::test]
async fn backtrace_of_n_frames_on_a_stack_n_deep_and_of_one_less() {
    let benches = both().await;
    for (engine, bench) in &benches {
        let deep = bench.ok("backtrace", json!({})).await["frames"].as_array().unwrap().len();
        let truncated = async |frames: usize| {
            let answer = bench.ok("backtrace", json!({ "frames": frames })).await;
            (answer["frames"].as_array().unwrap().len(), answer["frames_truncated"] == true)
        };
        assert!(deep >= 3, "{engine}: {deep}");
        assert_eq!(truncated(deep).await, (deep, false), "{engine}");
        assert_eq!(truncated(deep - 1).await, (deep - 1, true), "{engine}");
    }
    close(benches).await;
}

#[tokio::test]
async fn modules_filter_by_substring_prefix_two_characters_all_literal_and_blank() {
    let benches = both().await;
    for (engine, bench) in &benches {
        let names = async |filter: &str| {
            let listed = bench.ok("modules", json!({ "filter": filter })).await;
            let mut names: Vec<String> = listed["modules"]
                .as_array()
                .unwrap()
                .iter()
                .map(|m| m["name"].as_str().unwrap().to_owned())
                .collect();
            names.sort_unstable();
            names
        };
        assert_eq!(names("ERNEL").await, ["kernel32", "kernelbase"], "{engine}");
        assert_eq!(names("nt*").await, ["ntdll"], "{engine}");
        assert_eq!(names("?tdll").await, ["ntdll"], "{engine}");
        assert_eq!(names("?t").await, Vec::<String>::new(), "{engine}");
        assert_eq!(names("*").await.len(), 4, "{engine}");
        assert_eq!(names("[n]tdll").await, Vec::<String>::new(), "{engine}");
        let blank = bench.refused("modules", json!({ "filter": " " })).await;
        assert_eq!(blank["category"], "invalid_argument", "{engine}");
    }
    close(benches).await;
}

#[tokio::test]
async fn threads_of_a_kernel_dump_are_its_processors() {
    let benches = both_with(&fixture("kernel.dmp")).await;
    for (engine, bench) in &benches {
        let threads = bench.ok("threads", json!({})).await;
        assert_eq!((&threads["kind"], &threads["total"]), (&json!("processors"), &json!(1)), "{engine}");
        assert_eq!(threads["threads"][0]["processor"], 0, "{engine}");
    }
    close(benches).await;
}

#[tokio::test]
async fn disassemble_into_an_unmapped_page_stops_early() {
    let benches = both().await;
    let mut counts = Vec::new();
    for (engine, bench) in &benches {
        let read = bench.ok("read_memory", json!({ "address": "@rsp", "size": 0x10_0000 })).await;
        let hole = number(&read["stopped_at"]);
        let asked = |address: u64| json!({ "address": format!("{address:#x}"), "count": 16 });
        let code = bench.ok("disassemble", asked(hole - 4)).await;
        assert_eq!(code["stopped_early"], true, "{engine}: {code:#}");
        let refused = bench.refused("disassemble", asked(hole)).await;
        assert_eq!(refused["reason"], "not_in_dump", "{engine}: {refused:#}");
        counts.push(
            code["instructions"].as_array().unwrap().iter().map(|i| i["bytes"].clone()).collect::<Vec<_>>(),
        );
    }
    assert!(counts.iter().all(|bytes| !bytes.is_empty()), "{counts:?}");
    assert!(counts.windows(2).all(|pair| pair[0] == pair[1]), "{counts:?}");
    close(benches).await;
}

#[tokio::test]
async fn set_symbol_path_for_new_sessions_then_open_resolves_and_another_client_is_unaffected() {
    let (Some(dbgeng), Some(native)) = (bench(), native()) else { return };
    for (engine, bench) in [("dbgeng", dbgeng), ("native", native)] {
        let path = json!({ "path": fixture(""), "for_new_sessions": true });
        let set = bench.ok("set_symbol_path", path).await;
        assert_eq!(
            (&set["applied"], &set["startup"]),
            (&json!(false), &json!("remembered")),
            "{engine}: {set}"
        );
        let copy = tempfile::tempdir().unwrap();
        let dump = copy.path().join("crash.dmp");
        std::fs::copy(fixture("crash.dmp"), &dump).unwrap();
        let open = json!({ "path": dump, "engine": engine });
        bench.ok("open_dump", open.clone()).await;
        let named = bench.ok("backtrace", json!({})).await["frames"][0].clone();
        assert_eq!(named["symbol"], "crash!ShipOrder", "{engine}: {named}");
        let other = bench.second_client();
        other.ok("open_dump", open).await;
        let bare = other.ok("backtrace", json!({})).await["frames"][0].clone();
        assert_ne!(bare["symbol"], "crash!ShipOrder", "{engine}: {bare}");
        bench.supervisor.shutdown().await;
    }
}
