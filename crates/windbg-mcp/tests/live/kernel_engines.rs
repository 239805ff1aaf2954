//! The same simulated kernel asked through both engines, field by field (spec 71 section 12.4).

use std::collections::BTreeMap;

use kd_sim::{Listen, Scenario, Simulator};
use serde_json::{Value, json};

use crate::bench::{Bench, bench, native, root};

const CODE: u64 = Scenario::CODE;

fn rows<'a>(answer: &'a Value, list: &str) -> &'a [Value] {
    answer[list].as_array().unwrap_or_else(|| panic!("no {list}: {answer:#}"))
}

/// What both must agree on.
#[derive(Debug, PartialEq)]
struct Told {
    modules: Vec<(Value, Value, Value)>,
    registers: BTreeMap<String, Value>,
    memory: Value,
    code: Vec<(Value, Value)>,
    processors: usize,
    hit: (Value, Value, Value),
    stepped: Value,
}

async fn told(bench: &Bench, engine: &str) -> Told {
    let fixtures = root().join("fixtures");
    let scenario = Scenario::with_processors(2).with_fixtures(&fixtures);
    let simulator = Simulator::start(&scenario, &Listen::local()).unwrap();
    let asked = json!({ "connection": simulator.connection(), "engine": engine, "symbol_path": fixtures,
        "image_path": fixtures });
    let opened = bench.ok("attach_kernel", asked).await;
    assert_eq!(opened["engine"], engine);
    let modules = bench.ok("modules", json!({ "refresh": true })).await;
    let registers = bench.ok("registers", json!({})).await;
    let code = bench.ok("disassemble", json!({ "address": format!("{CODE:#x}"), "count": 8 })).await;
    let memory = bench.ok("read_memory", json!({ "address": format!("{CODE:#x}"), "size": 64 })).await;
    let threads = bench.ok("threads", json!({})).await;
    bench.ok("set_breakpoint", json!({ "expression": format!("{:#x}", CODE + 0x17) })).await;
    let hit = bench.ok("go", json!({ "timeout_ms": 30_000 })).await;
    let stepped = bench.ok("step_into", json!({ "timeout_ms": 30_000 })).await;
    bench.ok("clear_breakpoints", json!({ "all": true })).await;
    bench.ok("end_session", json!({ "session_id": opened["session_id"] })).await;
    let module = |row: &Value| (row["name"].clone(), row["start"].clone(), row["end"].clone());
    let register = |row: &Value| (row["name"].as_str().unwrap().to_owned(), row["value"].clone());
    Told {
        modules: rows(&modules, "modules").iter().map(module).collect(),
        registers: rows(&registers, "registers").iter().map(register).collect(),
        memory: memory["data"].clone(),
        code: rows(&code, "instructions")
            .iter()
            .map(|r| (r["address"].clone(), r["bytes"].clone()))
            .collect(),
        processors: rows(&threads, "threads").len(),
        hit: (hit["stopped_at"].clone(), hit["processor"].clone(), hit["reason"]["kind"].clone()),
        stepped: stepped["stopped_at"].clone(),
    }
}

#[tokio::test]
async fn both_engines_say_the_same_of_the_same_kernel() {
    let (Some(native), Some(bench)) = (native(), bench()) else { return };
    let mut ours = told(&native, "native").await;
    native.supervisor.shutdown().await;
    let mut theirs = told(&bench, "dbgeng").await;
    // Each lists what it has; what both have must be the same.
    theirs.registers.retain(|name, _| ours.registers.contains_key(name));
    ours.registers.retain(|name, _| theirs.registers.contains_key(name));
    assert!(ours.registers.len() >= 18, "{ours:#?}");
    assert_eq!(ours, theirs);
    bench.supervisor.shutdown().await;
}
