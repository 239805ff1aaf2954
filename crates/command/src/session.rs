//! What one command leaves for the next, and running a line of commands.

use target::capability::CommandOutput;
use target::{Context, Halt, ReadError, Result, Target, TargetError, Unreadable};

use crate::catalog;
use crate::dump::Unit;
use crate::line;
use crate::run::Run;

/// Commands on one line.
pub(crate) const COMMANDS_LIMIT: usize = 256;

/// The state of one command session over one target. Owned by the caller; a new target needs a new
/// session.
#[derive(Clone, Debug, Default)]
pub struct Session {
    /// Registers set by `.cxr`, `.ecxr`, `.trap`, `.thread`; they hold until reset or a thread switch.
    pub(crate) context: Option<Context>,
    /// Frame of `.frame`, an index into the stack, inline rows included.
    pub(crate) frame: usize,
    /// Where the next `d` without an address goes on, and in which form.
    pub(crate) next_dump: Option<u64>,
    pub(crate) unit: Option<Unit>,
    pub(crate) next_code: Option<u64>,
    /// `$t0` to `$t19`.
    pub(crate) user_registers: [u64; 20],
}

impl Session {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Runs a line of commands separated by `;` or line breaks.
    ///
    /// A line with an unknown command is refused before any of it runs: reason `unknown_command`, and
    /// the message names the engine that would know it. A stopped command keeps its output so far and
    /// is `cut_short`. A command that fails ends the line; its error carries what was printed before.
    pub fn execute(&mut self, target: &dyn Target, line: &str, halt: &Halt) -> Result<CommandOutput> {
        let commands = line::split(line)?;
        if commands.len() > COMMANDS_LIMIT {
            return Err(TargetError::InvalidArgument(format!("more than {COMMANDS_LIMIT} commands")));
        }
        for command in &commands {
            catalog::find(command).map_err(|error| before_any(error, commands.len()))?;
        }
        let mut run = Run::new(self, target, halt);
        for command in &commands {
            match catalog::find(command).and_then(|(serve, arguments)| {
                run.check()?;
                serve(&mut run, arguments)
            }) {
                Ok(()) => {}
                Err(error) if is_stop(&error) => {
                    return Ok(CommandOutput { text: run.into_text(), cut_short: true });
                }
                Err(error) => return Err(with_output(error, &run.into_text())),
            }
        }
        let cut_short = run.is_full();
        Ok(CommandOutput { text: run.into_text(), cut_short })
    }

    /// The context commands use in place of the selected thread's, if one is set.
    #[must_use]
    pub fn context(&self) -> Option<&Context> {
        self.context.as_ref()
    }

    /// Forgets context and frame, as a change of thread does.
    pub fn reset_scope(&mut self) {
        self.context = None;
        self.frame = 0;
    }
}

/// The refusal of one of `count` commands of a line of which none has run.
pub(crate) fn before_any(error: TargetError, count: usize) -> TargetError {
    match error {
        TargetError::Unsupported { reason, message } if count > 1 => {
            TargetError::Unsupported { reason, message: format!("{message} Nothing of the line was run.") }
        }
        other => other,
    }
}

pub(crate) fn is_stop(error: &TargetError) -> bool {
    matches!(
        error,
        TargetError::Interrupted
            | TargetError::Deadline(_)
            | TargetError::Unreadable(ReadError { why: Unreadable::Interrupted | Unreadable::Deadline, .. })
    )
}

/// Puts what was printed before an error into its message, so that it is not lost.
pub(crate) fn with_output(error: TargetError, text: &str) -> TargetError {
    const KEPT: usize = 4096;
    if text.trim().is_empty() {
        return error;
    }
    let start = text.len().saturating_sub(KEPT);
    let start = (start..text.len()).find(|&i| text.is_char_boundary(i)).unwrap_or(text.len());
    let add = |message: String| format!("{message}\nPrinted before it:\n{}", &text[start..]);
    match error {
        TargetError::Unsupported { reason, message } => {
            TargetError::Unsupported { reason, message: add(message) }
        }
        TargetError::Failed { reason, message } => TargetError::Failed { reason, message: add(message) },
        TargetError::Unreadable(read) => {
            TargetError::Failed { reason: Some(read.why.reason()), message: add(read.to_string()) }
        }
        TargetError::InvalidArgument(message) => TargetError::InvalidArgument(add(message)),
        other => other,
    }
}
