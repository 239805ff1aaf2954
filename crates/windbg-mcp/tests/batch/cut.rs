//! 50 random batches on a live process of DbgEng, each cut at a random moment; 450 more run on scripts
//! (`worker/tests/batch_cuts.rs`). The second reader is the process's memory.

use std::collections::BTreeMap;
use std::time::Duration;

use differential::Lab;
use serde_json::{Value, json};

use crate::cuts::{Plan, Random, SIZE, Spelling};
use crate::mcp::Client;
use crate::process::{Process, lab, server, told, value, within};

/// Into the DOS stub of an image: nobody reads it.
const STUB: u64 = 0x40;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
}

struct Bench {
    lab: Lab,
    process: Process,
    at: u64,
    original: Vec<u8>,
}

impl Bench {
    fn new(lab: Lab) -> Self {
        let process = Process::start(&lab);
        let folder = tempfile::tempdir().unwrap();
        let mut client = server(&lab, &folder.path().join("t.jsonl"), 300);
        process.attach(&mut client, &lab);
        let at = value(&mut client, &process.name) + STUB;
        client.ok("end_session", json!({}));
        let original = process.read(at, SIZE);
        Self { lab, process, at, original }
    }

    fn plan(&self, random: &mut Random) -> Plan {
        let patch = |slot: u64| format!("eb {slot:#x} 90 90 90 90");
        let unpatch = |slot: u64| {
            let at = usize::try_from(slot - self.at).unwrap();
            format!("eb {slot:#x} {}", hex(&self.original[at..at + 4]))
        };
        let nap = |ms: u64| match ms {
            0..=8 => {
                json!({ "op": "command", "command": format!(".for (r $t0=0; @$t0<{:x}; r $t0=@$t0+1) {{}}", ms * 400) })
            }
            _ => json!({ "op": "resume", "command": "g", "timeout_ms": 1000 }),
        };
        let spelling = Spelling { patch: &patch, unpatch: &unpatch, nap: &nap, bad: "eb nosuch!symbol 1" };
        Plan::random(random, self.at, &spelling)
    }

    fn send(client: &mut Client, plan: &Plan) -> u64 {
        client.send("tools/call", json!({ "name": "debug_batch", "arguments": plan.args }))
    }

    /// What the report, if there is one, may not leave behind; then everything is put back.
    fn judge(&mut self, number: u64, plan: &Plan, report: Option<&Value>) -> String {
        let now = self.process.read(self.at, SIZE);
        assert!(self.process.lives(), "plan {number}: the process died");
        match report.filter(|report| report["outcome"].is_string()) {
            Some(report) => {
                let broken = plan.broken(report, &self.original, &now);
                assert!(broken.is_empty(), "plan {number}: {broken:#?}");
                report["outcome"].as_str().unwrap().to_owned()
            }
            None => {
                let broken = plan.broken_unreported(&self.original, &now);
                assert!(broken.is_empty(), "plan {number}: {broken:#?}");
                "unreported".to_owned()
            }
        }
    }

    /// What plans leave on purpose, put back through a session.
    fn reset(&self, client: &mut Client) {
        let line = format!("eb {:#x} {}", self.at, hex(&self.original));
        client.call("execute", json!({ "command": line }));
        assert_eq!(self.process.read(self.at, SIZE), self.original);
    }

    fn reset_alone(&self) {
        if self.process.read(self.at, SIZE) != self.original {
            let folder = tempfile::tempdir().unwrap();
            let mut client = server(&self.lab, &folder.path().join("t.jsonl"), 300);
            self.process.attach(&mut client, &self.lab);
            self.reset(&mut client);
            client.ok("end_session", json!({}));
        }
    }
}

fn pause(random: &mut Random) {
    std::thread::sleep(Duration::from_millis(random.below(700)));
}

#[test]
fn cut_50_times_on_a_live_process() {
    let Some(lab) = lab() else { return };
    let mut bench = Bench::new(lab);
    let mut outcomes: BTreeMap<String, usize> = BTreeMap::new();
    let mut count = |outcome: String| *outcomes.entry(outcome).or_insert(0) += 1;
    let folder = tempfile::tempdir().unwrap();

    let mut client = server(&bench.lab, &folder.path().join("interrupts.jsonl"), 300);
    bench.process.attach(&mut client, &bench.lab);
    for number in 0..26 {
        let mut random = Random::new(7000 + number);
        let plan = bench.plan(&mut random);
        let running = Bench::send(&mut client, &plan);
        pause(&mut random);
        client.ok("interrupt", json!({}));
        let report = client.answer_kept(running)["result"]["structuredContent"].clone();
        count(format!("interrupt: {}", bench.judge(number, &plan, Some(&report))));
        bench.reset(&mut client);
    }
    client.ok("end_session", json!({}));
    drop(client);

    for number in 26..50 {
        let mut random = Random::new(7000 + number);
        let plan = bench.plan(&mut random);
        let transcript = folder.path().join(format!("{number}.jsonl"));
        let mut client = server(&bench.lab, &transcript, 300);
        bench.process.attach(&mut client, &bench.lab);
        let running = Bench::send(&mut client, &plan);
        pause(&mut random);
        let (how, report) = match number % 3 {
            0 => {
                client.ok("end_session", json!({}));
                ("end", Some(client.answer_kept(running)["result"]["structuredContent"].clone()))
            }
            1 => {
                client.hang_up();
                assert!(client.exit(Duration::from_secs(30)).is_some());
                ("leave", told(&transcript).pop())
            }
            _ => {
                client.child.kill().unwrap();
                client.child.wait().unwrap();
                // Nobody says when the orphan is done: it is, when the process can be attached to.
                ("kill", None)
            }
        };
        drop(client);
        if how == "kill" {
            let folder = tempfile::tempdir().unwrap();
            let mut after = server(&bench.lab, &folder.path().join("t.jsonl"), 300);
            let pid = bench.process.pid(&mut after, &bench.lab);
            let asked = json!({ "pid": pid, "wine_prefix": bench.lab.prefix });
            assert!(within(
                Duration::from_secs(40),
                || after.call("attach_process", asked.clone())["isError"] != true
            ));
            after.ok("end_session", json!({}));
        }
        count(format!("{how}: {}", bench.judge(number, &plan, report.as_ref())));
        bench.reset_alone();
    }
    println!("{outcomes:#?}");
    assert!(outcomes.keys().any(|key| key == "interrupt: interrupted"), "{outcomes:?}");
}
