//! The client against the simulated kernel: the rows of spec 71 section 12.3.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod attaching;
mod breakpoints;
mod events;
mod hostile;
mod proxy;
mod running;

use std::time::Duration;

use connection_string::Connection;
use kd_client::{AttachError, Options, attach};
use kd_sim::{Listen, Scenario, Simulator};
use target::{Halt, Target};

pub(crate) fn halt() -> Halt {
    Halt::within(Duration::from_secs(60))
}

pub(crate) fn simulator(scenario: &Scenario) -> Simulator {
    Simulator::start(scenario, &Listen::local()).unwrap()
}

/// Quick to repeat what is lost.
pub(crate) fn quick() -> Options {
    Options {
        timeout: Duration::from_millis(300),
        input_wait: Duration::from_millis(100),
        stop_within: Duration::from_secs(30),
        ..Options::default()
    }
}

/// The simulator's connection without its timeout, so that the options' holds.
pub(crate) fn dial(text: &str, options: &Options, halt: &Halt) -> Result<Box<dyn Target>, AttachError> {
    let text = text.split(",timeout=").next().unwrap();
    attach(&Connection::parse(text).unwrap(), options, &(), halt)
}

pub(crate) fn attached(simulator: &Simulator) -> Box<dyn Target> {
    dial(simulator.connection(), &quick(), &halt()).unwrap_or_else(|error| panic!("{error}"))
}

/// Runs through `control`, as the tools do.
pub(crate) fn run(
    target: &dyn Target,
    how: target::capability::Resume,
    bound: Duration,
) -> control::StopRecord {
    let mut runs = control::Runs::default();
    let halt = halt();
    let mut control = control::Control { target, runs: &mut runs, halt: &halt, moving: &|| {} };
    control::run(&mut control, how, bound).unwrap_or_else(|error| panic!("{error}"))
}
