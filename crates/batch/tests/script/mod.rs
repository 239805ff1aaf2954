//! A target that does what a test says, on a clock that moves when it is told to.
#![allow(dead_code, reason = "every test file uses its own part")]

use std::collections::BTreeMap;
use std::time::Duration;

use batch::{Batch, Budget, Done, Failure, Identity, Probe, Report, Subject, Unidentified};
use control::Verdict;
use serde_json::Value;

/// What happens while a call runs, in order.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    /// Milliseconds of the virtual clock.
    Cost(u64),
    Say(&'static str),
    Fail(&'static str),
    Refuse(&'static str),
    Panic(&'static str),
    Interrupt,
    Abandon,
    /// The engine holds something else.
    Hold,
    /// Another target or process is selected.
    Aim(&'static str),
    Thread,
    Gone(&'static str),
    Unreadable,
    Stop(u64),
    TimedOut,
    Verdict(Verdict),
    Set(u64, u8),
}

pub(crate) struct Script {
    pub(crate) now: Duration,
    pub(crate) acts: BTreeMap<String, Vec<Act>>,
    pub(crate) values: BTreeMap<String, u64>,
    pub(crate) memory: BTreeMap<u64, u8>,
    pub(crate) identity: Result<Identity, Unidentified>,
    pub(crate) reaims: bool,
    pub(crate) writable: bool,
    pub(crate) interrupted: bool,
    pub(crate) abandoned: bool,
    pub(crate) sealed: bool,
    /// Every call that reached the engine, in order.
    pub(crate) calls: Vec<String>,
    /// Interrupts that were answered `sealed`.
    pub(crate) refused_breaks: usize,
}

impl Default for Script {
    fn default() -> Self {
        Self {
            now: Duration::ZERO,
            acts: BTreeMap::new(),
            values: BTreeMap::new(),
            memory: (0x1000..0x1100).map(|at| (at, 0x11)).collect(),
            identity: Ok(Identity { generation: 1, aim: "process 1".to_owned() }),
            reaims: true,
            writable: true,
            interrupted: false,
            abandoned: false,
            sealed: false,
            calls: Vec::new(),
            refused_breaks: 0,
        }
    }
}

impl Script {
    pub(crate) fn on(mut self, call: &str, acts: Vec<Act>) -> Self {
        self.acts.insert(call.to_owned(), acts);
        self
    }
    pub(crate) fn value(mut self, expression: &str, value: u64) -> Self {
        self.values.insert(expression.to_owned(), value);
        self
    }
    pub(crate) fn byte(&self, at: u64) -> u8 {
        self.memory[&at]
    }

    fn play(&mut self, call: &str) -> Result<Done, Failure> {
        self.calls.push(call.to_owned());
        let mut done = Done::default();
        for act in self.acts.get(call).cloned().unwrap_or_default() {
            match act {
                Act::Cost(ms) => self.now += Duration::from_millis(ms),
                Act::Say(text) => done.output.push_str(text),
                Act::Fail(text) => return Err(Failure { done, ..Failure::new("debugger", text) }),
                Act::Refuse(text) => return Err(Failure { done, ..Failure::new("unsupported", text) }),
                Act::Panic(text) => panic!("{text}"),
                Act::Interrupt if self.sealed => self.refused_breaks += 1,
                Act::Interrupt => self.interrupted = true,
                Act::Abandon => self.abandoned = true,
                Act::Hold => self.edit(|identity| identity.generation += 1),
                Act::Aim(aim) => self.edit(|identity| aim.clone_into(&mut identity.aim)),
                Act::Thread => {}
                Act::Gone(why) => self.identity = Err(Unidentified::Gone(why.to_owned())),
                Act::Unreadable => self.identity = Err(Unidentified::Unreadable("no answer".to_owned())),
                Act::Stop(at) => done.stopped_at = Some(at),
                Act::TimedOut => done.timed_out = true,
                Act::Verdict(verdict) => done.verdict = Some(verdict),
                Act::Set(at, byte) => drop(self.memory.insert(at, byte)),
            }
        }
        Ok(done)
    }

    fn edit(&mut self, edit: impl FnOnce(&mut Identity)) {
        if let Ok(identity) = &mut self.identity {
            edit(identity);
        }
    }
}

impl Subject for Script {
    fn elapsed(&self) -> Duration {
        self.now
    }
    fn abandoned(&self) -> bool {
        self.abandoned
    }
    fn interrupted(&self) -> bool {
        self.interrupted
    }
    fn rolling_back(&mut self) -> bool {
        self.sealed = true;
        std::mem::take(&mut self.interrupted)
    }
    fn identity(&mut self) -> Result<Identity, Unidentified> {
        self.identity.clone()
    }
    fn aim_at(&mut self, aim: &str) -> Result<(), String> {
        self.calls.push(format!("aim {aim}"));
        if !self.reaims {
            return Err("no such process".to_owned());
        }
        self.edit(|identity| aim.clone_into(&mut identity.aim));
        Ok(())
    }
    fn command(&mut self, text: &str, within: Duration) -> Result<Done, Failure> {
        assert!(within >= Duration::from_secs(1), "a zero budget must never mean unbounded");
        self.play(text)
    }
    fn resume(&mut self, text: &str, wait: Duration) -> Result<Done, Failure> {
        assert!(wait >= Duration::from_secs(1));
        self.play(text)
    }
    fn run_to(&mut self, address: &str, wait: Duration) -> Result<Done, Failure> {
        assert!(wait >= Duration::from_secs(1));
        self.play(&format!("run_to {address}"))
    }
    fn eval(&mut self, expression: &str, _: Duration) -> Result<u64, Failure> {
        self.play(&format!("eval {expression}"))?;
        let inside = expression.strip_prefix('(').and_then(|rest| rest.strip_suffix(')'));
        let bare = inside.unwrap_or(expression);
        let number = || u64::from_str_radix(bare.trim_start_matches("0x"), 16).ok();
        let value = self.values.get(bare).copied().or_else(number);
        value.ok_or_else(|| Failure::new("debugger", format!("{bare} has no value")))
    }
    fn read(&mut self, address: u64, size: usize, _: Duration) -> Result<Vec<u8>, Failure> {
        self.play(&format!("read {address:#x} {size}"))?;
        let end = address.saturating_add(size as u64);
        let bytes: Vec<u8> = (address..end).map_while(|at| self.memory.get(&at).copied()).collect();
        if bytes.is_empty() { Err(Failure::new("debugger", "unreadable")) } else { Ok(bytes) }
    }
    fn write(&mut self, address: u64, bytes: &[u8], _: Duration) -> Result<(), Failure> {
        if !self.writable {
            return Err(Failure { untouched: true, ..Failure::new("unsupported", "a dump takes no writes") });
        }
        self.play(&format!("write {address:#x} {}", target::HexBytes(bytes.to_vec())))?;
        for (at, byte) in (address..).zip(bytes) {
            self.memory.insert(at, *byte);
        }
        Ok(())
    }
    fn probe(&mut self) -> Probe {
        match &self.identity {
            Ok(_) => Probe::Stopped { ip: 0x40_1000 },
            Err(_) => Probe::Unknown("no answer".to_owned()),
        }
    }
}

/// The nearest word, well enough for a test.
pub(crate) fn nearest<'a>(word: &str, words: &[&'a str]) -> Option<&'a str> {
    let head: String = word.chars().take(2).collect();
    words.iter().copied().find(|known| known.starts_with(&head))
}

pub(crate) fn parsed(value: &Value) -> Batch {
    batch::parse(value, nearest).unwrap_or_else(|problems| panic!("{problems:#?}"))
}

/// Runs the batch of `value` within its own `timeout_ms`.
pub(crate) fn run(script: &mut Script, value: &Value) -> Report {
    let batch = parsed(value);
    let budget = Budget::of(batch.timeout_ms, None).unwrap();
    let report = batch::run(&batch, budget, script).unwrap();
    assert_eq!(report.committed, report.outcome == batch::Outcome::Committed);
    assert_eq!(report.at.is_none(), report.committed);
    assert_eq!(report.steps.len(), batch.steps.len());
    assert_eq!(report.always.len(), batch.always.len());
    report
}
