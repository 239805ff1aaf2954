//! The read-only WinDbg commands served on any Target.

use target::capability::CommandOutput;
use target::{Halt, Result, Target, TargetError};

/// State of raw commands kept between calls of one session.
#[derive(Debug, Default)]
pub struct Session {}

impl Session {
    /// Runs one command line.
    pub fn execute(&mut self, _target: &dyn Target, line: &str, _halt: &Halt) -> Result<CommandOutput> {
        Err(TargetError::unsupported("not_served", format!("no command interpreter yet for {line}")))
    }
}
