//! Spec 20 section 6.5, the oracle tier: on DbgEng an operand that is an alias runs nothing, and the C++
//! evaluator writes nothing, whatever tool it is given to.

use serde_json::{Value, json};

use crate::bench::{Bench, bench, number};
use crate::operand::calls_with;

/// An alias that writes where nothing else does, and says so.
const ALIAS: &str = "zz_word";

/// The two places that are written if anything is: by the alias, and by the C++ evaluator.
async fn written(bench: &Bench) -> String {
    let read = bench.ok("read_memory", json!({ "address": "victim!g_other+4", "size": 8 })).await;
    read["data"].as_str().unwrap().to_owned()
}

const NOTHING: &str = "0000000000000000";

async fn define(bench: &Bench) {
    bench.execute(&format!("aS {ALIAS} \"0 ; ed victim!g_other+4 deadbeef ; .echo MARKER_RAN\"")).await;
}

async fn wipe(bench: &Bench) {
    bench.execute("ed victim!g_other+4 0 0").await;
    assert_eq!(written(bench).await, NOTHING);
}

#[tokio::test]
async fn an_alias_given_as_an_operand_runs_nothing_and_the_c_evaluator_writes_nothing() {
    let Some(bench) = bench() else { return };
    bench.launch("victim.exe", "0").await;
    let place =
        bench.ok("walk_memory", json!({ "start": "victim!g_other+8", "stride": 4, "count": 1 })).await;
    let write = format!("@@c++(*(unsigned int*){:#x} = 0x1234)", number(&place["start"]));
    wipe(&bench).await;
    define(&bench).await;

    // As raw text the alias does run, and the evaluator does write.
    assert!(bench.execute(&format!("? {ALIAS}")).await.contains("MARKER_RAN"));
    bench.execute(&format!("? {write}")).await;
    assert_eq!(written(&bench).await, "efbeadde34120000");
    wipe(&bench).await;

    let mut tried = 0;
    for text in [ALIAS, &write] {
        for (operand, tool, mut arguments) in calls_with(text) {
            let entry = tools::find(tool).unwrap();
            // An opener would make another session, and so would a coordinate ask another.
            // The data model can run commands by itself, and says so (destructive); its text is a command's.
            if entry.group == tools::Group::Session || operand.contains("coordinate") || tool == "dx" {
                continue;
            }
            if tool == "run_to_address" {
                arguments.insert("timeout_ms".into(), json!(300));
            }
            let (told, outcome) = bench.said(tool, Value::Object(arguments)).await;
            tried += 1;
            assert!(!told.contains("MARKER_RAN"), "{operand}: {told}");
            if text != ALIAS {
                assert_eq!(outcome.unwrap_err()["category"], "invalid_argument", "{operand}");
            }
            assert_eq!(written(&bench).await, NOTHING, "{operand} given {text} wrote");
        }
    }
    println!("{tried} calls");
    assert!(tried >= 40, "{tried}");
    bench.ok("end_session", json!({})).await;
}

#[tokio::test]
async fn an_alias_left_in_a_breakpoint_runs_at_no_hit() {
    let Some(bench) = bench() else { return };
    bench.launch("victim.exe", "3 1").await;
    wipe(&bench).await;
    define(&bench).await;
    let refused = bench.call("set_breakpoint", json!({ "expression": ALIAS })).await;
    let condition = json!({ "expression": "victim!poke", "condition": ALIAS });
    let conditional = bench.call("set_breakpoint", condition).await;
    println!("as a place: {refused:?}; as a condition: {conditional:?}");
    // Behind the first hits: the third arrival at the loop's own function never comes, its writes do.
    let watch =
        json!({ "expression": "victim!g_watch", "watch": { "access": "write", "size": 4 }, "pass_count": 2 });
    bench.ok("set_breakpoint", watch).await;
    let stop = bench.ok("go", json!({ "timeout_ms": 20_000 })).await;
    assert_ne!(stop["target_gone"], true, "{stop:#}");
    assert_eq!(written(&bench).await, NOTHING);
    bench.ok("end_session", json!({})).await;
}
