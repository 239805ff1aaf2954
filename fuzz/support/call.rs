//! Tools called as a worker calls them, each answer rendered.

use std::time::{Duration, Instant};

use serde_json::Value;
use target::{Halt, Silent, Target};
use tools::tool::Run;
use tools::{Job, Surface};

/// The repository's fixtures.
pub(crate) const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures");

/// What calls leave for the next.
#[derive(Default)]
pub(crate) struct Caller {
    commands: command::Session,
    runs: control::Runs,
    kept: tools::Kept,
}

impl Caller {
    /// Calls `tool` if there is such a worker tool and it admits `args`. A result must render, and
    /// a call under a bound of two seconds must not take eight.
    pub(crate) fn call(&mut self, target: &dyn Target, tool: &str, args: &Value) {
        let Some(entry) = tools::find(tool) else { return };
        let Ok(admission) = tools::admit(entry, args.as_object().cloned()) else { return };
        let Run::Worker(run) = entry.run else { return };
        let started = Instant::now();
        let mut job = Job {
            target,
            halt: &Halt::within(Duration::from_secs(2)),
            progress: &Silent,
            commands: &mut self.commands,
            runs: &mut self.runs,
            kept: &mut self.kept,
        };
        match run(&mut job, admission.args) {
            Ok(data) => drop(entry.render(&data, &Surface::all()).expect("a result renders")),
            Err(error) => drop(error.structured(&Surface::all())),
        }
        assert!(started.elapsed() < Duration::from_secs(8), "{tool} outlived its bound");
    }
}
