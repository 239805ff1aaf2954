//! Random batches and what may be said of the memory after one that was cut at a random moment: where
//! the report says it was restored it is as it was, and no rollback is claimed that did not happen.
//! The same plans run on scripts and on DbgEng under Wine.
#![allow(dead_code, reason = "every test file uses its own part")]

use serde_json::{Value, json};

/// Bytes of a plan's memory; slots of eight, four of them written.
pub(crate) const SIZE: usize = 128;
const SLOT: u64 = 8;

/// xorshift64*: the same plans on every run.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % limit
    }
    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// How a plan's engine spells what is no `write_memory`.
pub(crate) struct Spelling<'a> {
    /// Puts the four bytes of a slot to 0x90.
    pub(crate) patch: &'a dyn Fn(u64) -> String,
    /// Puts them back to what they were.
    pub(crate) unpatch: &'a dyn Fn(u64) -> String,
    /// Takes about so many milliseconds, and hears a break.
    pub(crate) nap: &'a dyn Fn(u64) -> Value,
    pub(crate) bad: &'a str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Undo {
    Always,
    OnFailure,
    Never,
    /// By the batch's own `always` block.
    Block,
}

/// A batch and what it may leave.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) args: Value,
    slots: Vec<(u64, Undo)>,
}

impl Plan {
    pub(crate) fn random(random: &mut Random, at: u64, spelling: &Spelling<'_>) -> Self {
        let (mut steps, mut always, mut slots) = (Vec::new(), Vec::new(), Vec::new());
        for index in 0..2 + random.below(4) {
            let slot = at + index * SLOT;
            match random.below(10) {
                0..=3 => {
                    let (word, undo) = [
                        ("always", Undo::Always),
                        ("always", Undo::Always),
                        ("on_failure", Undo::OnFailure),
                        ("never", Undo::Never),
                    ][usize::try_from(random.below(4)).unwrap_or(0)];
                    steps.push(json!({ "op": "write_memory", "address": format!("{slot:#x}"), "bytes": "90909090", "restore": word }));
                    slots.push((index * SLOT, undo));
                }
                4 | 5 => {
                    steps.push(json!({ "op": "command", "command": (spelling.patch)(slot) }));
                    always.push(json!({ "op": "command", "command": (spelling.unpatch)(slot) }));
                    slots.push((index * SLOT, Undo::Block));
                }
                6 if random.chance(40) => steps.push(json!({ "op": "command", "command": spelling.bad })),
                _ => steps.push((spelling.nap)(random.below(12))),
            }
            if random.chance(50) {
                steps.push((spelling.nap)(random.below(8)));
            }
        }
        // The block undoes newest first, as a caller would, and takes its time.
        always.reverse();
        if random.chance(40) {
            always.push((spelling.nap)(1 + random.below(6)));
        }
        Self { args: json!({ "steps": steps, "always": always, "timeout_ms": 20_000 }), slots }
    }

    /// What the memory may not be after `report`, the batch's own or its event in a transcript.
    pub(crate) fn broken(&self, report: &Value, before: &[u8], after: &[u8]) -> Vec<String> {
        let complete =
            ["complete", "not_supplied"].contains(&report["rollback"].as_str().unwrap_or_default());
        let committed = report["committed"] == true;
        let mut found = Vec::new();
        if report["rollback_complete"] != complete {
            found.push(format!("rollback_complete is not what rollback says: {report}"));
        }
        for &(offset, undo) in &self.slots {
            let at = usize::try_from(offset).unwrap_or(0);
            let (was, is) = (&before[at..at + 4], &after[at..at + 4]);
            let as_it_was = match undo {
                Undo::Always | Undo::Block => complete,
                Undo::OnFailure => complete && !committed,
                Undo::Never => false,
            };
            if as_it_was && is != was {
                found.push(format!("offset {offset} ({undo:?}) is {is:02x?}, not {was:02x?}"));
            }
            if undo == Undo::OnFailure && committed && is != [0x90; 4] {
                found.push(format!("offset {offset} was committed and is {is:02x?}"));
            }
        }
        let written: Vec<usize> =
            self.slots.iter().filter_map(|(offset, _)| usize::try_from(*offset).ok()).collect();
        let outside =
            (0..before.len()).filter(|at| !written.iter().any(|slot| (*slot..slot + 4).contains(at)));
        found.extend(
            outside.filter(|at| before[*at] != after[*at]).map(|at| format!("byte {at} was never written")),
        );
        if !found.is_empty() {
            found.push(format!("{report:#}\n{:#}", self.args));
        }
        found
    }

    /// What may be said where nobody reports, and the engine process was left to itself.
    pub(crate) fn broken_unreported(&self, before: &[u8], after: &[u8]) -> Vec<String> {
        let cut = json!({ "committed": false, "rollback": "complete", "rollback_complete": true });
        let done = json!({ "committed": true, "rollback": "complete", "rollback_complete": true });
        let broken = self.broken(&cut, before, after);
        if self.broken(&done, before, after).is_empty() { Vec::new() } else { broken }
    }
}
